//! Power cuts: every verb that changes a local repository is recorded, and the record is cut after each change, with
//! what was not synced dropped, kept in any choice, or torn ([`crate::store::disk::replay`]).
//!
//! In each state the repository opens, what was reported before the cut is there and visible, what was reported as gone
//! stays gone, every snapshot that is listed restores byte for byte, and nothing is damage. Later verbs go on.
//!
//! `FHRD_POWER_CUTS=all` tries every state; otherwise only some where many changes were not synced.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::backup::{BackupRequest, TreeSource, backup};
use crate::config::{Config, RepositoryConfig};
use crate::crypto::{CipherSuite, KeySlot, SecretBytes, Unlock};
use crate::error::Result;
use crate::filesystem::PatternsBuilder;
use crate::inspect::check::check;
use crate::keep::{
    Copier, PruneOptions, RewriteRequest, SkippedRule, TagChange, forget, prune, recompress, rewrite, tag,
};
use crate::metrics::Progress;
use crate::repair::snapshots::{SnapshotRepair, repair_snapshots};
use crate::repair::{containers::repair_containers, index::repair_index, quarantine};
use crate::repo::marks::Marks;
use crate::repo::paths::cache_directory;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::repo::{Repository, keys};
use crate::restore::restore;
use crate::store::disk::journal::{Entry, Journal};
use crate::store::disk::replay::{Blobs, Replay, numbers, store_with};
use crate::store::{BlobKind, Store};
use crate::types::{Fingerprint, SnapshotId};

mod models;

/// States after one change that are tried by default.
const STATES_MAX: usize = 12;

/// The files of a source, by name.
type Files = BTreeMap<&'static str, Vec<u8>>;

/// What was reported.
#[derive(Debug, Clone, Default)]
struct Reported {
    /// The snapshots, with their files.
    snapshots: BTreeMap<SnapshotId, Files>,
    latest: Option<SnapshotId>,
    /// What is gone for good.
    forgotten: BTreeSet<SnapshotId>,
    /// Models in the catalogue.
    models: BTreeSet<Fingerprint>,
    slots: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// Whether marks say that something is bad.
    is_quarantined: bool,
    /// Snapshots may lack data: a test has damaged it.
    is_damaged: bool,
}

/// A moment at which a verb ended.
struct Moment {
    verb: String,
    /// Changes so far.
    at: usize,
    reported: Reported,
}

fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config.read.recheck_seconds = 0;
    config
}

fn unlock(byte: u8) -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![byte; 32]))
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A repository whose changes are recorded, and what its verbs have reported.
struct Scene {
    directory: tempfile::TempDir,
    journal: Arc<Journal>,
    repository: Repository,
    reported: Reported,
    moments: Vec<Moment>,
}

impl Scene {
    fn new(is_encrypted: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("repository");
        let journal = Journal::of(&root);
        let store = crate::store::create(&root).unwrap();
        let repository = match is_encrypted {
            false => Repository::init(store, &config().repository),
            true => Repository::init_encrypted(store, &RepositoryConfig::default(), None, &unlock(1), "first"),
        };
        let repository = repository.unwrap();
        fs::create_dir(directory.path().join("source")).unwrap();
        let mut scene = Scene { directory, journal, repository, reported: Reported::default(), moments: Vec::new() };
        scene.reported.slots = scene.slots();
        scene.report("init");
        scene
    }

    fn slots(&self) -> BTreeSet<String> {
        keys::list(self.repository.store.as_ref()).unwrap().into_iter().map(|slot| slot.id).collect()
    }

    /// The verb has reported success.
    fn report(&mut self, verb: &str) {
        let (verb, at, reported) = (verb.to_string(), self.journal.count(), self.reported.clone());
        self.moments.push(Moment { verb, at, reported });
    }

    fn source(&self) -> PathBuf {
        self.directory.path().join("source")
    }

