//! What is published: the names, revisions and commits that clients may ask for.
//!
//! The snapshots are listed again when somebody asks and the last look is some seconds old. If they cannot be listed,
//! what was found before still counts, and `/readyz` says so. A name that is not found while a snapshot cannot be read
//! may be in that one: it is unavailable, not absent.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::fault::Fault;
use super::unrecorded::UnrecordedNames;
use crate::error::Result;
use crate::inspect::models::{ModelReport, models};
use crate::inspect::report::{RepositoryReport, report};
use crate::repo::Repository;
use crate::repo::published::{DirectoryCache, PublishedKind, PublishedSnapshot, PublishedTree, published};
use crate::repo::read::Reader;
use crate::repo::reads::{ReadLedger, ReadRun};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::store::{BlobKind, BlobName};

/// Commands that prove what is stored.
const READS: [&str; 2] = ["check", "verify"];
/// How many times rarer the records of what was read are listed than the snapshots.
const RECORDS_RARER: u32 = 12;

/// What was found at one time.
pub struct PublishedNames {
    /// The snapshots of a revision are in order; the last one counts.
    pub snapshots: Vec<PublishedSnapshot>,
    /// All other snapshots that their backup has reported, oldest first.
    pub backups: Vec<NamedSnapshot>,
    reader: Reader,
    /// Snapshots that cannot be read.
    pub unreadable: usize,
}

impl PublishedNames {
    /// What is published under a name, oldest first. Never nothing.
    fn of_name(&self, kind: PublishedKind, name: &str) -> Result<Vec<&PublishedSnapshot>, Fault> {
        let is_wanted =
            |found: &&PublishedSnapshot| (found.publication.kind, found.publication.name.as_str()) == (kind, name);
        let found: Vec<&PublishedSnapshot> = self.snapshots.iter().filter(is_wanted).collect();
        if found.is_empty() { Err(self.absent(Fault::NoName)) } else { Ok(found) }
    }

    /// What says that something is absent, as far as that can be known.
    pub fn absent(&self, fault: Fault) -> Fault {
        match self.unreadable {
            0 => fault,
            _ => Fault::Unavailable("not all snapshots can be read, and it may be in one of them".into()),
        }
    }
}

/// What is known without a look at the store.
pub struct KnownNames {
    /// The time, nanoseconds since 1970.
    pub now_ns: i64,
    /// What the last look that succeeded has found.
    pub names: Option<Arc<PublishedNames>>,
    /// When that was, nanoseconds since 1970.
    pub listed_ns: Option<i64>,
    /// The last runs of `check` and `verify`.
    pub runs: Arc<Vec<ReadRun>>,
    /// Whether the last look succeeded.
    pub is_ready: bool,
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
    listed_ns: Option<i64>,
    looked: Option<Instant>,
    has_failed: bool,
    runs: Arc<Vec<ReadRun>>,
    /// The records that `runs` come from, and when they were listed.
    records: Vec<BlobName>,
    records_listed: Option<Instant>,
}

/// See the module.
pub struct Catalogue {
    repository: Repository,
    refresh: Duration,
    directories: Arc<DirectoryCache>,
    /// What is shown without being published, if that is wanted.
    unrecorded: Option<UnrecordedNames>,
    state: Mutex<CatalogueState>,
    /// Held by who lists the snapshots.
    looking: Mutex<()>,
}

impl Catalogue {
    /// The catalogue of a repository, which is listed again after `refresh`. With `unrecorded` it has every directory
    /// with a model, too.
    pub fn new(repository: Repository, refresh: Duration, unrecorded: Option<UnrecordedNames>) -> Self {
        Catalogue {
            repository,
            refresh,
            directories: Arc::default(),
            unrecorded,
            state: Mutex::default(),
            looking: Mutex::default(),
        }
    }

    /// Id of the repository.
    pub fn repository_id(&self) -> &str {
        &self.repository.id
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
        self.look_now()
    }

