//! The arrays of a checkpoint.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use fhrd::error::{Error, Result};
use fhrd::format::{Recognition, recognise};
use serde::Deserialize;
use serde_json::Value;

/// How the arrays of a checkpoint are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extraction {
    /// The tensors of a model file.
    #[default]
    Tensors,
    /// The trees of XGBoost's JSON document, and the document without them.
    Xgboost,
}

/// Name of the document without its trees, as TensorCAS calls it.
const SKELETON: &str = "__skeleton__";
/// Path of the trees in the document.
const TREES: &str = "/learner/gradient_booster/model/trees";

impl Extraction {
    /// The arrays of `content` by name. `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Usage`] if the content has another format.
    pub fn arrays(self, content: &[u8], origin: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
        let wrong = |what: String| Error::Usage(format!("{}: {what}", origin.display()));
        match self {
            Extraction::Tensors => {
                let found = recognise(&content, content.len() as u64);
                let Ok(Recognition::Model(model)) = found else { return Err(wrong("not a model file".into())) };
                let bytes = |offset: u64, len: u64| content.get(offset as usize..(offset + len) as usize);
                let array = |tensor: fhrd::format::Tensor| {
                    (tensor.name, bytes(tensor.offset, tensor.len).unwrap_or_default().to_vec())
                };
                Ok(model.tensors.into_iter().map(array).collect())
            }
            Extraction::Xgboost => {
                let mut document: Value = serde_json::from_slice(content).map_err(|error| wrong(error.to_string()))?;
                let trees = document.pointer_mut(TREES).map(Value::take);
                let Some(Value::Array(trees)) = trees else { return Err(wrong(format!("no list at {TREES}"))) };
                let tree =
                    |(number, tree): (usize, Value)| (format!("tree_{number:06}"), tree.to_string().into_bytes());
                let mut arrays: BTreeMap<String, Vec<u8>> = trees.into_iter().enumerate().map(tree).collect();
                arrays.insert(SKELETON.into(), document.to_string().into_bytes());
                Ok(arrays)
            }
        }
    }
}

/// The arrays whose names are equal but for numbers, one after another in the order of their names.
pub(super) fn concatenated(arrays: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let mut groups: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (name, bytes) in arrays {
        let group: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
        groups.entry(group).or_default().extend_from_slice(bytes);
    }
    groups
}

/// Names of the first `limit` arrays, and of the skeleton.
pub(super) fn first_names(arrays: &BTreeMap<String, Vec<u8>>, limit: usize) -> HashSet<String> {
    let others = arrays.keys().filter(|name| *name != SKELETON).take(limit);
    others.cloned().chain([SKELETON.to_string()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_one_name_but_for_numbers_are_concatenated() {
        let arrays = [("tree_00.x", "a"), ("tree_00.y", "b"), ("tree_01.x", "c"), (SKELETON, "d")];
        let arrays: BTreeMap<String, Vec<u8>> =
            arrays.iter().map(|(name, bytes)| (name.to_string(), bytes.as_bytes().to_vec())).collect();
        let groups: Vec<Vec<u8>> = concatenated(&arrays).into_values().collect();
        assert_eq!(groups, [b"d".to_vec(), b"ac".to_vec(), b"b".to_vec()]);
        let names = first_names(&arrays, 1);
        assert!(names.contains("tree_00.x") && names.contains(SKELETON) && names.len() == 2, "{names:?}");
    }
}
