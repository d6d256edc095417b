//! An open repository: one method for each operation.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fhrd::backup::{BackupReport, BackupRequest, MemorySource, SnapshotLabels, TreeSource, backup};
use fhrd::config::{Config, parse_memory};
use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::error::{Error, Result};
use fhrd::filesystem::{EntryChoice, PatternsBuilder};
use fhrd::inspect::check::check;
use fhrd::inspect::list;
use fhrd::keep::{PruneOptions, SkippedRule, forget, prune};
use fhrd::metrics::Progress;
use fhrd::repair::quarantine;
use fhrd::repo::checkpoint::Checkpoint;
use fhrd::repo::marks::Marks;
use fhrd::repo::naming::{SnapshotFilter, find_snapshot};
use fhrd::repo::open::{self, Access, FirstSlot};
use fhrd::repo::paths::create_private;
use fhrd::repo::read::Reader;
use fhrd::repo::snapshot::NamedSnapshot;
use fhrd::repo::tree::{NodeKind, find_entry};
use fhrd::repo::{BlobCache, Repository, bundle, snapshot_listing};
use fhrd::restore::{Overwrite, RestoreRequest, Selection, restore};
use fhrd::store::{self, Patience, StoreExt, StoreOptions};
use fhrd::types::SnapshotId;
use pyo3::prelude::*;

use crate::call::Call;
use crate::errors::{ArgumentError, FhrdError, NotFoundError, exception};
use crate::reader::StoredBytes;
use crate::rows::{EntryRow, SnapshotRow};
use crate::source::Files;

/// Bytes of a key file, at most.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;
/// How long a prune waits for another one, or for a backup, that is in the way.
const PRUNE_PATIENCE: Duration = Duration::from_secs(30);

/// The exception for a process that came from the one that opened the repository.
pub fn forked() -> PyErr {
    FhrdError::new_err(
        "this repository was opened before this process was forked: call fhrd.open again in the new process",
    )
}

/// The process that opened a remote repository first. The threads that drive its requests are in no child of it.
static REMOTE_PROCESS: OnceLock<u32> = OnceLock::new();

/// An open repository.
#[pyclass(frozen, module = "fhrd._engine")]
pub struct Engine {
    /// The repository.
    pub repository: Repository,
    opening: Opening,
    host: String,
    process: u32,
}

/// What `fhrd.open` was given.
struct Opening {
    location: PathBuf,
    password: Option<String>,
    config: Config,
    store: StoreOptions,
    key_file: Option<PathBuf>,
    /// A remote repository that is created may be readable for all who can read the store.
    is_unencrypted: bool,
}

impl Opening {
    fn new(
        location: PathBuf,
        password: Option<String>,
        options: BTreeMap<String, String>,
        timeout: Option<Duration>,
    ) -> Result<Self> {
        let mut opening = Opening {
            location,
            password,
            config: Config::default(),
            store: StoreOptions::default(),
            key_file: None,
            is_unencrypted: false,
        };
        opening.store.patience = timeout.map_or_else(Patience::default, Patience::within);
        let (mut config, mut memory) = (None, None);
        for (name, value) in options {
            match name.as_str() {
                "config" => config = Some(PathBuf::from(value)),
                "memory" => {
                    let invalid = |reason| Error::Usage(format!("the option `memory` is `{value}`: {reason}"));
                    memory = Some(parse_memory(&value).map_err(invalid)?);
                }
                "endpoint" => opening.store.endpoint = Some(value),
                "ssh_command" => opening.store.ssh_command = Some(value.into()),
                "key_file" => opening.key_file = Some(value.into()),
                "unencrypted" if value == "true" || value == "false" => opening.is_unencrypted = value == "true",
                "unencrypted" => {
                    return Err(Error::Usage(format!("the option `unencrypted` is `{value}`: expected true or false")));
                }
                _ => {
                    let known = "config, memory, endpoint, ssh_command, key_file and unencrypted";
                    return Err(Error::Usage(format!("there is no option `{name}`: expected {known}")));
                }
            }
        }
        opening.config = match config {
            Some(path) => Config::load_unless(&path, memory, &AtomicBool::new(false))?,
            None => memory.map_or_else(Config::default, Config::within),
        };
        Ok(opening)
    }

