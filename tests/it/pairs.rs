//! Two things fail at once: every pair of blobs is flipped, lost, or unreadable while a verb runs.
//!
//! Once what was only unreadable can be read again, and after `repair index`, every snapshot is whole that was whole
//! before the verb. `FHRD_PAIRS=all` tests every pair with every fault and every verb (hours). Without it, a fixed
//! sample is tested. And every container is lost or unreadable in turn before a backup of every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fhrd::backup::{
    BackupReport, BackupRequest, CopyPurpose, MemoryContent, MemoryFile, MemorySource, ParentChoice, SnapshotLabels,
    SnapshotSource, StreamInput, StreamSource, TreeSource, backup,
};
use fhrd::filesystem::Patterns;
use fhrd::inspect::check::check;
use fhrd::keep::{PruneOptions, SkippedRule, TagChange, forget, prune, tag};
use fhrd::metrics::Progress;
use fhrd::repair::containers::repair_containers;
use fhrd::repair::index::repair_index;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::index::ContainerListing;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::read::{ChunkReader, RecipeWalk};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot;
use fhrd::repo::tree::{NodeKind, TreeCursor};
use fhrd::store::{
    BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, MemoryStore, PutOptions, Reading, Store, StoreExt,
};
use fhrd::{Error, Result};

use crate::double::{Double, double_store, named};
use crate::flips::{Scene, config, one_at_a_time, run_check};
use crate::input::files;

/// Cases of pairs that are tested without the environment variable.
const SAMPLE: usize = 260;
/// Linux and macOS agree on this number of an input/output error.
const EIO: i32 = 5;

/// A store in memory that cannot read some blobs for a while.
struct Moody {
    inner: MemoryStore,
    unreadable: Mutex<BTreeSet<String>>,
}

impl Moody {
    fn new(blobs: &BTreeMap<String, Vec<u8>>) -> Arc<Self> {
        let inner = MemoryStore::new();
        blobs.iter().for_each(|(name, bytes)| inner.replace(&named(name), bytes));
        Arc::new(Moody { inner, unreadable: Mutex::default() })
    }

    fn check(&self, name: &str) -> Result<()> {
        if !self.unreadable.lock().unwrap().contains(name) {
            return Ok(());
        }
        Err(Error::Unreadable { what: name.into(), offset: 0, source: io::Error::from_raw_os_error(EIO) })
    }

    fn set_unreadable(&self, names: impl IntoIterator<Item = String>) {
        *self.unreadable.lock().unwrap() = names.into_iter().collect();
    }
}

double_store!(Moody);

impl Double for Moody {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        self.inner.put_if_absent(name, parts)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]]) -> Result<()> {
        self.inner.overwrite(name, parts, PutOptions::default())
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.check(name)?;
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.check(name)?;
        self.inner.get_range(name, offset, len, Reading::Once)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.inner.head(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.inner.list(prefix)
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.inner.delete(name, Durable::OnReturn)
    }

    fn location(&self) -> String {
        "moody".into()
    }
}

/// Whether every chunk of a snapshot can be read. Each is checked against its fingerprint, so its content is the same.
fn is_whole(repository: &Repository, id: &str) -> bool {
    let Ok(named) = snapshot::find(repository.store.as_ref(), id) else { return false };
    let listing = Arc::new(ContainerListing::take(&repository.store).unwrap());
    let mut reader = ChunkReader::new(repository, listing);
    let mut levels = vec![TreeCursor::open(named.snapshot.root)];
    while let Some(cursor) = levels.last_mut() {
        let node = match cursor.next(&mut reader) {
            Ok(Some(node)) => node,
            Ok(None) => {
                levels.pop();
                continue;
            }
            Err(_) => return false,
        };
        if node.kind == NodeKind::Directory {
            levels.push(TreeCursor::open(node.content));
            continue;
        }
        let Some(content) = node.content else { continue };
        let mut walk = RecipeWalk::new(content);
        loop {
            match walk.next(&mut reader) {
                Ok(None) => break,
                Ok(Some(ContentReference::Chunk { fingerprint, len })) => {
                    if reader.read_exact(&fingerprint, len).is_err() {
                        return false;
                    }
                }
                Ok(Some(_)) => {}
                Err(_) => return false,
            }
        }
    }
    true
}

