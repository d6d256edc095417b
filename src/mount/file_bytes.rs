//! Bytes of files, and a thread that reads ahead of sequential readers.
//!
//! A read that begins where the last one of the same content ended is sequential. The thread then has the next chunks
//! decoded, up to [`READAHEAD_BYTES`] behind the read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use lru::LruCache;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::repo::read::{Reader, StoredFile, at_least_one};
use crate::repo::recipe::ContentReference;
use crate::types::Fingerprint;

/// Bytes that are read ahead of a sequential reader.
const READAHEAD_BYTES: u64 = 4 << 20;
/// Files whose last reads are remembered, to notice sequential ones.
const READERS_MAX: usize = 64;

/// Files of a repository.
pub(super) struct ReadFiles {
    reader: Reader,
    /// Where sequential readers will go on. Closed to end the thread.
    readahead: Option<Sender<ReadaheadRequest>>,
    thread: Option<JoinHandle<()>>,
    stops: Arc<AtomicBool>,
    /// Ends of the last reads by content.
    ends: Mutex<LruCache<Fingerprint, u64>>,
}

struct ReadaheadRequest {
    file: StoredFile,
    from: u64,
}

/// Errors are left to the reader that needs the chunk.
fn serve_requests(requests: &Receiver<ReadaheadRequest>, stops: &AtomicBool) {
    while let Ok(ReadaheadRequest { file, from }) = requests.recv() {
        let range = (from, from.saturating_add(READAHEAD_BYTES));
        if let Err(error) = file.prefetch(range, || stops.load(Ordering::Relaxed)) {
            tracing::debug!("cannot read ahead: {error}");
        }
    }
}

impl ReadFiles {
    /// Files that `reader` reads.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started.
    pub(super) fn new(reader: Reader) -> Result<Self> {
        let (queue, requests) = bounded(1);
        let stops = Arc::new(AtomicBool::new(false));
        let stopping = stops.clone();
        let thread = std::thread::Builder::new().name("read ahead".into());
        let thread = thread.spawn(move || serve_requests(&requests, &stopping));
        let thread = thread.map_err(|error| Error::io("start", "a thread", error))?;
        let ends = Mutex::new(LruCache::new(at_least_one(READERS_MAX)));
        Ok(ReadFiles { reader, readahead: Some(queue), thread: Some(thread), stops, ends })
    }

    /// Reads up to `count` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn read(&self, content: ContentReference, offset: u64, count: usize) -> Result<Vec<u8>> {
        let file = self.reader.content(content);
        let end = offset.saturating_add(count as u64).min(file.len());
        let mut bytes = Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0).min(count));
        file.copy_keeping((offset, end), &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        self.note(content, file, offset, offset + bytes.len() as u64);
        Ok(bytes)
    }

    /// The first offset from `offset` on that is in a hole if `in_hole`, else in data. The end is a hole.
    ///
    /// # Errors
    /// Those of reading recipes.
    pub(super) fn seek(&self, content: ContentReference, offset: u64, in_hole: bool) -> Result<Option<u64>> {
        let (len, file) = (content.content_len(), self.reader.content(content));
        let mut at = offset;
        while let Some(range) = file.locate(at)? {
            if range.chunk.is_none() == in_hole {
                return Ok(Some(at));
            }
            at = range.end();
        }
        Ok((in_hole && offset < len).then_some(len))
    }

    /// Notes a read, and has the thread read ahead if it was sequential.
    fn note(&self, content: ContentReference, file: StoredFile, from: u64, to: u64) {
        let Some(fingerprint) = content.fingerprint() else { return };
        let before = self.ends.lock().put(fingerprint, to);
        let is_sequential = before == Some(from) && to > from;
        if is_sequential && let Some(queue) = &self.readahead {
            // The thread is busy with an earlier request if the queue is full.
            let _ = queue.try_send(ReadaheadRequest { file, from: to });
        }
    }
}

impl Drop for ReadFiles {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        drop(self.readahead.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
