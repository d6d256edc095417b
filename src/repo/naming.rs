//! The grammar by which users name things in a repository.
//!
//! | text | names |
//! |---|---|
//! | `ID` | a snapshot: its id, a unique prefix of it, or `latest` |
//! | `run:RUN@STEP` | the snapshot of a step of a training run |
//! | `run:RUN@latest` | the snapshot of its last step |
//! | `run:RUN@best:METRIC:min` | the snapshot of the step with the smallest value of a metric; `max` for the largest |
//! | `ID:PATH` | an entry of any of these snapshots, by its path as `ls` prints it |
//!
//! A [`SnapshotFilter`] narrows `latest`, and the snapshots of verbs that look at several. `latest` skips snapshots
//! [from the future](crate::repo::clock), unless there is no other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::checkpoint::{BestMode, best, runs};
use crate::repo::clock;
use crate::repo::share_record::ShareRecord;
pub use crate::repo::snapshot::LATEST;
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::repo::tags::has_tags;

/// Start of names of steps of a run.
const RUN: &str = "run:";
/// Start of names of the best step of a run.
const BEST: &str = "best:";

/// `ID` or `ID:PATH`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryName {
    /// What names the snapshot.
    pub snapshot: String,
    /// Path from the snapshot's root. `None` for the whole snapshot: nothing, or only slashes, after the colon.
    pub path: Option<PathBuf>,
}

impl EntryName {
    /// Takes `text` apart at the first colon behind the snapshot. Ids have none, paths may.
    ///
    /// # Errors
    /// [`Error::NoSuchSnapshot`] if the part that names the snapshot is not UTF-8.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let (id, rest) = bytes.split_at(snapshot_len(bytes));
        let id = std::str::from_utf8(id).map_err(|_| Error::NoSuchSnapshot {
            id: String::from_utf8_lossy(id).into_owned(),
            hint: ": an id has hex digits only".into(),
        })?;
        let path = Path::new(OsStr::from_bytes(rest.get(1..).unwrap_or_default()));
        let is_root = path.as_os_str().as_bytes().iter().all(|byte| *byte == b'/') || path == Path::new(".");
        Ok(EntryName { snapshot: id.to_string(), path: (!is_root).then(|| path.to_path_buf()) })
    }
}

/// Length of the part that names the snapshot.
fn snapshot_len(bytes: &[u8]) -> usize {
    let colon_from = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        from + rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len())
    };
    if !bytes.starts_with(RUN.as_bytes()) {
        return colon_from(0);
    }
    let Some(at) = bytes.iter().position(|byte| *byte == b'@') else { return colon_from(RUN.len()) };
    let which = at + 1;
    if !bytes.get(which..).unwrap_or_default().starts_with(BEST.as_bytes()) {
        return colon_from(which);
    }
    let metric_end = colon_from(which + BEST.len());
    colon_from((metric_end + 1).min(bytes.len()))
}

/// Snapshots by host, paths and tags. An empty filter lets every snapshot pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Hosts, one of which must be the snapshot's.
    pub hosts: Vec<String>,
    /// Absolute paths, all of which the snapshot must have been made of.
    pub paths: Vec<PathBuf>,
    /// Lists of tags separated by commas. The snapshot must have all tags of one list, see [`has_tags`].
    pub tags: Vec<String>,
}

impl SnapshotFilter {
    /// Whether every snapshot passes.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.paths.is_empty() && self.tags.is_empty()
    }

    /// Whether `snapshot` passes.
    pub fn passes(&self, snapshot: &Snapshot) -> bool {
        let has_path = |path: &PathBuf| {
            snapshot.paths.iter().any(|recorded| Path::new(OsStr::from_bytes(recorded)) == path.as_path())
        };
        (self.hosts.is_empty() || self.hosts.contains(&snapshot.host))
            && self.paths.iter().all(has_path)
            && (self.tags.is_empty() || self.tags.iter().any(|list| has_tags(&snapshot.tags, list)))
    }
}

