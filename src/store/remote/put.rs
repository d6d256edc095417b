//! Puts: only if the name is free, and sure of the outcome whatever the network does.
//!
//! 1. A put is one conditional request. A blob whose length is known but which is too long for one request goes up in
//!    parts, after a look whether the name is free; the object appears when the last part is confirmed.
//! 2. If the server says that the name is taken, the store looks. If nothing is there, it tries again.
//! 3. After a request without an answer, the name may be taken by this put itself: then a blob of the same content
//!    counts as put.
//! 4. A server that does not know conditional puts says so once. From then on a put looks before it writes. Names are
//!    hashes or random, so two writers collide only in `config`.

use std::cell::Cell;
use std::io::Read;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, TagSet, UpdateVersion,
};

use super::RemoteStore;
use super::failure::{Cause, RequestFailure};
use super::requests::RequestKind;
use super::transport::SLICE_BYTES;
use crate::error::Result;
use crate::store::blob::read_stream;
use crate::store::{BlobName, ReadTwice, Store};

/// The longest blob that goes up in one request, bytes.
const SINGLE_PUT_BYTES_MAX: u64 = 64 << 20;
/// Length of the parts of longer blobs, bytes.
const PART_BYTES: u64 = 16 << 20;
/// Parts of a blob, at most. S3 allows 10 000.
const PARTS_MAX: u64 = 9_000;
/// The longest blob that is read again to see whether it is the one that was put, bytes. Of longer ones the length must
/// do; their names are hashes.
const COMPARED_BYTES_MAX: u64 = 1 << 20;

/// A put whose outcome is not known yet.
struct Pending<'a> {
    object: &'a Path,
    payload: &'a PutPayload,
    attributes: Attributes,
    tags: TagSet,
    /// Whether an earlier request may have stored the blob.
    is_uncertain: Cell<bool>,
}

impl RemoteStore {
    /// Stores the blob unless the name is taken, and says whether it did.
    pub(super) fn put_parts(&self, name: &BlobName, parts: &[&[u8]], is_cold: bool) -> Result<bool> {
        let (object, payload) = (self.object(name), payload(parts));
        let pending = self.pending(name, &object, &payload, is_cold);
        let put = self.requests.run(RequestKind::Write, async || self.put_once(&pending).await)?;
        put.map_err(|failure| self.error(failure, "write", name))
    }

    fn pending<'a>(&self, name: &BlobName, object: &'a Path, payload: &'a PutPayload, is_cold: bool) -> Pending<'a> {
        let mut tags = TagSet::default();
        self.tag.iter().filter(|_| is_cold).for_each(|tag| tags.push(&tag.key, &tag.value));
        Pending { object, payload, attributes: self.attributes(name, is_cold), tags, is_uncertain: Cell::new(false) }
    }

    /// What a new object gets besides its bytes: its class of storage, if the user gives one.
    fn attributes(&self, name: &BlobName, is_cold: bool) -> Attributes {
        let class = self.classes.of(name.kind(), is_cold);
        class.map(|class| (Attribute::StorageClass, class.to_string())).into_iter().collect()
    }

    /// One try of [`Self::put_parts`].
    async fn put_once(&self, pending: &Pending<'_>) -> Result<bool, RequestFailure> {
        if self.puts_conditionally.load(Ordering::Relaxed) {
            match self.send(pending, PutMode::Create).await {
                Err(failure) if failure.cause() == Cause::Unsupported => {
                    tracing::debug!("the store does not know conditional puts: {failure}");
                    self.puts_conditionally.store(false, Ordering::Relaxed);
                }
                Err(failure) if failure.cause() == Cause::Taken => {
                    let conflict =
                        || RequestFailure::new(Cause::Transient, format!("{failure}, but nothing is stored"));
                    return self.is_own(pending).await?.ok_or_else(conflict);
                }
                Err(failure) => return Err(failure),
                Ok(()) => return Ok(true),
            }
        }
        if let Some(is_own) = self.is_own(pending).await? {
            return Ok(is_own);
        }
        self.send(pending, PutMode::Overwrite).await.map(|()| true)
    }

