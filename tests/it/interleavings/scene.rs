//! Repositories from which searches begin, and what actors do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fhrd::backup::{BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::keep::{PruneOptions, SkippedRule, prune};
use fhrd::metrics::Progress;
use fhrd::repo::claims::{ClaimKind, ContainerClaim, IntentNote};
use fhrd::repo::cold;
use fhrd::repo::container::blob_name;
use fhrd::repo::index::ContainerListing;
use fhrd::repo::parity;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::read::{ChunkReader, RecipeWalk};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::salts::Salts;
use fhrd::repo::snapshot::{self, Snapshot};
use fhrd::repo::tree::{NodeKind, TreeCursor};
use fhrd::repo::{ColdStore, Repository};
use fhrd::store::{
    BlobKind, BlobPrefix, Durable, FaultyStore, InjectedFault, MemoryStore, ParityShare, ParityStore, Store,
};
use fhrd::types::SnapshotId;

use super::broken::Broken;
use super::heals::{Left, heal_found};
use super::scheduler::{ActorStore, Scheduler, Weather, stable_name};
use super::search::{Explored, explore};
use super::uploads::{commit, expire, upload, upload_by_xet};
use crate::double::named;
use crate::input::edit;
use crate::trees::Random;

/// Seed of the salts with which a scene is made.
const SCENE_SALTS: u64 = 1;

pub fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config.model.detect_formats = false;
    config
}

/// A prune that moves whatever it can and takes every writer for dead.
pub fn no_grace() -> PruneOptions {
    PruneOptions {
        grace: Duration::ZERO,
        dry_run: false,
        repack_bytes_max: u64::MAX,
        allow_no_containers: false,
        container_bytes: 32 << 20,
        patience: Duration::ZERO,
        extend_locks: None,
        recompress_threads: 0,
        min_age: None,
        skipped_rule: SkippedRule::Nothing,
    }
}

/// The blobs of a store.
pub type Blobs = BTreeMap<String, Vec<u8>>;

pub fn blobs_of(store: &dyn Store) -> Blobs {
    let listed = store.list(BlobPrefix::All).unwrap();
    listed.into_iter().map(|blob| (blob.name.to_string(), store.get(&blob.name, 1 << 30).unwrap())).collect()
}

pub fn store_with(blobs: &Blobs) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    blobs.iter().for_each(|(name, bytes)| store.replace(&named(name), bytes));
    Arc::new(store)
}

/// Opens the repository in `store`.
pub fn open(store: Arc<dyn Store>, seed: u64) -> Repository {
    Repository { salts: Salts::fixed(seed), ..Repository::open(store).unwrap() }
}

pub fn back_up(repository: &Repository, source: &Path, force: bool) -> fhrd::Result<SnapshotId> {
    let request = BackupRequest {
        without_pauses: true,
        ..BackupRequest::new(TreeSource {
            bare: true,
            parents: ParentChoice::new(force, None),
            ..TreeSource::new(vec![source.into()], "test")
        })
    };
    let report = backup(repository, &config(), &request, &Progress::default(), &Arc::default())?;
    Ok(SnapshotId::parse(&report.snapshot).unwrap())
}

pub fn clear_cache(repository: &Repository) {
    let _ = fs::remove_dir_all(cache_directory(repository).unwrap());
}

/// Reads everything that a snapshot needs, and checks every chunk.
pub fn read_whole(repository: &Repository, id: &SnapshotId) -> fhrd::Result<()> {
    let snapshot = Snapshot::load(repository.store.as_ref(), id)?;
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing);
    let mut contents = vec![(snapshot.root, true)];
    while let Some((content, is_directory)) = contents.pop() {
        if is_directory {
            let mut cursor = TreeCursor::open(content);
            while let Some(node) = cursor.next(&mut reader)? {
                contents.push((node.content, node.kind == NodeKind::Directory));
            }
        } else if let Some(content) = content {
            let mut walk = RecipeWalk::new(content);
            while let Some(reference) = walk.next(&mut reader)? {
                if let ContentReference::Chunk { fingerprint, len } = reference {
                    reader.read_exact(&fingerprint, len)?;
                }
            }
        }
    }
    Ok(())
}

