//! One reader for several threads.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytesize::ByteSize;
use fhrd::config::Config;
use fhrd::read_at::{ReadAt, fill};
use fhrd::repo::Repository;
use fhrd::repo::read::{Reader, StoredFile};
use fhrd::repo::snapshot;
use fhrd::repo::tree::{Node, NodeKind, TreeCursor};
use fhrd::store::{BlobName, ObservedStore, Reading, Store, StoreCall, StoreObserver};

use crate::double::{Double, double_store};
use crate::input::{TestRepository, write, write_sparse};
use crate::trees::Random;

/// Counts reads of ranges of containers. If it is closed, the first one waits until a second one has come, but not for
/// ever.
#[derive(Default)]
struct Gate {
    patience_ms: AtomicU64,
    is_closed: AtomicBool,
    reads: AtomicU64,
    waiting: Mutex<u64>,
    came: Condvar,
    has_met: AtomicBool,
}

struct GateObserver(Arc<Gate>);

impl StoreObserver for GateObserver {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        let gate = &self.0;
        if call == StoreCall::GetRange && name.starts_with("containers/") {
            gate.reads.fetch_add(1, Ordering::Relaxed);
            if gate.is_closed.load(Ordering::Relaxed) {
                let mut waiting = gate.waiting.lock().unwrap();
                *waiting += 1;
                gate.came.notify_all();
                let patience = Duration::from_millis(gate.patience_ms.load(Ordering::Relaxed));
                let (waiting, _) = gate.came.wait_timeout_while(waiting, patience, |count| *count < 2).unwrap();
                gate.has_met.fetch_or(*waiting >= 2, Ordering::Relaxed);
                gate.is_closed.store(false, Ordering::Relaxed);
            }
        }
        Ok(0)
    }
}

/// A repository whose reads pass a gate, and the files that it holds.
struct Scene {
    repository: Repository,
    gate: Arc<Gate>,
    nodes: BTreeMap<String, Node>,
    expected: BTreeMap<String, Vec<u8>>,
    _stored: TestRepository,
}

impl Scene {
    fn new() -> Self {
        Self::with(&TestRepository::config())
    }

    fn with(config: &Config) -> Self {
        let (stored, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
        for (number, name) in ["one", "two"].into_iter().enumerate() {
            write(source.path().join(name), &Random(number as u64).bytes(5_000_000));
        }
        write_sparse(source.path().join("sparse"), 3_000_000, &mut Random(7));
        let read = |name: &str| (name.to_string(), std::fs::read(source.path().join(name)).unwrap());
        let expected = ["one", "two", "sparse"].map(read).into();
        stored.backup(source.path(), config);
        let (gate, repository) = (Arc::<Gate>::default(), stored.open());
        let store = Arc::new(ObservedStore::with(repository.store.clone(), GateObserver(gate.clone())));
        let repository = Repository { store, ..repository };
        let nodes = nodes(&repository);
        Scene { repository, gate, nodes, expected, _stored: stored }
    }

    fn file(&self, reader: &Reader, name: &str) -> StoredFile {
        let node = &self.nodes[name];
        reader.file(node.content, node.size).unwrap()
    }

    /// Loads the container indexes of a file, so that what follows reads frames only. Then closes the gate.
    fn close(&self, reader: &Reader, names: &[&str], patience_ms: u64) {
        for name in names {
            let mut chunks = Vec::new();
            let found = self.file(reader, name).visit_ranges(|range| {
                chunks.extend(range.chunk);
                Ok(true)
            });
            found.unwrap();
            chunks.iter().for_each(|chunk| _ = reader.lend(|reader| reader.extent_map_of(chunk)).unwrap());
        }
        self.gate.patience_ms.store(patience_ms, Ordering::Relaxed);
        self.gate.is_closed.store(true, Ordering::Relaxed);
    }

    fn assert_whole(&self, reader: &Reader, name: &str) {
        let mut bytes = vec![0; self.expected[name].len()];
        fill(&self.file(reader, name), 0, &mut bytes).unwrap();
        assert!(bytes == self.expected[name], "{name}");
    }
}

/// The files of the only snapshot.
fn nodes(repository: &Repository) -> BTreeMap<String, Node> {
    let [named] = snapshot::list(repository.store.as_ref()).unwrap().0.try_into().ok().unwrap();
    let mut chunks = Reader::open(repository).unwrap().chunks();
    let (mut open, mut nodes) = (vec![named.snapshot.root], BTreeMap::new());
    while let Some(content) = open.pop() {
        let mut cursor = TreeCursor::open(content);
        while let Some(node) = cursor.next(&mut chunks).unwrap() {
            match node.kind {
                NodeKind::Directory => open.push(node.content),
                _ => _ = nodes.insert(String::from_utf8(node.name.clone()).unwrap(), node),
            }
        }
    }
    nodes
}

#[test]
fn two_threads_read_two_files_at_the_same_time() {
    let scene = Scene::new();
    let reader = Reader::open(&scene.repository).unwrap();
    scene.close(&reader, &["one", "two"], 20_000);
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (reader, scene) = (reader.clone(), &scene);
            scope.spawn(move || scene.assert_whole(&reader, name));
        }
    });
    assert!(scene.gate.has_met.load(Ordering::Relaxed), "one thread waited for the other");
}

