//! Mark: finds every entry that snapshots need.
//!
//! 1. The tree of each snapshot is walked: listings, recipes and the chunks of files. What was walked before, in the
//!    same role, is skipped: a chunk may be a listing in one place and the content of a file in another.
//! 2. An entry needs its bases, and theirs, whoever wrote them.
//! 3. If several containers have a chunk, one copy is marked: one outside the candidates for deletion, if there is one.
//! 4. A chunk of which no entry and its bases are sound is read as a restore reads it: in place of a lost base any
//!    entry of the same chunk serves. If its bytes match its fingerprint, what the reader may have used is marked.
//! 5. The record of a model is needed as long as the content of the model is.
//!
//! Anything that cannot be read or found is an error with the name of the snapshot.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::live::LiveSet;
use super::prune_report::SkippedRule;
use crate::error::{Error, ErrorKind, Result};
use crate::model::CatalogueBlob;
use crate::repo::Repository;
use crate::repo::container::{Base, BaseUse, Operation, blob_name};
use crate::repo::index::{ContainerListing, LocatedEntry, Locator};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeReader};
use crate::types::Fingerprint;

/// Decoded bytes of metadata frames that the walk caches.
const FRAME_BYTES_MAX: usize = 32 << 20;
/// References waiting to be walked, at most. It bounds the memory for a hostile tree.
const WAITING_MAX: usize = 1 << 24;

/// In which role a reference is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Content of a file.
    File,
    /// Content of a directory.
    Directory,
}

/// Marks entries.
pub struct Marker<'a> {
    /// Finds copies that stay.
    retained: ChunkReader,
    /// Finds copies in all containers. `None` if no container is a candidate.
    all: Option<ChunkReader>,
    /// Reads in all containers as a restore does.
    rescue: ChunkReader,
    stop: &'a AtomicBool,
    live: LiveSet,
    /// Entries that were marked before it showed that a base is lost, and those that led to them.
    doubted: LiveSet,
    /// What the proof leaves out.
    pub skipped_rule: SkippedRule,
    file_recipes: LiveSet,
    directory_recipes: LiveSet,
    listings: LiveSet,
}

impl<'a> Marker<'a> {
    /// Finds chunks in `retained`, and then in `all`.
    pub fn new(
        repository: &Repository,
        retained: Arc<ContainerListing>,
        all: Arc<ContainerListing>,
        stop: &'a AtomicBool,
    ) -> Self {
        let reader = |listing| ChunkReader::with_cache(repository, listing, FRAME_BYTES_MAX);
        // A quarantined copy does not count.
        let has_candidates = all.containers.len() != retained.containers.len();
        Marker {
            retained: reader(retained).sound_only(),
            all: has_candidates.then(|| reader(all.clone()).sound_only()),
            rescue: reader(all),
            stop,
            live: LiveSet::default(),
            doubted: LiveSet::default(),
            skipped_rule: SkippedRule::Nothing,
            file_recipes: LiveSet::default(),
            directory_recipes: LiveSet::default(),
            listings: LiveSet::default(),
        }
    }

    /// The entries marked so far.
    pub fn into_live(self) -> LiveSet {
        self.live
    }

    fn locate(&mut self, fingerprint: &Fingerprint) -> Result<Option<LocatedEntry>> {
        self.find(|locator| locator.locate(fingerprint))
    }

    /// What `find` finds in the containers that stay, or else in all.
    fn find(&mut self, find: impl Fn(&mut Locator) -> Result<Option<LocatedEntry>>) -> Result<Option<LocatedEntry>> {
        match (find(&mut self.retained.resolver.locator)?, &mut self.all) {
            (None, Some(all)) => find(&mut all.resolver.locator),
            (found, _) => Ok(found),
        }
    }

    fn read(&mut self, fingerprint: &Fingerprint) -> Result<Vec<u8>> {
        // Bases may be outside the containers that stay.
        match self.all.as_mut().unwrap_or(&mut self.retained).read(fingerprint) {
            Err(error) if error.is_unreadable() => self.rescue.read(fingerprint),
            read => read,
        }
    }

