//! A commit: the files of a name with some changes, as one snapshot and one publication.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fault::CommitFault;
use super::objects::{file_of, owner};
use super::operations::{CommitContent, CommitFiles, CommitOperations, WantedObject};
use super::{UploadStore, forget};
use crate::backup::{MemoryContent, MemoryFile};
use crate::error::{Error, Result as EngineResult};
use crate::keep::{PublishRequest, publish};
use crate::repo::claims::ContainerClaim;
use crate::repo::published::{
    DEFAULT_REVISION, FILES_MAX, PublishedFile, PublishedItem, PublishedKind, PublishedSnapshot, PublishedTree,
    path_text, published,
};
use crate::repo::read::Reader;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_listing;
use crate::repo::upload::StoredUpload;
use crate::types::hex;

/// The SHA-256 of a file of the repository, if somebody knows it.
pub type KnownHash<'a> = dyn Fn(&PublishedFile) -> EngineResult<Option<[u8; 32]>> + 'a;

/// What a commit goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitTarget {
    /// What it is.
    pub kind: PublishedKind,
    /// `ORG/NAME`.
    pub name: String,
    /// The revision.
    pub revision: String,
}

impl UploadStore {
    /// Stores a commit and publishes it. `known` has hashes of files that the name shows already.
    ///
    /// # Errors
    /// [`CommitFault`].
    pub fn commit(
        &self,
        known: &KnownHash<'_>,
        target: &CommitTarget,
        operations: CommitOperations,
    ) -> Result<PublishedSnapshot, CommitFault> {
        let reader = Reader::open(&self.repository)?;
        let (mut files, current) = self.files(&reader, target)?;
        if let Some(parent) = &operations.parent
            && current.as_ref() != Some(parent)
        {
            return Err(CommitFault::Changed("the revision has another commit than this one builds on".into()));
        }
        let inline = operations.inline.clone();
        let stored_file =
            |content: &CommitContent| if let CommitContent::Stored(file) = content { Some(*file) } else { None };
        // A file that moves is named by its hash, and deleted in the same commit.
        let before: Vec<PublishedFile> = files.values().filter_map(stored_file).collect();
        operations.apply(&mut files)?;
        let name = owner(target.kind, &target.name);
        let objects = self.wanted(known, &reader, &name, (&files, &before))?;
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
        let (expires_ns, sha256) = (self.expiry_ns(), Vec::new().into());
        let upload = StoredUpload { expires_ns, name, sha256, xorbs: None };
        let original = self.store(files, upload).map_err(|error| self.explained(error))?;
        let published = self.publish(target, original.clone());
        // What is published refers to the same content.
        let forgotten = forget(&self.repository, &[original.id]);
        forgotten.unwrap_or_else(|error| tracing::warn!("snapshot {:.8} stays until it expires: {error}", original.id));
        published
    }

    /// The error of storing what was uploaded. Beside a prune, what it refers to may count as missing for a while.
    pub(super) fn explained(&self, error: Error) -> CommitFault {
        if !matches!(error, Error::BlobMissing { .. }) {
            return error.into();
        }
        match self.is_pruned() {
            Ok(true) => pruned(),
            Ok(false) => error.into(),
            // Nobody knows whether it is missing.
            Err(unknown) => unknown.into(),
        }
    }

    /// Whether a prune has announced itself.
    fn is_pruned(&self) -> EngineResult<bool> {
        ContainerClaim::is_any_pending(self.repository.store.as_ref())
    }

    fn publish(&self, target: &CommitTarget, original: NamedSnapshot) -> Result<PublishedSnapshot, CommitFault> {
        let CommitTarget { kind, name, revision } = target.clone();
        let request = PublishRequest { original, path: None, name, revision, kind, replace: false };
        let outcome = match publish(&self.repository, &request) {
            Err(Error::Usage(_)) if self.is_pruned()? => return Err(pruned()),
            // That prune may have ended meanwhile.
            Err(Error::Usage(_)) => publish(&self.repository, &request),
            outcome => outcome,
        };
        match outcome {
            Ok(outcome) => Ok(outcome.published),
            Err(error @ Error::Usage(_)) => Err(CommitFault::Refused(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The files that a revision shows now, and its commit. None before the first commit of a name.
    fn files(&self, reader: &Reader, target: &CommitTarget) -> Result<(CommitFiles, Option<String>), CommitFault> {
        let listing = snapshot_listing::list(&self.repository)?;
        if !listing.damaged.is_empty() {
            let reason = "not all snapshots can be read, and one may be the last commit";
            return Err(CommitFault::Unavailable(reason.into()));
        }
        let found = published(listing.snapshots, self.repository.clock.now_ns())?;
        let is_own = |own: &PublishedSnapshot| {
            let publication = &own.publication;
            (publication.kind, &publication.name, &publication.revision)
                == (target.kind, &target.name, &target.revision)
        };
        let Some(last) = found.into_iter().rfind(|found| is_own(found)) else {
            let is_first = target.revision == DEFAULT_REVISION;
            return if is_first { Ok((BTreeMap::new(), None)) } else { Err(CommitFault::NoRevision) };
        };
        let (root, publication) = (last.named.snapshot.root, &last.publication);
        let tree = PublishedTree::new(reader.clone(), Arc::default(), root, publication);
        let page = tree.page(&[], None, true, FILES_MAX)?.unwrap_or_default();
        if page.has_more {
            return Err(CommitFault::TooLong);
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
        known: &KnownHash<'_>,
        reader: &Reader,
        owner: &str,
        (files, before): (&CommitFiles, &[PublishedFile]),
    ) -> Result<BTreeMap<WantedObject, PublishedFile>, CommitFault> {
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
            if let Some(sha256) = known(file)? {
                found(&mut wanted, sha256, *file);
            }
        }
        // What was just uploaded may be there in place of what is damaged.
        let mut chunks = reader.chunks();
        for (sha256, named) in self.objects(owner, false)? {
            if wanted.range((sha256, None)..=(sha256, Some(u64::MAX))).next().is_some()
                && let Some(file) = file_of(&mut chunks, &named)?
            {
                found(&mut wanted, sha256, file);
            }
        }
        let all = wanted.into_iter().map(|(key, file)| match file {
            Some(file) => Ok((key, file)),
            None => Err(CommitFault::Refused(format!("the object {} was not uploaded for this name", hex(&key.0)))),
        });
        all.collect()
    }
}

fn pruned() -> CommitFault {
    CommitFault::Unavailable("a prune is running; try again later".into())
}

fn stored(file: PublishedFile) -> MemoryContent {
    file.content.map_or_else(|| MemoryContent::Parts(Vec::new()), MemoryContent::Stored)
}