#[test]
fn threads_that_want_one_chunk_decode_it_once() {
    let scene = Scene::new();
    let reader = Reader::open(&scene.repository).unwrap();
    scene.close(&reader, &["one"], 1_000);
    let before = scene.gate.reads.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (reader, scene) = (&reader, &scene);
            scope.spawn(move || {
                let mut space = [0; 1000];
                fill(&scene.file(reader, "one"), 0, &mut space).unwrap();
                assert_eq!(space, scene.expected["one"][..1000]);
            });
        }
    });
    assert_eq!(scene.gate.reads.load(Ordering::Relaxed) - before, 1);
}

#[test]
fn a_stored_file_is_read_at_any_offset() {
    let scene = Scene::new();
    let (reader, mut random) = (Reader::open(&scene.repository).unwrap(), Random(3));
    for (name, expected) in &scene.expected {
        let file = scene.file(&reader, name).counting_chunks();
        assert_eq!((file.len(), file.has_holes().unwrap()), (expected.len() as u64, name == "sparse"));
        for _ in 0..50 {
            let from = random.below(expected.len() as u64 + 10) as usize;
            let to = from + random.below(200_000) as usize;
            let wanted = &expected[from.min(expected.len())..to.min(expected.len())];
            let mut copied = Vec::new();
            let range = (from as u64, to as u64);
            let copy = file.copy(range, &mut |bytes| {
                copied.extend_from_slice(bytes);
                Ok(())
            });
            copy.unwrap();
            assert!(copied == wanted, "{name} from {from} to {to}");
            let mut space = vec![1; to - from];
            let count = file.read_at(from as u64, &mut space).unwrap();
            assert!((count > 0 || wanted.is_empty()) && space[..count] == wanted[..count], "{name} at {from}");
        }
        assert!((1..=file.chunks().unwrap()).contains(&file.chunks_read()), "{name}");
        assert_eq!(file.head(100).unwrap(), expected[..100]);
        let mut starts = HashSet::new();
        let visited = file.visit_ranges(|range| Ok(starts.insert(range.start)));
        visited.unwrap();
        assert!(starts.contains(&0) && starts.len() as u64 >= file.chunks().unwrap());
    }
}

#[test]
fn a_file_of_another_length_than_its_content_is_refused() {
    let scene = Scene::new();
    let reader = Reader::open(&scene.repository).unwrap();
    let Node { content, size, .. } = scene.nodes["one"];
    for (content, len) in [(content, size + 1), (content, 0), (None, 1)] {
        assert!(matches!(reader.file(content, len), Err(fhrd::Error::Corrupt { .. })), "{len}");
    }
    assert!(reader.file(None, 0).unwrap().is_empty());
}

