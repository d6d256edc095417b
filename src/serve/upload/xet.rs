//! Xorbs and shards, by which newer clients send large files.
//!
//! A body is received into a file, checked, and acknowledged once it is stored. Storing the files of a shard takes
//! long, so a client can be told meanwhile that it goes on.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::UploadReceiver;
use super::body::ReceivedBody;
use super::xet_access::XetAccess;
use crate::error::Error;
use crate::keep::upload::CommitFault;
use crate::keep::upload::xet::{ReceivedXorb, SENT_BYTES_MAX, SHARD_BYTES_MAX, XetHash};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::state::ServeState;

/// Time after which an answer begins before a shard is stored, and the time between two signs of life.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
const SIGN_WAIT: Duration = Duration::from_secs(15);

/// Receives a body into a file. Its turn ends with it.
async fn received(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    access: &XetAccess,
    body: Incoming,
    len_max: u64,
) -> Result<File, Fault> {
    let turn = uploads.bodies.take(&access.client).await?;
    let mut body = ReceivedBody::new(body, question.state.limits.body, turn);
    let own = uploads.clone();
    body.write_to(blocking(move || own.spool()).await?, len_max).await
}

/// Takes a xorb. It is acknowledged once its snapshot is stored.
///
/// # Errors
/// [`Fault::WrongToken`]; [`Fault::Refused`] and [`Fault::TooLong`] for what is no such xorb; errors of storing.
pub async fn xorb(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    hash: XetHash,
    body: Incoming,
) -> Result<HttpAnswer, Fault> {
    let access = uploads.xet_access(question)?;
    let file = received(question, uploads, &access, body, SENT_BYTES_MAX).await?;
    let own = uploads.clone();
    let xorb = blocking(move || Ok(ReceivedXorb::read(hash, &file, own.spool()?))).await??;
    let is_new = uploads.storing(move |own| {
        own.expire_at_times();
        Ok(own.store.add_xorb(&access.owner, xorb))
    });
    let is_new = is_new.await??;
    Ok(answer::document(&json!({ "was_inserted": is_new })))
}

/// Takes a shard. It is acknowledged once all its files are objects. With `is_streamed`, the answer is lines that say
/// how it goes on, and a last one that says how it ended.
///
/// # Errors
/// [`Fault::WrongToken`]; [`Fault::Refused`] and [`Fault::TooLong`] for what is not valid; errors of storing.
pub async fn shard(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    is_streamed: bool,
    body: Incoming,
) -> Result<HttpAnswer, Fault> {
    let access = uploads.xet_access(question)?;
    let file = received(question, uploads, &access, body, SHARD_BYTES_MAX).await?;
    let turn = uploads.shards.take(&access.client).await?;
    let work = store_shard(question.state.clone(), uploads.clone(), access, file);
    // It ends between two files once the client has left.
    let mut work = AbortOnDrop(tokio::spawn(async move {
        let _turn = turn;
        work.await
    }));
    if !is_streamed {
        outcome((&mut work.0).await)?;
        return Ok(answer::document(&json!({ "result": 1 })));
    }
    match timeout(ANSWER_WAIT, &mut work.0).await {
        Ok(ended) => {
            outcome(ended)?;
            Ok(answer::with_type(StatusCode::OK, LINES, answer::whole(line(&end()))))
        }
        Err(_) => {
            let (sender, receiver) = mpsc::channel(1);
            tokio::spawn(tell(work, sender));
            Ok(answer::with_type(StatusCode::OK, LINES, answer::received(receiver)))
        }
    }
}

/// A task that ends where it waits, once nobody waits for it.
struct AbortOnDrop(JoinHandle<Result<(), Fault>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Type of lines of JSON.
const LINES: &str = "application/x-ndjson";

fn line(document: &Value) -> Bytes {
    format!("{document}\n").into()
}

fn end() -> Value {
    json!({ "type": "result", "result": 1 })
}

fn outcome(ended: Result<Result<(), Fault>, tokio::task::JoinError>) -> Result<(), Fault> {
    ended.map_err(|error| Error::internal(format!("a request failed: {error}")))?
}

/// Says that a shard is being stored, until it is, or until the client leaves.
async fn tell(mut work: AbortOnDrop, sender: mpsc::Sender<crate::error::Result<Bytes>>) {
    loop {
        let ended = tokio::select! {
            ended = timeout(SIGN_WAIT, &mut work.0) => ended,
            () = sender.closed() => return,
        };
        match ended {
            Err(_) => {
                if sender.send(Ok(line(&json!({ "type": "committing", "stage": "syncing" })))).await.is_err() {
                    return;
                }
            }
            Ok(ended) => {
                let last = match outcome(ended) {
                    Ok(()) => end(),
                    Err(fault) => {
                        let is_retryable = fault.status().is_server_error();
                        json!({ "type": "error", "message": fault.message(), "retryable": is_retryable })
                    }
                };
                // Without a receiver there is nobody to tell.
                let _ = sender.send(Ok(line(&last))).await;
                return;
            }
        }
    }
}

/// Checks a shard, and makes objects of its files, one after another. Only what stores keeps others from storing.
async fn store_shard(
    state: Arc<ServeState>,
    uploads: Arc<UploadReceiver>,
    access: XetAccess,
    file: File,
) -> Result<(), Fault> {
    let access = Arc::new(access);
    let (own, who) = (uploads.clone(), access.clone());
    let mut shard = blocking(move || Ok(own.store.check_shard(&|owner| who.may_use(owner), &file))).await??;
    let mut files = Vec::with_capacity(shard.files());
    for at in 0..shard.files() {
        let own = uploads.clone();
        let written = blocking(move || {
            let spool = own.spool()?;
            Ok(shard.put_together(at, &spool).map(|key| (shard, key, spool)))
        });
        let (same, key, spool) = written.await??;
        shard = same;
        let (who, state) = (access.clone(), state.clone());
        let added = uploads.storing(move |own| {
            let added = own.store.add_shard_file(&who.owner, key, spool);
            let remember = |stored| state.hashes.add_large(&stored, key.0).map(|()| stored);
            Ok(added.and_then(|added| remember(added).map_err(CommitFault::from)))
        });
        files.push(added.await??);
    }
    let referred = uploads.storing(move |own| {
        let referred = own.store.refer_xorbs(&access.owner, &shard, &files);
        referred.unwrap_or_else(|error| tracing::warn!("xorbs take space of their own until they expire: {error}"));
        Ok(())
    });
    referred.await
}
