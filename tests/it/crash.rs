//! What a crash leaves: every earlier snapshot, and no work done twice.
//!
//! 1. Every store operation of a small backup fails in turn, alone or with all after it, done or not done. Afterwards
//!    the earlier snapshot restores, the next backup succeeds and takes over the containers that were sealed.
//! 2. The same while the containers of an interrupted backup are taken over.
//! 3. The program is killed at random moments.
//! 4. Two programs at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytesize::ByteSize;
use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::index::ContainerListing;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::restore::restore;
use fhrd::store::{BlobKind, FaultyStore, InjectedFault, Store};

use crate::program::{Place, finished, number};
use crate::trees::{Looks, Random, assert_same, describe};
use crate::weights::{model, tuned, weights};

fn config() -> Config {
    let mut config = Config::default();
    config.container.bytes_target = ByteSize::mib(1);
    config.pipeline.workers = 1;
    config.read.recheck_seconds = 1;
    // Containers end between groups of chunks, and groups are short then.
    config.compress.frame_bytes = ByteSize::b(0);
    config
}

/// A copy of a repository, with its caches, removed at the end.
struct Copy {
    directory: tempfile::TempDir,
    cache: PathBuf,
}

impl Copy {
    fn of(repository: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        copy_directory(repository, &directory.path().join("repository"));
        let opened = Repository::open_at(directory.path().join("repository")).unwrap();
        let cache = cache_directory(&opened).unwrap();
        Copy { directory, cache }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("repository")
    }

    fn open(&self) -> Repository {
        Repository::open_at(self.path()).unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.cache);
    }
}

/// Copies a directory with all that is in it.
pub fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn back_up(repository: &Repository, source: &Path) -> fhrd::Result<BackupReport> {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, &config(), &request, &Progress::default(), &Arc::new(AtomicBool::new(false)))
}

/// Restores a snapshot and compares the directory that was at `source` with `want`.
fn assert_restores(repository: &Repository, id: &str, source: &Path, want: &BTreeMap<String, Looks>, what: &str) {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("restored");
    let named = snapshot::find(repository.store.as_ref(), id).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = restore(repository, &config(), &named, &target, &Progress::default(), &stop).unwrap();
    assert_eq!((report.damaged, report.problems), (0, 0), "{what}");
    assert_same(want, &describe(&target.join(source.strip_prefix("/").unwrap())), what);
}

/// A repository with one snapshot, and the source changed since.
struct Scene {
    directory: tempfile::TempDir,
    first: String,
    before: BTreeMap<String, Looks>,
    after: BTreeMap<String, Looks>,
    _copy: Copy,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let mut random = Random(1);
        fs::create_dir_all(source.join("below/deeper")).unwrap();
        fs::write(source.join("kept"), random.bytes(300_000)).unwrap();
        fs::write(source.join("below/old"), random.bytes(900_000)).unwrap();
        let mut text = random.text(200_000);
        fs::write(source.join("below/text"), &text).unwrap();
        let base = weights(30, 1 << 17);
        fs::write(source.join("below/base.safetensors"), model(&base, &base[..1 << 16])).unwrap();
        // Settled, so that the next backup takes unchanged files from this one.
        std::thread::sleep(Duration::from_millis(1100));
        let repository = directory.path().join("repository");
        let opened = Repository::init_at(&repository, &config().repository).unwrap();
        let copy = Copy { directory: tempfile::tempdir().unwrap(), cache: cache_directory(&opened).unwrap() };
        let first = back_up(&opened, &source).unwrap().snapshot;
        let before = describe(&source);
        text.splice(90_000..90_000, *b"an insertion");
        fs::write(source.join("below/text"), &text).unwrap();
        for number in 0..3 {
            fs::write(source.join(format!("below/deeper/{number}")), random.bytes(1_100_000)).unwrap();
        }
        let tune = model(&tuned(&base, 31, 0.0003), &base[..1 << 16]);
        fs::write(source.join("below/tune.safetensors"), tune).unwrap();
        fs::remove_file(source.join("below/old")).unwrap();
        let after = describe(&source);
        Scene { directory, first, before, after, _copy: copy }
    }

    fn source(&self) -> PathBuf {
        self.directory.path().join("source")
    }

    fn repository(&self) -> PathBuf {
        self.directory.path().join("repository")
    }
}

