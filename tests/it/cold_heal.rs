//! Damage of the header, the index and the footer of a cold container heals from its hot index, and the reverse.

use std::fs;
use std::sync::Arc;

use fhrd::config::RepositoryConfig;
use fhrd::error::Error;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::cold::set;
use fhrd::repo::container::{ContainerKind, FOOTER_BYTES, HEADER_BYTES, blob_name, parse_name, read_kind};
use fhrd::repo::heal::{HealReport, heal};
use fhrd::repo::parity;
use fhrd::store::{BlobKind, BlobName, Durable, MemoryStore, ObservedStore, Reading, Store, StoreCall, StoreObserver};

use crate::cli::fixture::{Home, code, json, stderr, stdout};
use crate::cold::run_check;
use crate::flips::{back_up, offsets};
use crate::input::write;
use crate::parity::{lost_files, open, share, unlock};
use crate::trees::Random;

const SECTOR: usize = 512;
const REPOSITORY: &str = "data/fhrd/repository";

/// A cold repository with one snapshot of `files` files of `len` bytes.
struct Scene {
    store: Arc<MemoryStore>,
    source: tempfile::TempDir,
    snapshot: String,
    /// Its data container.
    name: BlobName,
    bytes: Vec<u8>,
}

impl Scene {
    fn new(is_encrypted: bool, files: usize, len: usize) -> Self {
        let (store, config) = (Arc::new(MemoryStore::new()), RepositoryConfig::default());
        let repository = match is_encrypted {
            true => Repository::init_encrypted(store.clone(), &config, None, &unlock(), "test").unwrap(),
            false => Repository::init(store.clone(), &config).unwrap(),
        };
        set(&repository, true).unwrap();
        let (source, mut random) = (tempfile::tempdir().unwrap(), Random(4));
        (0..files).for_each(|number| write(source.path().join(number.to_string()), &random.bytes(len)));
        let snapshot = back_up(&repository, source.path());
        let listed = store.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name);
        let is_data = |name: &BlobName| {
            read_kind(repository.store.as_ref(), name, Reading::FromStore).unwrap() == ContainerKind::Data
        };
        let [name] = listed.filter(is_data).collect::<Vec<_>>().try_into().unwrap();
        let bytes = store.get(&name, 1 << 30).unwrap();
        Scene { store, source, snapshot, name, bytes }
    }

    /// Where the container index of a repository begins that is not encrypted.
    fn index_at(&self) -> usize {
        let footer = &self.bytes[self.bytes.len() - FOOTER_BYTES..];
        u64::from_le_bytes(footer[..8].try_into().unwrap()) as usize
    }

    fn hot_index(&self) -> BlobName {
        BlobName::hot_index_of(&self.name.hash().unwrap())
    }

    /// Fails unless the container with these bytes in its place is sound for readers, and is written back.
    fn assert_heals(&self, damaged: &[u8], what: &str) {
        self.store.replace(&self.name, damaged);
        let repository = open(&self.store);
        let report = run_check(&repository, true).unwrap();
        assert_eq!((report.defects.clone(), report.hot_indexes.rebuilt), (Vec::new(), 1), "{what}: {report:#?}");
        assert_eq!((report.defect_count, report.containers_healed), (0, 1), "{what}: {report:#?}");
        assert!(report.notes.iter().any(|note| note.contains(self.name.as_str())), "{what}: {:?}", report.notes);
        assert!(self.store.get(&self.name, 1 << 30).unwrap() == damaged, "{what}: a check has written");
        assert_eq!(lost_files(&open(&self.store), &self.snapshot, self.source.path(), what), [""; 0]);
        let healed = heal(&repository, &report.healable).unwrap();
        assert_eq!(healed, HealReport { containers: 1, ..HealReport::default() }, "{what}");
        assert!(self.store.get(&self.name, 1 << 30).unwrap() == self.bytes, "{what}: byte for byte");
        let report = run_check(&open(&self.store), true).unwrap();
        assert_eq!((report.defect_count, report.containers_healed), (0, 0), "{what}: {report:#?}");
    }
}

#[test]
fn a_hot_index_heals_every_byte_of_a_container_outside_its_frames() {
    let scene = Scene::new(false, 3, 700);
    let (len, index_at) = (scene.bytes.len(), scene.index_at());
    let mut damages = 0;
    let header = offsets(HEADER_BYTES, 1, 3);
    for at in header.chain(offsets(len - index_at, 1, 11).map(|at| index_at + at)).chain([len - 1]) {
        let mut damaged = scene.bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        scene.assert_heals(&damaged, &format!("byte {at} of {len}"));
        damages += 1;
    }
    for cut in offsets(len - index_at, 1, 29).map(|at| index_at + at) {
        scene.assert_heals(&scene.bytes[..cut], &format!("{cut} of {len} bytes"));
        damages += 1;
    }
    for range in [0..HEADER_BYTES, index_at..len, index_at..(index_at + SECTOR).min(len)] {
        let mut damaged = scene.bytes.clone();
        damaged[range.clone()].fill(0);
        scene.assert_heals(&damaged, &format!("zeros at {range:?} of {len}"));
        damages += 1;
    }
    eprintln!("{damages} damages of {len} bytes");
    scene.assert_heals(&[&scene.bytes[..], b"more"].concat(), "bytes behind the end");
}

