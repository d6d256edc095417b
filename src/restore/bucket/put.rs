//! Puts files into the target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use md5::{Digest, Md5};

use super::known::{KnownObject, KnownObjects, short_hash};
use super::parts::{PART_BYTES, PartMemory, parts_of};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::repo::read::Reader;
use crate::repo::tree::{Node, is_hash_of_bytes};
use crate::restore::existing::Overwrite;
use crate::restore::request::RestoreRequest;
use crate::store::{BucketUpload, ObjectPut, ObjectState, ObjectToPut, SourceBucket};
use crate::types::hex;

/// A file to write.
pub struct FileToPut {
    pub object: ObjectToPut,
    pub node: Node,
    /// The stored ETag.
    pub etag: Option<String>,
    /// Whether the target is where the snapshot was taken from, and the key the same.
    pub is_from_here: bool,
}

impl FileToPut {
    /// Whether an object of the target is the one that was stored.
    fn was_stored(&self, found: KnownObject) -> bool {
        let Some(etag) = self.etag.as_deref().filter(|etag| found.etag == Some(short_hash(etag))) else { return false };
        let seconds = self.node.mtime.seconds;
        let is_as_old = || self.is_from_here && seconds != 0 && found.modified == Some(seconds);
        found.size == self.node.size && (is_hash_of_bytes(etag) || is_as_old())
    }

    /// What becomes of it beside an object that somebody else has put meanwhile. `etag` is the one that this would get.
    fn beside(&self, found: ObjectState, etag: impl Fn() -> String) -> PutOutcome {
        let is_own = found.size == self.node.size && found.etag.as_ref().is_some_and(|found| *found == etag());
        let is_same = is_own || self.was_stored(found.into());
        if is_same { PutOutcome::Same } else { PutOutcome::LeftAlone }
    }
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Written,
    Same,
    LeftAlone,
}

/// Why a file was not put.
#[derive(Debug)]
pub enum PutFailure {
    /// It concerns only this file.
    OfFile(Error),
    /// No other file can be put either.
    OfAll(Error),
}

impl PutFailure {
    /// Of reading the file. What is damaged or too new costs a file; what cannot be read now ends a restore.
    fn of_repository(error: Error) -> Self {
        if error.is_unreadable() { PutFailure::OfFile(error) } else { PutFailure::OfAll(error) }
    }

    /// Of a request to the target.
    fn of_target(bucket: &SourceBucket, error: Error) -> Self {
        match error.kind() {
            ErrorKind::Interrupted | ErrorKind::Unreachable | ErrorKind::NoRepository => PutFailure::OfAll(error),
            _ if bucket.is_lost() => PutFailure::OfAll(error),
            _ => PutFailure::OfFile(error),
        }
    }
}

type PutResult<T> = std::result::Result<T, PutFailure>;

/// A restore that runs.
pub struct BucketRestore<'a> {
    pub bucket: &'a SourceBucket,
    /// What the keys of the repository begin with, if it is below the prefix of the target.
    pub own_keys: Option<String>,
    pub reader: Reader,
    pub known: KnownObjects,
    pub memory: PartMemory,
    pub request: &'a RestoreRequest,
    pub progress: &'a Progress,
    pub stop: &'a Arc<AtomicBool>,
}

