//! Repositories with hostile or foreign content: every checksum is right, but what it covers is not what fhrd writes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fhrd::Error;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::codec::Scratch;
use fhrd::inspect::check::{CheckReport, check};
use fhrd::keep::prune;
use fhrd::metrics::Progress;
use fhrd::repo::container::{
    Base, ContainerKind, EntryFields, Footer, HEADER_BYTES, Operation, OperationList, WHOLE_DIGEST, blob_name, header,
};
use fhrd::repo::index::read_container_index;
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot;
use fhrd::restore::{RestoreReport, restore};
use fhrd::store::StoreExt;
use fhrd::types::ContainerId;
use fhrd::wire::checksum;

use crate::double::named;
use crate::hostile_repository::HostileRepository;
use crate::input::{TestRepository, write};
use crate::interleavings::scene::no_grace;
use crate::program::memory_max;
use crate::trees::Random;

/// Time for one run on hostile input. Without limits these runs take hours, so a busy machine may take its time.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(120);
/// CPU time of the program for one run. A release build takes a sixth of it.
const CPU_MAX: Duration = Duration::from_secs(12);
/// Memory of the program for one run, bytes.
const MEMORY_MAX: u64 = 256 << 20;

fn restored(repository: &TestRepository, target: &Path) -> RestoreReport {
    let (repository, config) = (repository.open(), TestRepository::config());
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    restore(&repository, &config, &named, target, &Progress::default(), &Arc::default()).unwrap()
}

pub(crate) fn checked(repository: &TestRepository) -> CheckReport {
    let config = TestRepository::config();
    check(&repository.open(), &config, true, &Progress::default(), &Arc::default()).unwrap()
}

/// Edits the header of the only data container and returns the container's name.
fn edit_data_container(repository: &TestRepository, edit: impl FnOnce(&mut [u8])) -> String {
    let containers = repository.names().into_iter().filter(|name| name.starts_with("containers/"));
    let data: Vec<String> = containers.filter(|name| repository.read(name)[10] == 0).collect();
    let [name] = data.as_slice() else { panic!("{data:?}") };
    let mut bytes = repository.read(name);
    edit(&mut bytes[..HEADER_BYTES]);
    fs::write(repository.path().join(name), bytes).unwrap();
    name.clone()
}

