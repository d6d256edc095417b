//! Decides where each byte of a file comes from.
//!
//! 1. A chunk that the file holds already, because an interrupted restore wrote it, is left alone. One that the
//!    replaced file holds is copied from there.
//! 2. Each other chunk is located in the repository and enters the window, in the order of the snapshot.
//! 3. A chunk that cannot be located is a lost range of its file, and so is a recipe that cannot be read.

use std::sync::Arc;

use super::assembled::AssembledChunk;
use super::comparison::FileComparison;
use super::message::{RestoreCounts, RestoreFile, RestoreJob, WriteChunk};
use super::window::{JobSize, RestoreWindow};
use crate::config::RestoreConfig;
use crate::error::{Error, Result};
use crate::filesystem::{FileToken, SourceFile};
use crate::metrics::Progress;
use crate::pipeline::Emit;
use crate::repo::reader::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::Node;
use crate::types::{Fingerprint, RepositoryKey};

/// Reads the recipes of files and fills the window.
pub struct FilePlan<'a> {
    /// Reads listings and recipes.
    pub reader: ChunkReader,
    /// The chunks that are found and not sent yet.
    pub window: RestoreWindow,
    comparison: FileComparison,
    key: RepositoryKey,
    counts: Arc<RestoreCounts>,
    progress: &'a Progress,
}

impl<'a> FilePlan<'a> {
    /// An empty window.
    pub fn new(
        reader: ChunkReader,
        key: RepositoryKey,
        config: &RestoreConfig,
        counts: Arc<RestoreCounts>,
        progress: &'a Progress,
    ) -> Self {
        let job_size = JobSize::of_store(reader.store().requests_max());
        let window = RestoreWindow::new(config.cache_bytes.0, job_size, counts.clone());
        FilePlan { reader, window, comparison: FileComparison::new(key), key, counts, progress }
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

    /// Adds the chunks of a file to the window and returns the length of the content. What is unreadable is a lost
    /// range.
    ///
    /// # Errors
    /// Those of sending jobs and of reading the repository, except damage. [`Error::Io`] if the disk is full.
    pub fn content(
        &mut self,
        file: &Arc<RestoreFile>,
        old: Option<&SourceFile>,
        content: ContentReference,
        emit: &mut Emit<RestoreJob>,
    ) -> Result<u64> {
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
            }
            offset = offset.saturating_add(len);
        }
        if offset > written || file.node.sparse || file.created.is_begun {
            self.set_len(file, offset)?;
        }
        Ok(offset)
    }

    /// The same for a file without content.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk is full.
    pub fn empty(&self, file: &RestoreFile) -> Result<u64> {
        if file.created.is_begun {
            self.set_len(file, 0)?;
        }
        Ok(0)
    }

    fn set_len(&self, file: &RestoreFile, len: u64) -> Result<()> {
        match file.set_len(len) {
            Err(error) if !error.is_full_disk() => {
                file.fail(error);
                Ok(())
            }
            other => other,
        }
    }

    /// Adds a chunk of a file to the window, unless the file holds it or the file that it replaces does.
    fn chunk(
        &mut self,
        file: &Arc<RestoreFile>,
        old: Option<&SourceFile>,
        offset: u64,
        fingerprint: Fingerprint,
        len: u64,
        emit: &mut Emit<RestoreJob>,
    ) -> Result<()> {
        let begun = file.created.is_begun;
        if begun && self.comparison.chunk(&file.created.file, offset, len, &fingerprint).is_some() {
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
        match self.write_chunk(file, offset, fingerprint, len) {
            Ok(write) => match self.window.write(write, &mut self.reader.resolver, emit) {
                Err(error) if error.is_unreadable() => file.lose(offset, len, error),
                other => other?,
            },
            Err(error) if error.is_unreadable() => file.lose(offset, len, error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn reused(&self, file: &RestoreFile, len: u64) {
        file.set_has_content();
        self.counts.bytes_reused.add(len);
        self.progress.bytes_read.add(len);
    }

    /// Removes what an interrupted restore left in a range: its bytes may be wrong.
    fn clear_begun(&mut self, file: &RestoreFile, offset: u64, len: u64) -> Result<()> {
        if !file.created.is_begun {
            return Ok(());
        }
        match self.comparison.clear(&file.created.file, offset, len) {
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

    /// Locates a chunk of a file.
    fn write_chunk(
        &mut self,
        file: &Arc<RestoreFile>,
        offset: u64,
        fingerprint: Fingerprint,
        len: u64,
    ) -> Result<WriteChunk> {
        let extent_map = self.reader.extent_map_of(&fingerprint)?;
        if u64::from(extent_map.len()) != len {
            let expected = format!("chunk {fingerprint} of {len} bytes");
            return Err(Error::corrupt("recipe", offset, expected, extent_map.len().to_string()));
        }
        Ok(WriteChunk { file: file.clone(), offset, fingerprint, extent_map })
    }
}