/// A repository, and sources to back up.
pub struct Scene {
    directory: tempfile::TempDir,
    pub blobs: Blobs,
    /// Snapshots that exist at the start.
    pub snapshots: Vec<SnapshotId>,
    /// Whether containers get parity.
    pub has_parity: bool,
    /// Whether containers get hot indexes.
    pub is_cold: bool,
    /// Containers that are damaged at the start, with their bytes.
    pub damaged: Blobs,
}

impl Scene {
    /// Sources of three versions of a text with a few random bytes of their own each, and an empty repository.
    fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut random = Random(7);
        let mut text = random.text(60_000);
        for version in 0..3 {
            let source = directory.path().join(version.to_string());
            fs::create_dir(&source).unwrap();
            fs::write(source.join("text"), &text).unwrap();
            fs::write(source.join("noise"), Random(version).bytes(3000)).unwrap();
            text = edit(&mut random, &text, 12);
        }
        let store = Arc::new(MemoryStore::new());
        Repository::init(store.clone(), &RepositoryConfig::default()).unwrap();
        let (blobs, snapshots, damaged) = (blobs_of(store.as_ref()), Vec::new(), Blobs::new());
        Scene { directory, blobs, snapshots, has_parity: false, is_cold: false, damaged }
    }

    pub fn source(&self, version: usize) -> std::path::PathBuf {
        self.directory.path().join(version.to_string())
    }

    /// The source of which the half container is.
    pub fn half(&self) -> std::path::PathBuf {
        self.directory.path().join("half")
    }

    /// Backs up `sources` one after another and keeps the snapshots of `retained`, by position.
    fn with_backups(mut self, sources: &[std::path::PathBuf], retained: &[usize]) -> Self {
        let store = store_with(&self.blobs);
        let repository = open(store.clone(), SCENE_SALTS);
        for (number, source) in sources.iter().enumerate() {
            let id = back_up(&repository, source, true).unwrap();
            if retained.contains(&number) {
                self.snapshots.push(id);
            } else {
                snapshot::delete(store.as_ref(), &id).unwrap();
            }
        }
        clear_cache(&repository);
        self.blobs = blobs_of(store.as_ref());
        self
    }

    /// Two versions, of which the second is stored as copies from the first. The snapshots of `retained` versions stay.
    pub fn new(retained: &[usize]) -> Self {
        let scene = Self::empty();
        let sources = [scene.source(0), scene.source(1)];
        scene.with_backups(&sources, retained)
    }

    /// As [`Self::new`], with parity from now on and of what exists.
    pub fn with_parity(retained: &[usize]) -> Self {
        let scene = Self::new(retained);
        let store = store_with(&scene.blobs);
        let repository = open(store.clone(), 2);
        parity::set(&repository, ParityShare::new(300)).unwrap();
        parity::add(&repository, &Progress::default(), &Arc::default()).unwrap();
        Scene { blobs: blobs_of(store.as_ref()), has_parity: true, ..scene }
    }

    /// As [`Self::new`], but cold from now on, with hot indexes of what exists.
    pub fn cold(retained: &[usize]) -> Self {
        let scene = Self::new(retained);
        let store = store_with(&scene.blobs);
        let repository = open(store.clone(), 2);
        cold::set(&repository, true).unwrap();
        cold::add(&repository, &Progress::default(), &Arc::default()).unwrap();
        Scene { blobs: blobs_of(store.as_ref()), is_cold: true, ..scene }
    }

    /// As [`Self::new`], but the snapshot that stays needs only the noise of version 1, which is in one container with
    /// the copies from version 0.
    pub fn with_half_a_container() -> Self {
        let scene = Self::empty();
        let noise = scene.half();
        fs::create_dir(&noise).unwrap();
        fs::copy(scene.source(1).join("noise"), noise.join("noise")).unwrap();
        let sources = [scene.source(0), scene.source(1), noise];
        scene.with_backups(&sources, &[2])
    }

    /// No snapshot but the noise of version 0 as an object that was uploaded, and something to delete.
    pub fn with_object() -> Self {
        let scene = Self::empty();
        let sources = [scene.source(2)];
        let mut scene = scene.with_backups(&sources, &[]);
        let store = store_with(&scene.blobs);
        upload(&open(store.clone(), 3), &scene.source(0)).unwrap();
        scene.blobs = blobs_of(store.as_ref());
        scene
    }

    /// One container with three files: all, the first two, and the first one are in snapshots, of which the first is
    /// forgotten. The last one is `half`. Once the second one is forgotten, too, the first file moves again.
    pub fn that_moves_twice() -> Self {
        let scene = Self::empty();
        let directories = ["all", "some", "half"].map(|name| scene.directory.path().join(name));
        for (count, directory) in [3, 2, 1].into_iter().zip(&directories) {
            fs::create_dir(directory).unwrap();
            (0..count).for_each(|file| {
                fs::write(directory.join(file.to_string()), Random(20 + file).bytes(3000)).unwrap();
            });
        }
        scene.with_backups(&directories, &[1, 2])
    }

    /// Two snapshots that stay: version 1, whose text is stored as copies from version 0, and half a container. Versions
    /// 0 and 2 are forgotten, so a prune has something to move and to delete.
    pub fn for_verbs() -> Self {
        let scene = Self::empty();
        let noise = scene.half();
        fs::create_dir(&noise).unwrap();
        fs::copy(scene.source(2).join("noise"), noise.join("noise")).unwrap();
        let sources = [scene.source(0), scene.source(1), scene.source(2), noise];
        scene.with_backups(&sources, &[1, 3])
    }

    /// Two writers at once: one stores version 0 whole and version 1 as copies from it, the other one the reverse.
    pub fn with_mutual_bases(retained: &[usize]) -> Self {
        let mut scene = Self::empty();
        let mut both = Blobs::new();
        for (seed, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
            let store = store_with(&scene.blobs);
            let repository = open(store.clone(), 50 + seed as u64);
            for version in order {
                let id = back_up(&repository, &scene.source(version), true).unwrap();
                if retained.contains(&(2 * seed + version)) {
                    scene.snapshots.push(id);
                } else {
                    snapshot::delete(store.as_ref(), &id).unwrap();
                }
            }
            clear_cache(&repository);
            both.extend(blobs_of(store.as_ref()));
        }
        scene.blobs = both;
        scene
    }

    /// The blobs after something that was killed at its `operation`-th store call.
    pub fn after_killed(&self, operation: u64, run: impl FnOnce(&Repository)) -> Blobs {
        let store = store_with(&self.blobs);
        let fault = InjectedFault::PowerCut { operation, took_effect: true };
        let faulty: Arc<dyn Store> = Arc::new(FaultyStore::new(store.clone(), InjectedFault::None));
        let repository = Repository::open(faulty).unwrap();
        let faulty = Arc::new(FaultyStore::new(store.clone(), fault));
        let repository = Repository { store: faulty, salts: Salts::fixed(9), ..repository };
        run(&repository);
        clear_cache(&repository);
        blobs_of(store.as_ref())
    }
}