    async fn send(&self, pending: &Pending<'_>, mode: PutMode) -> Result<(), RequestFailure> {
        let (attributes, tags) = (pending.attributes.clone(), pending.tags.clone());
        let options = PutOptions { mode, attributes, tags, ..PutOptions::default() };
        let sent = self.objects.put_opts(pending.object, pending.payload.clone(), options).await;
        let sent = sent.map(drop).map_err(RequestFailure::from);
        if sent.as_ref().is_err_and(RequestFailure::is_transient) {
            pending.is_uncertain.set(true);
        }
        sent
    }

    /// Whether the object is there and was put by this put. `None` if it is not there.
    async fn is_own(&self, pending: &Pending<'_>) -> Result<Option<bool>, RequestFailure> {
        let Some(found) = self.look(pending.object).await? else { return Ok(None) };
        let len = pending.payload.content_length() as u64;
        if !pending.is_uncertain.get() || found.len != len {
            return Ok(Some(false));
        }
        if len == 0 || len > COMPARED_BYTES_MAX {
            return Ok(Some(true));
        }
        let stored = self.fetch(pending.object, 0, len, &|_| Ok(())).await?;
        Ok(Some(stored.is_ok_and(|stored| stored.iter().eq(pending.payload.iter().flatten()))))
    }

    /// Stores the blob in place of the one of that name. The name is never free.
    pub(super) fn replace(&self, name: &BlobName, parts: &[&[u8]], is_cold: bool) -> Result<()> {
        let (object, payload) = (self.object(name), payload(parts));
        let pending = self.pending(name, &object, &payload, is_cold);
        let put = self.requests.run(RequestKind::Write, async || self.send(&pending, PutMode::Overwrite).await)?;
        put.map_err(|failure| self.error(failure, "write", name))
    }

    /// Like [`Self::replace`], unless there is no such blob; returns whether there was one. The request names the
    /// version that was found, so what is deleted meanwhile stays deleted, where the server knows such conditions.
    pub(super) fn replace_present(&self, name: &BlobName, parts: &[&[u8]], is_cold: bool) -> Result<bool> {
        let (object, payload) = (self.object(name), payload(parts));
        let pending = self.pending(name, &object, &payload, is_cold);
        let replaced = self.requests.run(RequestKind::Write, async || self.replace_found(&pending).await)?;
        replaced.map_err(|failure| self.error(failure, "write", name))
    }

    /// One try of [`Self::replace_present`].
    async fn replace_found(&self, pending: &Pending<'_>) -> Result<bool, RequestFailure> {
        let found = match self.objects.head(pending.object).await.map_err(RequestFailure::from) {
            Ok(found) => UpdateVersion { e_tag: found.e_tag, version: found.version },
            Err(failure) if failure.cause() == Cause::Missing => return Ok(false),
            Err(failure) => return Err(failure),
        };
        let has_version = found.e_tag.is_some() || found.version.is_some();
        if has_version && self.puts_conditionally.load(Ordering::Relaxed) {
            match self.send(pending, PutMode::Update(found)).await {
                // Somebody has deleted or replaced it: the next try looks again.
                Err(failure) if matches!(failure.cause(), Cause::Taken | Cause::Missing) => {
                    return Err(RequestFailure::new(Cause::Transient, format!("it changes meanwhile: {failure}")));
                }
                Err(failure) if failure.cause() == Cause::Unsupported => {}
                sent => return sent.map(|()| true),
            }
        }
        self.send(pending, PutMode::Overwrite).await.map(|()| true)
    }

