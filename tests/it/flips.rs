//! Damage of every byte: a small repository with every structure, and what each flipped, cut or lost byte costs.
//!
//! For each damage: a check of all data names it. A restore never gives wrong bytes, and gives every file that does not
//! need the byte. The next backup of the same source makes a snapshot that restores whole. Then a check finds at most
//! what the source cannot give back.
//!
//! `FHRD_FLIPS=all` tests every byte of every blob (about half an hour on one core), `FHRD_FLIPS=2/4` the second quarter of
//! them, so that several processes can share the work. Without it, a fixed sample is tested.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytesize::ByteSize;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::inspect::check::{CheckReport, check};
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repair::quarantine;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::bundle;
use fhrd::repo::container::{
    BaseUse, ContainerIndex, EntryNumber, HEADER_BYTES, Operation, OperationSlice, OperationSource, blob_name,
    parse_name,
};
use fhrd::repo::index::{ContainerListing, IndexSegment, read_container_index};
use fhrd::repo::marks::Marks;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::read::{ChunkReader, RecipeWalk};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot;
use fhrd::repo::tree::{NodeKind, TreeCursor};
use fhrd::restore::restore;
use fhrd::store::{BlobPrefix, MemoryStore, Store};
use fhrd::types::ContainerId;
use parking_lot::{Mutex, MutexGuard};

use crate::double::named;
use crate::input::{edit, files, write};
use crate::trees::Random;
use crate::weights::{self, Tensor, bfloat16, safetensors};

/// What a whole restore loses.
pub const NO_FILES: [PathBuf; 0] = [];
/// Damages per blob that are tested without the environment variable.
const SAMPLE: usize = 6;

pub fn config() -> Config {
    let mut config = Config::default();
    config.compress.frame_bytes = ByteSize::kib(4);
    config.model.block_bytes = ByteSize::kib(64);
    config.pipeline.workers = 1;
    config.read.recheck_seconds = 0;
    config
}

/// What a file of the last snapshot needs: containers of its entries and their bases, and frames with their positions.
#[derive(Default)]
struct Needs {
    containers: BTreeSet<ContainerId>,
    frames: BTreeSet<(ContainerId, u32)>,
}

pub struct Scene {
    pub source: tempfile::TempDir,
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// The last snapshot.
    pub last: String,
    needs: BTreeMap<PathBuf, Needs>,
}

pub fn open(store: &Arc<MemoryStore>) -> Repository {
    let repository = Repository::open(store.clone()).unwrap();
    // Nothing that an earlier run has left may help.
    let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
    repository
}

pub fn back_up(repository: &Repository, source: &Path) -> String {
    let request = BackupRequest::new(TreeSource { bare: true, ..TreeSource::new(vec![source.into()], "test") });
    backup(repository, &config(), &request, &Progress::default(), &Arc::default()).unwrap().snapshot
}

