//! Copies rebuilt content as what is stored of it.

use std::sync::atomic::Ordering;

use super::StoredStage;
use crate::backup::message::{ReadBatch, ReadItem, TreeItem};
use crate::backup::source::in_target::FilesInTarget;
use crate::error::{Error, Result};
use crate::pipeline::Emit;
use crate::repo::read::{RebuiltStream, RecipeWalk};
use crate::repo::rebuilt::RebuiltContent;
use crate::repo::recipe::ContentReference;
use crate::types::Fingerprint;

impl StoredStage<'_> {
    /// Sends rebuilt content: its parts, or its bytes to a target that may not have rebuilt content.
    pub(super) fn rebuilt(
        &mut self,
        content: &RebuiltContent,
        in_target: &mut FilesInTarget,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<()> {
        let mut stream = RebuiltStream::new(self.stored.reader.chunks(), *content);
        if !in_target.takes_rebuilt {
            while let Some(bytes) = stream.next_block()? {
                emit.check()?;
                self.counts.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                self.progress.bytes_read.add(bytes.len() as u64);
                self.push(ReadItem::Data(bytes), emit)?;
            }
            return Ok(());
        }
        let mut hash = content.hash;
        if !in_target.same_chunks {
            // Under the key of the target the hash is another one.
            let mut hasher = self.stored.target_key.hasher();
            while let Some(bytes) = stream.next_block()? {
                emit.check()?;
                hasher.update(&bytes);
            }
            hash = Fingerprint(*hasher.finalize().as_bytes());
        }
        self.part(content.source.into(), in_target, emit)?;
        self.tree(TreeItem::Corrections, emit)?;
        content.corrections.map_or(Ok(()), |corrections| self.part(corrections.into(), in_target, emit))?;
        self.progress.bytes_read.add(content.len);
        self.tree(TreeItem::Rebuilt { hash, len: content.len }, emit)
    }

    /// Sends the chunks of a part of rebuilt content.
    fn part(
        &mut self,
        part: ContentReference,
        in_target: &mut FilesInTarget,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<()> {
        let mut walk = RecipeWalk::new(part);
        while let Some(reference) = walk.next(&mut self.reader)? {
            emit.check()?;
            let ContentReference::Chunk { fingerprint, len } = reference else {
                return Err(Error::corrupt("a part of rebuilt content", 0, "chunks only", format!("{reference:?}")));
            };
            self.chunk(&fingerprint, len, in_target, emit)?;
        }
        Ok(())
    }
}
