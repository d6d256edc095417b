//! The index itself: it opens its files, numbers entries, and answers look-ups.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::container_indexes::read_container_index;
use super::super::listing::ContainerListing;
use super::clues::{self, ContainerClues};
use super::numbers::NumberMap;
use super::pages::{PAGE_BYTES, Pages};
use super::session_clues::SessionClues;
use super::table::{FeatureTable, PAGES_MIN, pages_in};
use crate::crypto::{CipherSuite, SecretKey};
use crate::error::Result;
use crate::repo::container::SessionEntryNumber;
use crate::repo::paths::lock_cache_file;
use crate::store::{Store, StoreExt};
use crate::types::ContainerId;

/// Purpose of the key of a pages file.
const PAGES_CONTEXT: &str = "fhrd 2026-11 similarity pages";
/// Numbers reserved by one write of the numbers file.
pub(super) const RESERVED: u64 = 1 << 22;
/// Beyond this number, opening the index rebuilds it with new numbers.
pub(super) const NUMBERS_MAX: u64 = 3 << 30;

/// Features of stored containers that opening the index adds, at most. After a loss of the files the index is complete
/// after several backups. Beyond the memory of the table, an insertion costs a read and a write.
pub(super) const FEATURES_ADDED_MAX: usize = 1 << 22;

/// Unknown containers whose indexes are read, those that were stored last. Clues of more are read.
pub(super) const INDEXES_READ_MIN: usize = 8;
/// Features of containers without clues that opening the index adds, at most, where clues tell of most.
const FEATURES_WITHOUT_CLUES_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 18 };
/// Each index that is read counts as so many features at least: most containers have more.
const INDEX_FEATURES_MIN: usize = 1 << 9;
/// Part of the memory of the index that the clues of the session take.
const SESSION_CLUES_SHARE: u64 = 4;

/// Look-ups of similar chunks, by what answered.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct SimilarHits {
    /// The LRU of features.
    pub lru: u64,
    /// The pages on disk.
    pub pages: u64,
    /// Nothing: no chunk has the feature.
    pub misses: u64,
}

impl SimilarHits {
    /// The name of each level, the look-ups that came to it, and those that it answered.
    pub fn levels(&self) -> [(&'static str, u64, u64); 2] {
        let past_lru = self.pages + self.misses;
        [("lru", past_lru + self.lru, self.lru), ("pages", past_lru, self.pages)]
    }
}

/// Location and size limits of the similarity index.
#[derive(Debug, Clone)]
pub struct SimilarityFiles {
    /// Directory of the local caches.
    pub directory: PathBuf,
    /// Id of the repository.
    pub repository: String,
    /// Memory, bytes, at most.
    pub memory_bytes: u64,
    /// The pages file, bytes, at most. Rounded down to a power of two.
    pub file_bytes: u64,
    /// Encrypts the pages file, if the repository is encrypted.
    pub key: Option<SecretKey>,
}

impl SimilarityFiles {
    /// The pages file and the numbers file in the directory of local caches.
    pub fn paths(directory: &Path) -> [PathBuf; 2] {
        ["similarity.pages", "similarity.numbers"].map(|name| directory.join(name))
    }
}

/// An entry that has a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similar {
    /// Entry of a stored container.
    Stored(ContainerId, u32),
    /// Entry of the running session.
    Session(SessionEntryNumber),
}

/// A stored container of the session, with the session entries in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionContainer {
    /// First session entry.
    pub first: SessionEntryNumber,
    /// Number of entries; 0 for a metadata container.
    pub entries: u32,
    /// The container.
    pub container: ContainerId,
}

/// The containers of a run that has succeeded.
struct FinishedRun {
    /// By ascending first entry.
    containers: Vec<SessionContainer>,
    /// Those without session entries.
    others: Vec<ContainerId>,
}

/// From features to similar entries (see the module).
pub struct SimilarityIndex {
    pub(super) store: Arc<dyn Store>,
    pub(super) listing: Arc<ContainerListing>,
    pub(super) files: SimilarityFiles,
    pub(super) open: Option<OpenIndex>,
    /// Clues of the session, until it ends. None if other machines are not likely to use the repository: its store is
    /// on a local disk.
    session_clues: Option<SessionClues>,
    /// What a run that has succeeded has stored.
    finished: Option<FinishedRun>,
    /// Clues of containers that had none in the repository.
    new_clues: Vec<ContainerClues>,
    /// Counters.
    pub hits: SimilarHits,
}

