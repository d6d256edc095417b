//! What a bad sector costs: reads of some bytes of a blob fail as the device reports it, and all else works.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bytesize::ByteSize;
use fhrd::backup::{BackupReport, BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::Config;
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::container::parse_name;
use fhrd::repo::index::read_container_index;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::restore::{DamagedFile, RestoreReport, restore};
use fhrd::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, PutOptions, Reading, Store, StoreExt,
};
use fhrd::{Error, Result};

use crate::double::{Double, double_store};
use crate::trees::Random;

const FILES: usize = 8;
/// Linux and macOS agree on this number of an input/output error.
const EIO: i32 = 5;

/// A store whose device cannot read some bytes.
pub struct BadSectors {
    pub inner: Arc<dyn Store>,
    /// A blob that listings leave out, as those of a share that comes and goes.
    pub hidden: Mutex<Option<String>>,
    pub bad: Mutex<BTreeMap<String, Range<u64>>>,
}

impl BadSectors {
    fn check(&self, name: &str, range: Range<u64>) -> Result<()> {
        let bad = self.bad.lock().unwrap();
        let Some(found) = bad.get(name).filter(|bad| bad.start < range.end && range.start < bad.end) else {
            return Ok(());
        };
        let (offset, source) = (found.start.max(range.start), io::Error::from_raw_os_error(EIO));
        Err(Error::Unreadable { what: name.into(), offset, source })
    }
}

double_store!(BadSectors);

impl Double for BadSectors {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        self.inner.put_if_absent(name, parts)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]]) -> Result<()> {
        self.inner.overwrite(name, parts, PutOptions::default())?;
        // The new file has other sectors.
        self.bad.lock().unwrap().remove(name.as_str());
        Ok(())
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.check(name, 0..u64::MAX)?;
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.check(name, offset..offset + len as u64)?;
        self.inner.get_range(name, offset, len, Reading::Once)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.inner.head(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        let bad = self.bad.lock().unwrap();
        // A name that ends with a slash is a directory that cannot be listed.
        let is_within = |name: &String| format!("{name}/").starts_with(&format!("{prefix}/"));
        if let Some(name) = bad.keys().find(|name| name.ends_with('/') && is_within(name)) {
            return Err(Error::Unreadable { what: name.clone(), offset: 0, source: io::Error::from_raw_os_error(EIO) });
        }
        drop(bad);
        let hidden = self.hidden.lock().unwrap().clone();
        let listed = self.inner.list(prefix)?.into_iter();
        Ok(listed.filter(|blob| hidden.as_deref() != Some(blob.name.as_str())).collect())
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.inner.delete(name, Durable::OnReturn)
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.container.bytes_target = ByteSize::mib(1);
    config.compress.frame_bytes = ByteSize::kib(64);
    config.pipeline.workers = 1;
    config
}

/// A repository over bad sectors, and a source of files that it holds.
struct Scene {
    directory: tempfile::TempDir,
    repository: Repository,
    store: Arc<BadSectors>,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir(&source).unwrap();
        let mut random = Random(7);
        for number in 0..FILES {
            // Six bits of noise in every byte, so that frames have the configured length.
            let bytes: Vec<u8> = random.bytes(900_000).into_iter().map(|byte| b' ' + byte % 64).collect();
            fs::write(source.join(format!("file-{number}")), bytes).unwrap();
        }
        let mut repository = Repository::init_at(directory.path().join("repository"), &config().repository).unwrap();
        let store =
            Arc::new(BadSectors { inner: repository.store.clone(), hidden: Mutex::default(), bad: Mutex::default() });
        repository.store = store.clone();
        Scene { directory, repository, store }
    }

    fn back_up(&self, force: bool) -> BackupReport {
        let paths = vec![self.directory.path().join("source")];
        let request = BackupRequest::new(TreeSource {
            parents: ParentChoice::new(force, None),
            ..TreeSource::new(paths, "test")
        });
        let stop = Arc::new(AtomicBool::new(false));
        backup(&self.repository, &config(), &request, &Progress::default(), &stop).unwrap()
    }

