//! The virtual directories above the trees of snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;

use crate::repo::clock::future_first;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind, Timestamp};

/// An entry of a virtual directory.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TopEntry {
    /// A virtual directory.
    Directory(Arc<BTreeMap<Vec<u8>, TopEntry>>),
    /// A symbolic link.
    Link(Vec<u8>),
    /// The tree of a snapshot, by its position.
    Snapshot(usize),
}

/// Hex digits of an id, if no other snapshot has the same.
const ID_DIGITS: usize = 8;

/// The root directory for snapshots. `latest` in each directory is the last one that is not from the
/// future, if there is one.
pub(super) fn top(snapshots: &[NamedSnapshot], now_ns: i64) -> TopEntry {
    let (mut ids, mut times) = (BTreeMap::new(), BTreeMap::new());
    let mut hosts: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, TopEntry>> = BTreeMap::new();
    let mut tags: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, TopEntry>> = BTreeMap::new();
    let mut last = None;
    let mut numbered: Vec<(usize, &NamedSnapshot)> = snapshots.iter().enumerate().collect();
    numbered.sort_by_key(|(_, named)| named.snapshot.time_ns);
    for (at, named) in future_first(numbered, |(_, named)| named.snapshot.is_future(now_ns)) {
        let id = named.id.to_string();
        let short = id.get(..ID_DIGITS).unwrap_or(&id);
        let name = if ids.contains_key(short.as_bytes()) { id.as_bytes() } else { short.as_bytes() }.to_vec();
        ids.insert(name.clone(), TopEntry::Snapshot(at));
        let time = time_name(named);
        // What is published is no backup.
        let may_be_latest = !named.snapshot.is_published();
        link(&mut times, &time, "../ids/", &name, may_be_latest);
        link(hosts.entry(file_name(&named.snapshot.host)).or_default(), &time, "../../ids/", &name, may_be_latest);
        for tag in &named.snapshot.tags {
            link(tags.entry(file_name(tag)).or_default(), &time, "../../ids/", &name, true);
        }
        if may_be_latest {
            last = Some(name);
        }
    }
    let below = |groups: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, TopEntry>>| {
        directory(groups.into_iter().map(|(name, group)| (name, directory(group))).collect())
    };
    let mut root = BTreeMap::from([
        (b"ids".to_vec(), directory(ids)),
        (b"snapshots".to_vec(), directory(times)),
        (b"hosts".to_vec(), below(hosts)),
        (b"tags".to_vec(), below(tags)),
    ]);
    if let Some(name) = last {
        root.insert(b"latest".to_vec(), TopEntry::Link([b"ids/", name.as_slice()].concat()));
    }
    directory(root)
}

fn directory(entries: BTreeMap<Vec<u8>, TopEntry>) -> TopEntry {
    TopEntry::Directory(Arc::new(entries))
}

/// Adds a link called after a time, and moves `latest` to it if it `may_be_latest`.
fn link(directory: &mut BTreeMap<Vec<u8>, TopEntry>, time: &str, to: &str, id: &[u8], may_be_latest: bool) {
    let target = TopEntry::Link([to.as_bytes(), id].concat());
    let numbered = (1u64..).map(|number| format!("{time}-{number}").into_bytes());
    let mut names = std::iter::once(time.as_bytes().to_vec()).chain(numbered);
    if let Some(name) = names.find(|name| !directory.contains_key(name)) {
        directory.insert(name, target.clone());
    }
    if may_be_latest {
        directory.insert(b"latest".to_vec(), target);
    }
}

/// The time of a snapshot, local, as a file name.
fn time_name(named: &NamedSnapshot) -> String {
    let seconds = named.snapshot.time_ns.div_euclid(1_000_000_000);
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
        Err(_) => format!("@{seconds}"),
    }
}

/// Text as a file name: slashes and NUL become `_`.
fn file_name(text: &str) -> Vec<u8> {
    let name: Vec<u8> = text.bytes().map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { byte }).take(255).collect();
    if matches!(name.as_slice(), b"" | b"." | b"..") { b"_".to_vec() } else { name }
}

impl TopEntry {
    /// The metadata of a virtual entry; of a snapshot, that of its root.
    pub(super) fn node(&self, snapshots: &[NamedSnapshot]) -> Node {
        let directory = Node { kind: NodeKind::Directory, mode: 0o555, ..Node::default() };
        match self {
            TopEntry::Directory(_) => directory,
            TopEntry::Link(target) => {
                let link_target = Some(target.clone());
                Node { kind: NodeKind::Symlink, mode: 0o777, link_target, ..Node::default() }
            }
            TopEntry::Snapshot(at) => {
                let Some(named) = snapshots.get(*at) else { return directory };
                let seconds = named.snapshot.time_ns.div_euclid(1_000_000_000);
                let mtime = Timestamp { seconds, nanoseconds: 0 };
                let own = named.snapshot.root_node.clone();
                let node = own.unwrap_or(Node { mtime, ctime: mtime, ..directory });
                Node { kind: NodeKind::Directory, content: named.snapshot.root, ..node }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::published::KEY;
    use crate::repo::snapshot::Snapshot;
    use crate::types::SnapshotId;

    fn entry<'e>(top: &'e TopEntry, path: &str) -> Option<&'e TopEntry> {
        path.split('/').try_fold(top, |at, name| match at {
            TopEntry::Directory(entries) => entries.get(name.as_bytes()),
            _ => None,
        })
    }

    #[test]
    fn what_is_published_is_there_and_never_the_latest() {
        let named = |id, time_ns, extra| {
            let snapshot = Snapshot { time_ns, host: "h".into(), extra, ..Snapshot::default() };
            NamedSnapshot { id: SnapshotId([id; 32]), snapshot }
        };
        let published = BTreeMap::from([(KEY.into(), b"any value".to_vec().into())]);
        let top = top(&[named(0x11, 1, BTreeMap::new()), named(0x22, 2, published)], 3);
        assert_eq!(entry(&top, "ids/22222222"), Some(&TopEntry::Snapshot(1)));
        assert_eq!(entry(&top, "latest"), Some(&TopEntry::Link(b"ids/11111111".to_vec())));
        for latest in ["snapshots/latest", "hosts/h/latest"] {
            let Some(TopEntry::Link(target)) = entry(&top, latest) else { panic!("{latest}") };
            assert!(target.ends_with(b"ids/11111111"), "{latest}");
        }
    }
}
