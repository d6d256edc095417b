//! Mixtures of model files and other files, of one total length, at several model shares. The FHRD paper varies the
//! model share in this way.
//!
//! Files are copied whole, sorted by name, until a part has its bytes. The last one is truncated. A safetensors file
//! stays one then (`slice.rs`), so that schemes that read its header see a model.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::files::{expand, files_below};
use super::slice;

/// Parameters of mixtures. Each share is a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Paths of model files.
    pub models: Vec<String>,
    /// Paths of other files.
    pub others: Vec<String>,
    /// Length of a mixture.
    pub bytes: ByteSize,
    /// Percent of the bytes that are of models.
    pub shares: Vec<u64>,
}

impl Mix {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        let outside = self.shares.iter().any(|share| *share > 100);
        (outside || self.shares.is_empty()).then_some("`shares` must be percents from 0 to 100")
    }

    /// Writes the mixture of `share` percent below `directory`.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Usage`] if there are too few bytes for a part.
    pub fn write(&self, corpus: &Path, share: u64, directory: &Path) -> Result<()> {
        let bytes = (u128::from(self.bytes.0) * u128::from(share) / 100) as u64;
        copy(corpus, &self.models, bytes, &directory.join("models"))?;
        copy(corpus, &self.others, self.bytes.0 - bytes, &directory.join("others"))
    }
}

/// Copies the first `bytes` of the files that match `patterns`.
fn copy(corpus: &Path, patterns: &[String], bytes: u64, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| Error::io("create", directory, error))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for pattern in patterns {
        for path in expand(corpus, pattern)? {
            files.extend(files_below(&path)?);
        }
    }
    let mut left = bytes;
    for path in files {
        if left == 0 {
            break;
        }
        let relative = path.strip_prefix(corpus).or_else(|_| path.strip_prefix("/")).unwrap_or(&path);
        let target = directory.join(relative);
        let parent = target.parent().unwrap_or(directory);
        std::fs::create_dir_all(parent).map_err(|error| Error::io("create", parent, error))?;
        let open = || File::open(&path).map_err(|error| Error::io("read", &path, error));
        let mut to = File::create(&target).map_err(|error| Error::io("create", &target, error))?;
        let is_cut = path.metadata().map_err(|error| Error::io("read", &path, error))?.len() > left;
        if is_cut && path.extension().is_some_and(|extension| extension == "safetensors") {
            let mut to = std::io::BufWriter::new(&mut to);
            if slice::copy(&mut open()?, left, &mut to).map_err(|error| Error::io("copy", &path, error))? {
                left = 0;
                continue;
            }
        }
        let from = open()?;
        left -= std::io::copy(&mut from.take(left), &mut to).map_err(|error| Error::io("copy", &path, error))?;
    }
    match left {
        0 => Ok(()),
        _ => Err(Error::Usage(format!("{} has {left} bytes too few for a mixture", patterns.join(" ")))),
    }
}
