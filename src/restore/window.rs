//! The window of Order: chunks that were found and not sent yet, and the job that is being filled.
//!
//! While all frames fit into half of the cache, the window stays empty, because nothing is evicted. After that it grows
//! by three items of four, so that the later stages have work meanwhile.

use std::sync::Arc;

use super::frame_cache::FrameSource;
use super::item_order::{ItemOrder, Leaving, UsesFrames};
use super::message::{FinishedEntry, FrameLoad, RestoreCounts, RestoreJob, WriteChunk};
use crate::error::{Error, Result};
use crate::pipeline::Emit;
use crate::repo::container::{FrameInfo, FrameNumber};
use crate::repo::index::Resolver;
use crate::types::ContainerId;

/// When a job is sent.
#[derive(Debug, Clone, Copy)]
pub struct JobSize {
    /// Once it has this many bytes to write.
    bytes: u64,
    /// Once its frames decode to this many bytes.
    load_bytes: u64,
    /// Once it has this many complete files.
    files: usize,
}

impl JobSize {
    /// Jobs for a store that takes `requests_max` requests at once. The frames of a job are read together, and each
    /// request to a remote store takes long.
    pub fn of_store(requests_max: usize) -> Self {
        match requests_max {
            1 => JobSize { bytes: 1 << 20, load_bytes: 4 << 20, files: 16 },
            _ => JobSize { bytes: 4 << 20, load_bytes: 8 << 20, files: 128 },
        }
    }
}

/// The window takes at most one part in this many of the cache's bytes.
const WINDOW_SHARE: u64 = 5;

/// An item of the window.
enum WindowItem {
    Write(WriteChunk),
    Finished(FinishedEntry),
}

impl WindowItem {
    /// Memory of the item, bytes.
    fn bytes(&self) -> u64 {
        let extents = if let WindowItem::Write(write) = self { write.extent_map.memory_bytes() } else { 0 };
        (size_of::<WindowItem>() + extents) as u64
    }
}

impl UsesFrames for WindowItem {
    fn frames(&self) -> &[FrameNumber] {
        if let WindowItem::Write(write) = self { write.extent_map.frames() } else { &[] }
    }
}

/// The window and the job.
pub struct RestoreWindow {
    counts: Arc<RestoreCounts>,
    job: RestoreJob,
    items: ItemOrder<(ContainerId, FrameInfo), WindowItem>,
    /// Memory of the items. It counts against `cache_bytes_max`.
    bytes: u64,
    cache_bytes_max: u64,
    job_size: JobSize,
    entered: u64,
}

impl RestoreWindow {
    /// An empty window, which sends jobs of `job_size`. Frames and items take at most `cache_bytes_max` bytes.
    pub fn new(cache_bytes_max: u64, job_size: JobSize, counts: Arc<RestoreCounts>) -> Self {
        let (job, items) = (RestoreJob { number: 1, ..RestoreJob::default() }, ItemOrder::default());
        RestoreWindow { counts, job, items, bytes: 0, cache_bytes_max, job_size, entered: 0 }
    }

    /// Adds a chunk to write.
    ///
    /// # Errors
    /// Errors of finding its frames; the chunk has not entered then. Errors of sending a job.
    pub fn write(&mut self, write: WriteChunk, resolver: &mut Resolver, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let item = WindowItem::Write(write);
        let bytes = item.bytes();
        self.items.push(item, |frame| {
            let (container, info) = resolver.frame_info(frame)?;
            let bytes = u64::from(info.raw_len);
            Ok(FrameSource { location: (container, info), bytes })
        })?;
        self.entered(bytes, emit)
    }

    /// Adds an entry that is complete after all chunks before it.
    ///
    /// # Errors
    /// Errors of sending a job.
    pub fn finished(&mut self, entry: FinishedEntry, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let item = WindowItem::Finished(entry);
        let bytes = item.bytes();
        self.items.push(item, |_| Err(Error::internal("the end of a file uses a frame")))?;
        self.entered(bytes, emit)
    }

    fn entered(&mut self, bytes: u64, emit: &mut Emit<RestoreJob>) -> Result<()> {
        self.bytes += bytes;
        self.entered += 1;
        if self.entered.is_multiple_of(4) || self.items.cached_bytes() <= self.cache_bytes_max / 2 {
            self.pop(emit)?;
        }
        while self.bytes > self.cache_bytes_max / WINDOW_SHARE {
            self.pop(emit)?;
        }
        Ok(())
    }

    /// Moves the next item into the job, and sends the job when it is full. Returns whether the item was the end of a
    /// file.
    fn pop(&mut self, emit: &mut Emit<RestoreJob>) -> Result<bool> {
        let Some(Leaving { item, loads }) = self.items.next() else { return Ok(false) };
        let is_end = matches!(item, WindowItem::Finished(_));
        self.bytes -= item.bytes();
        for (frame, FrameSource { location: (container, info), bytes }) in loads {
            self.job.load_bytes += bytes;
            self.counts.frames.add(1);
            self.counts.frame_bytes.add(bytes);
            self.job.loads.push(FrameLoad::new(frame, container, info));
        }
        match item {
            WindowItem::Finished(entry) => self.job.finished.push(entry),
            WindowItem::Write(write) => {
                write.file.enter_job(self.job.number);
                self.job.bytes += u64::from(write.extent_map.len());
                self.job.writes.push(write);
            }
        }
        let RestoreJob { bytes, load_bytes, finished, .. } = &self.job;
        let size = &self.job_size;
        let is_full = *bytes >= size.bytes || *load_bytes >= size.load_bytes || finished.len() >= size.files;
        if is_full {
            self.flush(emit)?;
        }
        Ok(is_end)
    }

    /// Sends half of the window, and more if it has no complete file.
    ///
    /// # Errors
    /// Errors of sending a job.
    pub fn flush_half(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let half = self.items.len() / 2;
        let mut any_finished = !self.job.finished.is_empty();
        while self.items.len() > half || (!any_finished && !self.items.is_empty()) {
            any_finished |= self.pop(emit)?;
        }
        self.flush(emit)
    }

    /// Sends everything.
    ///
    /// # Errors
    /// Errors of sending a job.
    pub fn flush_all(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        while !self.items.is_empty() {
            emit.check()?;
            self.pop(emit)?;
        }
        self.flush(emit)
    }

    fn flush(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let next = RestoreJob { number: self.job.number + 1, ..RestoreJob::default() };
        let mut job = std::mem::replace(&mut self.job, next);
        job.evicted = self.items.evict(self.cache_bytes_max.saturating_sub(self.bytes));
        emit.emit(job)
    }
}
