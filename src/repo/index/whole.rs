//! Whether an entry can be read as far as the repository says: it and all that it copies from are sound entries of
//! listed containers.
//!
//! Writers ask this once something is known to be missing, bad or unreadable. A chunk whose entry builds on something
//! that is not there is stored again.

use std::collections::HashSet;
use std::num::NonZeroUsize;

use lru::LruCache;

use super::locate::Locator;
use crate::error::{Error, Result};
use crate::repo::container::Base;
use crate::types::{ContainerId, Fingerprint};

/// Remembered answers.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("not zero");
/// Entries that one answer may need, at most. An entry that needs more counts as one that lacks something.
const WALKED_MAX: usize = 1 << 16;

/// An entry: its container and its position there.
type EntryAt = (ContainerId, u32);

/// Answers for the containers of a listing. Their indexes count as loaded, so the run relies on what it is told here.
pub struct WholeEntries {
    locator: Locator,
    known: LruCache<EntryAt, bool>,
}

impl WholeEntries {
    /// Finds bases with `locator`, which finds sound entries only.
    pub fn new(locator: Locator) -> Self {
        WholeEntries { locator: locator.sound_only(), known: LruCache::new(KNOWN_MAX) }
    }

    /// Whether a listed container has an entry of the chunk that lacks nothing.
    ///
    /// # Errors
    /// Errors of the store that are not damage.
    pub fn has(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        let listing = self.locator.listing().clone();
        let found =
            listing.search(fingerprint, |container, entry| match self.stores(container, entry, fingerprint) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            })?;
        found.transpose().map(|found| found.is_some())
    }

    fn stores(&mut self, container: ContainerId, entry: u32, fingerprint: &Fingerprint) -> Result<bool> {
        let listing = self.locator.listing();
        if !listing.is_usable(&container, entry) {
            return Ok(false);
        }
        let container_index = match self.locator.container_indexes().load(&container) {
            Ok(container_index) => container_index,
            Err(error) => return self.lacks(&container, error),
        };
        let is_it = container_index.entries.get(entry as usize).is_some_and(|it| it.fingerprint == *fingerprint);
        Ok(is_it && self.is_whole(container, entry)?)
    }

    /// Whether an entry lacks nothing.
    ///
    /// # Errors
    /// Errors of the store that are not damage.
    pub fn is_whole(&mut self, container: ContainerId, entry: u32) -> Result<bool> {
        if let Some(known) = self.known.get(&(container, entry)) {
            return Ok(*known);
        }
        // Each entry on the way, with the bases that are left. Equal digests make a cycle impossible.
        let mut stack = vec![((container, entry), self.bases_of(container, entry)?)];
        let mut walked = HashSet::from([(container, entry)]);
        while let Some((name, bases)) = stack.last_mut() {
            let base = match bases {
                None => break,
                Some(bases) => bases.pop(),
            };
            let Some(base) = base else {
                self.known.put(*name, true);
                stack.pop();
                continue;
            };
            let found = match self.locator.locate_exact(&base) {
                Ok(found) => found.map(|found| (found.container, found.entry)),
                Err(error) if error.stops_reading() => return Err(error),
                // The locator has noted what it could not read.
                Err(_) => None,
            };
            let Some(found) = found.filter(|_| walked.len() < WALKED_MAX) else { break };
            match self.known.get(&found) {
                Some(true) => {}
                Some(false) => break,
                None if walked.insert(found) => stack.push((found, self.bases_of(found.0, found.1)?)),
                None => {}
            }
        }
        let is_whole = stack.is_empty();
        // All entries on the way need what is lacking.
        stack.iter().for_each(|(name, _)| _ = self.known.put(*name, false));
        Ok(is_whole)
    }

    /// The bases of an entry; `None` if it is bad or cannot be read.
    fn bases_of(&mut self, container: ContainerId, entry: u32) -> Result<Option<Vec<Base>>> {
        if !self.locator.listing().is_usable(&container, entry) {
            return Ok(None);
        }
        match self.locator.container_indexes().load(&container) {
            Ok(index) => Ok(index.entries.get(entry as usize).map(|entry| index.bases_of(entry))),
            Err(error) => self.lacks(&container, error).map(|_| None),
        }
    }

    /// What cannot be read is lacking.
    fn lacks(&self, container: &ContainerId, error: Error) -> Result<bool> {
        if error.stops_reading() {
            return Err(error);
        }
        self.locator.listing().note_unread(container, &error);
        tracing::debug!("{error}");
        Ok(false)
    }
}
