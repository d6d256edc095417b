//! Compact: moves entries to new containers.
//!
//! 1. A frame is read, verified and decoded. Chunks that are stored whole are checked against their fingerprints.
//! 2. A frame whose entries are all needed moves as it is, unless it is small and can be encoded again. Of other frames
//!    only the literal bytes of needed entries move, into new solid frames. Frames of codecs that know their content
//!    move whole.
//! 3. Operations, bases and features stay the same, so an entry keeps its identity.
//! 4. The new containers get segments only if the pending entry of this prune is still there once all of them are
//!    stored. Another prune may have finished this one, and have deleted what the entries copy from before it could
//!    list the new containers.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::live::LiveSet;
use super::solid_frames::{FrameCompressor, FrameEncoding, SolidFrame};
use crate::codec::{Codec, Raw, Scratch, Zstandard};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::container::{
    ContainerEntry, ContainerIndex, ContainerKind, ContainerWriter, EntryFields, FrameInfo, OperationList, StoredFrame,
    blob_name, decode_frame, parse_frame, read_kind,
};
use crate::repo::index::read_container_index;
use crate::store::{BlobName, Reading, Store, StoreExt, again, read_again};
use crate::types::{ContainerId, Fingerprint};

/// Bytes of a container that are read by one request, at most.
const LOADED_BYTES_MAX: u64 = 128 << 20;

/// An entry on its way to a new container.
pub struct MovedEntry {
    fields: EntryFields,
    operations: OperationList,
    features: Vec<u64>,
}

/// The open container of a kind, and the solid frames that will follow.
struct OpenContainer {
    kind: ContainerKind,
    /// None before its first frame or entry.
    writer: Option<ContainerWriter>,
    /// The frame that is being filled.
    frame: SolidFrame,
    /// Full frames that wait to be compressed at once.
    full: Vec<SolidFrame>,
}

/// Bytes of a container of a remote store, read by one request.
#[derive(Default)]
struct LoadedRange {
    offset: u64,
    bytes: Vec<u8>,
}

impl LoadedRange {
    /// From the first of these frames to the last one, unless that is too long.
    fn read<'f>(
        store: &dyn Store,
        name: &BlobName,
        frames: impl Iterator<Item = &'f FrameInfo> + Clone,
    ) -> Result<Self> {
        let ends = frames.clone().map(|info| info.offset.saturating_add(info.stored_bytes() as u64));
        let (Some(offset), Some(end)) = (frames.map(|info| info.offset).min(), ends.max()) else {
            return Ok(LoadedRange::default());
        };
        let len = end - offset;
        let bytes = match len > LOADED_BYTES_MAX {
            true => Vec::new(),
            false => read_again(store, name, || store.get_range(name, offset, len as usize, Reading::Once))?,
        };
        Ok(LoadedRange { offset, bytes })
    }

    /// The stored bytes of a frame.
    fn frame(&self, info: &FrameInfo) -> Option<&[u8]> {
        let start = usize::try_from(info.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(info.stored_bytes())?)
    }
}

/// Moves entries.
pub struct Mover<'a> {
    repository: &'a Repository,
    container_bytes: u64,
    encoding: FrameEncoding,
    compressor: FrameCompressor,
    open: Vec<OpenContainer>,
    scratch: Scratch,
    loaded: LoadedRange,
    /// Bytes of the containers written.
    pub bytes_written: u64,
    /// Containers written.
    pub written: Vec<ContainerId>,
}

impl<'a> Mover<'a> {
    /// Writes containers of about `container_bytes`. `threads` threads compress new frames.
    pub fn new(repository: &'a Repository, container_bytes: u64, encoding: FrameEncoding, threads: usize) -> Self {
        let new = |kind| OpenContainer { kind, writer: None, frame: SolidFrame::default(), full: Vec::new() };
        Mover {
            repository,
            container_bytes,
            encoding,
            compressor: FrameCompressor::new(encoding.level, threads),
            open: [ContainerKind::Data, ContainerKind::Metadata].map(new).into(),
            scratch: Scratch::default(),
            loaded: LoadedRange::default(),
            bytes_written: 0,
            written: Vec::new(),
        }
    }