#[test]
fn one_container_of_another_version_or_with_a_flipped_header_bit_costs_its_own_files() {
    let to_version_2 = |header: &mut [u8]| {
        header[8] = 2;
        let recorded = checksum::<16>(&[&header[..HEADER_BYTES - 16]]);
        header[HEADER_BYTES - 16..].copy_from_slice(&recorded);
    };
    let flip = |header: &mut [u8]| header[8] ^= 2;
    for (is_damage, edit) in [(false, &to_version_2 as &dyn Fn(&mut [u8])), (true, &flip)] {
        let (repository, source, target) =
            (TestRepository::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(source.path().join("first"), &Random(1).bytes(300_000));
        repository.backup(source.path(), &TestRepository::config());
        let name = edit_data_container(&repository, edit);
        // A check of all data would find that the name, which is a hash, is of other bytes.
        let (config, read_data) = (TestRepository::config(), is_damage);
        let report = check(&repository.open(), &config, read_data, &Progress::default(), &Arc::default()).unwrap();
        let defects = if is_damage { report.defects } else { report.newer };
        let text = if is_damage { "damaged" } else { "unknown format version 2" };
        assert!(defects.iter().any(|defect| defect.contains(&name) && defect.contains(text)), "{defects:#?}");

        let lost = restored(&repository, &target.path().join("one"));
        assert_eq!((lost.files, lost.damaged, lost.problems), (0, u64::from(is_damage), u64::from(!is_damage)));

        // The backup goes on and stores the file again. The new container may have the name of the old one.
        write(source.path().join("second"), &Random(2).bytes(300_000));
        let report = repository.backup(source.path(), &TestRepository::config());
        assert_eq!((report.files, report.problems), (2, 0));
        let whole = restored(&repository, &target.path().join("two"));
        assert_eq!((whole.files, whole.damaged, whole.problems), (2, 0, 0), "{name}");
    }
}

/// Restores and checks the repository in time. `bad` must be lost and `good` come back, and the check must name `what`.
pub(crate) fn assert_bad_is_lost(repository: &TestRepository, what: &str) {
    let (started, target) = (Instant::now(), tempfile::tempdir().unwrap());
    let report = restored(repository, &target.path().join("back"));
    assert_eq!((report.files, report.damaged, report.problems), (1, 1, 0));
    assert_eq!(fs::read(target.path().join("back/good")).unwrap(), b"good");
    assert!(!target.path().join("back/bad").exists());
    let report = checked(repository);
    assert!(report.defects.iter().any(|defect| defect.contains(what)), "{what}: {:#?}", report.defects);
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
    assert_cheap(repository, what);
}

/// Restores and checks with the program. Each run must name `what`, and end with little memory and CPU time.
fn assert_cheap(repository: &TestRepository, what: &str) {
    let target = tempfile::tempdir().unwrap();
    let (repo, back) = (repository.path(), target.path().join("back"));
    let restore = ["restore".as_ref(), "latest".as_ref(), "--target".as_ref(), back.as_os_str()];
    let check = ["check".as_ref(), "--read-data".as_ref(), "--report-only".as_ref()];
    for arguments in [&restore[..], &check[..]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fhrd"));
        command.args(arguments).arg("--quiet").arg("--repo").arg(&repo);
        let run = Measured::run(command, target.path());
        assert_eq!(run.code, Some(20), "{arguments:?}: {}", run.errors);
        assert!(arguments.len() == restore.len() || run.errors.contains(what), "{what}: {}", run.errors);
        assert!(run.memory < MEMORY_MAX, "{arguments:?}: {} MiB", run.memory >> 20);
        assert!(run.cpu < CPU_MAX, "{arguments:?}: {:?} of CPU", run.cpu);
    }
}

/// A run of the program, with what it took as far as Linux tells.
struct Measured {
    code: Option<i32>,
    errors: String,
    /// Peak memory, bytes.
    memory: u64,
    cpu: Duration,
}

impl Measured {
    fn run(mut command: Command, directory: &Path) -> Self {
        let errors = directory.join("errors");
        let mut child = command.stderr(fs::File::create(&errors).unwrap()).stdout(Stdio::null()).spawn().unwrap();
        let process = Path::new("/proc").join(child.id().to_string());
        let (mut memory, mut cpu) = (0, Duration::ZERO);
        let status = loop {
            memory = memory.max(memory_max(child.id()).unwrap_or(0));
            let text = fs::read_to_string(process.join("stat")).unwrap_or_default();
            let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
            let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
            cpu = cpu.max(Duration::from_millis(ticks * 10));
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Measured { code: status.code(), errors: fs::read_to_string(errors).unwrap(), memory, cpu }
    }
}

/// A section of a container index that decodes to 1 GiB of zeros.
fn huge_section() -> Vec<u8> {
    let mut packed = Vec::new();
    Scratch::default().compress(&vec![0; 256 << 10], 3, &mut packed).unwrap();
    let mut section = Vec::new();
    fhrd::wire::put_varint(&mut section, 4096);
    for _ in 0..4096 {
        section.push(1);
        fhrd::wire::put_varint(&mut section, 256 << 10);
        fhrd::wire::put_varint(&mut section, packed.len() as u64);
        section.extend_from_slice(&packed);
    }
    section
}

#[test]
fn a_container_index_of_six_huge_sections_is_refused_before_it_takes_memory() {
    let repository = TestRepository::new();
    let store = repository.open().store;
    let index = huge_section().repeat(6);
    for entries in [0, 1, 1 << 18, 1 << 25, u32::MAX] {
        let footer = Footer {
            index_offset: HEADER_BYTES as u64,
            index_len: index.len() as u64,
            entries,
            frames: entries,
            index_checksum: checksum(&[&index]),
            padding: 0,
        };
        let bytes = [&header(ContainerKind::Data, &[7; 16])[..], &index, &footer.encode()].concat();
        assert!(bytes.len() < 2 << 20);
        let id = ContainerId(*blake3::hash(&bytes).as_bytes());
        store.put_if_absent(&blob_name(&id), &[&bytes]).unwrap();
        let started = Instant::now();
        let error = read_container_index(store.as_ref(), &id).map(drop).unwrap_err();
        assert!(error.to_string().contains(blob_name(&id).as_str()), "{error}");
        assert!(started.elapsed() < TIME_MAX);
        // The program reads it in 600 MB of address space, stacks of threads included.
        if cfg!(target_os = "linux") {
            let output = Command::new("sh")
                .args(["-c", "ulimit -v 600000; exec \"$0\" check --quiet --repo \"$1\""])
                .arg(env!("CARGO_BIN_EXE_fhrd"))
                .arg(repository.path())
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(20) && errors.contains(blob_name(&id).as_str()), "{output:?}");
        }
    }
}

#[test]
fn a_delta_to_two_deltas_to_two_deltas_ends() {
    let mut hostile = HostileRepository::new();
    let base = hostile.whole(&[0; 8192]);
    let mut bases = [(base, 4096); 2];
    let mut len = 8192;
    for level in 1..=55 {
        let mut next = || {
            len -= 2;
            (hostile.delta(len, level + 1, &bases), 4096)
        };
        bases = [next(), next()];
    }
    let content = ContentReference::Chunk { fingerprint: bases[1].0.fingerprint, len: len as u64 };
    let (repository, _) = hostile.finish(Some(content), len as u64);
    let (started, target) = (Instant::now(), tempfile::tempdir().unwrap());
    let report = restored(&repository, &target.path().join("back"));
    assert_eq!((report.files, report.damaged), (2, 0));
    assert_eq!(fs::read(target.path().join("back/bad")).unwrap(), vec![0; len]);
    assert_eq!(checked(&repository).defects, [""; 0]);
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
}

#[test]
fn in_place_of_a_lost_base_a_delta_serves_no_copy() {
    for is_delta_first in [true, false] {
        let mut hostile = HostileRepository::new();
        let whole = hostile.whole(&[0; 80_000]);
        let copy = |base: Base, len: u32| OperationList {
            operations: vec![Operation::Copy { base: 0, offset: 0, len }],
            bases: vec![base],
        };
        // Two entries of one chunk, neither with the operations that the base names.
        for is_delta in [is_delta_first, !is_delta_first] {
            match is_delta {
                true => hostile.delta(70_000, 2, &[(whole, 80_000)]),
                false => hostile.entry(&[0; 70_000], &[], 2, copy(whole, 70_000)),
            };
        }
        let lost = Base { fingerprint: hostile.key.fingerprint(&[0; 70_000]), digest: WHOLE_DIGEST };
        let fingerprint = hostile.entry(&[0; 60_000], &[], 3, copy(lost, 60_000)).fingerprint;
        let (repository, _) = hostile.finish(Some(ContentReference::Chunk { fingerprint, len: 60_000 }), 60_000);
        let is_whole = || {
            let target = tempfile::tempdir().unwrap();
            let report = restored(&repository, &target.path().join("back"));
            assert_eq!((report.files, report.damaged), (2, 0), "{is_delta_first}");
            assert_eq!(fs::read(target.path().join("back/bad")).unwrap(), [0; 60_000]);
        };
        is_whole();
        // A prune moves what is needed, and keeps the entry that serves.
        assert!(prune(&repository.open(), &no_grace(), &Arc::default()).unwrap().containers_deleted > 0);
        is_whole();
    }
}

#[test]
fn deltas_too_large_to_remember_end_with_an_error() {
    let mut hostile = HostileRepository::new();
    let mut len = 16 << 20;
    let base = hostile.whole(&vec![0; len]);
    let mut bases = [(base, 8 << 20); 2];
    for level in 1..=14 {
        let mut next = || {
            len -= 2;
            (hostile.delta(len, level + 1, &bases), 8 << 20)
        };
        bases = [next(), next()];
    }
    let content = ContentReference::Chunk { fingerprint: bases[1].0.fingerprint, len: len as u64 };
    let (repository, container) = hostile.finish(Some(content), len as u64);
    assert_bad_is_lost(&repository, &container);
}

#[test]
fn a_delta_of_more_frames_than_readers_accept_is_refused_whatever_repeats() {
    for (frames, is_lost) in [(1 << 15, true), ((1 << 15) - 1, false)] {
        let mut hostile = HostileRepository::new();
        let content: Vec<u8> = (0..frames as u32).flat_map(u32::to_le_bytes).collect();
        let bases: Vec<_> = content.chunks(4).map(|word| hostile.whole(word)).collect();
        let operations = (0..frames as u32).map(|base| Operation::Delta { base, offset: 0, len: 4 }).collect();
        let list = OperationList { operations, bases };
        // The chunk is the beginning of the base.
        let delta = hostile.entry(&content, &[5, 0], 2, list);
        let reference = ContentReference::Chunk { fingerprint: delta.fingerprint, len: content.len() as u64 };
        let (repository, container) = hostile.finish(Some(reference), content.len() as u64);
        if is_lost {
            assert_bad_is_lost(&repository, &container);
        } else {
            let target = tempfile::tempdir().unwrap();
            assert_eq!(restored(&repository, &target.path().join("back")).damaged, 0);
        }
    }
}

#[test]
fn a_long_chain_of_deltas_that_claims_to_be_short_is_an_error_and_overflows_no_stack() {
    let mut hostile = HostileRepository::new();
    let mut len = 8192;
    let mut base = hostile.whole(&vec![0; len]);
    for _ in 0..3000 {
        len -= 2;
        base = hostile.delta(len, 2, &[(base, len as u32)]);
    }
    let content = ContentReference::Chunk { fingerprint: base.fingerprint, len: len as u64 };
    let (repository, container) = hostile.finish(Some(content), len as u64);
    assert_bad_is_lost(&repository, &container);
}

#[test]
fn copies_whose_extent_maps_exceed_the_cache_end_with_an_error() {
    let mut hostile = HostileRepository::new();
    let mut random = Random(3);
    // Two chunks of half a million copies of one byte each; no two of them are adjacent.
    let count = 1u32 << 19;
    let (mut contents, mut bases) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let literals = random.bytes(2 * count as usize);
        let base = hostile.whole(&literals);
        let operations = (0..count).map(|at| Operation::Copy { base: 0, offset: 2 * at, len: 1 }).collect();
        let content: Vec<u8> = literals.iter().step_by(2).copied().collect();
        bases.push(hostile.entry(&content, &[], 2, OperationList { operations, bases: vec![base] }));
        contents.push(content);
    }
    let half = count / 2;
    for level in 3..60 {
        for swapped in [false, true] {
            let (first, second) = if swapped { (1, 0) } else { (0, 1) };
            let operations = vec![
                Operation::Copy { base: 0, offset: 0, len: half },
                Operation::Copy { base: 1, offset: half, len: half },
            ];
            let list = OperationList { operations, bases: vec![bases[first], bases[second]] };
            let content = [&contents[first][..half as usize], &contents[second][half as usize..]].concat();
            bases.push(hostile.entry(&content, &[], level, list));
            contents.push(content);
        }
        (contents, bases) = (contents.split_off(2), bases.split_off(2));
    }
    let content = ContentReference::Chunk { fingerprint: bases[0].fingerprint, len: count.into() };
    let (repository, _) = hostile.finish(Some(content), count.into());
    let (started, target) = (Instant::now(), tempfile::tempdir().unwrap());
    let report = restored(&repository, &target.path().join("back"));
    assert_eq!(report.files + report.damaged, 2);
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
}

