//! What the Hub says about names: one, all, their revisions, and who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream, TryStreamExt};
use http::StatusCode;
use http::header::LINK;
use http_body::Frame;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{self, HttpAnswer};
use super::catalogue::FoundCommit;
use super::fault::Fault;
use super::parts::blocking;
use super::state::{Client, ServeState};
use super::target::{RequestTarget, encoded};
use crate::error::{Error, Result as EngineResult};
use crate::repo::published::{
    DEFAULT_REVISION, FILES_MAX, PublishedItem, PublishedKind, PublishedSnapshot, PublishedTree, TreePage, TreePath,
    path_text,
};

/// Names of a page, at most.
const PAGE_NAMES: usize = 1000;
/// Entries of a tree that are in memory at once, at most.
const PAGE_ENTRIES: usize = 1000;

/// The time of a snapshot as the Hub writes it.
fn time(published: &PublishedSnapshot) -> String {
    let time = Timestamp::from_nanosecond(i128::from(published.named.snapshot.time_ns)).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// What is said of a name in lists, too.
fn summary(published: &PublishedSnapshot, is_private: bool) -> Value {
    let name = &published.publication.name;
    let (author, _) = name.split_once('/').unwrap_or((name, ""));
    let time = time(published);
    json!({
        "_id": published.commit.get(..24).unwrap_or_default(),
        "id": name,
        "author": author,
        "sha": published.commit,
        "private": is_private,
        "gated": false,
        "disabled": false,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "createdAt": time,
        "lastModified": time,
    })
}

/// The document of a name at a commit, with its files. It is sent while the tree is read, so that it need not fit into
/// memory.
///
/// # Errors
/// Errors of reading the first files.
pub async fn name(state: &ServeState, found: FoundCommit) -> Result<HttpAnswer, Fault> {
    let mut document = summary(&found.published, state.tokens.is_some());
    if let Some(fields) = document.as_object_mut()
        && found.published.publication.kind == PublishedKind::Model
    {
        fields.insert("modelId".into(), found.published.publication.name.clone().into());
    }
    let mut text = document.to_string();
    // The files come before its last brace.
    text.pop();
    text.push_str(",\"siblings\":[");
    let first = page(&found.tree, None).await?;
    let body = answer::streamed(siblings(found.tree, text, first));
    let mut answer = answer::with_type(StatusCode::OK, "application/json", body);
    answer::set(&mut answer, answer::COMMIT, &found.published.commit);
    Ok(answer)
}

/// Entries of a tree behind `after`.
async fn page(tree: &PublishedTree, after: Option<TreePath>) -> EngineResult<TreePage> {
    let tree = tree.clone();
    let page = blocking(move || tree.page(&[], after.as_deref(), true, PAGE_ENTRIES)).await?;
    page.ok_or_else(|| Error::Usage("the name has no directory".into()))
}

/// The rest of a document that begins with `text`: the files, of which `first` has some. An error ends the connection:
/// the client sees that the document has no end.
fn siblings(
    tree: PublishedTree,
    text: String,
    first: TreePage,
) -> impl Stream<Item = EngineResult<Frame<Bytes>>> + Send {
    stream::try_unfold(Some((text, first, 0, "")), move |rest| {
        let tree = tree.clone();
        async move {
            let Some((mut text, part, before, mut separator)) = rest else { return Ok(None) };
            let count = before + part.items.len();
            for (path, item) in &part.items {
                if let PublishedItem::File(file) = item {
                    let sibling = json!({ "rfilename": path_text(path), "size": file.len });
                    text.push_str(&format!("{separator}{sibling}"));
                    separator = ",";
                }
            }
            let last = part.items.last().filter(|_| part.has_more);
            let next = match last {
                None => {
                    text.push_str("]}");
                    None
                }
                Some(_) if count >= FILES_MAX => return Err(Error::Usage("the name has too many files".into())),
                Some((last, _)) => Some((String::new(), page(&tree, Some(last.clone())).await?, count, separator)),
            };
            Ok(Some((Frame::data(Bytes::from(text)), next)))
        }
    })
    .inspect_err(|error| tracing::error!("a document is cut short: {error}"))
}

/// The names that a client may read.
///
/// # Errors
/// Errors of listing the snapshots.
pub async fn list(
    state: &Arc<ServeState>,
    client: &Client,
    kind: PublishedKind,
    target: &RequestTarget,
    route: &str,
) -> Result<HttpAnswer, Fault> {
    let limit = target.value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE_NAMES).clamp(1, PAGE_NAMES);
    let text = |key: &str| target.value(key).map(str::to_string);
    let search = text("search").unwrap_or_default().to_ascii_lowercase();
    let (author, cursor) = (text("author"), text("cursor").unwrap_or_default());
    let (state, client) = (state.clone(), client.clone());
    let (documents, next) = blocking(move || {
        let names = state.catalogue.names()?;
        let mut last: BTreeMap<&str, &PublishedSnapshot> = BTreeMap::new();
        for found in names.snapshots.iter().filter(|found| found.publication.kind == kind) {
            let name = found.publication.name.as_str();
            let is_author =
                author.as_ref().is_none_or(|author| name.split_once('/').is_some_and(|(own, _)| own == author));
            let is_wanted = name > cursor.as_str() && is_author && name.to_ascii_lowercase().contains(&search);
            if is_wanted && client.may_read(name) {
                let before = last.get(name).is_some_and(|before| before.publication.revision == DEFAULT_REVISION);
                // The revision that clients get by default describes the name.
                if !before || found.publication.revision == DEFAULT_REVISION {
                    last.insert(name, found);
                }
            }
        }
        let shown = last.values().take(limit);
        let documents: Vec<Value> = shown.map(|found| summary(found, state.tokens.is_some())).collect();
        let end = last.values().nth(limit - 1).filter(|_| last.len() > limit);
        Ok((documents, end.map(|end| end.publication.name.clone())))
    })
    .await?;
    let mut answer = answer::document(&Value::Array(documents));
    if let Some(end) = next {
        let pairs = target.query.iter().filter(|(key, _)| key != "cursor");
        let query: String = pairs
            .map(|(key, value)| {
                let [key, value] = [key, value].map(|text| encoded(text.as_bytes()).replace('/', "%2F"));
                format!("{key}={value}&")
            })
            .collect();
        let cursor = encoded(end.as_bytes()).replace('/', "%2F");
        answer::set(&mut answer, LINK, &format!("<{route}?{query}cursor={cursor}>; rel=\"next\""));
    }
    Ok(answer)
}