    /// Moves the live entries of a container.
    ///
    /// # Errors
    /// Damage with the name of the container; errors of the store.
    pub fn move_container(&mut self, id: &ContainerId, live: &LiveSet) -> Result<()> {
        let store = &self.repository.store;
        let name = blob_name(id);
        let kind = read_kind(store.as_ref(), &name, Reading::Once)?;
        let container_index = read_container_index(store.as_ref(), id)?;
        // By frame, and in the order of the entries within it.
        let mut by_frame: BTreeMap<u32, Vec<(u32, &ContainerEntry)>> = BTreeMap::new();
        let mut entries_of_frame: BTreeMap<u32, usize> = BTreeMap::new();
        for (entry, position) in container_index.entries.iter().zip(0u32..) {
            if entry.literal_len > 0 {
                *entries_of_frame.entry(entry.frame).or_default() += 1;
            }
            if !live.contains(id, position) {
                continue;
            }
            if entry.literal_len > 0 {
                by_frame.entry(entry.frame).or_default().push((position, entry));
            } else {
                let moved = moved(&container_index, entry, 0, 0);
                self.push_entries(kind, 0, vec![moved])?;
            }
        }
        self.loaded = LoadedRange::default();
        if store.requests_max() > 1 {
            let infos = by_frame.keys().filter_map(|frame| container_index.frames.get(*frame as usize));
            self.loaded = LoadedRange::read(store.as_ref(), &name, infos)?;
        }
        for (frame, entries) in by_frame {
            let is_whole = entries_of_frame.get(&frame) == Some(&entries.len());
            self.move_frame(&name, kind, &container_index, frame, &entries, is_whole)?;
        }
        Ok(())
    }

    fn move_frame(
        &mut self,
        name: &BlobName,
        kind: ContainerKind,
        container_index: &ContainerIndex,
        frame: u32,
        entries: &[(u32, &ContainerEntry)],
        is_whole: bool,
    ) -> Result<()> {
        let info = container_index.frames.get(frame as usize).copied();
        let info = info.ok_or_else(|| Error::corrupt(name, 0, "a frame of each entry", frame.to_string()))?;
        let (store, scratch) = (self.repository.store.as_ref(), RefCell::new(&mut self.scratch));
        let decode = |stored: &[u8]| decode_frame(name, &info, stored, *scratch.borrow_mut());
        let read = || {
            let stored = store.get_range(name, info.offset, info.stored_bytes(), Reading::Once)?;
            let raw = decode(&stored)?;
            Ok((Cow::Owned(stored), raw))
        };
        let (stored, raw) = match self.loaded.frame(&info) {
            Some(loaded) => match decode(loaded) {
                Ok(raw) => (Cow::Borrowed(loaded), raw),
                Err(error) => again(store, name, error, read)?,
            },
            None => read_again(store, name, read)?,
        };
        let literal = |entry: &ContainerEntry| {
            let start = entry.literal_offset as usize;
            raw.get(start..start.saturating_add(entry.literal_len as usize)).ok_or_else(|| {
                Error::corrupt(name, info.offset, "literal bytes within their frame", format!("entry at {start}"))
            })
        };
        for (_, entry) in entries {
            let bytes = literal(entry)?;
            if container_index.operations(entry).is_empty() {
                self.verify_chunk(name, info.offset, &entry.fingerprint, bytes)?;
            }
        }
        let can_encode = info.codec == Zstandard.id() || info.codec == Raw.id();
        let is_small = info.codec == Zstandard.id() && self.encoding.is_short(kind, raw.len(), entries.len());
        if !can_encode || is_whole && !is_small {
            let payload = Bytes::copy_from_slice(parse_frame(name, &info, &stored)?);
            let stored = StoredFrame { codec: info.codec, raw_len: info.raw_len, payload };
            let moved =
                entries.iter().map(|(_, entry)| moved(container_index, entry, 0, entry.literal_offset)).collect();
            return self.push_frame(kind, &stored, moved);
        }
        if info.codec == Raw.id() {
            let (mut bytes, mut list) = (Vec::new(), Vec::new());
            for (_, entry) in entries {
                list.push(moved(container_index, entry, 0, bytes.len() as u32));
                bytes.extend_from_slice(literal(entry)?);
            }
            let stored = StoredFrame { codec: Raw.id(), raw_len: bytes.len() as u32, payload: bytes.into() };
            return self.push_frame(kind, &stored, list);
        }
        for (_, entry) in entries {
            let (bytes, encoding) = (literal(entry)?, self.encoding);
            let frame = &mut self.open_container(kind)?.frame;
            frame.entries.push(moved(container_index, entry, 0, frame.raw.len() as u32));
            frame.raw.extend_from_slice(bytes);
            if encoding.is_full(kind, frame.raw.len(), frame.entries.len()) {
                self.end_frame(kind)?;
            }
        }
        Ok(())
    }

