//! What git-lfs and clients of the Hub ask before they send or get objects: where each is.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderName;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::{Value, json};

use super::UploadReceiver;
use super::announce::parsed;
use super::multipart::part_actions;
use super::objects::{SignedObject, actions};
use crate::keep::upload::{OBJECT_BYTES_MAX, ObjectKey, owner, sha256_of};
use crate::repo::published::PublishedKind;
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::oci::{RegistryName, objects_of};
use crate::serve::parts::blocking;
use crate::serve::question::Question;

/// What a server that takes no uploads says.
pub const READ_ONLY: &str = "this server is read-only: uploads need `fhrd serve --writable`";
/// Objects that a client may ask for at once.
const OBJECTS_MAX: usize = 1000;
/// Type of documents of git-lfs.
const KIND: &str = "application/vnd.git-lfs+json";
/// Header that lets git-lfs ask for a user and a password, which is a token.
const LOGIN: HeaderName = HeaderName::from_static("lfs-authenticate");

#[derive(Deserialize)]
struct ObjectBatch {
    operation: String,
    objects: Vec<NewObject>,
    #[serde(default)]
    hash_algo: Option<String>,
    /// Ways that the client knows.
    #[serde(default)]
    transfers: Vec<String>,
}

/// The way of clients of the Hub to send an object in parts.
const MULTIPART: &str = "multipart";

/// An object that a client names.
#[derive(Deserialize)]
pub struct NewObject {
    /// Its SHA-256.
    pub oid: String,
    /// Its length, bytes.
    pub size: u64,
}

impl NewObject {
    fn refused(&self, code: u16, message: &str) -> Value {
        json!({ "oid": self.oid, "size": self.size, "error": { "code": code, "message": message } })
    }
}

/// What git-lfs is told if a batch fails.
pub fn object_fault(fault: Fault) -> HttpAnswer {
    let (message, needs_token) = (fault.message(), matches!(fault, Fault::NoToken | Fault::WrongToken));
    let document = json!({ "error": message, "message": message }).to_string();
    let mut answer = HttpAnswer::from(fault).map(|_| answer::whole(document));
    answer::set(&mut answer, CONTENT_TYPE, KIND);
    if needs_token {
        answer::set(&mut answer, LOGIN, "Basic realm=\"fhrd\"");
    }
    answer
}

/// Says which objects are there, and where the others shall be put; or where objects can be got.
///
/// # Errors
/// [`Fault::Refused`], [`Fault::Forbidden`] for uploads to a server that takes none, and errors of listing the
/// snapshots.
pub async fn batch(
    question: &Question<'_>,
    uploads: Option<&Arc<UploadReceiver>>,
    (kind, name): (PublishedKind, &str),
    body: &Bytes,
) -> Result<HttpAnswer, Fault> {
    let ObjectBatch { operation, objects, hash_algo, transfers } = parsed(body)?;
    let knows_parts = operation == "upload" && transfers.iter().any(|way| way == MULTIPART);
    if hash_algo.is_some_and(|algorithm| algorithm != "sha256") {
        return Err(Fault::Refused("objects have a SHA-256".into()));
    }
    if objects.len() > OBJECTS_MAX {
        return Err(Fault::TooLong);
    }
    let described = match operation.as_str() {
        "upload" => {
            let uploads = uploads.ok_or(Fault::Forbidden(READ_ONLY))?;
            uploaded(question, uploads, (kind, name), (&objects, knows_parts)).await?
        }
        "download" => downloaded(question, RegistryName { kind, name: name.into() }, &objects).await?,
        _ => return Err(Fault::Refused("expected the operation upload or download".into())),
    };
    let transfer = if knows_parts { MULTIPART } else { "basic" };
    let mut answer = answer::document(&json!({ "transfer": transfer, "objects": described, "hash_algo": "sha256" }));
    answer::set(&mut answer, CONTENT_TYPE, KIND);
    Ok(answer)
}

async fn uploaded(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    (kind, name): (PublishedKind, &str),
    (objects, knows_parts): (&[NewObject], bool),
) -> Result<Vec<Value>, Fault> {
    question.may_write(name)?;
    let (own, owner) = (uploads.clone(), owner(kind, name));
    let wanted: Vec<ObjectKey> =
        objects.iter().filter_map(|object| Some((sha256_of(&object.oid)?, object.size))).collect();
    let present = blocking(move || own.store.present(&owner, &wanted)).await?;
    let present: HashSet<ObjectKey> = present.into_iter().map(|(key, ..)| key).collect();
    let described = objects.iter().map(|object| {
        let Some(sha256) = sha256_of(&object.oid) else { return object.refused(422, "the oid is no SHA-256") };
        if object.size > OBJECT_BYTES_MAX {
            return object.refused(413, "the object is longer than 50 GB");
        }
        if present.contains(&(sha256, object.size)) {
            return json!({ "oid": object.oid, "size": object.size });
        }
        let own = SignedObject { kind, name: name.into(), sha256 };
        let parts = if knows_parts { part_actions(question, uploads, &own, object.size) } else { None };
        let actions = parts.unwrap_or_else(|| actions(question, uploads, &own, object.size));
        json!({ "oid": object.oid, "size": object.size, "actions": actions })
    });
    Ok(described.collect())
}

/// Objects are got as blobs. A client sends its token there, too.
async fn downloaded(question: &Question<'_>, name: RegistryName, objects: &[NewObject]) -> Result<Vec<Value>, Fault> {
    let wanted: Vec<Option<[u8; 32]>> = objects.iter().map(|object| sha256_of(&object.oid)).collect();
    let urls = objects_of(question, &name, &wanted).await?;
    let described = objects.iter().zip(urls).map(|(object, url)| match url {
        Some(url) => json!({ "oid": object.oid, "size": object.size, "actions": { "download": { "href": url } } }),
        None => object.refused(404, "the name has no such object"),
    });
    Ok(described.collect())
}
