//! Large files, by git-lfs' basic transfer.
//!
//! A client has asked (`batch`) for URLs by the SHA-256 of its files, and puts each file to its URL. It sends no token
//! there, so the URL is signed, for an hour: with a key that only this process has.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use hyper::body::Incoming;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use super::UploadReceiver;
use super::announce::parsed;
use super::batch::NewObject;
use super::body::ReceivedBody;
use crate::error::Error;
use crate::keep::upload::{SPOOLED, owner, sha256_of};
use crate::repo::published::PublishedKind;
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::pages::path_of;
use crate::serve::parts::{PART_BYTES, blocking};
use crate::serve::question::Question;
use crate::types::hex;

/// Time for which a URL counts, seconds.
const URL_SECONDS: i64 = 3600;

/// What a URL promises of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UrlTerms {
    /// Length of the object, bytes.
    pub len: u64,
    /// Until when it counts, seconds since 1970.
    expires: i64,
    /// The line of the token that asked for it, whose turn it takes. 0 without tokens.
    pub line: usize,
}

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

impl UploadReceiver {
    fn signature(&self, object: &SignedObject, terms: UrlTerms) -> String {
        let UrlTerms { len, expires, line } = terms;
        let what = format!("{} {} {len} {expires} {line}", owner(object.kind, &object.name), hex(&object.sha256));
        hex(blake3::keyed_hash(&self.key, what.as_bytes()).as_bytes())
    }

    pub(super) fn now_seconds(&self) -> i64 {
        self.store.repository.clock.now_ns().div_euclid(1_000_000_000)
    }

    /// What the signed URL of an object promises.
    pub(super) fn signed(&self, question: &Question<'_>, object: &SignedObject) -> Result<UrlTerms, Fault> {
        let value = |key: &str| question.target.value(key);
        let (len, expires) = (value("size").and_then(|text| text.parse().ok()), value("expires"));
        let line = value("token").and_then(|text| text.parse().ok());
        let (Some(len), Some(expires), Some(line)) = (len, expires.and_then(|text| text.parse().ok()), line) else {
            return Err(Fault::Forbidden("the URL is not signed"));
        };
        let terms = UrlTerms { len, expires, line };
        self.check_signature(object, terms, value("signature").unwrap_or_default())?;
        Ok(terms)
    }

    /// Checks the signature of a URL for an object.
    fn check_signature(&self, object: &SignedObject, terms: UrlTerms, given: &str) -> Result<(), Fault> {
        if !bool::from(self.signature(object, terms).as_bytes().ct_eq(given.as_bytes())) {
            return Err(Fault::Forbidden("the signature of the URL is not valid; ask for another URL"));
        }
        if self.now_seconds() > terms.expires {
            return Err(Fault::Forbidden("the URL has expired; ask for another one"));
        }
        Ok(())
    }
}

/// Makes URLs of what stands behind the URL of an object of `len` bytes, which count for some seconds.
pub(super) fn signed_urls(
    question: &Question<'_>,
    uploads: &UploadReceiver,
    object: &SignedObject,
    (len, seconds): (u64, i64),
) -> impl Fn(&str) -> String {
    let expires = uploads.now_seconds().saturating_add(seconds);
    let line = question.client.line();
    let signature = uploads.signature(object, UrlTerms { len, expires, line });
    let base = format!("{}{}.git/lfs/{}", question.origin, path_of(object.kind, &object.name), hex(&object.sha256));
    let query = format!("size={len}&expires={expires}&token={line}&signature={signature}");
    move |rest| format!("{base}{rest}?{query}")
}

/// Where an object of `len` bytes shall be put, and checked.
pub(super) fn actions(question: &Question<'_>, uploads: &UploadReceiver, object: &SignedObject, len: u64) -> Value {
    let urls = signed_urls(question, uploads, object, (len, URL_SECONDS));
    json!({
        "upload": { "href": urls(""), "header": {}, "expires_in": URL_SECONDS },
        "verify": { "href": urls("/verify"), "header": {}, "expires_in": URL_SECONDS },
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
    let UrlTerms { len, line, .. } = uploads.signed(question, &object)?;
    let announced = question.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced != len) {
        return Err(Fault::Refused(format!("the object has {len} bytes, but the body has another length")));
    }
    let turn = uploads.bodies.take(&question.state.client_of_line(line)).await?;
    let mut body = ReceivedBody::new(body, question.state.limits.body, turn);
    let own = uploads.clone();
    let (mut file, mut digest, mut received) = (blocking(move || own.spool()).await?, Context::new(&SHA256), 0u64);
    while let Some(part) = body.part(PART_BYTES as usize).await? {
        received = received.saturating_add(part.len() as u64);
        if received > len {
            return Err(Fault::Refused(format!("the object has {len} bytes, but more come")));
        }
        (file, digest) = blocking(move || {
            digest.update(&part);
            file.write_all(&part).map_err(|error| Error::io("write", SPOOLED, error))?;
            Ok((file, digest))
        })
        .await?;
    }
    if received != len || digest.finish().as_ref() != object.sha256.as_slice() {
        return Err(Fault::Refused("the bytes do not have the SHA-256 and the length that they were to have".into()));
    }
    store_object(question, uploads, object, (len, file)).await
}

/// Stores the file of an object, whose length and SHA-256 are right.
pub(super) async fn store_object(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    object: SignedObject,
    (len, file): (u64, File),
) -> Result<HttpAnswer, Fault> {
    let state = question.state.clone();
    let stored = uploads.storing(move |own| {
        let (_, stored) = own.store.add_object(&owner(object.kind, &object.name), (object.sha256, len), file)?;
        state.hashes.add_large(&stored, object.sha256)
    });
    stored.await?;
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
    let len = uploads.signed(question, &object)?.len;
    let NewObject { oid, size } = parsed(body)?;
    let own = uploads.clone();
    let is_same = sha256_of(&oid) == Some(object.sha256) && size == len;
    let owner = owner(object.kind, &object.name);
    if !is_same || blocking(move || own.store.object(&owner, (object.sha256, len))).await?.is_none() {
        return Err(Fault::Refused("there is no such object".into()));
    }
    Ok(answer::document(&json!({})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::repo::Repository;
    use crate::store::MemoryStore;

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

    #[test]
    fn a_signature_counts_for_what_it_signs_until_it_expires() {
        let (receiver, _directory) = receiver();
        let (own, now) = (signed("a/b"), receiver.now_seconds());
        let terms = UrlTerms { len: 5, expires: now + 60, line: 3 };
        let signature = receiver.signature(&own, terms);
        let is_good =
            |object: &SignedObject, terms, given: &str| receiver.check_signature(object, terms, given).is_ok();
        assert!(is_good(&own, terms, &signature));
        let other = SignedObject { kind: PublishedKind::Dataset, ..own.clone() };
        for (object, wrong) in [
            (&signed("a/c"), terms),
            (&other, terms),
            (&own, UrlTerms { len: 6, ..terms }),
            (&own, UrlTerms { expires: now + 61, ..terms }),
            (&own, UrlTerms { line: 4, ..terms }),
        ] {
            assert!(!is_good(object, wrong, &signature), "{object:?} {wrong:?}");
        }
        let expired = UrlTerms { expires: now - 1, ..terms };
        assert!(!is_good(&own, expired, &receiver.signature(&own, expired)), "it has expired");
        let (another, _directory) = self::receiver();
        assert!(another.check_signature(&own, terms, &signature).is_err(), "each process has its key");
    }
}
