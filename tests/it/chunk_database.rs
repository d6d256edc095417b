//! The database of chunks: with it and without it, the same history leaves the same containers and segments, and a run
//! that is killed leaves nothing that a later one trusts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use fhrd::backup::{BackupReport, BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::{Config, LastLevel};
use fhrd::inspect::check::check;
use fhrd::keep::{forget, prune};
use fhrd::metrics::Progress;
use fhrd::repo::index::DATABASE_FILE;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::salts::Salts;
use fhrd::repo::{Repository, snapshot};

use crate::input::{TestRepository, copy_directory, edit, files, write};
use crate::interleavings::scene::no_grace;
use crate::program::{Place, finished, number};
use crate::trees::Random;

/// Small caches and no filter, so that the last level is asked.
fn config(last_level: LastLevel) -> Config {
    let mut config = TestRepository::config();
    config.repository.chunk_bytes_min = ByteSize::kib(2);
    config.repository.chunk_bytes_avg = ByteSize::kib(4);
    config.repository.chunk_bytes_max = ByteSize::kib(16);
    (config.index.local_containers, config.index.lru_entries) = (1, 1);
    config.index.filter_bytes = ByteSize(0);
    config.index.last_level = last_level;
    config
}

/// A repository, and what answers in its last level.
struct Side {
    stored: TestRepository,
    config: Config,
}

impl Side {
    fn open(&self, seed: u64) -> Repository {
        Repository { salts: Salts::fixed(seed), ..self.stored.open() }
    }

    fn database(&self) -> PathBuf {
        cache_directory(&self.stored.open()).unwrap().join(DATABASE_FILE)
    }

    fn back_up(&self, source: &Path, seed: u64) -> BackupReport {
        let source =
            TreeSource { bare: true, parents: ParentChoice::Nothing, ..TreeSource::new(vec![source.into()], "test") };
        let (progress, stop) = (Progress::default(), Arc::default());
        backup(&self.open(seed), &self.config, &BackupRequest::new(source), &progress, &stop).unwrap()
    }

    /// The containers and segments.
    fn blobs(&self) -> BTreeMap<String, Vec<u8>> {
        let is_compared = |name: &String| name.starts_with("containers") || name.starts_with("index");
        self.stored
            .names()
            .into_iter()
            .filter(is_compared)
            .map(|name| (name.clone(), self.stored.read(&name)))
            .collect()
    }

    /// Leaves what a backup leaves that was killed before it wrote a segment: `new` and no snapshot.
    fn take_back(&self, report: &BackupReport, before: &BTreeMap<String, Vec<u8>>) {
        let named = snapshot::find(self.stored.open().store.as_ref(), &report.snapshot).unwrap();
        forget(&self.stored.open(), &[named.id]).unwrap();
        for name in self.blobs().keys().filter(|name| name.starts_with("index") && !before.contains_key(*name)) {
            fs::remove_file(self.stored.path().join(name)).unwrap();
        }
    }

    fn forget_oldest(&self) {
        let listed = snapshot::list(self.stored.open().store.as_ref()).unwrap().0;
        if let Some(oldest) = listed.first().filter(|_| listed.len() > 2) {
            forget(&self.stored.open(), &[oldest.id]).unwrap();
        }
    }
}

/// Changes, adds or removes some files.
fn change(random: &mut Random, source: &Path) {
    for _ in 0..3 {
        let path = source.join(random.below(12).to_string());
        match fs::read(&path) {
            Ok(_) if random.below(4) == 0 => fs::remove_file(path).unwrap(),
            Ok(bytes) => {
                let edited = edit(random, &bytes, 5);
                write(path, &edited);
            }
            Err(_) => {
                let text = random.text(150_000);
                write(path, &text);
            }
        }
    }
}

/// Damages, removes or replaces the file of the database.
fn disturb(random: &mut Random, path: &Path, old: &mut Vec<u8>) {
    let Ok(mut bytes) = fs::read(path) else { return };
    let at = random.below(bytes.len().max(1) as u64) as usize;
    match random.below(8) {
        0 => fs::remove_file(path).unwrap(),
        1 => fs::write(path, bytes.get(..at).unwrap_or_default()).unwrap(),
        2 => {
            bytes.iter_mut().skip(at).step_by(20_000).for_each(|byte| *byte ^= 1);
            fs::write(path, bytes).unwrap();
        }
        3 => *old = bytes,
        4 => fs::write(path, old).unwrap(),
        _ => {}
    }
}

