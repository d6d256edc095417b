//! Generates checkpoints of several training runs that share a frozen backbone: only the head differs from one
//! checkpoint to the next. A checkpoint is a safetensors file of FP32 weights.
//!
//! TensorCAS measures ResNet-18: 122 tensors, 11.2 million values, of which 5130 are the head for ten classes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::random::Random;

/// Parameters of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedSweep {
    /// Number of runs.
    pub runs: usize,
    /// Checkpoints of each run.
    pub epochs: usize,
    /// Tensors of the backbone.
    pub tensors: usize,
    /// Values of all tensors of the backbone.
    pub backbone_values: usize,
    /// Values of the head.
    pub head_values: usize,
}

/// Standard deviation of the weights.
const SIGMA: f64 = 0.02;
/// Maximum number of values of a checkpoint, which is held in memory.
const VALUES_MAX: usize = 1 << 28;

impl GeneratedSweep {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        match () {
            () if self.runs == 0 || self.epochs == 0 || self.tensors == 0 => {
                Some("`runs`, `epochs` and `tensors` of a sweep must be at least 1")
            }
            () if self.backbone_values < self.tensors => Some("`backbone_values` must be at least `tensors`"),
            () if self.backbone_values.saturating_add(self.head_values) > VALUES_MAX => {
                Some("a checkpoint has at most 2^28 values")
            }
            () => None,
        }
    }

    /// Writes the checkpoints below `directory` as `run-NN-epoch-NNN.safetensors`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, seed: u64, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|error| Error::io("create", directory, error))?;
        let mut backbone = Vec::new();
        append(&mut Random::of_part(seed, "backbone"), self.backbone_values, &mut backbone);
        for run in 0..self.runs {
            for epoch in 0..self.epochs {
                let path = directory.join(format!("run-{run:02}-epoch-{epoch:03}.safetensors"));
                let mut head = Vec::new();
                append(&mut Random::of_part(seed, &format!("{run}/{epoch}")), self.head_values, &mut head);
                self.write_file(&path, &backbone, &head).map_err(|error| Error::io("write", &path, error))?;
            }
        }
        Ok(())
    }

    fn write_file(&self, path: &Path, backbone: &[u8], head: &[u8]) -> std::io::Result<()> {
        let mut header = serde_json::Map::new();
        let mut add = |name: String, from: usize, to: usize| {
            let entry = json!({"dtype": "F32", "shape": [(to - from) / 4], "data_offsets": [from, to]});
            header.insert(name, entry);
        };
        let start = |tensor: usize| self.backbone_values * tensor / self.tensors * 4;
        (0..self.tensors).for_each(|tensor| add(format!("layer.{tensor}.weight"), start(tensor), start(tensor + 1)));
        if !head.is_empty() {
            add("fc.weight".into(), backbone.len(), backbone.len() + head.len());
        }
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        for bytes in [&header, backbone, head] {
            out.write_all(bytes)?;
        }
        out.flush()
    }
}

fn append(random: &mut Random, values: usize, out: &mut Vec<u8>) {
    (0..values).for_each(|_| out.extend_from_slice(&((SIGMA * random.normal()) as f32).to_le_bytes()));
}
