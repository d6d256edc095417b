//! The feature table: from the hash of a feature to the numbers of the chunks that have it.
//!
//! 1. A slot has 8 bytes: a 32-bit tag of the feature, and the chunk's number plus one. A bucket has eight slots.
//! 2. The low bits of the tag choose the page, the high bits the bucket. So a page can be split in two without knowing
//!    the features.
//! 3. An overflow goes to the next bucket of the page. That bucket is read only after a full one.
//! 4. The table starts small and doubles up to its bound. Then it overwrites the smallest number of the two buckets.
//!    Numbers ascend with the containers, so the oldest containers are dropped first.
//!
//! A wrong answer is harmless, because bytes are compared before they are copied.

use super::pages::{BUCKET_SLOTS, Bucket, PAGE_BUCKETS, PAGE_BYTES, Pages};

/// Pages of a new table.
pub(super) const PAGES_MIN: usize = 16;
/// More pages would need the bits that choose the bucket.
const PAGES_MAX: usize = 1 << BUCKET_SHIFT;
const BUCKET_SHIFT: u32 = 20;

/// The bits of a feature that are its hash. Eight bits of position code follow above them.
pub const HASH_MASK: u64 = (1 << 48) - 1;

/// From features to numbers (see the module).
pub(super) struct FeatureTable {
    pages: Pages,
    used: u64,
    pages_max: usize,
}

