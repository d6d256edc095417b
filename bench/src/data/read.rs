//! What a measurement reads of the corpus: the paths of its configuration, and the SHA-256 of each file.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use fhrd::error::{Error, Result};
use fhrd::types::hex;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::files::{expand, files_below};

/// Keys whose strings are paths or patterns in the corpus.
const PATHS: [&str; 7] = ["base", "files", "models", "others", "paths", "streams", "tar"];
/// Key of the sets, whose strings are paths, too. In a class they are names.
const SETS: &str = "sets";
/// Tables that name nothing in the corpus.
const OTHERS: [&str; 2] = ["claim", "scheme"];
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// A file that a measurement read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Path as in the manifests: relative to the corpus.
    pub path: String,
    /// Length.
    pub bytes: u64,
    /// SHA-256 of the content, 64 hex digits.
    pub sha256: String,
}

/// Paths and patterns that a measurement reads in the corpus, in the order of its configuration.
pub fn paths_read(measurement: &Table) -> Vec<String> {
    let sets = measurement.get(SETS).into_iter().flat_map(texts);
    sets.map(str::to_string).chain(below(measurement)).collect()
}

fn below(table: &Table) -> Vec<String> {
    let mut paths = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| !OTHERS.contains(&key.as_str())) {
        if PATHS.contains(&key.as_str()) {
            paths.extend(texts(value).map(str::to_string));
        }
        let tables = value.as_array().into_iter().flatten().chain([value]).filter_map(Value::as_table);
        paths.extend(tables.flat_map(below));
    }
    paths
}

/// The text that a value is, or the texts that it lists.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().chain([value]).filter_map(Value::as_str)
}

/// Hashes files once, however many measurements read them.
#[derive(Debug, Default)]
pub struct DataHashes {
    known: HashMap<(PathBuf, u64, Option<SystemTime>), String>,
}

impl DataHashes {
    /// The files that `patterns` stand for below `corpus`, by path. `prefix` goes before their paths. A pattern without
    /// a match names nothing.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read; [`Error::Interrupted`] once `stop` is set.
    pub fn of(&mut self, patterns: &[String], corpus: &Path, prefix: &str, stop: &AtomicBool) -> Result<Vec<DataFile>> {
        let mut files = BTreeMap::new();
        for path in patterns.iter().flat_map(|pattern| expand(corpus, pattern).unwrap_or_default()) {
            for file in files_below(&path)? {
                let relative = file.strip_prefix(corpus).unwrap_or(&file).display().to_string();
                files.insert(format!("{prefix}{relative}"), file);
            }
        }
        files.into_iter().map(|(path, file)| self.hash(path, &file, stop)).collect()
    }

    fn hash(&mut self, path: String, file: &Path, stop: &AtomicBool) -> Result<DataFile> {
        let fail = |error| Error::io("read", file, error);
        let metadata = file.metadata().map_err(fail)?;
        let key = (file.to_path_buf(), metadata.len(), metadata.modified().ok());
        let sha256 = match self.known.get(&key) {
            Some(known) => known.clone(),
            None => sha256(&mut File::open(file).map_err(fail)?, file, stop)?,
        };
        self.known.insert(key, sha256.clone());
        Ok(DataFile { path, bytes: metadata.len(), sha256 })
    }
}

/// SHA-256 of what `from`, the file at `path`, still has.
fn sha256(from: &mut dyn Read, path: &Path, stop: &AtomicBool) -> Result<String> {
    let (mut digest, mut buffer) = (Context::new(&SHA256), vec![0; READ_BYTES]);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match from.read(&mut buffer) {
            Ok(0) => return Ok(hex(digest.finish().as_ref())),
            Ok(bytes) => digest.update(buffer.get(..bytes).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_a_measurement_is_found_and_nothing_else() {
        let text = "kind = \"schemes\"\nsets = [\"code\", { name = \"x\", paths = [\"a\", \"b*\"] }, { name = \"y\", \
            tar = \"t.tar\", members = [\"m\"] }, { name = \"z\", mix = { models = [\"m\"], others = [\"o\"] } }, \
            { name = \"made\", generate = { seed = 1, models = { layers = 1 } } }]\n\
            [[class]]\nname = \"c\"\nsets = [\"no path\"]\nfiles = [\"f\"]\nbase = \"g\"\n\
            [[scheme]]\nname = \"s\"\nfile = \"../base.toml\"\n[[claim]]\nfiles = [\"no\"]\n";
        let read = paths_read(&toml::from_str(text).unwrap());
        let mut expected = ["code", "a", "b*", "t.tar", "m", "o", "f", "g"];
        let mut found: Vec<&str> = read.iter().map(String::as_str).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn files_have_their_hash_and_one_that_changed_has_another() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        put("d/one", "abc");
        put("two", "");
        let mut hashes = DataHashes::default();
        let patterns = ["t*", "d", "missing"].map(str::to_string);
        let mut read = || hashes.of(&patterns, directory.path(), "p/", &AtomicBool::new(false)).unwrap();
        let first = read();
        let names: Vec<(&str, u64)> = first.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
        assert_eq!(names, [("p/d/one", 3), ("p/two", 0)]);
        // The values that the standard gives for "abc" and for nothing.
        assert_eq!(first[0].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(first[1].sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        put("d/one", "abcd");
        assert_ne!(read()[0].sha256, first[0].sha256);
        let stopped = hashes.of(&patterns[1..], directory.path(), "", &AtomicBool::new(true));
        assert_eq!(stopped.unwrap()[0].bytes, 4, "what is known is not read again");
        put("two", "new");
        let stopped = hashes.of(&patterns, directory.path(), "", &AtomicBool::new(true));
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    }
}
