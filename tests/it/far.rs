//! Repositories in a store that is far away: few requests, several at once, and nothing lost by either.

pub mod scene;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::inspect::check::check;
use fhrd::keep::{forget, prune};
use fhrd::metrics::Progress;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::{Repository, snapshot};
use fhrd::restore::restore;
use fhrd::store::{
    BlobKind, BlobPrefix, CachedStore, CountingStore, FaultyStore, InjectedFault, MemoryStore, Store, StoreCounts,
    StoreExt,
};

use crate::input::{files, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;
use scene::*;

#[test]
fn an_unchanged_backup_makes_at_most_20_requests_and_a_first_one_few_more_puts_than_containers() {
    for encrypted in [false, true] {
        let (place, source) = (Place::new(encrypted), tree(12000, 1));
        let (first, counts) = place.back_up(source.path());
        assert!(first.containers > 20, "{}", first.containers);
        assert!(counts.puts <= first.containers + 5, "{} containers, {counts:?}", first.containers);
        let requests = counts.requests() - counts.puts;
        assert!(requests <= 24, "{counts:?}");
        let (unchanged, counts) = place.back_up(source.path());
        assert_eq!((unchanged.files_unchanged, unchanged.containers), (first.files, 0));
        assert!(counts.requests() <= 20 && counts.puts == 2, "{counts:?}");
        // A machine without a cache needs a few more, but none for each chunk or frame.
        let (again, counts) = place.other().back_up(source.path());
        assert_eq!(again.files_unchanged, first.files);
        assert!(counts.requests() <= 30 + 2 * first.containers, "{counts:?}");
        place.assert_restores("latest", source.path());
    }
}

#[test]
fn a_restore_reads_long_ranges() {
    for encrypted in [false, true] {
        let (place, source) = (Place::new(encrypted), tree(24000, 2));
        let (first, _) = place.back_up(source.path());
        let (target, report, counts) = place.restore("latest");
        drop(target);
        assert!(report.frames > 3 * counts.requests() / 4, "{} frames, {counts:?}", report.frames);
        assert!(counts.requests() <= 20 + 2 * first.containers, "{} containers, {counts:?}", first.containers);
        assert!(counts.bytes_read < first.bytes_stored * 11 / 10, "{counts:?}");
        let counts = place.other().assert_restores("latest", source.path());
        assert!(counts.requests() <= 25 + 4 * first.containers, "{} containers, {counts:?}", first.containers);
    }
}

#[test]
fn a_backup_does_not_read_back_what_it_has_just_stored() {
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(17));
    for number in 0..40 {
        let mut bytes = random.bytes(300_000);
        write(source.path().join(format!("a/{number}")), &bytes);
        bytes.chunks_mut(20_000).for_each(|chunk| chunk[77] ^= 1);
        write(source.path().join(format!("b/{number}")), &bytes);
    }
    for encrypted in [false, true] {
        let place = Place::new(encrypted);
        let (repository, counted) = place.open();
        let mut config = config();
        config.subdedup.base_cache_bytes = ByteSize::mib(4);
        config.subdedup.base_reads_per_mib = 100;
        let request = BackupRequest::new(TreeSource { bare: true, ..TreeSource::new(vec![source.path().into()], "") });
        let report = backup(&repository, &config, &request, &Progress::default(), &Arc::default()).unwrap();
        assert!(report.bytes_stored < report.bytes * 6 / 10, "{} of {}", report.bytes_stored, report.bytes);
        let counts = counted.counts();
        assert!(counts.ranges <= 8 && counts.bytes_read < 100_000, "{counts:?}");
        drop(repository);
        assert!(!place.blobs().with_file_name("recent").exists(), "the copies stay after the run");
        place.assert_restores("latest", source.path());
    }
}