#[test]
fn what_is_damaged_in_its_frames_too_is_not_written_back() {
    let scene = Scene::new(false, 3, 700);
    let mut damaged = scene.bytes.clone();
    damaged[HEADER_BYTES + 40] ^= 1;
    *damaged.last_mut().unwrap() ^= 1;
    scene.store.replace(&scene.name, &damaged);
    let repository = open(&scene.store);
    let report = run_check(&repository, true).unwrap();
    assert!(report.defect_count > 0 && report.bad_frames > 0 && report.hot_indexes.rebuilt == 0, "{report:#?}");
    assert_eq!(heal(&repository, &report.healable).unwrap(), HealReport::default());
    assert!(scene.store.get(&scene.name, 1 << 30).unwrap() == damaged);
}

#[test]
fn frames_that_are_cut_off_are_noticed_without_a_read_of_data_and_stored_again() {
    for is_encrypted in [false, true] {
        let len = Scene::new(is_encrypted, 3, 700).bytes.len();
        for cut in [HEADER_BYTES + 100, len / 2] {
            let (scene, what) = (Scene::new(is_encrypted, 3, 700), format!("{cut} of {len} bytes"));
            scene.store.replace(&scene.name, &scene.bytes[..cut]);
            let report = run_check(&open(&scene.store), false).unwrap();
            assert!(report.defect_count > 0 && report.bad_containers == 1, "{what}: {report:#?}");
            let snapshot = back_up(&open(&scene.store), scene.source.path());
            assert_eq!(lost_files(&open(&scene.store), &snapshot, scene.source.path(), &what), [""; 0]);
        }
    }
}

/// A block that is sealed is lost with any byte of it. The last ones of this container hold nothing but its index.
#[test]
fn a_hot_index_heals_sealed_blocks_of_an_index_and_gives_the_same_sealed_bytes() {
    let scene = Scene::new(true, 1200, 40);
    let len = scene.bytes.len();
    assert!(len > 40_000, "{len}");
    for at in [len - 1, len - 2000] {
        let mut damaged = scene.bytes.clone();
        damaged[at] ^= 1;
        scene.assert_heals(&damaged, &format!("byte {at} of {len}"));
    }
    let mut damaged = scene.bytes.clone();
    damaged[2000] ^= 1;
    scene.store.replace(&scene.name, &damaged);
    let report = run_check(&open(&scene.store), true).unwrap();
    assert!(report.defect_count > 0 && report.healable.containers.is_empty(), "{report:#?}");
}

#[test]
fn a_hot_index_is_made_again_from_a_sound_container() {
    let scene = Scene::new(false, 3, 700);
    let hot_index = scene.store.get(&scene.hot_index(), 1 << 30).unwrap();
    let mut damages: Vec<Option<Vec<u8>>> = vec![None];
    damages.extend(offsets(hot_index.len(), 1, 97).map(|at| {
        let mut flipped = hot_index.clone();
        flipped[at] ^= 1 << (at % 8);
        Some(flipped)
    }));
    damages.extend(offsets(hot_index.len(), 1, 97).map(|len| Some(hot_index[..len].to_vec())));
    eprintln!("{} damages of {} bytes", damages.len(), hot_index.len());
    for damaged in damages {
        match &damaged {
            None => scene.store.delete(&scene.hot_index(), Durable::OnReturn).unwrap(),
            Some(bytes) => scene.store.replace(&scene.hot_index(), bytes),
        }
        let repository = open(&scene.store);
        assert!(run_check(&repository, false).unwrap().healable.hot_indexes.is_empty(), "the container was not read");
        let report = run_check(&repository, true).unwrap();
        let healed = heal(&repository, &report.healable).unwrap();
        assert_eq!(healed, HealReport { hot_indexes: 1, ..HealReport::default() });
        assert!(scene.store.get(&scene.hot_index(), 1 << 30).unwrap() == hot_index);
    }
}

#[test]
fn what_a_prune_may_be_deleting_is_left() {
    let scene = Scene::new(false, 3, 700);
    let mut damaged = scene.bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    scene.store.replace(&scene.name, &damaged);
    let repository = open(&scene.store);
    let id = parse_name(&scene.name).unwrap();
    assert_eq!(blob_name(&id), scene.name);
    let salt = repository.salts.draw().unwrap();
    ContainerClaim::put(scene.store.as_ref(), ClaimKind::Pending, &salt, &[id].into()).unwrap();
    let report = run_check(&repository, true).unwrap();
    let healed = heal(&repository, &report.healable).unwrap();
    assert_eq!((healed.containers, healed.left.len()), (0, 1), "{healed:?}");
    assert!(scene.store.get(&scene.name, 1 << 30).unwrap() == damaged);
}

