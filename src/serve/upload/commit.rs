//! A commit: the files of a name with some changes, as one snapshot and one publication.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::body::Incoming;
use serde_json::json;

use super::UploadReceiver;
use super::announce::target;
use super::body::ReceivedBody;
use super::objects::{file_of, owner};
use super::operations::{CommitContent, CommitFiles, CommitOperations, WantedObject, received};
use crate::backup::{MemoryContent, MemoryFile};
use crate::error::Error;
use crate::keep::{PublishRequest, forget, publish};
use crate::repo::claims::ContainerClaim;
use crate::repo::published::{
    DEFAULT_REVISION, FILES_MAX, PublishedFile, PublishedItem, PublishedSnapshot, PublishedTree, name_defect,
    published, revision_defect,
};
use crate::repo::read::Reader;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_listing;
use crate::repo::upload::StoredUpload;
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::listing::path_text;
use crate::serve::pages::path_of;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::route::NamedPath;
use crate::serve::state::ServeState;
use crate::types::hex;

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
    let _turn = uploads.bodies.take(&question.client).await?;
    let own = uploads.clone();
    let spool = blocking(move || own.spool()).await?;
    let operations = received(&mut ReceivedBody::new(body, question.state.limits.body), spool).await?;
    let storing = uploads.storing.clone().acquire_owned().await;
    let storing = storing.map_err(|error| Error::internal(error.to_string()))?;
    let (own, state, wanted) = (uploads.clone(), question.state.clone(), at.clone());
    let commit = blocking(move || {
        let _storing = storing;
        let commit = own.commit(&state, &wanted, operations);
        state.catalogue.look_again().unwrap_or_else(|error| tracing::warn!("names may look old: {error}"));
        own.expire().unwrap_or_else(|error| tracing::warn!("old uploads stay: {error}"));
        Ok(commit)
    })
    .await??;
    let url = format!("{}{}/commit/{commit}", question.origin, path_of(at.kind, &at.name));
    Ok(answer::document(&json!({ "success": true, "commitUrl": url, "commitOid": commit, "hookOutput": "" })))
}

impl UploadReceiver {
    /// Stores a commit. Returns its name.
    fn commit(&self, state: &ServeState, at: &NamedPath, operations: CommitOperations) -> Result<String, Fault> {
        let reader = Reader::open(&self.repository)?;
        let (mut files, current) = self.files(&reader, at)?;
        if let Some(parent) = &operations.parent
            && current.as_ref() != Some(parent)
        {
            return Err(Fault::Changed("the revision has another commit than this one builds on".into()));
        }
        let inline = operations.inline.clone();
        let stored_file =
            |content: &CommitContent| if let CommitContent::Stored(file) = content { Some(*file) } else { None };
        // A file that moves is named by its hash, and deleted in the same commit.
        let before: Vec<PublishedFile> = files.values().filter_map(stored_file).collect();
        operations.apply(&mut files)?;
        let objects = self.wanted(state, &reader, at, (&files, &before))?;
        let memory = |(path, content): (String, CommitContent)| {
            let content = match content {
                CommitContent::Inline(start, len) => MemoryContent::Range { file: inline.clone(), start, len },
                CommitContent::Stored(file) => stored(file),
                CommitContent::Object(key) => stored(*objects.get(&key)?),
            };
            Some(MemoryFile { path: path.into(), content })
        };
        let count = files.len();
        let files: Vec<MemoryFile> = files.into_iter().filter_map(memory).collect();
        if files.len() != count {
            return Err(Error::internal("a file of a commit has no content").into());
        }
        let name = owner(at.kind, &at.name);
        let original =
            self.store(files, StoredUpload { expires_ns: self.expiry_ns(), name, sha256: Vec::new().into() })?;
        let published = self.publish(at, original.clone());
        // What is published refers to the same content.
        let forgotten = forget(&self.repository, &[original.id]);
        forgotten.unwrap_or_else(|error| tracing::warn!("snapshot {:.8} stays until it expires: {error}", original.id));
        published
    }

