//! The files of a source, drawn in clusters of similar paths.

use std::collections::{BinaryHeap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::units::{GroupLimits, SampleGroup, grouped};
use crate::error::Error;
use crate::filesystem::suggests_model;
use crate::repo::tree::FileIdentity;

/// Files that are remembered, at most: those of the first clusters.
const FILES_MAX: usize = 200_000;
/// Files with several names that are remembered, at most: of others, each name counts as a file of its own.
const LINKS_MAX: usize = 1_000_000;
/// Problems that are named, at most.
const NAMED_MAX: usize = 1000;
/// Names at the end of a path that decide about its cluster.
const COMPONENTS: usize = 2;
/// Files from this size on are drawn by their own names, others with their directories.
const LARGE_BYTES: u64 = 1 << 20;

/// A file: the number of its cluster first, so that files are ordered by clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DrawnFile {
    /// Number of its cluster.
    pub(super) cluster: u64,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Bytes that are not in holes.
    pub(super) bytes: u64,
    /// Whether it has holes.
    pub(super) has_holes: bool,
}

/// Totals of all files, and the files of the first clusters in random order.
#[derive(Debug)]
pub struct FileSample {
    seed: u64,
    drawn: BinaryHeap<DrawnFile>,
    links: HashSet<FileIdentity>,
    further_names: u64,
    /// Bytes of further names of files, which no backup reads.
    pub(super) further_bytes: u64,
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
            links: HashSet::new(),
            further_names: 0,
            further_bytes: 0,
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

    /// Adds a file of `len` bytes, of which `bytes` are not in holes. One that has several names has an identity.
    pub fn add(&mut self, path: &Path, bytes: u64, len: u64, link: Option<FileIdentity>) {
        self.files += 1;
        self.bytes += bytes;
        if let Some(link) = link {
            if self.links.contains(&link) {
                self.further_names += 1;
                self.further_bytes += bytes;
                return;
            }
            if self.links.len() < LINKS_MAX {
                self.links.insert(link);
            }
        }
        self.model_bytes += if suggests_model(path) { bytes } else { 0 };
        let cluster = cluster(self.seed, path, bytes);
        let is_beyond = |last: &DrawnFile| cluster >= last.cluster;
        if self.drawn.len() >= FILES_MAX && self.drawn.peek().is_some_and(is_beyond) {
            return;
        }
        self.drawn.push(DrawnFile { cluster, path: path.to_path_buf(), bytes, has_holes: bytes < len });
        if self.drawn.len() > FILES_MAX {
            self.drawn.pop();
        }
    }

    /// Whether every file is remembered.
    pub fn has_all(&self) -> bool {
        self.drawn.len() as u64 + self.further_names == self.files
    }

    /// The files in groups that are like each other, in random order.
    pub(super) fn into_groups(self, limits: &GroupLimits) -> Vec<SampleGroup> {
        grouped(self.drawn.into_sorted_vec(), self.seed, limits)
    }
}

/// A name without its digits: versions of a name become one.
pub(super) fn without_digits(name: &OsStr) -> Vec<u8> {
    name.as_bytes().iter().copied().filter(|byte| !byte.is_ascii_digit()).collect()
}

/// A random number for `seed` and `parts`.
pub(super) fn random<'a>(seed: u64, parts: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    for part in parts {
        hasher.update(part).update(b"/");
    }
    hasher.finalize().as_bytes().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A random number for the end of a path without its digits: of a small file, for that of its directory.
fn cluster(seed: u64, path: &Path, bytes: u64) -> u64 {
    let is_large = bytes >= LARGE_BYTES;
    let names = path.components().rev().skip(usize::from(!is_large)).take(COMPONENTS);
    let names: Vec<Vec<u8>> = names.map(|name| without_digits(name.as_os_str())).collect();
    let size: &[u8] = if is_large { b"large" } else { b"small" };
    random(seed, std::iter::once(size).chain(names.iter().map(Vec::as_slice)))
}
