//! Stored: the first stage of a copy, instead of Read. It reads a snapshot of another repository, or of this one, to
//! write it again without what patterns name.
//!
//! - The content of a file that the target has is not read (`in_target`), nor is a chunk that it has.
//! - If both repositories cut alike, chunks travel as they are. Otherwise Chunk cuts the content again.
//! - A directory that is equal to one before is not read (`equal`).
//! - Models are recognised and hoisted as Read does it.
//! - A file whose content is lost in the source is reported, counted and left out.

mod rebuilt;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lru::LruCache;

use super::in_target::FilesInTarget;
use super::reading::{announced, announced_plain};
use super::stored_walk::{StoredStep, StoredWalk};
use crate::backup::counts::ReadCounts;
use crate::backup::equal::{EqualDirectories, EqualDirectory, ReadTally};
use crate::backup::message::{ITEMS_MAX, Outcome, ReadBatch, ReadItem, TreeItem};
use crate::backup::sent::SentFile;
use crate::config::{Config, ModelConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::{Patterns, suggests_model};
use crate::format::HEAD_BYTES;
use crate::metrics::Progress;
use crate::model::{
    CANDIDATES_MAX, CARD, CARD_BYTES_MAX, CONFIGURATIONS, DefectReporting, HOISTED_BYTES_MAX, HoistCandidate,
    MODEL_BYTES_MIN, ModelContent, ModelFile, TOKENIZER, may_be_model, model_content, names, storing_order,
};
use crate::pipeline::{Emit, Source};
use crate::repo::naming::shown_path;
use crate::repo::read::{ChunkReader, Reader, RecipeWalk, at_least_one};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{FileIdentity, HoleMap, Node, NodeKind, TreeCursor};
use crate::types::{Fingerprint, RepositoryKey};

/// Directories that the search for models remembers.
const DIRECTORIES_SEEN_MAX: usize = 1 << 16;

/// A model file that may be hoisted.
struct StoredCandidate {
    path: PathBuf,
    node: Node,
    /// Listing of its directory.
    listing: Option<ContentReference>,
    previous_version: Option<ContentReference>,
}

/// What the stage reads.
pub struct StoredTree {
    /// Listing of the root.
    pub root: Option<ContentReference>,
    /// Entries to leave out.
    pub exclude: Patterns,
    /// Reads the repository that has the tree.
    pub reader: Reader,
    /// Key of the fingerprints in the target.
    pub target_key: RepositoryKey,
    /// What the target has, at the root of the tree.
    pub new_in_target: Box<dyn Fn() -> FilesInTarget + Send>,
}

impl StoredTree {
    /// The first `count` bytes of a file.
    fn head(&self, file: &Node, count: usize) -> Result<Vec<u8>> {
        file.content.map_or(Ok(Vec::new()), |content| self.reader.content(content).head(count))
    }
}

/// The stage.
pub struct StoredStage<'a> {
    stored: StoredTree,
    reader: ChunkReader,
    batch_bytes: u64,
    model: ModelConfig,
    /// Contents of inodes with several names that were sent.
    links: LruCache<FileIdentity, (Option<ContentReference>, SentFile)>,
    /// Contents of hoisted files.
    hoisted: HashMap<FileIdentity, (Option<ContentReference>, SentFile)>,
    /// Directories that were sent.
    equal: EqualDirectories,
    batch: ReadBatch,
    progress: &'a Progress,
    counts: Arc<ReadCounts>,
}

impl<'a> StoredStage<'a> {
    /// Reads `stored`.
    pub fn new(stored: StoredTree, config: &Config, progress: &'a Progress, counts: Arc<ReadCounts>) -> Self {
        StoredStage {
            reader: stored.reader.chunks(),
            equal: EqualDirectories::new(stored.exclude.is_by_name()),
            stored,
            batch_bytes: config.pipeline.batch_bytes.0,
            model: config.model.clone(),
            links: LruCache::new(at_least_one(config.read.hard_links_max)),
            hoisted: HashMap::new(),
            batch: ReadBatch::default(),
            progress,
            counts,
        }
    }

    fn push(&mut self, item: ReadItem, emit: &mut Emit<ReadBatch>) -> Result<()> {
        if let ReadItem::Data(bytes) | ReadItem::Chunk(bytes) = &item {
            self.batch.bytes += bytes.len() as u64;
        }
        self.batch.items.push(item);
        if self.batch.bytes >= self.batch_bytes || self.batch.items.len() >= ITEMS_MAX {
            emit.emit(std::mem::take(&mut self.batch))?;
        }
        Ok(())
    }

