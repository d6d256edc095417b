//! Bytes of files: chunks through a cache, and a thread that reads ahead of sequential readers.
//!
//! 1. A read takes its chunks from the cache, or reads them.
//! 2. A read that begins where the last one of the same content ended is sequential. The thread then puts the next
//!    chunks into the cache, up to [`READAHEAD_BYTES`] behind the read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::cache::ByteLru;
use crate::error::{Error, Result};
use crate::repo::content::{ContentMap, LocatedRange};
use crate::repo::reader::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::types::Fingerprint;

/// Bytes that are read ahead of a sequential reader.
const READAHEAD_BYTES: u64 = 4 << 20;
/// Memory for chunks.
const CHUNK_BYTES_MAX: usize = 64 << 20;
/// Memory for decoded recipes.
const RECIPE_BYTES_MAX: usize = 16 << 20;
/// Files whose last reads are remembered, to notice sequential ones.
const READERS_MAX: usize = 64;

/// Files of a repository.
pub(super) struct ReadFiles {
    shared: Arc<SharedBytes>,
    /// Where sequential readers will go on. Closed to end the thread.
    readahead: Option<Sender<ReadaheadRequest>>,
    thread: Option<JoinHandle<()>>,
    /// Ends of the last reads by content.
    ends: Mutex<lru::LruCache<Fingerprint, u64>>,
}

struct ReadaheadRequest {
    content: ContentReference,
    from: u64,
}

struct SharedBytes {
    files: Mutex<(ChunkReader, ContentMap)>,
    chunks: Mutex<ByteLru<Fingerprint, Arc<Vec<u8>>>>,
    stops: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedBytes {
    fn locate(&self, content: ContentReference, offset: u64) -> Result<Option<LocatedRange>> {
        let (reader, map) = &mut *lock(&self.files);
        map.locate(reader, content, offset)
    }

    fn chunk(&self, fingerprint: &Fingerprint, len: u64) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = lock(&self.chunks).get(fingerprint) {
            return Ok(bytes);
        }
        let mut files = lock(&self.files);
        // Another thread may have read it meanwhile.
        if let Some(bytes) = lock(&self.chunks).get(fingerprint) {
            return Ok(bytes);
        }
        let bytes = Arc::new(files.0.read_exact(fingerprint, len)?);
        lock(&self.chunks).put(*fingerprint, bytes.clone(), bytes.len());
        Ok(bytes)
    }

    /// Puts the chunks of a range into the cache. Errors are left to the reader that needs the chunk.
    fn fetch(&self, request: &ReadaheadRequest) -> Result<()> {
        let (mut offset, end) = (request.from, request.from.saturating_add(READAHEAD_BYTES));
        while offset < end
            && !self.stops.load(Ordering::Relaxed)
            && let Some(range) = self.locate(request.content, offset)?
        {
            if let Some(fingerprint) = &range.chunk {
                self.chunk(fingerprint, range.len)?;
            }
            offset = range.end();
        }
        Ok(())
    }

    fn read_further(&self, requests: &Receiver<ReadaheadRequest>) {
        while let Ok(request) = requests.recv() {
            if let Err(error) = self.fetch(&request) {
                tracing::debug!("cannot read ahead: {error}");
            }
        }
    }
}

impl ReadFiles {
    /// Files whose chunks `reader` reads.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started.
    pub(super) fn new(reader: ChunkReader) -> Result<Self> {
        let shared = Arc::new(SharedBytes {
            files: Mutex::new((reader, ContentMap::new(RECIPE_BYTES_MAX))),
            chunks: Mutex::new(ByteLru::new(CHUNK_BYTES_MAX)),
            stops: AtomicBool::new(false),
        });
        let (queue, requests) = bounded(1);
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("read ahead".into()).spawn(move || own.read_further(&requests));
        let thread = thread.map_err(|error| Error::io("start", "a thread", error))?;
        let ends = Mutex::new(lru::LruCache::new(crate::repo::reader::at_least_one(READERS_MAX)));
        Ok(ReadFiles { shared, readahead: Some(queue), thread: Some(thread), ends })
    }

    /// Reads up to `count` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn read(&self, content: ContentReference, offset: u64, count: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(count as u64).min(content.content_len());
        let mut bytes = Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0).min(count));
        let mut at = offset;
        while at < end
            && let Some(range) = self.shared.locate(content, at)?
        {
            let stop = range.end().min(end);
            let within = |at: u64| usize::try_from(at - range.start).unwrap_or(usize::MAX);
            match &range.chunk {
                Some(fingerprint) => {
                    let chunk = self.shared.chunk(fingerprint, range.len)?;
                    bytes.extend_from_slice(chunk.get(within(at)..within(stop)).unwrap_or_default());
                }
                None => bytes.resize(bytes.len() + (stop - at) as usize, 0),
            }
            at = stop;
        }
        self.note(content, offset, at);
        Ok(bytes)
    }

    /// The first offset from `offset` on that is in a hole if `in_hole`, else in data. The end is a hole.
    ///
    /// # Errors
    /// Those of reading recipes.
    pub(super) fn seek(&self, content: ContentReference, offset: u64, in_hole: bool) -> Result<Option<u64>> {
        let len = content.content_len();
        let mut at = offset;
        while let Some(range) = self.shared.locate(content, at)? {
            if range.chunk.is_none() == in_hole {
                return Ok(Some(at));
            }
            at = range.end();
        }
        Ok((in_hole && offset < len).then_some(len))
    }

    /// Notes a read, and has the thread read ahead if it was sequential.
    fn note(&self, content: ContentReference, from: u64, to: u64) {
        let Some(fingerprint) = content.fingerprint() else { return };
        let before = lock(&self.ends).put(fingerprint, to);
        let is_sequential = before == Some(from) && to > from;
        if is_sequential && let Some(queue) = &self.readahead {
            // The thread is busy with an earlier request if the queue is full.
            let _ = queue.try_send(ReadaheadRequest { content, from: to });
        }
    }
}

impl Drop for ReadFiles {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        drop(self.readahead.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