    fn unlock(&self) -> Result<Option<Unlock>> {
        if let Some(path) = &self.key_file {
            let file = fhrd::wire::open_without_waiting(path);
            let read = file.and_then(|file| fhrd::wire::read_input(&file, KEY_FILE_BYTES_MAX, &AtomicBool::new(false)));
            let bytes = read.map_err(|error| Error::io("read", path, error))?;
            return Ok(Some(Unlock::KeyFile(SecretBytes::new(bytes))));
        }
        let password =
            self.password.clone().or_else(|| std::env::var("FHRD_PASSWORD").ok().filter(|text| !text.is_empty()));
        Ok(password.map(|password| Unlock::Password(SecretBytes::new(password.into_bytes()))))
    }

    fn open(&self, cache: BlobCache) -> Result<Repository> {
        let store = store::open_with(&self.location, &self.store)?;
        let ask = || {
            let reason = "give the argument `password`, the option `key_file`, or FHRD_PASSWORD".into();
            self.unlock()?.ok_or_else(|| Error::Locked { location: self.location.display().to_string(), reason })
        };
        let access = Access {
            ask: &ask,
            has_secret: self.has_secret(),
            allows_unencrypted: self.is_unencrypted,
            how_to_allow: "set the option `unencrypted` to `true`",
        };
        let repository = access.open(store, cache)?;
        repository.parity.set_memory(self.config.memory.0);
        Ok(repository)
    }

    /// Whether something passed here, and nothing of the environment, opens an encrypted repository.
    fn is_secret_passed(&self) -> bool {
        self.password.is_some() || self.key_file.is_some()
    }

    fn has_secret(&self) -> bool {
        self.is_secret_passed() || std::env::var_os("FHRD_PASSWORD").is_some_and(|text| !text.is_empty())
    }

    fn create(&self) -> Result<()> {
        if !store::is_remote(OsStr::new(&self.location))
            && let Some(above) = self.location.parent().filter(|above| !above.as_os_str().is_empty())
        {
            create_private(above)?;
        }
        let is_encrypted = self.is_secret_passed() || (self.has_secret() && !self.is_unencrypted);
        if store::is_remote(OsStr::new(&self.location)) && !is_encrypted && !self.is_unencrypted {
            return Err(Error::Usage(format!(
                "{}: a remote repository is encrypted: expected `password` or the option `key_file`, or the option \
                 `unencrypted` with the value `true`",
                self.location.display()
            )));
        }
        let store = store::create_with(&self.location, &self.store)?;
        let unlock = if is_encrypted { self.unlock()? } else { None };
        let is_explicit = self.is_secret_passed();
        let first = unlock.as_ref().map(|unlock| FirstSlot { unlock, label: "python", is_explicit });
        open::create(store, &self.config.repository, None, first.as_ref()).map(drop)
    }

    fn lasting(&self) -> Result<Repository> {
        self.open(BlobCache::Lasting(self.config.cache.bytes_max.0))
    }

    fn open_or_create(&self) -> Result<Repository> {
        match self.lasting() {
            Err(Error::NoRepository { .. }) => match self.create() {
                // Another process was faster.
                Err(Error::AlreadyExists { .. }) => self.lasting(),
                created => created.and_then(|()| self.lasting()),
            },
            opened => opened,
        }
    }
}

impl Engine {
    /// Fails in another process than the one that opened the repository.
    pub fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(forked()) }
    }

    /// Runs `work`, which may take long, as [`Call::run`] does.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        report: Option<Py<PyAny>>,
        work: impl FnOnce(&Call, &Progress) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.check_process()?;
        let call = Call::new(report);
        call.run(py, |progress| work(&call, progress))
    }

    /// The settings of the engine.
    pub fn config(&self) -> &Config {
        &self.opening.config
    }

    /// The repository without a cache of what was read before: for what must see what is stored.
    pub fn fresh(&self) -> Result<Repository> {
        match store::is_remote(self.opening.location.as_os_str()) {
            true => self.opening.open(BlobCache::Fresh(self.config().cache.bytes_max.0)),
            false => Ok(self.repository.clone()),
        }
    }

    /// The snapshot that `name` names, as on the command line.
    pub fn find(&self, name: &str) -> Result<NamedSnapshot> {
        find_snapshot(&self.repository, name, &SnapshotFilter::default())
    }

    fn back_up(&self, call: &Call, progress: &Progress, request: &BackupRequest) -> Result<BackupReport> {
        backup(&self.repository, self.config(), request, progress, &call.stop)
    }
}

/// A report as JSON.
pub fn json<T: serde::Serialize>(report: &T) -> PyResult<String> {
    serde_json::to_string(report).map_err(|error| FhrdError::new_err(error.to_string()))
}

