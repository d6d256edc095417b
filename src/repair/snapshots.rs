//! Repair of snapshots: for each snapshot whose tree cannot be read whole, writes one without what is lost.
//!
//! 1. The tree is walked. A file with a chunk or a recipe that no entry gives, and what a listing lacks, are lost. An
//!    equal directory, also of another snapshot, is not read again.
//! 2. If something is lost, the listings are written again without it, then a snapshot with the same fields, one
//!    nanosecond later, so that it follows the damaged one. Its open map names the damaged one.
//!    A snapshot that lacks what could not be read, or what a newer fhrd wrote, is left as it is: that may come back.
//! 3. The damaged snapshot is deleted only on request, and only for a replacement that this repair has stored: another
//!    repair may still withdraw its own. Those that an earlier repair has stored, and that are equal, go with it.
//!    Without that request, an equal one of an earlier repair serves.
//! 4. A snapshot whose own blob is damaged is read again, and written again from a copy (`snapshot_blobs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lru::LruCache;
use parking_lot::Mutex;
use serde::Serialize;

use super::away::{check_enough_there, may_be_away};
use super::snapshot_blobs::{ReadAgain, read_again};
use super::writer::metadata_writer;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::repo::bundle;
use crate::repo::features::list_to_write;
use crate::repo::index::{ChunkIndex, ContainerListing, Soundness, name_all_containers};
use crate::repo::marks::{Marks, check_writable};
use crate::repo::overwritten::{check_deletable, delete_snapshot};
use crate::repo::read::{ChunkReader, RecipeWalk, at_least_one};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{self, NamedSnapshot, PROBLEMS, Snapshot};
use crate::repo::snapshot_listing::maintain_bundles;
use crate::repo::tree::{EntryTally, Node, NodeKind, OpenDirectory, TreeCursor};
use crate::repo::{MetadataWriter, Repository};
use crate::store::Store;
use crate::types::SnapshotId;

/// Directories that are remembered.
const KNOWN_MAX: usize = 1 << 18;
/// Lost entries that are listed for a snapshot, at most.
const DROPPED_MAX: usize = 1000;
/// Key in the open map of a snapshot: the snapshot that it replaces.
const REPAIRED_FROM: &str = "repaired-from";

/// What to do about damaged snapshots.
#[derive(Debug, Clone, Copy, Default)]
pub struct SnapshotRepair {
    /// Only says what would be done.
    pub dry_run: bool,
    /// Deletes the damaged snapshots after that.
    pub forget: bool,
    /// Goes on even if most containers are missing.
    pub allow_no_containers: bool,
}

/// A snapshot that is not whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DamagedSnapshot {
    /// Its id.
    pub snapshot: String,
    /// The snapshot without what is lost. None in a dry run.
    pub replaced_by: Option<String>,
    /// Paths that are lost with the reason, at most 1000.
    pub dropped: Vec<String>,
    /// Number of such paths.
    pub dropped_count: u64,
    /// Whether something could not be read, or needs a newer fhrd, and may come back. Another copy of what proved bad
    /// may also be in a container that could not be read. The snapshot is left as it is.
    pub may_come_back: bool,
    /// Why only a newer version can read all of it. Such a snapshot is not repaired: its replacement would lack that.
    #[serde(skip)]
    pub newer: Option<String>,
}

/// What [`repair_snapshots`] found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SnapshotsReport {
    /// Snapshots that are whole.
    pub whole: u64,
    /// Snapshots with lost entries.
    pub damaged: Vec<DamagedSnapshot>,
    /// Snapshots whose own blobs were damaged, and were written again from copies.
    pub healed: Vec<String>,
    /// Snapshots that cannot be read at all, with the reason.
    pub unreadable: Vec<String>,
    /// Snapshots that stay as they are, because only a newer version can read all of them, with the reason.
    pub newer: Vec<String>,
    /// Damaged snapshots that were deleted, and replacements of earlier repairs that were equal to those of this one.
    pub forgotten: Vec<String>,
}

