//! Large files in parts, as clients of the Hub send them if they may: each part to a signed URL, and then a request
//! that says that all are there.
//!
//! Parts go into one file, at their offsets. It has no name, so a server that ends forgets them. Only the object is
//! acknowledged, once it is stored, as one that comes whole. Who stops within an object loses it if others need room.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, ETAG};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::UploadReceiver;
use super::announce::parsed;
use super::body::ReceivedBody;
use super::objects::{SignedObject, UrlTerms, signed_urls, store_object};
use crate::error::{Error, Result};
use crate::keep::upload::{SPOOLED, owner};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::parts::{PART_BYTES, blocking};
use crate::serve::question::Question;

/// Bytes of a part, at least; an object up to this length comes whole.
const PART_LEN_MIN: u64 = 256 << 20;
/// Parts of an object, at most.
const PARTS_MAX: u64 = 64;
/// Time for which the URLs of parts count, seconds: clients do not ask again within an object.
const URL_SECONDS: i64 = 24 * 3600;
/// Objects of which there are parts, and those of one token.
const PARTIAL_MAX: usize = 8;
const PARTIAL_OF_TOKEN: usize = 4;
/// Time after which an object with which nobody goes on is evicted for another one.
const IDLE: Duration = Duration::from_secs(600);

/// What a client says once it has sent all parts.
#[derive(Deserialize)]
struct AllParts {
    parts: Vec<SentPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentPart {
    part_number: u64,
}

/// An object of which there are parts.
struct PartialObject {
    /// Others have it while they write a part.
    file: Arc<File>,
    parts: BTreeSet<u64>,
    /// The line of the token.
    line: usize,
    used: Instant,
}

/// Objects of which there are parts, by their owner and their SHA-256.
#[derive(Default)]
pub struct PartialObjects(Mutex<HashMap<(String, [u8; 32]), PartialObject>>);

fn key(object: &SignedObject) -> (String, [u8; 32]) {
    (owner(object.kind, &object.name), object.sha256)
}

/// Bytes of each part but the last of an object of `len` bytes.
fn part_len(len: u64) -> u64 {
    PART_LEN_MIN.max(len.div_ceil(PARTS_MAX))
}

impl PartialObjects {
    /// The file of an object for the part `number`, which is no longer there: it is being written. `create` makes the
    /// file for the first one.
    fn open(
        &self,
        (object, number): (&SignedObject, u64),
        line: usize,
        create: impl FnOnce() -> Result<File>,
    ) -> Result<Arc<File>, Fault> {
        let (mut all, key) = (self.0.lock(), key(object));
        if let Some(own) = all.get_mut(&key) {
            own.used = Instant::now();
            own.parts.remove(&number);
            return Ok(own.file.clone());
        }
        let is_full = |all: &HashMap<_, PartialObject>| {
            all.len() >= PARTIAL_MAX || all.values().filter(|own| own.line == line).count() >= PARTIAL_OF_TOKEN
        };
        if is_full(&all) {
            all.retain(|_, own| own.used.elapsed() < IDLE || Arc::strong_count(&own.file) > 1);
        }
        if is_full(&all) {
            return Err(Fault::Busy);
        }
        let file = Arc::new(create()?);
        all.insert(key, PartialObject { file: file.clone(), parts: BTreeSet::new(), line, used: Instant::now() });
        Ok(file)
    }

    /// Notes that a part is there.
    fn add(&self, object: &SignedObject, number: u64) {
        if let Some(own) = self.0.lock().get_mut(&key(object)) {
            own.parts.insert(number);
            own.used = Instant::now();
        }
    }

    /// The file of an object whose parts 1 to `count` are there. It is of the caller alone: nobody writes into it.
    fn take(&self, object: &SignedObject, count: u64) -> Result<File, Fault> {
        let (mut all, key) = (self.0.lock(), key(object));
        let Some(own) = all.get(&key) else { return Err(Fault::Refused("there are no parts of the object".into())) };
        if let Some(missing) = (1..=count).find(|number| !own.parts.contains(number)) {
            return Err(Fault::Refused(format!("part {missing} of {count} is not there")));
        }
        // Parts are opened under the same lock.
        if Arc::strong_count(&own.file) > 1 {
            return Err(Fault::Refused("a part is still being sent".into()));
        }
        let file = all.remove(&key).and_then(|own| Arc::into_inner(own.file));
        file.ok_or_else(|| Error::internal("a file of parts has two owners").into())
    }
}

/// Where the parts of an object shall be put, in the header of the action as the Hub has it. `None` for an object that
/// comes whole.
pub fn part_actions(
    question: &Question<'_>,
    uploads: &UploadReceiver,
    object: &SignedObject,
    len: u64,
) -> Option<Value> {
    let part_len = part_len(len);
    if len <= part_len {
        return None;
    }
    let urls = signed_urls(question, uploads, object, (len, URL_SECONDS));
    let mut header: Map<String, Value> = Map::from_iter([("chunk_size".into(), part_len.to_string().into())]);
    for number in 1..=len.div_ceil(part_len) {
        header.insert(format!("{number:05}"), urls(&format!("/part/{number}")).into());
    }
    Some(json!({
        "upload": { "href": urls("/parts"), "header": header, "expires_in": URL_SECONDS },
        "verify": { "href": urls("/verify"), "header": {}, "expires_in": URL_SECONDS },
    }))
}

/// Takes a part of an object.
///
/// # Errors
/// [`Fault::Forbidden`] for a URL that does not count, [`Fault::Refused`] for another length than the part has,
/// [`Fault::Busy`] while there are parts of too many objects, and errors of writing.
pub async fn part(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    (object, number): (SignedObject, u64),
    body: Incoming,
) -> Result<HttpAnswer, Fault> {
    let UrlTerms { len, line, .. } = uploads.signed(question, &object)?;
    let all = part_len(len);
    let start = number.checked_sub(1).and_then(|before| before.checked_mul(all)).filter(|start| *start < len);
    let start = start.ok_or_else(|| Fault::Refused(format!("there is no part {number} of the object")))?;
    let own_len = all.min(len - start);
    let announced = question.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced != own_len) {
        return Err(Fault::Refused(format!("part {number} has {own_len} bytes, but the body has another length")));
    }
    let turn = uploads.bodies.take(&question.state.client_of_line(line)).await?;
    let (own, wanted) = (uploads.clone(), object.clone());
    let file = blocking(move || Ok(own.partial.open((&wanted, number), line, || own.spool()))).await??;
    let (mut body, mut received) = (ReceivedBody::new(body, question.state.limits.body, turn), 0u64);
    while let Some(part) = body.part(PART_BYTES as usize).await? {
        let at = start + received;
        received += part.len() as u64;
        if received > own_len {
            return Err(Fault::Refused(format!("part {number} has {own_len} bytes, but more come")));
        }
        let file = file.clone();
        blocking(move || file.write_all_at(&part, at).map_err(|error| Error::io("write", SPOOLED, error))).await?;
    }
    if received != own_len {
        return Err(Fault::Refused(format!("part {number} has {own_len} bytes, but {received} come")));
    }
    drop(file);
    uploads.partial.add(&object, number);
    let mut answer = answer::text(StatusCode::OK, "");
    // Clients send it back, and fail without one.
    answer::set(&mut answer, ETAG, &format!("\"{number}\""));
    Ok(answer)
}

