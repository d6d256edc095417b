//! Labels: what a report calls each of its models, distinct as far as possible.
//!
//! 1. A model whose name is unique is called by its name.
//! 2. Models with the same name are called by the end of their paths: the fewest whole components that are unique.
//! 3. If the paths are equal too, as happens across snapshots, the first digits of the id follow.

use std::collections::HashMap;

use crate::types::Fingerprint;

/// Hex digits of an id after a path.
const ID_DIGITS: usize = 8;

/// A model that needs a label.
#[derive(Debug, Clone)]
pub struct NamedModel {
    /// Its name, which other models may share.
    pub name: String,
    /// Its path, as bytes.
    pub path: Vec<u8>,
    /// Id of its content, if it is known.
    pub id: Option<Fingerprint>,
}

/// The label of each model, in the order of `models`.
pub fn labels(models: &[NamedModel]) -> Vec<String> {
    let mut labels: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let mut same_name: HashMap<&str, Vec<(usize, &NamedModel)>> = HashMap::new();
    for (at, model) in models.iter().enumerate() {
        same_name.entry(&model.name).or_default().push((at, model));
    }
    let mut open: Vec<Vec<(usize, &NamedModel)>> = same_name.into_values().filter(|group| group.len() > 1).collect();
    let mut components = 1;
    while !open.is_empty() {
        let mut still_open = Vec::new();
        for group in open {
            let mut same_end: HashMap<&[u8], Vec<(usize, &NamedModel)>> = HashMap::new();
            for (at, model) in group {
                same_end.entry(path_end(&model.path, components)).or_default().push((at, model));
            }
            for (end, group) in same_end {
                for (at, model) in &group {
                    let Some(label) = labels.get_mut(*at) else { continue };
                    *label = String::from_utf8_lossy(end).into_owned();
                    // A complete path has no further component that could make it unique.
                    if group.len() > 1 && end.len() == model.path.len() {
                        let id = model.id.map(|id| id.to_string()).unwrap_or_default();
                        label.push_str(&format!(" ({})", id.get(..ID_DIGITS).unwrap_or(&id)));
                    }
                }
                if group.len() > 1 && group.iter().any(|(_, model)| end.len() < model.path.len()) {
                    still_open.push(group);
                }
            }
        }
        (open, components) = (still_open, components + 1);
    }
    labels
}

/// The last `components` components of a path.
fn path_end(path: &[u8], components: usize) -> &[u8] {
    let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    let start = slashes.map(|(at, _)| at + 1).nth(components - 1).unwrap_or(0);
    path.split_at(start).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(models: &[(&str, &str, u8)]) -> Vec<String> {
        let named = models.iter().map(|(name, path, id)| NamedModel {
            name: name.to_string(),
            path: path.as_bytes().to_vec(),
            id: Some(Fingerprint([*id; 32])),
        });
        labels(&named.collect::<Vec<_>>())
    }

    #[test]
    fn models_with_the_same_name_are_called_by_their_paths() {
        let found = labels_of(&[
            ("tune", "home/a/tune.npz", 1),
            ("tune", "home/b/tune.bin", 2),
            ("base", "home/base/model.safetensors", 3),
            ("model", "x/one/weights/model.bin", 4),
            ("model", "x/two/weights/model.bin", 5),
            ("model", "weights/model.bin", 6),
        ]);
        let expected =
            ["tune.npz", "tune.bin", "base", "one/weights/model.bin", "two/weights/model.bin", "weights/model.bin"];
        assert_eq!(found, expected);
    }

    #[test]
    fn models_with_the_same_path_are_called_by_their_ids() {
        let found = labels_of(&[("tune", "a/tune", 0x11), ("tune", "a/tune", 0x22), ("tune", "tune", 0x33)]);
        assert_eq!(found, ["a/tune (11111111)", "a/tune (22222222)", "tune"]);
        assert_eq!(labels_of(&[("", "", 1), ("", "", 2)]), [" (01010101)", " (02020202)"]);
    }
}
