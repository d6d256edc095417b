//! Puts files into the target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use md5::{Digest, Md5};

use super::known::{KnownObject, KnownObjects, short_hash};
use super::parts::{PART_BYTES, parts_of};
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::repo::read::Reader;
use crate::repo::tree::Node;
use crate::restore::existing::Overwrite;
use crate::restore::request::RestoreRequest;
use crate::store::{BucketUpload, ObjectToPut, SourceBucket};
use crate::types::hex;

/// A file to write.
pub struct FileToPut {
    pub object: ObjectToPut,
    pub node: Node,
    pub etag: Option<String>,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Written,
    Same,
    LeftAlone,
}

/// A restore that runs.
pub struct BucketRestore<'a> {
    pub bucket: &'a SourceBucket,
    pub reader: Reader,
    pub known: KnownObjects,
    pub request: &'a RestoreRequest,
    pub progress: &'a Progress,
    pub stop: &'a Arc<AtomicBool>,
}

impl BucketRestore<'_> {
    /// Puts a file, unless the target has it.
    ///
    /// # Errors
    /// Errors of reading the file, and of the target.
    pub fn put(&self, file: &FileToPut) -> Result<PutOutcome> {
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

