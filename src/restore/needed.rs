//! Which data containers a restore reads: what must be thawed before it, if they are in cold storage.
//!
//! The tree and the recipes are walked beside the target, in which nothing is changed, and each chunk is located. What
//! the restore will find there is left out: files that it leaves alone or that are the same, and chunks that a file
//! which it replaces has at the same offset. What an interrupted restore has left of a file under a temporary name is
//! asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chosen_tree::{ChosenTree, TreeStep};
use super::comparison::FileComparison;
use super::existing::{Overwrite, Treatment};
use super::request::RestoreRequest;
use super::run::{METADATA_CACHE_BYTES, find_root};
use crate::error::{Error, Result};
use crate::filesystem::{Descent, SourceFile, Target, TargetOptions};
use crate::repo::Repository;
use crate::repo::container::{ContainerKind, blob_name, parse_name, read_kind};
use crate::repo::index::ContainerListing;
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind};
use crate::store::{BlobName, Reading, try_map_parallel};
use crate::types::{ContainerId, Fingerprint};

/// Texts of what is missing, at most.
const MISSING_MAX: usize = 1000;

/// A data container that a restore reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededContainer {
    /// Its name in the store.
    pub name: BlobName,
    /// Its bytes.
    pub bytes: u64,
}

/// What a restore reads of data containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeededContainers {
    /// Containers that are there, by name.
    pub there: Vec<NeededContainer>,
    /// What cannot be found: containers, or chunks of which nobody knows where they are. At most 1000 texts.
    pub missing: Vec<String>,
    /// Number of containers and of such chunks that are missing.
    pub missing_count: u64,
    /// Whether some are in cold storage without a hot index: once they can be read, they may show that more is needed.
    pub lacks_indexes: bool,
}

/// The data containers that a restore of what `request` asks for reads, by name.
///
/// # Errors
/// [`Error::NoSuchPath`] for entries that the snapshot lacks; errors of the store that are no damage.
pub fn needed_containers(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    request: &RestoreRequest,
    stop: &Arc<AtomicBool>,
) -> Result<NeededContainers> {
    let (repository, mut request) = (&repository.stopped_by(stop), request.clone());
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::with_cache(repository, listing.clone(), METADATA_CACHE_BYTES);
    let base = find_root(repository, snapshot, &mut request, &mut reader)?;
    let options = TargetOptions { dry_run: true, sync: false, ..TargetOptions::default() };
    let walk = NeededWalk {
        target: Descent::new(Arc::new(Target::create(&request.target, options)?)),
        overwrite: request.overwrite,
        comparison: FileComparison::new(repository.key),
        reader,
        stop,
        containers: BTreeSet::new(),
        needed: NeededContainers::default(),
    };
    let (ids, mut needed) = walk.run(ChosenTree::new(&base, request.selection.clone()))?;
    let ids: Vec<ContainerId> = ids.into_iter().collect();
    let store = repository.store.as_ref();
    if needed.missing_count > 0 {
        needed.name_missing(&listing)?;
    }
    let found = try_map_parallel(store.properties().requests_max, &ids, |id| {
        let name = blob_name(id);
        match read_kind(store, &name, Reading::Again) {
            Ok(ContainerKind::Metadata) => return Ok(None),
            // A damaged container costs what is in it, and nothing else.
            Err(error) if !error.is_unavailable() => return Err(error),
            _ => {}
        }
        // A hot index says nothing about whether its container is there.
        let len = store.head(&name)?.map(|head| head.len);
        Ok(Some((name, len)))
    })?;
    for (name, len) in found.into_iter().flatten() {
        match len {
            Some(bytes) => needed.there.push(NeededContainer { name, bytes }),
            None => needed.miss(format!("{name} is missing")),
        }
    }
    Ok(needed)
}

impl NeededContainers {
    /// Names the containers that segments name and that are gone: the chunks that cannot be found may be in these.
    fn name_missing(&mut self, listing: &ContainerListing) -> Result<()> {
        let segments = listing.segments();
        let named: BTreeSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
        for name in named.into_iter().filter(|id| !listing.containers.contains(*id)).map(blob_name) {
            // What a listing lacks may be there.
            if listing.store().head(&name)?.is_none() {
                self.missing_count += 1;
                self.missing.insert(0, format!("{name} is missing"));
            }
        }
        self.missing.truncate(MISSING_MAX);
        Ok(())
    }

    fn miss(&mut self, text: String) {
        self.missing_count += 1;
        if self.missing.len() < MISSING_MAX && !self.missing.contains(&text) {
            self.missing.push(text);
        }
    }
}

/// The container that an [`Error::Cold`] names. A location may follow.
fn cold_container(what: &str) -> Option<ContainerId> {
    what.split(' ').next().and_then(parse_name)
}

/// What an entry of the target gives a restore.
enum Held {
    /// All that is needed.
    All,
    /// The chunks that it has at their places.
    Chunks(Box<SourceFile>),
    Nothing,
}