/// Opens the repository without caches, as on another machine.
fn open(store: &Arc<Moody>) -> Result<Repository> {
    let repository = Repository::open(store.clone())?;
    let _ = std::fs::remove_dir_all(cache_directory(&repository).unwrap());
    Ok(repository)
}

fn ids(blobs: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    blobs.keys().filter_map(|name| name.strip_prefix("snapshots/")).map(str::to_string).collect()
}

fn run(repository: &Repository, request: &BackupRequest) -> Result<BackupReport> {
    backup(repository, &config(), request, &Progress::default(), &Arc::default())
}

fn tree(scene: &Scene, force: bool) -> BackupRequest {
    BackupRequest::new(TreeSource {
        bare: true,
        parents: ParentChoice::new(force, None),
        ..TreeSource::new(vec![scene.source.path().into()], "test")
    })
}

/// What a verb did on purpose.
#[derive(Default)]
struct Outcome {
    deleted: Option<String>,
    /// A snapshot that it reported as complete.
    reported: Option<String>,
}

fn reported(report: &BackupReport) -> Outcome {
    let reported = report.is_complete().then(|| report.snapshot.clone());
    Outcome { reported, ..Outcome::default() }
}

type Verb = fn(&Scene, &Repository) -> Result<Outcome>;

const VERBS: [(&str, Verb); 11] = [
    ("backup", |scene, repository| run(repository, &tree(scene, false)).map(|report| reported(&report))),
    ("backup --force", |scene, repository| run(repository, &tree(scene, true)).map(|report| reported(&report))),
    ("check", |_, repository| {
        check(repository, &config(), false, &Progress::default(), &Arc::default()).map(|_| Outcome::default())
    }),
    ("check --read-data", |_, repository| {
        run_check(repository);
        Ok(Outcome::default())
    }),
    ("copy of another", |scene, repository| {
        // The snapshot comes from the sound repository.
        let source = Repository::open(Moody::new(&scene.blobs))?;
        run(repository, &copied(&source, &scene.last)).map(|report| reported(&report))
    }),
    ("forget", |scene, repository| {
        let first = ids(&scene.blobs).into_iter().find(|id| *id != scene.last).unwrap();
        let named = snapshot::find(repository.store.as_ref(), &first)?;
        forget(repository, &[named.id])?;
        Ok(Outcome { deleted: Some(first), ..Outcome::default() })
    }),
    ("prune", |_, repository| {
        let options = PruneOptions {
            grace: std::time::Duration::ZERO,
            patience: std::time::Duration::ZERO,
            dry_run: false,
            repack_bytes_max: u64::MAX,
            allow_no_containers: false,
            container_bytes: config().container.bytes_target.0,
            extend_locks: None,
            recompress_threads: 0,
            min_age: None,
            skipped_rule: SkippedRule::Nothing,
        };
        prune(repository, &options, &Arc::default()).map(|_| Outcome::default())
    }),
    ("repair index", |_, repository| repair_index(repository, &Arc::default()).map(|_| Outcome::default())),
    ("repair containers", |_, repository| {
        repair_containers(repository, &config(), &Arc::default()).map(|_| Outcome::default())
    }),
    ("repair snapshots", |_, repository| {
        let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        repair_snapshots(repository, &config(), request, &Arc::default()).map(|_| Outcome::default())
    }),
    ("tag", |scene, repository| {
        let named = snapshot::find(repository.store.as_ref(), &scene.last)?;
        let change = TagChange { add: vec!["tagged".into()], ..TagChange::default() };
        let id = tag(repository, &named, &change)?.unwrap().to_string();
        Ok(Outcome { deleted: Some(scene.last.clone()), reported: is_whole(repository, &id).then_some(id) })
    }),
];

