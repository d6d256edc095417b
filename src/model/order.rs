//! The order in which hoisted models are stored: bases before their descendants, whatever their names.
//!
//! 1. Wider element types come first: a narrower model may be the cast of a wider one, and is then nearly free.
//! 2. Among models of one architecture and type, the first is the one that others name as their base and that names
//!    none of them.
//! 3. If no card gives a base, the first is the model that is nearest to most others: fine-tunes are nearer to their
//!    base than to each other. Among equals it is the one with the smallest sum of distances, then the first by path.
//! 4. If that model is a checkpoint of a training run (paths that differ in numbers only), the checkpoint with the
//!    smallest number replaces it, because distances have no direction. The nearest model outside the run
//!    is taken for the start of the run if its nearest checkpoint is that one.
//! 5. Then follows repeatedly the model that is nearest to any model before it.
//!
//! Distances are estimated from the sketches.

use std::path::{Path, PathBuf};

use crate::format::Dtype;
use crate::model::{ModelRecord, TensorLookup, compare_models};
use crate::repo::tree::Node;

/// Models of one architecture that are compared, at most; a larger group keeps its order.
const COMPARED_MAX: usize = 128;
/// Distance of models that cannot be compared.
const APART: f64 = 1e6;

/// Files that the search for models examines, at most.
pub const CANDIDATES_MAX: usize = 1 << 14;
/// Memory for records of models that are to be ordered. Models beyond that are not hoisted. Bytes.
pub const HOISTED_BYTES_MAX: usize = 16 << 20;

/// A model file that is to be stored before the walk.
pub struct HoistCandidate {
    /// Path of the file.
    pub path: PathBuf,
    /// State of the file when it was examined.
    pub node: Node,
    /// Its record, without fingerprints of blocks.
    pub record: ModelRecord,
}

/// Puts `files` into the order of storing.
pub fn storing_order(files: Vec<HoistCandidate>) -> Vec<HoistCandidate> {
    let mut groups: Vec<(Dtype, Vec<u64>, Vec<HoistCandidate>)> = Vec::new();
    for file in files {
        let ((dtype, _), keys) = (file.record.main_dtype(), file.record.keys());
        match groups.iter_mut().find(|group| group.0 == dtype && group.1 == keys) {
            Some(group) => group.2.push(file),
            None => groups.push((dtype, keys, vec![file])),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(width_of(group.0)));
    groups.into_iter().flat_map(|group| order_group(group.2)).collect()
}

/// Bytes of a value of this type; 1 for integers, 0 for quantised types, which come last.
fn width_of(dtype: Dtype) -> usize {
    match dtype {
        Dtype::Other => 0,
        // They may be codes of floats.
        Dtype::Int64 | Dtype::Int32 | Dtype::Int16 => 1,
        _ => dtype.width().unwrap_or(0),
    }
}

fn order_group(files: Vec<HoistCandidate>) -> Vec<HoistCandidate> {
    if files.len() > COMPARED_MAX || files.len() < 2 {
        return files;
    }
    let distances = distances(&files);
    let first = named_base(&files).unwrap_or_else(|| origin(&files, &distances, hub(&distances)));
    let mut taken = vec![first];
    let mut reach = distances[first].clone();
    while taken.len() < files.len() {
        let next = nearest(&reach, &taken);
        taken.push(next);
        reach.iter_mut().zip(&distances[next]).for_each(|(reach, distance)| *reach = reach.min(*distance));
    }
    let mut files: Vec<Option<HoistCandidate>> = files.into_iter().map(Some).collect();
    taken.into_iter().filter_map(|at| files.get_mut(at).and_then(Option::take)).collect()
}

/// Bit distance of each pair, estimated from the sketches.
fn distances(files: &[HoistCandidate]) -> Vec<Vec<f64>> {
    let lookups: Vec<TensorLookup> = files.iter().map(|file| TensorLookup::of(&file.record)).collect();
    let mut distances = vec![vec![0.0; files.len()]; files.len()];
    for (i, one) in files.iter().enumerate() {
        for (j, other) in lookups.iter().enumerate().skip(i + 1) {
            let distance =
                compare_models(&one.record, other).map_or(APART, |compare_models| compare_models.bit_distance);
            (distances[i][j], distances[j][i]) = (distance, distance);
        }
    }
    distances
}

/// The model that is nearest to most others.
fn hub(distances: &[Vec<f64>]) -> usize {
    let mut followers = vec![0usize; distances.len()];
    for (at, row) in distances.iter().enumerate() {
        followers[nearest(row, &[at])] += 1;
    }
    let sums = distances.iter().map(|row| row.iter().sum::<f64>());
    let rated = followers.into_iter().zip(sums).enumerate();
    // Reversed, because `max_by` gives the last of equals.
    let best = rated.rev().max_by(|(_, one), (_, other)| one.0.cmp(&other.0).then(other.1.total_cmp(&one.1)));
    best.map_or(0, |(at, _)| at)
}

/// The start of the training run that file `of` belongs to; `of` itself if it belongs to none.
fn origin(files: &[HoistCandidate], distances: &[Vec<f64>], of: usize) -> usize {
    let paths: Vec<(Vec<u8>, Vec<u128>)> = files.iter().map(|file| numbered(&file.path)).collect();
    let is_inside = |at: &usize| paths.get(*at).map(|path| &path.0) == paths.get(of).map(|path| &path.0);
    let (run, others): (Vec<usize>, Vec<usize>) = (0..files.len()).partition(is_inside);
    let first = run.iter().copied().min_by_key(|at| paths.get(*at).map(|path| &path.1)).unwrap_or(of);
    if run.len() < 2 || others.is_empty() {
        return first;
    }
    let before = nearest(&distances[first], &run);
    if distances[first][before] < APART && nearest(&distances[before], &others) == first { before } else { first }
}

/// A path with its numbers replaced, and the numbers.
fn numbered(path: &Path) -> (Vec<u8>, Vec<u128>) {
    let (mut pattern, mut numbers, mut is_inside) = (Vec::new(), Vec::new(), false);
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_digit() {
            if !is_inside {
                pattern.push(b'0');
                numbers.push(0);
            }
            let value = u128::from(byte - b'0');
            numbers.iter_mut().next_back().into_iter().for_each(|last: &mut u128| {
                *last = last.saturating_mul(10).saturating_add(value);
            });
        } else {
            pattern.push(*byte);
        }
        is_inside = byte.is_ascii_digit();
    }
    (pattern, numbers)
}

