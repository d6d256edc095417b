//! What comes before an upload: names that are created, and what shall be sent how.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::keep::upload::INLINE_MAX;
use crate::repo::published::{DEFAULT_REVISION, PublishedFile, PublishedItem, PublishedKind, name_defect, path_names};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::catalogue::FoundCommit;
use crate::serve::fault::Fault;
use crate::serve::hashes::ContentHash;
use crate::serve::pages::path_of;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::route::NamedPath;

/// Files that a client may ask about at once.
const FILES_MAX: usize = 1000;

/// A name that is to be created.
#[derive(Deserialize)]
struct CreatedName {
    name: String,
    #[serde(default)]
    organization: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

/// Files that a client wants to upload.
#[derive(Deserialize)]
struct AnnouncedFiles {
    files: Vec<AnnouncedFile>,
}

#[derive(Deserialize)]
struct AnnouncedFile {
    path: String,
    size: u64,
}

/// Reads a JSON document.
///
/// # Errors
/// [`Fault::Refused`].
pub fn parsed<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|error| Fault::Refused(format!("the JSON is not valid: {error}")))
}

/// Creates a name: nothing is stored before its first commit, so it only says whether the name can be one.
///
/// # Errors
/// [`Fault::Refused`] and [`Fault::Forbidden`]; errors of listing the snapshots.
pub async fn create(question: &Question<'_>, body: &Bytes) -> Result<HttpAnswer, Fault> {
    let CreatedName { name, organization, kind } = parsed(body)?;
    let kind = match kind.as_deref() {
        None | Some("model") => PublishedKind::Model,
        Some("dataset") => PublishedKind::Dataset,
        Some(_) => return Err(Fault::Refused("only models and datasets can be uploaded".into())),
    };
    let name = organization.map_or(name.clone(), |organization| format!("{organization}/{name}"));
    if let Some(defect) = name_defect(&name) {
        return Err(Fault::Refused(defect));
    }
    question.may_write(&name)?;
    let url = format!("{}{}", question.origin, path_of(kind, &name));
    let document = |error: Option<&str>| json!({ "url": url, "id": name, "name": name, "error": error });
    match question.state.find(&question.client, kind, &name, DEFAULT_REVISION).await {
        Ok(_) | Err(Fault::NoRevision) => {
            let mut answer = answer::document(&document(Some("You already created this repo")));
            *answer.status_mut() = StatusCode::CONFLICT;
            Ok(answer)
        }
        Err(Fault::NoName) => Ok(answer::document(&document(None))),
        Err(fault) => Err(fault),
    }
}

/// The metadata of a model card are not looked at.
pub fn valid_card() -> HttpAnswer {
    answer::document(&json!({ "errors": [], "warnings": [] }))
}

/// The revision that an upload goes to, if it is there. A name begins with its default revision.
///
/// # Errors
/// [`Fault::NoRevision`], and errors of listing the snapshots.
pub async fn target(question: &Question<'_>, at: &NamedPath) -> Result<Option<FoundCommit>, Fault> {
    match question.find(at).await {
        Ok(found) => Ok(Some(found)),
        Err(Fault::NoName | Fault::NoRevision) if at.revision == DEFAULT_REVISION => Ok(None),
        Err(Fault::NoName) => Err(Fault::NoRevision),
        Err(fault) => Err(fault),
    }
}

/// Says how each file shall be sent, and its hash if the name has a file there.
///
/// # Errors
/// [`Fault::Refused`], and errors of reading.
pub async fn preupload(question: &Question<'_>, at: &NamedPath, body: &Bytes) -> Result<HttpAnswer, Fault> {
    question.may_write(&at.name)?;
    let AnnouncedFiles { files } = parsed(body)?;
    if files.len() > FILES_MAX {
        return Err(Fault::TooLong);
    }
    let found = target(question, at).await?;
    let mut answers: Vec<Value> = Vec::with_capacity(files.len());
    for file in &files {
        let path = path_names(&file.path).ok_or_else(|| Fault::Refused(format!("`{}` is no path", file.path)))?;
        let mode = if file.size <= INLINE_MAX { "regular" } else { "lfs" };
        let mut own = json!({ "path": file.path, "uploadMode": mode, "shouldIgnore": false });
        if let Some(found) = &found {
            let tree = found.tree.clone();
            let stored = blocking(move || tree.find(&path)).await?;
            if let Some(PublishedItem::File(stored)) = stored
                && let Some(hash) = known(question, &stored, mode).await?
                && let Some(fields) = own.as_object_mut()
            {
                fields.insert("oid".into(), hash.into());
            }
        }
        answers.push(own);
    }
    Ok(answer::document(&json!({ "files": answers })))
}

/// The hash by which a client sees that a file is the same, if it is known.
async fn known(question: &Question<'_>, stored: &PublishedFile, mode: &str) -> Result<Option<String>, Fault> {
    let hash = Arc::clone(&question.state.hashes).known(stored).await?;
    Ok(hash.filter(|hash| matches!(hash, ContentHash::Sha256(_)) == (mode == "lfs")).map(|hash| hash.digits()))
}
