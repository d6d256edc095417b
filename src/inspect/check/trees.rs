//! Checks trees: every listing and recipe of every snapshot decodes, and their chunks are in listed containers.
//!
//! Snapshots share most of their content. A listing or recipe that was checked before is skipped, as long as a bounded
//! cache remembers its fingerprint.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use lru::LruCache;

use super::defect_log::{DefectLog, damage};
use super::run::CheckRun;
use crate::error::{Error, Result};
use crate::repo::container::OperationSource;
use crate::repo::reader::ChunkReader;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind, TreeCursor};
use crate::types::Fingerprint;

/// Number of listings and recipes that the check remembers.
const SEEN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 17).expect("not zero");

/// Checks the tree of every snapshot.
pub(super) fn check(run: &CheckRun<'_>, snapshots: &[NamedSnapshot], log: &mut DefectLog) -> Result<()> {
    let cache_bytes = run.config.restore.cache_bytes.0 as usize;
    let reader = ChunkReader::new(run.repository, run.listing.clone(), cache_bytes);
    let mut check = TreeCheck { run, reader, seen: LruCache::new(SEEN_MAX), log };
    snapshots.iter().try_for_each(|snapshot| check.snapshot(snapshot))
}

struct TreeCheck<'a> {
    run: &'a CheckRun<'a>,
    reader: ChunkReader,
    /// Listings and recipes that were checked.
    seen: LruCache<Fingerprint, ()>,
    log: &'a mut DefectLog,
}

impl TreeCheck<'_> {
    fn snapshot(&mut self, snapshot: &NamedSnapshot) -> Result<()> {
        let mut path = PathBuf::new();
        let mut levels: Vec<TreeCursor> = self.unseen(snapshot.snapshot.root).into_iter().collect();
        while let Some(cursor) = levels.last_mut() {
            self.run.check_stop()?;
            let next = match cursor.next(&mut self.reader) {
                Ok(next) => next,
                Err(error) => {
                    self.defect(snapshot, &path, damage(error)?);
                    None
                }
            };
            let Some(node) = next else {
                levels.pop();
                path.pop();
                continue;
            };
            path.push(name_of(&node));
            if node.kind == NodeKind::Directory
                && let Some(cursor) = self.unseen(node.content)
            {
                levels.push(cursor);
                continue;
            }
            let content_len = node.content.map_or(0, |content| content.content_len());
            if node.kind == NodeKind::File && content_len != node.size {
                let expected = format!("the {} bytes of its directory entry", node.size);
                let error = Error::corrupt("content of the file", 0, expected, content_len.to_string());
                self.defect(snapshot, &path, error);
            }
            if let Some(content) = node.content.filter(|_| node.kind != NodeKind::Directory) {
                self.content(snapshot, &path, content)?;
            }
            path.pop();
        }
        Ok(())
    }

    /// A cursor over a listing that was not checked before.
    fn unseen(&mut self, content: Option<ContentReference>) -> Option<TreeCursor> {
        if let Some(ContentReference::Chunk { fingerprint, .. } | ContentReference::Recipe { fingerprint, .. }) =
            content
            && self.seen.put(fingerprint, ()).is_some()
        {
            return None;
        }
        content.map(|content| TreeCursor::open(Some(content)))
    }

    /// Checks the content of a file, recipes depth first. After a defect the rest of the content is checked too.
    fn content(&mut self, snapshot: &NamedSnapshot, path: &Path, content: ContentReference) -> Result<()> {
        let mut levels = vec![vec![content].into_iter()];
        while let Some(level) = levels.last_mut() {
            self.run.check_stop()?;
            let found = match level.next() {
                None => {
                    levels.pop();
                    continue;
                }
                Some(ContentReference::Hole { .. }) => continue,
                Some(ContentReference::Chunk { fingerprint, len }) => self.chunk(&fingerprint, len),
                Some(ContentReference::Recipe { level, fingerprint, len }) => {
                    if self.seen.put(fingerprint, ()).is_some() {
                        continue;
                    }
                    let bytes = self.reader.read(&fingerprint);
                    let list = bytes.and_then(|bytes| decode_recipe(&fingerprint, level, len, &bytes));
                    list.map(|list| levels.push(list.into_iter()))
                }
            };
            if let Err(error) = found {
                self.defect(snapshot, path, damage(error)?);
            }
        }
        Ok(())
    }

    fn chunk(&mut self, fingerprint: &Fingerprint, len: u64) -> Result<()> {
        let number = self.reader.entry_of(fingerprint)?;
        let raw_len = self.reader.resolver.view(number)?.raw_len;
        if u64::from(raw_len) == len {
            return Ok(());
        }
        Err(Error::corrupt("recipe", 0, format!("chunk {fingerprint} of {raw_len} bytes"), len.to_string()))
    }

    fn defect(&mut self, snapshot: &NamedSnapshot, path: &Path, error: Error) {
        self.log.consequence(format!("snapshot {}, /{}: {error}", snapshot.id, path.display()));
    }
}

fn name_of(node: &Node) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(&node.name))
}