#[test]
fn a_chunk_whose_frames_exceed_the_memory_is_refused() {
    let mut hostile = HostileRepository::new();
    let zeros = vec![0; 64 << 20];
    let (mut operations, mut bases) = (Vec::new(), Vec::new());
    for number in 0..20u8 {
        let frame = hostile.frame(&zeros);
        let content = vec![0; 10 + usize::from(number)];
        let (fingerprint, len) = (hostile.key.fingerprint(&content), content.len() as u32);
        let fields = EntryFields { fingerprint, raw_len: len, frame, literal_offset: 0, literal_len: len, depth: 1 };
        hostile.writer.push_entry(fields, &OperationList::default(), &[]).unwrap();
        hostile.fingerprints.push(fingerprint);
        operations.push(Operation::Copy { base: number.into(), offset: 0, len: 10 });
        bases.push(Base { fingerprint, digest: 0 });
    }
    let copied = hostile.entry(&[0; 200], &[], 2, OperationList { operations, bases });
    let content = ContentReference::Chunk { fingerprint: copied.fingerprint, len: 200 };
    let (repository, container) = hostile.finish(Some(content), 200);
    assert_bad_is_lost(&repository, &container);
}

#[test]
fn recipes_of_empty_references_are_refused() {
    let mut hostile = HostileRepository::new();
    let mut reference = ContentReference::Hole { len: 0 };
    for level in 1..=12 {
        reference = hostile.recipe(level, &vec![reference; 2000]);
    }
    let (repository, _) = hostile.finish(Some(reference), 0);
    assert_bad_is_lost(&repository, "recipe");
}