/// 32 evenly spread bits of the low 48 bits of a feature. A feature may be the smallest of many hashes, so its own bits
/// are not spread evenly.
fn tag_of(feature: u64) -> u32 {
    ((feature & HASH_MASK).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The bucket that takes the overflow of another one.
fn after(bucket: usize) -> usize {
    if bucket + 1 == PAGE_BUCKETS { 0 } else { bucket + 1 }
}

/// Slots are filled from the first on and never emptied.
fn is_full(slots: &Bucket) -> bool {
    slots.last().is_some_and(|slot| *slot != 0)
}

fn first_free(slots: &mut Bucket) -> Option<&mut u64> {
    slots.iter_mut().find(|slot| **slot == 0)
}

/// The number of pages, a power of two, that fit in `bytes`.
pub(super) fn pages_in(bytes: u64) -> usize {
    let pages = (bytes / PAGE_BYTES as u64).clamp(PAGES_MIN as u64, PAGES_MAX as u64);
    1 << pages.ilog2()
}

impl FeatureTable {
    /// An empty table that grows to at most `bytes_max` bytes of memory. The bound is rounded down to a power of two.
    pub(super) fn in_memory(bytes_max: u64) -> Self {
        FeatureTable { pages: Pages::in_memory(PAGES_MIN), used: 0, pages_max: pages_in(bytes_max) }
    }

    /// The table in `pages`, with `used` used slots. It grows to at most `pages_max` pages.
    pub(super) fn new(pages: Pages, used: u64, pages_max: usize) -> Self {
        FeatureTable { pages, used, pages_max }
    }

    /// The pages of the table.
    pub(super) fn pages(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// Number of used slots.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Page and bucket of a tag.
    fn bucket_of(&self, tag: u32) -> (usize, usize) {
        let page = tag as usize & (self.pages.count() - 1);
        let bucket = ((tag >> BUCKET_SHIFT) as usize * PAGE_BUCKETS) >> (u32::BITS - BUCKET_SHIFT);
        (page, bucket)
    }

    /// Numbers inserted with this feature, newest first. Only the low 48 bits of the feature count.
    pub(super) fn find(&mut self, feature: u64) -> impl Iterator<Item = u32> + use<> {
        let tag = tag_of(feature);
        let (page, bucket) = self.bucket_of(tag);
        let mut found = [0u32; 2 * BUCKET_SLOTS];
        let mut count = 0;
        let buckets = self.pages.read_page(page).map(|page| page.as_slice()).unwrap_or_default();
        for bucket in [bucket, after(bucket)] {
            let Some(slots) = buckets.get(bucket) else { break };
            for slot in slots.iter().filter(|slot| (**slot >> 32) as u32 == tag && **slot as u32 != 0) {
                found[count] = *slot as u32;
                count += 1;
            }
            if !is_full(slots) {
                break;
            }
        }
        found[..count].sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().take(count).map(|number| number - 1)
    }

    /// Whether it should [`grow`](FeatureTable::grow) before the next insertion: when it is half full. Then hardly any
    /// two neighbouring buckets are full, so doubling loses hardly any old numbers.
    pub(super) fn is_full(&self) -> bool {
        let slots = (self.pages.count() * PAGE_BUCKETS * BUCKET_SLOTS) as u64;
        self.used * 2 > slots && self.pages.count() < self.pages_max
    }

    /// Adds a number below `u32::MAX` with this feature.
    pub(super) fn insert(&mut self, feature: u64, number: u32) {
        self.insert_slot(u64::from(tag_of(feature)) << 32 | (u64::from(number) + 1));
    }

    fn insert_slot(&mut self, slot: u64) {
        let (page, bucket) = self.bucket_of((slot >> 32) as u32);
        let Some(page) = self.pages.change_page(page) else { return };
        for bucket in [bucket, after(bucket)] {
            if let Some(free) = first_free(&mut page[bucket]) {
                *free = slot;
                self.used += 1;
                return;
            }
        }
        let positions =
            [bucket, after(bucket)].into_iter().flat_map(|bucket| (0..BUCKET_SLOTS).map(move |at| (bucket, at)));
        let oldest = positions.min_by_key(|(bucket, at)| (page[*bucket][*at] as u32, *bucket, *at));
        if let Some((bucket, at)) = oldest {
            page[bucket][at] = slot;
        }
    }

    /// Doubles the table: the slots of each page are split between it and one new page.
    pub(super) fn grow(&mut self) {
        let count = self.pages.count();
        self.pages.double();
        self.used = 0;
        for page in 0..count {
            self.pages.take(page).into_iter().for_each(|slot| self.insert_slot(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(n: u32) -> u64 {
        u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
    }

    fn insert(table: &mut FeatureTable, numbers: std::ops::Range<u32>) {
        for n in numbers {
            if table.is_full() {
                table.grow();
            }
            table.insert(feature(n), n);
        }
    }

    fn found_count(table: &mut FeatureTable, numbers: std::ops::Range<u32>) -> usize {
        numbers.filter(|n| table.find(feature(*n)).any(|found| found == *n)).count()
    }

    fn check_aging(mut table: FeatureTable) {
        insert(&mut table, 0..50_000);
        let all = found_count(&mut table, 0..50_000);
        assert!(all > 49_900, "{all} of 50000 found in a table of 129024 slots");
        insert(&mut table, 50_000..500_000);
        assert_eq!(table.pages().count(), 256);
        let newest = found_count(&mut table, 450_000..500_000);
        let oldest = found_count(&mut table, 0..50_000);
        assert!(newest > 40_000 && oldest < 5_000, "newest {newest}, oldest {oldest}");
    }

    #[test]
    fn inserted_numbers_are_found_while_the_table_grows_and_the_oldest_are_dropped_first() {
        check_aging(FeatureTable::in_memory(1 << 20));
    }

    #[test]
    fn a_file_with_a_small_cache_finds_the_same_within_its_bound() {
        let file = tempfile::tempfile().expect("makes a file");
        let pages = Pages::on_file(file, 7, PAGES_MIN, 128 << 10);
        let mut table = FeatureTable::new(pages, 0, pages_in(1 << 20));
        insert(&mut table, 0..100_000);
        let mut whole = FeatureTable::in_memory(1 << 20);
        insert(&mut whole, 0..100_000);
        let found = |table: &mut FeatureTable, n| table.find(feature(n)).collect::<Vec<_>>();
        assert!((0..100_000).all(|n| found(&mut table, n) == found(&mut whole, n)));
        let bytes = table.pages().memory_bytes();
        assert!(bytes <= 128 << 10, "{bytes} bytes in memory");
        let file = tempfile::tempfile().expect("makes a file");
        check_aging(FeatureTable::new(Pages::on_file(file, 7, PAGES_MIN, 768 << 10), 0, pages_in(1 << 20)));
    }

    #[test]
    fn skewed_features_spread() {
        let mut table = FeatureTable::in_memory(1 << 20);
        let small = |n: u32| u64::from(n) * 3;
        for n in 0..50_000 {
            if table.is_full() {
                table.grow();
            }
            table.insert(small(n), n);
        }
        let count = (0..50_000).filter(|n| table.find(small(*n)).any(|found| found == *n)).count();
        assert!(count > 48_000, "{count} of 50000 found");
    }
}