/// What an actor does.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    /// Backs up a version.
    Backup(usize),
    /// Prunes without a grace period, so that it takes every writer for dead.
    Prune,
    /// Prunes, and takes no writer for dead.
    PatientPrune,
    /// As [`Act::PatientPrune`], but moves nothing, and leaves out a rule.
    LazyPrune(SkippedRule),
    /// Deletes all snapshots of the start, then prunes.
    ForgetAndPrune,
    /// Breaks the intents that are there when it begins, as a prune does that is killed afterwards.
    BreakIntents,
    /// Puts a pending entry for all containers, deletes those that no intent holds, and removes the entry, as a prune
    /// does if there are no snapshots. It is killed if there is no intent.
    Announce,
    /// Uploads the noise of a version as an object.
    Upload(usize),
    /// Uploads the noise of a version as a xorb, then a shard with it.
    Xet(usize),
    /// Commits a version, whose noise must have been uploaded.
    Commit(usize),
    /// Deletes the uploads that will have expired, then prunes.
    ExpireAndPrune,
    /// Writes back what is damaged.
    Heal,
}

impl Act {
    /// The prefixes in which it puts or deletes something.
    fn changes(self) -> &'static [&'static str] {
        match self {
            Act::Backup(_) | Act::Upload(_) | Act::Xet(_) | Act::Commit(_) => &["containers", "intents", "snapshots"],
            Act::Prune => &["containers", "pending", "intents"],
            Act::PatientPrune | Act::LazyPrune(_) => &["containers", "pending"],
            Act::ForgetAndPrune | Act::ExpireAndPrune => &["containers", "pending", "intents", "snapshots"],
            Act::BreakIntents => &["intents"],
            Act::Announce => &["containers", "pending"],
            Act::Heal => &["containers", "intents"],
        }
    }
}

