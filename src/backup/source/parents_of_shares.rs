//! The parents of a share of the work, and those of a backup after one that was shared.
//!
//! 1. The last job is the last one of which every share is there: another one may run, and has few yet.
//! 2. The parent of a share is the same share of the last job or of a later one, if there is one.
//! 3. The others of the last job are parents, too, if they were split otherwise than this one. That is known once the
//!    listing is taken: a card may have joined two models, or a driver may have assigned them by other bytes.
//! 4. If there is no such share, all shares of the last job are parents: a file may have fallen to any of them.
//! 5. If the last backup was not shared, it is the parent as ever. It has what falls to other shares.

use std::collections::BTreeMap;

use crate::config::WorkShare;
use crate::repo::share_record::ShareRecord;
use crate::repo::snapshot::NamedSnapshot;

/// Parents, at most: each is walked beside the source.
const SHARES_MAX: usize = 256;

/// The parents, by position.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChosenShares {
    pub at: Vec<usize>,
    /// Snapshots that are parents, too, if the work is split otherwise than for the first ones.
    pub others: Vec<usize>,
    /// Whether they have what falls to other shares.
    pub has_others: bool,
}

/// The parents of a backup of `paths`, or of a `share` of them, among `snapshots`, the latest first. `None` if nothing
/// about them is shared.
pub(super) fn choose_shares(
    snapshots: &[NamedSnapshot],
    paths: &[Vec<u8>],
    share: Option<WorkShare>,
) -> Option<ChosenShares> {
    let has_paths = |named: &NamedSnapshot| {
        named.snapshot.paths.len() == paths.len()
            && named.snapshot.paths.iter().zip(paths).all(|(recorded, path)| recorded.as_slice() == path.as_slice())
    };
    let of_paths: Vec<usize> = (0..snapshots.len()).filter(|at| snapshots.get(*at).is_some_and(has_paths)).collect();
    let record = |at: &usize| ShareRecord::of(&snapshots.get(*at)?.snapshot);
    if of_paths.is_empty() {
        // Nothing else has the same entries at the same paths.
        return share.map(|_| ChosenShares::default());
    }
    let same =
        of_paths.iter().copied().find(|at| share.is_some() && record(at).and_then(|found| found.share()) == share);
    let last = last_job(&of_paths, record);
    let is_same_job = |at: usize| last.at.iter().any(|last| at <= *last) || last.count == share.map(WorkShare::count);
    match same.filter(|at| is_same_job(*at)) {
        Some(at) => {
            let others = last.at.into_iter().filter(|other| *other != at).take(SHARES_MAX - 1).collect();
            Some(ChosenShares { at: vec![at], others, has_others: false })
        }
        // It was not shared, and neither is this one.
        None if share.is_none() && last.count.is_none() => None,
        None => {
            let at = last.at.into_iter().take(SHARES_MAX).collect();
            Some(ChosenShares { at, others: Vec::new(), has_others: true })
        }
    }
}

/// A job that was done before.
#[derive(Default)]
struct LastJob {
    /// Number of its shares; `None` if it was not shared.
    count: Option<u32>,
    /// Its snapshots, by position.
    at: Vec<usize>,
}

