//! The grammar by which users name things in a repository.
//!
//! | text | names |
//! |---|---|
//! | `ID` | a snapshot: its id, a unique prefix of it, or `latest` |
//! | `ID:PATH` | an entry of that snapshot, by its path as `ls` prints it |
//!
//! A [`SnapshotFilter`] narrows `latest`, and the snapshots of verbs that look at several.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot};
use crate::store::Store;

/// The name of the last snapshot.
pub const LATEST: &str = "latest";

/// `ID` or `ID:PATH`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryName {
    /// What names the snapshot.
    pub snapshot: String,
    /// Path from the snapshot's root. `None` for the whole snapshot: nothing, or only slashes, after the colon.
    pub path: Option<PathBuf>,
}

impl EntryName {
    /// Takes `text` apart at its first colon. Ids have none, paths may.
    ///
    /// # Errors
    /// [`Error::NoSuchSnapshot`] if the part that names the snapshot is not UTF-8.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len());
        let (id, rest) = bytes.split_at(colon);
        let id = std::str::from_utf8(id).map_err(|_| Error::NoSuchSnapshot {
            id: String::from_utf8_lossy(id).into_owned(),
            hint: ": an id has hex digits only".into(),
        })?;
        let path = Path::new(OsStr::from_bytes(rest.get(1..).unwrap_or_default()));
        let is_root = path.as_os_str().as_bytes().iter().all(|byte| *byte == b'/') || path == Path::new(".");
        Ok(EntryName { snapshot: id.to_string(), path: (!is_root).then(|| path.to_path_buf()) })
    }
}

/// Snapshots by host, paths and tags. An empty filter lets every snapshot pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Hosts, one of which must be the snapshot's.
    pub hosts: Vec<String>,
    /// Absolute paths, all of which the snapshot must have been made of.
    pub paths: Vec<PathBuf>,
    /// Lists of tags separated by commas. The snapshot must have all tags of one list. An empty list stands for
    /// snapshots without tags.
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
        let has_tags = |list: &String| match list.as_str() {
            "" => snapshot.tags.is_empty(),
            list => list.split(',').all(|tag| snapshot.tags.iter().any(|own| own == tag)),
        };
        (self.hosts.is_empty() || self.hosts.contains(&snapshot.host))
            && self.paths.iter().all(has_path)
            && (self.tags.is_empty() || self.tags.iter().any(has_tags))
    }
}

/// Finds the snapshot that `name` names. `filter` narrows `latest`; an id names its snapshot whatever the filter says.
///
/// # Errors
/// [`Error::NoSuchSnapshot`] if none or several match. The error of the snapshot if it is damaged.
pub fn find_snapshot(store: &dyn Store, name: &str, filter: &SnapshotFilter) -> Result<NamedSnapshot> {
    if name != LATEST || filter.is_empty() {
        return snapshot::find(store, name);
    }
    let (snapshots, damaged) = snapshot::list_reported(store)?;
    damaged.iter().for_each(|(name, error)| tracing::warn!("skipping {name}: {error}"));
    let last = snapshots.into_iter().rev().find(|named| filter.passes(&named.snapshot));
    last.ok_or_else(|| Error::NoSuchSnapshot {
        id: name.into(),
        hint: ": no readable snapshot has this host, these paths and these tags".into(),
    })
}

/// Finds the snapshot and the path that `text` names: `ID` or `ID:PATH`. Whether the snapshot has the path is not
/// checked.
///
/// # Errors
/// As of [`EntryName::parse`] and [`find_snapshot`].
pub fn find_entry(
    store: &dyn Store,
    text: &OsStr,
    filter: &SnapshotFilter,
) -> Result<(NamedSnapshot, Option<PathBuf>)> {
    let name = EntryName::parse(text)?;
    Ok((find_snapshot(store, &name.snapshot, filter)?, name.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;
    use std::collections::BTreeMap;

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
        let store = MemoryStore::new();
        let ids: Vec<_> = [("a", "/x"), ("b", "/x"), ("a", "/y"), ("c", "/z")]
            .iter()
            .zip(1..)
            .map(|((host, path), time)| snapshot(time, host, &[path], &[]).save(&store).unwrap())
            .collect();
        let found = |name: &str, filter: &SnapshotFilter| find_snapshot(&store, name, filter).map(|named| named.id);
        assert_eq!(found("latest", &filter(&[], &[], &[])).unwrap(), ids[3]);
        assert_eq!(found("latest", &filter(&["a"], &[], &[])).unwrap(), ids[2]);
        assert_eq!(found("latest", &filter(&["a"], &["/x"], &[])).unwrap(), ids[0]);
        assert_eq!(found(&ids[1].to_string()[..12], &filter(&["a"], &[], &[])).unwrap(), ids[1]);
        let none = found("latest", &filter(&["d"], &[], &[]));
        assert!(matches!(none, Err(Error::NoSuchSnapshot { .. })), "{none:?}");
    }
}
