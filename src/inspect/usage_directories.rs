//! Directories: what each directory of a host holds, as far as they can be told apart in bounded memory.
//!
//! 1. The *stem* of a snapshot is the path of its backup, or the last directory on the way there that is alone in its
//!    own directory.
//! 2. Each directory in the stem counts for itself, with all that is below it. Files in the stem count for the stem.
//! 3. A stem that is equal to one before adds what that one did, and is not read again.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::memory::ByteLru;
use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::Snapshot;
use crate::repo::tree::{NodeKind, TreeCursor};

/// Directories that are told apart. What is in others counts together.
const DIRECTORIES_MAX: usize = 4096;
/// Directories above a stem.
const STEM_DEPTH_MAX: usize = 64;
/// Cache of what stems add, bytes.
const STEMS_BYTES: usize = 16 << 20;

/// What a directory holds in all snapshots of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryUsage {
    /// The host; empty for all directories beyond those that are told apart.
    pub host: String,
    /// Path in the snapshots; empty for their root.
    pub path: PathBuf,
    /// Whether only the files in it count, because its directories are told apart.
    pub is_stem: bool,
    /// Regular files.
    pub files: u64,
    /// Bytes of their content, with holes.
    pub bytes: u64,
    /// Bytes of distinct chunks that no snapshot before, by host and time, has elsewhere.
    pub distinct_bytes: u64,
    /// Stored bytes of those chunks.
    pub stored_bytes: u64,
}

/// Where the directories of a snapshot are told apart.
pub(super) struct Stem {
    /// Its path.
    pub path: PathBuf,
    /// Its listing.
    pub content: Option<ContentReference>,
    /// Directories on the way, with itself.
    pub directories: u64,
}

impl Stem {
    /// The stem of a snapshot. A listing that cannot be read ends the way: whoever walks the stem meets it again.
    pub(super) fn of(snapshot: &Snapshot, reader: &mut ChunkReader) -> Stem {
        let mut stem = Stem { path: PathBuf::new(), content: snapshot.root, directories: 0 };
        let is_backed_up = |path: &Path| {
            let paths = snapshot.paths.iter().map(|path| Path::new(OsStr::from_bytes(path)));
            !path.as_os_str().is_empty() && paths.into_iter().any(|backup| backup.ends_with(path))
        };
        while (stem.directories as usize) < STEM_DEPTH_MAX && !is_backed_up(&stem.path) {
            let mut cursor = TreeCursor::open(stem.content);
            let Ok(Some(node)) = cursor.next(reader) else { break };
            if node.kind != NodeKind::Directory || !matches!(cursor.next(reader), Ok(None)) {
                break;
            }
            stem.path.push(OsStr::from_bytes(&node.name));
            (stem.content, stem.directories) = (node.content, stem.directories + 1);
        }
        stem
    }
}

/// Files and their bytes by number of directory.
pub(super) type DirectorySizes = BTreeMap<u16, (u64, u64)>;

/// What identifies a stem: number of its host, path, listing.
type StemKey = (u16, PathBuf, ContentReference);

/// The directories so far, and the stem that is walked.
pub(super) struct DirectoryCount<T> {
    numbers: HashMap<(String, PathBuf), u16>,
    directories: Vec<DirectoryUsage>,
    known: ByteLru<StemKey, Arc<(T, DirectorySizes)>>,
    host: String,
    stem: PathBuf,
    /// What the directories in the stem add so far.
    sizes: DirectorySizes,
}

impl<T> DirectoryCount<T> {
    /// Nothing so far.
    pub(super) fn new() -> Self {
        DirectoryCount {
            numbers: HashMap::new(),
            directories: vec![DirectoryUsage::default()],
            known: ByteLru::new(STEMS_BYTES),
            host: String::new(),
            stem: PathBuf::new(),
            sizes: DirectorySizes::new(),
        }
    }

    /// What the stem adds, if it is equal to one before.
    pub(super) fn known(&mut self, host: u16, stem: &Stem) -> Option<Arc<(T, DirectorySizes)>> {
        let known = self.known.get(&(host, stem.path.clone(), stem.content?))?;
        self.add(&known.1);
        Some(known)
    }

    /// Begins with the stem of another snapshot.
    pub(super) fn start(&mut self, host: &str, stem: &Path) {
        (self.host, self.stem, self.sizes) = (host.into(), stem.into(), DirectorySizes::new());
    }

    /// Number of the directory that an entry of the stem counts for.
    pub(super) fn enter(&mut self, path: &Path, kind: NodeKind) -> u16 {
        let is_stem = kind != NodeKind::Directory;
        let path = if is_stem { self.stem.clone() } else { path.into() };
        let key = (self.host.clone(), path);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            return 0;
        }
        let number = self.directories.len() as u16;
        let (host, path) = key.clone();
        self.directories.push(DirectoryUsage { host, path, is_stem, ..DirectoryUsage::default() });
        self.numbers.insert(key, number);
        number
    }

    /// Adds files and their bytes to a directory of the stem.
    pub(super) fn add_below(&mut self, number: u16, files: u64, bytes: u64) {
        let sizes = self.sizes.entry(number).or_default();
        *sizes = (sizes.0.saturating_add(files), sizes.1.saturating_add(bytes));
    }

    /// Ends the stem, of which `tally` is what all adds.
    pub(super) fn end(&mut self, host: u16, content: Option<ContentReference>, tally: T, files: u64, bytes: u64) {
        let below = self
            .sizes
            .values()
            .fold((0u64, 0u64), |sum, size| (sum.0.saturating_add(size.0), sum.1.saturating_add(size.1)));
        let own = (files.saturating_sub(below.0), bytes.saturating_sub(below.1));
        if own != (0, 0) {
            let number = self.enter(Path::new(""), NodeKind::File);
            self.add_below(number, own.0, own.1);
        }
        let sizes = std::mem::take(&mut self.sizes);
        self.add(&sizes);
        if let Some(content) = content {
            let bytes = size_of::<T>() + self.stem.as_os_str().len() + 256 + 32 * sizes.len();
            self.known.put((host, self.stem.clone(), content), Arc::new((tally, sizes)), bytes);
        }
    }

    fn add(&mut self, sizes: &DirectorySizes) {
        for (number, (files, bytes)) in sizes {
            if let Some(directory) = self.directories.get_mut(usize::from(*number)) {
                directory.files = directory.files.saturating_add(*files);
                directory.bytes = directory.bytes.saturating_add(*bytes);
            }
        }
    }

    /// Numbers that were given.
    pub(super) fn count(&self) -> usize {
        self.directories.len()
    }

    /// The directories that hold anything, by host and path. `sizes` has the distinct and stored bytes of each number.
    pub(super) fn finish(self, sizes: Vec<(u64, u64)>) -> Vec<DirectoryUsage> {
        let with =
            |(directory, (distinct_bytes, stored_bytes))| DirectoryUsage { distinct_bytes, stored_bytes, ..directory };
        let mut directories: Vec<DirectoryUsage> = self.directories.into_iter().zip(sizes).map(with).collect();
        directories.retain(|directory| directory.files > 0 || directory.bytes > 0 || directory.distinct_bytes > 0);
        directories.sort_by(|one, other| (&one.host, &one.path).cmp(&(&other.host, &other.path)));
        directories
    }
}
