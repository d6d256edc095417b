//! The routes of registries.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, LINK, LOCATION};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::json;

use super::RegistryName;
use super::fault::{VERSION, VERSION_VALUE};
use super::known::KnownCommit;
use super::manifest::{
    DOCKER_MANIFEST, EMPTY_CONFIG, ManifestDocument, ManifestFile, OCI_MANIFEST, OLLAMA_CONFIG, digest_text, of_gguf,
    sha256_of_bytes,
};
use crate::error::Result;
use crate::keep::upload::sha256_of;
use crate::repo::published::{DEFAULT_REVISION, PublishedFile};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::catalogue::FoundCommit;
use crate::serve::fault::Fault;
use crate::serve::file::content;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::target::encoded;

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// The tag that clients ask for if their user names none.
const DEFAULT_TAG: &str = "latest";
/// Tags of an answer, at most.
const PAGE_TAGS: usize = 1000;
/// Characters of a tag, at most.
const TAG_CHARS_MAX: usize = 128;

/// What says that this is a registry.
pub fn root() -> HttpAnswer {
    let mut answer = answer::document(&json!({}));
    answer::set(&mut answer, VERSION, VERSION_VALUE);
    answer
}

/// The SHA-256 of a digest.
fn parsed_digest(digest: &str) -> Option<[u8; 32]> {
    digest.strip_prefix("sha256:").and_then(sha256_of)
}

/// Whether a revision can be a tag.
fn is_tag(revision: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    revision.len() <= TAG_CHARS_MAX && !revision.starts_with(['-', '.']) && revision.chars().all(is_plain)
}

/// The name as it was published. Some clients know no upper case, so another spelling counts if it is the only one.
async fn spelled(question: &Question<'_>, asked: &RegistryName) -> Result<RegistryName, Fault> {
    let (catalogue, client, asked) = (question.state.catalogue.clone(), question.client.clone(), asked.clone());
    let found = blocking(move || {
        let names = catalogue.names()?;
        let own = names.snapshots.iter().map(|found| &found.publication).filter(|own| own.kind == asked.kind);
        let own = own.map(|own| own.name.as_str()).filter(|own| own.eq_ignore_ascii_case(&asked.name));
        let own: BTreeSet<&str> = own.filter(|own| client.may_read(own)).collect();
        let name = match own.len() {
            // Whether it is absent is said by who looks for it.
            _ if own.contains(asked.name.as_str()) => asked.name.clone(),
            0 => asked.name.clone(),
            1 => own.iter().map(ToString::to_string).collect(),
            _ => return Ok(Err(Fault::Refused("several names differ only by upper and lower case".into()))),
        };
        Ok(Ok(RegistryName { kind: asked.kind, name }))
    });
    found.await?
}

/// The commits of a name, the latest ones first.
async fn commits(question: &Question<'_>, name: &RegistryName) -> Result<Vec<FoundCommit>, Fault> {
    if !question.client.may_read(&name.name) {
        return Err(Fault::NoName);
    }
    let (catalogue, name) = (question.state.catalogue.clone(), name.clone());
    blocking(move || Ok(catalogue.commits(name.kind, &name.name))).await?
}

/// What a search through all commits of a name has not found.
fn absent(question: &Question<'_>, fault: Fault) -> Fault {
    match question.state.catalogue.known().names {
        Some(names) => names.absent(fault),
        None => fault,
    }
}

async fn known(question: &Question<'_>, found: &FoundCommit) -> Result<Arc<KnownCommit>, Fault> {
    question.state.manifests.of(question.state, &question.client, found).await
}

/// The commit that a tag names.
async fn tagged(question: &Question<'_>, name: &RegistryName, tag: &str) -> Result<FoundCommit, Fault> {
    let find = async |revision| question.state.find(&question.client, name.kind, &name.name, revision).await;
    match find(tag).await {
        Err(Fault::NoRevision) if tag == DEFAULT_TAG => find(DEFAULT_REVISION).await,
        found => found,
    }
}

