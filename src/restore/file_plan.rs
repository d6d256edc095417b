//! Decides where each byte of a file comes from.
//!
//! 1. A chunk that the file holds already, because an interrupted restore wrote it, is left alone. One that the
//!    replaced file holds is copied from there.
//! 2. Each other chunk goes to Locate, in the order of the snapshot.
//! 3. A recipe that cannot be read is a lost range of its file.

use std::sync::Arc;

use super::assembled::AssembledChunk;
use super::comparison::FileComparison;
use super::message::{FinishedEntry, PlannedBatch, PlannedItem, RestoreCounts};
use super::restore_file::RestoreFile;
use crate::error::{Error, Result};
use crate::filesystem::{FileToken, SourceFile};
use crate::metrics::Progress;
use crate::pipeline::Emit;
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::Node;
use crate::types::{Fingerprint, RepositoryKey};

/// A batch is sent once it has so many items.
const BATCH_ITEMS: usize = 64;

/// Reads the recipes of files and fills batches.
pub struct FilePlan<'a> {
    /// Reads listings and recipes.
    pub reader: ChunkReader,
    batch: PlannedBatch,
    comparison: FileComparison,
    key: RepositoryKey,
    counts: Arc<RestoreCounts>,
    progress: &'a Progress,
}

impl<'a> FilePlan<'a> {
    /// An empty batch.
    pub fn new(reader: ChunkReader, key: RepositoryKey, counts: Arc<RestoreCounts>, progress: &'a Progress) -> Self {
        let (batch, comparison) = (PlannedBatch::default(), FileComparison::new(key));
        FilePlan { reader, batch, comparison, key, counts, progress }
    }

    fn push(&mut self, item: PlannedItem, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        self.batch.items.push(item);
        if self.batch.items.len() >= BATCH_ITEMS { self.flush(false, emit) } else { Ok(()) }
    }

    /// Sends the batch. If it `is_urgent`, Order sends half of its window.
    ///
    /// # Errors
    /// Errors of sending a batch.
    pub fn flush(&mut self, is_urgent: bool, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        emit.emit(PlannedBatch { is_urgent, ..batch })
    }

    /// Adds a file that Locate creates.
    ///
    /// # Errors
    /// Errors of sending a batch.
    pub fn create(&mut self, file: Arc<RestoreFile>, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        self.push(PlannedItem::Create(file), emit)
    }

    /// Adds an entry that is complete after all chunks before it.
    ///
    /// # Errors
    /// Errors of sending a batch.
    pub fn finished(&mut self, entry: FinishedEntry, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        self.push(PlannedItem::Finished(entry), emit)
    }

    /// Whether `file` has the content of `node`.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn holds<T>(&mut self, file: &SourceFile, node: &Node, emit: &Emit<T>) -> Result<bool> {
        if file.size() != node.size {
            return Ok(false);
        }
        self.comparison.holds(file.file(), node.content, &mut self.reader, || emit.check().is_err())
    }

    /// Identifies the name and content of a file for a later restore.
    ///
    /// # Errors
    /// None on valid nodes.
    pub fn token(&self, node: &Node) -> Result<FileToken> {
        let content = minicbor::to_vec((node.content, node.size));
        let mut identity = content.map_err(|error| Error::internal(format!("cannot encode a reference: {error}")))?;
        identity.extend_from_slice(&node.name);
        let Fingerprint(digest) = self.key.fingerprint(&identity);
        let mut token = FileToken::default();
        token.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Ok(token)
    }

    /// Adds the chunks of a file and returns the length of the content. What is unreadable is a lost
    /// range.
    ///
    /// # Errors
    /// Errors of sending batches and of reading the repository, except damage. [`Error::Io`] if the disk is full.
    pub fn content(
        &mut self,
        file: &Arc<RestoreFile>,
        old: Option<&SourceFile>,
        content: ContentReference,
        emit: &mut Emit<PlannedBatch>,
    ) -> Result<u64> {
        // Write rebuilds it, when all before it is done.
        if content.rebuilt().is_some() {
            return Ok(content.content_len());
        }
        let mut walk = RecipeWalk::new(content);
        let (mut offset, mut written) = (0u64, 0u64);
        loop {
            emit.check()?;
            let reference = match walk.next(&mut self.reader) {
                Ok(Some(reference)) => reference,
                Ok(None) => break,
                Err(error) if error.is_unreadable() => {
                    // Without a length, the rest of the file is lost.
                    let unread = walk.take_unread();
                    let len = unread.unwrap_or_else(|| file.node.size.saturating_sub(offset));
                    self.clear_begun(file, offset, len)?;
                    file.lose(offset, len, error);
                    offset = offset.saturating_add(len);
                    if unread.is_none() {
                        return Ok(file.node.size);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            let len = reference.content_len();
            if offset.saturating_add(len) > file.node.size {
                // Longer than its directory entry says: the caller reports it. A small recipe may claim any length.
                return Ok(offset.saturating_add(len));
            }
            if let ContentReference::Chunk { fingerprint, .. } = reference {
                self.chunk(file, old, offset, fingerprint, len, emit)?;
                written = offset.saturating_add(len);
            } else {
                self.clear_begun(file, offset, len)?;
                // Nothing is written for a hole.
                self.progress.bytes_skipped.add(len);
            }
            offset = offset.saturating_add(len);
        }
        if offset > written || file.node.sparse || file.is_begun() {
            self.push(PlannedItem::Extend(file.clone(), offset), emit)?;
        }
        Ok(offset)
    }

    /// The same for a file without content.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk is full.
    pub fn empty(&self, file: &RestoreFile) -> Result<u64> {
        if file.is_begun() {
            file.extend(0)?;
        }
        Ok(0)
    }

    /// Adds a chunk of a file, unless the file holds it or the file that it replaces does.
    fn chunk(
        &mut self,
        file: &Arc<RestoreFile>,
        old: Option<&SourceFile>,
        offset: u64,
        fingerprint: Fingerprint,
        len: u64,
        emit: &mut Emit<PlannedBatch>,
    ) -> Result<()> {
        if file.is_begun() && self.comparison.chunk(&file.new_file()?.file, offset, len, &fingerprint).is_some() {
            self.reused(file, len);
            return Ok(());
        }
        if let Some(old) = old
            && let Some(bytes) = self.comparison.chunk(old.file(), offset, len, &fingerprint)
        {
            match (AssembledChunk { file, bytes, offset }).write() {
                Err(error) if !error.is_full_disk() => file.lose(offset, len, error),
                other => {
                    other?;
                    self.reused(file, len);
                }
            }
            return Ok(());
        }
        self.clear_begun(file, offset, len)?;
        self.batch.bytes += len;
        self.push(PlannedItem::Find { file: file.clone(), offset, fingerprint, len }, emit)
    }

    fn reused(&self, file: &RestoreFile, len: u64) {
        file.set_has_content();
        self.counts.bytes_reused.add(len);
        self.progress.bytes_skipped.add(len);
    }

    /// Removes what an interrupted restore left in a range: its bytes may be wrong.
    fn clear_begun(&mut self, file: &RestoreFile, offset: u64, len: u64) -> Result<()> {
        if !file.is_begun() {
            return Ok(());
        }
        match self.comparison.clear(&file.new_file()?.file, offset, len) {
            Ok(()) => Ok(()),
            Err(error) => match Error::io("write", &file.path, error) {
                error if error.is_full_disk() => Err(error),
                error => {
                    file.fail(error);
                    Ok(())
                }
            },
        }
    }
}
