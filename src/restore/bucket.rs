//! Restores files as the objects of a bucket.
//!
//! 1. The target is listed once. An object with the key and the length of a file is the same if it has the ETag of the
//!    object that was stored, or the one that these bytes get if this writes them: the MD5 of the content, or of the
//!    MD5s of its parts. So what was written before is not written again, and no record of it is needed.
//! 2. Other files are written, several at a time, the large ones in parts. An object appears whole or not at all.
//! 3. Keys, types of content and what users have noted come back as they were stored. Directories that were objects are
//!    written as such. Links and special files are left out, and counted.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use md5::{Digest, Md5};
use serde::Serialize;

use super::chosen_tree::{ChosenTree, TreeStep};
use super::existing::Overwrite;
use super::message::log_left_alone;
use super::request::RestoreRequest;
use super::run::{METADATA_CACHE_BYTES, find_root};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::read::{ChunkReader, Reader};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind, ObjectFacts};
use crate::store::{BucketUpload, ListedObject, ObjectToPut, SourceBucket, map_parallel};
use crate::types::hex;

/// Objects that are written at once. Each holds a part in memory.
const AT_ONCE: usize = 4;
/// Files that are taken from the tree before they are written.
const BATCH: usize = 64;
/// Bytes of a part, at least. It decides the ETags of large objects.
const PART_BYTES: u64 = 16 << 20;
/// Parts of an object, at most.
const PARTS_MAX: u64 = 10_000;
/// Objects of the target that are remembered. Others are asked for one by one.
const KNOWN_MAX: usize = 1 << 20;

/// What a restore into a bucket has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BucketRestoreReport {
    /// Snapshot id, 64 hex digits.
    pub snapshot: String,
    /// URL of the target.
    pub target: String,
    /// Whether nothing was written, as requested.
    pub dry_run: bool,
    /// Files that are complete in the target.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Files among them that were there already.
    pub unchanged: u64,
    /// Bytes of the objects that were written.
    pub bytes_written: u64,
    /// Other objects that were there already and were left alone.
    pub left_alone: u64,
    /// Links and special files, which no bucket can have.
    pub left_out: u64,
    /// Files with bytes that cannot be read, and listings. Each was logged.
    pub damaged: u64,
    /// Files that could not be written. Each was logged.
    pub problems: u64,
}

/// What is known of an object of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownObject {
    size: u64,
    /// Hash of its ETag.
    etag: Option<[u8; 16]>,
}

/// A file to write.
struct FileToPut {
    object: ObjectToPut,
    node: Node,
    etag: Option<String>,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutOutcome {
    Written,
    Same,
    LeftAlone,
}

/// Writes what `request` chooses of a snapshot into the `bucket`. `progress` counts files and bytes.
///
/// # Errors
/// [`Error::Usage`] if the request is about more than objects; damage of the tree above what is chosen; errors of
/// listing the bucket, or of all that is written.
pub fn restore_into_bucket(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    bucket: &SourceBucket,
    mut request: RestoreRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BucketRestoreReport> {
    if request.delete || request.verify || request.overwrite == Overwrite::IfNewer {
        let refused = "--delete, --verify and --overwrite if-newer are about files on a disk, not about objects";
        return Err(Error::Usage(refused.into()));
    }
    bucket.check_writable()?;
    let repository = &repository.stopped_by(stop);
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut chunks = ChunkReader::with_cache(repository, listing.clone(), METADATA_CACHE_BYTES);
    let base = find_root(repository, snapshot, &mut request, &mut chunks)?;
    let known = KnownObjects::take(bucket, stop)?;
    let run =
        BucketRestore { bucket, reader: Reader::new(repository, listing), known, request: &request, progress, stop };
    let mut report = BucketRestoreReport {
        snapshot: snapshot.id.to_string(),
        target: bucket.url().into(),
        dry_run: request.dry_run,
        ..BucketRestoreReport::default()
    };
    let mut tree = ChosenTree::new(&base, request.selection.clone());
    let (mut path, mut batch) = (PathBuf::new(), Vec::new());
    while let Some(step) = tree.next(&mut chunks)? {
        match step {
            TreeStep::Enter(node) => {
                path.push(std::ffi::OsStr::from_bytes(&node.name));
                batch.extend(run.marker(&path, node));
            }
            TreeStep::Leave(_) => _ = path.pop(),
            TreeStep::Entry(node) if node.kind == NodeKind::File => {
                batch.push(run.file(&path.join(std::ffi::OsStr::from_bytes(&node.name)), node));
            }
            TreeStep::Entry(_) => report.left_out += 1,
            TreeStep::Unreadable(error) => {
                tracing::error!("cannot read the rest of {}: {error}", path.display());
                report.damaged += 1;
            }
        }
        if batch.len() >= BATCH {
            run.write(&mut batch, &mut report)?;
        }
    }
    run.write(&mut batch, &mut report)?;
    for missing in tree.missing() {
        tracing::error!("the snapshot has no entry {}", missing.display());
        report.problems += 1;
    }
    Ok(report)
}

/// The objects of the target.
struct KnownObjects {
    by_key: HashMap<[u8; 16], KnownObject>,
    /// Whether there are more of them.
    has_more: bool,
}

impl KnownObjects {
    fn take(bucket: &SourceBucket, stop: &AtomicBool) -> Result<Self> {
        let mut known = KnownObjects { by_key: HashMap::new(), has_more: false };
        let mut token: Option<String> = None;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let page = bucket.page(token.as_deref())?;
            for ListedObject { key, size, etag, .. } in page.objects {
                let object = KnownObject { size, etag: etag.map(|etag| short_hash(&etag)) };
                known.by_key.insert(short_hash(&key), object);
            }
            known.has_more = page.next.is_some() && known.by_key.len() >= KNOWN_MAX;
            if known.has_more || page.next.is_none() {
                return Ok(known);
            }
            token = page.next;
        }
    }

    /// The object of a key; `None` if there is none.
    fn find(&self, bucket: &SourceBucket, key: &str) -> Result<Option<KnownObject>> {
        let found = self.by_key.get(&short_hash(key)).copied();
        if found.is_some() || !self.has_more {
            return Ok(found);
        }
        let state = bucket.find(key)?;
        Ok(state.map(|state| KnownObject { size: state.size, etag: state.etag.as_deref().map(short_hash) }))
    }
}

fn short_hash(text: &str) -> [u8; 16] {
    blake3::hash(text.as_bytes()).as_bytes().first_chunk().copied().unwrap_or_default()
}

/// A restore that runs.
struct BucketRestore<'a> {
    bucket: &'a SourceBucket,
    reader: Reader,
    known: KnownObjects,
    request: &'a RestoreRequest,
    progress: &'a Progress,
    stop: &'a Arc<AtomicBool>,
}