/// The revisions of a name.
///
/// # Errors
/// Errors of [`ServeState::find`].
pub async fn revisions(
    state: &ServeState,
    client: &Client,
    kind: PublishedKind,
    name: &str,
) -> Result<HttpAnswer, Fault> {
    let catalogue = state.catalogue.clone();
    let names = blocking(move || catalogue.names()).await?;
    let is_wanted = |found: &&PublishedSnapshot| {
        (found.publication.kind, found.publication.name.as_str()) == (kind, name) && client.may_read(name)
    };
    let found = names.snapshots.iter().filter(is_wanted);
    let last: BTreeMap<&str, &str> =
        found.map(|found| (found.publication.revision.as_str(), found.commit.as_str())).collect();
    if last.is_empty() {
        // It says whether the name is absent, or cannot be known.
        state.find(client, kind, name, DEFAULT_REVISION).await?;
    }
    let branches: Vec<Value> = last
        .into_iter()
        .map(|(name, commit)| json!({ "name": name, "ref": format!("refs/heads/{name}"), "targetCommit": commit }))
        .collect();
    Ok(answer::document(&json!({ "branches": branches, "tags": [], "converts": [] })))
}

/// Who asks.
pub fn who(client: &Client) -> HttpAnswer {
    let (name, can_write) = match client {
        Client::Anybody => ("anybody".to_string(), false),
        Client::Holder(token) => (format!("token-{}", token.line), token.can_write),
    };
    let token = json!({ "displayName": name, "role": if can_write { "write" } else { "read" } });
    answer::document(&json!({
        "type": "user",
        "id": name,
        "name": name,
        "fullname": name,
        "isPro": false,
        "orgs": [],
        "auth": { "type": "access_token", "accessToken": token },
    }))
}