/// The last job that is whole, or else the last one. `of_paths` has the snapshots by position, the latest first.
fn last_job(of_paths: &[usize], record: impl Fn(&usize) -> Option<ShareRecord>) -> LastJob {
    let mut jobs: BTreeMap<(String, u32), BTreeMap<u32, usize>> = BTreeMap::new();
    let mut last = None;
    for at in of_paths {
        let Some((found, share)) = record(at).and_then(|found| found.share().map(|share| (found, share))) else {
            return LastJob { count: None, at: vec![*at] };
        };
        let name = (found.group, share.count());
        last.get_or_insert_with(|| name.clone());
        let shares = jobs.entry(name).or_default();
        shares.entry(share.index()).or_insert(*at);
        if shares.len() == share.count() as usize {
            return LastJob { count: Some(share.count()), at: shares.values().copied().collect() };
        }
    }
    let found = last.and_then(|name| jobs.remove(&name).map(|shares| (name.1, shares)));
    found.map_or_else(LastJob::default, |(count, shares)| LastJob {
        count: Some(count),
        at: shares.into_values().collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::repo::share_record::ShareOrigin;
    use crate::repo::snapshot::Snapshot;
    use crate::types::SnapshotId;

    fn chosen(snapshots: &[(&str, &str, &str)], share: &str) -> Option<(Vec<usize>, bool)> {
        all_chosen(snapshots, share).map(|chosen| (chosen.at, chosen.has_others))
    }

    fn all_chosen(snapshots: &[(&str, &str, &str)], share: &str) -> Option<ChosenShares> {
        let named = |(path, group, share): &(&str, &str, &str)| {
            let mut extra = BTreeMap::new();
            if !group.is_empty() {
                let record = ShareRecord::new(group, share.parse().unwrap(), ShareOrigin::default()).unwrap();
                record.attach(&mut extra).unwrap();
            }
            let snapshot = Snapshot { paths: vec![path.as_bytes().to_vec().into()], extra, ..Snapshot::default() };
            NamedSnapshot { id: SnapshotId([0; 32]), snapshot }
        };
        let snapshots: Vec<NamedSnapshot> = snapshots.iter().map(named).collect();
        choose_shares(&snapshots, &[b"/a".to_vec()], share.parse().ok())
    }

    #[test]
    fn the_same_share_of_the_last_job_is_the_parent() {
        let jobs = [("/b", "3", "1/2"), ("/a", "2", "2/2"), ("/a", "2", "1/2"), ("/a", "1", "1/2")];
        assert_eq!(chosen(&jobs, "1/2"), Some((vec![2], false)));
        assert_eq!(chosen(&jobs, "2/2"), Some((vec![1], false)));
        let stopped = [("/a", "2", "2/2"), ("/a", "1", "1/2"), ("/a", "1", "2/2")];
        assert_eq!(chosen(&stopped, "1/2"), Some((vec![1], false)), "the last job has no such share yet");
    }

    #[test]
    fn the_other_shares_of_the_last_job_are_parents_of_what_is_split_otherwise() {
        let others = |snapshots: &[(&str, &str, &str)], share: &str| all_chosen(snapshots, share).unwrap().others;
        let jobs = [("/b", "3", "1/2"), ("/a", "2", "2/2"), ("/a", "2", "1/2"), ("/a", "1", "1/2")];
        assert_eq!(others(&jobs, "1/2"), [1]);
        let stopped = [("/a", "2", "2/2"), ("/a", "1", "1/2"), ("/a", "1", "2/2")];
        assert_eq!(others(&stopped, "1/2"), [2]);
        let repeated = [("/a", "2", "2/2"), ("/a", "1", "1/2"), ("/a", "1", "2/2")];
        assert_eq!(others(&repeated, "2/2"), [1, 2], "the last job is the one that is whole");
    }

    #[test]
    fn with_another_number_of_shares_all_of_the_last_job_are_parents() {
        let jobs = [("/a", "2", "2/2"), ("/a", "2", "1/2"), ("/a", "1", "1/3"), ("/a", "2", "1/2")];
        assert_eq!(chosen(&jobs, "1/4"), Some((vec![1, 0], true)));
        assert_eq!(chosen(&jobs, ""), Some((vec![1, 0], true)), "a backup that is not shared");
        let running = [("/a", "3", "1/4"), ("/a", "2", "2/2"), ("/a", "2", "1/2")];
        assert_eq!(chosen(&running, "2/4"), Some((vec![2, 1], true)), "the new job has few shares yet");
        assert_eq!(chosen(&running, "1/4"), Some((vec![0], false)), "the same share, which is repeated");
        assert_eq!(chosen(&running, ""), Some((vec![2, 1], true)));
    }

    #[test]
    fn a_backup_that_was_not_shared_is_the_parent_of_shares() {
        assert_eq!(chosen(&[("/a", "", ""), ("/a", "1", "1/2")], "1/2"), Some((vec![0], true)));
        assert_eq!(chosen(&[("/b", "", "")], "1/2"), Some((Vec::new(), false)));
        assert_eq!(chosen(&[("/a", "", "")], ""), None);
    }
}