/// Finds the snapshot that `name` names. `filter` narrows `latest` and the steps of runs. An id names its snapshot
/// whatever the filter says.
///
/// # Errors
/// [`Error::NoSuchSnapshot`] if none or several match. The error of the snapshot if it is damaged.
pub fn find_snapshot(repository: &Repository, name: &str, filter: &SnapshotFilter) -> Result<NamedSnapshot> {
    if let Some(step) = name.strip_prefix(RUN) {
        return find_step(passing(repository, filter)?, step, repository.clock.now_ns())
            .map_err(|hint| no_such(name, hint));
    }
    let found = if name != LATEST || filter.is_empty() {
        snapshot_listing::find(repository, name)?
    } else {
        let last = clock::latest(passing(repository, filter)?, repository.clock.now_ns());
        last.ok_or_else(|| no_such(name, "no readable snapshot has this host, these paths and these tags".into()))?
    };
    if name.starts_with(LATEST)
        && let Some(record) = ShareRecord::of(&found.snapshot)
        && let Some(share) = record.share().filter(|share| share.count() > 1)
    {
        let group = record.group.escape_debug();
        tracing::warn!(
            "{name} is share {share} of the group {group}; `fhrd snapshots --group` lists the others, which have the rest"
        );
    }
    Ok(found)
}

/// The readable snapshots that pass, oldest first.
fn passing(repository: &Repository, filter: &SnapshotFilter) -> Result<Vec<NamedSnapshot>> {
    let SnapshotListing { mut snapshots, damaged, .. } = snapshot_listing::list(repository)?;
    damaged.iter().for_each(|(name, error)| tracing::warn!("skipping {name}: {error}"));
    snapshots.retain(|named| filter.passes(&named.snapshot));
    Ok(snapshots)
}

fn no_such(name: &str, hint: String) -> Error {
    Error::NoSuchSnapshot { id: name.into(), hint: format!(": {hint}") }
}

/// Finds the step `RUN@WHICH`, or tells why there is none.
fn find_step(snapshots: Vec<NamedSnapshot>, name: &str, now_ns: i64) -> std::result::Result<NamedSnapshot, String> {
    const EXPECTED: &str = "expected run:RUN@STEP, run:RUN@latest or run:RUN@best:METRIC:min";
    let (run, which) = name.split_once('@').ok_or(EXPECTED)?;
    let steps = runs(snapshots, now_ns).remove(run).ok_or_else(|| format!("there is no run `{run}`"))?;
    let found = if which == LATEST {
        steps.last().ok_or_else(|| "the run has no steps".to_string())?
    } else if let Some(which) = which.strip_prefix(BEST) {
        let (metric, mode) = match which.split_once(':') {
            Some((metric, "min")) => (metric, BestMode::Min),
            Some((metric, "max")) => (metric, BestMode::Max),
            _ => return Err(EXPECTED.into()),
        };
        best(&steps, metric, mode).ok_or_else(|| format!("no step has a number for `{metric}`"))?
    } else {
        let number: u64 = which.parse().map_err(|_| EXPECTED.to_string())?;
        let step = steps.iter().find(|step| step.checkpoint.step == number);
        step.ok_or_else(|| format!("the run has no step {number}"))?
    };
    Ok(found.named.clone())
}

/// Finds the snapshot and the path that `text` names: `ID` or `ID:PATH`. Whether the snapshot has the path is not
/// checked.
///
/// # Errors
/// Errors of [`EntryName::parse`] and [`find_snapshot`].
pub fn find_entry(
    repository: &Repository,
    text: &OsStr,
    filter: &SnapshotFilter,
) -> Result<(NamedSnapshot, Option<PathBuf>)> {
    let name = EntryName::parse(text)?;
    Ok((find_snapshot(repository, &name.snapshot, filter)?, name.path))
}

