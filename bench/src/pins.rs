//! The manifests of the data, and whether a measurement read the data that they pin.
//!
//! A page names the directory of the manifests. Each of their files has a path and, if it is *pinned*, a SHA-256. A
//! page of other data is refused, because its values would not be those of the same measurement. With `--other-data` it
//! is written, and each row names the files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};
use fhrd::wire::{input_failed, read_text_file};
use serde::Deserialize;

use super::data::DataFile;

/// Bytes of a manifest, at most.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Files that a sentence names, at most.
const NAMED_MAX: usize = 3;

/// What is read of a manifest. Its other keys describe the data to people.
#[derive(Deserialize)]
struct ManifestText {
    #[serde(default)]
    files: Vec<PinnedFile>,
}

/// A file of a manifest.
#[derive(Deserialize)]
struct PinnedFile {
    path: String,
    sha256: Option<String>,
}

/// The SHA-256 of every pinned file, by path.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pins {
    sums: BTreeMap<String, String>,
}

/// How the data of a measurement differ from the manifests.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct DataFaults {
    /// Files whose content is not what the manifests pin.
    pub other: Vec<String>,
    /// Files that no manifest pins.
    pub unpinned: Vec<String>,
}

impl Pins {
    /// Reads the manifests in `directory`.
    ///
    /// # Errors
    /// [`Error::Io`] if one cannot be read; [`Error::Config`] for invalid ones, and if there are none.
    pub fn load(directory: &Path, stop: &AtomicBool) -> Result<Self> {
        let fail = |error| Error::io("list", directory, error);
        let (mut sums, mut manifests) = (BTreeMap::new(), 0);
        for entry in std::fs::read_dir(directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let text = read_text_file(&path, MANIFEST_BYTES_MAX, stop);
            let text = text.map_err(|error| input_failed("read", &path, error))?;
            let wrong = |message| Error::Config { origin: path.display().to_string(), message };
            let manifest: ManifestText = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            let pinned = manifest.files.into_iter().filter_map(|file| Some((file.path, file.sha256?)));
            sums.extend(pinned);
            manifests += 1;
        }
        let message = || "the directory has no manifests".into();
        (manifests > 0)
            .then_some(Pins { sums })
            .ok_or_else(|| Error::Config { origin: directory.display().to_string(), message: message() })
    }

    /// How `files` differ from the manifests.
    pub fn faults(&self, files: &[DataFile]) -> DataFaults {
        let mut faults = DataFaults::default();
        for file in files {
            match self.sums.get(&file.path) {
                Some(sum) if *sum == file.sha256 => {}
                Some(_) => faults.other.push(file.path.clone()),
                None => faults.unpinned.push(file.path.clone()),
            }
        }
        faults
    }
}

impl DataFaults {
    /// What a row of these data says of them; `None` if all are pinned and equal.
    pub fn note(&self) -> Option<String> {
        let parts = [("other data than the manifests pin", &self.other), ("not pinned", &self.unpinned)];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, files)| !files.is_empty())
            .map(|(what, files)| format!("{what}: {}", some_of(files)))
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The first of some files, and how many more there are.
pub fn some_of(files: &[String]) -> String {
    let named = files.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, sha256: &str) -> DataFile {
        DataFile { path: path.into(), bytes: 1, sha256: sha256.into() }
    }

    #[test]
    fn data_are_those_of_the_manifests_or_named() {
        let directory = tempfile::tempdir().unwrap();
        let load = || Pins::load(directory.path(), &AtomicBool::new(false));
        assert!(load().unwrap_err().to_string().contains("no manifests"));
        let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        put("a.toml", "source = \"x\"\nfiles = [{ path = \"a\", sha256 = \"1\" }, { path = \"b\", bytes = 3 }]\n");
        put("b.toml", "files = [{ path = \"c\", sha256 = \"2\" }]\n");
        put("README", "no manifest");
        let pins = load().unwrap();
        assert_eq!(pins.faults(&[file("a", "1"), file("c", "2")]).note(), None);
        let faults = pins.faults(&[file("a", "2"), file("b", "1"), file("c", "2"), file("d", "1")]);
        assert_eq!((faults.other.as_slice(), faults.unpinned.len()), (&["a".to_string()][..], 2));
        let note = faults.note().unwrap();
        assert_eq!(note, "other data than the manifests pin: a; not pinned: b, d");
        put("b.toml", "files = 1\n");
        assert!(load().unwrap_err().to_string().contains("b.toml"));
    }

    #[test]
    fn a_sentence_names_few_files() {
        let files: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_string).to_vec();
        assert_eq!(some_of(&files), "a, b, c and 2 more");
        assert_eq!(some_of(&files[..3]), "a, b, c");
    }
}
