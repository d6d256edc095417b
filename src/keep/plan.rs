//! Plan: which containers a prune deletes or compacts.
//!
//! 1. A container without a live entry is deleted.
//! 2. Containers with dead bytes are compacted, those with the smallest live share first, until the dead bytes of all
//!    others are a small part of the repository.
//! 3. Small containers are merged if there are several of a kind.
//! 4. A recompression takes those with short frames, the oldest first.
//!
//! Containers younger than the grace period are left alone: a backup may be about to refer to them. A budget bounds the
//! bytes that are moved.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::live::LiveSet;
use crate::error::{Error, Result};
use crate::repo::container::{ContainerIndex, ContainerKind};
use crate::types::ContainerId;

/// Dead bytes that may stay, in per cent of the live ones.
const DEAD_PERCENT_MAX: u64 = 5;
/// A container that is smaller than this part of a full one is merged with others.
const SMALL_PART: u64 = 4;
/// Small containers of a kind from which on they are merged.
const SMALL_COUNT_MIN: usize = 4;

/// What the plan knows of a container.
#[derive(Debug, Clone, Copy)]
pub struct Occupancy {
    /// The container.
    pub id: ContainerId,
    /// What it holds.
    pub kind: ContainerKind,
    /// Stored bytes.
    pub bytes: u64,
    /// Estimate of the stored bytes of its live entries, index included.
    pub live_bytes: u64,
    /// Stored bytes in frames that are to be encoded again.
    pub loose_bytes: u64,
    /// When it was stored, by the clock of the store.
    pub modified: SystemTime,
}

impl Occupancy {
    /// Whether it may be deleted or moved. What is in cold storage is not read to move it, and a data container that is
    /// younger than `min_age` stays: a service bills a class of storage for so long, also after a deletion.
    pub fn may_go(&self, is_cold: bool, min_age: Option<Duration>, now: SystemTime) -> bool {
        let is_movable = !is_cold || self.kind == ContainerKind::Metadata || self.live_bytes == 0;
        is_movable && self.until_min_age(min_age, now).is_zero()
    }

    /// How long a data container stays until it is `min_age` old.
    pub fn until_min_age(&self, min_age: Option<Duration>, now: SystemTime) -> Duration {
        let min_age = min_age.filter(|_| self.kind == ContainerKind::Data).unwrap_or_default();
        // One from the future counts as new.
        min_age.saturating_sub(now.duration_since(self.modified).unwrap_or_default())
    }

    /// Estimates the live bytes of a container with the index `container_index`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an entry names no frame.
    pub fn live_bytes_of(
        id: &ContainerId,
        bytes: u64,
        container_index: &ContainerIndex,
        live: &LiveSet,
    ) -> Result<u64> {
        let mut literals = vec![(0u64, 0u64); container_index.frames.len()];
        let mut live_entries = 0u64;
        for (entry, position) in container_index.entries.iter().zip(0u32..) {
            let is_live = live.contains(id, position);
            live_entries += u64::from(is_live);
            if entry.literal_len == 0 {
                continue;
            }
            let frame = literals.get_mut(entry.frame as usize);
            let frame = frame.ok_or_else(|| Error::corrupt(id.to_string(), 0, "a frame of each entry", "none"))?;
            frame.1 += u64::from(entry.literal_len);
            frame.0 += if is_live { u64::from(entry.literal_len) } else { 0 };
        }
        let frames = container_index.frames.iter().map(|frame| frame.stored_bytes() as u64);
        let frame_bytes: u64 = frames.clone().sum();
        let live_frame_bytes: u64 = frames
            .zip(&literals)
            .map(
                |(stored, (live, all))| {
                    if *all == 0 { 0 } else { (u128::from(stored) * u128::from(*live) / u128::from(*all)) as u64 }
                },
            )
            .sum();
        let entries = container_index.entries.len().max(1) as u64;
        let index_bytes = bytes.saturating_sub(frame_bytes);
        Ok(live_frame_bytes + (u128::from(index_bytes) * u128::from(live_entries) / u128::from(entries)) as u64)
    }
}

/// Bounds of a plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanBounds {
    /// Containers younger than this are left alone.
    pub grace: Duration,
    /// Now, by the clock of this machine.
    pub now: SystemTime,
    /// Live bytes that may be moved.
    pub repack_bytes_max: u64,
    /// Bytes of a full container.
    pub container_bytes: u64,
}

impl PlanBounds {
    /// Whether something that the store got at `modified` is older than the grace period.
    pub fn is_old(&self, modified: SystemTime) -> bool {
        self.grace.is_zero() || self.now.duration_since(modified).is_ok_and(|age| age >= self.grace)
    }
}

