//! The files to read first, in clusters of similar paths.

use std::collections::BinaryHeap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::filesystem::suggests_model;

/// Files that are remembered, at most: those of the first clusters.
const FILES_MAX: usize = 200_000;
/// Problems that are named, at most.
const NAMED_MAX: usize = 1000;
/// Components at the end of a path that decide about its cluster.
const COMPONENTS: usize = 2;

/// A file: the number of its cluster first, so that files are ordered by clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DrawnFile {
    cluster: u64,
    path: PathBuf,
    bytes: u64,
}

/// Totals of all files, and the files of the first clusters in random order.
#[derive(Debug)]
pub struct FileSample {
    seed: u64,
    drawn: BinaryHeap<DrawnFile>,
    /// Files that were added.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of those whose names are those of models.
    pub model_bytes: u64,
    /// Number of entries that could not be looked at.
    pub problems: u64,
    /// The first ones, and why.
    pub(super) unread: Vec<Error>,
}

impl FileSample {
    /// An empty sample. The seed decides about the order of the clusters.
    pub fn new(seed: u64) -> Self {
        FileSample {
            seed,
            drawn: BinaryHeap::new(),
            files: 0,
            bytes: 0,
            model_bytes: 0,
            problems: 0,
            unread: Vec::new(),
        }
    }

    /// Adds an entry that could not be looked at.
    pub fn add_unread(&mut self, error: Error) {
        self.problems += 1;
        if self.unread.len() < NAMED_MAX {
            self.unread.push(error);
        }
    }

    /// Adds a file with `bytes` bytes of content.
    pub fn add(&mut self, path: &Path, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        self.model_bytes += if suggests_model(path) { bytes } else { 0 };
        let cluster = cluster(self.seed, path);
        let is_beyond = |last: &DrawnFile| cluster >= last.cluster;
        if self.drawn.len() >= FILES_MAX && self.drawn.peek().is_some_and(is_beyond) {
            return;
        }
        self.drawn.push(DrawnFile { cluster, path: path.to_path_buf(), bytes });
        if self.drawn.len() > FILES_MAX {
            self.drawn.pop();
        }
    }

    /// Whether every file is remembered.
    pub fn has_all(&self) -> bool {
        self.drawn.len() as u64 == self.files
    }

    /// The files by clusters, in groups of about `group_bytes` bytes, or of `group_files` files.
    pub(super) fn into_groups(self, group_bytes: u64, group_files: usize) -> Vec<Vec<(PathBuf, u64)>> {
        let (mut groups, mut group, mut bytes) = (Vec::new(), Vec::new(), 0);
        for file in self.drawn.into_sorted_vec() {
            bytes += file.bytes;
            group.push((file.path, file.bytes));
            if bytes >= group_bytes || group.len() >= group_files {
                groups.push(std::mem::take(&mut group));
                bytes = 0;
            }
        }
        if !group.is_empty() {
            groups.push(group);
        }
        groups
    }
}

/// A random number for the end of a path without its digits.
fn cluster(seed: u64, path: &Path) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    for component in path.components().rev().take(COMPONENTS) {
        let name: Vec<u8> =
            component.as_os_str().as_bytes().iter().copied().filter(|byte| !byte.is_ascii_digit()).collect();
        hasher.update(&name).update(b"/");
    }
    hasher.finalize().as_bytes().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