    /// Marks the entry of a chunk with its bases. Returns where it is.
    fn chunk(&mut self, fingerprint: &Fingerprint) -> Result<LocatedEntry> {
        let failure = match self.locate(fingerprint)? {
            None => missing(fingerprint),
            Some(located) => match self.entry(located.clone(), true) {
                Ok(()) => return Ok(located),
                // Another entry may serve.
                Err(error @ (Error::ChunkMissing { .. } | Error::Unsupported { .. })) => error,
                Err(error) => return Err(error),
            },
        };
        match self.rescue.readable_entry(fingerprint) {
            Ok(located) => {
                self.entry_as_read(located.clone())?;
                Ok(located)
            }
            Err(error) if error.is_unreadable() => Err(failure),
            Err(error) => Err(error),
        }
    }

    /// Marks an entry with its bases. A base that is nowhere is an error only if the entry `is_needed`. What a newer
    /// version wrote is always one. After an error nothing of the walk is marked, so the next visit fails, too.
    fn entry(&mut self, located: LocatedEntry, is_needed: bool) -> Result<()> {
        let (mut stack, mut walked) = (vec![located], HashSet::new());
        while let Some(located) = stack.pop() {
            let (container, entry) = (located.container, located.entry);
            let is_doubted = self.doubted.contains(&container, entry);
            let mut lost = if is_doubted { located.fingerprint() } else { None };
            let is_skipped = is_doubted && is_needed || self.live.contains(&container, entry);
            if !is_skipped && walked.insert((container, entry)) {
                check_known(&located)?;
                let bases = if self.skipped_rule == SkippedRule::Bases { Vec::new() } else { bases_of(&located) };
                for (base, base_use) in bases {
                    match self.find(|locator| locator.locate_base(&base, base_use))? {
                        Some(found) => stack.push(found),
                        None => lost = Some(base.fingerprint),
                    }
                }
            }
            if let Some(lost) = lost {
                walked.iter().for_each(|(container, entry)| _ = self.doubted.insert(*container, *entry));
                if is_needed {
                    return Err(missing(&lost));
                }
            }
        }
        walked.into_iter().for_each(|(container, entry)| _ = self.live.insert(container, entry));
        Ok(())
    }

    /// Marks an entry that a reader has just read, and all that the reader may take for its bases: the entry that each
    /// names, and a sound one of the same chunk.
    fn entry_as_read(&mut self, located: LocatedEntry) -> Result<()> {
        let (mut stack, mut walked) = (vec![located], HashSet::new());
        while let Some(located) = stack.pop() {
            if !walked.insert((located.container, located.entry)) {
                continue;
            }
            check_known(&located)?;
            for (base, base_use) in bases_of(&located) {
                let exact = self.rescue.resolver.locator.locate_exact(&base)?;
                let other = self.find(|locator| locator.locate_other(&base, base_use))?;
                if exact.is_none() && other.is_none() {
                    return Err(missing(&base.fingerprint));
                }
                stack.extend(exact.into_iter().chain(other));
            }
        }
        walked.into_iter().for_each(|(container, entry)| _ = self.live.insert(container, entry));
        Ok(())
    }