/// Index of the smallest value that is not taken; the first of equals.
fn nearest(values: &[f64], taken: &[usize]) -> usize {
    let open = values.iter().enumerate().filter(|(at, _)| !taken.contains(at));
    open.min_by(|one, other| one.1.total_cmp(other.1)).map_or(0, |(at, _)| at)
}

/// The model that most others name, if it names none of them.
fn named_base(files: &[HoistCandidate]) -> Option<usize> {
    let names = |child: &HoistCandidate, base: &HoistCandidate| {
        child.record.bases.iter().any(|name| base.record.names.contains(name))
    };
    let children = |base: &HoistCandidate| files.iter().filter(|child| names(child, base)).count();
    let is_root = |file: &HoistCandidate| !files.iter().any(|other| names(file, other));
    let named = files.iter().enumerate().filter(|(_, file)| is_root(file) && children(file) > 0);
    named.max_by_key(|(at, file)| (children(file), std::cmp::Reverse(*at))).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TensorRecord;
    use crate::types::Fingerprint;

    /// A model of one tensor; `shift` is added to the bits of each FP32 value.
    fn model(name: &str, bases: &[&str], shift: u32, dtype: Dtype) -> HoistCandidate {
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
            evidence: None,
        };
        HoistCandidate { path: name.into(), node: Node::default(), record }
    }

    fn order_of(files: Vec<HoistCandidate>) -> Vec<String> {
        storing_order(files).into_iter().map(|file| file.path.display().to_string()).collect()
    }

    #[test]
    fn a_named_base_comes_first() {
        let single = Dtype::Float32;
        let files = vec![model("a", &["z"], 5, single), model("b", &["z"], 900, single), model("z", &[], 100, single)];
        assert_eq!(order_of(files), ["z", "a", "b"]);
    }

    /// A model of one BF16 tensor in which the values in `moved` have their last bit set.
    fn tuned(name: &str, moved: std::ops::Range<u16>) -> HoistCandidate {
        let mut made = model(name, &[], 0, Dtype::Bfloat16);
        let value = |at: u16| 0x3d00 + 2 * at + u16::from(moved.contains(&at));
        let sketch: Vec<u8> = (0..128u16).flat_map(|at| value(at).to_le_bytes()).collect();
        made.record.tensors.iter_mut().for_each(|tensor| tensor.sketch.clone_from(&sketch));
        made
    }

    #[test]
    fn without_cards_the_model_that_is_nearest_to_most_others_comes_first() {
        // Three fine-tunes of different parts and lengths.
        let files =
            vec![tuned("a-tune", 0..9), tuned("b-tune", 20..60), tuned("c-tune", 64..70), tuned("z-base", 0..0)];
        assert_eq!(order_of(files), ["z-base", "c-tune", "a-tune", "b-tune"]);
    }

    #[test]
    fn a_training_run_is_stored_by_its_start_and_then_its_numbers() {
        let step = |number: u32, end: u16| tuned(&format!("run/step{number}/model"), 0..end);
        let run = || vec![step(100, 90), step(20, 60), step(3, 30), step(200, 100)];
        let numbers = ["run/step3/model", "run/step20/model", "run/step100/model", "run/step200/model"];
        assert_eq!(order_of(run()), numbers);
        let base = || tuned("z-base", 0..0);
        assert_eq!(order_of(run().into_iter().chain([base()]).collect()), [&["z-base"], &numbers[..]].concat());
        let later = tuned("a-later", 0..110);
        assert_eq!(order_of(run().into_iter().chain([later]).collect()), [&numbers[..], &["a-later"]].concat());
    }

    #[test]
    fn models_that_cannot_be_compared_are_stored_apart() {
        let half = |name: &str| model(name, &[], 0, Dtype::Float16);
        let files = vec![half("a"), tuned("b-tune", 0..9), tuned("c-tune", 20..60), half("d"), tuned("e", 0..0)];
        assert_eq!(order_of(files), ["a", "d", "e", "b-tune", "c-tune"]);
    }

    #[test]
    fn in_a_chain_each_model_follows_a_near_one() {
        let files = vec![tuned("a", 0..10), tuned("b", 0..5), tuned("c", 0..0), tuned("d", 0..20)];
        assert_eq!(order_of(files), ["a", "b", "c", "d"]);
    }

    #[test]
    fn wider_types_come_first() {
        let files = vec![model("a", &[], 0, Dtype::Bfloat16), model("b", &["a"], 0, Dtype::Float32)];
        assert_eq!(order_of(files), ["b", "a"]);
    }
}