/// Stores an object of which all parts are there. It is acknowledged then, also if it is there already.
///
/// # Errors
/// [`Fault::Forbidden`] for a URL that does not count, [`Fault::Refused`] if a part is missing or the bytes are others
/// than the URL names, and errors of storing.
pub async fn whole(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    object: SignedObject,
    body: &Bytes,
) -> Result<HttpAnswer, Fault> {
    let len = uploads.signed(question, &object)?.len;
    let AllParts { parts } = parsed(body)?;
    let count = len.div_ceil(part_len(len));
    let sent: BTreeSet<u64> = parts.iter().map(|part| part.part_number).collect();
    if !sent.iter().copied().eq(1..=count) {
        return Err(Fault::Refused(format!("expected the parts 1 to {count}")));
    }
    let (own, owner) = (uploads.clone(), owner(object.kind, &object.name));
    let key = (object.sha256, len);
    if blocking(move || own.store.object(&owner, key)).await?.is_some() {
        return Ok(answer::text(StatusCode::OK, ""));
    }
    let file = uploads.partial.take(&object, count)?;
    let (file, sha256) = blocking(move || sha256_of_file(file, len)).await?;
    if sha256 != object.sha256 {
        return Err(Fault::Refused("the parts do not have the SHA-256 that the object was to have".into()));
    }
    store_object(question, uploads, object, (len, file)).await
}

/// The file, and the SHA-256 of its first `len` bytes.
fn sha256_of_file(file: File, len: u64) -> Result<(File, [u8; 32])> {
    let (mut digest, mut bytes, mut at) = (Context::new(&SHA256), vec![0; PART_BYTES as usize], 0);
    while at < len {
        let count = PART_BYTES.min(len - at) as usize;
        let part = bytes.get_mut(..count).unwrap_or_default();
        file.read_exact_at(part, at).map_err(|error| Error::io("read", SPOOLED, error))?;
        digest.update(part);
        at += count as u64;
    }
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest.finish().as_ref());
    Ok((file, sha256))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::published::PublishedKind;

    fn object(at: u8) -> SignedObject {
        SignedObject { kind: PublishedKind::Model, name: "a/b".into(), sha256: [at; 32] }
    }

    #[test]
    fn parts_are_bounded_whatever_the_length() {
        for (len, expected) in [(PART_LEN_MIN + 1, 2), (50_000_000_000, 64), (u64::MAX, 64)] {
            assert_eq!(len.div_ceil(part_len(len)), expected, "{len}");
        }
    }

    #[test]
    fn an_object_is_taken_once_all_its_parts_are_there_and_nobody_writes() {
        let partial = PartialObjects::default();
        let create = || Ok(tempfile::tempfile().unwrap());
        let first = partial.open((&object(1), 1), 1, create).unwrap();
        partial.add(&object(1), 2);
        assert!(matches!(partial.take(&object(1), 2), Err(Fault::Refused(reason)) if reason.contains("part 1")));
        partial.add(&object(1), 1);
        assert!(matches!(partial.take(&object(1), 2), Err(Fault::Refused(reason)) if reason.contains("still")));
        drop(first);
        assert!(partial.take(&object(1), 2).is_ok());
        assert!(partial.take(&object(1), 2).is_err(), "it is gone");
    }

    #[test]
    fn one_token_never_has_all_room() {
        let partial = PartialObjects::default();
        let create = || Ok(tempfile::tempfile().unwrap());
        for at in 0..PARTIAL_OF_TOKEN as u8 {
            partial.open((&object(at), 1), 1, create).unwrap();
        }
        assert!(matches!(partial.open((&object(9), 1), 1, create), Err(Fault::Busy)));
        partial.open((&object(0), 1), 1, create).unwrap();
        for at in 10..10 + (PARTIAL_MAX - PARTIAL_OF_TOKEN) as u8 {
            partial.open((&object(at), 1), 2, create).unwrap();
        }
        assert!(matches!(partial.open((&object(20), 1), 3, create), Err(Fault::Busy)));
    }
}