/// All bytes of a file, as they are passed on.
fn passed_on(repository: &Repository, node: &Node) -> fhrd::Result<Vec<u8>> {
    let (mut bytes, file) = (Vec::new(), Reader::open(repository)?.file(node.content, node.size)?);
    file.copy((0, node.size), &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

#[test]
fn what_is_passed_on_is_right_or_an_error_wherever_a_container_is_damaged() {
    let scene = Scene::new();
    let (mut right, mut damaged) = (0, 0);
    for name in scene._stored.names().iter().filter(|name| name.starts_with("containers/")) {
        let (path, sound) = (scene._stored.path().join(name), scene._stored.read(name));
        for at in (0..sound.len()).step_by(sound.len() / 12 + 1) {
            let mut bytes = sound.clone();
            bytes[at] ^= 4;
            std::fs::write(&path, &bytes).unwrap();
            for file in ["one", "two"] {
                match passed_on(&scene._stored.open(), &scene.nodes[file]) {
                    Ok(bytes) => {
                        assert!(bytes == scene.expected[file], "{name} at {at}");
                        right += 1;
                    }
                    Err(error) => {
                        assert!(error.is_unreadable(), "{name} at {at}: {error}");
                        damaged += 1;
                    }
                }
            }
        }
        std::fs::write(&path, &sound).unwrap();
    }
    assert!(right > 20 && damaged > 20, "{right} right, {damaged} damaged");
}

#[test]
fn a_checksum_of_a_frame_that_is_damaged_alone_costs_no_bytes() {
    let mut config = TestRepository::config();
    // A frame for each chunk, as tensors have them.
    config.compress.frame_bytes = ByteSize(0);
    let scene = Scene::with(&config);
    let mut damaged = 0;
    for name in scene._stored.names().iter().filter(|name| name.starts_with("containers/")) {
        let mut bytes = scene._stored.read(name);
        // Those of trees and recipes are short.
        if bytes.len() > 500_000 {
            // Behind the header of the container and the fields of the first frame.
            bytes[64 + 16] ^= 1;
            std::fs::write(scene._stored.path().join(name), &bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 5);
    let repository = scene._stored.open();
    let passed: Vec<_> = ["one", "two"].map(|name| passed_on(&repository, &scene.nodes[name]).ok()).into();
    assert!(passed == ["one", "two"].map(|name| Some(scene.expected[name].clone())));
}

/// Bytes of a frame, at most.
const FRAME_BYTES: usize = 600 << 10;

/// A store to which so many requests may be sent at once. It counts reads of containers.
struct CountedStore {
    inner: Arc<dyn Store>,
    requests_max: usize,
    /// Ranges of more than a frame that cover this offset cannot be read.
    refused_at: Option<u64>,
    reads: Arc<AtomicU64>,
}

impl Double for CountedStore {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> fhrd::Result<Vec<u8>> {
        self.reads.fetch_add(u64::from(name.starts_with("containers/")), Ordering::Relaxed);
        if len > FRAME_BYTES && self.refused_at.is_some_and(|at| (offset..offset + len as u64).contains(&at)) {
            let source = std::io::Error::other("a bad sector");
            return Err(fhrd::Error::Unreadable { what: name.to_string(), offset, source });
        }
        self.inner.get_range(name, offset, len, Reading::Once)
    }

    fn requests_max(&self) -> usize {
        self.requests_max
    }
}

double_store!(CountedStore);

#[test]
fn neighbours_in_a_store_that_is_far_away_are_fetched_with_one_request() {
    let mut config = TestRepository::config();
    // A frame for each chunk, as tensors have them.
    config.compress.frame_bytes = ByteSize(0);
    config.container.bytes_target = ByteSize::mib(8);
    let scene = Scene::with(&config);
    let count = |requests_max: usize, refused_at: Option<u64>| {
        let (reads, repository) = (Arc::<AtomicU64>::default(), scene._stored.open());
        let store = CountedStore { inner: repository.store.clone(), requests_max, refused_at, reads: reads.clone() };
        let repository = Repository { store: Arc::new(store), ..repository };
        assert!(passed_on(&repository, &scene.nodes["one"]).unwrap() == scene.expected["one"]);
        let counted = reads.load(Ordering::Relaxed);
        // A part of a file, from the middle of a chunk on.
        let (mut bytes, node) = (Vec::new(), &scene.nodes["two"]);
        let file = Reader::open(&repository).unwrap().file(node.content, node.size).unwrap();
        let copied = file.copy((1_000_000, 4_000_000), &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        });
        assert!(copied.is_ok() && bytes == scene.expected["two"][1_000_000..4_000_000]);
        counted
    };
    let (near, far, refused) = (count(1, None), count(8, None), count(8, Some(3_000_000)));
    assert!(far + 20 < near, "{far} of {near} reads");
    // A long range that cannot be read is asked for once, not for each of its frames.
    assert!(refused <= near, "{refused} reads, {near} of single frames");
}

#[test]
fn a_short_file_is_in_memory_when_it_is_read_again() {
    let mut config = TestRepository::config();
    config.compress.frame_bytes = ByteSize(0);
    let scene = Scene::with(&config);
    let (reads, repository) = (Arc::<AtomicU64>::default(), scene._stored.open());
    let counted =
        CountedStore { inner: repository.store.clone(), requests_max: 8, refused_at: None, reads: reads.clone() };
    let reader = Reader::open(&Repository { store: Arc::new(counted), ..repository }).unwrap();
    let (file, whole) = (scene.file(&reader, "one"), &scene.expected["one"]);
    let read = |keeps: bool| {
        let (mut bytes, before) = (Vec::new(), reads.load(Ordering::Relaxed));
        let range = (0, whole.len() as u64);
        let mut write = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        let copied = if keeps { file.copy_keeping_short(range, &mut write) } else { file.copy(range, &mut write) };
        copied.unwrap();
        assert!(bytes == *whole);
        reads.load(Ordering::Relaxed) - before
    };
    // What is passed on is gone, and what is kept is there for both.
    assert!(read(false) > 0 && read(false) > 0 && read(true) > 0);
    assert_eq!([read(false), read(true)], [0, 0]);
    // A chunk that was read alone is not fetched with its neighbours.
    let file = scene.file(&reader, "two");
    let fetched = |from: u64, to: u64| {
        let before = reads.load(Ordering::Relaxed);
        file.copy((from, to), &mut |_| Ok(())).unwrap();
        reads.load(Ordering::Relaxed) - before
    };
    file.copy_keeping((2_500_000, 2_500_001), &mut |_| Ok(())).unwrap();
    assert_eq!(fetched(2_500_000, 2_500_001), 0);
    assert!(fetched(0, 5_000_000) > 1);
}