    fn tree(&mut self, item: TreeItem, emit: &mut Emit<ReadBatch>) -> Result<()> {
        self.push(ReadItem::Tree(item), emit)
    }

    fn problem(&self, path: &Path, error: &Error) {
        // The root has an empty path.
        let path = if path.as_os_str().is_empty() { Path::new("/") } else { path };
        tracing::warn!("cannot copy {}: {error}", shown_path(path));
        self.counts.problems.fetch_add(1, Ordering::Relaxed);
        self.progress.errors.add(1);
    }

    fn walk(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let (mut walk, mut in_target) = (StoredWalk::new(self.stored.root), (self.stored.new_in_target)());
        let mut steps = 0u64;
        while let Some(step) = walk.next(&mut self.reader)? {
            emit.check()?;
            let has_begun = steps > 0;
            steps += 1;
            self.equal.entry()?;
            if self.is_excluded(&walk, &step) {
                tracing::debug!("excluding {}", walk.path_of(&step).display());
                self.counts.excluded.fetch_add(1, Ordering::Relaxed);
                walk.skip(&step);
                self.tree(TreeItem::Omitted, emit)?;
                continue;
            }
            match step {
                StoredStep::Enter(node) => match self.equal.enter(node.content, self.tally()) {
                    Some(EqualDirectory { sent, tally }) => {
                        self.add(walk.path(), tally);
                        walk.skip_directory();
                        self.tree(TreeItem::Equal(node, sent), emit)?;
                    }
                    None => {
                        in_target.enter(&node);
                        self.tree(TreeItem::Enter(node), emit)?;
                    }
                },
                StoredStep::Leave => {
                    in_target.leave();
                    let sent = self.equal.leave(self.tally());
                    self.tree(TreeItem::Leave(Some(sent)), emit)?;
                }
                StoredStep::Entry(node) if node.kind == NodeKind::File => {
                    self.file(*node, &walk, &mut in_target, emit)?
                }
                StoredStep::Entry(node) => self.tree(TreeItem::Entry(node), emit)?,
                // Without its root, nothing is known of the snapshot.
                StoredStep::Unreadable(error) if !has_begun => return Err(error),
                StoredStep::Unreadable(error) => {
                    self.problem(walk.path(), &error);
                    self.tree(TreeItem::Omitted, emit)?;
                }
            }
        }
        Ok(())
    }

    /// What was counted so far.
    fn tally(&self) -> ReadTally {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ReadCounts { excluded, problems, files_unchanged, .. } = self.counts.as_ref();
        let [excluded, problems, files_unchanged] = [excluded, problems, files_unchanged].map(count);
        ReadTally { excluded, problems, files_unchanged, bytes: self.progress.bytes_read.get() }
    }

