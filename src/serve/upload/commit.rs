//! A commit, line by line. Files that come within it go into a file on disk, so memory is bounded by the length of a
//! line and by the paths.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use hyper::body::Incoming;
use serde_json::json;

use super::UploadReceiver;
use super::announce::target;
use super::body::ReceivedBody;
use crate::error::Error;
use crate::keep::upload::{CommitLines, CommitOperations, CommitTarget, LINE_BYTES_MAX, SPOOLED};
use crate::repo::published::{name_defect, revision_defect};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::pages::path_of;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::route::NamedPath;

/// Takes a commit. It is acknowledged once it is published.
///
/// # Errors
/// [`Fault::Refused`], [`Fault::Changed`] and [`Fault::TooLong`]: nothing is stored then. Errors of storing.
pub async fn commit(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    at: &NamedPath,
    body: Incoming,
) -> Result<HttpAnswer, Fault> {
    question.may_write(&at.name)?;
    if let Some(defect) = name_defect(&at.name).or_else(|| revision_defect(&at.revision)) {
        return Err(Fault::Refused(defect));
    }
    if question.target.is_set("create_pr") {
        return Err(Fault::Refused("there are no pull requests here".into()));
    }
    target(question, at).await?;
    let turn = uploads.bodies.take(&question.client).await?;
    let own = uploads.clone();
    let spool = blocking(move || own.spool()).await?;
    let mut body = ReceivedBody::new(body, question.state.limits.body, turn);
    let operations = received(&mut body, spool).await?;
    let state = question.state.clone();
    let wanted = CommitTarget { kind: at.kind, name: at.name.clone(), revision: at.revision.clone() };
    let published = uploads.storing(move |own| {
        let published = own.store.commit(&|file| state.hashes.known_large(file), &wanted, operations);
        state.catalogue.look_again().unwrap_or_else(|error| tracing::warn!("names may look old: {error}"));
        own.store.expire().unwrap_or_else(|error| tracing::warn!("old uploads stay: {error}"));
        Ok(published)
    });
    let published = published.await??;
    let commit = published.commit;
    let url = format!("{}{}/commit/{commit}", question.origin, path_of(at.kind, &at.name));
    Ok(answer::document(&json!({ "success": true, "commitUrl": url, "commitOid": commit, "hookOutput": "" })))
}

/// Reads the lines of a commit. Files within it go into `file`.
async fn received(body: &mut ReceivedBody, mut file: File) -> Result<CommitOperations, Fault> {
    let mut lines = CommitLines::default();
    while let Some(line) = body.line(LINE_BYTES_MAX).await? {
        let inline = lines.add(&line)?;
        if !inline.is_empty() {
            file = blocking(move || {
                file.write_all(&inline).map_err(|error| Error::io("write", SPOOLED, error))?;
                Ok(file)
            })
            .await?;
        }
    }
    Ok(lines.finish(Arc::new(file))?)
}
