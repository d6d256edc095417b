//! Mixtures of model files and other files at several shares of models. The FHRD paper varies the share in this way.
//!
//! Files are whole, in the order of their patterns: of a part of a file, no scheme finds what the whole has in common
//! with another version. Each kind gets the number of files whose bytes are nearest to its part of the mixture, and two
//! at least if it has a part, so the length of a mixture and its share vary. [`HeldFiles`] says what it holds.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytesize::ByteSize;
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::files::{expand, files_below};

/// Files of a kind that a mixture has, if it has any of the kind: one alone shares nothing.
const FILES_MIN: usize = 2;

/// Parameters of mixtures. Each share is a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Paths of model files, the relatives of one model.
    pub models: Vec<String>,
    /// Paths of other files, the versions of something.
    pub others: Vec<String>,
    /// Length of a mixture, about.
    pub bytes: ByteSize,
    /// Percent of the bytes that are of models, about.
    pub shares: Vec<u64>,
}

/// What a mixture holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HeldFiles {
    /// Whole files that are not models: versions of something.
    pub versions: usize,
    /// Whole models: relatives.
    pub relatives: usize,
    /// Percent of the bytes that are of models.
    pub percent: u64,
}

/// The files of a mixture.
#[derive(Debug, Default)]
pub struct MixedFiles {
    models: Vec<MixedFile>,
    others: Vec<MixedFile>,
}

/// A file of a mixture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct MixedFile {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Mix {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        let outside = self.shares.iter().any(|share| *share > 100);
        (outside || self.shares.is_empty()).then_some("`shares` must be percents from 0 to 100")
    }

    /// Chooses the files of the mixture of `share` percent.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Usage`] if there are too few bytes for a part.
    pub fn choose(&self, corpus: &Path, share: u64) -> Result<MixedFiles> {
        let bytes = (u128::from(self.bytes.0) * u128::from(share) / 100) as u64;
        Ok(MixedFiles {
            models: choose(corpus, &self.models, bytes)?,
            others: choose(corpus, &self.others, self.bytes.0 - bytes)?,
        })
    }
}

impl MixedFiles {
    /// What they are.
    pub fn held(&self) -> HeldFiles {
        let sum = |files: &[MixedFile]| files.iter().map(|file| file.bytes).sum::<u64>();
        let (models, others) = (sum(&self.models), sum(&self.others));
        HeldFiles {
            versions: self.others.len(),
            relatives: self.models.len(),
            percent: (100 * models + (models + others) / 2) / (models + others).max(1),
        }
    }

    /// Text that differs if any of them does.
    pub fn identity(&self) -> impl Serialize {
        (self.models.clone(), self.others.clone())
    }

    /// Copies them below `directory`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, corpus: &Path, directory: &Path) -> Result<()> {
        for (kind, files) in [("models", &self.models), ("others", &self.others)] {
            let directory = directory.join(kind);
            std::fs::create_dir_all(&directory).map_err(|error| Error::io("create", &directory, error))?;
            for MixedFile { path, .. } in files {
                let relative = path.strip_prefix(corpus).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
                let target = directory.join(relative);
                let parent = target.parent().unwrap_or(&directory);
                std::fs::create_dir_all(parent).map_err(|error| Error::io("create", parent, error))?;
                std::fs::copy(path, &target).map_err(|error| Error::io("copy", path, error))?;
            }
        }
        Ok(())
    }
}

/// The first files that match `patterns`, whose bytes are as near to `bytes` as whole files can be.
fn choose(corpus: &Path, patterns: &[String], bytes: u64) -> Result<Vec<MixedFile>> {
    let mut chosen: Vec<MixedFile> = Vec::new();
    if bytes == 0 {
        return Ok(chosen);
    }
    let mut total = 0;
    for pattern in patterns {
        for path in expand(corpus, pattern)? {
            for path in files_below(&path)? {
                if chosen.iter().any(|file| file.path == path) {
                    continue;
                }
                let metadata = path.metadata().map_err(|error| Error::io("read", &path, error))?;
                let (len, modified) = (metadata.len(), metadata.modified().ok());
                if chosen.len() >= FILES_MIN && total + len / 2 > bytes {
                    return Ok(chosen);
                }
                total += len;
                chosen.push(MixedFile { path, bytes: len, modified });
            }
        }
    }
    // The last file is the nearest if what is left is less than half of it.
    let is_near = chosen.last().is_some_and(|last| total + last.bytes / 2 >= bytes);
    match is_near && chosen.len() >= FILES_MIN {
        true => Ok(chosen),
        false => Err(Error::Usage(format!(
            "{} has {} files of {total} bytes, too few for {bytes} bytes of a mixture",
            patterns.join(" "),
            chosen.len()
        ))),
    }
}