fn act(repository: &Repository, act: Act, scene: &Path, start: &[SnapshotId]) -> fhrd::Result<Option<SnapshotId>> {
    let store = repository.store.as_ref();
    let patient = PruneOptions { grace: Duration::from_secs(3600), ..no_grace() };
    let options = match act {
        Act::Backup(version) => {
            let id = back_up(repository, &scene.join(version.to_string()), true);
            clear_cache(repository);
            return id.map(Some);
        }
        Act::Upload(version) => return upload(repository, &scene.join(version.to_string())).map(Some),
        Act::Xet(version) => return upload_by_xet(repository, &scene.join(version.to_string())).map(Some),
        Act::Commit(version) => return commit(repository, &scene.join(version.to_string())).map(Some),
        Act::Heal => return heal_found(repository).map(|_| None),
        Act::ExpireAndPrune => {
            expire(repository)?;
            no_grace()
        }
        Act::BreakIntents => {
            for intent in
                store.list(BlobKind::Intent.into())?.iter().filter(|listed| !IntentNote::is_note(&listed.name))
            {
                IntentNote::Broken.put(store, &intent.name)?;
            }
            return Ok(None);
        }
        Act::Announce => {
            let candidates = ContainerListing::take(&repository.store)?.containers;
            let own = ContainerClaim::put(store, ClaimKind::Pending, &repository.salts.draw()?, &candidates)?;
            let held = ContainerClaim::containers_of(store, ClaimKind::Intent)?;
            if !candidates.is_disjoint(&held) {
                for id in candidates.difference(&held) {
                    store.delete(&blob_name(id), Durable::OnReturn)?;
                }
                store.delete(&own.name, Durable::OnReturn)?;
            }
            return Ok(None);
        }
        Act::ForgetAndPrune => {
            start.iter().try_for_each(|id| snapshot::delete(store, id))?;
            no_grace()
        }
        Act::Prune => no_grace(),
        Act::PatientPrune => patient,
        Act::LazyPrune(skipped_rule) => PruneOptions { repack_bytes_max: 0, skipped_rule, ..patient },
    };
    prune(repository, &options, &Arc::default()).map(|_| None)
}

/// What is searched: actors that begin with `blobs` in `scene`.
pub struct Search<'a> {
    pub scene: &'a Scene,
    pub blobs: &'a Blobs,
    pub acts: &'a [Act],
    /// What the actors leave out; nothing beyond the end.
    pub broken: &'a [Broken],
    pub weather: Weather,
    /// The actors of the first steps.
    pub begin: &'a [usize],
}

