//! Large files, by git-lfs' basic transfer.
//!
//! A client asks for URLs by the SHA-256 of its files, and puts each file to its URL. It sends no token there, so the
//! URL is signed, for an hour: with a key that only this process has.

use std::io::Write;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use super::UploadReceiver;
use super::announce::parsed;
use super::body::ReceivedBody;
use crate::backup::{MemoryContent, MemoryFile};
use crate::error::{Error, Result as EngineResult};
use crate::repo::index::{ChunkPresence, ContainerListing};
use crate::repo::published::{PublishedFile, PublishedKind};
use crate::repo::read::{ChunkReader, Reader, is_whole};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_listing;
use crate::repo::tree::TreeCursor;
use crate::repo::upload::StoredUpload;
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::pages::path_of;
use crate::serve::parts::{PART_BYTES, blocking};
use crate::serve::question::Question;
use crate::serve::state::Client;
use crate::types::{hex, unhex};

/// Objects that a client may ask for at once.
const OBJECTS_MAX: usize = 1000;
/// Length of an object, bytes. Clients send longer ones by other ways only.
const OBJECT_BYTES_MAX: u64 = 50_000_000_000;
/// Time for which a URL counts, seconds.
const URL_SECONDS: i64 = 3600;
/// An object that expires sooner is uploaded again, nanoseconds.
const REST_NS: i64 = 24 * 3600 * 1_000_000_000;
/// Name of the file in the snapshot of an object.
const OBJECT_NAME: &str = "object";

/// The SHA-256 and the length of an object.
pub type ObjectKey = ([u8; 32], u64);

/// An object that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedObject {
    /// What it is uploaded for.
    pub kind: PublishedKind,
    /// `ORG/NAME`.
    pub name: String,
    /// Its SHA-256.
    pub sha256: [u8; 32],
}

#[derive(Deserialize)]
struct ObjectBatch {
    operation: String,
    objects: Vec<NewObject>,
    #[serde(default)]
    hash_algo: Option<String>,
}

#[derive(Deserialize)]
struct NewObject {
    oid: String,
    size: u64,
}

/// What an upload is for, as its snapshot records it.
pub fn owner(kind: PublishedKind, name: &str) -> String {
    format!("{} {name}", kind.name())
}

/// The SHA-256 of its hex digits.
pub fn sha256_of(digits: &str) -> Option<[u8; 32]> {
    unhex(digits).filter(|bytes| hex(bytes) == digits)
}

impl UploadReceiver {
    fn signature(&self, object: &SignedObject, len: u64, expires: i64) -> String {
        let what = format!("{} {} {len} {expires}", owner(object.kind, &object.name), hex(&object.sha256));
        hex(blake3::keyed_hash(&self.key, what.as_bytes()).as_bytes())
    }

    fn now_seconds(&self) -> i64 {
        self.repository.clock.now_ns().div_euclid(1_000_000_000)
    }

    /// The length of the object that a signed URL names.
    fn signed_len(&self, question: &Question<'_>, object: &SignedObject) -> Result<u64, Fault> {
        let value = |key: &str| question.target.value(key);
        let (len, expires) = (value("size").and_then(|text| text.parse().ok()), value("expires"));
        let (Some(len), Some(expires)) = (len, expires.and_then(|text| text.parse().ok())) else {
            return Err(Fault::Forbidden("the URL is not signed"));
        };
        self.check_signature(object, (len, expires), value("signature").unwrap_or_default())?;
        Ok(len)
    }

    /// Checks the signature of a URL for an object of a length, which counts until a time, seconds since 1970.
    fn check_signature(&self, object: &SignedObject, (len, expires): (u64, i64), given: &str) -> Result<(), Fault> {
        if !bool::from(self.signature(object, len, expires).as_bytes().ct_eq(given.as_bytes())) {
            return Err(Fault::Forbidden("the signature of the URL is not valid; ask for another URL"));
        }
        if self.now_seconds() > expires {
            return Err(Fault::Forbidden("the URL has expired; ask for another one"));
        }
        Ok(())
    }

    /// The snapshots of objects that were uploaded for a name, with their keys. One that is to expire soon does not
    /// count for `lasting` ones.
    pub(super) fn objects(&self, owner: &str, lasting: bool) -> EngineResult<Vec<([u8; 32], NamedSnapshot)>> {
        let now_ns = self.repository.clock.now_ns();
        let after_ns = if lasting { now_ns.saturating_add(REST_NS) } else { now_ns };
        let snapshots = snapshot_listing::list(&self.repository)?.snapshots;
        let own = snapshots.into_iter().filter_map(|named| {
            let upload = StoredUpload::of(&named.snapshot)?;
            let is_own = upload.name == owner && upload.expires_ns > after_ns;
            Some((<[u8; 32]>::try_from(upload.sha256.as_slice()).ok().filter(|_| is_own)?, named))
        });
        Ok(own.collect())
    }