#[test]
fn recipes_of_too_many_references_are_refused() {
    let mut hostile = HostileRepository::new();
    let reference = hostile.recipe(1, &vec![ContentReference::Hole { len: 1 }; 100_000]);
    let (repository, _) = hostile.finish(Some(reference), 100_000);
    assert_bad_is_lost(&repository, "recipe");
}

#[test]
fn a_segment_that_claims_records_it_lacks_is_named_and_costs_nothing() {
    let (repository, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(10_000));
    repository.backup(source.path(), &TestRepository::config());
    let mut blob = b"FHRDSEGM".to_vec();
    blob.extend_from_slice(&1u16.to_le_bytes());
    blob.extend_from_slice(&[0; 2]);
    blob.extend_from_slice(&1u32.to_le_bytes());
    blob.extend_from_slice(&[0; 8]);
    blob.extend_from_slice(&(1u64 << 48).to_le_bytes());
    blob.extend_from_slice(&[0; 16]);
    blob.extend_from_slice(&[7; 16]);
    blob.extend_from_slice(&checksum::<16>(&[&blob]));
    blob.extend_from_slice(&[7; 32]);
    blob.extend_from_slice(&checksum::<16>(&[&[7; 32]]));
    assert_eq!(blob.len(), 128);
    let name = format!("index/{}", blake3::hash(&blob).to_hex());
    repository.open().store.put_if_absent(&named(&name), &[&blob]).unwrap();

    let (started, target) = (Instant::now(), tempfile::tempdir().unwrap());
    let defects = checked(&repository).defects;
    assert!(defects.len() == 1 && defects[0].contains(&name), "{defects:#?}");
    let report = restored(&repository, &target.path().join("one"));
    assert_eq!((report.files, report.damaged, report.problems), (1, 0, 0));
    assert_eq!(repository.backup(source.path(), &TestRepository::config()).problems, 0);
    let report = restored(&repository, &target.path().join("two"));
    assert_eq!((report.files, report.damaged, report.problems), (1, 0, 0));
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
}