    /// Restores a snapshot, demands that each file is whole or absent, and returns the report and the absent files.
    fn restored(&self, id: &str) -> (RestoreReport, Vec<usize>) {
        let target = tempfile::tempdir().unwrap();
        let named = snapshot::find(self.repository.store.as_ref(), id).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let report = restore(&self.repository, &config(), &named, target.path(), &Progress::default(), &stop).unwrap();
        let source = self.directory.path().join("source");
        let below = target.path().join(source.strip_prefix("/").unwrap());
        let is_absent = |number: &usize| {
            let name = format!("file-{number}");
            let Ok(bytes) = fs::read(below.join(&name)) else { return true };
            assert!(bytes == fs::read(source.join(&name)).unwrap(), "{name} is not what was stored");
            false
        };
        let absent: Vec<usize> = (0..FILES).filter(is_absent).collect();
        for file in &report.damaged_files {
            let saved_as = file.saved_as.as_ref().map(|saved_as| fs::read(target.path().join(saved_as)).unwrap());
            let mut bytes = fs::read(Path::new("/").join(&file.path)).unwrap();
            for [offset, len] in &file.lost {
                bytes[*offset as usize..(offset + len) as usize].fill(0);
            }
            assert!(saved_as.is_none_or(|saved_as| saved_as == bytes), "{file:?}");
        }
        assert!(report.damaged_files.len() <= absent.len() + usize::from(!below.join("extra").exists()));
        (report, absent)
    }

    /// Offsets and lengths of the frames of a container.
    fn frames(&self, name: &str) -> Vec<Range<u64>> {
        let id = parse_name(name).unwrap();
        let index = read_container_index(self.store.as_ref(), &id).unwrap();
        index.frames.iter().map(|frame| frame.offset..frame.offset + frame.stored_bytes() as u64).collect()
    }

    /// Names and lengths of the containers of file content.
    fn containers(&self) -> Vec<ListedBlob> {
        let listed = self.store.list(BlobKind::Container.into()).unwrap();
        listed.into_iter().filter(|listed| listed.len > 500_000).collect()
    }

    fn spoil(&self, name: &str, range: Range<u64>) {
        *self.store.bad.lock().unwrap() = BTreeMap::from([(name.to_string(), range)]);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Ok(cache) = cache_directory(&self.repository) {
            let _ = fs::remove_dir_all(cache);
        }
    }
}

#[test]
fn an_unreadable_range_of_a_container_costs_only_the_files_that_touch_it() {
    let scene = Scene::new();
    let first = scene.back_up(false).snapshot;
    let containers = scene.containers();
    assert!(containers.len() >= 4, "{containers:?}");
    for container in &containers {
        scene.spoil(&container.name, container.len / 2..container.len / 2 + 4096);
        let (report, absent) = scene.restored(&first);
        assert!((1..=2).contains(&absent.len()) && report.problems == 0, "{}: {absent:?}", container.name);
        assert_eq!((report.files, report.damaged), ((FILES - absent.len()) as u64, absent.len() as u64));
        assert!(report.damaged_files.iter().all(|file| file.saved_as.is_some()), "{report:?}");
        // The header of the container, and the footer behind its index.
        for range in [0..64, container.len - 100..container.len] {
            scene.spoil(&container.name, range);
            let (_, absent) = scene.restored(&first);
            assert!((1..=3).contains(&absent.len()), "{}: {absent:?}", container.name);
        }
    }
}

#[test]
fn an_unreadable_recipe_costs_its_file_and_nothing_is_lost_without_a_report() {
    let scene = Scene::new();
    scene.back_up(false);
    // The second snapshot has a whole listing of its own, as it has no parent, and the recipes of the first.
    fs::write(scene.directory.path().join("source/extra"), b"extra").unwrap();
    let second = scene.back_up(true).snapshot;
    let (mut lost_recipes, mut lost_directories) = (0, 0);
    for container in scene.store.list(BlobKind::Container.into()).unwrap() {
        let is_metadata = container.len <= 500_000;
        for range in scene.frames(&container.name).into_iter().step_by(if is_metadata { 1 } else { 12 }) {
            scene.spoil(&container.name, range.start..range.start + 1);
            let (report, absent) = scene.restored(&second);
            let damaged = report.damaged_files.len();
            if damaged as u64 != report.damaged {
                lost_directories += 1;
                continue;
            }
            assert_eq!((report.files as usize, report.problems), (FILES + 1 - damaged, 0));
            if damaged == 0 {
                assert!(absent.is_empty());
                continue;
            }
            let is_all = |file: &DamagedFile| file.lost == [[0, 900_000]] && file.saved_as.is_none();
            lost_recipes += u64::from(report.damaged_files.iter().all(is_all));
        }
    }
    assert!(lost_recipes > 0 && lost_directories > 0, "{lost_recipes} {lost_directories}");
}

