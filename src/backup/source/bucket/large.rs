//! Objects that are read in ranges, and new models: their content is sent before their entries.

use std::sync::Arc;

use super::examine::ExaminedObject;
use super::list::BucketListStage;
use super::message::{ATTEMPTS_MAX, BucketBatch, ObjectFailure, ObjectItem, OpenObject};
use super::placed::PlacedObject;
use crate::backup::changes::EntryChange;
use crate::backup::message::TreeItem;
use crate::backup::source::reading::{announced, bytes_at_once};
use crate::error::{Error, Result};
use crate::model::{DefectReporting, HOISTED_BYTES_MAX, HoistCandidate, ModelFile, storing_order};
use crate::pipeline::Emit;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::Node;
use crate::store::map_parallel;

/// Objects that are looked at at once.
pub const EXAMINED_AT_ONCE: usize = 8;

/// An object whose content is sent before its entry.
pub struct LargeObject {
    /// The object.
    pub placed: PlacedObject,
    /// Its entry.
    pub node: Node,
    /// Content of the file in the parent snapshot.
    pub previous_version: Option<ContentReference>,
    /// As what it has been counted.
    pub change: EntryChange,
    /// Whether it was sent, or why it could not be.
    pub sent: Option<Result<Arc<OpenObject>, ObjectFailure>>,
    /// How often it was looked at.
    pub attempts: u32,
}

impl BucketListStage<'_> {
    /// Sends the content of an object from its begin item to its end item.
    fn send_content(
        &mut self,
        placed: &PlacedObject,
        examined: ExaminedObject,
        node: &Node,
        previous_version: Option<ContentReference>,
        emit: &mut Emit<BucketBatch>,
    ) -> Result<Arc<OpenObject>> {
        let ExaminedObject { state, model } = examined;
        let size = state.size;
        let open = Arc::new(OpenObject::new(&placed.object.key, state, model.clone()));
        self.push_tree(TreeItem::Hoisted(Box::new(node.clone())), emit)?;
        if let Some(item) = announced(model.as_ref(), previous_version, size) {
            self.push(ObjectItem::Ready(item), emit)?;
        }
        let record = model.as_ref().map(|model| &model.record);
        let mut start = 0;
        while start < size && !open.has_failed() {
            emit.check()?;
            let len = bytes_at_once(record, start, self.request_bytes).min(size - start);
            self.push(ObjectItem::range(&open, start..start + len), emit)?;
            start += len;
        }
        self.push(ObjectItem::End(open.clone()), emit)?;
        Ok(open)
    }

    /// Looks at the objects that were not sent yet, several at once, and sends them.
    pub(super) fn send_large(&mut self, mut larges: Vec<&mut LargeObject>, emit: &mut Emit<BucketBatch>) -> Result<()> {
        for group in larges.chunks_mut(EXAMINED_AT_ONCE) {
            emit.check()?;
            let search = self.search.clone();
            let tasks: Vec<_> =
                group.iter().map(|large| (&large.placed, large.previous_version, large.attempts)).collect();
            let examined = map_parallel(EXAMINED_AT_ONCE, &tasks, |(placed, previous, attempts)| {
                let fingerprint = previous.and_then(ContentReference::fingerprint);
                search.examine(placed, *attempts == 0, fingerprint, DefectReporting::Warn)
            });
            for (large, examined) in group.iter_mut().zip(examined) {
                large.attempts += 1;
                let sent = match examined {
                    Ok(examined) => {
                        self.complete(&mut large.node, &large.placed, Some(&examined.state));
                        Ok(self.send_content(&large.placed, examined, &large.node, large.previous_version, emit)?)
                    }
                    Err(failure) => Err(failure),
                };
                large.sent = Some(sent);
            }
        }
        Ok(())
    }

    /// Sends the entry of an object whose content was sent, once that has been read. What was replaced meanwhile is
    /// sent again.
    pub(super) fn finish_large(&mut self, mut large: LargeObject, emit: &mut Emit<BucketBatch>) -> Result<()> {
        loop {
            let failure = match large.sent.take() {
                Some(Ok(open)) => {
                    if self.wait(&open.sent, emit)? {
                        return self.push_tree(TreeItem::Linked(Box::new(large.node), open.sent.clone()), emit);
                    }
                    let lost = || ObjectFailure::Error(Error::internal("an object was not read, and nobody says why"));
                    open.take_failure().unwrap_or_else(lost)
                }
                Some(Err(failure)) => failure,
                None => ObjectFailure::Replaced,
            };
            if matches!(failure, ObjectFailure::Replaced) && large.attempts < ATTEMPTS_MAX {
                self.send_large(vec![&mut large], emit)?;
                continue;
            }
            let problem = self.search.problem(&large.placed, failure)?;
            self.problem(&problem);
            self.counts.changes.take_back(large.change);
            return self.push_tree(TreeItem::Omitted, emit);
        }
    }

    /// Sends the content of new models before everything else, bases first.
    pub(super) fn send_models(&mut self, emit: &mut Emit<BucketBatch>) -> Result<()> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain(|placed| self.is_chosen(placed) && !self.parents.is_older(&self.node_of(placed)));
        let (mut models, mut bytes) = (Vec::new(), 0);
        for group in candidates.chunks(EXAMINED_AT_ONCE) {
            emit.check()?;
            let search = self.search.clone();
            let examined = map_parallel(EXAMINED_AT_ONCE, group, |placed| {
                search.examine(placed, true, None, DefectReporting::Silent)
            });
            for (placed, examined) in group.iter().zip(examined) {
                // The walk meets the object again and then reports what is wrong with it.
                let Ok(ExaminedObject { state, model: Some(model) }) = examined else { continue };
                let Some(ModelFile { record, .. }) = Arc::into_inner(model) else { continue };
                bytes += record.memory_bytes();
                let mut node = self.node_of(placed);
                self.complete(&mut node, placed, Some(&state));
                models.push((HoistCandidate { path: placed.path.clone().into(), node, record }, placed, state));
            }
            if bytes > HOISTED_BYTES_MAX {
                break;
            }
        }
        if models.len() < 2 {
            return Ok(());
        }
        let mut objects = std::collections::HashMap::new();
        let mut files = Vec::new();
        for (candidate, placed, state) in models {
            objects.insert(candidate.path.clone(), (placed, state));
            files.push(candidate);
        }
        for HoistCandidate { path, node, record } in storing_order(files) {
            let Some((placed, state)) = objects.remove(&path) else { continue };
            let model = Some(Arc::new(ModelFile { record, previous_version: None }));
            let open = self.send_content(placed, ExaminedObject { state, model }, &node, None, emit)?;
            self.hoisted.insert(placed.path.clone(), (placed.object.clone(), node, open));
        }
        Ok(())
    }

    /// The content of this object, if it was sent before the walk.
    pub(super) fn take_hoisted(&mut self, placed: &PlacedObject) -> Option<(Node, Arc<OpenObject>)> {
        let (object, node, open) = self.hoisted.remove(&placed.path)?;
        (object == placed.object).then_some((node, open))
    }
}