    /// Those of the `wanted` objects that are there, whole.
    fn present(&self, owner: &str, wanted: &[ObjectKey]) -> EngineResult<Vec<ObjectKey>> {
        let mut found = self.objects(owner, true)?;
        found.retain(|(sha256, _)| wanted.iter().any(|(own, _)| own == sha256));
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let listing = Arc::new(ContainerListing::take(&self.repository.store)?);
        let mut reader = ChunkReader::new(&self.repository, listing.clone());
        let mut presence = ChunkPresence::new(self.repository.store.clone(), listing, Arc::default());
        let mut present = Vec::new();
        for (sha256, named) in found {
            if let Some(PublishedFile { content, len }) = file_of(&mut reader, &named)?
                && content.map_or(Ok(true), |content| is_whole(content, &mut reader, &mut presence))?
            {
                present.push((sha256, len));
            }
        }
        Ok(present)
    }

    /// Whether an object is there, whole.
    fn has(&self, object: &SignedObject, len: u64) -> EngineResult<bool> {
        let wanted = (object.sha256, len);
        Ok(self.present(&owner(object.kind, &object.name), &[wanted])?.contains(&wanted))
    }
}

/// The file of an object. `None` if its snapshot is damaged: it can be uploaded again.
pub fn file_of(reader: &mut ChunkReader, named: &NamedSnapshot) -> EngineResult<Option<PublishedFile>> {
    match TreeCursor::open(named.snapshot.root).next(reader) {
        Ok(node) => Ok(node.map(|node| PublishedFile { content: node.content, len: node.size })),
        Err(error) if error.is_unreadable() => {
            tracing::warn!("an upload, snapshot {:.8}, is damaged: {error}", named.id);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Says which objects are there, and where the others shall be put.
///
/// # Errors
/// [`Fault::Refused`], and errors of listing the snapshots.
pub async fn batch(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    (kind, name): (PublishedKind, &str),
    body: &Bytes,
) -> Result<HttpAnswer, Fault> {
    question.may_write(name)?;
    let ObjectBatch { operation, objects, hash_algo } = parsed(body)?;
    if operation != "upload" {
        return Err(Fault::Refused("files are downloaded by `resolve`, not by git-lfs".into()));
    }
    if hash_algo.is_some_and(|algorithm| algorithm != "sha256") {
        return Err(Fault::Refused("objects have a SHA-256".into()));
    }
    if objects.len() > OBJECTS_MAX {
        return Err(Fault::TooLong);
    }
    let (own, owner) = (uploads.clone(), owner(kind, name));
    let wanted: Vec<ObjectKey> =
        objects.iter().filter_map(|object| Some((sha256_of(&object.oid)?, object.size))).collect();
    let present = blocking(move || own.present(&owner, &wanted)).await?;
    let described = objects.iter().map(|object| {
        let refused = |code: u16, message: &str| {
            json!({ "oid": object.oid, "size": object.size, "error": { "code": code, "message": message } })
        };
        let Some(sha256) = sha256_of(&object.oid) else { return refused(422, "the oid is no SHA-256") };
        if object.size > OBJECT_BYTES_MAX {
            return refused(413, "the object is longer than 50 GB");
        }
        if present.contains(&(sha256, object.size)) {
            return json!({ "oid": object.oid, "size": object.size });
        }
        let actions = actions(question, uploads, &SignedObject { kind, name: name.into(), sha256 }, object.size);
        json!({ "oid": object.oid, "size": object.size, "actions": actions })
    });
    let document = json!({ "transfer": "basic", "objects": described.collect::<Vec<_>>(), "hash_algo": "sha256" });
    let mut answer = answer::document(&document);
    answer::set(&mut answer, http::header::CONTENT_TYPE, "application/vnd.git-lfs+json");
    Ok(answer)
}

fn actions(question: &Question<'_>, uploads: &UploadReceiver, object: &SignedObject, len: u64) -> Value {
    let expires = uploads.now_seconds().saturating_add(URL_SECONDS);
    let signature = uploads.signature(object, len, expires);
    let base = format!("{}{}.git/lfs/{}", question.origin, path_of(object.kind, &object.name), hex(&object.sha256));
    let query = format!("size={len}&expires={expires}&signature={signature}");
    json!({
        "upload": { "href": format!("{base}?{query}"), "header": {}, "expires_in": URL_SECONDS },
        "verify": { "href": format!("{base}/verify?{query}"), "header": {}, "expires_in": URL_SECONDS },
    })
}

/// Takes an object. It is acknowledged once its snapshot is stored.
///
/// # Errors
/// [`Fault::Forbidden`] for a URL that does not count, [`Fault::Refused`] for other bytes than it names, and errors of
/// storing.
pub async fn object(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    object: SignedObject,
    body: Incoming,
) -> Result<HttpAnswer, Fault> {
    let len = uploads.signed_len(question, &object)?;
    let announced = question.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced != len) {
        return Err(Fault::Refused(format!("the object has {len} bytes, but the body has another length")));
    }
    let _turn = uploads.bodies.take(&Client::Anybody).await?;
    let mut body = ReceivedBody::new(body, question.state.limits.body);
    let own = uploads.clone();
    let (mut file, mut digest, mut received) = (blocking(move || own.spool()).await?, Context::new(&SHA256), 0u64);
    while let Some(part) = body.part(PART_BYTES as usize).await? {
        received = received.saturating_add(part.len() as u64);
        if received > len {
            return Err(Fault::Refused(format!("the object has {len} bytes, but more come")));
        }
        (file, digest) = blocking(move || {
            digest.update(&part);
            file.write_all(&part).map_err(|error| Error::io("write", "a file of an upload", error))?;
            Ok((file, digest))
        })
        .await?;
    }
    if received != len || digest.finish().as_ref() != object.sha256.as_slice() {
        return Err(Fault::Refused("the bytes do not have the SHA-256 and the length that they were to have".into()));
    }
    let storing = uploads.storing.clone().acquire_owned().await;
    let storing = storing.map_err(|error| Error::internal(error.to_string()))?;
    let (own, state) = (uploads.clone(), question.state.clone());
    blocking(move || {
        let _storing = storing;
        if own.has(&object, len)? {
            return Ok(());
        }
        let content = MemoryContent::Range { file: Arc::new(file), start: 0, len };
        let upload = StoredUpload {
            expires_ns: own.expiry_ns(),
            name: owner(object.kind, &object.name),
            sha256: object.sha256.to_vec().into(),
        };
        let named = own.store(vec![MemoryFile { path: OBJECT_NAME.into(), content }], upload)?;
        let stored = file_of(&mut Reader::open(&own.repository)?.chunks(), &named)?;
        stored.map_or(Ok(()), |stored| state.hashes.add_large(&stored, object.sha256))
    })
    .await?;
    Ok(answer::text(StatusCode::OK, ""))
}

/// Says whether an object was taken.
///
/// # Errors
/// [`Fault::Forbidden`] for a URL that does not count, [`Fault::Refused`] if it is not there.
pub async fn verified(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    object: SignedObject,
    body: &Bytes,
) -> Result<HttpAnswer, Fault> {
    let len = uploads.signed_len(question, &object)?;
    let NewObject { oid, size } = parsed(body)?;
    let own = uploads.clone();
    let is_same = sha256_of(&oid) == Some(object.sha256) && size == len;
    if !is_same || !blocking(move || own.has(&object, len)).await? {
        return Err(Fault::Refused("there is no such object".into()));
    }
    Ok(answer::document(&json!({})))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::backup::{BackupRequest, MemorySource, backup};
    use crate::config::Config;
    use crate::metrics::Progress;
    use crate::repo::Repository;
    use crate::repo::recipe::ContentReference;
    use crate::store::{BlobKind, Durable, MemoryStore};
    use crate::types::Fingerprint;

    /// A receiver whose repository has nothing, and the directory of its cache.
    fn receiver() -> (UploadReceiver, tempfile::TempDir) {
        let (directory, config) = (tempfile::tempdir().unwrap(), Config::default());
        let mut repository = Repository::init(Arc::new(MemoryStore::default()), &config.repository).unwrap();
        repository.cache_directory = Some(directory.path().join("cache").into());
        (UploadReceiver::new(repository, config, "host".into(), Arc::default()).unwrap(), directory)
    }

    fn signed(name: &str) -> SignedObject {
        SignedObject { kind: PublishedKind::Model, name: name.into(), sha256: [7; 32] }
    }

    fn stored(receiver: &UploadReceiver, expires_ns: i64) -> NamedSnapshot {
        let content = MemoryContent::Parts(vec![Bytes::from(expires_ns.to_string())]);
        let upload = StoredUpload { expires_ns, name: "model a/b".into(), sha256: vec![7; 32].into() };
        receiver.store(vec![MemoryFile { path: OBJECT_NAME.into(), content }], upload).unwrap()
    }

    #[test]
    fn a_signature_counts_for_what_it_signs_until_it_expires() {
        let (receiver, _directory) = receiver();
        let (own, now) = (signed("a/b"), receiver.now_seconds());
        let signature = receiver.signature(&own, 5, now + 60);
        let is_good = |object: &SignedObject, what, given: &str| receiver.check_signature(object, what, given).is_ok();
        assert!(is_good(&own, (5, now + 60), &signature));
        let other = SignedObject { kind: PublishedKind::Dataset, ..own.clone() };
        for (object, what) in
            [(&signed("a/c"), (5, now + 60)), (&other, (5, now + 60)), (&own, (6, now + 60)), (&own, (5, now + 61))]
        {
            assert!(!is_good(object, what, &signature), "{object:?} {what:?}");
        }
        assert!(!is_good(&own, (5, now - 1), &receiver.signature(&own, 5, now - 1)), "it has expired");
        let (another, _directory) = self::receiver();
        assert!(another.check_signature(&own, (5, now + 60), &signature).is_err(), "each process has its key");
    }

    #[test]
    fn an_upload_is_there_until_it_expires() {
        let (receiver, _directory) = receiver();
        let now_ns = receiver.repository.clock.now_ns();
        let expired = stored(&receiver, now_ns - 1);
        let (soon, later) = (stored(&receiver, now_ns + REST_NS / 2), stored(&receiver, now_ns + 2 * REST_NS));
        let ids = |lasting| {
            let found = receiver.objects("model a/b", lasting).unwrap();
            found.into_iter().map(|(_, named)| named.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(true), [later.id]);
        let mut current = ids(false);
        current.sort();
        let mut expected = [soon.id, later.id];
        expected.sort();
        assert_eq!(current, expected);
        assert!(receiver.objects("model a/c", false).unwrap().is_empty(), "it counts for its name");
        let all = || snapshot_listing::list(&receiver.repository).unwrap().snapshots;
        assert!(all().iter().any(|named| named.id == expired.id));
        assert!(all().iter().all(|named| named.snapshot.is_published()), "nobody takes it for a backup");
        receiver.expire().unwrap();
        assert_eq!((all().len(), all().iter().any(|named| named.id == expired.id)), (2, false));
    }

    #[test]
    fn an_object_that_is_damaged_can_be_uploaded_again() {
        let (receiver, _directory) = receiver();
        let wanted = [([7; 32], i64::MAX.to_string().len() as u64)];
        let present = || receiver.present("model a/b", &wanted).unwrap();
        let store = &receiver.repository.store;
        for kinds in [&[0][..], &[0, 1]] {
            stored(&receiver, i64::MAX);
            assert_eq!(present()[0], wanted[0]);
            assert!(receiver.has(&signed("a/b"), wanted[0].1).unwrap());
            // The content is lost, then the listing, too.
            for container in store.list(BlobKind::Container.into()).unwrap() {
                let kind = store.get(&container.name, 1 << 20).unwrap()[10];
                if kinds.contains(&kind) {
                    store.delete(&container.name, Durable::OnReturn).unwrap();
                }
            }
            assert!(present().is_empty(), "{kinds:?}");
        }
    }

    #[test]
    fn what_is_stored_is_referred_to_and_not_read() {
        let (receiver, _directory) = receiver();
        let first = stored(&receiver, i64::MAX);
        let reader = Reader::open(&receiver.repository).unwrap();
        let file = file_of(&mut reader.chunks(), &first).unwrap().unwrap();
        let mut spool: File = receiver.spool().unwrap();
        spool.write_all(b"0123456789").unwrap();
        let range = MemoryContent::Range { file: Arc::new(spool), start: 2, len: 3 };
        let files = [("a", MemoryContent::Stored(file.content.unwrap())), ("b/c", range)];
        let files = files.map(|(path, content)| MemoryFile { path: path.into(), content });
        let upload = StoredUpload { expires_ns: i64::MAX, name: "model a/b".into(), sha256: Vec::new().into() };
        let commit = receiver.store(files.to_vec(), upload.clone()).unwrap();
        let mut cursor = TreeCursor::open(commit.snapshot.root);
        let reader = Reader::open(&receiver.repository).unwrap();
        let mut chunks = reader.chunks();
        let node = cursor.next(&mut chunks).unwrap().unwrap();
        assert_eq!((node.content, node.size, node.mtime.seconds), (file.content, file.len, 0));
        let below =
            TreeCursor::open(cursor.next(&mut chunks).unwrap().unwrap().content).next(&mut chunks).unwrap().unwrap();
        assert_eq!(reader.file(below.content, 3).unwrap().head(9).unwrap(), b"234");
        let lost = ContentReference::Chunk { fingerprint: Fingerprint([9; 32]), len: 5 };
        let lost = MemoryFile { path: "a".into(), content: MemoryContent::Stored(lost) };
        let source = MemorySource { files: vec![lost], ..Default::default() };
        let request = BackupRequest { without_pauses: true, ..BackupRequest::new(source) };
        let (progress, go_on) = (Progress::default(), Arc::default());
        let error = backup(&receiver.repository, &receiver.config, &request, &progress, &go_on);
        assert!(error.unwrap_err().to_string().contains("content of a is missing"));
    }
}