fn checkpoint(run: Option<String>, step: Option<u64>, metrics: BTreeMap<String, f64>) -> PyResult<Option<Checkpoint>> {
    let (run, step) = match (run, step) {
        (Some(run), Some(step)) => (run, step),
        (None, None) if metrics.is_empty() => return Ok(None),
        _ => return Err(ArgumentError::new_err("`run` and `step` go together, and metrics need both")),
    };
    let checkpoint = Checkpoint { run, step, metrics };
    match checkpoint.defect() {
        Some(defect) => Err(ArgumentError::new_err(defect)),
        None => Ok(Some(checkpoint)),
    }
}

#[pymethods]
impl Engine {
    /// Opens the repository at a path or URL.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        location: PathBuf,
        password: Option<String>,
        create: bool,
        options: BTreeMap<String, String>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.map_err(|_| ArgumentError::new_err("a timeout is a number of seconds, not below 0"))?;
        let opening = Opening::new(location, password, options, timeout).map_err(|error| exception(&error))?;
        let process = std::process::id();
        if store::is_remote(opening.location.as_os_str()) && *REMOTE_PROCESS.get_or_init(|| process) != process {
            return Err(FhrdError::new_err(
                "remote repositories cannot be used in a process that was forked from one that uses them: start it \
                 with the method `spawn`",
            ));
        }
        let opened = Call::default().run(py, |_| if create { opening.open_or_create() } else { opening.lasting() })?;
        let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Engine { repository: opened, opening, host, process })
    }

    /// Whether this is the process that opened the repository.
    #[getter]
    fn is_usable(&self) -> bool {
        self.check_process().is_ok()
    }

    /// Id of the repository, 32 hex digits.
    #[getter]
    fn id(&self) -> &str {
        &self.repository.id
    }

    /// Whether the repository is encrypted.
    #[getter]
    fn is_encrypted(&self) -> bool {
        self.repository.encryption.is_some()
    }

    /// Bytes that were read from the store since the repository was opened.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.repository.requests.counts().bytes_read
    }

    /// Stores files as a snapshot. Returns the report as JSON.
    #[pyo3(signature = (files, *, run, step, metrics, tags, time_ns, report))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn save(
        &self,
        py: Python<'_>,
        files: &Files,
        run: Option<String>,
        step: Option<u64>,
        metrics: BTreeMap<String, f64>,
        tags: Vec<String>,
        time_ns: Option<i64>,
        report: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let (files, host) = (files.files(), self.host.clone());
        if files.is_empty() {
            return Err(ArgumentError::new_err("there is nothing to save"));
        }
        let checkpoint = checkpoint(run, step, metrics)?;
        let labels = SnapshotLabels { tags, host, time_ns, checkpoint, ..SnapshotLabels::default() };
        let request = BackupRequest::new(MemorySource { files, labels, ..MemorySource::default() });
        json(&self.run(py, report, move |call, progress| self.back_up(call, progress, &request))?)
    }

    /// Stores paths as `fhrd backup` does. Returns the report as JSON.
    #[pyo3(signature = (paths, *, run, step, metrics, tags, report))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn backup(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        run: Option<String>,
        step: Option<u64>,
        metrics: BTreeMap<String, f64>,
        tags: Vec<String>,
        report: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let (host, checkpoint) = (self.host.clone(), checkpoint(run, step, metrics)?);
        let request = BackupRequest::new(TreeSource {
            paths,
            choice: EntryChoice::everything().map_err(|error| exception(&error))?,
            labels: SnapshotLabels { tags, host, checkpoint, ..SnapshotLabels::default() },
            ..TreeSource::default()
        });
        json(&self.run(py, report, |call, progress| self.back_up(call, progress, &request))?)
    }

    /// The snapshots, oldest first, and a line for each that cannot be read.
    fn snapshots(&self, py: Python<'_>) -> PyResult<(Vec<SnapshotRow>, Vec<String>)> {
        let listing = self.run(py, None, |_, _| snapshot_listing::list(&self.repository))?;
        let damaged = listing.damaged.iter().map(|(name, error)| format!("{name}: {error}")).collect();
        let now_ns = self.repository.clock.now_ns();
        let row = |named| SnapshotRow::new(named, now_ns);
        Ok((listing.snapshots.iter().map(row).collect(), damaged))
    }

    /// The snapshot that `name` names, as on the command line.
    fn find_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<SnapshotRow> {
        let now_ns = self.repository.clock.now_ns();
        self.run(py, None, |_, _| self.find(name).map(|named| SnapshotRow::new(&named, now_ns)))
    }

    /// The entries of a snapshot, or those below `path`.
    fn entries(&self, py: Python<'_>, snapshot: &str, path: Option<PathBuf>, is_deep: bool) -> PyResult<Vec<EntryRow>> {
        let depth = if is_deep { list::Depth::All } else { list::Depth::One };
        self.run(py, None, |_, _| {
            let (named, mut rows) = (self.find(snapshot)?, Vec::new());
            let unread = list::list(&self.repository, &named, path.as_deref(), depth, &mut |path, node| {
                rows.push(EntryRow::new(path, node));
                Ok(())
            })?;
            unread.first.map_or(Ok(rows), Err)
        })
    }

    /// Opens a file of a snapshot.
    fn open_file(&self, py: Python<'_>, snapshot: &str, path: PathBuf) -> PyResult<StoredBytes> {
        let opened = self.run(py, None, |_, _| {
            let named = self.find(snapshot)?;
            let reader = Reader::open(&self.repository)?;
            let (_, node) = reader.lend(|reader| find_entry(reader, &named, &path))?;
            match node.filter(|node| node.kind == NodeKind::File) {
                Some(node) => {
                    let workers = self.config().pipeline.workers_of(self.config().pipeline.decode_workers);
                    // Those of a remote store mostly wait.
                    let threads = workers.max(self.repository.store.requests_max());
                    StoredBytes::new(&self.repository, node.content, node.size, threads).map(Some)
                }
                None => Ok(None),
            }
        })?;
        opened.ok_or_else(|| NotFoundError::new_err(format!("`{}` is not a regular file", path.display())))
    }

    /// Writes a snapshot's files below `target`. Returns the report as JSON.
    fn restore(
        &self,
        py: Python<'_>,
        snapshot: &str,
        target: PathBuf,
        include: Vec<String>,
        report: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let mut patterns = PatternsBuilder::default();
        let added = include.iter().try_for_each(|pattern| patterns.add(pattern, false, "include"));
        let include = added.and_then(|()| patterns.build()).map_err(|error| exception(&error))?;
        let selection = Selection { include, ..Selection::default() };
        let request = RestoreRequest { target, selection, overwrite: Overwrite::Never, ..RestoreRequest::default() };
        json(&self.run(py, report, |call, progress| {
            let named = self.find(snapshot)?;
            restore(&self.repository, self.config(), &named, request, progress, &call.stop)
        })?)
    }

    /// Deletes snapshots by their full ids.
    fn forget(&self, py: Python<'_>, ids: Vec<String>) -> PyResult<()> {
        let parse = |id: &String| {
            SnapshotId::parse(id).ok_or_else(|| ArgumentError::new_err(format!("`{id}` is not the id of a snapshot")))
        };
        let ids = ids.iter().map(parse).collect::<PyResult<Vec<_>>>()?;
        self.run(py, None, |_, _| {
            forget(&self.repository, &ids)?;
            // A later one does it.
            let _ = snapshot_listing::maintain_bundles(&self.repository, bundle::LOOSE_MIN);
            Ok(())
        })
    }

    /// Gives back the space of what no snapshot needs. Returns the report as JSON.
    fn prune(&self, py: Python<'_>, dry_run: bool, grace_seconds: f64) -> PyResult<String> {
        let grace = Duration::try_from_secs_f64(grace_seconds)
            .map_err(|_| ArgumentError::new_err("a grace period is a number of seconds, not below 0"))?;
        let options = PruneOptions {
            grace,
            dry_run,
            repack_bytes_max: u64::MAX,
            allow_no_containers: false,
            container_bytes: self.config().container.bytes_target.0,
            patience: PRUNE_PATIENCE,
            extend_locks: None,
            recompress_threads: 0,
            min_age: None,
            skipped_rule: SkippedRule::Nothing,
        };
        json(&self.run(py, None, |call, _| prune(&self.repository, &options, &call.stop))?)
    }

    /// Verifies the repository. Returns the report as JSON.
    fn check(&self, py: Python<'_>, read_data: bool, report: Option<Py<PyAny>>) -> PyResult<String> {
        json(&self.run(py, report, |call, progress| {
            let repository = self.fresh()?;
            let before = if read_data { Marks::read(repository.store.as_ref()).ok() } else { None };
            let report = check(&repository, self.config(), read_data, progress, &call.stop)?;
            if let Some(before) = before {
                // The damage is reported even if it cannot be recorded.
                let _ = quarantine::record(&repository, &before, &report);
            }
            Ok(report)
        })?)
    }
}