/// The manifest that a tag or a digest names.
///
/// # Errors
/// [`Fault::NoName`], [`Fault::NoRevision`], and those of reading the files.
pub async fn manifest(question: &Question<'_>, name: &RegistryName, reference: &str) -> Result<HttpAnswer, Fault> {
    let name = spelled(question, name).await?;
    if reference.contains(':') {
        let wanted = parsed_digest(reference).ok_or(Fault::NoRevision)?;
        for found in commits(question, &name).await? {
            let known = known(question, &found).await?;
            if known.document.sha256 == wanted {
                return Ok(answered(OCI_MANIFEST, &known.document, &found.published.commit));
            }
        }
        return Err(absent(question, Fault::NoRevision));
    }
    if wants_gguf(question.headers) {
        return gguf_manifest(question, &name, reference).await;
    }
    let found = tagged(question, &name, reference).await?;
    let known = known(question, &found).await?;
    Ok(answered(OCI_MANIFEST, &known.document, &found.published.commit))
}

fn answered(kind: &'static str, document: &ManifestDocument, commit: &str) -> HttpAnswer {
    let digest = digest_text(&document.sha256);
    let mut answer = answer::with_type(StatusCode::OK, kind, answer::whole(document.bytes.clone()));
    answer::set(&mut answer, ETAG, &format!("\"{digest}\""));
    answer::set(&mut answer, CONTENT_DIGEST, &digest);
    answer::set(&mut answer, answer::COMMIT, commit);
    answer::set(&mut answer, CACHE_CONTROL, "private, no-cache");
    answer
}

/// Whether a client knows manifests of Docker alone, as Ollama does.
fn wants_gguf(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|kinds| kinds.to_str().ok());
    let kinds: Vec<&str> =
        accepted.flat_map(|kinds| kinds.split(',')).filter_map(|kind| kind.split(';').next()).collect();
    let has = |wanted: &str| kinds.iter().any(|kind| kind.trim() == wanted);
    has(DOCKER_MANIFEST) && !has(OCI_MANIFEST) && !has("*/*")
}

/// The manifest of a GGUF file. A tag that is no revision chooses one of several by a part of its name.
async fn gguf_manifest(question: &Question<'_>, name: &RegistryName, tag: &str) -> Result<HttpAnswer, Fault> {
    let (found, part) = match tagged(question, name, tag).await {
        Err(Fault::NoRevision) => (tagged(question, name, DEFAULT_REVISION).await?, tag.to_ascii_lowercase()),
        found => (found?, String::new()),
    };
    let known = known(question, &found).await?;
    let is_wanted = |file: &&ManifestFile| {
        let path = file.path.to_ascii_lowercase();
        path.ends_with(".gguf") && path.contains(&part)
    };
    let mut files = known.files.iter().filter(is_wanted);
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(answered(DOCKER_MANIFEST, &of_gguf(file)?, &found.published.commit)),
        (Some(_), Some(_)) => {
            Err(Fault::Refused("there are several such GGUF files: a part of a name is a tag".into()))
        }
        (None, _) if part.is_empty() => Err(Fault::Refused("there is no GGUF file, and Ollama takes no other".into())),
        (None, _) => Err(Fault::NoRevision),
    }
}

