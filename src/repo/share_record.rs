//! Shares of the work: snapshots that are together one backup of a source.
//!
//! Each process of a job stores what falls to it as a snapshot of its own, under the name of a group. A share may be
//! stored twice: a process that was taken for dead may have gone on beside the one in its place. The latest snapshot of
//! a share counts, so a group never has two of one.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::bytes::{ByteArray, ByteVec};
use minicbor::{Decode, Encode};

use crate::config::WorkShare;
use crate::error::{Error, Result};
use crate::repo::snapshot::{EXCLUDES_KEY, NamedSnapshot, SERVER_KEY, Snapshot};

/// Key in the open map of a snapshot.
pub const KEY: &str = "share";
/// Longest name of a group, bytes.
const NAME_BYTES_MAX: usize = 255;

/// What a snapshot says of the share that it is: a CBOR map with integer keys.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ShareRecord {
    /// Name of the group.
    #[n(0)]
    pub group: String,
    /// From 1 to `count`.
    #[n(1)]
    index: u32,
    #[n(2)]
    count: u32,
    /// Digest of what decided which file falls to which share.
    #[n(3)]
    pub split: ByteArray<16>,
    /// Digest of the listing of all shares.
    #[n(4)]
    pub listing: ByteArray<16>,
    /// Files of that listing.
    #[n(5)]
    pub files: u64,
    /// Bytes of these.
    #[n(6)]
    pub bytes: u64,
}

/// The listing from which a share was computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShareOrigin {
    /// Digest of what decided which file falls to which share.
    pub split: [u8; 16],
    /// Digest of the listing.
    pub listing: [u8; 16],
    /// Files of the listing.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl ShareRecord {
    /// A share of the group called `group`.
    ///
    /// # Errors
    /// [`Error::Usage`] if that is no name.
    pub fn new(group: &str, share: WorkShare, origin: ShareOrigin) -> Result<Self> {
        if !is_name(group) {
            let expected = "the name of a group has 1 to 255 bytes and no control characters";
            return Err(Error::Usage(format!("{expected}, found `{}`", group.escape_debug())));
        }
        let ShareOrigin { split, listing, files, bytes } = origin;
        let (index, count) = (share.index(), share.count());
        Ok(ShareRecord {
            group: group.into(),
            index,
            count,
            split: split.into(),
            listing: listing.into(),
            files,
            bytes,
        })
    }

    /// Which share it is.
    pub fn share(&self) -> Option<WorkShare> {
        WorkShare::new(self.index, self.count)
    }

    /// Adds the record to the open map of a snapshot.
    ///
    /// # Errors
    /// Errors of encoding.
    pub fn attach(&self, extra: &mut BTreeMap<String, ByteVec>) -> Result<()> {
        let bytes = minicbor::to_vec(self);
        let bytes = bytes.map_err(|error| Error::internal(format!("cannot store the share: {error}")))?;
        extra.insert(KEY.into(), bytes.into());
        Ok(())
    }

    /// The record of a snapshot, if it is a share. An invalid one is ignored.
    pub fn of(snapshot: &Snapshot) -> Option<ShareRecord> {
        let record: ShareRecord = minicbor::decode(snapshot.extra.get(KEY)?).ok()?;
        (is_name(&record.group) && record.share().is_some()).then_some(record)
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}

/// The snapshots of a group that are a backup of the same paths.
#[derive(Debug, Clone, Default)]
pub struct ShareGroup {
    /// One snapshot of each share that there is, by number.
    pub snapshots: Vec<NamedSnapshot>,
    /// The shares that are not there.
    pub missing: Vec<WorkShare>,
    /// Whether the shares were computed differently, or leave other files out, so that a file may be in none of them.
    pub is_uneven: bool,
    /// Whether the files have changed from one share to another.
    pub has_changed: bool,
    /// The shares that could not read everything.
    pub lacking: Vec<WorkShare>,
}

impl ShareGroup {
    /// Whether every file is in one of the snapshots, of those that were there all the time.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty() && !self.is_uneven && self.lacking.is_empty()
    }
}