fn copied(source: &Repository, id: &str) -> BackupRequest {
    let original = snapshot::find(source.store.as_ref(), id).unwrap();
    let purpose = CopyPurpose::Copy(original.id);
    let repository = source.clone();
    let (exclude, previous, problems_limit) = (Patterns::default(), None, None);
    BackupRequest::new(SnapshotSource { repository, original, purpose, exclude, previous, problems_limit })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Flipped(usize),
    Lost,
    Unreadable,
}

/// A copy of the repository with these faults.
fn damaged(scene: &Scene, faults: &[(&String, Fault)]) -> Arc<Moody> {
    let mut blobs = scene.blobs.clone();
    for (name, fault) in faults {
        match fault {
            Fault::Flipped(at) => blobs.get_mut(*name).unwrap()[*at] ^= 4,
            Fault::Lost => drop(blobs.remove(*name)),
            Fault::Unreadable => {}
        }
    }
    Moody::new(&blobs)
}

/// The snapshots that are whole, as long as everything that is only unreadable can be read.
fn whole(scene: &Scene, store: &Arc<Moody>) -> BTreeSet<String> {
    let Ok(repository) = open(store) else { return BTreeSet::new() };
    // What is in no segment, or in a damaged one, is found as well.
    ids(&scene.blobs).into_iter().filter(|id| is_whole(&repository, id)).collect()
}

#[test]
fn a_pair_of_faults_before_and_during_a_verb_costs_no_snapshot_that_was_whole() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    // Names are random.
    let mut names: Vec<&String> = scene.blobs.keys().collect();
    names.sort_by_key(|name| (name.split('/').next(), scene.blobs[*name].len()));
    let all = std::env::var("FHRD_PAIRS").is_ok_and(|value| value == "all");
    let pairs = names.len() * (names.len() - 1) / 2;
    let cases = pairs * 9 * VERBS.len();
    // Coprime to the number of cases, so that a sample is spread over blobs, faults and verbs.
    let step = if all { 1 } else { (cases / SAMPLE..).find(|step| gcd(*step, cases) == 1).unwrap() };
    let mut known: BTreeMap<Vec<(String, Fault)>, BTreeSet<String>> = BTreeMap::new();
    for case in (0..cases).step_by(step) {
        let (verb, run) = VERBS[case % VERBS.len()];
        let kinds = case / VERBS.len() % 9;
        let (one, other) = pair(case / VERBS.len() / 9, names.len());
        let fault = |kind: usize, name: &str| match kind {
            0 => Fault::Flipped(case * 7919 % scene.blobs[name].len()),
            1 => Fault::Lost,
            _ => Fault::Unreadable,
        };
        let faults = [(names[one], fault(kinds % 3, names[one])), (names[other], fault(kinds / 3, names[other]))];
        let destroyed: Vec<(String, Fault)> = faults.iter().map(|(name, fault)| ((*name).clone(), *fault)).collect();
        let store = damaged(scene, &faults);
        let before = known.entry(destroyed).or_insert_with(|| whole(scene, &store)).clone();
        let unreadable =
            faults.iter().filter(|(_, fault)| *fault == Fault::Unreadable).map(|(name, _)| (*name).clone());
        store.set_unreadable(unreadable);
        let outcome = open(&store).and_then(|repository| run(scene, &repository)).unwrap_or_default();
        store.set_unreadable([]);
        let what = format!("case {case}, {verb}: {faults:?}");
        let Ok(repository) = open(&store) else {
            assert!(before.is_empty(), "{what}");
            continue;
        };
        // What a verb calls complete is whole, unless bytes were changed that it had no reason to read.
        let is_flipped = faults.iter().any(|(_, fault)| matches!(fault, Fault::Flipped(_)));
        if let Some(id) = outcome.reported.filter(|_| !is_flipped) {
            assert!(is_whole(&repository, &id), "{what}: reported");
        }
        repair_index(&repository, &Arc::default()).unwrap();
        for id in before.iter().filter(|id| outcome.deleted.as_ref() != Some(*id)) {
            assert!(is_whole(&repository, id), "{what}: snapshot {id}");
        }
    }
}