    fn verify_chunk(&self, name: &str, offset: u64, fingerprint: &Fingerprint, bytes: &[u8]) -> Result<()> {
        let got = self.repository.key.fingerprint(bytes);
        if got == *fingerprint {
            return Ok(());
        }
        let (what, expected, got) = (name.to_string(), fingerprint.to_string(), got.to_string());
        Err(Error::ChecksumMismatch { what, offset, expected, got })
    }

    fn open_container(&mut self, kind: ContainerKind) -> Result<&mut OpenContainer> {
        let open = self.open.iter_mut().find(|open| open.kind == kind);
        open.ok_or_else(|| Error::internal("a kind of container is missing"))
    }

    fn writer(&mut self, kind: ContainerKind) -> Result<&mut ContainerWriter> {
        let repository = self.repository;
        let open = self.open_container(kind)?;
        match &mut open.writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(repository.new_containers().begin(kind)?)),
        }
    }

    /// Ends the open solid frame. Once there is one for each thread, writes them.
    fn end_frame(&mut self, kind: ContainerKind) -> Result<()> {
        let threads = self.compressor.threads();
        let open = self.open_container(kind)?;
        if !open.frame.entries.is_empty() {
            let frame = std::mem::take(&mut open.frame);
            open.full.push(frame);
        }
        if open.full.len() >= threads { self.write_frames(kind) } else { Ok(()) }
    }

    /// Compresses and writes the full frames.
    fn write_frames(&mut self, kind: ContainerKind) -> Result<()> {
        let full = std::mem::take(&mut self.open_container(kind)?.full);
        let frames = self.compressor.compress(full)?;
        frames.into_iter().try_for_each(|(frame, entries)| self.push_frame(kind, &frame, entries))
    }

    fn push_frame(&mut self, kind: ContainerKind, frame: &StoredFrame, entries: Vec<MovedEntry>) -> Result<()> {
        let number = self.writer(kind)?.push_frame(frame)?;
        self.push_entries(kind, number, entries)
    }

    /// Adds entries of frame `number`, and seals the container if it is full.
    fn push_entries(&mut self, kind: ContainerKind, number: u32, entries: Vec<MovedEntry>) -> Result<()> {
        let container_bytes = self.container_bytes;
        let writer = self.writer(kind)?;
        for MovedEntry { fields, operations, features } in entries {
            writer.push_entry(EntryFields { frame: number, ..fields }, &operations, &features)?;
        }
        if writer.is_full(container_bytes) { self.seal(kind) } else { Ok(()) }
    }

    fn seal(&mut self, kind: ContainerKind) -> Result<()> {
        let writer = self.open_container(kind)?.writer.take().filter(|writer| !writer.is_empty());
        let Some(writer) = writer else { return Ok(()) };
        let sealed = writer.seal()?;
        let id = sealed.store(self.repository.store.as_ref())?;
        self.bytes_written += sealed.len;
        self.written.push(id);
        Ok(())
    }

    /// Seals what is open. Returns the new containers, which no segment names yet, and their bytes.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn finish(mut self) -> Result<(Vec<ContainerId>, u64)> {
        for kind in [ContainerKind::Data, ContainerKind::Metadata] {
            self.end_frame(kind)?;
            self.write_frames(kind)?;
            self.seal(kind)?;
        }
        Ok((self.written, self.bytes_written))
    }
}

/// Fails if the pending entry `claim` is gone: another prune took this one for dead.
///
/// # Errors
/// [`Error::Pruned`]; errors of the store.
pub fn check_claim(store: &dyn Store, claim: &BlobName) -> Result<()> {
    match store.head(claim)? {
        Some(_) => Ok(()),
        None => Err(Error::Pruned { count: 1 }),
    }
}

/// The entry as it will stand in another container, at `literal_offset` of frame `frame`.
fn moved(container_index: &ContainerIndex, entry: &ContainerEntry, frame: u32, literal_offset: u32) -> MovedEntry {
    let mut bases = Vec::new();
    let mut numbers = BTreeMap::new();
    let operations = container_index.operations(entry).iter().map(|operation| {
        operation.with_base(|base| {
            *numbers.entry(base).or_insert_with(|| {
                bases.extend(container_index.bases.get(base as usize).copied());
                bases.len() as u32 - 1
            })
        })
    });
    let operations = operations.collect();
    let ContainerEntry { fingerprint, raw_len, literal_len, depth, .. } = *entry;
    MovedEntry {
        fields: EntryFields { fingerprint, raw_len, frame, literal_offset, literal_len, depth },
        operations: OperationList { operations, bases },
        features: container_index.features(entry).to_vec(),
    }
}