/// Backs up over a store with this trouble. The report, the operations done, whether it went through.
fn troubled(copy: &Copy, source: &Path, trouble: InjectedFault) -> (fhrd::Result<BackupReport>, u64) {
    let mut repository = copy.open();
    let store = Arc::new(FaultyStore::new(repository.store.clone(), trouble));
    repository.store = store.clone();
    let result = back_up(&repository, source);
    (result, store.operations())
}

/// Fails unless everything in the repository is sound, to the last byte.
fn assert_sound(repository: &Repository, what: &str) {
    let stop = Arc::new(AtomicBool::new(false));
    let report = check(repository, &config(), true, &Progress::default(), &stop).unwrap();
    assert_eq!(report.defects, Vec::<String>::new(), "{what}");
}

fn containers(repository: &Repository) -> usize {
    repository.store.list(BlobKind::Container.into()).unwrap().len()
}

#[test]
fn every_operation_of_a_backup_may_fail() {
    let scene = Scene::new();
    let source = scene.source();
    let whole = {
        let copy = Copy::of(&scene.repository());
        let (report, operations) = troubled(&copy, &source, InjectedFault::None);
        let report = report.unwrap();
        assert!(report.containers > 3 && operations > 15, "{report:?}, {operations} operations");
        report
    };
    let (mut interrupted, mut took_over) = (0, 0);
    for kind in 0..3 {
        for operation in 0.. {
            let took_effect = kind == 1 || kind == 2 && operation % 2 == 0;
            let trouble = match kind {
                2 => InjectedFault::Fail { operation, took_effect },
                _ => InjectedFault::PowerCut { operation, took_effect },
            };
            let what = format!("{trouble:?}");
            let copy = Copy::of(&scene.repository());
            let before = containers(&copy.open());
            let (result, operations) = troubled(&copy, &source, trouble);
            let repository = copy.open();
            if let Ok(report) = &result {
                assert_restores(&repository, &report.snapshot, &source, &scene.after, &what);
            }
            if operations <= operation {
                break;
            }
            interrupted += usize::from(result.is_err());
            assert_restores(&repository, &scene.first, &source, &scene.before, &what);
            let orphans = ContainerListing::take(&repository.store).unwrap().orphans().len() as u64;
            let stored = containers(&repository) > before;
            let retry = back_up(&repository, &source).unwrap();
            assert_eq!(retry.containers_adopted, orphans, "{what}");
            assert!(!stored || retry.bytes_stored < whole.bytes_stored, "{what}: {retry:?}");
            took_over += orphans;
            assert_restores(&repository, &retry.snapshot, &source, &scene.after, &what);
            assert_eq!(ContainerListing::take(&repository.store).unwrap().orphans(), [], "{what}");
            assert_sound(&repository, &what);
        }
    }
    assert!(interrupted > 40 && took_over > 20, "{interrupted} interrupted, {took_over} containers taken over");
}

#[test]
fn every_operation_of_taking_over_may_fail() {
    let scene = Scene::new();
    let source = scene.source();
    // Find the last moment at which no segment lists the new containers.
    let orphans = |copy: &Copy| ContainerListing::take(&copy.open().store).unwrap().orphans().len();
    let (_, operations) = troubled(&Copy::of(&scene.repository()), &source, InjectedFault::None);
    let interrupted_at = |operation| {
        let copy = Copy::of(&scene.repository());
        let cut = InjectedFault::PowerCut { operation, took_effect: false };
        (troubled(&copy, &source, cut).0.is_err() && orphans(&copy) > 2).then_some(copy)
    };
    let interrupted = (0..operations).rev().find_map(interrupted_at).unwrap();
    let mut failed = 0;
    for operation in 0.. {
        let what = format!("operation {operation}");
        let copy = Copy::of(&interrupted.path());
        // What the interrupted run's database knows survives a crash or not.
        if operation % 2 == 0 {
            copy_directory(&interrupted.cache, &copy.cache);
        }
        let trouble = InjectedFault::Fail { operation, took_effect: false };
        let (result, operations) = troubled(&copy, &source, trouble);
        let repository = copy.open();
        match &result {
            Ok(report) => assert_restores(&repository, &report.snapshot, &source, &scene.after, &what),
            Err(_) => failed += 1,
        }
        assert_restores(&repository, &scene.first, &source, &scene.before, &what);
        let retry = back_up(&repository, &source).unwrap();
        assert_restores(&repository, &retry.snapshot, &source, &scene.after, &what);
        if operations <= operation {
            break;
        }
    }
    assert!(failed > 3, "{failed} failed");
}

