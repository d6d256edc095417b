//! Threads that decode what sequential readers will want.
//!
//! 1. A reader is sequential if its read touches what was read before. Drivers answer reads on several threads, so
//!    they come in any order.
//! 2. What follows, up to half of what it has read and [`READAHEAD_BYTES`], is cut into requests. Each is the work of
//!    one thread, so one reader has all cores. Short reads at random offsets are not read ahead of.
//! 3. The queue is bounded. What finds it full is requested after the next read.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::repo::read::StoredFile;
use crate::types::Fingerprint;

/// Bytes that are read ahead of a sequential reader.
const READAHEAD_BYTES: u64 = 4 << 20;
/// Bytes that one thread reads ahead at once.
const REQUEST_BYTES: u64 = 512 << 10;
/// Sequences of reads that are remembered.
const SEQUENCES_MAX: usize = 64;
/// Requests that wait, at most. What they decode to fits into the cache.
const REQUESTS_MAX: usize = 64;
/// Threads, at most.
const THREADS_MAX: usize = 8;

/// Reads ahead. Dropping it ends the threads.
pub(super) struct ReadaheadThreads {
    /// Closed to end the threads.
    queue: Option<Sender<ReadaheadRequest>>,
    threads: Vec<JoinHandle<()>>,
    stops: Arc<AtomicBool>,
    sequences: Mutex<ReadSequences>,
}

/// A range of a file that is to be decoded.
struct ReadaheadRequest {
    file: StoredFile,
    range: (u64, u64),
}

/// What was read lately. The last sequence is the one that was read last.
#[derive(Default)]
struct ReadSequences(VecDeque<ReadSequence>);

/// A range of a content that reads without gaps have covered.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ReadSequence {
    content: Fingerprint,
    start: u64,
    end: u64,
    /// Up to where requests were queued.
    asked: u64,
}

/// Errors are left to the reader that needs the chunk.
fn serve_requests(requests: &Receiver<ReadaheadRequest>, stops: &AtomicBool) {
    while let Ok(ReadaheadRequest { file, range }) = requests.recv() {
        if let Err(error) = file.prefetch(range, || stops.load(Ordering::Relaxed)) {
            tracing::debug!("cannot read ahead: {error}");
        }
    }
}

impl ReadaheadThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started.
    pub(super) fn new() -> Result<Self> {
        let (queue, requests) = bounded(REQUESTS_MAX);
        let stops = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut readahead =
            ReadaheadThreads { queue: Some(queue), threads: Vec::new(), stops, sequences: Mutex::default() };
        for _ in 0..cores.min(THREADS_MAX) {
            let (requests, stops) = (requests.clone(), readahead.stops.clone());
            let thread = std::thread::Builder::new().name("read ahead".into());
            let thread = thread.spawn(move || serve_requests(&requests, &stops));
            readahead.threads.push(thread.map_err(|error| Error::io("start", "a thread", error))?);
        }
        Ok(readahead)
    }

    /// Notes that bytes `from` to `to` (exclusive) of a content are being read, and reads ahead if that is sequential.
    pub(super) fn note(&self, content: Fingerprint, file: &StoredFile, (from, to): (u64, u64)) {
        if let Some(queue) = &self.queue
            && let Some(sequence) = self.sequences.lock().add(content, (from, to))
        {
            sequence.ask(file.len(), |range| queue.try_send(ReadaheadRequest { file: file.clone(), range }).is_ok());
        }
    }
}

impl Drop for ReadaheadThreads {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl ReadSequences {
    /// Adds a read to the sequences that it extends. Returns the sequence if there was one. A read within a sequence
    /// begins a new one instead: the reader has begun again.
    fn add(&mut self, content: Fingerprint, (from, to): (u64, u64)) -> Option<&mut ReadSequence> {
        let mut sequence = ReadSequence { content, start: from, end: to, asked: to };
        let mut is_sequential = false;
        self.0.retain(|known| {
            let touches = known.content == content && known.start <= to && known.end >= from;
            let is_new = known.start > from || known.end < to;
            if touches && is_new {
                (sequence.start, sequence.end) = (sequence.start.min(known.start), sequence.end.max(known.end));
                sequence.asked = sequence.asked.max(known.asked);
                is_sequential = true;
            }
            !touches
        });
        if self.0.len() >= SEQUENCES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sequence);
        self.0.back_mut().filter(|_| is_sequential)
    }
}