    /// Counts what is below a directory that is equal to one before.
    fn add(&self, path: &Path, tally: ReadTally) {
        let ReadCounts { excluded, problems, files_unchanged, .. } = self.counts.as_ref();
        let counts = [(excluded, tally.excluded), (problems, tally.problems), (files_unchanged, tally.files_unchanged)];
        for (counter, more) in counts {
            counter.store(counter.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
        }
        self.progress.bytes_read.add(tally.bytes);
        if tally.problems > 0 {
            tracing::warn!("cannot copy {} entries below {}: as in an equal directory", tally.problems, path.display());
            self.progress.errors.add(tally.problems);
        }
    }

    fn is_excluded(&self, walk: &StoredWalk, step: &StoredStep) -> bool {
        let is_directory = match step {
            StoredStep::Enter(_) => true,
            StoredStep::Entry(_) => false,
            StoredStep::Leave | StoredStep::Unreadable(_) => return false,
        };
        let exclude = &self.stored.exclude;
        !exclude.is_empty() && exclude.names(&Path::new("/").join(walk.path_of(step)), is_directory) == Some(true)
    }

    fn file(
        &mut self,
        node: Node,
        walk: &StoredWalk,
        in_target: &mut FilesInTarget,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<()> {
        let (content, previous_version) = in_target.find(&node);
        let linked = node.hard_link.and_then(|identity| self.links.get(&identity));
        let sent = [linked, self.hoisted.get(&node.identity())];
        let sent = sent.into_iter().flatten().find(|(content, _)| *content == node.content);
        if let Some(sent) = sent.map(|(_, sent)| sent.clone()) {
            return self.tree(TreeItem::Linked(Box::new(node), sent), emit);
        }
        if let Some(content) = content {
            self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
            self.progress.bytes_read.add(node.size);
            if let Some(identity) = node.hard_link.filter(|_| content.is_some()) {
                self.links.put(identity, (node.content, SentFile::stored(content, node.size)));
            }
            return self.tree(TreeItem::Entry(Box::new(Node { content, ..node })), emit);
        }
        let path = walk.path().join(OsStr::from_bytes(&node.name));
        let model = self.model_of(&node, &path, walk.listing(), previous_version, DefectReporting::Warn);
        let begin = TreeItem::Begin(Box::new(Node { content: None, ..node.clone() }));
        let is_sent_opened = in_target.takes_rebuilt && node.content.is_some_and(|content| content.rebuilt().is_some());
        let announcement = match is_sent_opened {
            true => announced_plain(previous_version),
            false => announced(model.as_ref(), previous_version, node.size),
        };
        let (outcome, sent) = self.send(&node, &path, begin, announcement, in_target, emit)?;
        if let Some(identity) = node.hard_link.filter(|_| outcome != Outcome::Failed) {
            self.links.put(identity, (node.content, sent));
        }
        Ok(())
    }

    /// Sends a file from its begin item to its end item.
    fn send(
        &mut self,
        node: &Node,
        path: &Path,
        begin: TreeItem,
        announcement: Option<ReadItem>,
        in_target: &mut FilesInTarget,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<(Outcome, SentFile)> {
        let sent = SentFile::default();
        self.tree(begin, emit)?;
        announcement.map_or(Ok(()), |item| self.push(item, emit))?;
        let outcome = match self.content(node, in_target, emit) {
            Ok(()) if node.changed => Outcome::Changed,
            Ok(()) => Outcome::Complete,
            // What vanishes meanwhile may have moved: the run starts again.
            Err(error) if error.is_unreadable() && error.kind() != ErrorKind::NotFound => {
                self.problem(path, &error);
                Outcome::Failed
            }
            Err(error) => return Err(error),
        };
        self.tree(TreeItem::End { outcome, small_holes: HoleMap::default(), sent: Some(sent.clone()) }, emit)?;
        Ok((outcome, sent))
    }

    /// Sends the content of a file.
    fn content(&mut self, node: &Node, in_target: &mut FilesInTarget, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let wrong = |len: u64| Error::corrupt("content of a file", 0, format!("{} bytes", node.size), len.to_string());
        if let Some(rebuilt) = node.content.and_then(ContentReference::rebuilt) {
            return match rebuilt.len == node.size {
                true => self.rebuilt(&rebuilt, in_target, emit),
                false => Err(wrong(rebuilt.len)),
            };
        }
        let (mut walk, mut sent) = (node.content.map(RecipeWalk::new), 0u64);
        while let Some(walk) = &mut walk {
            emit.check()?;
            let Some(reference) = walk.next(&mut self.reader)? else { break };
            let len = reference.content_len();
            sent = sent.checked_add(len).filter(|sent| *sent <= node.size).ok_or_else(|| wrong(u64::MAX))?;
            match reference {
                ContentReference::Chunk { fingerprint, len } => self.chunk(&fingerprint, len, in_target, emit)?,
                _ => self.push(ReadItem::Hole(len), emit)?,
            }
            self.progress.bytes_read.add(len);
        }
        if sent == node.size { Ok(()) } else { Err(wrong(sent)) }
    }

    fn chunk(
        &mut self,
        fingerprint: &Fingerprint,
        len: u64,
        in_target: &mut FilesInTarget,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<()> {
        // What the source says about the length is checked where it has the chunk.
        let is_stored = in_target.has(fingerprint)
            && self.reader.extent_map_of(fingerprint).map_or(true, |extent_map| u64::from(extent_map.len()) == len);
        if let Some(len) = u32::try_from(len).ok().filter(|_| is_stored) {
            return self.push(ReadItem::Stored { fingerprint: *fingerprint, len }, emit);
        }
        let bytes = Bytes::from(self.reader.read_exact(fingerprint, len)?);
        self.counts.bytes_read.fetch_add(len, Ordering::Relaxed);
        match in_target.same_chunks {
            true => self.push(ReadItem::Chunk(bytes), emit),
            false => self.push(ReadItem::Data(bytes), emit),
        }
    }

    /// Sends new models before the walk, bases first.
    fn send_hoisted(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        if !self.model.detect_formats {
            return Ok(());
        }
        let candidates = self.candidates(emit)?;
        if candidates.len() < 2 {
            return Ok(());
        }
        let (mut models, mut details, mut bytes) = (Vec::new(), HashMap::new(), 0);
        for StoredCandidate { path, node, listing, previous_version } in candidates {
            emit.check()?;
            let found = self.model_of(&node, &path, listing, previous_version, DefectReporting::Silent);
            let Some(ModelFile { record, .. }) = found.and_then(Arc::into_inner) else { continue };
            bytes += record.memory_bytes();
            details.insert(path.clone(), previous_version);
            models.push(HoistCandidate { path, node, record });
            if bytes > HOISTED_BYTES_MAX {
                break;
            }
        }
        let mut in_target = (self.stored.new_in_target)();
        for HoistCandidate { path, node, record } in if models.len() > 1 { storing_order(models) } else { Vec::new() } {
            let previous_version = details.get(&path).copied().flatten().and_then(ContentReference::fingerprint);
            let model = ReadItem::Model(Arc::new(ModelFile { record, previous_version }));
            let begin = TreeItem::Hoisted(Box::new(Node { content: None, ..node.clone() }));
            let (outcome, sent) = self.send(&node, &path, begin, Some(model), &mut in_target, emit)?;
            if outcome != Outcome::Failed {
                self.hoisted.insert(node.identity(), (node.content, sent));
            }
        }
        Ok(())
    }

    /// Files whose names suggest models and which the target does not have.
    fn candidates(&mut self, emit: &mut Emit<ReadBatch>) -> Result<Vec<StoredCandidate>> {
        let (mut walk, mut in_target, mut found) =
            (StoredWalk::new(self.stored.root), (self.stored.new_in_target)(), Vec::new());
        let mut seen = LruCache::new(at_least_one(DIRECTORIES_SEEN_MAX));
        while let Some(step) = walk.next(&mut self.reader)?
            && found.len() < CANDIDATES_MAX
        {
            emit.check()?;
            if self.is_excluded(&walk, &step) {
                walk.skip(&step);
                continue;
            }
            match step {
                // An equal one has no other files.
                StoredStep::Enter(node) if node.content.is_some_and(|content| seen.put(content, ()).is_some()) => {
                    walk.skip_directory();
                }
                StoredStep::Enter(node) => in_target.enter(&node),
                StoredStep::Leave => in_target.leave(),
                StoredStep::Entry(node) if node.kind == NodeKind::File && node.content.is_some() => {
                    let path = walk.path().join(OsStr::from_bytes(&node.name));
                    if suggests_model(&path)
                        && let (None, previous_version) = in_target.find(&node)
                    {
                        let listing = walk.listing();
                        found.push(StoredCandidate { path, node: *node, listing, previous_version });
                    }
                }
                // The walk that follows reports it.
                StoredStep::Entry(_) | StoredStep::Unreadable(_) => {}
            }
        }
        Ok(found)
    }

    /// The file as a model; `None` if it is not one, or if it cannot be read: then reading its content says so.
    fn model_of(
        &mut self,
        node: &Node,
        path: &Path,
        listing: Option<ContentReference>,
        previous_version: Option<ContentReference>,
        reporting: DefectReporting,
    ) -> Option<Arc<ModelFile>> {
        if node.size < MODEL_BYTES_MIN {
            return None;
        }
        let file = self.stored.reader.file(node.content, node.size).ok()?;
        let head = file.head(HEAD_BYTES).ok()?;
        if !may_be_model(&self.model, node.size, &head) {
            return None;
        }
        let cards = self.cards(listing);
        let has_holes = file.has_holes().ok()?;
        let card = |card: &Path| {
            let is_beside = card.parent() == path.parent();
            card.file_name().filter(|_| is_beside).and_then(|name| cards.get(name.as_bytes()).cloned())
        };
        let content = ModelContent {
            bytes: &file,
            len: node.size,
            path,
            has_holes: &|| has_holes,
            names: &|| names(path, &card),
        };
        let previous_version = previous_version.and_then(ContentReference::fingerprint);
        model_content(&content, &self.model, previous_version, reporting).ok().flatten()
    }

    /// The cards, configurations and tokenizers of models in a directory, by name.
    fn cards(&mut self, listing: Option<ContentReference>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let (mut cursor, mut cards) = (TreeCursor::open(listing), BTreeMap::new());
        while let Ok(Some(node)) = cursor.next(&mut self.reader) {
            let is_card = |name: &str| name.as_bytes() == node.name;
            if node.kind == NodeKind::File
                && (is_card(CARD) || is_card(TOKENIZER) || CONFIGURATIONS.into_iter().any(is_card))
                && let Ok(bytes) = self.stored.head(&node, CARD_BYTES_MAX as usize)
            {
                cards.insert(node.name, bytes);
            }
        }
        cards
    }
}

impl Source for StoredStage<'_> {
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        "read"
    }

    fn run(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        self.send_hoisted(emit)?;
        self.walk(emit)?;
        emit.emit(std::mem::take(&mut self.batch))
    }
}
