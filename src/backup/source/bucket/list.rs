//! List: compares the objects of a listing with the parents, and says what is to be read.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::choice::ObjectChoice;
use super::entry::complete;
use super::examine::ModelSearch;
use super::list_file::ELSEWHERE;
use super::listing::PlacedObjects;
use super::message::{BucketBatch, ObjectItem, OpenObject};
use super::placed::PlacedObject;
use super::split::ObjectShare;
use crate::backup::counts::ReadCounts;
use crate::backup::message::{ITEMS_MAX, ReadItem, TreeItem};
use crate::backup::sent::SentFile;
use crate::backup::source::parents::ParentCursors;
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::pipeline::{Emit, Source};
use crate::repo::tree::{Node, NodeKind};
use crate::store::{ListedObject, ObjectState};

/// Objects of a batch, at most: more would leave other workers idle.
const OBJECTS_MAX: usize = 4;
/// Permissions of files.
const FILE_MODE: u32 = 0o644;
/// Time between two looks at an object that others read.
const PATIENCE: Duration = Duration::from_millis(20);

/// The stage.
pub struct BucketListStage<'a> {
    pub(super) search: Arc<ModelSearch>,
    pub(super) objects: PlacedObjects,
    /// New models may be among these.
    pub(super) candidates: Vec<PlacedObject>,
    choice: ObjectChoice,
    /// The share of the work, if this is one.
    share: Option<ObjectShare>,
    pub(super) parents: ParentCursors,
    /// Names of the directories that are open.
    pub(super) open: Vec<String>,
    /// Path of what was left out last; empty if nothing was.
    pub(super) omitted: String,
    /// What all nodes share.
    pub(super) template: Node,
    /// Models that were sent before the walk, by path.
    pub(super) hoisted: HashMap<String, (ListedObject, Node, Arc<OpenObject>)>,
    /// Bytes that a request asks for, at most.
    pub(super) request_bytes: u64,
    batch: BucketBatch,
    pub(super) progress: &'a Progress,
    pub(super) counts: Arc<ReadCounts>,
}

impl<'a> BucketListStage<'a> {
    /// Walks the `objects` of a listing, among which `candidates` may be new models.
    pub fn new(
        search: Arc<ModelSearch>,
        (objects, candidates): (PlacedObjects, Vec<PlacedObject>),
        (choice, share): (ObjectChoice, Option<ObjectShare>),
        mut parents: ParentCursors,
        request_bytes: u64,
        (progress, counts): (&'a Progress, Arc<ReadCounts>),
    ) -> Self {
        parents.count_into(&counts);
        parents.watch(Path::new(""));
        let template = Node {
            kind: NodeKind::File,
            mode: FILE_MODE,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            ..Node::default()
        };
        BucketListStage {
            search,
            objects,
            candidates,
            choice,
            share,
            parents,
            open: Vec::new(),
            omitted: String::new(),
            template,
            hoisted: HashMap::new(),
            request_bytes,
            batch: BucketBatch::default(),
            progress,
            counts,
        }
    }

    pub(super) fn push(&mut self, item: ObjectItem, emit: &mut Emit<BucketBatch>) -> Result<()> {
        self.batch.push(item);
        let BucketBatch { items, bytes, objects } = &self.batch;
        let is_full = *bytes >= self.request_bytes || items.len() >= ITEMS_MAX || *objects >= OBJECTS_MAX;
        if is_full { self.flush(emit) } else { Ok(()) }
    }

    pub(super) fn push_tree(&mut self, item: TreeItem, emit: &mut Emit<BucketBatch>) -> Result<()> {
        self.push(ObjectItem::Ready(ReadItem::Tree(item)), emit)
    }

    fn flush(&mut self, emit: &mut Emit<BucketBatch>) -> Result<()> {
        if self.batch.items.is_empty() { Ok(()) } else { emit.emit(std::mem::take(&mut self.batch)) }
    }

    /// Waits until an object has been read. Returns whether it was read whole.
    pub(super) fn wait(&mut self, sent: &SentFile, emit: &mut Emit<BucketBatch>) -> Result<bool> {
        if let Some(is_whole) = sent.is_shareable(Duration::ZERO) {
            return Ok(is_whole);
        }
        // Its end may be in the batch that is not sent yet.
        self.flush(emit)?;
        loop {
            if let Some(is_whole) = sent.is_shareable(PATIENCE) {
                return Ok(is_whole);
            }
            emit.check()?;
        }
    }

    pub(super) fn problem(&self, error: &Error) {
        self.counts.problem(error, self.progress);
    }

    /// Whether an object is of the repository.
    pub(super) fn is_own(&self, placed: &PlacedObject) -> bool {
        self.choice.is_own(&placed.object)
    }

    /// Whether an object is to be stored.
    pub(super) fn is_chosen(&self, placed: &PlacedObject) -> bool {
        self.choice.takes(&placed.path, &placed.object, placed.is_directory)
    }

    /// Whether an object falls to another share of the work.
    pub(super) fn is_elsewhere(&self, placed: &PlacedObject) -> bool {
        let url = self.search.bucket.url();
        placed.defect == Some(ELSEWHERE) || self.share.as_ref().is_some_and(|share| !share.has(url, placed))
    }

    /// Notes in an entry what is known of its object.
    pub(super) fn complete(&self, node: &mut Node, placed: &PlacedObject, state: Option<&ObjectState>) {
        complete(node, placed, self.search.bucket.prefix(), state);
    }
}

impl Source for BucketListStage<'_> {
    type Out = BucketBatch;

    fn name(&self) -> &'static str {
        "list"
    }

    fn run(&mut self, emit: &mut Emit<BucketBatch>) -> Result<()> {
        self.send_models(emit)?;
        let former = self.former().into_iter().collect();
        self.send_steps(former, emit)?;
        let mut steps = self.take_steps(emit)?;
        while !steps.is_empty() {
            // So their content is on its way while that of the steps before is awaited.
            let next = self.take_steps(emit)?;
            self.send_steps(std::mem::replace(&mut steps, next), emit)?;
        }
        let last = self.leave_all();
        self.send_steps(last, emit)?;
        // What the parents have in the root behind the last entry.
        self.parents.leave();
        self.flush(emit)
    }
}