/// Chooses the containers to delete or to compact.
pub fn choose(containers: &[Occupancy], bounds: &PlanBounds) -> HashSet<ContainerId> {
    let mut old: Vec<&Occupancy> = containers.iter().filter(|one| bounds.is_old(one.modified)).collect();
    let mut chosen: HashSet<ContainerId> = old.iter().filter(|one| one.live_bytes == 0).map(|one| one.id).collect();
    old.retain(|one| one.live_bytes > 0);
    let mut budget = bounds.repack_bytes_max;
    let mut take = |one: &Occupancy, chosen: &mut HashSet<ContainerId>| {
        if one.live_bytes <= budget && chosen.insert(one.id) {
            budget -= one.live_bytes;
            return true;
        }
        false
    };
    let live: u64 = containers.iter().map(|one| one.live_bytes).sum();
    let mut dead: u64 = old.iter().map(|one| one.bytes.saturating_sub(one.live_bytes)).sum();
    // By ascending live share, compared without fractions.
    old.sort_by(|one, other| {
        let left = u128::from(one.live_bytes) * u128::from(other.bytes);
        left.cmp(&(u128::from(other.live_bytes) * u128::from(one.bytes))).then_with(|| one.id.cmp(&other.id))
    });
    for one in &old {
        if u128::from(dead) * 100 <= u128::from(live) * u128::from(DEAD_PERCENT_MAX) {
            break;
        }
        if take(one, &mut chosen) {
            dead -= one.bytes.saturating_sub(one.live_bytes);
        }
    }
    for kind in [ContainerKind::Data, ContainerKind::Metadata] {
        let is_small = |one: &Occupancy| one.kind == kind && one.live_bytes < bounds.container_bytes / SMALL_PART;
        let mut small: Vec<&Occupancy> = old.iter().copied().filter(|one| is_small(one)).collect();
        if small.len() >= SMALL_COUNT_MIN {
            small.sort_by_key(|one| (one.live_bytes, one.id));
            small.into_iter().for_each(|one| _ = take(one, &mut chosen));
        }
    }
    old.retain(|one| one.loose_bytes > 0);
    // Those of one backup lie beside each other, and what is alike is compressed together.
    old.sort_by_key(|one| (one.modified, one.id));
    old.into_iter().for_each(|one| _ = take(one, &mut chosen));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: u8, bytes: u64, live_bytes: u64, age: u64) -> Occupancy {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age);
        let (id, kind) = (ContainerId([id; 32]), ContainerKind::Data);
        Occupancy { id, kind, bytes, live_bytes, loose_bytes: 0, modified }
    }

    fn chosen(containers: &[Occupancy], grace: u64, repack_bytes_max: u64) -> Vec<u8> {
        let bounds = PlanBounds {
            grace: Duration::from_secs(grace),
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
            repack_bytes_max,
            container_bytes: 100,
        };
        let mut ids: Vec<u8> = choose(containers, &bounds).into_iter().map(|id| id.0[0]).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn dead_containers_go_and_the_emptiest_are_compacted_first() {
        let containers = [
            container(1, 100, 0, 50),
            container(2, 100, 30, 50),
            container(3, 100, 90, 50),
            container(4, 1000, 1000, 50),
        ];
        assert_eq!(chosen(&containers, 0, u64::MAX), [1, 2]);
        assert_eq!(chosen(&containers, 0, 29), [1]);
        assert_eq!(chosen(&containers, 51, u64::MAX), [0u8; 0]);
        assert_eq!(chosen(&containers, 50, u64::MAX), [1, 2]);
        // 40 dead bytes beside 1030 live ones are within the bound.
        assert_eq!(chosen(&containers[2..], 0, u64::MAX), [0u8; 0]);
        assert_eq!(chosen(&[container(1, 100, 90, 5)], 0, u64::MAX), [1]);
    }

    #[test]
    fn several_small_containers_are_merged() {
        let small: Vec<Occupancy> = (1..=4).map(|id| container(id, 20, 20, 50)).collect();
        assert_eq!(chosen(&small, 0, u64::MAX), [1, 2, 3, 4]);
        assert_eq!(chosen(&small, 0, 50), [1, 2]);
        assert_eq!(chosen(&small[1..], 0, u64::MAX), [0u8; 0]);
    }

    #[test]
    fn loose_containers_go_within_the_budget_the_oldest_first() {
        let loose = |id, age| Occupancy { loose_bytes: 1, ..container(id, 100, 100, age) };
        let containers = [loose(1, 20), loose(2, 60), container(3, 100, 100, 50), loose(4, 40)];
        assert_eq!(chosen(&containers, 0, u64::MAX), [1, 2, 4]);
        assert_eq!(chosen(&containers, 0, 200), [2, 4]);
        assert_eq!(chosen(&containers, 30, u64::MAX), [2, 4]);
    }
}
