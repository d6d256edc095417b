//! Generates checkpoints of a boosted model: trees are added and never change. A checkpoint is a safetensors file with
//! three arrays for each tree, as TensorCAS extracts them: features, thresholds and values of its nodes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::random::Random;

/// Parameters of boosted trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedTrees {
    /// Number of checkpoints.
    pub checkpoints: usize,
    /// Trees of the first checkpoint.
    pub trees: usize,
    /// Trees that each later checkpoint adds.
    pub added: usize,
    /// Nodes of a tree.
    pub nodes: usize,
}

/// Maximum number of trees and of nodes.
const TREES_MAX: usize = 100_000;
const NODES_MAX: usize = 1 << 16;
/// Names of the arrays of a tree, with their dtypes. All values have 8 bytes.
const ARRAYS: [(&str, &str); 3] = [("features", "I64"), ("thresholds", "F64"), ("values", "F64")];
/// Features of the data.
const FEATURES: u64 = 64;

impl GeneratedTrees {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        let trees = self.added.saturating_mul(self.checkpoints).saturating_add(self.trees);
        match () {
            () if self.checkpoints == 0 || trees > TREES_MAX => {
                Some("boosted trees need a checkpoint, and there are at most 100,000 trees")
            }
            () if !(1..=NODES_MAX).contains(&self.nodes) => Some("`nodes` must be from 1 to 65,536"),
            () => None,
        }
    }

    /// Writes the checkpoints below `directory` as `trees-NNNNNN.safetensors`, by their number of trees.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, seed: u64, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|error| Error::io("create", directory, error))?;
        for checkpoint in 0..self.checkpoints {
            let trees = self.trees + checkpoint * self.added;
            let path = directory.join(format!("trees-{trees:06}.safetensors"));
            self.write_file(seed, trees, &path).map_err(|error| Error::io("write", &path, error))?;
        }
        Ok(())
    }

    fn write_file(&self, seed: u64, trees: usize, path: &Path) -> std::io::Result<()> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for tree in 0..trees {
            let mut random = Random::of_part(seed, &format!("tree {tree}"));
            for (name, dtype) in ARRAYS {
                let start = data.len();
                for _ in 0..self.nodes {
                    match dtype {
                        "I64" => data.extend_from_slice(&random.below(FEATURES).to_le_bytes()),
                        _ => data.extend_from_slice(&random.normal().to_le_bytes()),
                    }
                }
                let entry = json!({"dtype": dtype, "shape": [self.nodes], "data_offsets": [start, data.len()]});
                header.insert(format!("tree_{tree:06}_{name}"), entry);
            }
        }
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        out.write_all(&data)?;
        out.flush()
    }
}