    fn back_up(&mut self, files: &Files) -> SnapshotId {
        for (name, content) in files {
            fs::write(self.source().join(name), content).unwrap();
        }
        let request = BackupRequest::new(TreeSource { bare: true, ..TreeSource::new(vec![self.source()], "test") });
        let done = backup(&self.repository, &config(), &request, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(done.problems, 0);
        let id = SnapshotId::parse(&done.snapshot).unwrap();
        self.reported.snapshots.insert(id, files.clone());
        self.reported.latest = Some(id);
        self.reported.models = models::catalogued(&self.repository);
        self.report("backup");
        id
    }

    fn named(&self, id: &SnapshotId) -> NamedSnapshot {
        snapshot::find(self.repository.store.as_ref(), &id.to_string()).unwrap()
    }

    /// `old` is replaced by `new`, which has these files.
    fn replace(&mut self, verb: &str, old: &SnapshotId, new: SnapshotId, files: Files) {
        self.reported.snapshots.remove(old);
        self.reported.snapshots.insert(new, files);
        self.reported.forgotten.insert(*old);
        self.reported.latest = Some(snapshot::find(self.repository.store.as_ref(), "latest").unwrap().id);
        self.report(verb);
    }

    fn forget(&mut self, id: SnapshotId) {
        forget(&self.repository, &[id]).unwrap();
        self.reported.snapshots.remove(&id);
        self.reported.forgotten.insert(id);
        self.reported.latest = Some(snapshot::find(self.repository.store.as_ref(), "latest").unwrap().id);
        self.report("forget");
    }

    fn prune(&mut self) {
        assert!(!prune(&self.repository, &options(), &Arc::default()).unwrap().withdrawn);
        self.report("prune");
    }

    /// Cuts the record after each change.
    fn try_all(&self) -> usize {
        self.try_altered(|entry| Some(entry.clone()))
    }

    /// Cuts the record as if the changes had been others.
    fn try_altered(&self, alter: impl Fn(&Entry) -> Option<Entry>) -> usize {
        self.journal.end();
        let (entries, is_encrypted) = (self.journal.entries(), self.repository.encryption.is_some());
        let states_max = if std::env::var_os("FHRD_POWER_CUTS").is_some() { 1 << 14 } else { STATES_MAX };
        let (mut replay, mut seen, mut random) = (Replay::new(&self.root()), HashSet::new(), numbers());
        let first = self.moments.first().map_or(0, |moment| moment.at);
        for (at, entry) in (1..).zip(&entries) {
            alter(entry).iter().for_each(|entry| replay.apply(entry));
            let last = self.moments.iter().rposition(|moment| moment.at <= at);
            // An `init` that was cut has reported nothing.
            let (Some(last), true) = (last, at >= first) else { continue };
            let (before, after) = (&self.moments[last], self.moments.get(last + 1));
            for blobs in replay.states(states_max, &mut random) {
                if !seen.insert((last, before.at == at, blake3::hash(format!("{:?}", digests(&blobs)).as_bytes()))) {
                    continue;
                }
                let verb = after.map_or("the end", |after| after.verb.as_str());
                let what = format!("change {at}, after {}, in {verb}: {entry:?}", before.verb);
                let what = what.get(..300).unwrap_or(&what).to_string();
                // At the moment of the report nothing of the next verb is there.
                let after = after.filter(|_| at > before.at).map(|after| &after.reported);
                examine(&blobs, (&before.reported, after), (is_encrypted, seen.len() % 5 == 0), &what);
            }
        }
        let _ = fs::remove_dir_all(cache_directory(&self.repository).unwrap());
        seen.len()
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("repository")
    }
}

fn digests(blobs: &Blobs) -> Vec<(&String, [u8; 32])> {
    blobs.iter().map(|(name, bytes)| (name, *blake3::hash(bytes).as_bytes())).collect()
}

fn options() -> PruneOptions {
    PruneOptions {
        grace: Duration::ZERO,
        dry_run: false,
        repack_bytes_max: u64::MAX,
        allow_no_containers: false,
        container_bytes: 64 << 20,
        patience: Duration::ZERO,
        extend_locks: None,
        recompress_threads: 0,
        min_age: None,
        skipped_rule: SkippedRule::Nothing,
    }
}

/// Looks at a state. `before` was reported; the verb that would report `after` was running, if any.
fn examine(
    blobs: &Blobs,
    (before, after): (&Reported, Option<&Reported>),
    (is_encrypted, goes_on): (bool, bool),
    what: &str,
) {
    let store = store_with(blobs);
    let open = || Repository::open_with(store.clone(), &|| Ok(unlock(*opening(before, after).first().unwrap())));
    let repository = match is_encrypted {
        false => Repository::open(store.clone()).unwrap_or_else(|error| panic!("{what}: {error}")),
        true => open().unwrap_or_else(|error| panic!("{what}: {error}")),
    };
    assert_visible(&repository, (before, after), what);
    let marks = Marks::read(repository.store.as_ref()).unwrap();
    assert!(!before.is_quarantined || after.is_some() || !marks.quarantine.is_empty(), "{what}: the mark is gone");
    let is_damaged = before.is_damaged || after.is_some_and(|after| after.is_damaged);
    if !is_damaged {
        models::assert_models(&repository, before, what);
        assert_whole(&repository, (before, after), what);
    }
    if after.is_none() && !is_damaged {
        assert_sound(&repository, what);
    }
    if goes_on && !is_damaged {
        // What a cut leaves is finished later, and costs nothing that was reported.
        prune(&repository, &options(), &Arc::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_visible(&repository, (before, after), &format!("{what}, pruned"));
        assert_whole(&repository, (before, after), &format!("{what}, pruned"));
        assert_sound(&repository, &format!("{what}, pruned"));
    }
    let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
}

/// The key files that open the repository: the first one, until its slot is gone.
fn opening(before: &Reported, after: Option<&Reported>) -> Vec<u8> {
    let is_first_gone = before.removed.len() > 1 || after.is_some_and(|after| after.removed.len() > 1);
    if is_first_gone { vec![3] } else { vec![1] }
}

fn assert_sound(repository: &Repository, what: &str) {
    let report = check(repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, Vec::<String>::new(), "{what}");
}

fn assert_visible(repository: &Repository, (before, after): (&Reported, Option<&Reported>), what: &str) {
    let store = repository.store.as_ref();
    let (listed, unreadable) = snapshot::list_reported(store).unwrap();
    assert!(unreadable.is_empty(), "{what}: {unreadable:?}");
    let listed: BTreeSet<SnapshotId> = listed.into_iter().map(|named| named.id).collect();
    let stays = |id: &&SnapshotId| after.is_none_or(|after| after.snapshots.contains_key(*id));
    for id in before.snapshots.keys() {
        // One that the running verb deletes may be gone only if what replaces it is there.
        let new = after.into_iter().flat_map(|after| after.snapshots.keys());
        let mut new = new.filter(|id| !before.snapshots.contains_key(id)).peekable();
        let is_replaced = new.peek().is_none() || new.any(|new| listed.contains(new));
        assert!(listed.contains(id) || !stays(&id) && is_replaced, "{what}: snapshot {id} is hidden");
    }
    for id in &listed {
        let is_known = before.snapshots.contains_key(id) || after.is_some_and(|after| after.snapshots.contains_key(id));
        assert!(is_known && !before.forgotten.contains(id), "{what}: snapshot {id} is back");
    }
    let latest = snapshot::find(store, "latest").ok().map(|named| named.id);
    let is_latest = latest == before.latest || after.is_some_and(|after| latest == after.latest);
    assert!(is_latest, "{what}: {latest:?} is the latest, not {:?}", before.latest);
    let slots: BTreeSet<String> = keys::list(store).unwrap().into_iter().map(|slot| slot.id).collect();
    assert!(slots.is_disjoint(&before.removed), "{what}: a removed key slot is back");
    let lacks = before.slots.iter().any(|id| !slots.contains(id) && after.is_none_or(|it| it.slots.contains(id)));
    assert!(!lacks, "{what}: a key slot is gone");
}

fn assert_whole(repository: &Repository, (before, after): (&Reported, Option<&Reported>), what: &str) {
    for named in snapshot::list_reported(repository.store.as_ref()).unwrap().0 {
        let files = before.snapshots.get(&named.id).or_else(|| after?.snapshots.get(&named.id)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("restored");
        let done = restore(repository, &config(), &named, &target, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!((done.damaged, done.problems), (0, 0), "{what}");
        assert_eq!(files_below(&target.join("source")), *files, "{what}");
    }
}

fn files_below(directory: &Path) -> Files {
    let names = ["base", "text", "noise", "model.safetensors"].into_iter().filter(|name| directory.join(name).exists());
    names.map(|name| (name, fs::read(directory.join(name)).unwrap())).collect()
}

/// The files of version `number`: most of them is in the version before.
fn files(number: u64) -> Files {
    let mut text: Vec<u8> = (0..4000).flat_map(|line: u32| format!("line {line}\n").into_bytes()).collect();
    text.splice(20_000..20_000, format!("version {number}").into_bytes());
    BTreeMap::from([("base", noise(1, 90_000)), ("text", text), ("noise", noise(100 + number, 60_000))])
}

fn without_noise(mut files: Files) -> Files {
    files.remove("noise");
    files
}

fn rewrite_it(repository: &Repository, named: &NamedSnapshot) -> SnapshotId {
    let mut exclude = PatternsBuilder::default();
    exclude.add("noise", false, "test").unwrap();
    let request = RewriteRequest {
        exclude: exclude.build().unwrap(),
        excludes: Vec::new(),
        forget: true,
        allow_problems: false,
        dry_run: false,
    };
    let done = rewrite(repository, &config(), named, &request, &Progress::default(), &Arc::default()).unwrap();
    assert!(done.forgotten);
    done.rewritten.unwrap()
}

#[test]
fn what_was_reported_is_there_after_a_cut_and_what_was_deleted_is_gone() -> Result<()> {
    let mut scene = Scene::new(false);
    let ids: Vec<SnapshotId> = (0..4).map(|number| scene.back_up(&files(number))).collect();
    let change = TagChange { add: vec!["kept".into()], ..TagChange::default() };
    let tagged = tag(&scene.repository, &scene.named(&ids[0]), &change).unwrap().unwrap();
    scene.replace("tag", &ids[0], tagged, files(0));
    let rewritten = rewrite_it(&scene.repository, &scene.named(&ids[1]));
    scene.replace("rewrite", &ids[1], rewritten, without_noise(files(1)));
    scene.forget(ids[2]);
    scene.prune();
    scene.forget(tagged);
    scene.prune();
    let last = scene.back_up(&files(7));
    assert!(!recompress(&scene.repository, &options(), 2, &Arc::default())?.withdrawn);
    scene.report("recompress");
    repair_index(&scene.repository, &Arc::default())?;
    scene.report("repair index");
    scene.forget(last);
    assert_eq!(scene.reported.latest, Some(ids[3]));
    let tried = scene.try_all();
    assert!(tried > 60, "{tried}");
    Ok(())
}

#[test]
fn copies_and_merges_of_segments_survive_a_cut() -> Result<()> {
    let mut other = Scene::new(false);
    (0..2).for_each(|number| _ = other.back_up(&files(number)));
    let mut scene = Scene::new(false);
    let (settings, target) = (config(), scene.repository.clone());
    let mut copier = Copier::new(&other.repository, &target, &settings)?;
    for (number, named) in (0..).zip(snapshot::list(other.repository.store.as_ref())?.0) {
        let copy = copier.copy(&named, false, &Progress::default(), &Arc::default())?.copy.unwrap();
        scene.reported.snapshots.insert(copy, files(number));
        scene.reported.latest = Some(copy);
        scene.report("copy");
    }
    other.journal.end();
    (2..7).for_each(|number| _ = scene.back_up(&files(number)));
    scene.try_all();
    Ok(())
}

#[test]
fn a_removed_key_stays_removed_after_a_cut() -> Result<()> {
    let mut scene = Scene::new(true);
    scene.back_up(&files(0));
    let encryption = scene.repository.encryption.clone().unwrap();
    let suite = CipherSuite::of_this_machine();
    let add = |scene: &mut Scene, byte: u8| -> Result<String> {
        let slot = KeySlot::new(&encryption.keyring, &unlock(byte), "another", suite)?;
        let id = keys::put(scene.repository.store.as_ref(), &slot)?;
        scene.reported.slots.insert(id.clone());
        scene.report("key add");
        Ok(id)
    };
    let remove = |scene: &mut Scene, id: &str| -> Result<()> {
        keys::remove(scene.repository.store.as_ref(), id)?;
        scene.reported.slots.remove(id);
        scene.reported.removed.insert(id.into());
        scene.report("key remove");
        Ok(())
    };
    let second = add(&mut scene, 2)?;
    add(&mut scene, 3)?;
    remove(&mut scene, &second)?;
    let first = encryption.slot.clone();
    remove(&mut scene, &first)?;
    scene.back_up(&files(1));
    scene.try_all();
    let directory = scene.root().join("keys");
    let is_sync = |entry: &Entry| matches!(entry, Entry::Synced(path) if *path == directory);
    assert!(finds_fault(&scene, |entry| Some(entry.clone()).filter(|entry| !is_sync(entry))));
    Ok(())
}

#[test]
fn marks_and_repairs_stay_after_a_cut() -> Result<()> {
    let mut scene = Scene::new(false);
    let first = scene.back_up(&files(0));
    scene.back_up(&files(1));
    let largest =
        scene.repository.store.list(BlobKind::Container.into())?.into_iter().max_by_key(|listed| listed.len).unwrap();
    let path = scene.root().join(&largest.name);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() / 3;
    bytes[at..at + 2000].fill(0);
    fs::write(&path, &bytes).unwrap();
    scene.reported.is_damaged = true;
    scene.journal.note(Entry::Named(path.clone(), Arc::new(bytes), true));
    scene.journal.note(Entry::Synced(path.parent().unwrap().into()));
    scene.report("damage");
    let before = Marks::read(scene.repository.store.as_ref())?;
    let found = check(&scene.repository, &config(), true, &Progress::default(), &Arc::default())?;
    assert_eq!(quarantine::record(&scene.repository, &before, &found)?.marks_written, 1);
    scene.reported.is_quarantined = true;
    scene.report("check --read-data");
    repair_containers(&scene.repository, &config(), &Arc::default())?;
    scene.report("repair containers");
    let repair = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
    let repaired = repair_snapshots(&scene.repository, &config(), repair, &Arc::default())?;
    assert!(!repaired.damaged.is_empty());
    for damaged in &repaired.damaged {
        let old = SnapshotId::parse(&damaged.snapshot).unwrap();
        let new = SnapshotId::parse(damaged.replaced_by.as_ref().unwrap()).unwrap();
        scene.reported.snapshots.remove(&old);
        scene.reported.forgotten.insert(old);
        scene.reported.snapshots.insert(new, Files::new());
    }
    assert!(scene.reported.forgotten.contains(&first));
    scene.reported.latest = Some(snapshot::find(scene.repository.store.as_ref(), "latest")?.id);
    scene.report("repair snapshots");
    scene.try_all();
    Ok(())
}

/// Whether the search finds fault with the changes as `alter` gives them.
fn finds_fault(scene: &Scene, alter: impl Fn(&Entry) -> Option<Entry>) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.try_altered(alter))).is_err()
}

#[test]
fn the_search_finds_every_missing_sync() {
    let mut scene = Scene::new(false);
    let first = scene.back_up(&files(0));
    let second = scene.back_up(&files(1));
    scene.forget(first);
    scene.prune();
    let root = scene.root();
    let without = |directory: &'static str| {
        let root = root.join(directory);
        move |entry: &Entry| match entry {
            Entry::Synced(path) if *path == root => None,
            entry => Some(entry.clone()),
        }
    };
    for directory in ["intents", "snapshots"] {
        assert!(finds_fault(&scene, without(directory)), "{directory}");
    }
    let unsynced = |prefix: &'static str| {
        let directory = root.join(prefix);
        move |entry: &Entry| match entry {
            Entry::Named(path, content, _) if path.starts_with(&directory) => {
                Some(Entry::Named(path.clone(), content.clone(), false))
            }
            entry => Some(entry.clone()),
        }
    };
    for prefix in ["snapshots", "containers"] {
        assert!(finds_fault(&scene, unsynced(prefix)), "{prefix}");
    }
    assert!(scene.reported.snapshots.contains_key(&second));
}
