//! Samples and extrapolation.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::extrapolate::{GroupSizes, extrapolated};
use super::run::parts_source;
use super::units::{GroupLimits, SampleGroup, SampleMember};
use super::*;
use crate::backup::{BackupSource, MemoryContent};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::EntryChoice;
use crate::metrics::Progress;
use crate::repo::tree::FileIdentity;

fn limits(bytes: u64) -> GroupLimits {
    GroupLimits { bytes, files: 4000, model_bytes: 1 << 28 }
}

fn names(group: &SampleGroup) -> HashSet<Vec<u8>> {
    let bytes = |member: &SampleMember| member.path.file_name().unwrap().as_encoded_bytes().to_vec();
    group.members.iter().map(bytes).collect()
}

#[test]
fn versions_of_a_file_are_drawn_together_and_every_file_once() {
    let mut sample = FileSample::new(7);
    for version in 0..10 {
        for file in 0..100u8 {
            let name = format!(
                "v{version}/src/file{}.c",
                char::from(b'a' + file % 26).to_string().repeat(1 + file as usize / 26)
            );
            sample.add(Path::new(&name), 10, 10, None);
        }
    }
    assert_eq!((sample.files, sample.bytes, sample.has_all()), (1000, 10_000, true));
    let groups = sample.into_groups(&limits(1_000));
    assert_eq!(groups.iter().map(|group| group.members.len()).sum::<usize>(), 1000);
    let mut seen = HashSet::new();
    for group in &groups {
        assert_eq!(names(group).len() * 10, group.members.len(), "all versions of each name");
        group.members.iter().for_each(|member| assert!(seen.insert(member.path.clone())));
    }
}

#[test]
fn groups_have_the_same_share_of_each_kind_and_small_files_their_neighbours() {
    let mut sample = FileSample::new(3);
    for number in 0..4000u64 {
        let name = |extension: &str| format!("{}/d{}.{extension}", "x".repeat(1 + number as usize / 20), number % 20);
        sample.add(Path::new(&name("txt")), 1000, 1000, None);
        // A tenth of the files, and half of the bytes.
        if number % 200 < 20 {
            sample.add(Path::new(&format!("pictures/{}", name("jpg"))), 10_000, 10_000, None);
        }
    }
    let groups = sample.into_groups(&limits(400_000));
    assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), 8_000_000);
    for group in groups.iter().filter(|group| group.bytes >= 400_000) {
        let is_picture = |member: &&SampleMember| member.path.extension().unwrap() == "jpg";
        let pictures: u64 = group.members.iter().filter(is_picture).map(|member| member.bytes).sum();
        let share = pictures as f64 / group.bytes as f64;
        assert!((0.25..0.75).contains(&share), "{share}");
        let directories: HashSet<_> = group.members.iter().map(|member| member.path.parent().unwrap()).collect();
        assert!(group.members.len() >= 10 * directories.len(), "{} {}", group.members.len(), directories.len());
    }
}

#[test]
fn a_large_file_is_drawn_in_parts_beside_those_of_its_versions() {
    const LEN: u64 = 100_000_000;
    let mut sample = FileSample::new(5);
    for name in ["d/disk-1.img", "d/disk-2.img", "d/base.safetensors"] {
        sample.add(Path::new(name), LEN, LEN, None);
    }
    sample.add(Path::new("d/sparse.img"), LEN, LEN + 1, None);
    let groups = sample.into_groups(&limits(1));
    let members = || groups.iter().flat_map(|group| &group.members);
    let whole: HashSet<_> = members().filter(|member| member.start.is_none()).map(|member| &member.path).collect();
    // Parts of a model have no base, and those of a sparse file may be holes.
    assert_eq!(whole, [&"d/base.safetensors".into(), &"d/sparse.img".into()].into());
    for version in ["d/disk-1.img", "d/disk-2.img"] {
        let of = |member: &&SampleMember| member.path == Path::new(version);
        let mut parts: Vec<_> = members().filter(of).map(|part| (part.start.unwrap(), part.bytes)).collect();
        parts.sort_unstable();
        assert_eq!(parts, [(0, 32 << 20), (32 << 20, 32 << 20), (64 << 20, LEN - (64 << 20))]);
    }
    for group in groups.iter().filter(|group| group.members.iter().any(|member| member.start.is_some())) {
        let starts: HashSet<_> = group.members.iter().map(|member| member.start).collect();
        assert_eq!((group.members.len(), starts.len()), (2, 1), "{group:?}");
    }
}

#[test]
fn further_names_of_a_file_are_files_that_nobody_reads() {
    let mut sample = FileSample::new(5);
    let link = |inode| Some(FileIdentity { device: 1, inode });
    for (name, link) in [("d/a", link(1)), ("d/b", link(1)), ("e/c", link(2)), ("e/d", None), ("e/e", link(1))] {
        sample.add(Path::new(name), 100, 100, link);
    }
    assert_eq!((sample.files, sample.bytes, sample.further_bytes, sample.has_all()), (5, 500, 200, true));
    let groups = sample.into_groups(&limits(1000));
    assert_eq!(groups.iter().map(|group| (group.members.len(), group.bytes)).collect::<Vec<_>>(), [(3, 300)]);
}