#[test]
fn containers_are_put_side_by_side_and_the_stored_bytes_do_not_depend_on_it() {
    let source = tree(6000, 3);
    let identity = |place: &Place| {
        let mut containers: Vec<(u64, Vec<u8>)> = Vec::new();
        for listed in place.memory.list(BlobKind::Container.into()).unwrap() {
            containers.push((listed.len, place.memory.get(&listed.name, listed.len).unwrap()));
        }
        // Each header has a salt of its own.
        containers.iter_mut().for_each(|(_, bytes)| drop(bytes.drain(..64)));
        containers.sort();
        containers
    };
    let key = Arc::<MemoryStore>::default();
    Repository::init(key.clone(), &RepositoryConfig::default()).unwrap();
    let copied = || {
        let memory = Arc::<MemoryStore>::default();
        for listed in key.list(BlobPrefix::All).unwrap() {
            memory.put_if_absent(&listed.name, &[&key.get(&listed.name, listed.len).unwrap()]).unwrap();
        }
        memory
    };
    let far = Place::with(false, copied(), true);
    far.back_up(source.path());
    let most = far.far.puts_most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most} puts at once");
    let near = Place::with(false, copied(), false);
    let serial = Repository::open(near.memory.clone()).unwrap();
    run(&serial, source.path()).unwrap();
    fs::remove_dir_all(cache_directory(&serial).unwrap()).unwrap();
    assert!(identity(&far) == identity(&near));
    far.assert_restores("latest", source.path());
}

#[test]
fn a_failed_request_of_a_backup_loses_nothing_that_was_reported() {
    let (before, source) = (tree(200, 4), tree(1200, 5));
    let operations = {
        let place = Place::new(false);
        place.back_up(before.path());
        let faulty = Arc::new(FaultyStore::new(place.far.clone(), InjectedFault::None));
        run(&place.open_over(faulty.clone()), source.path()).unwrap();
        faulty.operations()
    };
    assert!(operations > 20, "{operations}");
    for operation in 2..operations {
        let took_effect = operation / 2 % 2 == 1;
        let place = Place::with(false, Arc::default(), true);
        place.back_up(before.path());
        let fault = match operation % 2 {
            0 => InjectedFault::Fail { operation, took_effect },
            _ => InjectedFault::PowerCut { operation, took_effect },
        };
        let faulty = Arc::new(FaultyStore::new(place.far.clone(), fault));
        if let Ok(reported) = run(&place.open_over(faulty), source.path()) {
            place.assert_restores(&reported.snapshot, source.path());
        }
        let (report, _) = place.back_up(source.path());
        place.assert_restores(&report.snapshot, source.path());
        let (repository, _) = place.open();
        let report = check(&repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(report.defects, [] as [String; 0], "operation {operation}");
    }
}

#[test]
fn what_a_prune_deleted_elsewhere_is_stored_again() {
    for encrypted in [false, true] {
        let (place, source) = (Place::new(encrypted), tree(3000, 6));
        place.back_up(source.path());
        // Another machine forgets all and prunes.
        let other = place.other();
        let (repository, _) = other.open();
        let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
        forget(&repository, &[named.id]).unwrap();
        let report = prune(&repository, &no_grace(), &Arc::default()).unwrap();
        assert!(report.containers_deleted > 5);
        assert_eq!(place.memory.list(BlobKind::Container.into()).unwrap().len(), 0);
        assert!(!files(&place.blobs()).is_empty(), "the cache of the first machine has them still");
        let (again, _) = place.back_up(source.path());
        assert!(again.chunks_new > 0 && again.containers > 5);
        place.assert_restores("latest", source.path());
        place.other().assert_restores("latest", source.path());
    }
}

#[test]
fn a_cache_that_is_deleted_or_damaged_during_a_run_is_no_loss() {
    let (place, source) = (Place::new(true), tree(4000, 7));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also after a failure, so that the thread ends.
        let _set = SetAtEnd(&done);
        scope.spawn(|| {
            let mut random = Random(8);
            while !done.load(Ordering::SeqCst) {
                for name in files_if_any(&place.blobs()) {
                    let path = place.blobs().join(name);
                    match random.below(4) {
                        0 => drop(fs::remove_file(path)),
                        1 => drop(fs::write(path, b"damaged")),
                        _ => {}
                    }
                }
                if random.below(5) == 0 {
                    let _ = fs::remove_dir_all(place.blobs());
                }
                thread::sleep(Duration::from_millis(3));
            }
        });
        for _ in 0..3 {
            place.back_up(source.path());
            place.assert_restores("latest", source.path());
        }
    });
    assert_eq!(place.memory.list(BlobKind::Intent.into()).unwrap(), []);
}