/// Checks everything and quarantines what is bad.
pub fn run_check(repository: &Repository) -> CheckReport {
    let before = Marks::read(repository.store.as_ref()).unwrap();
    let report = check(repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
    quarantine::record(repository, &before, &report).unwrap();
    report
}

/// A model whose tensor repeats 512 values, so that it is small in the repository. Some of them moved by training.
fn model(moved: usize) -> Vec<u8> {
    let mut values = weights::weights(3, 512).repeat(64);
    let count = values.len();
    (0..moved).for_each(|number| values[number * 7919 % count] *= 1.02);
    safetensors(&[Tensor::new("layer.weight", "BF16", &[64, 512], bfloat16(&values))])
}

/// All copies of the small repository share one cache directory, so one test at a time may use them.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

impl Scene {
    pub fn get() -> &'static Scene {
        static SCENE: OnceLock<Scene> = OnceLock::new();
        SCENE.get_or_init(Scene::new)
    }

    fn new() -> Scene {
        let store = Arc::new(MemoryStore::new());
        let small = RepositoryConfig {
            chunk_bytes_min: ByteSize::b(512),
            chunk_bytes_avg: ByteSize::kib(2),
            chunk_bytes_max: ByteSize::kib(8),
            ..RepositoryConfig::default()
        };
        let repository = Repository::init(store.clone(), &small).unwrap();
        let source = tempfile::tempdir().unwrap();
        let (mut random, root) = (Random(11), source.path().to_path_buf());
        let text = random.text(6000);
        let steps: [&dyn Fn(&mut Random); 5] = [
            &|random| {
                write(root.join("text/first.txt"), &text);
                write(root.join("noise/noise.bin"), &random.bytes(1500));
                write(root.join("text/floats.bin"), &random.floats(900));
            },
            &|random| write(root.join("later/second.txt"), &edit(random, &text, 6)),
            &|_| write(root.join("models/base.safetensors"), &model(0)),
            &|_| write(root.join("models/tuned.safetensors"), &model(300)),
            &|random| write(root.join("small/note.txt"), &random.text(200)),
        ];
        let mut last = String::new();
        for step in steps {
            step(&mut random);
            last = back_up(&repository, source.path());
        }
        assert_eq!(run_check(&repository).defects, [""; 0]);
        // Damage that has been healed: its mark and the bad frame stay.
        let container = Scene::needs(&repository, &last)[Path::new("noise/noise.bin")].containers.first().copied();
        let container = blob_name(&container.unwrap());
        let mut bytes = store.get(&container, 1 << 20).unwrap();
        bytes[HEADER_BYTES + 40] ^= 1;
        store.replace(&container, &bytes);
        assert!(run_check(&repository).bad_frames == 1);
        for _ in 0..2 {
            last = back_up(&repository, source.path());
        }
        let report = run_check(&repository);
        assert!(report.defects.is_empty() && report.notes.len() == 1, "{report:#?}");
        assert!(bundle::maintain(store.as_ref(), 1).unwrap() > 3);
        let needs = Scene::needs(&repository, &last);
        let listed = store.list(BlobPrefix::All).unwrap();
        let blobs = listed.into_iter().map(|blob| (blob.name.to_string(), store.get(&blob.name, 1 << 20).unwrap()));
        Scene { source, blobs: blobs.collect(), last, needs }
    }

    fn needs(repository: &Repository, snapshot: &str) -> BTreeMap<PathBuf, Needs> {
        let listing = Arc::new(ContainerListing::take(&repository.store).unwrap());
        let mut reader = ChunkReader::new(repository, listing);
        let root = snapshot::find(repository.store.as_ref(), snapshot).unwrap().snapshot.root;
        let (mut found, mut path) = (BTreeMap::new(), PathBuf::new());
        let mut levels = vec![TreeCursor::open(root)];
        while let Some(cursor) = levels.last_mut() {
            let Some(node) = cursor.next(&mut reader).unwrap() else {
                levels.pop();
                path.pop();
                continue;
            };
            let child = path.join(std::str::from_utf8(&node.name).unwrap());
            if node.kind == NodeKind::Directory {
                levels.push(TreeCursor::open(node.content));
                path = child;
            } else {
                // Below the directory of the source.
                let name = child.components().skip(1).collect();
                found.insert(name, content_needs(&mut reader, node.content));
            }
        }
        found
    }

    /// A copy of the repository in which `name` has other bytes, or is missing.
    fn damaged(&self, name: &str, bytes: Option<&[u8]>) -> Arc<MemoryStore> {
        let store = Arc::new(MemoryStore::new());
        for (blob, intact) in &self.blobs {
            match bytes {
                None if blob == name => {}
                Some(bytes) if blob == name => store.replace(&named(blob), bytes),
                _ => store.replace(&named(blob), intact),
            }
        }
        store
    }

    /// Restores a snapshot and returns the files that did not come back. Fails if one has wrong bytes.
    pub fn lost_files(&self, repository: &Repository, id: &str, what: &str) -> Vec<PathBuf> {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("restored");
        let named = snapshot::find(repository.store.as_ref(), id).unwrap();
        let report = restore(repository, &config(), &named, &target, &Progress::default(), &Arc::default()).unwrap();
        let restored = target.join(self.source.path().file_name().unwrap());
        let mut lost = Vec::new();
        for name in files(self.source.path()) {
            match fs::read(restored.join(&name)) {
                Ok(bytes) => {
                    assert!(bytes == fs::read(self.source.path().join(&name)).unwrap(), "{what}: {name} is wrong");
                }
                Err(_) => lost.push(PathBuf::from(&name)),
            }
        }
        assert_eq!(report.damaged == 0, lost.is_empty(), "{what}: {lost:?} {report:?}");
        lost
    }

    /// Whether damage of byte `at` of a container may cost a file.
    fn may_cost(&self, path: &Path, id: &ContainerId, index: &ContainerIndex, at: Option<u64>) -> bool {
        let in_frame = |at: u64| {
            let frames = index.frames.iter().zip(0u32..);
            let within = |frame: &fhrd::repo::container::FrameInfo| {
                (frame.offset..frame.offset + frame.stored_bytes() as u64).contains(&at)
            };
            frames.filter(|(frame, _)| within(frame)).map(|(_, position)| position).next()
        };
        let needs = &self.needs[path];
        match at.and_then(in_frame) {
            Some(frame) => needs.frames.contains(&(*id, frame)),
            None => needs.containers.contains(id),
        }
    }

    /// Everything that must hold after one damage.
    fn survive(&self, name: &str, bytes: Option<&[u8]>, at: Option<u64>) {
        let what = format!("{name}, {}", at.map_or("cut or missing".into(), |at| format!("byte {at}")));
        let store = self.damaged(name, bytes);
        let repository = open(&store);
        let report = run_check(&repository);
        let area = name.split('/').next().unwrap();
        // A snapshot, a catalogue or a mark that is gone was deleted on purpose, as far as a check can know.
        let is_found = report.defects.iter().chain(&report.notes).any(|text| text.contains(name));
        let may_be_gone = bytes.is_none() && ["snapshots", "models", "marks", "index", "bundles"].contains(&area);
        assert!(is_found || may_be_gone, "{what}: {report:#?}");
        let is_snapshot = name.ends_with(&self.last);
        if !is_snapshot {
            let lost = self.lost_files(&repository, &self.last, &what);
            match parse_name(name).filter(|_| area == "containers") {
                None => assert_eq!(lost, NO_FILES, "{what}"),
                Some(id) => {
                    let index = read_container_index(&intact(&self.blobs), &id).unwrap();
                    let is_metadata = self.blobs[name][10] == 1;
                    let unneeded = lost.iter().find(|path| !is_metadata && !self.may_cost(path, &id, &index, at));
                    assert_eq!(unneeded, None, "{what}");
                }
            }
        }
        let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
        let next = back_up(&repository, self.source.path());
        assert_eq!(self.lost_files(&repository, &next, &what), NO_FILES, "{what}: next");
        if !is_snapshot {
            assert_eq!(self.lost_files(&repository, &self.last, &what), NO_FILES, "{what}: last");
        }
        self.assert_healed(&repository, name, &what);
        // What the source cannot give back is dropped on request. Then nothing is left to find.
        repair_index(&repository, &Arc::default()).unwrap();
        let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        repair_snapshots(&repository, &config(), request, &Arc::default()).unwrap();
        let report = run_check(&repository);
        assert_eq!(report.defects, [""; 0], "{what}: repaired");
    }

    /// The containers that have differences to chunks of this one.
    fn differences_to(&self, container: &str) -> impl Iterator<Item = String> {
        let store = intact(&self.blobs);
        let read = |name: &str| Some((parse_name(&named(name))?, name.to_string()));
        let names = self.blobs.keys().filter(|name| name.starts_with("containers/"));
        let all: Vec<_> = names.filter_map(|name| read(name)).collect();
        let index = |id| read_container_index(&store, id).unwrap();
        let own = all.iter().filter(|(_, name)| name == container).flat_map(|(id, _)| index(id).entries);
        let own: BTreeSet<_> = own.map(|entry| entry.fingerprint).collect();
        let differs = |id| index(id).bases.iter().any(|base| own.contains(&base.fingerprint));
        all.iter().filter(|(id, _)| differs(id)).map(|(_, name)| name.clone()).collect::<Vec<_>>().into_iter()
    }

    /// Fails unless a check finds nothing but what the source cannot give back.
    fn assert_healed(&self, repository: &Repository, name: &str, what: &str) {
        let again = run_check(repository);
        let cannot_heal = |defect: &String| {
            // Listings of older snapshots are not what the source looks like now.
            let of_older = defect.starts_with("snapshot ") && !defect.contains(&self.last);
            let is_metadata = name.starts_with("containers/") && self.blobs[name][10] == 1;
            // Nor can it give back the listings of older snapshots that others are differences to. These are stored
            // again.
            let of_older = of_older || self.differences_to(name).any(|other| defect.contains(other.as_str()));
            let needs_repair = ["snapshots/", "models/", "bundles/"].iter().any(|area| name.starts_with(area));
            (is_metadata && (of_older || defect.contains(name))) || (needs_repair && defect.contains(name))
        };
        let unexpected: Vec<&String> = again.defects.iter().filter(|defect| !cannot_heal(defect)).collect();
        assert!(unexpected.is_empty(), "{what}: {unexpected:#?}");
    }
}

