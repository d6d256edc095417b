//! Requests to a bucket that go wrong on the wire. A single fault is invisible; a server that stays away gives a clear
//! error; afterwards every reported snapshot restores byte for byte.

mod classes;
mod healed;
mod locks;
mod puts;
pub mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::crypto::{KeySlot, SecretBytes, Unlock};
use fhrd::inspect::check::check;
use fhrd::keep::{PruneOptions, forget, prune};
use fhrd::metrics::Progress;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::{Repository, keys, snapshot};
use fhrd::restore::restore;
use fhrd::store::{AccessKey, BlobKind, Patience, Store, StoreOptions, open_with};

use crate::interleavings::scene::no_grace;
use crate::trees::{Looks, Random, assert_same, describe};
use server::{ACCESS_KEY, Behaviour, S3Server, StoredObjects, WireFault};

const LOCATION: &str = "s3://bucket/some/prefix";

/// Tries again at once, and does not wait long for an answer.
fn patience() -> Patience {
    Patience {
        first_tries: 5,
        tries: 5,
        wait: Duration::from_millis(1),
        wait_max: Duration::from_millis(4),
        total: Duration::from_secs(60),
        idle: Duration::from_millis(500),
    }
}

/// The store below the prefix of the tests.
pub fn open(server: &S3Server) -> Arc<dyn Store> {
    open_with(LOCATION, &options(server)).unwrap()
}