/// Sets a flag when it is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The files of a directory that others change.
fn files_if_any(directory: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(directory).into_iter().flatten().flatten();
    let inside = shards.flat_map(|shard| fs::read_dir(shard.path()).into_iter().flatten().flatten());
    inside.filter_map(|file| file.path().strip_prefix(directory).ok().map(Path::to_path_buf)).collect()
}

#[test]
fn processes_that_share_a_cache_do_not_disturb_each_other() {
    let (place, trees) = (Place::new(true), [tree(3000, 9), tree(3000, 10)]);
    thread::scope(|scope| {
        for tree in &trees {
            scope.spawn(|| (0..3).for_each(|_| drop(place.back_up(tree.path()))));
        }
    });
    let (repository, counted) = place.open();
    let report = check(&repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, [] as [String; 0]);
    assert!(counted.counts().requests() > 0);
    for tree in &trees {
        let (_, counts) = place.back_up(tree.path());
        assert!(counts.requests() <= 20, "{counts:?}");
    }
}

#[test]
fn the_cache_of_an_encrypted_repository_shows_nothing() {
    let (place, source) = (Place::new(true), tempfile::tempdir().unwrap());
    let secret = b"a name that nobody may read";
    write(source.path().join("a name that nobody may read"), &secret.repeat(40_000));
    place.back_up(source.path());
    place.other().assert_restores("latest", source.path());
    let names = files(&place.blobs());
    assert!(names.len() > 3, "{names:?}");
    for name in names {
        let bytes = fs::read(place.blobs().join(&name)).unwrap();
        assert!(!bytes.windows(12).any(|window| secret.starts_with(window)), "{name}");
        for magic in ["FHRDCONT", "FHRDSEGM", "FHRDSNAP", "FHRDFOOT"] {
            assert!(!bytes.windows(8).any(|window| window == magic.as_bytes()), "{name}: {magic}");
        }
    }
}