#[test]
fn parts_are_read_where_they_begin_and_those_that_are_gone_count() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, b"0123456789").unwrap();
    let part = |start: u64, path: &Path| SampleMember { start: Some(start), path: path.to_path_buf(), bytes: 4 };
    let mut problems = 0;
    // A pipe that has taken the place of a file has no writer, and nobody waits for one.
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let parts = vec![part(3, &path), part(8, &path), part(0, &directory.path().join("none")), part(0, &pipe)];
    let Some(BackupSource::Memory(source)) = parts_source(parts, "host", &mut problems) else { panic!() };
    assert_eq!((source.files.len(), problems), (1, 3));
    assert!(matches!(&source.files[0].content, MemoryContent::Parts(parts) if parts == &[&b"3456"[..]]));
}

/// Estimates `count` tiny files with the sizes of large ones.
fn estimated_large(directory: &Path, count: usize, bytes: u64) -> Result<BackupEstimate> {
    let mut sample = FileSample::new(11);
    for number in 0..count {
        let path = directory.join("x".repeat(number + 1));
        fs::write(&path, b"few bytes").unwrap();
        sample.add(&path, bytes, bytes + 1, None);
    }
    let limits = EstimateLimits { time: Duration::from_secs(500), directory: directory.to_path_buf() };
    let choice = EntryChoice::everything().unwrap();
    let source = EstimateSource { paths: &[directory.to_path_buf()], choice: &choice, skip: &[], sample };
    estimate(source, &Config::default(), &limits, &Progress::default(), &Arc::new(AtomicBool::new(false)))
}

#[test]
fn of_a_large_source_a_twentieth_is_read_however_much_time_there_is() {
    let directory = tempfile::tempdir().unwrap();
    // 24 GB, of which the temporary repositories would need as much space.
    let estimate = estimated_large(directory.path(), 60, 400_000_000).unwrap();
    assert_eq!((estimate.files, estimate.files_read, estimate.whole), (60, 3, false));
    // The files are shorter than they were said to be: that is a problem of each group, and they count as they are.
    assert_eq!(estimate.problems, 3);
    assert!(estimate.stored.bytes > 60 * 400_000_000 / 10, "{estimate:?}");
    let directory = tempfile::tempdir().unwrap();
    let error = estimated_large(directory.path(), 3, 1 << 40).unwrap_err();
    assert!(matches!(&error, Error::Usage(text) if text.contains("--dry-run")), "{error}");
}

#[test]
fn the_error_covers_what_groups_vary_and_vanishes_when_all_was_read() {
    let stored = |group: &GroupSizes| group.stored;
    let groups: Vec<GroupSizes> =
        (0..40u64).map(|number| GroupSizes { bytes: 1000, stored: 400 + number * 7919 % 200, exact: 0 }).collect();
    let sum: u64 = groups.iter().map(|group| group.stored).sum();
    assert_eq!(extrapolated(&groups, 0, 0, stored), EstimatedBytes { bytes: sum, error: 0 });
    let estimate = extrapolated(&groups, 60_000, 0, stored);
    assert!(estimate.bytes.abs_diff(sum + 30_000) < estimate.error && estimate.error < 8_000, "{estimate:?}");
    // Equal groups leave no doubt, and one group alone leaves all of it. So does what no group is like.
    let equal = vec![GroupSizes { bytes: 1000, stored: 500, exact: 0 }; 8];
    assert_eq!(extrapolated(&equal, 1000, 0, stored), EstimatedBytes { bytes: 4500, error: 0 });
    assert_eq!(extrapolated(&equal[..1], 1000, 0, stored).error, 500);
    assert_eq!(extrapolated(&equal, 1000, 800, stored), EstimatedBytes { bytes: 4500, error: 400 });
    // Two groups that happen to be like each other say little about others.
    let two = [490, 510].map(|stored| GroupSizes { bytes: 1000, stored, exact: 0 });
    assert_eq!(extrapolated(&two, 1000, 0, stored), EstimatedBytes { bytes: 1500, error: 127 });
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
    let estimate = extrapolated(&groups, 180_000_000, 0, |group| group.stored);
    let truth = total(2e8) as u64;
    assert!(estimate.bytes.abs_diff(truth) < estimate.error, "{estimate:?} {truth}");
    assert!(estimate.bytes.abs_diff(truth) < truth / 20, "{estimate:?} {truth}");
}

/// Estimates three files, each of which counts as a group, and one without an end in group number `endless`.
fn estimated(directory: &Path, endless: usize, stop: &Arc<AtomicBool>) -> Result<BackupEstimate> {
    let names: Vec<PathBuf> = ["endless", "a", "b", "c"].iter().map(|name| directory.join(name)).collect();
    for (name, bytes) in names.iter().zip([1 << 42, 100, 200, 300]) {
        fs::File::create(name).unwrap().set_len(bytes).unwrap();
    }
    let sample = |seed: u64| {
        let mut sample = FileSample::new(seed);
        names.iter().for_each(|name| sample.add(name, 250 << 20, 1 << 42, None));
        sample
    };
    let order = |seed: u64| {
        let groups = sample(seed).into_groups(&limits(15 << 20));
        groups.iter().position(|group| group.members[0].path == names[0])
    };
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