pub fn intact(blobs: &BTreeMap<String, Vec<u8>>) -> MemoryStore {
    let store = MemoryStore::new();
    blobs.iter().for_each(|(name, bytes)| store.replace(&named(name), bytes));
    store
}

fn content_needs(reader: &mut ChunkReader, content: Option<ContentReference>) -> Needs {
    let mut needs = Needs::default();
    let Some(content) = content else { return needs };
    let mut walk = RecipeWalk::new(content);
    while let Some(reference) = walk.next(reader).unwrap() {
        let ContentReference::Chunk { fingerprint, .. } = reference else { continue };
        let entry = reader.entry_of(&fingerprint).unwrap();
        add_containers(reader, entry, &mut needs.containers);
        for frame in reader.extent_map(entry).unwrap().frames() {
            let (container, info) = reader.resolver.frame_info(*frame).unwrap();
            let index = reader.resolver.locator.container_indexes().load(&container).unwrap();
            let position = index.frames.iter().position(|frame| frame.offset == info.offset).unwrap();
            needs.frames.insert((container, position as u32));
        }
    }
    needs
}

fn add_containers(reader: &mut ChunkReader, entry: EntryNumber, containers: &mut BTreeSet<ContainerId>) {
    containers.insert(reader.resolver.container_index_of(entry).unwrap().0);
    let view = reader.resolver.view(entry).unwrap();
    if let OperationSlice::Whole = view.operations {
        return;
    }
    let of = |operation: &Operation| Some((operation.source()?.0, operation.base_use()));
    let bases: BTreeSet<(u32, BaseUse)> = view.operations.as_slice().iter().filter_map(of).collect();
    for (base, base_use) in bases {
        let base = reader.resolver.base(&view, base, base_use).unwrap();
        add_containers(reader, base, containers);
    }
}