    /// Looks again, however recent the last look is, so that everybody sees what this process has just changed. Blocks.
    ///
    /// # Errors
    /// Errors of [`Self::names`].
    pub fn look_again(&self) -> Result<()> {
        let _looking = self.looking.lock();
        self.look_now().map(drop)
    }

    /// Looks, by who may.
    fn look_now(&self) -> Result<Arc<PublishedNames>> {
        let known = self.state.lock().names.clone();
        let found = self.look(known.as_ref());
        let mut state = self.state.lock();
        (state.looked, state.has_failed) = (Some(Instant::now()), found.is_err());
        match (found, known) {
            (Ok(found), _) => {
                (state.names, state.listed_ns) = (Some(found.clone()), Some(self.repository.clock.now_ns()));
                Ok(found)
            }
            (Err(error), Some(known)) => {
                tracing::error!("the snapshots cannot be listed, so what was found before counts: {error}");
                Ok(known)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// What `fhrd report` says of the repository, with the backups of `names`. Blocks, perhaps for minutes.
    ///
    /// # Errors
    /// Errors of the store. Damage is in the report.
    pub fn report(&self, names: &PublishedNames, halt: &AtomicBool) -> Result<RepositoryReport> {
        report(&self.repository, names.backups.clone(), halt)
    }

    /// The models in a published snapshot. Blocks.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn models(&self, found: &PublishedSnapshot, halt: &AtomicBool) -> Result<Vec<ModelReport>> {
        Ok(models(&self.repository, std::slice::from_ref(&found.named), halt)?.models)
    }

    /// Directories that were read.
    pub fn directories(&self) -> &DirectoryCache {
        &self.directories
    }

    /// Whether the last look is so recent that none is needed.
    pub fn is_recent(&self) -> bool {
        self.recent().is_some()
    }

    /// What is known. Never waits for the store.
    pub fn known(&self) -> KnownNames {
        let state = self.state.lock();
        KnownNames {
            now_ns: self.repository.clock.now_ns(),
            names: state.names.clone(),
            listed_ns: state.listed_ns,
            runs: state.runs.clone(),
            is_ready: !state.has_failed,
        }
    }

    /// Looks again if the last look is some seconds old, also at the records of what was read, which change rarely.
    /// Blocks. What fails is logged.
    pub fn refresh(&self) {
        if let Err(error) = self.names().and_then(|_| self.refresh_runs()) {
            tracing::error!("the repository cannot be listed: {error}");
        }
    }

    fn refresh_runs(&self) -> Result<()> {
        let records = {
            let mut state = self.state.lock();
            let every = self.refresh * RECORDS_RARER;
            if state.records_listed.is_some_and(|listed| listed.elapsed() < every) {
                return Ok(());
            }
            state.records_listed = Some(Instant::now());
            state.records.clone()
        };
        let store = self.repository.store.as_ref();
        let mut listed: Vec<BlobName> =
            store.list(BlobKind::ReadRecord.into())?.into_iter().map(|record| record.name).collect();
        listed.sort_unstable();
        if listed == records {
            return Ok(());
        }
        let ledger = ReadLedger::load(store, self.repository.clock.now_ns())?;
        let last_run = |verb: &str| ledger.runs.iter().rfind(|run| run.verb == verb).cloned();
        let runs = READS.into_iter().filter_map(last_run).collect();
        let mut state = self.state.lock();
        (state.runs, state.records) = (Arc::new(runs), listed);
        Ok(())
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
        let (snapshots, backups): (Vec<_>, Vec<_>) =
            snapshots.into_iter().partition(|named| named.snapshot.is_published());
        let (mut snapshots, mut unreadable) = (published(snapshots, self.repository.clock.now_ns())?, damaged.len());
        if let Some(unrecorded) = &self.unrecorded {
            let (more, lost) = unrecorded.find(&self.repository, &backups, &snapshots);
            snapshots.extend(more);
            unreadable += lost;
        }
        let same = known.filter(|known| {
            let (own, found) = (known.snapshots.iter(), snapshots.iter());
            known.unreadable == unreadable
                && own.map(|own| (own.named.id, &own.commit)).eq(found.map(|found| (found.named.id, &found.commit)))
        });
        let is_same = |known: &&Arc<PublishedNames>| {
            known.backups.iter().map(|own| own.id).eq(backups.iter().map(|found| found.id))
        };
        if let Some(known) = same.filter(is_same) {
            return Ok(known.clone());
        }
        // What is new may be in containers that an older reader does not know.
        let reader = same.map_or_else(|| Reader::open(&self.repository), |known| Ok(known.reader.clone()))?;
        Ok(Arc::new(PublishedNames { snapshots, backups, reader, unreadable }))
    }

    /// The commit that `revision` names: by its name, or by itself. Blocks.
    ///
    /// # Errors
    /// [`Fault::NoName`] and [`Fault::NoRevision`], but [`Fault::Unavailable`] if not all snapshots could be read.
    pub fn find(&self, kind: PublishedKind, name: &str, revision: &str) -> Result<FoundCommit, Fault> {
        let names = self.names()?;
        let found = names.of_name(kind, name)?;
        let short = revision.strip_prefix("refs/heads/").unwrap_or(revision);
        let by_name = |wanted: &str| found.iter().rfind(|found| found.publication.revision == wanted);
        let by_commit = || found.iter().rfind(|found| found.commit.eq_ignore_ascii_case(revision));
        let published = by_name(revision).or_else(|| by_name(short)).or_else(by_commit);
        let published = published.ok_or_else(|| names.absent(Fault::NoRevision))?;
        Ok(self.opened(&names, published))
    }

    /// All commits of a name, the latest ones first, each once. Blocks.
    ///
    /// # Errors
    /// Errors of [`Self::find`].
    pub fn commits(&self, kind: PublishedKind, name: &str) -> Result<Vec<FoundCommit>, Fault> {
        let names = self.names()?;
        let (found, mut seen) = (names.of_name(kind, name)?, HashSet::new());
        let once = found.into_iter().rev().filter(|found| seen.insert(found.commit.as_str()));
        Ok(once.map(|found| self.opened(&names, found)).collect())
    }

    fn opened(&self, names: &PublishedNames, published: &PublishedSnapshot) -> FoundCommit {
        let root = published.named.snapshot.root;
        let tree = PublishedTree::new(names.reader.clone(), self.directories.clone(), root, &published.publication);
        FoundCommit { published: published.clone(), tree }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RepositoryConfig;
    use crate::repo::published::Publication;
    use crate::repo::snapshot::Snapshot;
    use crate::store::MemoryStore;

    #[test]
    fn a_change_is_seen_although_another_look_has_begun_before() {
        let repository = Repository::init(Arc::new(MemoryStore::default()), &RepositoryConfig::default()).unwrap();
        let catalogue = Catalogue::new(repository.clone(), Duration::from_secs(3600), None);
        assert!(catalogue.names().unwrap().snapshots.is_empty());
        let publication = Publication {
            name: "a/b".into(),
            revision: "main".into(),
            kind: PublishedKind::Model,
            directory: Vec::new().into(),
        };
        let mut snapshot = Snapshot { time_ns: repository.clock.now_ns(), ..Snapshot::default() };
        publication.attach(&mut snapshot.extra).unwrap();
        snapshot.save(repository.store.as_ref()).unwrap();
        let looking = catalogue.looking.lock();
        let seen = std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                catalogue.look_again().unwrap();
                catalogue.names().unwrap().snapshots.len()
            });
            std::thread::sleep(Duration::from_millis(50));
            drop(looking);
            changer.join().unwrap()
        });
        assert_eq!(seen, 1);
    }
}
