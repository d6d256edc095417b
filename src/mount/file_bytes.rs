//! Bytes of files.

use super::readahead::ReadaheadThreads;
use crate::error::Result;
use crate::repo::read::Reader;
use crate::repo::recipe::ContentReference;

/// Chunks and holes of a file that are counted.
const RANGES_MAX: usize = 1 << 14;

/// Files of a repository.
pub(super) struct ReadFiles {
    reader: Reader,
    readahead: ReadaheadThreads,
}

impl ReadFiles {
    /// Files that `reader` reads.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if no thread can be started.
    pub(super) fn new(reader: Reader) -> Result<Self> {
        Ok(ReadFiles { reader, readahead: ReadaheadThreads::new()? })
    }

    /// Reads up to `count` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// Errors of reading.
    pub(super) fn read(&self, content: ContentReference, offset: u64, count: usize) -> Result<Vec<u8>> {
        let file = self.reader.content(content);
        let end = offset.saturating_add(count as u64).min(file.len());
        if offset < end
            && let Some(fingerprint) = content.fingerprint()
        {
            self.readahead.note(fingerprint, &file, (offset, end));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0).min(count));
        file.copy_keeping((offset, end), &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Bytes of the chunks of a content. `None` if there are too many to count.
    ///
    /// # Errors
    /// Errors of reading recipes.
    pub(super) fn data_len(&self, content: ContentReference) -> Result<Option<u64>> {
        let (mut ranges, mut len) = (0, 0);
        self.reader.content(content).visit_ranges(|range| {
            ranges += 1;
            len += range.chunk.map_or(0, |_| range.len);
            Ok(ranges < RANGES_MAX)
        })?;
        Ok((ranges < RANGES_MAX).then_some(len))
    }

    /// The first offset from `offset` on that is in a hole if `in_hole`, else in data. The end is a hole.
    ///
    /// # Errors
    /// Errors of reading recipes.
    pub(super) fn seek(&self, content: ContentReference, offset: u64, in_hole: bool) -> Result<Option<u64>> {
        let (len, file) = (content.content_len(), self.reader.content(content));
        let mut at = offset;
        while let Some(range) = file.locate(at)? {
            if range.chunk.is_none() == in_hole {
                return Ok(Some(at));
            }
            at = range.end();
        }
        Ok((in_hole && offset < len).then_some(len))
    }
}
