//! Repair of containers: stores again what is readable of containers whose own index is damaged.
//!
//! 1. Chunks of such a container are known by name only, from index segments. Those that no other entry gives are
//!    wanted.
//! 2. The frames follow each other from the header on, so they are found and verified without the container index.
//! 3. A wanted chunk without copies is a range of one frame, and follows other chunks there. From the end of the last
//!    chunk on, the end of the next one is where the fingerprint of the bytes so far is a wanted one.
//! 4. What is found is stored in new containers, then in a segment. Chunks that were copies of or deltas to others are
//!    lost with the index that said how to make them.
//!
//! A container with a sound index needs no such care: its sound entries serve where they are. The damaged container
//! itself stays, and no writer relies on it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;

use super::index::unlistable;
use super::returned::{missing, there};
use super::writer::{check_prune, chunk_index, store_container};
use crate::codec::{Codec, Raw, Scratch, Zstandard};
use crate::config::{Config, FRAME_BYTES_LIMIT};
use crate::error::{Error, ErrorKind, Result};
use crate::keep::is_everything_there;
use crate::repo::Repository;
use crate::repo::container::{
    ContainerKind, ContainerWriter, EntryFields, FRAME_HEADER_BYTES, FrameInfo, HEADER_BYTES, OperationList,
    StoredFrame, blob_name, decode_frame,
};
use crate::repo::features::list_to_write;
use crate::repo::index::{
    ChunkIndex, ContainerIndexes, ContainerListing, Locator, Soundness, missing_containers, name_all_containers,
    read_container_index,
};
use crate::repo::marks::{BadParts, Mark, MarkKind, Marks, Quarantine};
use crate::store::{BlobName, Reading};
use crate::types::{ContainerId, Fingerprint};

/// Bytes of a frame header that say codec and lengths.
const FRAME_FIELDS_BYTES: usize = 12;
/// zstd level of the chunks that are stored again.
const LEVEL: i32 = 3;
/// Container indexes in memory while other entries are looked up, and their bytes.
const CONTAINER_INDEXES_MAX: usize = 32;
const CONTAINER_INDEX_BYTES_MAX: usize = 32 << 20;

/// What [`repair_containers`] did with one container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ContainerRepair {
    /// Store name.
    pub container: String,
    /// The damage.
    pub damage: String,
    /// Chunks stored again.
    pub chunks_saved: u64,
    /// Their bytes.
    pub bytes_saved: u64,
    /// Whether an index segment says which chunks it had. If not, the next three numbers are 0.
    pub is_named: bool,
    /// Chunks of it that other containers have as well.
    pub chunks_elsewhere: u64,
    /// Chunks that are lost.
    pub chunks_lost: u64,
    /// Frames that could be read.
    pub frames_read: u64,
    /// Frames that could not be read, with sound ones behind them.
    pub frames_bad: u64,
}

/// What [`repair_containers`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ContainersReport {
    /// Containers whose own index is damaged.
    pub containers: Vec<ContainerRepair>,
    /// Containers with a sound index that marks list, and their unusable chunks. Their other chunks serve where they
    /// are.
    pub with_bad_frames: u64,
    /// Chunks of those that cannot be read.
    pub chunks_unusable: u64,
    /// Containers that segments name or marks list, but that are missing, if a snapshot lacks anything. Nothing can be
    /// read of them.
    pub missing: Vec<String>,
    /// Containers that marks list and that are there, with bad bytes, if a snapshot lacks anything.
    pub damaged: Vec<String>,
    /// Damaged containers whose chunks no index segment names, if a snapshot lacks anything.
    pub unnamed: u64,
    /// Directories that could not be listed. Containers in them that no segment names are not looked at.
    pub unlistable: Vec<String>,
}

/// Repairs containers. May be killed at any point and run again.
///
/// # Errors
/// Errors of the store. Errors of marks that forbid writing.
pub fn repair_containers(repository: &Repository, config: &Config, stop: &Arc<AtomicBool>) -> Result<ContainersReport> {
    let repository = &repository.stopped_by(stop);
    let mut report = repair_damaged(repository, config, stop)?;
    report.unnamed = report.containers.iter().filter(|repair| !repair.is_named).count() as u64;
    let is_any = report.unnamed > 0 || !report.missing.is_empty() || !report.damaged.is_empty();
    if is_any && is_everything_there(repository, stop)? {
        report.missing.clear();
        report.damaged.clear();
        report.unnamed = 0;
    }
    Ok(report)
}