/// Repairs the reported snapshots of a repository: the writer of another one may still withdraw it. May be killed at
/// any point and run again.
///
/// # Errors
/// [`Error::Usage`] if most containers are missing and a snapshot needs some, unless that is allowed; errors of the
/// store; errors of marks that forbid writing.
pub fn repair_snapshots(
    repository: &Repository,
    config: &Config,
    request: SnapshotRepair,
    stop: &Arc<AtomicBool>,
) -> Result<SnapshotsReport> {
    let repository = &repository.stopped_by(stop);
    repository.store.make_directories(true)?;
    let store = repository.store.as_ref();
    if !request.dry_run {
        check_writable(repository)?;
        // Damaged bundles only have copies.
        maintain_bundles(repository, bundle::LOOSE_MIN)?;
    }
    let (mut snapshots, unreadable) = snapshot::list_reported(store)?;
    let ReadAgain { snapshots: readable, healed, unreadable } = read_again(repository, unreadable, request.dry_run)?;
    snapshots.extend(readable);
    let mut listing = list_to_write(repository, Marks::read(store)?)?;
    let readers = readers(repository, &listing)?;
    listing.forget_orphans();
    let listing = Arc::new(listing);
    let mut repair = TreeRepair {
        reader: ChunkReader::new(repository, readers),
        stop: stop.clone(),
        found: DamagedSnapshot::default(),
        tally: EntryTally::default(),
        examined: examined_directories(),
    };
    let (mut report, mut may_come_back) = (SnapshotsReport::default(), false);
    report.healed.extend(healed.iter().map(ToString::to_string));
    for named in &snapshots {
        repair.look(named)?;
        if repair.found.dropped_count > 0 && !repair.look_again(repository, &listing, named)? {
            continue;
        }
        if let Some(newer) = repair.found.newer.take() {
            report.newer.push(format!("{}: {newer}", snapshot::blob_name(&named.id)));
            continue;
        }
        report.whole += u64::from(repair.found.dropped_count == 0);
        if repair.found.dropped_count == 0 || snapshot::is_forgotten(store, &named.id)? {
            continue;
        }
        check_enough_there(&mut repair.reader, &snapshots, &report, request)?;
        let readable = repair.reader.resolver.locator.listing();
        let mut found = std::mem::take(&mut repair.found);
        // What a directory lacks is remembered without the reason.
        may_come_back |= found.may_come_back || may_be_away(readable, request);
        found.may_come_back = may_come_back;
        if found.may_come_back {
            tracing::warn!("snapshot {:.8} is left as it is: what it lacks may be readable later", named.id);
        } else if !request.dry_run {
            request.forget.then(|| check_deletable(repository, &named.id)).transpose()?;
            let known = if request.forget { &[][..] } else { &snapshots };
            let replacement = match repair.replace(repository, config, &listing, named, known) {
                // It was forgotten meanwhile.
                Err(Error::NoSuchSnapshot { .. }) => continue,
                replacement => replacement?,
            };
            found.replaced_by = Some(replacement.to_string());
            if request.forget {
                report.forget(repository, &named.id, &replacement, &snapshots)?;
            }
        }
        report.damaged.push(found);
    }
    unreadable.into_iter().try_for_each(|(name, error)| report.add_unreadable(repository, request, &name, &error))?;
    Ok(report)
}

impl SnapshotsReport {
    /// Deletes `damaged`, and those of `known` that are equal to `replacement`. They were listed before it was stored.
    fn forget(
        &mut self,
        repository: &Repository,
        damaged: &SnapshotId,
        replacement: &SnapshotId,
        known: &[NamedSnapshot],
    ) -> Result<()> {
        snapshot::delete(repository.store.as_ref(), damaged)?;
        self.forgotten.push(damaged.to_string());
        let own = Snapshot::load(repository.store.as_ref(), replacement)?;
        for NamedSnapshot { id, snapshot } in known {
            let (program, intent) = (own.program.clone(), own.intent.clone());
            if (Snapshot { program, intent, ..snapshot.clone() }) == own {
                delete_snapshot(repository, id)?;
                self.forgotten.push(id.to_string());
            }
        }
        Ok(())
    }
}

