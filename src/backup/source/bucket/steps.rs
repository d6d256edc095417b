//! What becomes of the objects of the listing, one after another.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::large::LargeObject;
use super::list::BucketListStage;
use super::message::{BucketBatch, ObjectItem, WholeObject};
use super::placed::PlacedObject;
use crate::backup::changes::{self, EntryChange};
use crate::backup::message::TreeItem;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::Emit;
use crate::repo::tree::{Node, NodeKind};

/// Steps that are taken before the first of them is sent, at most.
const STEPS_MAX: usize = 256;
/// Objects among them that are sent before their entries, at most.
const LARGE_MAX: usize = 32;
/// Permissions of directories.
const DIRECTORY_MODE: u32 = 0o755;

/// What is sent of the listing.
pub enum ListStep {
    /// Structure.
    Tree(TreeItem),
    /// An object to read in one piece.
    Whole(Box<WholeObject>),
    /// An object whose content is sent before this.
    Large(Box<LargeObject>),
}

impl BucketListStage<'_> {
    /// Takes the next steps, and sends the content that comes before all of them. None are left at the end.
    pub(super) fn take_steps(&mut self, emit: &mut Emit<BucketBatch>) -> Result<Vec<ListStep>> {
        let (mut steps, mut large) = (Vec::new(), 0);
        while steps.len() < STEPS_MAX && large < LARGE_MAX {
            emit.check()?;
            let Some(placed) = self.objects.next()? else { break };
            self.step(placed, &mut steps);
            large += usize::from(matches!(steps.last(), Some(ListStep::Large(_))));
        }
        let larges = steps.iter_mut().filter_map(|step| match step {
            ListStep::Large(large) if large.sent.is_none() => Some(&mut **large),
            _ => None,
        });
        let larges = larges.collect();
        self.send_large(larges, emit)?;
        Ok(steps)
    }

    /// Sends the steps.
    pub(super) fn send_steps(&mut self, steps: Vec<ListStep>, emit: &mut Emit<BucketBatch>) -> Result<()> {
        for step in steps {
            match step {
                ListStep::Tree(item) => self.push_tree(item, emit)?,
                ListStep::Whole(whole) => self.push(ObjectItem::Whole(whole), emit)?,
                ListStep::Large(large) => self.finish_large(*large, emit)?,
            }
        }
        Ok(())
    }

    fn step(&mut self, placed: PlacedObject, steps: &mut Vec<ListStep>) {
        if self.is_elsewhere(&placed) {
            return self.omit(placed.path, steps);
        }
        if self.is_own(&placed) {
            tracing::debug!("skipping {}: it is of the repository", self.search.bucket.url_of(&placed.object.key));
            return self.omit(placed.path, steps);
        }
        if !self.is_chosen(&placed) {
            self.counts.excluded.fetch_add(1, Ordering::Relaxed);
            return self.omit(placed.path, steps);
        }
        if let Some(defect) = placed.defect {
            let what = self.search.bucket.url_of(&placed.object.key);
            let error = Error::Remote { action: "store", what, reason: defect.into(), kind: ErrorKind::Failed };
            self.problem(&error);
            self.omit(placed.path, steps);
            return self.parents.ignore();
        }
        self.change_directory(&placed, steps);
        if !placed.is_directory {
            let step = self.file(placed);
            steps.push(step);
        }
    }

    /// Leaves out what is at `path`: the deepest directory of it that is open lacks it, and so will one that is entered
    /// later.
    fn omit(&mut self, path: String, steps: &mut Vec<ListStep>) {
        self.leave_to(&path, steps);
        steps.push(ListStep::Tree(TreeItem::Omitted));
        self.omitted = path;
    }

    /// Leaves directories until all that are open are above `path`.
    fn leave_to(&mut self, path: &str, steps: &mut Vec<ListStep>) {
        let shared = self.open.iter().zip(path.split('/')).take_while(|(open, name)| open.as_str() == *name).count();
        self.leave(shared, steps);
    }

    fn leave(&mut self, depth: usize, steps: &mut Vec<ListStep>) {
        while self.open.len() > depth {
            self.open.pop();
            self.parents.leave();
            steps.push(ListStep::Tree(TreeItem::Leave(None)));
        }
    }

    /// What the listing of the current directory was.
    pub(super) fn former(&self) -> Option<ListStep> {
        self.parents.listing().map(|content| ListStep::Tree(TreeItem::Former(content)))
    }

    /// Leaves all directories.
    pub(super) fn leave_all(&mut self) -> Vec<ListStep> {
        let mut steps = Vec::new();
        self.leave(0, &mut steps);
        steps
    }

    /// Opens the directories of an object.
    fn change_directory(&mut self, placed: &PlacedObject, steps: &mut Vec<ListStep>) {
        let mut names: Vec<&str> = placed.path.split('/').collect();
        if !placed.is_directory {
            names.pop();
        }
        let shared = self.open.iter().zip(&names).take_while(|(open, name)| open == *name).count();
        self.leave(shared, steps);
        // Objects come in the order of a tree, so what these directories lack so far ends with what was left out last.
        let lacking = self.omitted.split('/').zip(&names).take_while(|(omitted, name)| omitted == *name).count();
        let depth = names.len();
        for (at, name) in names.into_iter().enumerate().skip(shared) {
            let mut node = self.node_of(placed);
            let is_marked = placed.is_directory && at + 1 == depth;
            if !is_marked {
                node.extra.clear();
            }
            (node.name, node.kind, node.mode, node.size) = (name.into(), NodeKind::Directory, DIRECTORY_MODE, 0);
            self.open.push(name.into());
            let path = Path::new("").join(self.open.join("/"));
            self.parents.enter(&node);
            if self.parents.change() == EntryChange::New {
                changes::name("+", &path, &node);
            }
            self.parents.watch(&path);
            steps.push(ListStep::Tree(TreeItem::Enter(Box::new(node))));
            steps.extend(self.former());
            if at < lacking {
                steps.push(ListStep::Tree(TreeItem::Omitted));
            }
        }
    }

    fn file(&mut self, placed: PlacedObject) -> ListStep {
        let mut node = self.node_of(&placed);
        let unchanged = self.parents.unchanged(&mut node, false);
        let (change, size) = (self.parents.change(), node.size);
        self.counts.changes.entry(change, Path::new(&placed.path), &node);
        if let Some(content) = unchanged.filter(|content| size == 0 || content.is_some()) {
            node.content = content;
            self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
            self.progress.bytes_skipped.add(size);
            return ListStep::Tree(TreeItem::Entry(Box::new(node)));
        }
        if size == 0 {
            // There is nothing to read.
            return ListStep::Tree(TreeItem::Entry(Box::new(node)));
        }
        let previous_version = self.parents.previous_version();
        if let Some((node, open)) = self.take_hoisted(&placed) {
            let (sent, attempts) = (Some(Ok(open)), 1);
            return ListStep::Large(Box::new(LargeObject { placed, node, previous_version, change, sent, attempts }));
        }
        if size <= self.request_bytes {
            return ListStep::Whole(Box::new(WholeObject { placed, node, previous_version, change }));
        }
        let (sent, attempts) = (None, 0);
        ListStep::Large(Box::new(LargeObject { placed, node, previous_version, change, sent, attempts }))
    }

    /// The entry of an object, as far as the listing knows it.
    pub(super) fn node_of(&self, placed: &PlacedObject) -> Node {
        let name = placed.path.rsplit('/').next().unwrap_or_default();
        let mut node = Node { name: name.into(), ..self.template.clone() };
        self.complete(&mut node, placed, None);
        node
    }
}
