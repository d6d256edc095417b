//! What models are called where several are told of: their names, and where these collide the ends of their paths.
//!
//! 1. A name that one model has stands alone.
//! 2. Models of one name are called by the shortest end of their paths, in whole components, that none of the others
//!    has.
//! 3. Where their paths are the same, too, which happens over several snapshots, the begin of the id follows.

use std::collections::HashMap;

use crate::types::Fingerprint;

/// Hex digits of an id that stand behind a path.
const ID_DIGITS: usize = 8;

/// A model to be called something.
#[derive(Debug, Clone, Copy)]
pub struct NamedModel<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its path, as bytes.
    pub path: &'a [u8],
    /// What names its content.
    pub id: Option<&'a Fingerprint>,
}

/// What each of `models` is called beside the others.
pub fn labels(models: &[NamedModel<'_>]) -> Vec<String> {
    let mut same: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, model) in models.iter().enumerate() {
        same.entry(model.name).or_default().push(at);
    }
    let mut labels: Vec<String> = models.iter().map(|model| model.name.to_string()).collect();
    let mut open: Vec<Vec<usize>> = same.into_values().filter(|of_one| of_one.len() > 1).collect();
    let mut components = 1;
    while !open.is_empty() {
        let mut still: Vec<Vec<usize>> = Vec::new();
        for of_one in open {
            let mut ends: HashMap<&[u8], Vec<usize>> = HashMap::new();
            for at in of_one {
                let path = models.get(at).map_or(&[][..], |model| model.path);
                ends.entry(end(path, components)).or_default().push(at);
            }
            for (end, found) in ends {
                for at in &found {
                    let (Some(label), Some(model)) = (labels.get_mut(*at), models.get(*at)) else { continue };
                    *label = String::from_utf8_lossy(end).into_owned();
                    // A path that has come to its begin has nothing else to tell.
                    if found.len() > 1 && end.len() == model.path.len() {
                        let id = model.id.map(ToString::to_string).unwrap_or_default();
                        label.push_str(&format!(" ({})", id.get(..ID_DIGITS).unwrap_or(&id)));
                    }
                }
                let is_done = |at: &usize| models.get(*at).is_none_or(|model| end.len() == model.path.len());
                if found.len() > 1 && !found.iter().all(is_done) {
                    still.push(found);
                }
            }
        }
        (open, components) = (still, components + 1);
    }
    labels
}

/// The last `components` of a path.
fn end(path: &[u8], components: usize) -> &[u8] {
    let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    let start = slashes.map(|(at, _)| at + 1).nth(components - 1);
    path.get(start.unwrap_or(0)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(models: &[(&str, &str, u8)]) -> Vec<String> {
        let ids: Vec<Fingerprint> = models.iter().map(|model| Fingerprint([model.2; 32])).collect();
        let called = models.iter().zip(&ids).map(|((name, path, _), id)| {
            let path = path.as_bytes();
            NamedModel { name, path, id: Some(id) }
        });
        labels(&called.collect::<Vec<_>>())
    }

    #[test]
    fn names_that_collide_are_told_apart_by_their_paths() {
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
    fn one_path_of_two_contents_has_their_ids() {
        let found = labels_of(&[("tune", "a/tune", 0x11), ("tune", "a/tune", 0x22), ("tune", "tune", 0x33)]);
        assert_eq!(found, ["a/tune (11111111)", "a/tune (22222222)", "tune"]);
        assert_eq!(labels_of(&[("", "", 1), ("", "", 2)]), [" (01010101)", " (02020202)"]);
    }
}
