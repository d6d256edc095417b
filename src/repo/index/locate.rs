//! The locator: finds the entry of a chunk, for everything that reads a repository.
//!
//! 1. A look-up asks the container indexes used last, which answer nearly all look-ups, then the listing. A hit counts
//!    only if its container is in the listing taken at the start.
//! 2. Any entry of a fingerprint serves, but a sound one comes first: one that no mark lists, and that this run has not
//!    found bad.
//! 3. Readers take a doubtful entry if there is no other, and in place of a base that is lost any sound entry of the
//!    same chunk that serves the operation ([`BaseUse`]): its content is the same. Writers take sound entries only
//!    ([`Locator::sound_only`]).
//! 4. If a container is gone, a prune may have moved its chunks: readers list the repository again.
//! 5. Readers that find nothing have segments proved, and then ask the own indexes of containers that segments name
//!    with too few records. A chunk is missing only if every listed container could be asked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::container_indexes::ContainerIndexes;
use super::listing::ContainerListing;
use crate::error::{Error, Result};
use crate::repo::container::{Base, BaseUse, ContainerEntry, ContainerIndex, parse_name};
use crate::repo::marks::Quarantine;
use crate::types::{ContainerId, Fingerprint};

/// Frames and entries that a locator remembers as bad, at most.
const DOUBTS_MAX: usize = 1 << 16;

/// An entry that a look-up found.
#[derive(Clone)]
pub struct LocatedEntry {
    /// The container.
    pub container: ContainerId,
    /// Position of the entry in the container index.
    pub entry: u32,
    /// The container index.
    pub container_index: Arc<ContainerIndex>,
    /// Whether it can be relied on, as far as is known.
    pub soundness: Soundness,
}

impl LocatedEntry {
    /// The chunk that it stores.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.container_index.entries.get(self.entry as usize).map(|entry| entry.fingerprint)
    }
}

/// What is known against an entry. The least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Soundness {
    /// Nothing.
    Sound,
    /// A mark lists it.
    Quarantined,
    /// This run could not read it, or a newer version wrote it.
    Unreadable,
}

/// What a locator knows against entries.
struct Doubts {
    quarantine: Arc<Quarantine>,
    /// Frames that this run could not read.
    frames: HashMap<ContainerId, HashSet<u32>>,
    /// Entries that it could not assemble although their frames were readable.
    entries: HashMap<ContainerId, HashSet<u32>>,
    /// Number of both.
    count: usize,
    is_for_writers: bool,
}

impl Doubts {
    fn soundness(
        &self,
        container: &ContainerId,
        index: &ContainerIndex,
        entry: &ContainerEntry,
        position: u32,
    ) -> Soundness {
        // Writers must see it: it needs its bases, whoever can read it.
        if !self.is_for_writers && index.check_known(entry).is_err() {
            return Soundness::Unreadable;
        }
        if self.count > 0 {
            let is_in = |set: &HashMap<ContainerId, HashSet<u32>>, position: u32| {
                set.get(container).is_some_and(|positions| positions.contains(&position))
            };
            if is_in(&self.entries, position) || (entry.literal_len > 0 && is_in(&self.frames, entry.frame)) {
                return Soundness::Unreadable;
            }
        }
        if self.quarantine.is_usable(container, position) { Soundness::Sound } else { Soundness::Quarantined }
    }
}

/// Finds chunks among the containers of a listing.
pub struct Locator {
    listing: Arc<ContainerListing>,
    container_indexes: ContainerIndexes,
    doubts: Doubts,
    is_sound_only: bool,
}

impl Locator {
    /// A locator for the containers of `listing`; `container_indexes` caches their container indexes.
    pub fn new(listing: Arc<ContainerListing>, container_indexes: ContainerIndexes) -> Self {
        let (frames, entries) = (HashMap::new(), HashMap::new());
        container_indexes.verify_by(&listing);
        let doubts = Doubts { quarantine: listing.quarantine(), frames, entries, count: 0, is_for_writers: false };
        Locator { listing, container_indexes, doubts, is_sound_only: false }
    }

    /// The same locator, but it finds sound entries only: for writers.
    #[must_use]
    pub fn sound_only(self) -> Self {
        let doubts = Doubts { is_for_writers: true, ..self.doubts };
        Locator { is_sound_only: true, doubts, ..self }
    }

    /// The cache of container indexes.
    pub fn container_indexes(&mut self) -> &mut ContainerIndexes {
        &mut self.container_indexes
    }

    /// The listing.
    pub fn listing(&self) -> &Arc<ContainerListing> {
        &self.listing
    }

    /// Remembers that a frame is bad. Returns whether that is new.
    pub fn doubt_frame(&mut self, container: ContainerId, frame: u32) -> bool {
        self.doubts.count < DOUBTS_MAX && {
            let is_new = self.doubts.frames.entry(container).or_default().insert(frame);
            self.doubts.count += usize::from(is_new);
            is_new
        }
    }