#[test]
fn content_of_another_length_than_its_directory_entry_says_is_damage() {
    let references = |hostile: &mut HostileRepository| {
        let chunk = hostile.whole(b"8 bytes.").fingerprint;
        [ContentReference::Chunk { fingerprint: chunk, len: 8 }, ContentReference::Hole { len: 1_000_000 }]
    };
    for size in [0, 8, 1_000_007, 1_000_009, u64::MAX] {
        let mut hostile = HostileRepository::new();
        let references = references(&mut hostile);
        let recipe = hostile.recipe(1, &references);
        let (repository, _) = hostile.finish(Some(recipe), size);
        assert_bad_is_lost(&repository, "/bad");
    }
    let (repository, _) = HostileRepository::new().finish(None, 1);
    assert_bad_is_lost(&repository, "/bad");

    // Of the right length, but in a file that is not marked as sparse.
    let mut hostile = HostileRepository::new();
    let references = references(&mut hostile);
    let recipe = hostile.recipe(1, &references);
    let (repository, _) = hostile.finish(Some(recipe), 1_000_008);
    let target = tempfile::tempdir().unwrap();
    let report = restored(&repository, &target.path().join("back"));
    assert_eq!((report.files, report.damaged), (2, 0));
    let bytes = fs::read(target.path().join("back/bad")).unwrap();
    assert_eq!((bytes.len(), &bytes[..8]), (1_000_008, &b"8 bytes."[..]));
    assert_eq!(checked(&repository).defects, [""; 0]);
}

#[test]
fn every_run_stops_before_its_pipeline_starts() {
    let (repository, source, target) =
        (TestRepository::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(10_000));
    repository.backup(source.path(), &TestRepository::config());
    // Without segments all containers are orphans, so that a backup adopts them first.
    for name in repository.names().iter().filter(|name| name.starts_with("index/")) {
        fs::remove_file(repository.path().join(name)).unwrap();
    }
    let (opened, config, progress) = (repository.open(), TestRepository::config(), Progress::default());
    let stop = Arc::new(AtomicBool::new(true));
    let request = BackupRequest::new(TreeSource::new(vec![source.path().into()], "test"));
    let outcome = backup(&opened, &config, &request, &progress, &stop).map(drop);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    let named = snapshot::find(opened.store.as_ref(), "latest").unwrap();
    let outcome = restore(&opened, &config, &named, &target.path().join("back"), &progress, &stop).map(drop);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    let outcome = check(&opened, &config, true, &progress, &stop).map(drop);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    assert!(!repository.names().iter().any(|name| name.starts_with("index/")), "nothing was adopted");
}
