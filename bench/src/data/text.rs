//! Generated source-like text in versions: indented lines of a Zipf-distributed vocabulary. Each version inserts,
//! deletes and replaces runs of lines in some files.

use std::path::Path;

use bytesize::ByteSize;
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::random::Random;

/// Parameters of text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedText {
    /// Files of a version.
    pub files: usize,
    /// Length of a file in the first version.
    pub file_bytes: ByteSize,
    /// Number of versions, a directory each.
    pub versions: usize,
    /// Fraction of the files that a version edits, 0 to 1.
    #[serde(default = "default_files_edited")]
    pub files_edited: f64,
    /// Edits of an edited file per thousand lines, at least one.
    #[serde(default = "default_edits")]
    pub edits_per_thousand: f64,
}

fn default_files_edited() -> f64 {
    0.2
}
fn default_edits() -> f64 {
    5.0
}

/// Number of names in the vocabulary.
const VOCABULARY: usize = 4096;
const SYLLABLES: &[&str] = &[
    "ba", "con", "der", "ex", "fi", "get", "ha", "in", "ject", "ker", "lo", "map", "ne", "ob", "put", "re", "set",
    "to", "un", "val", "wri", "y", "zip", "_", "ize", "ed", "er", "s",
];
const PUNCTUATION: &[&str] = &[" ", " ", " ", " ", "(", ")", ", ", " = ", ".", ": ", "[0]", " + "];
/// Upper limit of the lines that one edit removes or inserts.
const EDIT_LINES: u64 = 12;

struct TextWriter {
    random: Random,
    vocabulary: Vec<String>,
}

impl TextWriter {
    fn new(seed: u64) -> Self {
        let mut random = Random::of_part(seed, "vocabulary");
        let mut name = || -> String {
            let syllables = 1 + random.below(3);
            (0..=syllables).filter_map(|_| random.choose(SYLLABLES)).copied().collect()
        };
        let vocabulary = (0..VOCABULARY).map(|_| name()).collect();
        TextWriter { random: Random::of_part(seed, "text"), vocabulary }
    }

    /// A line of some names. The n-th name is about n times rarer than the first.
    fn line(&mut self) -> String {
        let mut line = " ".repeat(4 * self.random.below(4) as usize);
        for _ in 0..2 + self.random.below(8) {
            let limit = 1 + self.random.below(VOCABULARY as u64);
            let rank = self.random.below(limit) as usize;
            line.push_str(self.vocabulary.get(rank).map_or("", String::as_str));
            line.push_str(self.random.choose(PUNCTUATION).copied().unwrap_or_default());
        }
        line.push('\n');
        line
    }

    fn lines(&mut self, bytes: u64) -> Vec<String> {
        let (mut lines, mut total) = (Vec::new(), 0);
        while total < bytes {
            let line = self.line();
            total += line.len() as u64;
            lines.push(line);
        }
        lines
    }

    fn edit(&mut self, lines: &mut Vec<String>) {
        let at = self.random.below(lines.len() as u64 + 1) as usize;
        let removed = self.random.below(EDIT_LINES) as usize;
        let added: Vec<String> = (0..self.random.below(EDIT_LINES)).map(|_| self.line()).collect();
        let end = (at + removed).min(lines.len());
        lines.splice(at..end, added);
    }
}

impl GeneratedText {
    /// The first invalid parameter, as a message.
    pub fn fault(&self) -> Option<&'static str> {
        let shares = (0.0..=1.0).contains(&self.files_edited) && (0.0..=1000.0).contains(&self.edits_per_thousand);
        let bytes = self.file_bytes.0.saturating_mul(self.files as u64);
        match () {
            () if !shares => Some("`files_edited` must be from 0 to 1 and `edits_per_thousand` from 0 to 1000"),
            () if self.files == 0 || self.versions == 0 => Some("`files` and `versions` of text must be at least 1"),
            () if bytes > 1 << 30 => Some("a version of text is held in memory and has at most 1 GiB"),
            () => None,
        }
    }

    /// Writes the versions below `directory` as `version-NN/file-NNNN.txt`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, seed: u64, directory: &Path) -> Result<()> {
        let mut writer = TextWriter::new(seed);
        let mut files: Vec<Vec<String>> = (0..self.files).map(|_| writer.lines(self.file_bytes.0)).collect();
        for version in 0..self.versions {
            let version_directory = directory.join(format!("version-{version:02}"));
            std::fs::create_dir_all(&version_directory)
                .map_err(|error| Error::io("create", &version_directory, error))?;
            for (number, lines) in files.iter_mut().enumerate() {
                let is_edited = version > 0 && writer.random.unit() < self.files_edited;
                let edits =
                    if is_edited { (lines.len() as f64 * self.edits_per_thousand / 1e3).ceil() as usize } else { 0 };
                (0..edits).for_each(|_| writer.edit(lines));
                let path = version_directory.join(format!("file-{number:04}.txt"));
                std::fs::write(&path, lines.concat()).map_err(|error| Error::io("write", &path, error))?;
            }
        }
        Ok(())
    }
}