impl BucketRestore<'_> {
    /// The object that marks a directory, if it was one.
    fn marker(&self, path: &Path, node: Node) -> Option<FileToPut> {
        ObjectFacts::of(&node)?;
        let mut marker = self.file(path, Node { size: 0, content: None, ..node });
        if !marker.object.key.ends_with('/') {
            marker.object.key.push('/');
        }
        Some(marker)
    }

    fn file(&self, path: &Path, node: Node) -> FileToPut {
        let facts = ObjectFacts::of(&node).unwrap_or_default();
        // Below another root the whole key would not be where the path is.
        let whole = facts.key.filter(|_| self.request.base.is_none());
        let rest = whole.unwrap_or_else(|| String::from_utf8_lossy(path.as_os_str().as_encoded_bytes()).into_owned());
        let object = ObjectToPut {
            key: format!("{}{rest}", self.bucket.prefix()),
            content_type: facts.content_type,
            metadata: facts.metadata.into_iter().collect(),
        };
        FileToPut { object, node, etag: facts.etag }
    }

    fn write(&self, batch: &mut Vec<FileToPut>, report: &mut BucketRestoreReport) -> Result<()> {
        let outcomes = map_parallel(AT_ONCE, batch, |file| self.put(file));
        for (file, outcome) in batch.drain(..).zip(outcomes) {
            match outcome {
                Ok(PutOutcome::LeftAlone) => {
                    log_left_alone(report.left_alone, &self.bucket.url_of(&file.object.key));
                    report.left_alone += 1;
                }
                Ok(outcome) => {
                    let what = match (outcome, report.dry_run) {
                        (PutOutcome::Same, _) => "the same is there",
                        (_, true) => "would be written",
                        (_, false) => "written",
                    };
                    tracing::info!("{}: {what}", self.bucket.url_of(&file.object.key));
                    report.files += 1;
                    report.bytes += file.node.size;
                    match outcome {
                        PutOutcome::Same => report.unchanged += 1,
                        _ => report.bytes_written += file.node.size,
                    }
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    self.progress.errors.add(1);
                    tracing::error!("{} is not restored: {error}", self.bucket.url_of(&file.object.key));
                    match error.kind() {
                        ErrorKind::Damaged | ErrorKind::NotFound | ErrorKind::Unsupported => report.damaged += 1,
                        _ => report.problems += 1,
                    }
                }
            }
        }
        Ok(())
    }

    fn put(&self, file: &FileToPut) -> Result<PutOutcome> {
        let key = &file.object.key;
        if !self.bucket.has_address(key) {
            return Err(Error::Usage("no URL can have its key".into()));
        }
        let found = self.known.find(self.bucket, key)?;
        let size = file.node.size;
        let outcome = match found {
            Some(found) if self.request.overwrite != Overwrite::Always && self.is_same(file, found)? => {
                PutOutcome::Same
            }
            Some(_) if self.request.overwrite == Overwrite::Never => PutOutcome::LeftAlone,
            _ if self.request.dry_run => PutOutcome::Written,
            _ if size <= PART_BYTES => self.put_whole(file)?,
            _ => self.put_parts(file)?,
        };
        self.progress.files_done.add(1);
        self.progress.bytes_skipped.add(if outcome == PutOutcome::Written { 0 } else { size });
        Ok(outcome)
    }

    /// Whether an object of the target has the bytes of a file.
    fn is_same(&self, file: &FileToPut, found: KnownObject) -> Result<bool> {
        let Some(etag) = found.etag.filter(|_| found.size == file.node.size) else { return Ok(false) };
        if file.etag.as_deref().map(short_hash) == Some(etag) {
            return Ok(true);
        }
        Ok(short_hash(&self.own_etag(file)?) == etag)
    }

    /// The ETag that this gives an object with the bytes of a file.
    fn own_etag(&self, file: &FileToPut) -> Result<String> {
        let size = file.node.size;
        if size <= PART_BYTES {
            return Ok(hex(&Md5::digest(self.read(file, (0, size))?)));
        }
        let (mut all, mut count) = (Md5::new(), 0);
        for part in parts_of(size) {
            all.update(Md5::digest(self.read(file, part)?));
            count += 1;
        }
        Ok(format!("{}-{count}", hex(&all.finalize())))
    }

    fn put_whole(&self, file: &FileToPut) -> Result<PutOutcome> {
        let bytes = self.read(file, (0, file.node.size))?;
        self.bucket.put(&file.object, &bytes)?;
        self.progress.bytes_read.add(file.node.size);
        Ok(PutOutcome::Written)
    }

    fn put_parts(&self, file: &FileToPut) -> Result<PutOutcome> {
        let mut upload = self.bucket.start_upload(&file.object)?;
        let put = self.put_into(file, &mut upload).and_then(|()| self.bucket.finish_upload(&upload));
        if put.is_err()
            && let Err(error) = self.bucket.abort_upload(&upload)
        {
            tracing::warn!("the parts of {} may stay: {error}", self.bucket.url_of(&file.object.key));
        }
        put.map(|_| PutOutcome::Written)
    }

    fn put_into(&self, file: &FileToPut, upload: &mut BucketUpload) -> Result<()> {
        for part in parts_of(file.node.size) {
            let bytes = self.read(file, part)?;
            self.bucket.put_part(upload, &bytes)?;
            self.progress.bytes_read.add(bytes.len() as u64);
        }
        Ok(())
    }

    /// The bytes of a file in a range, which is that of a part. All of them, or none.
    fn read(&self, file: &FileToPut, (from, to): (u64, u64)) -> Result<Bytes> {
        let len = file.node.content.map_or(0, |content| content.content_len());
        if len != file.node.size {
            let name = String::from_utf8_lossy(&file.node.name).into_owned();
            return Err(Error::corrupt(
                name,
                0,
                format!("{} bytes", file.node.size),
                format!("content of {len} bytes"),
            ));
        }
        let mut bytes = Vec::with_capacity((to - from) as usize);
        self.reader.file(file.node.content, len)?.copy((from, to), &mut |some| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            bytes.extend_from_slice(some);
            Ok(())
        })?;
        match bytes.len() as u64 == to - from {
            true => Ok(bytes.into()),
            false => Err(Error::internal("a file ends early")),
        }
    }
}

/// The ranges of the parts of an object of `size` bytes.
fn parts_of(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let part = PART_BYTES.max(size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20));
    (0..size.div_ceil(part)).map(move |number| (number * part, ((number + 1) * part).min(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_enough_and_cover_an_object_once() {
        for size in [PART_BYTES + 1, 3 * PART_BYTES, 10_000 * PART_BYTES + 1, 5 << 40] {
            let parts: Vec<_> = parts_of(size).collect();
            assert!(parts.len() as u64 <= PARTS_MAX, "{size}");
            assert_eq!((parts[0].0, parts[parts.len() - 1].1), (0, size));
            assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert!(parts[..parts.len() - 1].iter().all(|(from, to)| to - from >= PART_BYTES && to - from <= 5 << 30));
        }
    }
}