/// The group called `name`, by paths and server. `snapshots` are by time, the oldest first.
pub fn groups_called(name: &str, snapshots: &[NamedSnapshot]) -> Vec<ShareGroup> {
    let mut by_paths: BTreeMap<_, Vec<(ShareRecord, &NamedSnapshot)>> = BTreeMap::new();
    for named in snapshots {
        let Some(record) = ShareRecord::of(&named.snapshot).filter(|record| record.group == name) else { continue };
        let paths: Vec<Vec<u8>> = named.snapshot.paths.iter().map(|path| path.to_vec()).collect();
        let server = named.snapshot.extra.get(SERVER_KEY).map(|server| server.to_vec());
        by_paths.entry((paths, server)).or_default().push((record, named));
    }
    by_paths.into_values().filter_map(|members| group_of(&members)).collect()
}

/// The group that the latest of `members`, the oldest first, is of.
fn group_of(members: &[(ShareRecord, &NamedSnapshot)]) -> Option<ShareGroup> {
    let (last, _) = members.last()?;
    let mut latest: BTreeMap<WorkShare, (&ShareRecord, &NamedSnapshot)> = BTreeMap::new();
    for (record, named) in members.iter().filter(|(record, _)| record.count == last.count) {
        latest.insert(record.share()?, (record, named));
    }
    let missing = last.share()?.all().filter(|share| !latest.contains_key(share)).collect();
    let splits: BTreeSet<[u8; 16]> = latest.values().map(|(record, _)| *record.split).collect();
    let listings: BTreeSet<[u8; 16]> = latest.values().map(|(record, _)| *record.listing).collect();
    let excludes: BTreeSet<_> = latest.values().map(|(_, named)| named.snapshot.extra.get(EXCLUDES_KEY)).collect();
    let is_uneven = splits.len() > 1 || excludes.len() > 1;
    let lacking =
        latest.iter().filter(|(_, (_, named))| named.snapshot.problems() > 0).map(|(share, _)| *share).collect();
    let snapshots = latest.into_values().map(|(_, named)| named.clone()).collect();
    Some(ShareGroup { snapshots, missing, is_uneven, has_changed: listings.len() > 1, lacking })
}

/// The snapshots of one source, the oldest first, that have its last state together: the last one, or the last of each
/// share. While a job is not whole, what was stored before it counts as well.
pub fn last_of_source<'a>(snapshots: &[&'a NamedSnapshot]) -> Vec<&'a NamedSnapshot> {
    let Some((last, _)) = snapshots.split_last() else { return Vec::new() };
    let Some(share) = share_of(last) else { return vec![last] };
    let mut latest: BTreeMap<Option<WorkShare>, &NamedSnapshot> = BTreeMap::new();
    for named in snapshots {
        let found = share_of(named);
        if found.is_none() {
            latest.clear();
        }
        latest.insert(found, named);
    }
    if share.all().all(|share| latest.contains_key(&Some(share))) {
        latest.retain(|found, _| found.is_some_and(|found| found.count() == share.count()));
    }
    latest.into_values().collect()
}