/// The file with a SHA-256 in any of some commits.
async fn file_of<'a>(
    question: &Question<'_>,
    commits: &'a [FoundCommit],
    sha256: &[u8; 32],
) -> Result<Option<(&'a FoundCommit, PublishedFile)>, Fault> {
    let mut refused = None;
    for found in commits {
        match known(question, found).await {
            Ok(known) => {
                if let Some(file) = known.file(sha256) {
                    return Ok(Some((found, file.file)));
                }
            }
            // One of the other commits may still have it.
            Err(Fault::Refused(reason)) => refused = Some(Fault::Refused(reason)),
            Err(fault) => return Err(fault),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// The bytes of a blob.
///
/// # Errors
/// [`Fault::NoName`], [`Fault::NoBlob`], and those of reading.
pub async fn blob(question: &Question<'_>, name: &RegistryName, digest: &str) -> Result<HttpAnswer, Fault> {
    let name = spelled(question, name).await?;
    let wanted = parsed_digest(digest).ok_or(Fault::NoBlob)?;
    let commits = commits(question, &name).await?;
    let mut answer = match [EMPTY_CONFIG, OLLAMA_CONFIG].into_iter().find(|own| sha256_of_bytes(own) == wanted) {
        Some(own) => {
            answer::with_type(StatusCode::OK, "application/octet-stream", answer::whole(Bytes::from_static(own)))
        }
        None => {
            let found = file_of(question, &commits, &wanted).await?;
            let (found, file) = found.ok_or_else(|| absent(question, Fault::NoBlob))?;
            content(&found.tree, &file, &[digest.to_string()], question.method, question.headers)?
        }
    };
    answer::set(&mut answer, CONTENT_DIGEST, digest);
    if answer.status() == StatusCode::OK {
        // Ollama gives up without it. It asks there for ranges.
        answer::set(&mut answer, LOCATION, &question.url());
    }
    Ok(answer)
}

/// The tags of a name, in pages.
///
/// # Errors
/// [`Fault::NoName`]; errors of listing the snapshots.
pub async fn tags(question: &Question<'_>, name: &RegistryName) -> Result<HttpAnswer, Fault> {
    let name = spelled(question, name).await?;
    commits(question, &name).await?;
    let names = question.state.catalogue.known().names;
    let own = names.iter().flat_map(|names| &names.snapshots).map(|found| &found.publication);
    let own = own.filter(|own| (own.kind, &own.name) == (name.kind, &name.name)).map(|own| own.revision.as_str());
    let mut tags: BTreeSet<&str> = own.filter(|revision| is_tag(revision)).collect();
    if tags.contains(DEFAULT_REVISION) {
        tags.insert(DEFAULT_TAG);
    }
    let last = question.target.value("last").unwrap_or_default();
    let count = question.target.value("n").and_then(|n| n.parse().ok()).unwrap_or(PAGE_TAGS).min(PAGE_TAGS);
    let rest: Vec<&str> = tags.into_iter().filter(|tag| *tag > last).collect();
    let shown = rest.get(..count.min(rest.len())).unwrap_or_default();
    let mut answer = answer::document(&json!({ "name": name.path(), "tags": shown }));
    if let Some(end) = shown.last().filter(|_| shown.len() < rest.len()) {
        let next = format!("</v2/{}/tags/list?n={count}&last={}>; rel=\"next\"", name.path(), encoded(end.as_bytes()));
        answer::set(&mut answer, LINK, &next);
    }
    Ok(answer)
}

/// Where git-lfs gets objects of a name: at the URLs of blobs. An object that the name does not have has none.
///
/// # Errors
/// [`Fault::NoName`], and those of reading.
pub async fn objects_of(
    question: &Question<'_>,
    name: &RegistryName,
    wanted: &[Option<[u8; 32]>],
) -> Result<Vec<Option<String>>, Fault> {
    let commits = commits(question, name).await?;
    let mut urls = Vec::with_capacity(wanted.len());
    for sha256 in wanted {
        let found = match sha256 {
            Some(sha256) => file_of(question, &commits, sha256).await?.map(|_| sha256),
            None => None,
        };
        let url = |sha256| format!("{}/v2/{}/blobs/{}", question.origin, name.path(), digest_text(sha256));
        urls.push(found.map(url));
    }
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_no_other_form_gets_that_of_ollama() {
        let wants = |kinds: &[&str]| {
            let mut headers = HeaderMap::new();
            kinds.iter().for_each(|kind| _ = headers.append(ACCEPT, kind.parse().unwrap()));
            wants_gguf(&headers)
        };
        assert!(wants(&[DOCKER_MANIFEST]) && wants(&[&format!("{DOCKER_MANIFEST};q=1")]));
        assert!(!wants(&[]) && !wants(&["*/*"]) && !wants(&[OCI_MANIFEST]) && !wants(&[DOCKER_MANIFEST, "*/*"]));
        assert!(!wants(&[&format!("{DOCKER_MANIFEST}, {OCI_MANIFEST}")]) && !wants(&[DOCKER_MANIFEST, OCI_MANIFEST]));
    }

    #[test]
    fn what_is_no_tag_is_not_listed() {
        for (revision, expected) in [("main", true), ("v1.0_x-y", true), ("refs/pr/1", false), ("a+b", false)] {
            assert_eq!(is_tag(revision), expected, "{revision}");
        }
        assert!(!is_tag(&"a".repeat(129)) && !is_tag("-a"));
        assert_eq!(parsed_digest(&format!("sha256:{}", "0a".repeat(32))), Some([10; 32]));
        assert!(["", "sha256:", "sha256:0A", "sha512:00"].iter().all(|digest| parsed_digest(digest).is_none()));
    }
}