/// The path of the largest container, and of its hot index.
fn paths(home: &Home) -> (String, String) {
    let directories = home.names(&format!("{REPOSITORY}/containers"));
    let names = directories.iter().flat_map(|directory| {
        let directory = format!("containers/{directory}");
        home.names(&format!("{REPOSITORY}/{directory}")).into_iter().map(move |name| format!("{directory}/{name}"))
    });
    let largest = names.max_by_key(|name| home.read(&format!("{REPOSITORY}/{name}")).len()).unwrap();
    let hash = largest.rsplit_once('/').unwrap().1;
    (format!("{REPOSITORY}/{largest}"), format!("{REPOSITORY}/indexes/{hash}.index"))
}

#[test]
fn the_commands_say_what_heals_what_is_left_and_why() {
    let home = Home::new();
    json(&home.run(&["init", "--cold", "--json"]));
    let mut random = Random(2);
    (0..30).for_each(|number| home.write(&format!("directory/{number}"), &random.bytes(20_000)));
    home.backup(&["directory"]);
    let (container, hot_index) = paths(&home);
    let (whole, hot) = (home.read(&container), home.read(&hot_index));

    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    home.write(&container, &damaged);
    let output = home.run(&["check", "--read-data"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("--heal") && home.read(&container) == damaged, "{}", stderr(&output));
    let output = home.run(&["check", "--read-data", "--heal"]);
    assert!(code(&output) == 0 && stdout(&output).contains("healed          1 blobs"), "{}", stdout(&output));
    assert!(home.read(&container) == whole);

    // Nothing gives these bytes back: the frame is there once.
    let mut damaged = whole.clone();
    damaged[1000] ^= 1;
    home.write(&container, &damaged);
    let output = home.run(&["check", "--read-data", "--heal"]);
    let (errors, name) = (stderr(&output), container.rsplit_once('/').unwrap().1);
    assert!(code(&output) == 20 && stdout(&output).contains("; 1 left"), "{}", stdout(&output));
    assert!(errors.contains(&format!("{name}: nothing gives its bytes back")), "{errors}");
    let of_chunks: Vec<&str> = errors.lines().filter(|line| line.contains("entry ")).collect();
    assert!(of_chunks.len() == 1 && of_chunks[0].contains("chunks cannot be read"), "{errors}");

    // A container that cannot be indexed is damaged, which is not what other failures are.
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    home.write(&container, &damaged);
    fs::remove_file(home.path(&hot_index)).unwrap();
    let output = home.run(&["cold", "add"]);
    assert!(code(&output) == 20 && stdout(&output).contains("0 cold, 1 damaged"), "{}", stdout(&output));
    home.write(&container, &whole);
    let output = home.run(&["check", "--read-data", "--heal"]);
    assert!(stdout(&output).contains("1 hot indexes; 0 left"), "{}", stdout(&output));
    assert!(home.read(&hot_index) == hot && code(&home.run(&["cold", "add"])) == 0);
    let output = home.run(&["snapshots", "--storage-class", "snapshots=GLACIER"]);
    assert!(code(&output) == 2 && stderr(&output).contains("only containers may be"), "{}", stderr(&output));
}

/// Refuses reads of the parity of a container, as a bucket does in whose GLACIER it is.
struct FrozenParity(String);

impl StoreObserver for FrozenParity {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        let is_read = matches!(call, StoreCall::Get | StoreCall::GetRange | StoreCall::StoredHash);
        if is_read && name == self.0 { Err(Error::Cold { what: name.into() }) } else { Ok(0) }
    }
}

#[test]
fn cold_parity_hides_no_damage() {
    let scene = Scene::new(false, 3, 700);
    let repository = open(&scene.store);
    parity::set(&repository, share()).unwrap();
    parity::add(&repository, &Progress::default(), &Arc::default()).unwrap();
    let parity = BlobName::parity_of(&scene.name.hash().unwrap());
    let frozen = || -> Repository {
        let observer = FrozenParity(parity.to_string());
        crate::cold::open(Arc::new(ObservedStore::with(scene.store.clone(), observer)))
    };
    let report = run_check(&frozen(), true).unwrap();
    assert_eq!((report.defect_count, report.parity_cold), (0, 1), "{report:#?}");
    let mut damaged = scene.bytes.clone();
    damaged[HEADER_BYTES + 40] ^= 1;
    scene.store.replace(&scene.name, &damaged);
    let repository = frozen();
    let report = crate::flips::run_check(&repository);
    assert!(report.bad_frames == 1 && report.defect_count > 0 && report.parity_cold == 1, "{report:#?}");
    assert_eq!(repository.parity.cold(), std::slice::from_ref(&parity));
    let snapshot = back_up(&frozen(), scene.source.path());
    assert_eq!(lost_files(&frozen(), &snapshot, scene.source.path(), "stored again"), [""; 0]);
    assert_eq!(lost_files(&open(&scene.store), &scene.snapshot, scene.source.path(), "thawed"), [""; 0]);
}
