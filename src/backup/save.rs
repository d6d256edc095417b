//! Save: packs frames and entries into containers, stores them, and builds recipes and listings.
//!
//! Chunks of files go to data containers; recipes, directory listings and model records go to metadata containers
//! ([`super::uploads`] stores both). A container is durable before the index refers to it. Save does not write the
//! snapshot: [`super::backup`] commits it after the whole stream has been saved.

use std::collections::HashMap;
use std::sync::Arc;

use super::equal::{SavedDirectory, SentDirectory};
use super::saved::Saved;
use super::sent::{SavedContent, SentFile};
use super::uploads::{SessionRange, Uploads};
use crate::backup::message::{FrameKind, NewEntry, Outcome, Packet, PendingFrame, SaveItem, TreeItem};
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::model::{BLOB_ENTRIES_MAX, CatalogueBlob, CatalogueEntry, FinishedModel, ModelRecord};
use crate::pipeline::Sink;
use crate::repo::container::{
    ContainerKind, ContainerWriter, EntryFields, FramesInFlight, NewContainers, SessionEntryNumber, SessionFrameNumber,
    TO_THE_END,
};
use crate::repo::rebuilt::{ContentPart, OPENED};
use crate::repo::recipe::{ContentReference, RecipeBuilder};
use crate::repo::tree::{EntryTally, FormerListing, HoleMap, ListingBases, ListingTarget, Node, OpenDirectory};
use crate::repo::{MetadataWriter, Repository};
use crate::store::Store;
use crate::types::Fingerprint;

/// The settings of Save.
#[derive(Debug, Clone, Copy)]
pub struct SaveOptions {
    /// Bytes at which a container is full.
    pub container_bytes: u64,
    /// Start of the backup, nanoseconds since 1970.
    pub time_ns: i64,
}

/// A file whose chunks are still arriving.
struct OpenFile {
    node: Box<Node>,
    recipe: RecipeBuilder,
    len: u64,
    /// Its entry comes later in the stream.
    is_hoisted: bool,
    /// Its record, if it is a model.
    model: Option<FinishedModel>,
    /// Its plain content, once its corrections follow.
    source: Option<ContentReference>,
    /// Fingerprint and number of its bytes, if they are to be rebuilt.
    rebuilt: Option<(Fingerprint, u64)>,
}

/// The stage.
pub struct SaveStage<'a> {
    store: Arc<dyn Store>,
    uploads: Arc<Uploads>,
    in_flight: Arc<FramesInFlight>,
    progress: &'a Progress,
    container_bytes: u64,
    containers: NewContainers,
    writer: ContainerWriter,
    /// Session number of the open container's first frame.
    first_frame: SessionFrameNumber,
    /// Session number of the open container's first entry.
    first_entry: SessionEntryNumber,
    /// Entries in the open container.
    entries: u32,
    metadata: MetadataWriter,
    /// Where bases of listings come from, if the repository may have any.
    listing_bases: Option<ListingBases>,
    /// Directories from the root to the current one.
    directories: Vec<OpenDirectory>,
    /// The entries before each of them, without the root.
    tallies: Vec<EntryTally>,
    file: Option<OpenFile>,
    /// Catalogue entries of this run's models that are not stored yet.
    catalogue: CatalogueBlob,
    /// Stored bytes of deltas whose entries have not arrived yet, by frame number.
    deltas: HashMap<SessionFrameNumber, u32>,
    saved: Saved,
}

impl<'a> SaveStage<'a> {
    /// Saves into the store of `repository` through `uploads`, and publishes frames to `in_flight`.
    ///
    /// # Errors
    /// Errors of [`NewContainers::begin`].
    pub fn new(
        repository: &Repository,
        uploads: Arc<Uploads>,
        in_flight: Arc<FramesInFlight>,
        (metadata, listing_bases): (MetadataWriter, Option<ListingBases>),
        options: SaveOptions,
        progress: &'a Progress,
    ) -> Result<Self> {
        let containers = repository.new_containers();
        let writer = containers.begin(ContainerKind::Data)?;
        Ok(SaveStage {
            store: repository.store.clone(),
            uploads,
            in_flight,
            progress,
            container_bytes: options.container_bytes,
            containers,
            writer,
            first_frame: SessionFrameNumber::default(),
            first_entry: SessionEntryNumber::default(),
            entries: 0,
            metadata,
            listing_bases,
            directories: vec![OpenDirectory::new(None)],
            tallies: Vec::new(),
            file: None,
            catalogue: CatalogueBlob { time_ns: options.time_ns, entries: Vec::new() },
            deltas: HashMap::new(),
            saved: Saved::default(),
        })
    }