/// The index after the first look-up.
pub(super) struct OpenIndex {
    pub(super) table: FeatureTable,
    pub(super) numbers: NumberMap,
    /// `None` if the index is in memory only.
    pub(super) file: Option<NumbersFile>,
    /// The first number of the session.
    pub(super) session_first: u64,
    /// Number of session entries so far.
    pub(super) session_entries: u64,
    /// Features of stored containers that were added so far.
    pub(super) features_added: usize,
    /// Containers whose indexes could not be read.
    pub(super) unread: HashSet<ContainerId>,
    /// Clues of containers that had none in the repository.
    new_clues: Vec<ContainerClues>,
}

impl SimilarityIndex {
    /// An index of the containers of `listing`. It opens and reads nothing yet.
    pub fn new(store: Arc<dyn Store>, listing: Arc<ContainerListing>, files: SimilarityFiles) -> Self {
        let is_shared = store.requests_max() > 1;
        let clue_bytes = if is_shared { files.memory_bytes / SESSION_CLUES_SHARE } else { 0 };
        let session_clues = is_shared.then(|| SessionClues::new(clue_bytes, files.directory.clone()));
        let files = SimilarityFiles { memory_bytes: files.memory_bytes - clue_bytes, ..files };
        let (finished, new_clues, hits) = (None, Vec::new(), SimilarHits::default());
        SimilarityIndex { store, listing, files, open: None, session_clues, finished, new_clues, hits }
    }

    /// Usable entries with this feature, newest first. Only the low 48 bits of the feature count. If one is known by a
    /// clue, all features of its container are added first: who asks in the order of the stream finds the same always.
    pub fn find(&mut self, feature: u64) -> impl Iterator<Item = Similar> + '_ {
        if self.opened().has_partial() {
            let store = self.store.clone();
            self.opened().complete(store.as_ref(), feature);
        }
        self.find_known(feature)
    }

    /// Like [`find`](Self::find), and adds nothing.
    pub fn find_known(&mut self, feature: u64) -> impl Iterator<Item = Similar> + '_ {
        let quarantine = self.listing.quarantine();
        let OpenIndex { table, numbers, session_first, session_entries, .. } = self.opened();
        let found = table.find(feature);
        found.filter_map(move |number| match u64::from(number).checked_sub(*session_first) {
            None => {
                let usable = numbers.find(number).filter(|(container, entry)| quarantine.is_usable(container, *entry));
                usable.map(|(container, entry)| Similar::Stored(container, entry))
            }
            Some(entry) => (entry < *session_entries).then_some(Similar::Session(SessionEntryNumber(entry))),
        })
    }

    /// Whether an entry that was found earlier may still be used.
    pub fn is_usable(&self, similar: &Similar) -> bool {
        match similar {
            Similar::Stored(container, entry) => self.listing.quarantine().is_usable(container, *entry),
            Similar::Session(_) => true,
        }
    }

    /// Adds a session entry with its features. Entries must come in ascending order.
    pub fn insert(&mut self, entry: SessionEntryNumber, features: &[u64]) {
        if let Some(clues) = &mut self.session_clues {
            clues.insert(entry, features);
        }
        let open = self.opened();
        open.session_entries = open.session_entries.max(entry.0 + 1);
        open.insert(open.session_first + entry.0, features);
    }

    /// Ends a successful run: `containers` are the stored containers of the session, by ascending first entry, and
    /// `others` those without entries here. Writes the files.
    pub fn finish(&mut self, containers: &[SessionContainer], others: impl Iterator<Item = ContainerId>) {
        let Some(open) = &mut self.open else { return };
        let mut next = open.session_first + open.session_entries;
        for container in containers {
            let first = open.session_first + container.first.0;
            open.numbers.set(first, container.container, u64::from(container.entries));
            next = next.max(first + u64::from(container.entries));
        }
        open.numbers.next = next;
        let mut others: Vec<ContainerId> =
            others.filter(|id| !containers.iter().any(|container| container.container == *id)).collect();
        others.sort();
        others.iter().for_each(|id| {
            open.numbers.assign(*id, 0);
        });
        open.flush();
        self.finished = Some(FinishedRun { containers: containers.to_vec(), others });
        self.new_clues.append(&mut open.new_clues);
    }

    /// Stores the clues of a run that has succeeded, for other machines, and merges blobs of these if it may. Returns
    /// how many containers have new clues.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn share_clues(&mut self, may_merge: bool) -> Result<usize> {
        let store = self.store.as_ref();
        let mut rest = std::mem::take(&mut self.new_clues);
        let mut count = rest.len();
        if let (Some(clues), Some(run)) = (self.session_clues.take(), self.finished.take()) {
            count += clues.of_containers(&run.containers, &run.others, clues::CLUES_MAX, |mut part| {
                part.append(&mut rest);
                clues::put(store, part).map(drop)
            })?;
        }
        if !rest.is_empty() {
            clues::put(store, rest)?;
        }
        if count > 0 && may_merge {
            clues::merge(store)?;
        }
        Ok(count)
    }

    pub(super) fn opened(&mut self) -> &mut OpenIndex {
        let SimilarityIndex { store, listing, files, open, session_clues, .. } = self;
        open.get_or_insert_with(|| {
            let mut open = OpenIndex::from_files(files).unwrap_or_else(|| OpenIndex::in_memory(files.memory_bytes));
            open.update(store.as_ref(), listing, session_clues.is_some());
            open
        })
    }
}