struct TreeRepair {
    reader: ChunkReader,
    stop: Arc<AtomicBool>,
    found: DamagedSnapshot,
    /// The entries that this walk met and that are not lost.
    tally: EntryTally,
    /// Directories that were looked at.
    examined: ExaminedDirectories,
}

/// What was found in directories, by their listings.
type ExaminedDirectories = LruCache<ContentReference, ExaminedDirectory>;

/// What was found in a directory and below it.
#[derive(Clone, Copy)]
struct ExaminedDirectory {
    /// Entries that are lost.
    lost: u64,
    /// Whether one of its own entries is.
    is_partial: bool,
    /// The listing without them, if it was written.
    written: Option<ContentReference>,
    /// The other entries below it.
    tally: EntryTally,
}

/// A directory that is being walked.
struct WalkedListing {
    cursor: TreeCursor,
    directory: OpenDirectory,
    content: Option<ContentReference>,
    /// Entries that were lost before it.
    lost_before: u64,
    /// What was met before it.
    tally_before: EntryTally,
}

impl TreeRepair {
    /// Lists everything again before something counts as lost: others may have moved it. Returns false if the snapshot
    /// was forgotten.
    fn look_again(
        &mut self,
        repository: &Repository,
        listing: &ContainerListing,
        named: &NamedSnapshot,
    ) -> Result<bool> {
        if snapshot::is_forgotten(self.reader.store(), &named.id)? {
            return Ok(false);
        }
        self.reader = ChunkReader::new(repository, readers(repository, listing)?);
        self.look(named)?;
        Ok(true)
    }

    /// Notes what of a snapshot is lost.
    fn look(&mut self, named: &NamedSnapshot) -> Result<()> {
        self.found = DamagedSnapshot { snapshot: named.id.to_string(), ..DamagedSnapshot::default() };
        self.walk(named.snapshot.root, None).map(drop)
    }

    /// Writes the tree of a damaged snapshot without what is lost, and then the snapshot, unless one of `known`
    /// replaces the damaged one and has the same tree.
    fn replace(
        &mut self,
        repository: &Repository,
        config: &Config,
        listing: &Arc<ContainerListing>,
        damaged: &NamedSnapshot,
        known: &[NamedSnapshot],
    ) -> Result<SnapshotId> {
        let (index, mut metadata) = metadata_writer(repository, config, listing)?;
        let root = self.walk(damaged.snapshot.root, Some((&mut metadata, &index)))?;
        super::writer::finish(repository, &index, &mut metadata)?;
        let stored = index.lock().stored().clone();
        name_all_containers(listing, &stored)?;
        check_writable(repository)?;
        let is_equal = |named: &&NamedSnapshot| {
            let replaces = named.snapshot.extra.get(REPAIRED_FROM).map(|bytes| bytes.as_slice());
            replaces == Some(damaged.id.0.as_slice()) && named.snapshot.root == root
        };
        if let Some(equal) = known.iter().find(is_equal) {
            return Ok(equal.id);
        }
        let mut repaired = damaged.snapshot.clone();
        repaired.root = root;
        if let Some(node) = &mut repaired.root_node {
            node.partial = true;
        }
        repaired.time_ns = repaired.time_ns.saturating_add(1);
        repaired.program = concat!("fhrd ", env!("CARGO_PKG_VERSION")).into();
        // So that a copy of another repository's snapshot does not count as whole.
        let lost = self.found.dropped_count.max(1);
        let problems = repaired.statistics.entry(PROBLEMS.into()).or_default();
        *problems = problems.saturating_add(lost);
        let EntryTally { files, directories, others, bytes } = self.tally;
        let counts = [("files", files), ("directories", directories), ("others", others), ("bytes", bytes)];
        repaired.statistics.extend(counts.map(|(name, count)| (name.to_string(), count)));
        repaired.extra.insert(REPAIRED_FROM.into(), damaged.id.0.to_vec().into());
        // A new id makes the name new: a late deletion of an earlier repair must not hit this one.
        repaired.intent = Some(repository.salts.draw()?.to_vec());
        let id = repaired.save(repository.store.as_ref())?;
        let store = repository.store.as_ref();
        let checked =
            super::writer::check_prune(repository, &stored).and_then(|()| snapshot::check_replaced(store, &damaged.id));
        if let Err(error) = checked {
            snapshot::delete(store, &id)?;
            return Err(error);
        }
        Ok(id)
    }