/// Restores a snapshot with the program and compares it.
fn assert_program_restores(place: &Place, id: &str, source: &str, want: &BTreeMap<String, Looks>) {
    let target = place.path("restored");
    let report = place.run(&["restore", id, "--target", target.to_str().unwrap()]);
    assert_eq!((number(&report, "damaged"), number(&report, "problems")), (0, 0));
    assert_same(want, &describe(&target.join(source)), id);
    fs::remove_dir_all(target).unwrap();
}

fn id_of(report: &serde_json::Value) -> String {
    report["snapshot"].as_str().unwrap().into()
}

fn write_files(directory: &Path, numbers: std::ops::Range<u32>, random: &mut Random) {
    for number in numbers {
        let mut bytes = random.bytes(700_000);
        bytes.extend(random.text(300_000));
        fs::write(directory.join(number.to_string()), bytes).unwrap();
    }
}

/// Containers that have their final name.
fn containers_of(repository: &Path) -> usize {
    let directories = fs::read_dir(repository.join("containers")).unwrap();
    directories.map(|directory| fs::read_dir(directory.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn a_killed_backup_harms_nothing() {
    let place = Place::new();
    let source = place.path("source");
    let mut random = Random(2);
    fs::create_dir(&source).unwrap();
    write_files(&source, 0..20, &mut random);
    fs::write(place.path("config.toml"), "[container]\nbytes_target = \"1 MiB\"\n[compress]\nframe_bytes = 0\n")
        .unwrap();
    let config = place.path("config.toml");
    let words = ["backup", "source", "--config", config.to_str().unwrap()];
    place.run(&["init"]);
    let mut snapshots = vec![(id_of(&place.run(&words)), describe(&source))];
    let (mut killed, mut adopted) = (0, 0);
    for round in 0..12 {
        write_files(&source, round..round + 10, &mut random);
        let sealed = containers_of(&place.repository()) + random.below(4) as usize;
        let mut child = place.start(&words);
        // The moment counts containers, not time: a slow machine kills at the same places.
        while containers_of(&place.repository()) < sealed && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        let report = place.run(&words);
        adopted += number(&report, "containers_adopted");
        assert_eq!(fs::read_dir(place.repository().join("tmp")).unwrap().count(), 0, "temporaries are gone");
        snapshots.push((id_of(&report), describe(&source)));
        assert_program_restores(&place, "latest", "source", &describe(&source));
    }
    assert_sound(&Repository::open_at(place.repository()).unwrap(), "after all kills");
    assert!(killed > 4 && adopted > 4, "{killed} killed, {adopted} containers taken over");
    for (id, want) in &snapshots {
        assert_program_restores(&place, id, "source", want);
    }
}

/// Bytes of all containers that have their final name.
fn container_bytes_of(repository: &Path) -> u64 {
    let directories = fs::read_dir(repository.join("containers")).into_iter().flatten();
    let files = directories.flat_map(|directory| fs::read_dir(directory.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_backup_stopped_at_sixty_percent_stores_again_the_open_container_and_the_queues_at_most() {
    const FILES: u64 = 30;
    const FILE_BYTES: u64 = 1_000_000;
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let place = Place::new();
        let source = place.path("source");
        let mut random = Random(5);
        fs::create_dir(&source).unwrap();
        for number in 0..FILES {
            fs::write(source.join(number.to_string()), random.bytes(FILE_BYTES as usize)).unwrap();
        }
        fs::write(place.path("config.toml"), "[container]\nbytes_target = \"1 MiB\"\n").unwrap();
        let config = place.path("config.toml");
        let words = ["backup", "source", "--config", config.to_str().unwrap()];
        place.run(&["init"]);
        let mut child = place.start(&words);
        while container_bytes_of(&place.repository()) < FILES * FILE_BYTES * 6 / 10 {
            assert!(child.try_wait().unwrap().is_none(), "it was too fast to be stopped");
            std::thread::sleep(Duration::from_micros(200));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        let before = container_bytes_of(&place.repository());
        let again = number(&place.run(&words), "bytes_stored");
        // What is sealed counts. What was in the open container or in the queues was not stored.
        let twice = (before + again).saturating_sub(FILES * FILE_BYTES);
        assert!(twice < (1 << 20) + FILES * FILE_BYTES / 100, "{signal:?}: {before} bytes, then {again}");
        assert_program_restores(&place, "latest", "source", &describe(&source));
    }
}

#[test]
fn two_backups_at_once_both_succeed() {
    let place = Place::new();
    let mut random = Random(3);
    for directory in ["one", "two"] {
        fs::create_dir(place.path(directory)).unwrap();
        write_files(&place.path(directory), 0..4, &mut Random(4));
        write_files(&place.path(directory), 4..10, &mut random);
    }
    place.run(&["init"]);
    for _ in 0..2 {
        let both = ["one", "two"].map(|directory| (directory, place.start(&["backup", directory, "--force"])));
        let reports =
            both.map(|(directory, child)| (directory, finished(child.wait_with_output().unwrap(), directory)));
        for (directory, report) in &reports {
            assert_program_restores(&place, &id_of(report), directory, &describe(&place.path(directory)));
        }
        write_files(&place.path("one"), 2..5, &mut random);
    }
}

#[test]
fn a_backup_works_beside_a_restore() {
    let place = Place::new();
    let mut random = Random(5);
    fs::create_dir(place.path("one")).unwrap();
    write_files(&place.path("one"), 0..12, &mut random);
    place.run(&["init"]);
    let first = id_of(&place.run(&["backup", "one"]));
    let before = describe(&place.path("one"));
    let target = place.path("beside");
    let reading = place.start(&["restore", &first, "--target", target.to_str().unwrap()]);
    write_files(&place.path("one"), 3..9, &mut random);
    let writing = place.start(&["backup", "one"]);
    finished(reading.wait_with_output().unwrap(), "restore");
    let second = id_of(&finished(writing.wait_with_output().unwrap(), "backup"));
    assert_same(&before, &describe(&target.join("one")), "restored beside a backup");
    assert_program_restores(&place, &second, "one", &describe(&place.path("one")));
}

#[test]
fn an_init_that_was_killed_can_be_repeated() {
    for leftovers in [&[][..], &["tmp/0123456789abcdef0123456789abcdef"], &["config-copy"]] {
        let place = Place::new();
        place.run(&["init"]);
        let copy = fs::read(place.repository().join("config-copy")).unwrap();
        fs::remove_dir_all(place.repository()).unwrap();
        fs::create_dir_all(place.repository().join("tmp")).unwrap();
        leftovers.iter().for_each(|name| fs::write(place.repository().join(name), &copy).unwrap());
        let is_repository = leftovers.contains(&"config-copy");
        let again = place.command(&place.path(""), &["init"]).output().unwrap();
        assert_eq!(again.status.success(), !is_repository, "{leftovers:?}");
        place.run(&["snapshots"]);
    }
    let place = Place::new();
    fs::create_dir_all(place.repository().join("tmp")).unwrap();
    fs::write(place.repository().join("tmp/notes.txt"), b"a user's own").unwrap();
    assert!(!place.command(&place.path(""), &["init"]).output().unwrap().status.success());
}
