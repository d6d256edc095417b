//! The solid frames that a prune writes: how long they are, and how all cores compress them.

use parking_lot::Mutex;

use super::compact::MovedEntry;
use crate::codec::{Codec, Raw, Scratch, Zstandard};
use crate::config::ARCHIVE_LEVEL;
use crate::error::Result;
use crate::repo::container::{ContainerIndex, ContainerKind, StoredFrame};
use crate::store::try_map_parallel;

/// How new solid frames are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameEncoding {
    /// zstd level.
    pub level: i32,
    /// Raw bytes of a frame of data.
    pub data_bytes: usize,
    /// Entries in it, at most.
    pub data_entries: usize,
    /// Raw bytes of a frame of metadata.
    pub metadata_bytes: usize,
}

impl FrameEncoding {
    /// That of a prune.
    pub const ORDINARY: FrameEncoding =
        FrameEncoding { level: 3, data_bytes: 512 << 10, data_entries: 16, metadata_bytes: 256 << 10 };
    /// That of archives: a frame holds many small files, so the window reaches far. Who reads one file decodes 4 MiB.
    pub const ARCHIVE: FrameEncoding =
        FrameEncoding { level: ARCHIVE_LEVEL, data_bytes: 4 << 20, data_entries: 16_384, metadata_bytes: 1 << 20 };

    /// Raw bytes of a frame in a container of this kind.
    pub fn frame_bytes(&self, kind: ContainerKind) -> usize {
        match kind {
            ContainerKind::Data => self.data_bytes,
            ContainerKind::Metadata => self.metadata_bytes,
        }
    }

    /// Whether a frame of `raw_len` bytes and `entries` entries is full.
    pub fn is_full(&self, kind: ContainerKind, raw_len: usize, entries: usize) -> bool {
        raw_len >= self.frame_bytes(kind) || kind == ContainerKind::Data && entries >= self.data_entries
    }

    /// Whether a frame is so far from full that it pays to put it together with others.
    pub fn is_short(&self, kind: ContainerKind, raw_len: usize, entries: usize) -> bool {
        !self.is_full(kind, raw_len.saturating_mul(2), entries)
    }

    /// Stored bytes of a container in short frames of zstd. 0 if there are so few of them that another encoding would
    /// save little: the last frame of a container is often short.
    pub fn loose_bytes(&self, kind: ContainerKind, container_index: &ContainerIndex) -> u64 {
        let mut entries = vec![0; container_index.frames.len()];
        for entry in container_index.entries.iter().filter(|entry| entry.literal_len > 0) {
            entries.get_mut(entry.frame as usize).into_iter().for_each(|count| *count += 1);
        }
        let (mut all, mut loose, mut count) = (0, 0, 0);
        for (frame, entries) in container_index.frames.iter().zip(entries) {
            let bytes = frame.stored_bytes() as u64;
            all += bytes;
            if frame.codec == Zstandard.id() && self.is_short(kind, frame.raw_len as usize, entries) {
                (loose, count) = (loose + bytes, count + 1);
            }
        }
        if count < SHORT_FRAMES_MIN || loose * 100 < all * LOOSE_PERCENT_MIN { 0 } else { loose }
    }
}

/// Short frames of a container from which on it is encoded again.
const SHORT_FRAMES_MIN: u32 = 4;
/// Their share of its frames from which on it is encoded again, per cent.
const LOOSE_PERCENT_MIN: u64 = 10;

/// A solid frame that is being filled, or waits for its compression.
#[derive(Default)]
pub struct SolidFrame {
    /// Literal bytes of the entries.
    pub raw: Vec<u8>,
    /// The entries.
    pub entries: Vec<MovedEntry>,
}

/// Compresses frames, several at once.
pub struct FrameCompressor {
    level: i32,
    /// One for each thread. At the level of archives each takes about 50 MiB.
    scratches: Vec<Mutex<Scratch>>,
}

impl FrameCompressor {
    /// Compresses with `threads` threads, at least one.
    pub fn new(level: i32, threads: usize) -> Self {
        FrameCompressor { level, scratches: (0..threads.max(1)).map(|_| Mutex::default()).collect() }
    }

    /// Frames that are compressed at once.
    pub fn threads(&self) -> usize {
        self.scratches.len()
    }

    /// The stored forms of `frames`, in their order. What does not shrink stays as it is.
    ///
    /// # Errors
    /// Errors of zstd.
    pub fn compress(&self, frames: Vec<SolidFrame>) -> Result<Vec<(StoredFrame, Vec<MovedEntry>)>> {
        let (raws, entries): (Vec<_>, Vec<_>) = frames.into_iter().map(|frame| (frame.raw, frame.entries)).unzip();
        let payloads = try_map_parallel(self.threads(), &raws, |raw| {
            // There are as many as threads, so one of them is free.
            let mut scratch = self.scratches.iter().find_map(Mutex::try_lock);
            let mut own = Scratch::default();
            let mut payload = Vec::new();
            Zstandard.encode(raw, self.level, scratch.as_deref_mut().unwrap_or(&mut own), &mut payload)?;
            Ok(payload)
        })?;
        let stored = raws.into_iter().zip(payloads).map(|(raw, payload)| {
            let raw_len = raw.len() as u32;
            match payload.len() < raw.len() {
                true => StoredFrame { codec: Zstandard.id(), raw_len, payload: payload.into() },
                false => StoredFrame { codec: Raw.id(), raw_len, payload: raw.into() },
            }
        });
        Ok(stored.zip(entries).collect())
    }
}
