//! Growth: what each snapshot added, by the counters that its backup recorded.
//!
//! Forgotten snapshots are not in the sums, and space that a prune has freed is not taken off.

use serde::Serialize;

use crate::repo::snapshot::NamedSnapshot;

/// Bytes of content, and what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GrowthBytes {
    /// Content.
    pub bytes: u64,
    /// Of these, what was not stored because it was stored before.
    pub duplicates: u64,
    /// Of the rest, what deltas, copies and compression have saved.
    pub reduced: u64,
    /// What was added to the repository.
    pub stored: u64,
}

impl GrowthBytes {
    /// What the backup of a snapshot recorded.
    pub fn of(named: &NamedSnapshot) -> Self {
        let counter = |name: &str| named.snapshot.statistics.get(name).copied().unwrap_or(0);
        let (bytes, new, stored) = (counter("bytes"), counter("bytes_new"), counter("bytes_stored"));
        let duplicates = bytes.saturating_sub(new);
        GrowthBytes { bytes, duplicates, reduced: bytes.saturating_sub(duplicates).saturating_sub(stored), stored }
    }

    fn and(self, other: Self) -> Self {
        GrowthBytes {
            bytes: self.bytes.saturating_add(other.bytes),
            duplicates: self.duplicates.saturating_add(other.duplicates),
            reduced: self.reduced.saturating_add(other.reduced),
            stored: self.stored.saturating_add(other.stored),
        }
    }
}

/// A snapshot, and the sum up to it.
#[derive(Debug, Clone, Copy)]
pub struct GrowthPoint<'a> {
    /// The snapshot.
    pub named: &'a NamedSnapshot,
    /// What it added.
    pub added: GrowthBytes,
    /// What it and all before it added.
    pub total: GrowthBytes,
}

/// What each of `snapshots` added, in their order.
pub fn growth(snapshots: &[NamedSnapshot]) -> Vec<GrowthPoint<'_>> {
    let mut total = GrowthBytes::default();
    let point = |named| {
        let added = GrowthBytes::of(named);
        total = total.and(added);
        GrowthPoint { named, added, total }
    };
    snapshots.iter().map(point).collect()
}

/// The `count` snapshots that stored the most bytes, the largest first.
pub fn largest<'a>(points: &[GrowthPoint<'a>], count: usize) -> Vec<GrowthPoint<'a>> {
    let mut points = points.to_vec();
    points.sort_by_key(|point| std::cmp::Reverse((point.added.stored, point.named.snapshot.time_ns)));
    points.truncate(count);
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::snapshot::Snapshot;
    use crate::types::SnapshotId;

    fn named(time_ns: i64, counters: [u64; 3]) -> NamedSnapshot {
        let names = ["bytes", "bytes_new", "bytes_stored"].map(String::from);
        let statistics = names.into_iter().zip(counters).collect();
        NamedSnapshot {
            id: SnapshotId([time_ns as u8; 32]),
            snapshot: Snapshot { time_ns, statistics, ..Snapshot::default() },
        }
    }

    #[test]
    fn content_is_duplicate_reduced_or_stored() {
        // Metadata can take more than there is new content, and a snapshot may have recorded nothing.
        let mut snapshots =
            vec![named(1, [100, 60, 20]), named(2, [100, 0, 3]), named(3, [5, 5, u64::MAX]), named(4, [0; 3])];
        snapshots[3].snapshot.statistics.clear();
        let points = growth(&snapshots);
        let added = |at: usize| {
            let GrowthBytes { bytes, duplicates, reduced, stored } = points[at].added;
            [bytes, duplicates, reduced, stored]
        };
        assert_eq!([added(0), added(1)], [[100, 40, 40, 20], [100, 100, 0, 3]]);
        assert_eq!([added(2), added(3)], [[5, 0, 0, u64::MAX], [0; 4]]);
        let total = points[3].total;
        assert_eq!((total.bytes, total.duplicates, total.reduced, total.stored), (205, 140, 40, u64::MAX));
        let order: Vec<i64> = largest(&points, 3).iter().map(|point| point.named.snapshot.time_ns).collect();
        assert_eq!(order, [3, 1, 2]);
    }
}