#[test]
fn a_history_leaves_the_same_blobs_with_and_without_it() {
    let mut hits = 0;
    for seed in 0..4 {
        let mut random = Random(seed);
        let segments = config(LastLevel::Segments);
        let first = TestRepository::with(&segments.repository);
        let mut sides =
            [Side { stored: first.copy(), config: config(LastLevel::Redb) }, Side { stored: first, config: segments }];
        sides[0].config.pipeline.workers = 4;
        let (source, mut old) = (tempfile::tempdir().unwrap(), Vec::new());
        for step in 0..14 {
            let what = format!("history {seed}, step {step}");
            let salt = 1000 * seed + step;
            if random.below(3) > 0 || step == 0 {
                change(&mut random, source.path());
            }
            let before = sides[1].blobs();
            let reports = sides.each_ref().map(|side| side.back_up(source.path(), salt));
            let [with, without] = reports.each_ref().map(|report| (report.chunks_new, report.bytes_stored));
            assert_eq!(with, without, "{what}");
            hits += reports[0].index_hits.database;
            assert_eq!(reports[1].index_hits.database_lookups, 0);
            match random.below(5) {
                0 => sides.iter().zip(&reports).for_each(|(side, report)| side.take_back(report, &before)),
                1 => sides.iter().for_each(Side::forget_oldest),
                2 => sides.iter().for_each(|side| {
                    side.forget_oldest();
                    prune(&side.open(salt + 500), &no_grace(), &Arc::default()).unwrap();
                }),
                _ => {}
            }
            assert!(sides[0].blobs() == sides[1].blobs(), "{what}: the blobs differ");
            disturb(&mut random, &sides[0].database(), &mut old);
        }
        // Adopts what the last step may have taken back.
        let last = sides.each_ref().map(|side| side.back_up(source.path(), 1000 * seed + 999).chunks_new);
        assert_eq!(last[0], last[1], "history {seed}");
        assert!(sides[0].blobs() == sides[1].blobs(), "history {seed}: the blobs differ");
        for side in &sides {
            let report = check(&side.stored.open(), &side.config, true, &Progress::default(), &Arc::default()).unwrap();
            assert_eq!(report.defects, [""; 0]);
        }
    }
    assert!(hits > 100, "{hits} hits");
}

#[test]
fn a_file_that_cannot_be_used_is_done_without() {
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(7));
    (0..5).for_each(|number| write(source.path().join(number.to_string()), &random.text(100_000)));
    let side =
        Side { stored: TestRepository::with(&config(LastLevel::Redb).repository), config: config(LastLevel::Redb) };
    side.back_up(source.path(), 1);
    let hits = side.back_up(source.path(), 2).index_hits;
    assert!(hits.database > 0 && hits.segments == 0, "{hits:?}");
    let path = side.database();
    let kept = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let report = side.back_up(source.path(), 3);
    assert_eq!((report.chunks_new, report.index_hits.database_lookups), (0, 0));
    assert_eq!(report.index_hits.segments_lookups, report.index_hits.segments);
    fs::remove_dir(&path).unwrap();
    // Root writes to it nevertheless.
    write(path.clone(), &kept);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(side.back_up(source.path(), 4).chunks_new, 0);
    // That of another repository.
    let other = TestRepository::with(&side.config.repository);
    copy_directory(&cache_directory(&side.stored.open()).unwrap(), &cache_directory(&other.open()).unwrap());
    let other = Side { stored: other, config: config(LastLevel::Redb) };
    assert!(other.back_up(source.path(), 5).chunks_new > 0);
    assert_eq!(other.back_up(source.path(), 6).chunks_new, 0);
}

#[test]
fn a_killed_run_leaves_a_database_that_answers_or_is_filled_again() {
    let place = Place::new();
    let (source, mut random) = (place.path("source"), Random(11));
    let text = "[repository]\nchunk_bytes_min = \"2 KiB\"\nchunk_bytes_avg = \"4 KiB\"\nchunk_bytes_max = \"16 KiB\"\n\
        [index]\nlast_level = \"redb\"\nlocal_containers = 1\nlru_entries = 1\nfilter_bytes = 0\n\
        [container]\nbytes_target = \"1 MiB\"\n";
    let config = place.path("config.toml");
    write(config.clone(), text.as_bytes());
    let config = config.to_str().unwrap();
    (0..8).for_each(|number| write(source.join(number.to_string()), &random.text(400_000)));
    place.run(&["init", "--config", config]);
    let words = ["backup", ".", "--force", "--config", config];
    let store = || finished(place.command(&source, &words).output().unwrap(), "backup");
    store();
    for run in 0..8 {
        change(&mut random, &source);
        let mut child = place.command(&source, &words).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + 40 * run));
        let _ = child.kill();
        child.wait().unwrap();
        if run % 3 == 2 {
            store();
        }
    }
    store();
    let last = store();
    assert_eq!(number(&last, "chunks_new"), 0, "{last}");
    let hits = &last["index_hits"];
    assert!(number(hits, "database") > 0 && number(hits, "segments") == 0, "{hits}");
    assert!(files(&place.path("cache")).iter().any(|name| name.ends_with(DATABASE_FILE)));
    place.run(&["check", "--read-data"]);
}