/// A path in a snapshot, for messages. The root is `/`.
pub fn shown_path(path: &Path) -> String {
    if path.as_os_str().is_empty() { "/".into() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RepositoryConfig;
    use crate::repo::checkpoint::Checkpoint;
    use crate::repo::clock::Clock;
    use crate::repo::unknown_keys::UnknownKeys;
    use crate::store::MemoryStore;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn repository() -> Repository {
        Repository::init(Arc::new(MemoryStore::new()), &RepositoryConfig::default()).unwrap()
    }

    fn parsed(text: &str) -> (String, Option<String>) {
        let name = EntryName::parse(OsStr::new(text)).unwrap();
        (name.snapshot, name.path.map(|path| path.to_str().unwrap().to_string()))
    }

    #[test]
    fn the_first_colon_ends_the_id() {
        let of = |id: &str, path: Option<&str>| (id.to_string(), path.map(str::to_string));
        assert_eq!(parsed("latest"), of("latest", None));
        assert_eq!(parsed("0a1b:home/ada"), of("0a1b", Some("home/ada")));
        assert_eq!(parsed("0a1b:/home/a:b"), of("0a1b", Some("/home/a:b")));
        for root in ["latest:", "latest:/", "latest://", "latest:."] {
            assert_eq!(parsed(root), of("latest", None), "{root}");
        }
        assert_eq!(parsed("run:a@10"), of("run:a@10", None));
        assert_eq!(parsed("run:a@latest:b:c"), of("run:a@latest", Some("b:c")));
        assert_eq!(parsed("run:a@best:loss:min"), of("run:a@best:loss:min", None));
        assert_eq!(parsed("run:a@best:loss:max:m.npy"), of("run:a@best:loss:max", Some("m.npy")));
        assert_eq!(parsed("run:a@best:loss"), of("run:a@best:loss", None));
        assert_eq!(parsed("run:a:b"), of("run:a", Some("b")));
        let odd = EntryName::parse(OsStr::from_bytes(b"latest:a\xff")).unwrap();
        assert_eq!(odd.path.unwrap().as_os_str().as_bytes(), b"a\xff");
        assert!(matches!(EntryName::parse(OsStr::from_bytes(b"\xff:a")), Err(Error::NoSuchSnapshot { .. })));
    }

    fn snapshot(time_ns: i64, host: &str, paths: &[&str], tags: &[&str]) -> Snapshot {
        Snapshot {
            time_ns,
            host: host.into(),
            user: String::new(),
            paths: paths.iter().map(|path| path.as_bytes().to_vec().into()).collect(),
            root: None,
            parent: None,
            tags: tags.iter().map(|tag| tag.to_string()).collect(),
            program: String::new(),
            statistics: BTreeMap::new(),
            extra: BTreeMap::new(),
            root_node: None,
            intent: None,
            unknown: UnknownKeys::default(),
        }
    }

    fn filter(hosts: &[&str], paths: &[&str], tags: &[&str]) -> SnapshotFilter {
        SnapshotFilter {
            hosts: hosts.iter().map(|host| host.to_string()).collect(),
            paths: paths.iter().map(PathBuf::from).collect(),
            tags: tags.iter().map(|tag| tag.to_string()).collect(),
        }
    }

    #[test]
    fn a_filter_asks_for_one_host_all_paths_and_one_list_of_tags() {
        let one = snapshot(1, "a", &["/x", "/y"], &["daily", "big"]);
        let bare = snapshot(2, "b", &["/x"], &[]);
        let passing = [
            filter(&[], &[], &[]),
            filter(&["b", "a"], &[], &[]),
            filter(&[], &["/y", "/x/"], &[]),
            filter(&[], &[], &["weekly", "big,daily"]),
        ];
        let failing = [
            filter(&["b"], &[], &[]),
            filter(&[], &["/x", "/z"], &[]),
            filter(&[], &["/x/below"], &[]),
            filter(&[], &[], &["big,weekly"]),
            filter(&[], &[], &[""]),
        ];
        assert!(passing.iter().all(|filter| filter.passes(&one)), "{passing:?}");
        assert!(failing.iter().all(|filter| !filter.passes(&one)), "{failing:?}");
        assert!(filter(&[], &[], &[""]).passes(&bare));
    }

    #[test]
    fn latest_is_the_last_snapshot_that_passes_and_an_id_needs_not_pass() {
        let repository = repository();
        let store = repository.store.as_ref();
        let ids: Vec<_> = [("a", "/x"), ("b", "/x"), ("a", "/y"), ("c", "/z")]
            .iter()
            .zip(1..)
            .map(|((host, path), time)| snapshot(time, host, &[path], &[]).save(store).unwrap())
            .collect();
        let found =
            |name: &str, filter: &SnapshotFilter| find_snapshot(&repository, name, filter).map(|named| named.id);
        assert_eq!(found("latest", &filter(&[], &[], &[])).unwrap(), ids[3]);
        assert_eq!(found("latest", &filter(&["a"], &[], &[])).unwrap(), ids[2]);
        assert_eq!(found("latest", &filter(&["a"], &["/x"], &[])).unwrap(), ids[0]);
        assert_eq!(found(&ids[1].to_string()[..12], &filter(&["a"], &[], &[])).unwrap(), ids[1]);
        let none = found("latest", &filter(&["d"], &[], &[]));
        assert!(matches!(none, Err(Error::NoSuchSnapshot { .. })), "{none:?}");
    }

    #[test]
    fn latest_is_from_the_future_only_if_all_that_pass_are() {
        const DAY_NS: i64 = 86_400 * 1_000_000_000;
        let mut repository = repository();
        let ids = [(10_000, "a"), (20_000, "b"), (47_000, "a"), (47_001, "c")]
            .map(|(day, host)| snapshot(day * DAY_NS, host, &["/x"], &["t"]).save(repository.store.as_ref()).unwrap());
        for (day, host, expected) in [
            (20_001, None, 1),
            (20_001, Some("a"), 0),
            (20_001, Some("c"), 3),
            (15_000, None, 0),
            (0, None, 3),
            (0, Some("a"), 2),
            (47_000, None, 2),
            (47_002, None, 3),
        ] {
            repository.clock = Clock::at(day * DAY_NS);
            let hosts: Vec<&str> = host.into_iter().collect();
            for tags in [&[][..], &["t"]] {
                let found = find_snapshot(&repository, "latest", &filter(&hosts, &[], tags)).unwrap();
                assert_eq!(found.id, ids[expected], "day {day}, host {host:?}");
            }
        }
    }

    #[test]
    fn a_step_of_a_run_is_named_by_number_place_or_metric() {
        let repository = repository();
        let store = repository.store.as_ref();
        let save = |time: i64, host: &str, step: u64, loss: f64| {
            let mut step_snapshot = snapshot(time, host, &["/m"], &[]);
            let metrics = BTreeMap::from([("loss".to_string(), loss)]);
            Checkpoint { run: "a".into(), step, metrics }.attach(&mut step_snapshot.extra).unwrap();
            step_snapshot.save(store).unwrap()
        };
        let ids = [save(1, "x", 10, 0.5), save(2, "x", 30, 0.1), save(3, "y", 20, 0.9), save(4, "x", 10, 0.7)];
        let found = |name: &str, hosts: &[&str]| {
            find_snapshot(&repository, name, &filter(hosts, &[], &[])).map(|found| found.id)
        };
        assert_eq!(found("run:a@10", &[]).unwrap(), ids[3], "the last snapshot of a step counts");
        assert_eq!(found("run:a@latest", &[]).unwrap(), ids[1], "the highest step, not the last backup");
        assert_eq!(found("run:a@best:loss:min", &[]).unwrap(), ids[1]);
        assert_eq!(found("run:a@best:loss:max", &[]).unwrap(), ids[2]);
        assert_eq!(found("run:a@best:loss:max", &["x"]).unwrap(), ids[3]);
        for (name, hint) in [
            ("run:b@10", "no run `b`"),
            ("run:a@11", "no step 11"),
            ("run:a@x", "expected run:RUN@STEP"),
            ("run:a", "expected run:RUN@STEP"),
            ("run:a@best:loss", "expected run:RUN@STEP"),
            ("run:a@best:accuracy:min", "no step has a number"),
        ] {
            let error = found(name, &[]).unwrap_err();
            assert!(error.to_string().contains(hint), "{name}: {error}");
        }
    }
}