    /// Whether the server refuses to put the blob `name`, which exists, once more. Some servers ignore the condition.
    pub(super) fn refuses_taken_names(&self, name: &BlobName) -> Result<bool> {
        if !self.puts_conditionally.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let (object, stored) = (self.object(name), PutPayload::from(self.get(name, COMPARED_BYTES_MAX)?));
        let answer = self.requests.run(RequestKind::Write, async || {
            Ok(self.objects.put_opts(&object, stored.clone(), PutMode::Create.into()).await?)
        })?;
        match answer {
            Ok(_) => Ok(false),
            Err(failure) => match failure.cause() {
                // Whoever may not replace a blob cannot collide.
                Cause::Taken | Cause::Denied => Ok(true),
                Cause::Unsupported => Ok(false),
                _ => Err(self.error(failure, "write", name)),
            },
        }
    }

    /// Stores a stream of `len` bytes unless the name is taken, and says whether it did.
    pub(super) fn upload(&self, name: &BlobName, len: u64, content: &mut dyn ReadTwice) -> Result<bool> {
        if len <= SINGLE_PUT_BYTES_MAX {
            return self.put_parts(name, &[&read_stream(name, len, content)?], false);
        }
        let object = self.object(name);
        let failed = |failure| self.error(failure, "write", name);
        if self.requests.run(RequestKind::Write, async || self.look(&object).await)?.map_err(failed)?.is_some() {
            return Ok(false);
        }
        let begin = async || {
            let attributes = self.attributes(name, false);
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            self.objects.create_multipart_opts(&object, options).await.map_err(RequestFailure::from)
        };
        let upload = self.requests.run(RequestKind::Write, begin)?.map_err(failed)?;
        let put = self.upload_parts(name, &upload, len, content);
        if put.is_err() {
            // The parts cost space until they are removed; what has been put is not there without the last request.
            let abort = async || self.objects.abort_multipart(&object, &upload).await.map_err(RequestFailure::from);
            if let Err(failure) = self.requests.run(RequestKind::Write, abort)? {
                tracing::warn!("an unfinished upload of {name} stays in the bucket: {failure}");
            }
        }
        put.map(|()| true)
    }

    /// Puts the parts of a stream and makes an object of them.
    fn upload_parts(&self, name: &BlobName, upload: &str, len: u64, content: &mut dyn ReadTwice) -> Result<()> {
        let (object, upload) = (self.object(name), upload.to_string());
        let failed = |failure| self.error(failure, "write", name);
        let part_bytes = PART_BYTES.max(len.div_ceil(PARTS_MAX));
        let mut parts: Vec<PartId> = Vec::new();
        let mut put = 0;
        while put < len {
            let step = part_bytes.min(len - put);
            // The last part ends where the stream must end.
            let bytes = match put + step == len {
                true => read_stream(name, step, content)?,
                false => read_stream(name, step, &mut (&mut *content).take(step))?,
            };
            let payload = payload(&[&bytes]);
            let number = parts.len();
            let part = async || {
                self.objects.put_part(&object, &upload, number, payload.clone()).await.map_err(RequestFailure::from)
            };
            parts.push(self.requests.run(RequestKind::Write, part)?.map_err(failed)?);
            put += step;
        }
        let finish = async || {
            let finished = self.objects.complete_multipart(&object, &upload, parts.clone()).await;
            match finished.map_err(RequestFailure::from) {
                // An earlier request may have finished the upload, which is then unknown.
                Err(failure) => match self.look(&object).await? {
                    Some(found) if found.len == len => Ok(()),
                    _ => Err(failure),
                },
                Ok(_) => Ok(()),
            }
        };
        self.requests.run(RequestKind::Write, finish)?.map_err(|failure| match failure.cause() {
            // The upload is missing, not the blob.
            Cause::Missing => failure.into_error("write", name, RequestKind::Write),
            _ => self.error(failure, "write", name),
        })
    }
}

/// The bytes of a request, in slices.
fn payload(parts: &[&[u8]]) -> PutPayload {
    parts.iter().flat_map(|part| part.chunks(SLICE_BYTES)).map(Bytes::copy_from_slice).collect()
}