pub fn options(server: &S3Server) -> StoreOptions {
    StoreOptions {
        endpoint: Some(server.endpoint()),
        access_key: Some(AccessKey { id: ACCESS_KEY.into(), secret: "secret".into() }),
        patience: patience(),
        ..StoreOptions::default()
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.container.bytes_target = ByteSize::mib(1);
    config.pipeline.workers = 1;
    config.read.recheck_seconds = 1;
    config
}

/// A source that changes once, and what a bucket has after backups of both states.
struct Scene {
    server: S3Server,
    /// How the server behaves but for faults.
    behaviour: Behaviour,
    source: tempfile::TempDir,
    states: [BTreeMap<String, Looks>; 2],
}

impl Scene {
    fn new() -> Self {
        let source = tempfile::tempdir().unwrap();
        let mut random = Random(5);
        fs::write(source.path().join("old"), random.bytes(1_500_000)).unwrap();
        fs::write(source.path().join("text"), random.text(30_000)).unwrap();
        let first = describe(source.path());
        let mut scene = Scene {
            server: S3Server::start(),
            behaviour: Behaviour::default(),
            source,
            states: [first, BTreeMap::new()],
        };
        scene.states[1] = scene.states[0].clone();
        scene
    }

    /// Changes the source to its second state.
    fn change(&mut self) {
        fs::remove_file(self.source.path().join("old")).unwrap();
        fs::write(self.source.path().join("new"), Random(6).bytes(20_000)).unwrap();
        self.states[1] = describe(self.source.path());
    }

    fn back_up(&self, repository: &Repository) -> fhrd::Result<String> {
        let paths = vec![self.source.path().into()];
        let request = BackupRequest::new(TreeSource::new(paths, "test"));
        Ok(backup(repository, &config(), &request, &Progress::default(), &Arc::default())?.snapshot)
    }

    fn assert_restores(&self, repository: &Repository, id: &str, state: usize, what: &str) {
        let directory = tempfile::tempdir().unwrap();
        self.restore(repository, id, directory.path()).unwrap();
        let restored = directory.path().join(self.source.path().strip_prefix("/").unwrap());
        assert_same(&self.states[state], &describe(&restored), what);
    }

    fn restore(&self, repository: &Repository, id: &str, target: &Path) -> fhrd::Result<()> {
        let named = snapshot::find(repository.store.as_ref(), id)?;
        let progress = Progress::default();
        let report = restore(repository, &config(), &named, target, &progress, &Arc::default())?;
        assert_eq!((report.damaged, report.problems), (0, 0));
        Ok(())
    }

    /// Sets the bucket to `objects`, forgets what is cached, and lets the server behave.
    fn reset(&self, objects: &StoredObjects) {
        self.server.behave(self.behaviour.clone());
        self.server.locks().clear();
        if let Ok(repository) = Repository::open(open(&self.server)) {
            forget_cache(&repository);
        }
        *self.server.objects() = objects.clone();
    }

    /// Runs `work` once for each fault at each of its requests; without the variable `FHRD_WIRE_FAULTS`, for a third of
    /// the faults, others at each request. It must succeed each time. `verify` looks afterwards.
    fn with_each_fault<T>(
        &self,
        objects: &StoredObjects,
        work: impl Fn() -> fhrd::Result<T>,
        verify: impl Fn(T, &str),
    ) {
        let all = std::env::var_os("FHRD_WIRE_FAULTS").is_some();
        self.reset(objects);
        work().unwrap();
        let requests = self.server.seen();
        assert!(requests.len() > 3, "{requests:?}");
        for (number, request) in requests.iter().enumerate() {
            // A lost answer takes the time of a timeout, and to reads it is like a closed connection.
            let is_slow = |fault| fault == WireFault::NoAnswer && request.method == "GET" && number % 10 > 0;
            let faults = WireFault::ALL.into_iter().filter(|fault| fault.concerns(request) && !is_slow(*fault));
            for (_, fault) in faults.enumerate().filter(|(index, _)| all || (index + number).is_multiple_of(3)) {
                let what = format!("{fault:?} at request {number}, {request:?}");
                self.reset(objects);
                let fault = Some((number..number + 1, fault));
                self.server.behave(Behaviour { fault, ..self.behaviour.clone() });
                let done = work().unwrap_or_else(|error| panic!("{what}: {error}"));
                self.server.behave(self.behaviour.clone());
                verify(done, &what);
            }
        }
    }
}

fn forget_cache(repository: &Repository) {
    if let Ok(cache) = cache_directory(repository) {
        let _ = fs::remove_dir_all(cache);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.reset(&StoredObjects::new());
    }
}

fn assert_sound(repository: &Repository, what: &str) {
    let report = check(repository, &config(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, Vec::<String>::new(), "{what}");
}

#[test]
fn any_request_of_a_first_backup_may_go_wrong() {
    let scene = Scene::new();
    let work = || {
        let repository = Repository::init(open(&scene.server), &config().repository)?;
        let id = scene.back_up(&repository)?;
        forget_cache(&repository);
        Ok(id)
    };
    scene.with_each_fault(&StoredObjects::new(), work, |id, what| {
        let repository = Repository::open(open(&scene.server)).unwrap();
        assert_sound(&repository, what);
        scene.assert_restores(&repository, &id, 0, what);
    });
}

#[test]
fn any_request_of_a_restore_may_go_wrong() {
    let scene = Scene::new();
    let repository = Repository::init(open(&scene.server), &config().repository).unwrap();
    let id = scene.back_up(&repository).unwrap();
    let objects = scene.server.objects().clone();
    let work = || {
        let repository = Repository::open(open(&scene.server))?;
        scene.assert_restores(&repository, &id, 0, "with a fault");
        Ok(())
    };
    scene.with_each_fault(&objects, work, |(), _| {});
}

#[test]
fn any_request_of_a_prune_may_go_wrong() {
    let mut scene = Scene::new();
    let repository = Repository::init(open(&scene.server), &config().repository).unwrap();
    let first = scene.back_up(&repository).unwrap();
    scene.change();
    let second = scene.back_up(&repository).unwrap();
    let objects = scene.server.objects().clone();
    let work = || {
        let repository = Repository::open(open(&scene.server))?;
        forget(&repository, &[snapshot::find(repository.store.as_ref(), &first)?.id])?;
        let options = PruneOptions { container_bytes: 1 << 20, ..no_grace() };
        prune(&repository, &options, &Arc::default())
    };
    scene.with_each_fault(&objects, work, |report, what| {
        assert!(report.containers_deleted > 0, "{what}: {report:?}");
        let repository = Repository::open(open(&scene.server)).unwrap();
        scene.assert_restores(&repository, &second, 1, what);
        assert_eq!(repository.store.list(BlobKind::Pending.into()).unwrap(), [], "{what}");
    });
}

#[test]
fn any_request_of_a_key_change_may_go_wrong() {
    let scene = Scene::new();
    let unlock = |byte: u8| Unlock::KeyFile(SecretBytes::new(vec![byte; 32]));
    Repository::init_encrypted(open(&scene.server), &config().repository, None, &unlock(1), "first").unwrap();
    let objects = scene.server.objects().clone();
    let work = || {
        let repository = Repository::open_with(open(&scene.server), &|| Ok(unlock(1)))?;
        let encryption = repository.encryption.as_ref().unwrap();
        let slot = KeySlot::new(&encryption.keyring, &unlock(2), "second", encryption.suite)?;
        keys::put(repository.store.as_ref(), &slot)?;
        keys::remove(repository.store.as_ref(), &encryption.slot)
    };
    scene.with_each_fault(&objects, work, |(), what| {
        assert!(Repository::open_with(open(&scene.server), &|| Ok(unlock(1))).is_err(), "{what}");
        Repository::open_with(open(&scene.server), &|| Ok(unlock(2))).unwrap();
    });
}

#[test]
fn a_server_that_stays_away_gives_an_error_and_costs_no_reported_snapshot() {
    let mut scene = Scene::new();
    let repository = Repository::init(open(&scene.server), &config().repository).unwrap();
    let first = scene.back_up(&repository).unwrap();
    scene.change();
    let objects = scene.server.objects().clone();
    let second = || scene.back_up(&Repository::open(open(&scene.server))?);
    second().unwrap();
    let count = scene.server.seen().len();
    scene.server.behave(Behaviour::default());
    for number in 0..count {
        let fault = if number % 2 == 0 { WireFault::SlowDown } else { WireFault::Closed };
        let what = format!("{fault:?} from request {number} on");
        scene.reset(&objects);
        scene.server.behave(Behaviour { fault: Some((number..usize::MAX, fault)), ..Behaviour::default() });
        let reported = second();
        scene.server.behave(Behaviour::default());
        let repository = Repository::open(open(&scene.server)).unwrap();
        match reported {
            Ok(id) => scene.assert_restores(&repository, &id, 1, &what),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(LOCATION) && text.contains("tried 5 times"), "{what}: {text}");
            }
        }
        scene.assert_restores(&repository, &first, 0, &what);
        let again = second().unwrap();
        scene.assert_restores(&repository, &again, 1, &what);
    }
}
