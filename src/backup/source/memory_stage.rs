//! Memory: the first stage of a backup of files whose bytes are in the memory of this process, instead of Read.
//!
//! 1. Files come in the order of their paths, and the directories on the way to them.
//! 2. The blocks of a model's tensors are sent as they lie in memory, without a copy. Another thread may write to that
//!    memory. So Dedup copies a block that is new, and the run fails if the copy has another fingerprint. Everything
//!    else is copied here.
//! 3. Of a content that the repository has, only its reference is stored, once it is known to be whole.
//! 4. What repeats in the parent snapshot is not read any cheaper: its chunks are hashed, and then they are known.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::memory_file::{MemoryContent, MemoryFile, names_of};
use super::parent::ParentCursor;
use super::parents::ParentCursors;
use super::reading::announced;
use crate::backup::buffers::BufferPool;
use crate::backup::counts::ReadCounts;
use crate::backup::message::{ITEMS_MAX, Outcome, ReadBatch, ReadItem, TreeItem};
use crate::config::{Config, ModelConfig};
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::model::{CARD_BYTES_MAX, DefectReporting, ModelContent, ModelFile, ModelRegion, model_content, names};
use crate::pipeline::{Emit, Source};
use crate::read_at::{ReadAt, fill};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{HoleMap, Node, NodeKind, Timestamp};
use crate::types::Fingerprint;

/// Permissions of files.
const FILE_MODE: u32 = 0o600;
/// Permissions of directories.
const DIRECTORY_MODE: u32 = 0o700;

/// The bytes of a file, at any offset.
enum OpenContent<'a> {
    Parts { parts: &'a [Bytes], ends: Vec<u64>, is_borrowed: bool },
    Disk { file: File, len: u64 },
    Range { file: &'a File, start: u64, len: u64 },
}

impl OpenContent<'_> {
    fn open(content: &MemoryContent) -> Result<OpenContent<'_>> {
        match content {
            MemoryContent::Parts(parts) => Ok(OpenContent::parts(parts, false)),
            MemoryContent::Borrowed(parts) => Ok(OpenContent::parts(parts, true)),
            MemoryContent::Disk(path) => {
                let failed = |error| Error::io("read", path, error);
                let file = File::open(path).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                if !metadata.is_file() {
                    return Err(Error::Usage(format!("{} is not a regular file", path.display())));
                }
                Ok(OpenContent::Disk { file, len: metadata.len() })
            }
            MemoryContent::Range { file, start, len } => {
                Ok(OpenContent::Range { file: file.as_ref(), start: *start, len: *len })
            }
            MemoryContent::Stored(_) => Err(Error::internal("a stored content is not opened")),
        }
    }

    fn parts(parts: &[Bytes], is_borrowed: bool) -> OpenContent<'_> {
        let ends = parts.iter().scan(0u64, |end, bytes| {
            *end += bytes.len() as u64;
            Some(*end)
        });
        OpenContent::Parts { ends: ends.collect(), parts, is_borrowed }
    }

    fn len(&self) -> u64 {
        match self {
            OpenContent::Parts { ends, .. } => ends.last().copied().unwrap_or(0),
            OpenContent::Disk { len, .. } | OpenContent::Range { len, .. } => *len,
        }
    }

    /// The part that holds byte `offset`, from that byte on.
    fn rest_of_part(&self, offset: u64) -> Option<Bytes> {
        let OpenContent::Parts { parts, ends, .. } = self else { return None };
        let at = ends.partition_point(|end| *end <= offset);
        let (part, end) = (parts.get(at)?, ends.get(at)?);
        let start = part.len().checked_sub(usize::try_from(end - offset).ok()?)?;
        Some(part.slice(start..))
    }
}

impl ReadAt for OpenContent<'_> {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        if let OpenContent::Disk { file, .. } = self {
            return FileExt::read_at(file, space, offset);
        }
        if let OpenContent::Range { file, start, len } = self {
            let rest = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
            let count = rest.min(space.len());
            return FileExt::read_at(*file, space.get_mut(..count).unwrap_or_default(), start.saturating_add(offset));
        }
        let Some(rest) = self.rest_of_part(offset) else { return Ok(0) };
        let count = rest.len().min(space.len());
        if let (Some(from), Some(to)) = (rest.get(..count), space.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }
}