fn repair_damaged(repository: &Repository, config: &Config, stop: &Arc<AtomicBool>) -> Result<ContainersReport> {
    let store = repository.store.as_ref();
    let marks = Marks::read(store)?;
    marks.admit_writer(repository)?;
    let mut report = ContainersReport { missing: missing(store, &marks.quarantine)?, ..ContainersReport::default() };
    for (_, parts) in marks.quarantine.containers() {
        if let BadParts::Parts { entries, .. } = parts {
            report.with_bad_frames += 1;
            report.chunks_unusable += entries.count();
        }
    }
    let mut listing = list_to_write(repository, Marks::read(store)?)?;
    report.unlistable = unlistable(&listing);
    report.missing.extend(missing_containers(&listing)?.lost.iter().map(|id| blob_name(id).into()));
    report.missing.sort();
    report.missing.dedup();
    report.damaged = there(&marks.quarantine, &report.missing);
    let mut damaged: BTreeMap<ContainerId, Error> = BTreeMap::new();
    let mut ids: Vec<ContainerId> = listing.containers.iter().copied().collect();
    ids.sort();
    for id in ids {
        match read_container_index(store, &id) {
            Err(error) if error.kind() == ErrorKind::Damaged => drop(damaged.insert(id, error)),
            Err(error) if !error.is_unavailable() => return Err(error),
            _ => {}
        }
    }
    if damaged.is_empty() {
        return Ok(report);
    }
    let wanted = wanted_chunks(&listing, &damaged)?;
    listing.forget_orphans();
    let listing = Arc::new(listing);
    let index = chunk_index(repository, config, &listing)?;
    let mut salvage = Salvage {
        repository,
        index: &index,
        config,
        stop,
        writer: repository.new_containers().begin(ContainerKind::Data)?,
        scratch: Scratch::default(),
    };
    for (id, error) in &damaged {
        let names = wanted.get(id).cloned().unwrap_or_default();
        let (container, damage, is_named) = (blob_name(id), error.to_string(), wanted.contains_key(id));
        let repair = ContainerRepair { container: container.into(), damage, is_named, ..Default::default() };
        report.containers.push(salvage.container(&listing, id, names, repair)?);
    }
    salvage.seal()?;
    drop(salvage);
    index.lock().finish()?;
    let stored = index.lock().stored().clone();
    name_all_containers(&listing, &stored)?;
    check_prune(repository, &stored)?;
    let mut bad = Quarantine::default();
    // What the device could not read may be sound, and come back.
    let proven = damaged.iter().filter(|(_, error)| error.is_proven_damage()).map(|(id, _)| id);
    proven.filter(|id| marks.quarantine.of(id) != Some(&BadParts::Whole)).for_each(|id| {
        bad.insert(*id, &BadParts::Whole);
    });
    if !bad.is_empty() {
        Mark::new(MarkKind::Quarantine(bad), "repair found damaged containers").save(store)?;
    }
    Ok(report)
}

/// The fingerprints that readable segment pages have of each damaged container.
fn wanted_chunks(
    listing: &ContainerListing,
    damaged: &BTreeMap<ContainerId, Error>,
) -> Result<HashMap<ContainerId, HashSet<Fingerprint>>> {
    let mut wanted: HashMap<ContainerId, HashSet<Fingerprint>> = HashMap::new();
    let (active, replaced) = (listing.segments(), listing.replaced());
    for segment in active.iter().chain(replaced.iter()) {
        if !segment.containers().iter().any(|id| damaged.contains_key(id)) {
            continue;
        }
        for page in segment.pages() {
            let records = match page {
                Err(error) if error.stops_reading() => return Err(error),
                page => page.unwrap_or_default(),
            };
            for record in records {
                let id = segment.containers().get(record.container as usize);
                if let Some(id) = id.filter(|id| damaged.contains_key(id)) {
                    wanted.entry(*id).or_default().insert(record.fingerprint);
                }
            }
        }
    }
    Ok(wanted)
}

struct Salvage<'a> {
    repository: &'a Repository,
    index: &'a Mutex<ChunkIndex>,
    config: &'a Config,
    stop: &'a AtomicBool,
    /// The container that is being filled.
    writer: ContainerWriter,
    scratch: Scratch,
}