    fn publish(&self, at: &NamedPath, original: NamedSnapshot) -> Result<String, Fault> {
        let (name, revision, kind) = (at.name.clone(), at.revision.clone(), at.kind);
        let request = PublishRequest { original, path: None, name, revision, kind, replace: false };
        match publish(&self.repository, &request) {
            Ok(outcome) => Ok(outcome.published.commit),
            Err(error @ Error::Usage(_)) => match ContainerClaim::is_any_pending(self.repository.store.as_ref())? {
                true => Err(Fault::Unavailable("a prune is running; try again later".into())),
                false => Err(Fault::Refused(error.to_string())),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The files that a revision shows now, and its commit. None before the first commit of a name.
    fn files(&self, reader: &Reader, at: &NamedPath) -> Result<(CommitFiles, Option<String>), Fault> {
        let listing = snapshot_listing::list(&self.repository)?;
        if !listing.damaged.is_empty() {
            return Err(Fault::Unavailable("not all snapshots can be read, and one may be the last commit".into()));
        }
        let found = published(listing.snapshots, self.repository.clock.now_ns())?;
        let is_own = |own: &PublishedSnapshot| {
            let publication = &own.publication;
            (publication.kind, &publication.name, &publication.revision) == (at.kind, &at.name, &at.revision)
        };
        let Some(last) = found.into_iter().rfind(|found| is_own(found)) else {
            return if at.revision == DEFAULT_REVISION { Ok((BTreeMap::new(), None)) } else { Err(Fault::NoRevision) };
        };
        let (root, publication) = (last.named.snapshot.root, &last.publication);
        let tree = PublishedTree::new(reader.clone(), Arc::default(), root, publication);
        let page = tree.page(&[], None, true, FILES_MAX)?.unwrap_or_default();
        if page.has_more {
            return Err(Fault::TooLong);
        }
        let files = page.items.into_iter().filter_map(|(path, item)| match item {
            PublishedItem::File(file) => Some((path_text(&path), CommitContent::Stored(file))),
            PublishedItem::Directory(_) => None,
        });
        Ok((files.collect(), Some(last.commit)))
    }

    /// The contents of the objects that a commit names: those that were uploaded for its name, or that the name has.
    fn wanted(
        &self,
        state: &ServeState,
        reader: &Reader,
        at: &NamedPath,
        (files, before): (&CommitFiles, &[PublishedFile]),
    ) -> Result<BTreeMap<WantedObject, PublishedFile>, Fault> {
        let keys = files.values().filter_map(|content| match content {
            CommitContent::Object(key) => Some(*key),
            _ => None,
        });
        let mut wanted: BTreeMap<WantedObject, Option<PublishedFile>> = keys.map(|key| (key, None)).collect();
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let found = |wanted: &mut BTreeMap<WantedObject, Option<PublishedFile>>, sha256, file: PublishedFile| {
            for len in [None, Some(file.len)] {
                wanted.entry((sha256, len)).and_modify(|own| *own = Some(file));
            }
        };
        for file in before {
            if let Some(sha256) = state.hashes.known_large(file)? {
                found(&mut wanted, sha256, *file);
            }
        }
        // What was just uploaded may be there in place of what is damaged.
        let mut chunks = reader.chunks();
        for (sha256, named) in self.objects(&owner(at.kind, &at.name), false)? {
            if wanted.range((sha256, None)..=(sha256, Some(u64::MAX))).next().is_some()
                && let Some(file) = file_of(&mut chunks, &named)?
            {
                found(&mut wanted, sha256, file);
            }
        }
        let all = wanted.into_iter().map(|(key, file)| match file {
            Some(file) => Ok((key, file)),
            None => Err(Fault::Refused(format!("the object {} was not uploaded for this name", hex(&key.0)))),
        });
        all.collect()
    }
}

fn stored(file: PublishedFile) -> MemoryContent {
    file.content.map_or_else(|| MemoryContent::Parts(Vec::new()), MemoryContent::Stored)
}
