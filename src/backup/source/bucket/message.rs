//! What List asks of Fetch, and what the two share of an object.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::placed::PlacedObject;
use crate::backup::changes::EntryChange;
use crate::backup::message::ReadItem;
use crate::backup::sent::SentFile;
use crate::error::Error;
use crate::model::ModelFile;
use crate::pipeline::Weigh;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::Node;
use crate::store::ObjectState;

/// How often an object is read that is replaced meanwhile.
pub const ATTEMPTS_MAX: u32 = 3;

/// From List to Fetch.
pub enum ObjectItem {
    /// An item that needs no reading.
    Ready(ReadItem),
    /// An object to read in one piece.
    Whole(Box<WholeObject>),
    /// A range of an object.
    Range(ObjectRangeToRead),
    /// The end of an object. All its ranges were sent before.
    End(Arc<OpenObject>),
}

/// An object to read in one piece.
pub struct WholeObject {
    /// The object.
    pub placed: PlacedObject,
    /// Its entry.
    pub node: Node,
    /// Content of the file in the parent snapshot.
    pub previous_version: Option<ContentReference>,
    /// As what List has counted it.
    pub change: EntryChange,
}

/// A range of an object.
pub struct ObjectRangeToRead {
    /// The object.
    pub object: Arc<OpenObject>,
    /// Offsets of the first byte and behind the last one.
    pub range: Range<u64>,
}

/// Why an object was not read whole.
#[derive(Debug)]
pub enum ObjectFailure {
    /// It is another one now.
    Replaced,
    /// It cannot be read.
    Error(Error),
}

/// An object that several workers read.
pub struct OpenObject {
    /// Its key.
    pub key: String,
    /// What all ranges must be of.
    pub state: ObjectState,
    /// Its record, if it is a model.
    pub model: Option<Arc<ModelFile>>,
    /// What its entry refers to.
    pub sent: SentFile,
    reading: Mutex<ObjectReading>,
    all_read: Condvar,
}

#[derive(Default)]
struct ObjectReading {
    /// Ranges that were sent and not read yet.
    open_ranges: usize,
    failure: Option<ObjectFailure>,
}

/// A batch of items from List.
#[derive(Default)]
pub struct BucketBatch {
    /// Items in stream order.
    pub items: Vec<ObjectItem>,
    /// Bytes to read.
    pub bytes: u64,
    /// Objects to read in one piece.
    pub objects: usize,
}

impl Weigh for BucketBatch {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl BucketBatch {
    /// Appends an item.
    pub fn push(&mut self, item: ObjectItem) {
        match &item {
            ObjectItem::Whole(whole) => {
                self.objects += 1;
                self.bytes += whole.placed.object.size;
            }
            ObjectItem::Range(range) => self.bytes += range.range.end - range.range.start,
            ObjectItem::Ready(_) | ObjectItem::End(_) => {}
        }
        self.items.push(item);
    }
}

impl OpenObject {
    /// An object of which nothing has been read.
    pub fn new(key: &str, state: ObjectState, model: Option<Arc<ModelFile>>) -> Self {
        let (sent, reading, all_read) = (SentFile::default(), Mutex::default(), Condvar::new());
        OpenObject { key: key.into(), state, model, sent, reading, all_read }
    }

    /// Whether a part of it could not be read.
    pub fn has_failed(&self) -> bool {
        self.reading.lock().failure.is_some()
    }

    /// Notes why a part of it could not be read. The first failure counts.
    pub fn fail(&self, failure: ObjectFailure) {
        self.reading.lock().failure.get_or_insert(failure);
    }

    /// Takes the failure.
    pub fn take_failure(&self) -> Option<ObjectFailure> {
        self.reading.lock().failure.take()
    }

    /// Waits until all ranges have been read. They are before the end in the stream, so other workers have them
    /// already, and none of them waits for this one.
    pub fn wait_for_ranges(&self) {
        self.all_read.wait_while(&mut self.reading.lock(), |reading| reading.open_ranges > 0);
    }
}

impl ObjectItem {
    /// The task to read a range of `object`.
    pub fn range(object: &Arc<OpenObject>, range: Range<u64>) -> Self {
        object.reading.lock().open_ranges += 1;
        ObjectItem::Range(ObjectRangeToRead { object: object.clone(), range })
    }
}

impl Drop for ObjectRangeToRead {
    fn drop(&mut self) {
        let mut reading = self.object.reading.lock();
        reading.open_ranges -= 1;
        if reading.open_ranges == 0 {
            self.object.all_read.notify_all();
        }
    }
}

impl Drop for OpenObject {
    fn drop(&mut self) {
        self.sent.end(false);
    }
}