/// The numbers file.
pub(super) struct NumbersFile {
    pub(super) path: PathBuf,
    pub(super) repository: String,
    /// Content of the file, or what it would be if the file does not exist yet.
    pub(super) saved: NumberMap,
}

impl NumbersFile {
    pub(super) fn save(&self) -> bool {
        let saved = self.saved.save(&self.path, &self.repository);
        if let Err(error) = &saved {
            tracing::warn!("the similarity index will be rebuilt: {error}");
            self.remove();
        }
        saved.is_ok()
    }

    /// Removes the file. Without it the pages are invalid.
    pub(super) fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

impl OpenIndex {
    pub(super) fn in_memory(bytes_max: u64) -> Self {
        let numbers = NumberMap::new(0, PAGES_MIN as u64);
        OpenIndex {
            table: FeatureTable::in_memory(bytes_max),
            numbers,
            file: None,
            session_first: 0,
            session_entries: 0,
            features_added: 0,
            unread: HashSet::new(),
            new_clues: Vec::new(),
        }
    }

    /// Locks and loads the files, or empties them if they are unusable. `None` if they cannot be locked.
    pub(super) fn from_files(files: &SimilarityFiles) -> Option<Self> {
        let [pages_path, path] = SimilarityFiles::paths(&files.directory);
        let file = lock(&pages_path)?;
        let pages_max = pages_in(files.file_bytes);
        let usable = |numbers: &NumberMap| {
            let len = file.metadata().map_or(0, |metadata| metadata.len());
            numbers.pages.is_power_of_two()
                && (PAGES_MIN as u64..=pages_max as u64).contains(&numbers.pages)
                && len == numbers.pages * PAGE_BYTES as u64
                && numbers.next <= NUMBERS_MAX
        };
        let loaded = NumberMap::load(&path, &files.repository).unwrap_or_else(|error| {
            tracing::warn!("rebuilding the similarity index: {error}");
            None
        });
        let numbers = match loaded.filter(usable) {
            Some(numbers) => numbers,
            None => reset(&file, &path)?,
        };
        let cipher = files.key.as_ref().map(|key| {
            let key = key.derive(PAGES_CONTEXT, &[&numbers.seed.to_le_bytes()]);
            CipherSuite::of_this_machine().cipher(&key)
        });
        let cipher =
            cipher.transpose().inspect_err(|error| tracing::warn!("similarity index in memory: {error}")).ok()?;
        let pages = Pages::on_file(file, numbers.seed, numbers.pages as usize, files.memory_bytes as usize);
        let pages = pages.encrypted(cipher);
        let table = FeatureTable::new(pages, numbers.used, pages_max);
        let numbers_file = NumbersFile { path, repository: files.repository.clone(), saved: numbers.clone() };
        Some(OpenIndex {
            table,
            session_first: numbers.next,
            numbers,
            file: Some(numbers_file),
            session_entries: 0,
            features_added: 0,
            unread: HashSet::new(),
            new_clues: Vec::new(),
        })
    }

