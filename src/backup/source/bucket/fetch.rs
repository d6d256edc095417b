//! Fetch: reads the objects and ranges that List names, several at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::entry::complete;
use super::examine::ModelSearch;
use super::message::{
    ATTEMPTS_MAX, BucketBatch, ObjectFailure, ObjectItem, ObjectRangeToRead, OpenObject, WholeObject,
};
use crate::backup::counts::ReadCounts;
use crate::backup::message::{Outcome, ReadBatch, ReadItem, TreeItem};
use crate::backup::scan::AnchorScanner;
use crate::backup::source::reading::{announced, bytes_at_once};
use crate::error::{ErrorKind, Result};
use crate::metrics::Progress;
use crate::model::{DefectReporting, ModelRecord};
use crate::pipeline::Map;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::HoleMap;
use crate::store::{ExpectedObject, Fetched, ObjectRange};

/// A worker of the stage.
pub struct ObjectFetcher<'a> {
    /// Where the objects are, and how models are recognised.
    pub search: Arc<ModelSearch>,
    /// Bytes that a request asks for, at most.
    pub request_bytes: u64,
    /// Bytes of a data item, at most.
    pub data_bytes: u64,
    /// Counters for the progress display.
    pub progress: &'a Progress,
    /// Counters of the run.
    pub counts: Arc<ReadCounts>,
    /// Finds anchors.
    pub scanner: AnchorScanner,
}

impl ObjectFetcher<'_> {
    /// Reads an object in one piece. Fails only if the run is to stop.
    fn whole(&self, mut whole: WholeObject, batch: &mut ReadBatch) -> Result<()> {
        self.progress.current.set(std::path::Path::new(&whole.placed.path));
        let found = match self.attempts(&whole) {
            Ok(found) => found,
            Err(failure) => return self.failed(&whole, failure, batch),
        };
        complete(&mut whole.node, &whole.placed, self.search.bucket.prefix(), Some(&found.state));
        let fingerprint = whole.previous_version.and_then(ContentReference::fingerprint);
        let (len, reporting) = (found.state.size, DefectReporting::Warn);
        let model = match self.search.model(&whole.placed, &found.bytes, len, fingerprint, reporting) {
            Ok(model) => model,
            Err(error) => return self.failed(&whole, ObjectFailure::Error(error), batch),
        };
        batch.items.push(ReadItem::Tree(TreeItem::Begin(Box::new(whole.node))));
        batch.items.extend(announced(model.as_ref(), whole.previous_version, len));
        self.append(found.bytes, 0, model.as_ref().map(|model| &model.record), batch);
        batch.items.push(end_of(Outcome::Complete, None));
        Ok(())
    }

    /// Reads an object until it is not replaced meanwhile.
    fn attempts(&self, whole: &WholeObject) -> Result<ObjectRange, ObjectFailure> {
        let object = &whole.placed.object;
        for attempt in 0..ATTEMPTS_MAX {
            let listed = object.expected();
            let (wanted, len) = match attempt {
                0 => (ExpectedObject::Same(&listed), object.size),
                _ => (ExpectedObject::SameOrNewer(&listed), self.request_bytes),
            };
            match self.search.bucket.fetch(&object.key, 0..len, wanted).map_err(ObjectFailure::Error)? {
                // One that has grown beyond a request is left to the next backup.
                Fetched::Range(found) if found.bytes.len() as u64 == found.state.size => return Ok(found),
                Fetched::Range(_) | Fetched::Replaced => {}
            }
        }
        Err(ObjectFailure::Replaced)
    }

    fn failed(&self, whole: &WholeObject, failure: ObjectFailure, batch: &mut ReadBatch) -> Result<()> {
        let problem = self.search.problem(&whole.placed, failure)?;
        self.counts.problem(&problem, self.progress);
        self.counts.changes.take_back(whole.change);
        batch.items.push(ReadItem::Tree(TreeItem::Omitted));
        Ok(())
    }

    /// Appends bytes that were read from `offset` on, in items that end where blocks do.
    fn append(&self, bytes: Vec<u8>, offset: u64, model: Option<&ModelRecord>, batch: &mut ReadBatch) {
        self.counts.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.progress.bytes_read.add(bytes.len() as u64);
        batch.bytes += bytes.len() as u64;
        let (mut rest, mut offset, begin) = (Bytes::from(bytes), offset, batch.items.len());
        while !rest.is_empty() {
            let len = bytes_at_once(model, offset, self.data_bytes).clamp(1, rest.len() as u64);
            batch.items.push(ReadItem::Data(rest.split_to(len as usize)));
            offset += len;
        }
        if model.is_none() {
            self.scanner.scan(batch.items.get_mut(begin..).unwrap_or_default());
        }
    }

    /// Reads a range of an object. Fails only if the run is to stop.
    fn range(&self, task: &ObjectRangeToRead, batch: &mut ReadBatch) -> Result<()> {
        let (object, range) = (&task.object, task.range.clone());
        if object.has_failed() {
            return Ok(());
        }
        self.progress.current.set(std::path::Path::new(&object.key));
        let len = range.end - range.start;
        let failure = match self.search.bucket.fetch(&object.key, range.clone(), ExpectedObject::Same(&object.state)) {
            Ok(Fetched::Range(found)) if found.bytes.len() as u64 == len => {
                let record = object.model.as_ref().map(|model| &model.record);
                self.append(found.bytes, range.start, record, batch);
                return Ok(());
            }
            Ok(_) => ObjectFailure::Replaced,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) => ObjectFailure::Error(error),
        };
        object.fail(failure);
        batch.items.push(ReadItem::Broken);
        Ok(())
    }

    fn end(&self, object: &OpenObject, batch: &mut ReadBatch) {
        object.wait_for_ranges();
        let is_whole = !object.has_failed();
        object.sent.end(is_whole);
        let outcome = if is_whole { Outcome::Complete } else { Outcome::Failed };
        batch.items.push(end_of(outcome, Some(object)));
    }
}

fn end_of(outcome: Outcome, object: Option<&OpenObject>) -> ReadItem {
    let sent = object.map(|object| object.sent.clone());
    ReadItem::Tree(TreeItem::End { outcome, small_holes: HoleMap::default(), sent })
}

impl Map for ObjectFetcher<'_> {
    type In = BucketBatch;
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        "fetch"
    }

    fn map(&mut self, input: BucketBatch) -> Result<ReadBatch> {
        let mut batch = ReadBatch { items: Vec::with_capacity(input.items.len()), bytes: 0 };
        for item in input.items {
            match item {
                ObjectItem::Ready(item) => batch.items.push(item),
                ObjectItem::Whole(whole) => self.whole(*whole, &mut batch)?,
                ObjectItem::Range(task) => self.range(&task, &mut batch)?,
                ObjectItem::End(object) => self.end(&object, &mut batch),
            }
        }
        Ok(batch)
    }
}