    /// Marks the bases of every entry of a container that stays, so that each of its entries can be read as before. An
    /// entry that lost a base earlier was never usable.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn container(&mut self, bases: &[Base]) -> Result<()> {
        let bases = if self.skipped_rule == SkippedRule::Bases { &[] } else { bases };
        for base in bases {
            // A base in a container that stays is as safe as that container, and its bases are marked with that one. No
            // operation says how it is used, so an entry that serves ranges must be there.
            let locate = |locator: &mut Locator| locator.locate_base(base, BaseUse::Ranges);
            if locate(&mut self.retained.resolver.locator)?.is_none()
                && let Some(found) = self.find(locate)?
            {
                self.entry(found, false)?;
            }
            self.check_stop()?;
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Marks everything that a snapshot needs.
    ///
    /// # Errors
    /// [`Error::Mark`] with the snapshot and the reason, if something cannot be read; [`Error::Interrupted`].
    pub fn snapshot(&mut self, named: &NamedSnapshot) -> Result<()> {
        self.tree(named.snapshot.root).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => error,
            _ => Error::Mark { snapshot: named.id.to_string(), reason: Box::new(error) },
        })
    }

    fn tree(&mut self, root: Option<ContentReference>) -> Result<()> {
        let mut stack: Vec<(ContentReference, Role)> = root.map(|root| (root, Role::Directory)).into_iter().collect();
        while let Some((reference, role)) = stack.pop() {
            self.check_stop()?;
            if stack.len() > WAITING_MAX {
                let expected = format!("at most {WAITING_MAX} references to walk");
                return Err(Error::corrupt("tree", 0, expected, "more"));
            }
            match reference {
                ContentReference::Hole { .. } => {}
                ContentReference::Rebuilt { .. } if role == Role::Directory => {
                    return Err(Error::unsupported("a tree", "rebuilt content of a directory"));
                }
                ContentReference::Rebuilt { .. } => {
                    stack.extend(reference.stored_parts().into_iter().map(|part| (part, role)));
                }
                ContentReference::Chunk { fingerprint, .. } => {
                    let located = self.chunk(&fingerprint)?;
                    if role == Role::Directory && self.listings.insert(located.container, located.entry) {
                        self.listing(&fingerprint, &mut stack)?;
                    }
                }
                ContentReference::Recipe { level, fingerprint, len } => {
                    let located = self.chunk(&fingerprint)?;
                    let walked = if role == Role::File { &mut self.file_recipes } else { &mut self.directory_recipes };
                    if walked.insert(located.container, located.entry) {
                        let bytes = self.read(&fingerprint)?;
                        let references = decode_recipe(&fingerprint, level, len, &bytes)?;
                        stack.extend(references.into_iter().map(|reference| (reference, role)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Pushes the contents of the nodes in one chunk of a listing.
    fn listing(&mut self, fingerprint: &Fingerprint, stack: &mut Vec<(ContentReference, Role)>) -> Result<()> {
        let bytes = self.read(fingerprint)?;
        let what = format!("directory listing {fingerprint}");
        for node in NodeReader::new(&what, &bytes) {
            let node = node?;
            if let Some(error) = node.unsupported() {
                return Err(error);
            }
            let Node { kind, content, .. } = node;
            let role = if kind == crate::repo::tree::NodeKind::Directory { Role::Directory } else { Role::File };
            stack.extend(content.map(|content| (content, role)));
        }
        Ok(())
    }

    /// Marks the records of models whose content is marked. They are hints, so a missing one is none.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and those of listing the catalogue and of reading bases. [`Error::Unreadable`] if a blob
    /// of the catalogue cannot be read now: its records would go.
    pub fn models(&mut self, repository: &Repository) -> Result<()> {
        let (entries, skipped) = CatalogueBlob::load_readable(repository.store.as_ref())?;
        if let Some(error) = skipped.error().filter(|_| skipped.unreadable > skipped.damaged + skipped.newer) {
            return Err(error);
        }
        for entry in entries {
            let Some(content) = entry.content else { continue };
            self.check_stop()?;
            let Ok(Some(content)) = self.locate(&content) else { continue };
            if self.live.contains(&content.container, content.entry)
                && let Ok(Some(record)) = self.locate(&entry.record)
            {
                self.entry(record, false)?;
            }
        }
        Ok(())
    }
}

fn missing(fingerprint: &Fingerprint) -> Error {
    Error::ChunkMissing { fingerprint: fingerprint.to_string() }
}

/// Fails if an entry has an operation of a newer version: what it needs besides its bases is not known.
fn check_known(located: &LocatedEntry) -> Result<()> {
    let entry = located.container_index.entries.get(located.entry as usize);
    let known = entry.map_or(Ok(()), |entry| located.container_index.check_known(entry));
    known.map_err(|error| match error {
        Error::Unsupported { what, unknown } => {
            let what = format!("{}, entry {}: {what}", blob_name(&located.container), located.entry);
            Error::Unsupported { what, unknown }
        }
        other => other,
    })
}

/// The bases of an entry, each once with each use of it.
fn bases_of(located: &LocatedEntry) -> Vec<(Base, BaseUse)> {
    let index = &located.container_index;
    let Some(entry) = index.entries.get(located.entry as usize) else { return Vec::new() };
    let of = |operation: &Operation| Some((operation.source()?.0, operation.base_use()));
    let numbers: BTreeSet<(u32, BaseUse)> = index.operations(entry).iter().filter_map(of).collect();
    let base = |(number, base_use)| Some((*index.bases.get(number as usize)?, base_use));
    numbers.into_iter().filter_map(base).collect()
}