    /// Drops containers that are gone and adds the features of new ones, up to [`FEATURES_ADDED_MAX`]. If many are new,
    /// and the repository is shared, clues serve for most.
    pub(super) fn update(&mut self, store: &dyn Store, listing: &ContainerListing, is_shared: bool) {
        let mut new = newest_first(self.numbers.update(&listing.containers), listing);
        let (mut features_max, mut without_clues) = (FEATURES_ADDED_MAX, HashSet::new());
        if is_shared && new.len() > INDEXES_READ_MIN {
            match self.take_clues(store, &listing.containers, &mut new) {
                // Where few have clues, as after an upgrade or a prune that moved most, indexes tell as much as ever.
                Ok((tell_of_most, left)) => {
                    without_clues = left;
                    features_max = if tell_of_most { FEATURES_WITHOUT_CLUES_MAX } else { FEATURES_ADDED_MAX };
                }
                Err(error) => tracing::warn!("finding near versions without the clues of others: {error}"),
            }
        }
        for container in new {
            if self.features_added >= features_max {
                tracing::debug!("the features of some containers are left to later backups");
                break;
            }
            let container_index = match read_container_index(store, &container) {
                Ok(container_index) => container_index,
                // The run ends. The next one takes in the other containers.
                Err(error) if error.stops_reading() => break,
                Err(error) => {
                    tracing::warn!("not using the chunks of a container as bases: {error}");
                    continue;
                }
            };
            let has_features = container_index.entries.iter().any(|entry| !container_index.features(entry).is_empty());
            let entries = if has_features { container_index.entries.len() } else { 0 };
            let features = container_index.entries.iter().map(|entry| container_index.features(entry).len()).sum();
            self.features_added += INDEX_FEATURES_MIN.max(features);
            let Some(first) = self.numbers.assign(container, entries) else { continue };
            for (entry, number) in container_index.entries.iter().take(entries).zip(u64::from(first)..) {
                self.insert(number, container_index.features(entry));
            }
            if without_clues.contains(&container) {
                self.new_clues.push(ContainerClues::of_index(container, &container_index));
            }
        }
        self.session_first = self.numbers.next;
    }

    pub(super) fn insert(&mut self, number: u64, features: &[u64]) {
        if let Some(file) = &mut self.file
            && number >= file.saved.next
        {
            file.saved.next = number + RESERVED;
            if !file.save() {
                self.file = None;
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

    /// Doubles the table. Meanwhile there is no numbers file, so a crash invalidates the pages.
    pub(super) fn grow(&mut self) {
        if let Some(file) = &self.file {
            file.remove();
        }
        self.table.grow();
        if let Some(file) = &mut self.file {
            (file.saved.pages, file.saved.used) = (self.table.pages().count() as u64, self.table.used());
            if !file.save() {
                self.file = None;
            }
        }
    }

    pub(super) fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        if self.session_entries == 0 && self.numbers == file.saved {
            return;
        }
        self.table.pages().flush();
        if self.table.pages().is_broken() {
            file.remove();
            self.file = None;
            return;
        }
        (self.numbers.pages, self.numbers.used) = (self.table.pages().count() as u64, self.table.used());
        file.saved = self.numbers.clone();
        file.save();
    }
}

/// `containers` in the order of the segments that list them, the smallest first: small segments are new, and what is
/// stored next is most likely similar to new chunks.
fn newest_first(containers: Vec<ContainerId>, listing: &ContainerListing) -> Vec<ContainerId> {
    let mut rest: HashSet<ContainerId> = containers.iter().copied().collect();
    let segments = listing.segments();
    let listed = segments.iter().rev().flat_map(|segment| segment.containers()).copied();
    listed.chain(containers).filter(|id| rest.remove(id)).collect()
}

/// Opens and locks the pages file. The lock lasts as long as the file is open.
pub(super) fn lock(path: &Path) -> Option<File> {
    lock_cache_file(path).unwrap_or_else(|error| {
        // Who has no directory for caches has said so.
        if error.kind() != std::io::ErrorKind::NotADirectory {
            tracing::warn!("similarity index in memory: cannot lock {}: {error}", path.display());
        }
        None
    })
}

/// Empties both files and chooses a new seed.
pub(super) fn reset(file: &File, path: &Path) -> Option<NumberMap> {
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

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