/// The stage.
pub struct MemoryStage<'a> {
    files: Arc<[MemoryFile]>,
    parents: ParentCursors,
    /// Knows what the repository has.
    stored: ParentCursor,
    /// Name of the run that the models are steps of.
    run: Option<String>,
    node: Node,
    model: ModelConfig,
    batch_bytes: u64,
    pool: BufferPool,
    batch: ReadBatch,
    progress: &'a Progress,
    counts: Arc<ReadCounts>,
}

impl<'a> MemoryStage<'a> {
    /// Sends `files`, which are sorted by their paths. They get the time `time_ns`, since 1970.
    pub fn new(
        files: Vec<MemoryFile>,
        (parents, stored): (ParentCursors, ParentCursor),
        (run, time_ns): (Option<String>, i64),
        config: &Config,
        (progress, counts): (&'a Progress, Arc<ReadCounts>),
    ) -> Self {
        let mtime = Timestamp {
            seconds: time_ns.div_euclid(1_000_000_000),
            nanoseconds: time_ns.rem_euclid(1_000_000_000) as u32,
        };
        let node = Node {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            mtime,
            ctime: mtime,
            ..Node::default()
        };
        let batch_bytes = config.pipeline.batch_bytes.0;
        let pool = BufferPool::new(batch_bytes as usize, 4 * config.pipeline.queue_depth + 8);
        let model = config.model.clone();
        MemoryStage {
            files: files.into(),
            parents,
            stored,
            run,
            node,
            model,
            batch_bytes,
            pool,
            batch: ReadBatch::default(),
            progress,
            counts,
        }
    }

    fn push(&mut self, item: ReadItem, emit: &mut Emit<ReadBatch>) -> Result<()> {
        if let ReadItem::Data(bytes) | ReadItem::Borrowed(bytes) = &item {
            self.batch.bytes += bytes.len() as u64;
            self.counts.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.progress.bytes_read.add(bytes.len() as u64);
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

    /// Tells Save what the listing of the current directory was.
    fn former(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        self.parents.listing().map_or(Ok(()), |content| self.tree(TreeItem::Former(content), emit))
    }

    /// Enters and leaves directories until those of `path` are open.
    fn change_directory(&mut self, open: &mut Vec<Vec<u8>>, path: &OsStr, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let mut wanted: Vec<&[u8]> = names_of(path).collect();
        wanted.pop();
        let shared = open.iter().zip(&wanted).take_while(|(one, other)| one == *other).count();
        while open.len() > shared {
            open.pop();
            self.parents.leave();
            self.tree(TreeItem::Leave(None), emit)?;
        }
        for name in wanted.into_iter().skip(shared) {
            let node =
                Node { name: name.to_vec(), kind: NodeKind::Directory, mode: DIRECTORY_MODE, ..self.node.clone() };
            self.parents.enter(&node);
            self.tree(TreeItem::Enter(Box::new(node)), emit)?;
            self.former(emit)?;
            open.push(name.to_vec());
        }
        Ok(())
    }

    fn file(&mut self, file: &MemoryFile, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let name = names_of(&file.path).last().unwrap_or_default().to_vec();
        if let MemoryContent::Stored(content) = &file.content {
            return self.stored(file, name, *content, emit);
        }
        let previous_version = self.parents.find_content(&name);
        let content = OpenContent::open(&file.content)?;
        let fingerprint = previous_version.and_then(ContentReference::fingerprint);
        let model = self.model_of(file, &content, fingerprint)?;
        let node = Node { name, kind: NodeKind::File, mode: FILE_MODE, ..self.node.clone() };
        self.tree(TreeItem::Begin(Box::new(node)), emit)?;
        if let Some(item) = announced(model.as_ref(), previous_version, content.len()) {
            self.push(item, emit)?;
        }
        self.content(file, &content, model.as_deref(), emit)?;
        self.tree(TreeItem::End { outcome: Outcome::Complete, small_holes: HoleMap::default(), sent: None }, emit)
    }

    /// A file whose content the repository has.
    fn stored(
        &mut self,
        file: &MemoryFile,
        name: Vec<u8>,
        content: ContentReference,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<()> {
        if !self.stored.has_all(content)? {
            // A prune may be in the way, or another copy is found by the next run.
            let lost = format!("content of {}", file.path.display());
            return Err(Error::BlobMissing { what: lost });
        }
        let (size, content) = (content.content_len(), Some(content));
        let node = Node { name, kind: NodeKind::File, mode: FILE_MODE, size, content, ..self.node.clone() };
        self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
        self.tree(TreeItem::Entry(Box::new(node)), emit)
    }

    fn model_of(
        &self,
        file: &MemoryFile,
        content: &OpenContent<'_>,
        previous_version: Option<Fingerprint>,
    ) -> Result<Option<Arc<ModelFile>>> {
        let path = Path::new(&file.path);
        let card = |card: &Path| {
            let wanted = || names_of(card.as_os_str());
            let found = self.files.binary_search_by(|file| names_of(&file.path).cmp(wanted())).ok()?;
            let content = OpenContent::open(&self.files.get(found)?.content).ok()?;
            let mut text = vec![0; content.len().min(CARD_BYTES_MAX) as usize];
            fill(&content, 0, &mut text).ok().map(|()| text)
        };
        let names = || {
            let mut found = names(path, &card);
            found.names.extend(self.run.clone());
            found
        };
        let (len, has_holes) = (content.len(), &|| false);
        let content = ModelContent { bytes: content, len, path, has_holes, names: &names };
        model_content(&content, &self.model, previous_version, DefectReporting::Warn)
    }

    fn content(
        &mut self,
        file: &MemoryFile,
        content: &OpenContent<'_>,
        model: Option<&ModelFile>,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<()> {
        let (mut offset, len) = (0, content.len());
        while offset < len {
            emit.check()?;
            let region = model.map(|model| model.record.region(offset));
            let region = region.unwrap_or(ModelRegion { end: len, block: None });
            let end = region.end.min(len);
            let is_borrowed = matches!(content, OpenContent::Parts { is_borrowed: true, .. });
            let (is_block, count) = (region.block.is_some(), usize::try_from(end - offset).unwrap_or(usize::MAX));
            offset = match content.rest_of_part(offset) {
                Some(part) if is_block && is_borrowed && part.len() >= count => {
                    self.push(ReadItem::Borrowed(part.slice(..count)), emit)?;
                    end
                }
                Some(part) if !is_borrowed => {
                    let count = count.min(part.len()).min(self.pool.buffer_bytes());
                    self.push(ReadItem::Data(part.slice(..count)), emit)?;
                    offset + count as u64
                }
                _ => self.copy(file, content, (offset, end), emit)?,
            };
        }
        let (OpenContent::Disk { file, len }, MemoryContent::Disk(path)) = (content, &file.content) else {
            return Ok(());
        };
        match ReadAt::read_at(file, *len, &mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => {
                let longer = io::Error::other(format!("its size is said to be {len} bytes, but it has more"));
                Err(Error::io("read consistently", path, longer))
            }
            Err(error) => Err(Error::io("read", path, error)),
        }
    }

    /// Sends a copy of the bytes from `start` on, at most to `end`. Returns where it ends.
    fn copy(
        &mut self,
        file: &MemoryFile,
        content: &OpenContent<'_>,
        (start, end): (u64, u64),
        emit: &mut Emit<ReadBatch>,
    ) -> Result<u64> {
        let want = (end - start).min(self.pool.buffer_bytes() as u64) as usize;
        let mut buffer = if want < self.pool.buffer_bytes() / 8 { self.pool.small(want) } else { self.pool.take() };
        fill(content, start, buffer.space(want)).map_err(|error| match &file.content {
            MemoryContent::Disk(path) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Error::io("read consistently", path, io::Error::other("it became shorter while it was read"))
            }
            MemoryContent::Disk(path) => Error::io("read", path, error),
            _ => Error::internal(format!("{}: {error}", file.path.display())),
        })?;
        self.push(ReadItem::Data(Bytes::from_owner(buffer.filled(want))), emit)?;
        Ok(start + want as u64)
    }
}

impl Source for MemoryStage<'_> {
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        "read"
    }

    fn run(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let mut open = Vec::new();
        self.former(emit)?;
        for file in self.files.clone().iter() {
            emit.check()?;
            self.change_directory(&mut open, &file.path, emit)?;
            self.file(file, emit)?;
        }
        for _ in open {
            self.tree(TreeItem::Leave(None), emit)?;
        }
        emit.emit(std::mem::take(&mut self.batch))
    }
}