fn gcd(one: usize, other: usize) -> usize {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Pair `number` of all pairs below `count`.
fn pair(mut number: usize, count: usize) -> (usize, usize) {
    let mut first = 0;
    while number >= count - 1 - first {
        number -= count - 1 - first;
        first += 1;
    }
    (first, first + 1 + number)
}

#[test]
fn a_lost_or_unreadable_container_before_a_backup_of_any_kind_is_healed_or_reported() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let sound = Repository::open(Moody::new(&scene.blobs)).unwrap();
    let kinds: [(&str, BackupRequest); 5] = [
        ("tree", tree(scene, false)),
        ("force", tree(scene, true)),
        ("stream", stream(scene)),
        ("memory", memory(scene)),
        ("copy", copied(&sound, &scene.last)),
    ];
    let mut healed = 0;
    for container in scene.blobs.keys().filter(|name| name.starts_with("containers/")) {
        for (kind, request) in &kinds {
            for fault in [Fault::Lost, Fault::Unreadable] {
                let what = format!("{kind}, {container} {fault:?}");
                let store = damaged(scene, &[(container, fault)]);
                let before = if fault == Fault::Lost { BTreeSet::new() } else { whole(scene, &store) };
                let names = (fault == Fault::Unreadable).then(|| container.clone());
                store.set_unreadable(names);
                let repository = open(&store).unwrap();
                let report = run(&repository, request).unwrap();
                store.set_unreadable([]);
                assert!(is_whole(&repository, &report.snapshot), "{what}: {report:?}");
                assert_eq!(report.problems, 0, "{what}");
                let is_marked = fhrd::repo::marks::Marks::read(store.as_ref()).unwrap().quarantine.containers().any(
                    |(id, parts)| {
                        fhrd::repo::container::blob_name(id) == container.as_str()
                            && *parts == fhrd::repo::marks::BadParts::Whole
                    },
                );
                assert!(fault != Fault::Lost || is_marked || report.containers_unread > 0, "{what}: in silence");
                healed += u32::from(report.chunks_new > 0);
                for id in before {
                    assert!(is_whole(&repository, &id), "{what}: snapshot {id}");
                }
                // The next one relies on what is there.
                let next = run(&open(&store).unwrap(), request).unwrap();
                assert!(is_whole(&repository, &next.snapshot), "{what}: {next:?}");
            }
        }
    }
    assert!(healed > 20, "{healed}");
}

#[test]
fn an_index_repaired_without_a_lost_container_still_says_what_it_has_cost() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    for container in scene.blobs.keys().filter(|name| name.starts_with("containers/")) {
        let store = damaged(scene, &[(container, Fault::Lost)]);
        let repository = open(&store).unwrap();
        repair_index(&repository, &Arc::default()).unwrap();
        for force in [false, true] {
            let report = run(&open(&store).unwrap(), &tree(scene, force)).unwrap();
            assert!(is_whole(&repository, &report.snapshot), "{container} {force}: {report:?}");
        }
    }
}

fn stream(scene: &Scene) -> BackupRequest {
    let path = scene.source.path().join("text/first.txt");
    let input = StreamInput::Command(vec!["cat".into(), path.into()]);
    let labels = SnapshotLabels::of_host("test");
    BackupRequest::new(StreamSource::new("stream", input, labels))
}

fn memory(scene: &Scene) -> BackupRequest {
    let file = |name: String| {
        let bytes = std::fs::read(scene.source.path().join(&name)).unwrap();
        MemoryFile { path: PathBuf::from(&name).into(), content: MemoryContent::Parts(vec![Bytes::from(bytes)]) }
    };
    let files = files(scene.source.path()).into_iter().map(file).collect();
    BackupRequest::new(MemorySource { files, labels: SnapshotLabels::of_host("test"), ..MemorySource::default() })
}