impl Search<'_> {
    /// Searches the orders, up to `runs_max` runs.
    pub fn run(&self, runs_max: usize) -> Explored {
        let current: Mutex<Arc<MemoryStore>> = Mutex::default();
        let start = |scheduler: &Arc<Scheduler>| {
            let store = store_with(self.blobs);
            *current.lock().unwrap() = store.clone();
            self.start(scheduler, &store)
        };
        explore(&|| current.lock().unwrap().clone(), self.acts.len(), self.begin, runs_max, &start)
    }

    /// The prefixes in which actors other than `actor` put or delete something.
    fn prefixes_of_others(&self, actor: usize) -> BTreeSet<&'static str> {
        let others = self.acts.iter().enumerate().filter(|(other, _)| *other != actor);
        let parity = self.scene.has_parity.then_some("parity");
        let indexes = self.scene.is_cold.then_some("indexes");
        others.flat_map(|(_, act)| act.changes()).copied().chain(parity).chain(indexes).collect()
    }

    /// Starts a thread for each actor. Gives the check of what they leave.
    fn start(&self, scheduler: &Arc<Scheduler>, store: &Arc<MemoryStore>) -> Box<dyn FnOnce() -> Result<(), String>> {
        let repository = Repository::open(store.clone()).unwrap();
        let reported: Arc<Mutex<Vec<SnapshotId>>> = Arc::default();
        let sources = self.scene.directory.path();
        let mut threads = Vec::new();
        for (actor, action) in self.acts.iter().copied().enumerate() {
            let broken = self.broken.get(actor).copied().unwrap_or(Broken::None);
            let own = ActorStore {
                inner: store.clone(),
                scheduler: scheduler.clone(),
                actor,
                run: sources.display().to_string(),
                broken,
                weather: self.weather,
                foreign: self.prefixes_of_others(actor),
                last_read: Mutex::default(),
                memory: Mutex::default(),
                first_lists: Mutex::default(),
                sweep: Mutex::default(),
                own: Mutex::default(),
            };
            let seed = if broken == Broken::NamesReturn { SCENE_SALTS } else { 100 + actor as u64 };
            let parity = Arc::new(ParityStore::new(Arc::new(own)));
            let salts = Salts::fixed(seed);
            let repository =
                Repository { store: Arc::new(ColdStore::new(parity.clone())), parity, salts, ..repository.clone() };
            let (scheduler, reported, store) = (scheduler.clone(), reported.clone(), store.clone());
            let (sources, snapshots) = (sources.to_path_buf(), self.scene.snapshots.clone());
            threads.push(std::thread::spawn(move || {
                let run = || act(&repository, action, &sources, &snapshots);
                let outcome = catch_unwind(AssertUnwindSafe(run));
                let mut result = String::new();
                if let Ok(Ok(Some(id))) = &outcome {
                    result = stable_name(store.as_ref(), &format!("snapshots/{id}"));
                    reported.lock().unwrap().push(*id);
                }
                scheduler.finish(actor, &result);
                if let Err(panic) = outcome {
                    resume_unwind(panic);
                }
            }));
        }
        let is_forgetting = self.acts.iter().any(|act| matches!(act, Act::ForgetAndPrune));
        let start = if is_forgetting { Vec::new() } else { self.scene.snapshots.clone() };
        let left = Left {
            store: store.clone(),
            scheduler: scheduler.clone(),
            has_parity: self.scene.has_parity,
            is_cold: self.scene.is_cold,
            damaged: self.scene.damaged.clone(),
        };
        Box::new(move || {
            for thread in threads {
                thread.join().map_err(|_| "an actor panicked".to_string())?;
            }
            let wanted = reported.lock().unwrap().iter().copied().chain(start).collect::<Vec<_>>();
            for id in &wanted {
                read_whole(&repository, id).map_err(|error| format!("snapshot {id}: {error}"))?;
            }
            left.check(&wanted)
        })
    }
}
