//! The similarity index: from a feature to the entries, stored or of the running session, that carry it, from run to
//! run.
//!
//! 1. Nothing is opened before the first look-up, so a backup without new chunks does not touch it.
//! 2. The [table](table) lies in `similarity.pages`, the [containers behind its numbers](numbers) in
//!    `similarity.numbers`. The pages' file is locked by its owner; a process that cannot have it keeps a smaller table
//!    in memory.
//! 3. On opening, containers that are no longer listed are forgotten, and directories are read of those that are new:
//!    all of them where the files are lost, damaged, of another repository or too large for the configuration.
//! 4. Session entries take the numbers behind those of the stored containers. Before such a number can reach a page,
//!    the numbers' file says that it was used. When the run has ended well the session's containers get their numbers;
//!    if it has not, the numbers answer nothing and are not given again.
//! 5. The files are a cache: no state of them does more than offer a wrong candidate, and bytes are compared.

mod numbers;
mod pages;
mod table;
#[cfg(test)]
mod tests;

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::container_indexes::read_container_index;
use super::locate::ContainerListing;
use crate::repo::container::SessionEntryNumber;
use crate::store::Store;
use crate::types::ContainerId;
use numbers::NumberMap;
use pages::{PAGE_BYTES, Pages};
use table::{FeatureTable, PAGES_MIN, pages_in};

/// Numbers said to be used at a time.
const RESERVED: u64 = 1 << 22;
/// From here on the containers are numbered anew when the index is opened.
const NUMBERS_MAX: u64 = 3 << 30;

/// Where the index lies and how large it may get.
#[derive(Debug, Clone)]
pub struct SimilarityFiles {
    /// Folder of the local caches.
    pub directory: PathBuf,
    /// Id of the repository.
    pub repository: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The file, bytes (rounded down to a power of two).
    pub file_bytes: u64,
}

impl SimilarityFiles {
    /// The files of the index in the directory of local caches.
    pub fn files(directory: &Path) -> [PathBuf; 2] {
        ["similarity.pages", "similarity.numbers"].map(|name| directory.join(name))
    }
}

/// An entry that carries a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similar {
    /// Entry of a stored container.
    Stored(ContainerId, u32),
    /// Entry of the running session.
    Session(SessionEntryNumber),
}

/// A stored container of the session and its share of the session's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionContainer {
    /// Number of its first entry in the session.
    pub first: SessionEntryNumber,
    /// Entries with features; 0 for containers that hold no chunks of files.
    pub entries: u32,
    /// The container.
    pub container: ContainerId,
}

/// See the module.
pub struct SimilarityIndex {
    store: Arc<dyn Store>,
    listing: Arc<ContainerListing>,
    place: SimilarityFiles,
    open: Option<OpenIndex>,
}

/// An open index.
struct OpenIndex {
    table: FeatureTable,
    numbers: NumberMap,
    /// `None`: all of this ends with the run.
    kept: Option<NumbersFile>,
    /// The first number of the session.
    session_first: u64,
    /// Session entries so far.
    session_entries: u64,
}

impl SimilarityIndex {
    /// An index of the containers of `listing`; nothing is opened or read yet.
    pub fn new(store: Arc<dyn Store>, listing: Arc<ContainerListing>, place: SimilarityFiles) -> Self {
        SimilarityIndex { store, listing, place, open: None }
    }

    /// Entries with this feature (its low 48 bits count), newest first.
    pub fn find(&mut self, feature: u64) -> impl Iterator<Item = Similar> + '_ {
        let OpenIndex { table, numbers, session_first, session_entries, .. } = self.opened();
        let found = table.find(feature);
        found.filter_map(|number| match u64::from(number).checked_sub(*session_first) {
            None => numbers.find(number).map(|(container, entry)| Similar::Stored(container, entry)),
            Some(entry) => (entry < *session_entries).then_some(Similar::Session(SessionEntryNumber(entry))),
        })
    }

    /// Adds session entry `entry` under its features. Entries come in ascending order.
    pub fn insert(&mut self, entry: SessionEntryNumber, features: &[u64]) {
        let open = self.opened();
        open.session_entries = open.session_entries.max(entry.0 + 1);
        open.insert(open.session_first + entry.0, features);
    }

    /// The run has ended well and the session's containers are stored as `shares` says, by ascending first entry;
    /// `others` are those without chunks of files. Everything is written to the files.
    pub fn finish(&mut self, shares: &[SessionContainer], others: impl Iterator<Item = ContainerId>) {
        let Some(open) = &mut self.open else { return };
        let mut next = open.session_first + open.session_entries;
        for share in shares {
            let first = open.session_first + share.first.0;
            open.numbers.set(first, share.container, u64::from(share.entries));
            next = next.max(first + u64::from(share.entries));
        }
        open.numbers.next = next;
        let mut others: Vec<ContainerId> =
            others.filter(|id| !shares.iter().any(|share| share.container == *id)).collect();
        others.sort();
        others.into_iter().for_each(|id| {
            open.numbers.give(id, 0);
        });
        open.flush();
    }

    fn opened(&mut self) -> &mut OpenIndex {
        let SimilarityIndex { store, listing, place, open } = self;
        open.get_or_insert_with(|| {
            let mut open = OpenIndex::from_files(place).unwrap_or_else(|| OpenIndex::in_memory(place.memory_bytes));
            open.follow(store.as_ref(), listing);
            open
        })
    }
}