impl BucketRestore<'_> {
    /// Puts a file, unless the target has it.
    ///
    /// # Errors
    /// Errors of reading the file, and of the target.
    pub fn put(&self, file: &FileToPut) -> PutResult<PutOutcome> {
        let key = &file.object.key;
        if !self.bucket.has_address(key) {
            return Err(PutFailure::OfFile(Error::Usage("no URL can have its key".into())));
        }
        if self.own_keys.as_ref().is_some_and(|own| key.starts_with(own)) {
            return Err(PutFailure::OfFile(Error::Usage("it would be in the repository".into())));
        }
        let size = file.node.size;
        let found = self.known.find(self.bucket, key).map_err(|error| self.of_target(error))?;
        let _hold = self.memory.take(size);
        let is_new = found.is_none() && self.request.overwrite == Overwrite::Never;
        let outcome = match found {
            Some(found) if self.request.overwrite != Overwrite::Always && self.is_same(file, found)? => {
                PutOutcome::Same
            }
            Some(_) if self.request.overwrite == Overwrite::Never => PutOutcome::LeftAlone,
            _ => {
                self.memory.check(size).map_err(PutFailure::OfFile)?;
                match size {
                    _ if self.request.dry_run => PutOutcome::Written,
                    0..=PART_BYTES => self.put_whole(file, is_new)?,
                    _ => self.put_parts(file, is_new)?,
                }
            }
        };
        self.progress.files_done.add(1);
        self.progress.bytes_skipped.add(if outcome == PutOutcome::Written { 0 } else { size });
        Ok(outcome)
    }

    fn of_target(&self, error: Error) -> PutFailure {
        PutFailure::of_target(self.bucket, error)
    }

    /// Whether an object of the target has the bytes of a file.
    fn is_same(&self, file: &FileToPut, found: KnownObject) -> PutResult<bool> {
        let Some(etag) = found.etag.filter(|_| found.size == file.node.size) else { return Ok(false) };
        if file.was_stored(found) {
            return Ok(true);
        }
        Ok(short_hash(&self.own_etag(file)?) == etag)
    }

    /// The ETag that this gives an object with the bytes of a file.
    fn own_etag(&self, file: &FileToPut) -> PutResult<String> {
        let size = file.node.size;
        self.memory.check(size).map_err(PutFailure::OfFile)?;
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

    fn put_whole(&self, file: &FileToPut, is_new: bool) -> PutResult<PutOutcome> {
        let bytes = self.read(file, (0, file.node.size))?;
        let object = ObjectToPut { is_new, ..file.object.clone() };
        match self.bucket.put(&object, &bytes).map_err(|error| self.of_target(error))? {
            ObjectPut::Done => {
                self.progress.bytes_read.add(file.node.size);
                Ok(PutOutcome::Written)
            }
            ObjectPut::Taken(found) => Ok(file.beside(found, || hex(&Md5::digest(&bytes)))),
        }
    }

    fn put_parts(&self, file: &FileToPut, is_new: bool) -> PutResult<PutOutcome> {
        let object = ObjectToPut { is_new, ..file.object.clone() };
        let mut upload = self.bucket.start_upload(&object).map_err(|error| self.of_target(error))?;
        let put = self.put_into(file, &mut upload);
        let finish = |()| self.bucket.finish_upload(&upload).map_err(|error| self.of_target(error));
        let put = put.and_then(finish);
        if !matches!(put, Ok(ObjectPut::Done))
            && let Err(error) = self.bucket.abort_upload(&upload)
        {
            tracing::warn!("the parts of {} may stay: {error}", self.bucket.url_of(&file.object.key));
        }
        Ok(match put? {
            ObjectPut::Done => PutOutcome::Written,
            ObjectPut::Taken(found) => file.beside(found, || upload.etag()),
        })
    }

    fn put_into(&self, file: &FileToPut, upload: &mut BucketUpload) -> PutResult<()> {
        for part in parts_of(file.node.size) {
            let bytes = self.read(file, part)?;
            self.bucket.put_part(upload, &bytes).map_err(|error| self.of_target(error))?;
            self.progress.bytes_read.add(bytes.len() as u64);
        }
        Ok(())
    }

    /// The bytes of a file in a range, which is that of a part. All of them, or none.
    fn read(&self, file: &FileToPut, range: (u64, u64)) -> PutResult<Bytes> {
        self.read_range(file, range).map_err(PutFailure::of_repository)
    }

    fn read_range(&self, file: &FileToPut, (from, to): (u64, u64)) -> Result<Bytes> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreOptions;

    #[test]
    fn what_concerns_all_files_ends_a_restore() {
        let of_all = |failure| matches!(failure, PutFailure::OfAll(_));
        let cold = || Error::Cold { what: "a container".into() };
        let locked = || Error::Locked { location: "here".into(), reason: "another key".into() };
        let remote = |kind| Error::Remote { action: "read", what: "x".into(), reason: "so".into(), kind };
        let io = || Error::io("read", "x", std::io::Error::other("gone"));
        for error in [cold(), locked(), remote(ErrorKind::Unreachable), Error::Interrupted, io()] {
            assert!(of_all(PutFailure::of_repository(error)));
        }
        for error in [Error::corrupt("x", 0, "y", "z"), Error::unsupported("x", "codec 9")] {
            assert!(!of_all(PutFailure::of_repository(error)));
        }
        let access_key = Some(crate::store::AccessKey { id: "id".into(), secret: "secret".into() });
        let options = StoreOptions { endpoint: Some("http://127.0.0.1:1".into()), access_key, ..Default::default() };
        let bucket = SourceBucket::open("s3://bucket".as_ref(), &options).unwrap();
        for kind in [ErrorKind::Unreachable, ErrorKind::NoRepository] {
            assert!(of_all(PutFailure::of_target(&bucket, remote(kind))));
        }
        // The credentials may not write this object.
        for kind in [ErrorKind::ReadOnly, ErrorKind::Failed] {
            assert!(!of_all(PutFailure::of_target(&bucket, remote(kind))));
        }
    }
}