    /// Remembers that an entry is bad.
    pub fn doubt_entry(&mut self, container: ContainerId, entry: u32) {
        if self.doubts.count < DOUBTS_MAX {
            self.doubts.count += usize::from(self.doubts.entries.entry(container).or_default().insert(entry));
        }
    }

    /// The soundest entry of a fingerprint.
    pub fn locate(&mut self, fingerprint: &Fingerprint) -> Result<Option<LocatedEntry>> {
        self.find(fingerprint, |_, _| true)
    }

    /// The soundest entry with exactly these operations.
    pub fn locate_exact(&mut self, base: &Base) -> Result<Option<LocatedEntry>> {
        self.find(&base.fingerprint, |container_index, entry| container_index.digest(entry) == base.digest)
    }

    /// The entry with exactly these operations. For readers, if there is no sound one, any sound entry of the chunk
    /// that serves this use.
    pub fn locate_base(&mut self, base: &Base, base_use: BaseUse) -> Result<Option<LocatedEntry>> {
        let exact = self.locate_exact(base);
        let is_found = |located: &LocatedEntry| located.soundness == Soundness::Sound;
        if self.is_sound_only || exact.as_ref().is_ok_and(|found| found.as_ref().is_some_and(is_found)) {
            return exact;
        }
        match self.locate_other(base, base_use) {
            Ok(Some(other)) if is_found(&other) => Ok(Some(other)),
            _ => exact,
        }
    }

    /// The soundest entry of the chunk that serves this use in place of a base.
    pub fn locate_other(&mut self, base: &Base, base_use: BaseUse) -> Result<Option<LocatedEntry>> {
        match base_use {
            BaseUse::Content => self.locate(&base.fingerprint),
            BaseUse::Ranges => self.find(&base.fingerprint, |container_index, entry| !container_index.is_delta(entry)),
            BaseUse::Literals => Ok(None),
        }
    }

    /// For readers: if `error` says that a container is gone, lists the repository again. Returns whether that may
    /// help.
    ///
    /// # Errors
    /// Errors of listing.
    pub fn list_again_after(&mut self, error: &Error) -> Result<bool> {
        let Error::BlobMissing { what } = error else { return Ok(false) };
        let gone = parse_name(what).filter(|_| !self.is_sound_only);
        gone.map_or(Ok(false), |gone| self.listing.list_again_without(&gone))
    }

    /// The soundest entry that `fits`. A damaged container is an error only if no other has one.
    fn find(
        &mut self,
        fingerprint: &Fingerprint,
        fits: impl Fn(&ContainerIndex, &ContainerEntry) -> bool,
    ) -> Result<Option<LocatedEntry>> {
        loop {
            match self.find_listed(fingerprint, &fits) {
                Err(error) if self.list_again_after(&error)? => {}
                Ok(Some(found)) => return Ok(Some(found)),
                Err(error) if !error.is_unreadable() => return Err(error),
                nothing => {
                    let may_help = !self.is_sound_only
                        && (self.listing.list_again_for_unlisted()? || self.listing.prove_segments()?);
                    if !may_help {
                        return nothing;
                    }
                }
            }
        }
    }

    fn find_listed(
        &mut self,
        fingerprint: &Fingerprint,
        fits: &impl Fn(&ContainerIndex, &ContainerEntry) -> bool,
    ) -> Result<Option<LocatedEntry>> {
        let Locator { listing, container_indexes, doubts, is_sound_only } = self;
        let cached = container_indexes.find_cached(|container, container_index| {
            let found = container_index.find_where(fingerprint, |entry, position| {
                doubts.soundness(container, container_index, entry, position) == Soundness::Sound
                    && fits(container_index, entry)
            });
            found.filter(|_| listing.has(container))
        });
        if let Some((container, container_index, entry)) = cached {
            return Ok(Some(LocatedEntry { container, entry, container_index, soundness: Soundness::Sound }));
        }
        let (mut failure, mut doubtful) = (None, None::<LocatedEntry>);
        let found = listing.search(fingerprint, |container, position| {
            if *is_sound_only && !doubts.quarantine.is_usable(&container, position) {
                return None;
            }
            let container_index = match container_indexes.load(&container) {
                Ok(container_index) => container_index,
                Err(error) => {
                    listing.note_unread(&container, &error);
                    failure = Some(error);
                    return None;
                }
            };
            let entry = container_index.entries.get(position as usize)?;
            if entry.fingerprint != *fingerprint || !fits(&container_index, entry) {
                return None;
            }
            let soundness = doubts.soundness(&container, &container_index, entry, position);
            let located = LocatedEntry { container, entry: position, container_index, soundness };
            if soundness == Soundness::Sound {
                return Some(located);
            }
            if !*is_sound_only && doubtful.as_ref().is_none_or(|known| soundness < known.soundness) {
                doubtful = Some(located);
            }
            None
        })?;
        match (found.or(doubtful), failure.or_else(|| listing.blind_error())) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }
}