/// Which share a snapshot is.
fn share_of(named: &NamedSnapshot) -> Option<WorkShare> {
    ShareRecord::of(&named.snapshot)?.share()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SnapshotId;

    fn named(id: u8, path: &str, share: &str, split: u8) -> NamedSnapshot {
        let origin = ShareOrigin { split: [split; 16], listing: [1; 16], files: 3, bytes: 10 };
        let mut extra = BTreeMap::new();
        ShareRecord::new("nightly", share.parse().unwrap(), origin).unwrap().attach(&mut extra).unwrap();
        let paths = vec![path.as_bytes().to_vec().into()];
        let snapshot = Snapshot { time_ns: id.into(), paths, extra, ..Snapshot::default() };
        NamedSnapshot { id: SnapshotId([id; 32]), snapshot }
    }

    fn ids(group: &ShareGroup) -> Vec<u8> {
        group.snapshots.iter().map(|named| named.id.0[0]).collect()
    }

    #[test]
    fn the_encoding_never_changes() {
        let extra = named(1, "/a", "2/3", 7).snapshot.extra;
        let expected = format!(
            "a7{}",
            ["00676e696768746c79", "0102", "0203", "0350", &"07".repeat(16), "0450", &"01".repeat(16), "0503", "060a"]
                .concat()
        );
        assert_eq!(crate::types::hex(&extra[KEY]), expected);
    }

    #[test]
    fn a_group_has_one_snapshot_of_each_share() {
        let all = [named(1, "/a", "1/2", 7), named(2, "/a", "2/2", 7), named(3, "/a", "1/2", 7)];
        let groups = groups_called("nightly", &all);
        assert_eq!((groups.len(), ids(&groups[0]), groups[0].is_whole()), (1, vec![3, 2], true));
        assert!(groups_called("other", &all).is_empty());
        let lacking = &groups_called("nightly", &all[..1])[0];
        assert_eq!((lacking.is_whole(), lacking.missing.as_slice()), (false, &["2/2".parse().unwrap()][..]));
    }

    #[test]
    fn other_paths_another_number_of_shares_and_another_split_do_not_mix() {
        let all =
            [named(1, "/a", "1/1", 7), named(2, "/a", "1/2", 7), named(3, "/a", "2/2", 8), named(4, "/b", "1/1", 7)];
        let groups = groups_called("nightly", &all);
        assert_eq!(groups.iter().map(ids).collect::<Vec<_>>(), [vec![2, 3], vec![4]]);
        assert_eq!(groups.iter().map(ShareGroup::is_whole).collect::<Vec<_>>(), [false, true]);
        assert!(groups[0].is_uneven && groups[0].missing.is_empty() && !groups[0].has_changed);
    }

    #[test]
    fn shares_that_leave_other_files_out_are_no_whole_job() {
        let mut all = [named(1, "/a", "1/2", 7), named(2, "/a", "2/2", 7)];
        let is_whole = |all: &[NamedSnapshot]| groups_called("nightly", all)[0].is_whole();
        all[0].snapshot.extra.insert(EXCLUDES_KEY.into(), b"x".to_vec().into());
        assert!(!is_whole(&all));
        all[1].snapshot.extra.insert(EXCLUDES_KEY.into(), b"x".to_vec().into());
        assert!(is_whole(&all));
    }

    #[test]
    fn the_last_state_of_a_source_is_of_all_shares() {
        let whole = |id| NamedSnapshot { id: SnapshotId([id; 32]), ..named(id, "/a", "1/1", 7) };
        let mut plain = whole(1);
        plain.snapshot.extra.clear();
        let all = [plain, named(2, "/a", "1/2", 7), named(3, "/a", "2/2", 7), named(4, "/a", "1/2", 7)];
        let last = |count: usize| {
            let found = last_of_source(&all.iter().take(count).collect::<Vec<_>>());
            let mut ids: Vec<u8> = found.iter().map(|named| named.id.0[0]).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!((1..=4).map(last).collect::<Vec<_>>(), [vec![1], vec![1, 2], vec![2, 3], vec![3, 4]]);
        let more = [&all[2], &all[3], &named(5, "/a", "1/3", 7)].map(|named| last_of_source(&[named]).len());
        assert_eq!(more, [1; 3]);
        assert!(last_of_source(&[]).is_empty());
    }

    #[test]
    fn a_record_that_is_wrong_is_none() {
        let share = "1/2".parse().unwrap();
        for wrong in ["", "a\nb", &"x".repeat(256)] {
            assert!(ShareRecord::new(wrong, share, ShareOrigin::default()).is_err(), "{wrong}");
        }
        let mut snapshot = named(1, "/a", "1/2", 7).snapshot;
        let record = ShareRecord { index: 3, ..ShareRecord::of(&snapshot).unwrap() };
        record.attach(&mut snapshot.extra).unwrap();
        assert_eq!(ShareRecord::of(&snapshot), None);
        snapshot.extra.insert(KEY.into(), b"\xff".to_vec().into());
        assert_eq!(ShareRecord::of(&snapshot), None);
    }
}