/// Which part of all damages is tested, from 1, and of how many. `None` for a sample.
pub fn part() -> Option<(usize, usize)> {
    let value = std::env::var("FHRD_FLIPS").ok()?;
    if value == "all" {
        return Some((1, 1));
    }
    let (part, parts) = value.split_once('/').unwrap_or_else(|| panic!("FHRD_FLIPS={value}: `all` or PART/PARTS"));
    let (part, parts) = (part.parse().unwrap(), parts.parse().unwrap());
    assert!((1..=parts).contains(&part), "FHRD_FLIPS={value}: parts are numbered from 1");
    Some((part, parts))
}

/// The offsets of a blob of `len` bytes that are damaged: of every `step`-th byte those of this part, or one of `sample`.
pub fn offsets(len: usize, step: usize, sample: usize) -> impl Iterator<Item = usize> {
    let (first, parts) = part().map_or((0, sample), |(part, parts)| (part - 1, parts));
    (0..len).step_by(step).skip(first).step_by(parts)
}

#[test]
fn the_small_repository_has_every_structure() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let total: usize = scene.blobs.values().map(Vec::len).sum();
    assert!((20_000..60_000).contains(&total), "{total} bytes");
    let areas: BTreeSet<&str> = scene.blobs.keys().map(|name| name.split('/').next().unwrap()).collect();
    let expected = ["bundles", "config", "config-copy", "containers", "index", "marks", "models", "snapshots"];
    assert_eq!(areas.into_iter().collect::<Vec<_>>(), expected);
    let store: Arc<dyn Store> = Arc::new(intact(&scene.blobs));
    let (mut codecs, mut kinds, mut features) = (BTreeSet::new(), BTreeSet::new(), 0);
    let listing = ContainerListing::take(&store).unwrap();
    for id in &listing.containers {
        let index = read_container_index(store.as_ref(), id).unwrap();
        codecs.extend(index.frames.iter().map(|frame| frame.codec));
        for entry in &index.entries {
            features += index.features(entry).len();
            kinds.extend(index.operations(entry).iter().map(|operation| match operation {
                Operation::Add { .. } => "add",
                Operation::Copy { .. } => "copy",
                Operation::LiteralCopy { .. } => "literal copy",
                Operation::Delta { .. } => "delta",
                Operation::Unknown { .. } => "unknown",
            }));
        }
    }
    assert!(codecs.len() >= 3 && features > 0, "{codecs:?}, {features} features");
    assert!(["add", "copy", "delta"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    let is_merged = |segment: &Arc<IndexSegment>| !segment.replaced().is_empty();
    assert!(listing.segments().iter().any(is_merged), "no merged segment");
}

#[test]
fn any_flipped_byte_is_found_costs_what_needs_it_and_heals() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let part = part();
    for (name, intact) in &scene.blobs {
        let step = part.map_or((intact.len() / SAMPLE).max(1), |(_, parts)| parts);
        // Each blob begins elsewhere, so that all fields are met.
        let first = part.map_or(intact.len() * 7 % step, |(part, _)| part - 1);
        for at in (first..intact.len()).step_by(step) {
            let mut bytes = intact.clone();
            // Never the lowest bit: one of the scene is flipped already.
            bytes[at] ^= 2 << (at % 7);
            scene.survive(name, Some(&bytes), Some(at as u64));
        }
    }
}

#[test]
fn any_blob_that_is_cut_or_lost_is_found_costs_what_needs_it_and_heals() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let part = part();
    for (number, (name, intact)) in scene.blobs.iter().enumerate() {
        if part.is_some_and(|(part, parts)| number % parts != part - 1) {
            continue;
        }
        let lengths =
            if part.is_some() { vec![0, 7, 40, intact.len() / 2, intact.len() - 1] } else { vec![intact.len() / 2] };
        for len in lengths {
            scene.survive(name, Some(&intact[..len]), None);
        }
        scene.survive(name, None, None);
    }
}