impl Salvage<'_> {
    fn container(
        &mut self,
        listing: &Arc<ContainerListing>,
        id: &ContainerId,
        mut wanted: HashSet<Fingerprint>,
        mut repair: ContainerRepair,
    ) -> Result<ContainerRepair> {
        let all = wanted.len();
        let store = self.repository.store.clone();
        let cache = ContainerIndexes::new(store.clone(), CONTAINER_INDEXES_MAX, CONTAINER_INDEX_BYTES_MAX);
        let mut locator = Locator::new(listing.clone(), cache);
        let mut failure = None;
        wanted.retain(|fingerprint| match locator.locate(fingerprint) {
            Ok(Some(located)) => located.soundness != Soundness::Sound,
            Err(error) if error.stops_reading() => {
                failure = Some(error);
                true
            }
            _ => true,
        });
        if let Some(error) = failure {
            return Err(error);
        }
        repair.chunks_elsewhere = (all - wanted.len()) as u64;
        let name = blob_name(id);
        let len = match store.head(&name) {
            Err(error) if error.is_unreadable() => 0,
            head => head?.map_or(0, |head| head.len),
        };
        let mut offset = HEADER_BYTES as u64;
        while !wanted.is_empty() && offset < len {
            match self.frame(&name, offset) {
                Ok((raw, next)) => {
                    repair.frames_read += 1;
                    self.chunks(&raw, &mut wanted, &mut repair)?;
                    offset = next;
                }
                Err(error) if error.is_unreadable() => {
                    // The container index begins here, or the frame is bad. A sound header says where the next one is.
                    match self.next_frame(&name, offset, len) {
                        Some(next) => offset = next,
                        None => break,
                    }
                    repair.frames_bad += 1;
                }
                Err(error) => return Err(error),
            }
        }
        repair.chunks_lost = wanted.len() as u64;
        Ok(repair)
    }

    /// The lengths of the frame at `offset`, as its header says, unverified.
    fn frame_info(&self, name: &BlobName, offset: u64) -> Result<FrameInfo> {
        let header = self.repository.store.get_range(name, offset, FRAME_FIELDS_BYTES, Reading::Once)?;
        let mut reader = crate::wire::WireReader::new(name, offset, &header);
        let (codec, raw_len, stored_len) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let codec = u8::try_from(codec).ok().filter(|_| u64::from(raw_len) <= FRAME_BYTES_LIMIT);
        let codec = codec.filter(|_| u64::from(stored_len) <= 2 * FRAME_BYTES_LIMIT);
        let codec = codec.ok_or_else(|| Error::corrupt(name, offset, "a frame", "other bytes"))?;
        Ok(FrameInfo { offset, stored_len, raw_len, codec })
    }

    /// The decoded frame at `offset`, and where the next one is.
    fn frame(&mut self, name: &BlobName, offset: u64) -> Result<(Vec<u8>, u64)> {
        let info = self.frame_info(name, offset)?;
        let stored = self.repository.store.get_range(name, offset, info.stored_bytes(), Reading::Once)?;
        let raw = decode_frame(name, &info, &stored, &mut self.scratch)?;
        Ok((raw, offset + info.stored_bytes() as u64))
    }

    /// The frame after the bad one at `offset`, if the lengths in its header lead to a sound one.
    fn next_frame(&mut self, name: &BlobName, offset: u64, len: u64) -> Option<u64> {
        let info = self.frame_info(name, offset).ok()?;
        let next = offset + info.stored_bytes() as u64;
        (next + FRAME_HEADER_BYTES as u64 <= len && self.frame(name, next).is_ok()).then_some(next)
    }

    /// Finds wanted chunks in a frame and stores them.
    fn chunks(&mut self, raw: &[u8], wanted: &mut HashSet<Fingerprint>, repair: &mut ContainerRepair) -> Result<()> {
        let whole = self.repository.key.fingerprint(raw);
        if wanted.remove(&whole) {
            return self.store(whole, raw, repair);
        }
        let longest = self.repository.config.chunk_bytes_max.0.max(self.config.model.block_bytes.0) as usize;
        let mut start = 0;
        while start < raw.len() && !wanted.is_empty() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let rest = raw.get(start..).unwrap_or_default();
            let mut hasher = blake3::Hasher::new_keyed(&self.repository.key.0);
            let longest = rest.len().min(longest);
            let end = (1..=longest).find_map(|end| {
                hasher.update(rest.get(end - 1..end)?);
                let fingerprint = Fingerprint(*hasher.finalize().as_bytes());
                wanted.remove(&fingerprint).then_some((end, fingerprint))
            });
            let Some((end, fingerprint)) = end else { return Ok(()) };
            self.store(fingerprint, rest.get(..end).unwrap_or_default(), repair)?;
            start += end;
        }
        Ok(())
    }

    fn store(&mut self, fingerprint: Fingerprint, bytes: &[u8], repair: &mut ContainerRepair) -> Result<()> {
        let mut encoded = Vec::new();
        Zstandard.encode(bytes, LEVEL, &mut self.scratch, &mut encoded)?;
        let (codec, payload) =
            if encoded.len() < bytes.len() { (Zstandard.id(), encoded) } else { (Raw.id(), bytes.to_vec()) };
        let raw_len = bytes.len() as u32;
        let frame = self.writer.push_frame(&StoredFrame { codec, raw_len, payload: Bytes::from(payload) })?;
        let fields = EntryFields { fingerprint, raw_len, frame, literal_offset: 0, literal_len: raw_len, depth: 1 };
        self.writer.push_entry(fields, &OperationList::default(), &[])?;
        repair.chunks_saved += 1;
        repair.bytes_saved += u64::from(raw_len);
        if self.writer.is_full(self.config.container.bytes_target.0) { self.seal() } else { Ok(()) }
    }

    fn seal(&mut self) -> Result<()> {
        if self.writer.is_empty() {
            return Ok(());
        }
        let next = self.repository.new_containers().begin(ContainerKind::Data)?;
        let sealed = std::mem::replace(&mut self.writer, next).seal()?;
        store_container(self.repository.store.as_ref(), self.index, sealed)
    }
}
