//! Trees, and what is said of their entries.
//!
//! A tree has the hash of each file. To compute it may take longer than a client waits for a byte, so the document is
//! sent as far as it is known, and spaces, which mean nothing in JSON, meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::StatusCode;
use http::header::LINK;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;

use super::answer::{self, HttpAnswer};
use super::catalogue::FoundCommit;
use super::fault::Fault;
use super::hashes::{ContentHash, pointer};
use super::parts::blocking;
use super::state::ServeState;
use super::target::{RequestTarget, encoded};
use crate::error::{Error, Result};
use crate::repo::published::{PublishedFile, PublishedItem, PublishedTree, TreePath, path_names, path_text};

/// Entries of a page, if the client does not say.
const PAGE_ENTRIES: usize = 1000;
/// Paths that a client may ask for at once.
const PATHS_MAX: usize = 2000;
/// Bytes that are sent at once.
const FRAME_BYTES: usize = 16 << 10;
/// Time after which a client hears something.
const BEAT: Duration = Duration::from_secs(3);
/// Purpose of the hash that names a directory.
const DIRECTORY_CONTEXT: &str = "fhrd 2026-11 directory that is served";

/// A page of a tree.
///
/// # Errors
/// [`Fault::NoEntry`] if there is no such directory; errors of reading.
pub async fn tree(
    state: &Arc<ServeState>,
    found: FoundCommit,
    path: TreePath,
    target: &RequestTarget,
    route: &str,
) -> Result<HttpAnswer, Fault> {
    let after = target.value("cursor").map(|cursor| path_names(cursor).ok_or(Fault::Bad("the cursor is not valid")));
    let (after, is_deep) = (after.transpose()?, target.is_set("recursive"));
    let limit = target.value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE_ENTRIES);
    let (tree, commit) = (found.tree.clone(), found.published.commit);
    let wanted = path.clone();
    let page = blocking(move || tree.page(&wanted, after.as_deref(), is_deep, limit.clamp(1, PAGE_ENTRIES))).await?;
    let page = page.ok_or_else(|| Fault::NoEntry(commit.clone()))?;
    let next = page.items.last().filter(|_| page.has_more).map(|(last, _)| {
        let cursor = encoded(path_text(last.get(path.len()..).unwrap_or_default()).as_bytes()).replace('/', "%2F");
        format!("<{route}?recursive={is_deep}&limit={limit}&cursor={cursor}>; rel=\"next\"")
    });
    let mut answer = described(state, found.tree, page.items);
    answer::set(&mut answer, answer::COMMIT, &commit);
    if let Some(next) = next {
        answer::set(&mut answer, LINK, &next);
    }
    Ok(answer)
}

/// What is said of some paths: those that are there.
///
/// # Errors
/// Errors of reading.
pub async fn paths(state: &Arc<ServeState>, found: FoundCommit, wanted: Vec<String>) -> Result<HttpAnswer, Fault> {
    if wanted.len() > PATHS_MAX {
        return Err(Fault::TooLong);
    }
    let tree = found.tree.clone();
    let items = blocking(move || {
        let mut items = Vec::new();
        for path in wanted.iter().filter_map(|path| path_names(path)) {
            items.extend(tree.find(&path)?.map(|item| (path, item)));
        }
        Ok(items)
    })
    .await?;
    let mut answer = described(state, found.tree, items);
    answer::set(&mut answer, answer::COMMIT, &found.published.commit);
    Ok(answer)
}

/// A document of entries, which is sent while the hashes of files are computed.
fn described(state: &Arc<ServeState>, tree: PublishedTree, items: Vec<(TreePath, PublishedItem)>) -> HttpAnswer {
    let (sender, receiver) = channel(2);
    let state = state.clone();
    tokio::spawn(async move {
        let mut document = DocumentSender { sender, text: "[".into() };
        if let Err(error) = send_all(&state, &tree, &items, &mut document).await {
            tracing::error!("a tree is cut short: {error}");
            // Nobody may be there any more.
            let _ = document.sender.send(Err(error)).await;
        }
        // What was computed is not lost, whoever hears of it.
        let _ = blocking(move || {
            state.hashes.write();
            Ok(())
        })
        .await;
    });
    answer::with_type(StatusCode::OK, "application/json", answer::received(receiver))
}

/// The part of a document that is not sent yet.
struct DocumentSender {
    sender: Sender<Result<Bytes>>,
    text: String,
}

impl DocumentSender {
    /// Sends what there is. Returns whether somebody is there to get it.
    async fn flush(&mut self) -> bool {
        let text = std::mem::take(&mut self.text);
        text.is_empty() || self.sender.send(Ok(text.into())).await.is_ok()
    }
}

async fn send_all(
    state: &ServeState,
    tree: &PublishedTree,
    items: &[(TreePath, PublishedItem)],
    document: &mut DocumentSender,
) -> Result<()> {
    for (at, (path, item)) in items.iter().enumerate() {
        let path = path_text(path);
        let entry = match item {
            PublishedItem::Directory(content) => directory(&path, *content)?,
            PublishedItem::File(file) => {
                let mut hash = pin!(state.hashes.of(tree, file));
                let hash = loop {
                    match timeout(BEAT, select(hash.as_mut(), pin!(document.sender.closed()))).await {
                        Ok(Either::Left((hash, _))) => break hash?,
                        // A task that nobody waits for must not stay beside those of new clients.
                        Ok(Either::Right(_)) => return Ok(()),
                        Err(_) => document.text.push(' '),
                    }
                    if !document.flush().await {
                        return Ok(());
                    }
                };
                described_file(&path, file, hash)
            }
        };
        if at > 0 {
            document.text.push(',');
        }
        document.text.push_str(&entry.to_string());
        if document.text.len() >= FRAME_BYTES && !document.flush().await {
            return Ok(());
        }
    }
    document.text.push(']');
    document.flush().await;
    Ok(())
}

fn directory(path: &str, content: Option<crate::repo::recipe::ContentReference>) -> Result<Value> {
    let reference = minicbor::to_vec(content);
    let reference = reference.map_err(|error| Error::internal(format!("cannot name a directory: {error}")))?;
    let name = blake3::derive_key(DIRECTORY_CONTEXT, &reference);
    let oid = crate::types::hex(name.get(..20).unwrap_or_default());
    Ok(json!({ "type": "directory", "oid": oid, "size": 0, "path": path }))
}

fn described_file(path: &str, file: &PublishedFile, hash: ContentHash) -> Value {
    match hash {
        ContentHash::GitBlob(_) => json!({ "type": "file", "oid": hash.digits(), "size": file.len, "path": path }),
        ContentHash::Sha256(sha256) => {
            let (oid, pointer_size) = pointer(&sha256, file.len);
            let lfs = json!({ "oid": hash.digits(), "size": file.len, "pointerSize": pointer_size });
            json!({ "type": "file", "oid": oid, "size": file.len, "lfs": lfs, "path": path })
        }
    }
}