/// A walk over what is chosen, beside the target.
struct NeededWalk<'a> {
    target: Descent,
    overwrite: Overwrite,
    comparison: FileComparison,
    reader: ChunkReader,
    stop: &'a AtomicBool,
    /// The containers with the frames of chunks that the target does not give.
    containers: BTreeSet<ContainerId>,
    needed: NeededContainers,
}

impl NeededWalk<'_> {
    fn run(mut self, mut tree: ChosenTree) -> Result<(BTreeSet<ContainerId>, NeededContainers)> {
        while let Some(step) = tree.next(&mut self.reader)? {
            match step {
                TreeStep::Enter(node) => {
                    if !self.enter(&node) {
                        tree.skip();
                    }
                }
                TreeStep::Entry(node) => self.entry(&node)?,
                TreeStep::Leave(left) => {
                    if left.node.is_some() {
                        self.target.leave(None, &mut Vec::new())?;
                    }
                }
                // The restore says what it lacks, and goes on.
                TreeStep::Unreadable(error) => self.unread(error)?,
            }
        }
        Ok((self.containers, self.needed))
    }

    /// Enters a directory. `false` if the restore will not, whose problem it is.
    fn enter(&mut self, node: &Node) -> bool {
        let Ok(existing) = self.target.existing(node) else { return false };
        let replaced = existing.filter(|existing| existing.kind != NodeKind::Directory);
        let keeps = |existing: &Node| Treatment::of(self.overwrite, node, existing) == Treatment::Keep;
        !replaced.as_ref().is_some_and(keeps) && self.target.enter(node, replaced.as_ref()).is_ok()
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    fn entry(&mut self, node: &Node) -> Result<()> {
        let Some(content) = node.content else { return Ok(()) };
        let old = match self.held(node)? {
            Held::All => return Ok(()),
            // Such content is rebuilt from all of it.
            Held::Chunks(old) => Some(old).filter(|_| content.rebuilt().is_none()),
            Held::Nothing => None,
        };
        let (mut walk, mut offset) = (RecipeWalk::of_stored(content), 0u64);
        loop {
            let reference = match walk.next(&mut self.reader) {
                Ok(None) => break,
                Err(error) => {
                    self.unread(error)?;
                    let Some(len) = walk.take_unread() else { break };
                    offset = offset.saturating_add(len);
                    continue;
                }
                Ok(Some(reference)) => reference,
            };
            self.check_stop()?;
            let (at, len) = (offset, reference.content_len());
            offset = offset.saturating_add(len);
            let ContentReference::Chunk { fingerprint, .. } = reference else { continue };
            let is_held = |old: &SourceFile| self.comparison.chunk(old.file(), at, len, &fingerprint).is_some();
            if !old.as_deref().is_some_and(is_held) {
                self.locate(&fingerprint)?;
            }
        }
        Ok(())
    }

    /// What the target gives of the content of `node`. Problems of the target are the restore's.
    fn held(&mut self, node: &Node) -> Result<Held> {
        let Ok(Some(existing)) = self.target.existing(node) else { return Ok(Held::Nothing) };
        let treatment = Treatment::of(self.overwrite, node, &existing);
        if matches!(treatment, Treatment::Keep | Treatment::Same) {
            // A file of which only the metadata differs is replaced if it has other names.
            let is_written = self.overwrite != Overwrite::Never && existing.hard_link.is_some();
            return Ok(if is_written { Held::Nothing } else { Held::All });
        }
        if existing.kind == NodeKind::Directory {
            // The restore replaces none.
            return Ok(Held::All);
        }
        let Ok(old) = self.target.open_existing(&existing) else { return Ok(Held::Nothing) };
        let is_stopped = || self.stop.load(Ordering::Relaxed);
        let holds = |comparison: &mut FileComparison, reader: &mut ChunkReader| {
            comparison.holds(old.file(), node.content, reader, is_stopped)
        };
        let is_same = treatment == Treatment::Compare
            && old.size() == node.size
            && holds(&mut self.comparison, &mut self.reader)?
            && existing.hard_link.is_none();
        Ok(if is_same { Held::All } else { Held::Chunks(Box::new(old)) })
    }

    /// Notes what cannot be read.
    fn unread(&mut self, error: Error) -> Result<()> {
        match error {
            // Without a hot index, only the container itself says what else is needed.
            Error::Cold { what } => {
                self.containers.insert(cold_container(&what).ok_or(Error::Cold { what })?);
                self.needed.lacks_indexes = true;
            }
            error if error.is_unreadable() => self.needed.miss(error.to_string()),
            error => return Err(error),
        }
        Ok(())
    }

    /// Adds the containers with the frames of a chunk.
    fn locate(&mut self, fingerprint: &Fingerprint) -> Result<()> {
        let extent_map = match self.reader.extent_map_of(fingerprint) {
            Err(error) => return self.unread(error),
            Ok(located) => located,
        };
        for frame in extent_map.frames() {
            self.containers.insert(self.reader.resolver.frame_info(*frame)?.0);
        }
        Ok(())
    }
}