    /// Walks a tree. Without a writer it notes what is lost, with one it writes the listings of the rest.
    fn walk(
        &mut self,
        root: Option<ContentReference>,
        mut output: Option<(&mut MetadataWriter, &Arc<Mutex<ChunkIndex>>)>,
    ) -> Result<Option<ContentReference>> {
        self.tally = EntryTally::default();
        let mut path: Vec<Vec<u8>> = Vec::new();
        let mut levels = vec![self.begin(root, None)];
        // A loss may pass: the next snapshot is read again there. What was only looked at is not written.
        let mut lossy = Vec::new();
        let own = if output.is_none() { &mut self.examined } else { &mut examined_directories() };
        let mut examined = std::mem::replace(own, examined_directories());
        let mut written = None;
        while let Some(WalkedListing { cursor, directory, .. }) = levels.last_mut() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let next = match cursor.next(&mut self.reader) {
                Ok(next) => next,
                Err(error) if error.is_unreadable() => {
                    self.found.drop_entry(&path, "the rest of the directory", &error);
                    directory.omit();
                    None
                }
                Err(error) => return Err(error),
            };
            match next {
                Some(node) if node.kind == NodeKind::Directory => {
                    path.push(node.name.clone());
                    self.tally.add(EntryTally { directories: 1, ..EntryTally::default() });
                    let Some(equal) = node.content.and_then(|content| examined.get(&content)).copied() else {
                        levels.push(self.begin(node.content, Some(node)));
                        continue;
                    };
                    self.found.drop_equal(&path, equal.lost);
                    self.tally.add(equal.tally);
                    path.pop();
                    if let Some((metadata, _)) = &mut output {
                        let partial = node.partial || equal.is_partial;
                        directory.append(&Node { content: equal.written, partial, ..node }, &mut **metadata)?;
                    }
                }
                Some(node) => {
                    path.push(node.name.clone());
                    self.entry(&node, &path, directory, output.as_mut().map(|(metadata, _)| &mut **metadata))?;
                    path.pop();
                }
                None => {
                    let Some(ended) = levels.pop() else { break };
                    path.pop();
                    let content = ended.content;
                    let done = self.end(ended, levels.last_mut(), &mut output)?;
                    written = done.written;
                    if let Some(content) = content {
                        examined.put(content, done);
                        lossy.extend((done.lost > 0).then_some(content));
                    }
                }
            }
        }
        if output.is_none() {
            lossy.iter().for_each(|content| _ = examined.pop(content));
            self.examined = examined;
        }
        Ok(written)
    }

    /// Notes an entry that is lost. Counts any other, and writes it if there is a writer.
    fn entry(
        &mut self,
        node: &Node,
        path: &[Vec<u8>],
        directory: &mut OpenDirectory,
        metadata: Option<&mut MetadataWriter>,
    ) -> Result<()> {
        if let Some(error) = self.loss(node)? {
            self.found.drop_entry(path, "", &error);
            directory.omit();
            return Ok(());
        }
        self.tally.add(EntryTally::of(node));
        metadata.map_or(Ok(()), |metadata| directory.append(node, metadata))
    }

    /// Ends a directory, and writes it into its parent if there is a writer.
    fn end(
        &mut self,
        ended: WalkedListing,
        parent: Option<&mut WalkedListing>,
        output: &mut Option<(&mut MetadataWriter, &Arc<Mutex<ChunkIndex>>)>,
    ) -> Result<ExaminedDirectory> {
        let lost = self.found.dropped_count.saturating_sub(ended.lost_before);
        let tally = self.tally.since(ended.tally_before);
        let mut done = ExaminedDirectory { lost, is_partial: ended.directory.is_partial(), written: None, tally };
        if let Some((metadata, index)) = output {
            match parent {
                None => done.written = ended.directory.finish_root(&mut **metadata)?,
                Some(parent) => {
                    if let Some(node) = ended.directory.finish(&mut **metadata)? {
                        done.written = node.content;
                        parent.directory.append(&node, &mut **metadata)?;
                    }
                }
            }
            super::writer::store_full(self.reader.store(), index, metadata, false)?;
        }
        Ok(done)
    }

    fn begin(&self, content: Option<ContentReference>, node: Option<Node>) -> WalkedListing {
        WalkedListing {
            cursor: TreeCursor::open(content),
            directory: OpenDirectory::new(node.map(Box::new)),
            content,
            lost_before: self.found.dropped_count,
            tally_before: self.tally,
        }
    }

    /// Why an entry or the content of a file cannot be restored, if it cannot.
    fn loss(&mut self, node: &Node) -> Result<Option<Error>> {
        if let Some(error) = node.unsupported() {
            return Ok(Some(error));
        }
        let Some(content) = node.content.filter(|_| node.kind == NodeKind::File) else { return Ok(None) };
        let mut walk = RecipeWalk::of_stored(content);
        let mut len = 0u64;
        loop {
            let reference = match walk.next(&mut self.reader) {
                Ok(Some(reference)) => reference,
                Ok(None) => break,
                Err(error) if error.is_unreadable() => return Ok(Some(error)),
                Err(error) => return Err(error),
            };
            len = len.saturating_add(reference.content_len());
            let ContentReference::Chunk { fingerprint, len } = reference else { continue };
            if let Ok(Some(located)) = self.reader.resolver.locator.locate(&fingerprint)
                && located.soundness == Soundness::Sound
            {
                let number = self.reader.resolver.number_of(&located);
                if self.reader.extent_map(number).is_ok_and(|extent_map| u64::from(extent_map.len()) == len) {
                    continue;
                }
            }
            match self.reader.read_exact(&fingerprint, len) {
                Err(error) if error.is_unreadable() => return Ok(Some(error)),
                bytes => drop(bytes?),
            }
        }
        len = content.rebuilt().map_or(len, |rebuilt| rebuilt.len);
        let wrong = || Error::corrupt("content of a file", 0, format!("{} bytes", node.size), len.to_string());
        Ok((len != node.size).then(wrong))
    }
}

