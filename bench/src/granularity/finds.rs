//! What each unit finds in one file, and where the bytes of repeated chunks come from.

use std::path::Path;

use serde_json::{Value, json};

use crate::report::{Grid, Plot, Strips};
use crate::whole_model::ModelBytes;

/// Ranges of a file.
type Ranges = Vec<(u64, u64)>;

/// Repeated ranges of a file, by unit.
pub(super) struct Finds {
    /// Address of the file's first byte in memory, and its length.
    start: usize,
    len: usize,
    by_unit: [Ranges; 4],
    tensors: Ranges,
}

/// Bytes of repeated chunks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Repeats {
    whole_tensors: u64,
    other_tensors: u64,
    outside: u64,
}

impl Finds {
    pub(super) fn new(file: &ModelBytes) -> Self {
        let model = file.model.as_ref();
        let tensors = model.iter().flat_map(|model| &model.tensors);
        Finds {
            start: file.bytes.as_ptr().addr(),
            len: file.bytes.len(),
            by_unit: Default::default(),
            tensors: tensors.map(|tensor| (tensor.offset, tensor.offset + tensor.len)).collect(),
        }
    }

    /// The range of a part of the file, which is a slice of its bytes.
    pub(super) fn range(&self, part: &[u8]) -> (usize, usize) {
        let from = part.as_ptr().addr().saturating_sub(self.start).min(self.len);
        (from, (from + part.len()).min(self.len))
    }

    /// Adds a repeated range of a unit: 0 file, 1 layer, 2 tensor, 3 chunk.
    pub(super) fn add(&mut self, unit: usize, (from, to): (usize, usize)) {
        self.by_unit.get_mut(unit).into_iter().for_each(|ranges| ranges.push((from as u64, to as u64)));
    }

    /// Share of the file that each unit finds, a line for each.
    pub(super) fn lines(&self, set: &str) -> Vec<Value> {
        let line = |(name, ranges): (&&str, &Ranges)| {
            let bytes = ranges.iter().map(|(from, to)| to - from).sum::<u64>();
            let share = bytes as f64 / (self.len as f64).max(1.0);
            json!({"set": set, "method": format!("{name}, in one model"), "found": share})
        };
        super::METHODS.iter().zip(&self.by_unit).map(line).collect()
    }

    /// The picture of the file.
    pub(super) fn plot(&self, set: &str, file: &Path) -> Plot {
        let directory = file.parent().and_then(Path::file_name).unwrap_or(file.as_os_str());
        let rows = super::METHODS.iter().zip(&self.by_unit).map(|(name, ranges)| (name.to_string(), ranges.clone()));
        Plot::Strips(Strips {
            title: format!("{set}: what each unit finds in {}", directory.to_string_lossy()),
            meanings: ["repeated".into(), "unique".into()],
            len: self.len as u64,
            rows: rows.collect(),
        })
    }
}

/// Bytes that two lists of ranges share. Both are sorted and do not overlap within.
fn shared(ones: &[(u64, u64)], others: &[(u64, u64)]) -> u64 {
    let (mut at, mut sum) = (0, 0);
    for (from, to) in ones {
        while others.get(at).is_some_and(|other| other.1 <= *from) {
            at += 1;
        }
        let near = others.iter().skip(at).take_while(|other| other.0 < *to);
        sum += near.map(|other| other.1.min(*to) - other.0.max(*from)).sum::<u64>();
    }
    sum
}

impl Repeats {
    pub(super) fn add(&mut self, finds: &Finds) {
        let [_, _, tensors, chunks] = &finds.by_unit;
        let (total, within) = (chunks.iter().map(|(from, to)| to - from).sum::<u64>(), shared(chunks, &finds.tensors));
        let whole = shared(chunks, tensors);
        self.whole_tensors += whole;
        self.other_tensors += within - whole;
        self.outside += total - within;
    }

    pub(super) fn line(&self, set: &str) -> Value {
        let total = ((self.whole_tensors + self.other_tensors + self.outside) as f64).max(1.0);
        let share = |bytes: u64| bytes as f64 / total;
        json!({
            "set": set, "method": "source of repeats", "bytes": self.whole_tensors + self.other_tensors + self.outside,
            "tensors": share(self.whole_tensors + self.other_tensors),
            "whole_tensors": share(self.whole_tensors), "other_tensors": share(self.other_tensors),
            "outside": share(self.outside),
        })
    }
}

/// The shares of all sets.
pub(super) fn grid(lines: &[Value]) -> Grid {
    let row = |line: &Value| {
        let number = |key: &str| line.get(key).and_then(Value::as_f64).unwrap_or_default();
        let shares = ["whole_tensors", "other_tensors", "outside"].map(|key| format!("{:.2}", 100.0 * number(key)));
        let set = line.get("set").and_then(Value::as_str).unwrap_or_default();
        [set.to_string(), format!("{:.1}", number("bytes") / 1e6)].into_iter().chain(shares).collect()
    };
    let columns = ["set", "MB in repeated chunks", "repeated tensors %", "other tensors %", "outside tensors %"];
    Grid {
        title: "Where the bytes of repeated chunks are".into(),
        columns: columns.map(str::to_string).to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_divided_by_the_tensor_they_lie_in() {
        assert_eq!(shared(&[(0, 10), (20, 30)], &[(5, 22), (28, 40)]), 5 + 2 + 2);
        let mut finds = Finds::new(&ModelBytes { bytes: vec![0; 100], model: None });
        finds.tensors = vec![(10, 50), (50, 90)];
        finds.add(2, (10, 50));
        finds.add(3, (0, 20));
        finds.add(3, (40, 60));
        let mut repeats = Repeats::default();
        repeats.add(&finds);
        assert_eq!((repeats.whole_tensors, repeats.other_tensors, repeats.outside), (20, 10, 10));
        let line = repeats.line("x");
        assert_eq!((line["whole_tensors"].as_f64(), line["outside"].as_f64()), (Some(0.5), Some(0.25)));
    }
}