/// Prints the requests of each verb, with and without what a remote store gets: a table of docs/MEASUREMENTS.md. The
/// source is the directory in `FHRD_SOURCE`, or a small one. With `FHRD_CHUNK_KIB`, chunks have that average length.
#[test]
fn requests_of_a_source() {
    let small = tree(3000, 12);
    let source = std::env::var_os("FHRD_SOURCE").map_or_else(|| small.path().to_path_buf(), PathBuf::from);
    let mut fixed = RepositoryConfig::default();
    if let Ok(kib) = std::env::var("FHRD_CHUNK_KIB") {
        let average = ByteSize::kib(kib.parse().unwrap());
        fixed.chunk_bytes_avg = average;
        fixed.chunk_bytes_min = ByteSize::b(average.0 / 2);
        fixed.chunk_bytes_max = ByteSize::b(average.0 * 4);
    }
    let config = Config { repository: fixed.clone(), ..Config::default() };
    for (name, is_far) in [("as a local store", false), ("as a remote store", true)] {
        let memory = Arc::<MemoryStore>::default();
        Repository::init(memory.clone(), &fixed).unwrap();
        let place = Place::with(false, memory, false);
        println!(
            "\n{name}\n\n| step | put | get | head | list | delete | MB sent | MB received | s |\n|---|---|---|---|---|---|---|---|---|"
        );
        let step = |what: &str, run: &dyn Fn(&Repository)| {
            let (repository, counts) = match is_far {
                true => {
                    let (repository, counted) = place.open();
                    (repository, Box::new(move || counted.counts()) as Box<dyn Fn() -> StoreCounts>)
                }
                false => {
                    let repository = Repository::open(place.memory.clone()).unwrap();
                    let requests = repository.requests.clone();
                    (repository, Box::new(move || requests.counts()) as Box<dyn Fn() -> StoreCounts>)
                }
            };
            let start = Instant::now();
            run(&repository);
            let seconds = start.elapsed().as_secs_f64();
            let StoreCounts { puts, gets, ranges, heads, lists, deletes, bytes_written, bytes_read } = counts();
            let (sent, received) = (bytes_written / 1_000_000, bytes_read / 1_000_000);
            println!(
                "| {what} | {puts} | {} | {heads} | {lists} | {deletes} | {sent} | {received} | {seconds:.1} |",
                gets + ranges
            );
            puts + gets + ranges + heads + lists + deletes
        };
        let store = |repository: &Repository, paths: Vec<PathBuf>| {
            let request = BackupRequest::new(TreeSource::new(paths, "test"));
            let report = backup(repository, &config, &request, &Progress::default(), &Arc::default()).unwrap();
            eprintln!("{} containers, {} new of {} chunks", report.containers, report.chunks_new, report.chunks);
        };
        let extra = tree(2000, 11);
        let with_extra = || vec![source.clone(), extra.path().to_path_buf()];
        step("first backup", &|repository| store(repository, vec![source.clone()]));
        let requests = step("unchanged backup", &|repository| store(repository, vec![source.clone()]));
        assert!(!is_far || requests <= 20, "an unchanged backup made {requests} requests");
        step("backup with 2 MB more", &|repository| store(repository, with_extra()));
        step("snapshots", &|repository| drop(fhrd::repo::snapshot_listing::list(repository).unwrap()));
        let restored = |repository: &Repository, only: Option<PathBuf>| {
            let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
            let target = tempfile::tempdir().unwrap();
            let mut request = fhrd::restore::RestoreRequest::from(target.path().join("restored").as_path());
            request.selection.paths.extend(only);
            let report = restore(repository, &config, &named, request, &Progress::default(), &Arc::default()).unwrap();
            eprintln!("{} frames, {} bytes", report.frames, report.bytes);
        };
        step("restore", &|repository| restored(repository, None));
        let one = extra.path().join("0/0");
        step("restore one file", &|repository| {
            restored(repository, Some(one.strip_prefix("/").unwrap().to_path_buf()));
        });
        let _ = fs::remove_dir_all(place.blobs());
        step("restore, no cache at first", &|repository| restored(repository, None));
        let checked = |data: bool| {
            let fresh = place.directory.path().join("fresh");
            let counted = Arc::new(CountingStore::new(place.far.clone()));
            let store: Arc<dyn Store> = match is_far {
                true => Arc::new(CachedStore::temporary(counted.clone(), fresh, 4 << 30)),
                false => Arc::new(CountingStore::new(place.memory.clone())),
            };
            let repository = Repository::open(store).unwrap();
            let start = Instant::now();
            let report = check(&repository, &config, data, &Progress::default(), &Arc::default()).unwrap();
            assert_eq!(report.defects, [] as [String; 0]);
            let counts = if is_far { counted.counts() } else { repository.requests.counts() };
            let seconds = start.elapsed().as_secs_f64();
            let StoreCounts { puts, gets, ranges, heads, lists, deletes, bytes_read, .. } = counts;
            let (what, received) = (if data { "check --read-data" } else { "check" }, bytes_read / 1_000_000);
            println!(
                "| {what} | {puts} | {} | {heads} | {lists} | {deletes} | 0 | {received} | {seconds:.1} |",
                gets + ranges
            );
        };
        checked(false);
        checked(true);
        step("forget", &|repository| {
            let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
            forget(repository, &[named.id]).unwrap();
        });
        step("prune", &|repository| {
            prune(repository, &no_grace(), &Arc::default()).unwrap();
        });
    }
}