#[test]
fn a_backup_that_meets_an_unreadable_base_or_index_succeeds() {
    let scene = Scene::new();
    scene.back_up(false);
    let containers = scene.containers();
    for (number, container) in containers.iter().enumerate() {
        // Each later version looks for bases in the container.
        for file in 0..FILES {
            let path = scene.directory.path().join(format!("source/file-{file}"));
            let mut bytes = fs::read(&path).unwrap();
            let at = 100_000 * (number + 1);
            bytes.splice(at..at, *b"an insertion");
            fs::write(path, bytes).unwrap();
        }
        let half = container.len / 2;
        for range in [half..half + 4096, 0..64, container.len - 100..container.len] {
            scene.spoil(&container.name, range);
            scene.back_up(false);
        }
    }
    scene.spoil("none", 0..0);
    let last = scene.back_up(false).snapshot;
    assert!(scene.restored(&last).1.is_empty());
}

#[test]
fn a_container_on_a_bad_sector_is_replaced_when_its_chunks_are_stored_again() {
    let scene = Scene::new();
    scene.back_up(false);
    let container = scene.containers().swap_remove(0);
    scene.spoil(&container.name, container.len - 100..container.len);
    let again = scene.back_up(true).snapshot;
    assert!(scene.restored(&again).1.is_empty());
}

#[test]
fn a_directory_that_cannot_be_listed_costs_nothing_that_can_be_found_by_name() {
    let scene = Scene::new();
    let first = scene.back_up(false).snapshot;
    let container = scene.containers().swap_remove(0).name;
    let (directory, _) = container.rsplit_once('/').unwrap();
    for directory in [directory, "containers", "index", "snapshots", "models"] {
        scene.spoil(&format!("{directory}/"), 0..1);
        assert!(scene.restored(&first).1.is_empty(), "{directory}");
        let report = check(&scene.repository, &config(), false, &Progress::default(), &Arc::default()).unwrap();
        assert!(report.defects.iter().any(|defect| defect.contains(directory)), "{directory}: {report:?}");
        let extra = scene.directory.path().join("source/extra");
        fs::write(&extra, directory).unwrap();
        let next = scene.back_up(false);
        assert_eq!(scene.restored(&next.snapshot).1, [0; 0], "{directory}");
        // Without segments no container is known to be complete, so all is stored again.
        assert!(directory == "index" || next.bytes_new < 10_000, "{directory}: {} bytes", next.bytes_new);
    }
    // A mark that forbids writing may be where nobody can look.
    scene.spoil("marks/", 0..1);
    assert!(scene.restored(&first).1.is_empty());
    let paths = vec![scene.directory.path().join("source")];
    let request = BackupRequest::new(TreeSource::new(paths, "test"));
    let outcome = backup(&scene.repository, &config(), &request, &Progress::default(), &Arc::default());
    assert!(matches!(outcome, Err(Error::Unreadable { .. })), "{outcome:?}");
}

#[test]
fn what_copies_from_a_container_that_one_listing_lacks_is_stored_again() {
    let scene = Scene::new();
    scene.back_up(false);
    let first: Vec<ListedBlob> = scene.containers();
    // The second backup copies from the first.
    for file in 0..FILES {
        let path = scene.directory.path().join(format!("source/file-{file}"));
        let mut bytes = fs::read(&path).unwrap();
        bytes.splice(500_000..500_000, *b"an insertion");
        fs::write(path, bytes).unwrap();
    }
    scene.back_up(false);
    let container = first.into_iter().max_by_key(|container| container.len).unwrap();
    *scene.store.hidden.lock().unwrap() = Some(container.name.to_string());
    let report = scene.back_up(true);
    assert!(report.containers_unread > 0 && !report.is_complete(), "{report:?}");
    // It comes back, and is cut off.
    *scene.store.hidden.lock().unwrap() = None;
    scene.spoil(&container.name, 0..container.len);
    assert!(scene.restored(&report.snapshot).1.is_empty());
}

#[test]
fn no_snapshot_is_given_up_for_what_is_in_a_directory_that_cannot_be_listed() {
    let scene = Scene::new();
    let first = scene.back_up(false).snapshot;
    // No segment names the containers any more, and a directory of them cannot be listed.
    for segment in scene.store.list(BlobKind::Segment.into()).unwrap() {
        scene.store.delete(&segment.name, Durable::OnReturn).unwrap();
    }
    let containers: Vec<String> = scene.containers().into_iter().map(|container| container.name.into()).collect();
    for container in containers {
        let (directory, _) = container.rsplit_once('/').unwrap();
        scene.spoil(&format!("{directory}/"), 0..1);
        let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        let report = repair_snapshots(&scene.repository, &config(), request, &Arc::default()).unwrap();
        assert!(report.forgotten.is_empty() && report.damaged.len() == 1, "{report:?}");
        assert!(report.damaged[0].may_come_back && report.damaged[0].replaced_by.is_none(), "{report:?}");
        scene.store.bad.lock().unwrap().clear();
        assert!(scene.restored(&first).1.is_empty());
    }
}

