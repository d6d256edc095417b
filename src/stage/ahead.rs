//! The order in which the contents of models are stored: bases before what descends from them, whatever their names.
//!
//! 1. Wider types come first: a narrower model may be the cast of a wider one, and then takes no space.
//! 2. Of models of one architecture the first is the one that others name as their base and that names none of them;
//!    if no card says so, the one nearest to all others.
//! 3. Then always the one that is nearest to any of those before it.

use std::path::PathBuf;

use crate::format::Dtype;
use crate::lineage::{ModelRecord, compare};
use crate::tree::Node;

/// Models of one architecture that are compared, at most; more are taken as they come.
const COMPARED_MAX: usize = 128;
/// Tensors compared of each, at most.
const TENSORS_MAX: usize = 8;

/// A model file and what is known before its content is stored.
pub struct Waiting {
    /// Where it is.
    pub path: PathBuf,
    /// As it was when it was looked at.
    pub node: Node,
    /// Its record, without blocks.
    pub record: ModelRecord,
}

/// `files` in the order of storing.
pub fn order(files: Vec<Waiting>) -> Vec<Waiting> {
    let mut groups: Vec<(usize, Vec<u64>, Vec<Waiting>)> = Vec::new();
    for file in files {
        let (width, keys) = (width_of(&file.record), file.record.keys());
        match groups.iter_mut().find(|group| group.0 == width && group.1 == keys) {
            Some(group) => group.2.push(file),
            None => groups.push((width, keys, vec![file])),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.0));
    groups.into_iter().flat_map(|group| order_group(group.2)).collect()
}

/// Bytes of a value of its main type; quantised ones last.
fn width_of(record: &ModelRecord) -> usize {
    let (dtype, _) = record.main_dtype();
    if dtype == Dtype::Other { 0 } else { dtype.width().unwrap_or(0) }
}

fn order_group(files: Vec<Waiting>) -> Vec<Waiting> {
    if files.len() > COMPARED_MAX || files.len() < 2 {
        return files;
    }
    let mut distances = vec![vec![0.0; files.len()]; files.len()];
    for (i, one) in files.iter().enumerate() {
        for (j, other) in files.iter().enumerate().skip(i + 1) {
            let distance = distance(&one.record, &other.record);
            (distances[i][j], distances[j][i]) = (distance, distance);
        }
    }
    let sums: Vec<f64> = distances.iter().map(|row| row.iter().sum()).collect();
    let first = named_base(&files).unwrap_or_else(|| nearest(&sums, &[]));
    let mut taken = vec![first];
    let mut reach = distances[first].clone();
    while taken.len() < files.len() {
        let next = nearest(&reach, &taken);
        taken.push(next);
        reach.iter_mut().zip(&distances[next]).for_each(|(reach, distance)| *reach = reach.min(*distance));
    }
    let mut files: Vec<Option<Waiting>> = files.into_iter().map(Some).collect();
    taken.into_iter().filter_map(|at| files.get_mut(at).and_then(Option::take)).collect()
}

/// The place of the smallest value that is not taken; the first of equals.
fn nearest(values: &[f64], taken: &[usize]) -> usize {
    let open = values.iter().enumerate().filter(|(at, _)| !taken.contains(at));
    open.min_by(|one, other| one.1.total_cmp(other.1)).map_or(0, |(at, _)| at)
}

/// The model that most others name, if it names none of them.
fn named_base(files: &[Waiting]) -> Option<usize> {
    let names =
        |child: &Waiting, base: &Waiting| child.record.bases.iter().any(|name| base.record.names.contains(name));
    let children = |base: &Waiting| files.iter().filter(|child| names(child, base)).count();
    let is_root = |file: &Waiting| !files.iter().any(|other| names(file, other));
    let named = files.iter().enumerate().filter(|(_, file)| is_root(file) && children(file) > 0);
    named.max_by_key(|(at, file)| (children(file), std::cmp::Reverse(*at))).map(|(at, _)| at)
}

/// Mean length of the differences of the largest tensors, as their sketches show it.
fn distance(one: &ModelRecord, other: &ModelRecord) -> f64 {
    let mut largest: Vec<usize> = (0..one.tensors.len().min(other.tensors.len())).collect();
    largest.sort_by_key(|at| std::cmp::Reverse(one.tensors.get(*at).map_or(0, |tensor| tensor.len)));
    let (mut sum, mut count) = (0.0, 0.0);
    for at in largest.into_iter().take(TENSORS_MAX) {
        let (Some(mine), Some(theirs)) = (one.tensors.get(at), other.tensors.get(at)) else { continue };
        if let Some(found) = compare(mine.sketched(), theirs.sketched()) {
            (sum, count) = (sum + found.delta_bits, count + 1.0);
        }
    }
    if count > 0.0 { sum / count } else { f64::MAX / 1e6 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::TensorRecord;
    use crate::types::Fingerprint;

    /// A model of one FP32 tensor whose values lie `shift` units in the last place above the first's.
    fn model(name: &str, bases: &[&str], shift: u32, dtype: Dtype) -> Waiting {
        let values = (0..64u32).flat_map(|i| (0x3d00_0000 + i * 7919 + shift).to_le_bytes());
        let sketch: Vec<u8> = values.take(64 * dtype.width().unwrap()).collect();
        let tensor = TensorRecord {
            name: "w".into(),
            dtype: dtype.code(),
            shape: vec![1 << 16, 16],
            offset: 0,
            len: (dtype.width().unwrap() as u64) << 20,
            sketch,
            blocks: Vec::new(),
        };
        let record = ModelRecord {
            id: Fingerprint([0; 32]),
            format: "safetensors".into(),
            path: name.into(),
            names: vec![name.into()],
            bases: bases.iter().map(|base| base.to_string()).collect(),
            bytes: tensor.len,
            parameters: 1 << 20,
            block_bytes: 1 << 20,
            tensors: vec![tensor],
            base: None,
            content: None,
        };
        Waiting { path: name.into(), node: Node::default(), record }
    }

    fn order_of(files: Vec<Waiting>) -> Vec<String> {
        order(files).into_iter().map(|file| file.path.display().to_string()).collect()
    }

    #[test]
    fn a_named_base_comes_first() {
        let single = Dtype::Float32;
        let files = vec![model("a", &["z"], 5, single), model("b", &["z"], 900, single), model("z", &[], 100, single)];
        assert_eq!(order_of(files), ["z", "a", "b"]);
    }

    #[test]
    fn without_cards_the_one_in_the_middle_comes_first_and_each_next_is_near() {
        let single = Dtype::Float32;
        let files = vec![
            model("a", &[], 1 << 12, single),
            model("b", &[], 1 << 11, single),
            model("c", &[], 0, single),
            model("d", &[], 1 << 13, single),
        ];
        let order = order_of(files);
        assert!(order[0] == "b" || order[0] == "a", "{order:?}");
        assert_eq!(order.len(), 4);
    }

    #[test]
    fn wider_types_come_first() {
        let files = vec![model("a", &[], 0, Dtype::Bfloat16), model("b", &["a"], 0, Dtype::Float32)];
        assert_eq!(order_of(files), ["b", "a"]);
    }
}
