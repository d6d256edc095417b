//! Samples and extrapolation.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::run::{GroupSizes, extrapolated};
use super::*;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::EntryChoice;
use crate::metrics::Progress;

#[test]
fn versions_of_a_file_are_drawn_together_and_every_file_once() {
    let mut sample = FileSample::new(7);
    for version in 0..10 {
        for file in 0..100u8 {
            let name = format!(
                "v{version}/src/file{}.c",
                char::from(b'a' + file % 26).to_string().repeat(1 + file as usize / 26)
            );
            sample.add(Path::new(&name), 10);
        }
    }
    assert_eq!((sample.files, sample.bytes, sample.has_all()), (1000, 10_000, true));
    let groups = sample.into_groups(1_000, 4000);
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 1000);
    let mut seen = HashSet::new();
    for group in &groups {
        let names: HashSet<_> = group.iter().map(|(path, _)| path.file_name().unwrap().to_os_string()).collect();
        // Ten versions of ten names, but for names at the ends of groups.
        assert!(group.len() != 100 || names.len() <= 11, "{}", names.len());
        group.iter().for_each(|(path, _)| assert!(seen.insert(path.clone())));
    }
}

#[test]
fn the_error_covers_what_groups_vary_and_vanishes_when_all_was_read() {
    let stored = |group: &GroupSizes| group.stored;
    let groups: Vec<GroupSizes> =
        (0..40u64).map(|number| GroupSizes { bytes: 1000, stored: 400 + number * 7919 % 200, exact: 0 }).collect();
    let sum: u64 = groups.iter().map(|group| group.stored).sum();
    assert_eq!(extrapolated(&groups, 0, stored), EstimatedBytes { bytes: sum, error: 0 });
    let estimate = extrapolated(&groups, 60_000, stored);
    assert!(estimate.bytes.abs_diff(sum + 30_000) < estimate.error && estimate.error < 8_000, "{estimate:?}");
    // Equal groups leave no doubt, and one group alone leaves all of it.
    let equal = vec![GroupSizes { bytes: 1000, stored: 500, exact: 0 }; 8];
    assert_eq!(extrapolated(&equal, 1000, stored), EstimatedBytes { bytes: 4500, error: 0 });
    assert_eq!(extrapolated(&equal[..1], 1000, stored).error, 1000);
}

#[test]
fn a_rate_that_falls_goes_on_falling_within_the_error() {
    // What is stored grows with the 0.8th power of what was read, as it does where more and more is known.
    let total = |bytes: f64| bytes.powf(0.8) * 10.0;
    let groups: Vec<GroupSizes> = (0..20u64)
        .map(|number| {
            let stored = total((number + 1) as f64 * 1e6) - total(number as f64 * 1e6);
            GroupSizes { bytes: 1_000_000, stored: stored as u64, exact: 0 }
        })
        .collect();
    let estimate = extrapolated(&groups, 180_000_000, |group| group.stored);
    let truth = total(2e8) as u64;
    assert!(estimate.bytes.abs_diff(truth) < estimate.error, "{estimate:?} {truth}");
    assert!(estimate.bytes.abs_diff(truth) < truth / 5, "{estimate:?} {truth}");
}

/// Estimates three files, each of which counts as a group, and one without an end in group number `endless`.
fn estimated(directory: &Path, endless: usize, stop: &Arc<AtomicBool>) -> Result<BackupEstimate> {
    let names: Vec<PathBuf> = ["endless", "a", "b", "c"].iter().map(|name| directory.join(name)).collect();
    for (name, bytes) in names.iter().zip([1 << 42, 100, 200, 300]) {
        fs::File::create(name).unwrap().set_len(bytes).unwrap();
    }
    let sample = |seed: u64| {
        let mut sample = FileSample::new(seed);
        names.iter().for_each(|name| sample.add(name, 100 << 20));
        sample
    };
    let order = |seed: u64| sample(seed).into_groups(1, 1).iter().position(|group| group[0].0 == names[0]);
    let seed = (0..).find(|seed| order(*seed) == Some(endless)).unwrap();
    let choice = EntryChoice { read_holes: true, ..EntryChoice::everything().unwrap() };
    let limits = EstimateLimits { time: Duration::from_secs(8), directory: directory.to_path_buf() };
    let (config, progress) = (Config::default(), Progress::default());
    let source = EstimateSource { paths: &names, choice: &choice, skip: &[], sample: sample(seed) };
    estimate(source, &config, &limits, &progress, stop)
}

#[test]
fn a_group_that_does_not_end_in_the_time_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let (stop, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let estimate = estimated(directory.path(), 2, &stop).unwrap();
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!((estimate.files, estimate.files_read, estimate.whole), (4, 2, false));
    let error = estimated(directory.path(), 0, &stop).unwrap_err();
    assert!(matches!(&error, Error::Usage(text) if text.contains("--time")), "{error}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(estimated(directory.path(), 0, &stop), Err(Error::Interrupted)));
}