#[test]
fn orphans_beside_a_damaged_one_are_adopted_if_their_bases_are_there() {
    let scene = Scene::new();
    scene.back_up(false);
    // The second backup copies from the first.
    for file in 0..FILES {
        let path = scene.directory.path().join(format!("source/file-{file}"));
        let mut bytes = fs::read(&path).unwrap();
        bytes.splice(500_000..500_000, *b"an insertion");
        fs::write(path, bytes).unwrap();
    }
    let second = scene.back_up(false).snapshot;
    // All segments are lost, and with them one container.
    for segment in scene.store.list(BlobKind::Segment.into()).unwrap() {
        scene.store.delete(&segment.name, Durable::OnReturn).unwrap();
    }
    let container = scene.containers().into_iter().last().unwrap();
    scene.spoil(&container.name, container.len - 100..container.len);
    let again = scene.back_up(true);
    assert!(again.containers_adopted >= 3, "{again:?}");
    assert!(again.bytes_new < FILES as u64 * 900_000 / 2, "{again:?}");
    assert!(scene.restored(&again.snapshot).1.is_empty() && !second.is_empty());
}

#[test]
fn a_container_that_the_repair_of_the_index_could_not_read_stays_in_a_segment() {
    let scene = Scene::new();
    scene.back_up(false);
    for container in scene.containers() {
        scene.spoil(&container.name, 0..container.len);
        let report = repair_index(&scene.repository, &Arc::default()).unwrap();
        assert_eq!(report.unreadable.len(), 1, "{report:?}");
        scene.store.bad.lock().unwrap().clear();
        let report = check(&scene.repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(report.defects, [""; 0], "{}", container.name);
    }
    assert_eq!(repair_index(&scene.repository, &Arc::default()).unwrap().unreadable, [""; 0]);
    assert_eq!(scene.store.list(BlobKind::Segment.into()).unwrap().len(), 1, "what was left is replaced");
}

#[test]
fn no_snapshot_is_replaced_or_deleted_while_the_device_refuses_to_read() {
    let scene = Scene::new();
    let id = scene.back_up(false).snapshot;
    let repair = || {
        let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        repair_snapshots(&scene.repository, &config(), request, &Arc::default()).unwrap()
    };
    let name = format!("snapshots/{id}");
    let names = || {
        scene.store.list(BlobKind::Snapshot.into()).unwrap().into_iter().map(|listed| listed.name).collect::<Vec<_>>()
    };
    for container in &scene.store.list(BlobKind::Container.into()).unwrap() {
        scene.spoil(&container.name, 0..container.len);
        let report = repair();
        assert!(report.damaged.iter().all(|damaged| damaged.replaced_by.is_none()), "{report:?}");
        assert_eq!(names(), [name.as_str()], "{}", container.name);
    }
    scene.spoil(&name, 0..1);
    assert_eq!(repair().unreadable.len(), 1);
    assert_eq!(names(), [name.as_str()]);
    scene.store.bad.lock().unwrap().clear();
    assert_eq!((repair().whole, names().len()), (1, 1));
    // What is written without what is really lost does not count as whole.
    scene.store.delete(&scene.containers()[0].name, Durable::OnReturn).unwrap();
    let report = repair();
    let [damaged] = report.damaged.as_slice() else { panic!("{report:?}") };
    let new = snapshot::find(scene.store.as_ref(), damaged.replaced_by.as_ref().unwrap()).unwrap();
    assert_eq!((new.snapshot.problems(), report.forgotten.len()), (damaged.dropped_count, 1));
}

#[test]
fn a_damaged_segment_that_a_repair_leaves_is_not_called_dropped() {
    let scene = Scene::new();
    scene.back_up(false);
    let segment = scene.store.list(BlobKind::Segment.into()).unwrap().remove(0);
    let container = scene.containers().remove(0);
    let directory = container.name.rsplit_once('/').unwrap().0.to_string();
    let repair = |bad: &[&str]| {
        *scene.store.bad.lock().unwrap() = bad.iter().map(|name| (name.to_string(), 0..segment.len)).collect();
        let report = repair_index(&scene.repository, &Arc::default()).unwrap();
        assert!(report.segments_damaged[0].starts_with(segment.name.as_str()), "{report:?}");
        (report.segments_staying, scene.store.inner.head(&segment.name).unwrap().is_some())
    };
    // It may name containers that nobody sees now.
    assert_eq!(repair(&[&segment.name, &format!("{directory}/")]), (vec![segment.name.to_string()], true));
    assert_eq!(repair(&[&segment.name]), (vec![], false));
}