    fn frame(&mut self, frame: PendingFrame) -> Result<()> {
        let Some(stored) = frame.stored else {
            return Err(Error::internal(format!("Save got frame {} without its encoding", frame.number.0)));
        };
        if matches!(frame.kind, FrameKind::Delta(_)) {
            self.deltas.insert(frame.number, stored.raw_len);
        }
        self.writer.push_frame(&stored)?;
        self.in_flight.publish(frame.number, stored);
        Ok(())
    }

    fn entries(&mut self, entries: Vec<NewEntry>) -> Result<()> {
        self.entries += entries.len() as u32;
        for mut entry in entries {
            if entry.literal_len == TO_THE_END {
                match self.deltas.remove(&entry.frame) {
                    Some(len) => entry.literal_len = len,
                    None => entry.make_whole(),
                }
            }
            let fields = EntryFields {
                fingerprint: entry.fingerprint,
                raw_len: entry.raw_len,
                frame: self.frame_in_container(entry.frame.0, entry.literal_len)?,
                literal_offset: entry.literal_offset,
                literal_len: entry.literal_len,
                depth: entry.depth,
            };
            self.writer.push_entry(fields, &entry.operations.list, &entry.features)?;
        }
        if self.writer.is_full(self.container_bytes) { self.seal() } else { Ok(()) }
    }

    /// Position in the open container of frame `number` of this run. An entry without literal bytes reads no frame, and
    /// may name one of the previous container.
    fn frame_in_container(&self, number: u64, literal_len: u32) -> Result<u32> {
        if literal_len == 0 {
            return Ok(number.saturating_sub(self.first_frame.0) as u32);
        }
        let position = number.checked_sub(self.first_frame.0).and_then(|position| u32::try_from(position).ok());
        position.ok_or_else(|| Error::internal(format!("frame {number} is not in the open container")))
    }

    /// Seals and stores the data container.
    fn seal(&mut self) -> Result<()> {
        if self.writer.is_empty() {
            return Ok(());
        }
        let next = self.containers.begin(ContainerKind::Data)?;
        let sealed = std::mem::replace(&mut self.writer, next).seal()?;
        self.count_stored(sealed.len);
        let entries = std::mem::take(&mut self.entries);
        let range = SessionRange { first_frame: self.first_frame, first_entry: self.first_entry, entries };
        self.first_frame = self.first_frame.plus(sealed.container_index.frames.len() as u64);
        self.first_entry = self.first_entry.plus(u64::from(entries));
        self.uploads.push(sealed, Some(range))
    }

    fn count_stored(&mut self, len: u64) {
        self.saved.bytes_stored += len;
        self.saved.containers += 1;
        self.progress.bytes_stored.add(len);
    }

    fn item(&mut self, item: SaveItem) -> Result<()> {
        match item {
            SaveItem::Tree(item) => self.tree(item)?,
            SaveItem::Hole(len) => self.content(ContentReference::Hole { len })?,
            SaveItem::Model(model) => {
                if let Some(file) = &mut self.file {
                    file.model = Some(model);
                }
            }
            SaveItem::Chunk { fingerprint, len, is_new } => {
                self.saved.chunks += 1;
                if is_new {
                    self.saved.chunks_new += 1;
                    self.saved.bytes_new += u64::from(len);
                    self.progress.bytes_new.add(u64::from(len));
                }
                self.content(ContentReference::Chunk { fingerprint, len: u64::from(len) })?;
            }
        }
        Ok(())
    }

