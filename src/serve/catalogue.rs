//! What is published: the names, revisions and commits that clients may ask for.
//!
//! The snapshots are listed again when somebody asks and the last look is some seconds old. If they cannot be listed,
//! what was found before still counts, and `/readyz` says so. A name that is not found while a snapshot cannot be read
//! may be in that one: it is unavailable, not absent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fault::Fault;
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::published::{DirectoryCache, PublishedKind, PublishedSnapshot, PublishedTree, published};
use crate::repo::read::Reader;
use crate::repo::snapshot_listing::{self, SnapshotListing};

/// What was found at one time.
pub struct PublishedNames {
    /// The snapshots of a revision are in order; the last one counts.
    pub snapshots: Vec<PublishedSnapshot>,
    reader: Reader,
    /// Snapshots that cannot be read.
    pub unreadable: usize,
}

/// A commit that somebody asked for.
#[derive(Clone)]
pub struct FoundCommit {
    /// The snapshot.
    pub published: PublishedSnapshot,
    /// Its tree.
    pub tree: PublishedTree,
}

#[derive(Default)]
struct CatalogueState {
    names: Option<Arc<PublishedNames>>,
    looked: Option<Instant>,
    has_failed: bool,
}

/// See the module.
pub struct Catalogue {
    repository: Repository,
    refresh: Duration,
    directories: Arc<DirectoryCache>,
    state: Mutex<CatalogueState>,
    /// Held by who lists the snapshots.
    looking: Mutex<()>,
}

impl Catalogue {
    /// The catalogue of a repository, which is listed again after `refresh`.
    pub fn new(repository: Repository, refresh: Duration) -> Self {
        Catalogue {
            repository,
            refresh,
            directories: Arc::default(),
            state: Mutex::default(),
            looking: Mutex::default(),
        }
    }

    /// What is published now, as far as the last look says. Blocks.
    ///
    /// # Errors
    /// Errors of listing the store, if there never was a look that succeeded.
    pub fn names(&self) -> Result<Arc<PublishedNames>> {
        if let Some(names) = self.recent() {
            return Ok(names);
        }
        let known = self.state.lock().names.clone();
        let _looking = match known {
            // Who waits would find what the other finds.
            Some(names) => match self.looking.try_lock() {
                Some(looking) => looking,
                None => return Ok(names),
            },
            None => self.looking.lock(),
        };
        if let Some(names) = self.recent() {
            return Ok(names);
        }
        let known = self.state.lock().names.clone();
        let found = self.look(known.as_ref());
        let mut state = self.state.lock();
        (state.looked, state.has_failed) = (Some(Instant::now()), found.is_err());
        match (found, known) {
            (Ok(found), _) => {
                state.names = Some(found.clone());
                Ok(found)
            }
            (Err(error), Some(known)) => {
                tracing::error!("the snapshots cannot be listed, so what was found before counts: {error}");
                Ok(known)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Whether the last look succeeded. Blocks.
    ///
    /// # Errors
    /// Errors of [`Self::names`].
    pub fn is_ready(&self) -> Result<bool> {
        self.names()?;
        Ok(!self.state.lock().has_failed)
    }

    fn recent(&self) -> Option<Arc<PublishedNames>> {
        let state = self.state.lock();
        state.names.clone().filter(|_| state.looked.is_some_and(|looked| looked.elapsed() < self.refresh))
    }

    fn look(&self, known: Option<&Arc<PublishedNames>>) -> Result<Arc<PublishedNames>> {
        let SnapshotListing { snapshots, damaged, .. } = snapshot_listing::list(&self.repository)?;
        damaged.iter().for_each(|(name, error)| tracing::error!("cannot read {name}: {error}"));
        let snapshots = published(snapshots, self.repository.clock.now_ns())?;
        let ids = |snapshots: &[PublishedSnapshot]| snapshots.iter().map(|found| found.named.id).collect::<Vec<_>>();
        if let Some(known) = known
            && ids(&known.snapshots) == ids(&snapshots)
            && known.unreadable == damaged.len()
        {
            return Ok(known.clone());
        }
        // What is new may be in containers that an older reader does not know.
        let reader = Reader::open(&self.repository)?;
        Ok(Arc::new(PublishedNames { snapshots, reader, unreadable: damaged.len() }))
    }

    /// The commit that `revision` names: by its name, or by itself. Blocks.
    ///
    /// # Errors
    /// [`Fault::NoName`] and [`Fault::NoRevision`], but [`Fault::Unavailable`] if not all snapshots could be read.
    pub fn find(&self, kind: PublishedKind, name: &str, revision: &str) -> Result<FoundCommit, Fault> {
        let names = self.names()?;
        let absent = |fault: Fault| match names.unreadable {
            0 => fault,
            count => Fault::Unavailable(format!("{count} snapshots cannot be read, and it may be one of them")),
        };
        let is_wanted =
            |found: &&PublishedSnapshot| (found.publication.kind, found.publication.name.as_str()) == (kind, name);
        let found: Vec<&PublishedSnapshot> = names.snapshots.iter().filter(is_wanted).collect();
        if found.is_empty() {
            return Err(absent(Fault::NoName));
        }
        let short = revision.strip_prefix("refs/heads/").unwrap_or(revision);
        let by_name = |wanted: &str| found.iter().rfind(|found| found.publication.revision == wanted);
        let by_commit = || found.iter().rfind(|found| found.commit.eq_ignore_ascii_case(revision));
        let published = by_name(revision).or_else(|| by_name(short)).or_else(by_commit);
        let published = (*published.ok_or_else(|| absent(Fault::NoRevision))?).clone();
        let tree = PublishedTree::new(
            names.reader.clone(),
            self.directories.clone(),
            published.named.snapshot.root,
            &published.publication,
        );
        Ok(FoundCommit { published, tree })
    }
}
