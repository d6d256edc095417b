//! The bytes of an object, read where somebody looks at them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::message::ObjectFailure;
use crate::read_at::ReadAt;
use crate::repo::read::at_least_one;
use crate::store::{ExpectedObject, Fetched, ObjectState, SourceBucket, map_parallel};

/// Bytes that one request brings, from a multiple of that on.
pub const BLOCK_BYTES: u64 = 128 << 10;
/// Blocks in memory.
const BLOCKS: usize = 32;
/// Samples that are no farther from each other come with one request. Bytes.
const GAP_BYTES: u64 = 4 << 10;
/// Requests for samples in flight.
const AT_ONCE: usize = 8;

/// One object in one state.
pub struct ObjectContent<'a> {
    bucket: &'a SourceBucket,
    key: &'a str,
    state: ObjectState,
    blocks: Mutex<LruCache<u64, Arc<Vec<u8>>>>,
    /// What was announced, by offset.
    samples: Mutex<BTreeMap<u64, Arc<Vec<u8>>>>,
    failure: Mutex<Option<ObjectFailure>>,
}

impl<'a> ObjectContent<'a> {
    /// The object in this `state`, of which `start` is the first block.
    pub fn new(bucket: &'a SourceBucket, key: &'a str, state: ObjectState, start: Vec<u8>) -> Self {
        let mut blocks = LruCache::new(at_least_one(BLOCKS));
        blocks.put(0, Arc::new(start));
        ObjectContent {
            bucket,
            key,
            state,
            blocks: Mutex::new(blocks),
            samples: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Why a read failed.
    pub fn failure(&self) -> Option<ObjectFailure> {
        self.failure.lock().take()
    }

    fn fetch(&self, range: Range<u64>) -> io::Result<Arc<Vec<u8>>> {
        let failure = match self.bucket.fetch(self.key, range, ExpectedObject::Same(&self.state)) {
            Ok(Fetched::Range(found)) => return Ok(Arc::new(found.bytes)),
            Ok(Fetched::Replaced) => ObjectFailure::Replaced,
            Err(error) => ObjectFailure::Error(error),
        };
        self.failure.lock().get_or_insert(failure);
        Err(io::Error::other("the object cannot be read"))
    }

    /// What is known from `offset` on, with the offset where it begins.
    fn known(&self, offset: u64, len: u64) -> io::Result<(u64, Arc<Vec<u8>>)> {
        let samples = self.samples.lock();
        if let Some((start, bytes)) = samples.range(..=offset).next_back()
            && offset + len <= start + bytes.len() as u64
        {
            return Ok((*start, bytes.clone()));
        }
        drop(samples);
        let start = offset / BLOCK_BYTES * BLOCK_BYTES;
        if let Some(block) = self.blocks.lock().get(&start) {
            return Ok((start, block.clone()));
        }
        let block = self.fetch(start..(start + BLOCK_BYTES).min(self.state.size))?;
        self.blocks.lock().put(start, block.clone());
        Ok((start, block))
    }
}

impl ReadAt for ObjectContent<'_> {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        let len = (space.len() as u64).min(self.state.size.saturating_sub(offset));
        if len == 0 {
            return Ok(0);
        }
        let (start, bytes) = self.known(offset, len)?;
        let from = bytes.get((offset - start) as usize..).unwrap_or_default();
        let count = from.len().min(len as usize);
        if let (Some(from), Some(to)) = (from.get(..count), space.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn will_read(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in sorted {
            let end = range.end.min(self.state.size);
            match merged.last_mut() {
                Some(last) if range.start <= last.end + GAP_BYTES && end <= last.start + BLOCK_BYTES => {
                    last.end = last.end.max(end);
                }
                _ if range.start < end => merged.push(range.start..end),
                _ => {}
            }
        }
        for (range, bytes) in merged.iter().zip(map_parallel(AT_ONCE, &merged, |range| self.fetch(range.clone()))) {
            self.samples.lock().insert(range.start, bytes?);
        }
        Ok(())
    }
}