    fn content(&mut self, reference: ContentReference) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Err(Error::internal("Save got content outside a file"));
        };
        file.len += reference.content_len();
        let metadata = &mut self.metadata;
        file.recipe.push(reference, &mut |bytes| metadata.put(bytes))?;
        // The recipe of one huge file fills several containers.
        self.store_metadata(false)
    }

    fn tree(&mut self, item: TreeItem) -> Result<()> {
        match item {
            TreeItem::Enter(node) => {
                self.directories.push(OpenDirectory::new(Some(node)));
                self.tallies.push(self.saved.tally);
            }
            TreeItem::Former(content) => {
                self.directories.last_mut().into_iter().for_each(|it| it.compare_with(FormerListing::new(content)));
            }
            TreeItem::Leave(sent) => self.leave(sent)?,
            TreeItem::Equal(mut node, sent) => {
                let saved = sent.saved()?;
                (node.content, node.partial) = (saved.content, node.partial | saved.is_partial);
                self.saved.tally.add(saved.tally);
                self.progress.files_done.add(saved.tally.files.saturating_add(saved.tally.others));
                self.append_directory(&node)?;
            }
            TreeItem::Omitted => self.omit(),
            TreeItem::Entry(node) => self.append_entry(&node)?,
            TreeItem::Linked(mut node, sent) => {
                let saved = sent.saved().ok_or_else(|| Error::internal("Save got a hard link before its content"))?;
                (node.content, node.size) = (saved.content, saved.size);
                self.append_entry(&node)?;
            }
            TreeItem::Begin(node) => self.begin(node, false),
            TreeItem::Hoisted(node) => self.begin(node, true),
            TreeItem::Corrections => {
                if let Some(file) = &mut self.file {
                    let (recipe, metadata) = (std::mem::take(&mut file.recipe), &mut self.metadata);
                    file.source = recipe.finish(&mut |bytes| metadata.put(bytes))?;
                }
            }
            TreeItem::Rebuilt { hash, len } => {
                self.file.iter_mut().for_each(|file| file.rebuilt = Some((hash, len)));
            }
            TreeItem::End { outcome, small_holes, sent } => self.end_file(outcome, small_holes, sent)?,
        }
        Ok(())
    }

    /// Ends the current directory.
    fn leave(&mut self, sent: Option<SentDirectory>) -> Result<()> {
        let directory = self.directories.pop().filter(|directory| directory.has_node());
        let (Some(directory), Some(before)) = (directory, self.tallies.pop()) else {
            return Err(Error::internal("Save got the end of a directory that had not begun"));
        };
        let (is_partial, tally) = (directory.is_partial(), self.saved.tally.since(before));
        let Some(node) = directory.finish(listing_target(&mut self.metadata, &mut self.listing_bases))? else {
            return Ok(());
        };
        if let Some(sent) = sent {
            sent.save(SavedDirectory { content: node.content, is_partial, tally });
        }
        self.append_directory(&node)
    }

    fn append_directory(&mut self, node: &Node) -> Result<()> {
        self.saved.tally.add(EntryTally { directories: 1, ..EntryTally::default() });
        self.append(node)
    }

    /// Marks the current directory: an entry of it is left out.
    fn omit(&mut self) {
        if let Some(directory) = self.directories.last_mut() {
            directory.omit();
        }
    }

    fn begin(&mut self, node: Box<Node>, is_hoisted: bool) {
        let (recipe, len, model, source, rebuilt) = (RecipeBuilder::default(), 0, None, None, None);
        self.file = Some(OpenFile { node, recipe, len, is_hoisted, model, source, rebuilt });
    }

    /// Stores the record of a model whose content is now known, and adds it to the catalogue.
    fn model(&mut self, model: &FinishedModel, content: Option<ContentReference>) -> Result<()> {
        let Some(ContentReference::Chunk { fingerprint, .. } | ContentReference::Recipe { fingerprint, .. }) = content
        else {
            return Ok(());
        };
        let record = ModelRecord { content: Some(fingerprint), ..ModelRecord::clone(&model.record) };
        if let Some(bytes) = record.encode()? {
            let chunk = self.metadata.put_like(bytes, model.like.as_ref())?;
            self.catalogue.entries.push(CatalogueEntry::new(&record, chunk));
            if self.catalogue.entries.len() >= BLOB_ENTRIES_MAX {
                self.catalogue.save(self.store.as_ref())?;
                self.catalogue.entries.clear();
            }
        }
        Ok(())
    }

    fn end_file(&mut self, outcome: Outcome, small_holes: HoleMap, sent: Option<SentFile>) -> Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        if outcome == Outcome::Failed {
            // The walk meets a hoisted file again.
            if !file.is_hoisted {
                self.omit();
            }
            return Ok(());
        }
        let metadata = &mut self.metadata;
        let stored = file.recipe.finish(&mut |bytes| metadata.put(bytes))?;
        (file.node.content, file.node.size) = match file.rebuilt {
            None => (stored, file.len),
            Some((hash, len)) => (Some(rebuilt(file.source, stored, hash, len)?), len),
        };
        file.node.changed = outcome == Outcome::Changed;
        if let Some(model) = file.model.take() {
            self.model(&model, file.node.content)?;
        }
        if let Some(sent) = sent {
            sent.save(SavedContent { content: file.node.content, size: file.node.size });
        }
        if file.is_hoisted {
            return Ok(());
        }
        small_holes.attach(&mut file.node);
        self.append_entry(&file.node)
    }

    fn append_entry(&mut self, node: &Node) -> Result<()> {
        self.saved.tally.add(EntryTally::of(node));
        self.progress.files_done.add(1);
        self.append(node)
    }

    fn append(&mut self, node: &Node) -> Result<()> {
        let Some(directory) = self.directories.last_mut() else { return Ok(()) };
        directory.append(node, listing_target(&mut self.metadata, &mut self.listing_bases))?;
        self.store_metadata(false)
    }

    /// Stores the metadata container if it is full, or at the end of the stream.
    fn store_metadata(&mut self, at_end: bool) -> Result<()> {
        if let Some(sealed) = self.metadata.take_full(at_end)? {
            self.count_stored(sealed.len);
            self.uploads.push(sealed, None)?;
        }
        Ok(())
    }
}