/// The containers to read from. One that a listing lacks and a segment or the `first` listing has is asked for by name.
fn readers(repository: &Repository, first: &ContainerListing) -> Result<Arc<ContainerListing>> {
    let mut listing = ContainerListing::take(&repository.store)?;
    listing.add_unlisted()?;
    listing.add_seen(first)?;
    Ok(Arc::new(listing))
}

fn examined_directories() -> ExaminedDirectories {
    LruCache::new(at_least_one(KNOWN_MAX))
}

impl DamagedSnapshot {
    /// Notes that a directory has lost entries, as an equal one has.
    fn drop_equal(&mut self, path: &[Vec<u8>], lost: u64) {
        self.dropped_count = self.dropped_count.saturating_add(lost);
        if lost > 0 && self.dropped.len() < DROPPED_MAX {
            let names: String = path.iter().map(|name| format!("/{}", String::from_utf8_lossy(name))).collect();
            self.dropped.push(format!("{names} ({lost} entries): as in an equal directory"));
        }
    }

    fn drop_entry(&mut self, path: &[Vec<u8>], what: &str, error: &Error) {
        self.dropped_count += 1;
        self.may_come_back |= !error.is_proven_damage();
        if error.is_newer() && self.newer.is_none() {
            self.newer = Some(error.to_string());
        }
        if self.dropped.len() < DROPPED_MAX {
            let names: String = path.iter().map(|name| format!("/{}", String::from_utf8_lossy(name))).collect();
            let what = if what.is_empty() { String::new() } else { format!(" ({what})") };
            self.dropped.push(format!("{names}{what}: {error}"));
        }
    }
}