impl ReadSequence {
    /// Passes the next requests of a content of `len` bytes to `queue`, until that has no space.
    fn ask(&mut self, len: u64, mut queue: impl FnMut((u64, u64)) -> bool) {
        let distance = ((self.end - self.start) / 2).min(READAHEAD_BYTES);
        let until = self.end.saturating_add(distance).min(len);
        while self.asked < until {
            let end = self.asked.saturating_add(REQUEST_BYTES).min(len);
            if end > until || !queue((self.asked, end)) {
                return;
            }
            self.asked = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(sequence: &mut ReadSequence, len: u64, space: usize) -> Vec<(u64, u64)> {
        let mut requests = Vec::new();
        sequence.ask(len, |request| {
            let has_space = requests.len() < space;
            if has_space {
                requests.push(request);
            }
            has_space
        });
        requests
    }

    #[test]
    fn reads_in_any_order_become_one_sequence() {
        let (mut sequences, content) = (ReadSequences::default(), Fingerprint([1; 32]));
        assert!(sequences.add(content, (0, 10)).is_none());
        assert!(sequences.add(content, (20, 30)).is_none(), "it may be anywhere");
        assert!(sequences.add(Fingerprint([2; 32]), (10, 20)).is_none(), "of another content");
        let sequence = sequences.add(content, (10, 20)).copied();
        assert_eq!(sequence, Some(ReadSequence { content, start: 0, end: 30, asked: 30 }));
        assert_eq!(sequences.0.len(), 2);
        for at in 0..1000 {
            assert!(sequences.add(content, (100 + 20 * at, 110 + 20 * at)).is_none(), "random reads");
        }
        assert_eq!(sequences.0.len(), SEQUENCES_MAX);
    }

    #[test]
    fn a_reader_that_begins_again_is_read_ahead_of_again() {
        let (mut sequences, content) = (ReadSequences::default(), Fingerprint([1; 32]));
        for at in 0..4 {
            assert_eq!(sequences.add(content, (at * 10, at * 10 + 10)).is_some(), at > 0);
        }
        assert!(sequences.add(content, (0, 10)).is_none());
        let sequence = sequences.add(content, (10, 20)).copied();
        assert_eq!(sequence, Some(ReadSequence { content, start: 0, end: 20, asked: 20 }));
    }

    #[test]
    fn each_range_is_requested_once_and_again_if_there_was_no_space() {
        let len = 10 * READAHEAD_BYTES - 1;
        let read = 2 * READAHEAD_BYTES;
        let mut sequence = ReadSequence { content: Fingerprint([1; 32]), start: 0, end: read, asked: read };
        let first = requests(&mut sequence, len, 3);
        assert_eq!(first.iter().map(|(from, to)| to - from).collect::<Vec<_>>(), [REQUEST_BYTES; 3]);
        let more = requests(&mut sequence, len, 100);
        assert_eq!(more.first().map(|(from, _)| *from), Some(read + 3 * REQUEST_BYTES));
        assert_eq!(first.len() + more.len(), (READAHEAD_BYTES / REQUEST_BYTES) as usize);
        assert_eq!(requests(&mut sequence, len, 100), []);
        sequence.end = len - REQUEST_BYTES;
        assert_eq!(requests(&mut sequence, len, 100).last().map(|(_, to)| *to), Some(len));
        assert_eq!(requests(&mut sequence, len, 100), []);
        let mut short = ReadSequence {
            start: read,
            end: read + 2 * REQUEST_BYTES - 1,
            asked: read + 2 * REQUEST_BYTES - 1,
            ..sequence
        };
        assert_eq!(requests(&mut short, len, 100), [], "two reads side by side may be random");
    }
}