fn listing_target<'a>(metadata: &'a mut MetadataWriter, bases: &'a mut Option<ListingBases>) -> ListingTarget<'a> {
    ListingTarget { metadata, bases: bases.as_mut() }
}

/// The content of a file that is stored as its plain content and corrections.
fn rebuilt(
    source: Option<ContentReference>,
    corrections: Option<ContentReference>,
    hash: Fingerprint,
    len: u64,
) -> Result<ContentReference> {
    let source = source.ok_or_else(|| Error::internal("Save got an opened file without plain content"))?;
    let (source, corrections) = (ContentPart::of(source)?, corrections.map(ContentPart::of).transpose()?);
    Ok(ContentReference::Rebuilt { transform: OPENED, source, corrections, hash, len })
}

impl Drop for SaveStage<'_> {
    fn drop(&mut self) {
        self.in_flight.close();
    }
}

impl Sink for SaveStage<'_> {
    type In = Packet;
    type Output = Saved;

    fn name(&self) -> &'static str {
        "save"
    }

    fn process(&mut self, packet: Packet) -> Result<()> {
        match packet {
            Packet::Frame(frame) => self.frame(frame),
            Packet::Entries(entries) => self.entries(entries),
            Packet::Items(items) => items.into_iter().try_for_each(|item| self.item(item)),
        }
    }

    fn finish(mut self) -> Result<Saved> {
        self.seal()?;
        let root = self.directories.pop().ok_or_else(|| Error::internal("Save got the end of the root directory"))?;
        if !self.directories.is_empty() || self.file.is_some() {
            return Err(Error::internal("Save got the end of the stream inside a directory or a file"));
        }
        self.saved.root_is_partial = root.is_partial();
        self.saved.root = root.finish_root(listing_target(&mut self.metadata, &mut self.listing_bases))?;
        self.store_metadata(true)?;
        self.uploads.finish()?;
        self.catalogue.save(self.store.as_ref())?;
        Ok(self.saved)
    }
}