/// The numbers' file.
struct NumbersFile {
    path: PathBuf,
    repository: String,
    /// What it says, or would say if it were there.
    saved: NumberMap,
}

impl NumbersFile {
    fn save(&self) -> bool {
        let saved = self.saved.save(&self.path, &self.repository);
        if let Err(error) = &saved {
            tracing::warn!("the similarity index will be made anew: {error}");
            self.remove();
        }
        saved.is_ok()
    }

    /// Without this file the pages mean nothing.
    fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

impl OpenIndex {
    fn in_memory(bytes_max: u64) -> Self {
        let numbers = NumberMap::new(0, PAGES_MIN as u64);
        OpenIndex {
            table: FeatureTable::in_memory(bytes_max),
            numbers,
            kept: None,
            session_first: 0,
            session_entries: 0,
        }
    }

    /// Takes the files if they can be had, as they are if they make sense, else empty.
    fn from_files(place: &SimilarityFiles) -> Option<Self> {
        let [pages_path, path] = SimilarityFiles::files(&place.directory);
        let file = lock(&pages_path)?;
        let pages_max = pages_in(place.file_bytes);
        let usable = |numbers: &NumberMap| {
            let len = file.metadata().map_or(0, |metadata| metadata.len());
            numbers.pages.is_power_of_two()
                && (PAGES_MIN as u64..=pages_max as u64).contains(&numbers.pages)
                && len == numbers.pages * PAGE_BYTES as u64
                && numbers.next <= NUMBERS_MAX
        };
        let loaded = NumberMap::load(&path, &place.repository).unwrap_or_else(|error| {
            tracing::warn!("making the similarity index anew: {error}");
            None
        });
        let numbers = match loaded.filter(usable) {
            Some(numbers) => numbers,
            None => begin(&file, &path)?,
        };
        let pages = Pages::on_file(file, numbers.seed, numbers.pages as usize, place.memory_bytes as usize);
        let table = FeatureTable::new(pages, numbers.used, pages_max);
        let kept = NumbersFile { path, repository: place.repository.clone(), saved: numbers.clone() };
        Some(OpenIndex { table, session_first: numbers.next, numbers, kept: Some(kept), session_entries: 0 })
    }

    /// Follows the listing: forgets containers that are gone, takes in the features of new ones.
    fn follow(&mut self, store: &dyn Store, listing: &ContainerListing) {
        for container in self.numbers.follow(&listing.containers) {
            let container_index = match read_container_index(store, &container) {
                Ok(container_index) => container_index,
                Err(error) => {
                    tracing::warn!("not using the chunks of a container: {error}");
                    continue;
                }
            };
            let has_features = container_index.entries.iter().any(|entry| !container_index.features(entry).is_empty());
            let entries = if has_features { container_index.entries.len() } else { 0 };
            let Some(first) = self.numbers.give(container, entries) else { continue };
            for (entry, number) in container_index.entries.iter().take(entries).zip(u64::from(first)..) {
                self.insert(number, container_index.features(entry));
            }
        }
        self.session_first = self.numbers.next;
    }

    fn insert(&mut self, number: u64, features: &[u64]) {
        if let Some(kept) = &mut self.kept
            && number >= kept.saved.next
        {
            kept.saved.next = number + RESERVED;
            if !kept.save() {
                self.kept = None;
            }
        }
        let Some(number) = u32::try_from(number).ok().filter(|number| *number < u32::MAX) else { return };
        for feature in features {
            if self.table.is_full() {
                self.grow();
            }
            self.table.insert(*feature, number);
        }
    }

    /// Doubles the table. While it is half done there is no numbers' file.
    fn grow(&mut self) {
        if let Some(kept) = &self.kept {
            kept.remove();
        }
        self.table.grow();
        if let Some(kept) = &mut self.kept {
            (kept.saved.pages, kept.saved.used) = (self.table.pages().count() as u64, self.table.used());
            if !kept.save() {
                self.kept = None;
            }
        }
    }

    fn flush(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        if self.session_entries == 0 && self.numbers == kept.saved {
            return;
        }
        self.table.pages().flush();
        if self.table.pages().is_broken() {
            kept.remove();
            self.kept = None;
            return;
        }
        (self.numbers.pages, self.numbers.used) = (self.table.pages().count() as u64, self.table.used());
        kept.saved = self.numbers.clone();
        kept.save();
    }
}

/// Opens and locks the pages' file; it stays locked for as long as it is open.
fn lock(path: &Path) -> Option<File> {
    let mut options = File::options();
    let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = opened
        .inspect_err(|error| tracing::warn!("similarity index in memory: cannot open {}: {error}", path.display()));
    let file = file.ok()?;
    match file.try_lock() {
        Ok(()) => Some(file),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => {
            tracing::debug!("similarity index in memory: cannot lock {}: {error}", path.display());
            None
        }
    }
}

/// Empties the files.
fn begin(file: &File, path: &Path) -> Option<NumberMap> {
    let removed = match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    let len = (PAGES_MIN * PAGE_BYTES) as u64;
    let emptied = removed.and_then(|()| file.set_len(0)).and_then(|()| file.set_len(len));
    emptied.inspect_err(|error| tracing::warn!("similarity index in memory: {error}")).ok()?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).ok()?;
    Some(NumberMap::new(u64::from_le_bytes(seed), PAGES_MIN as u64))
}
