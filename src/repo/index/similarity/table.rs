//! The table: from a feature's hash to the numbers of the chunks that carry it.
//!
//! A flat table of 8-byte slots, eight to a bucket: a 32-bit tag of the feature and the chunk's number plus one. The
//! tag's low bits choose the page, its high bits the bucket, so a page is split in two without knowing the features.
//! What does not fit goes to the next bucket of the page, which is therefore read only behind a full one. The table
//! starts small, doubles while it may, and then overwrites the smallest number of the two: numbers ascend with the
//! stream and its containers, so it ages by container. A false or stale answer is harmless: bytes are compared before
//! anything is copied.

use super::pages::{BUCKET_SLOTS, Bucket, PAGE_BUCKETS, PAGE_BYTES, Pages};

/// Pages of a new table.
pub(super) const PAGES_MIN: usize = 16;
/// More would take bits that choose the bucket.
const PAGES_MAX: usize = 1 << BUCKET_SHIFT;
const BUCKET_SHIFT: u32 = 20;

/// See the module.
pub(super) struct FeatureTable {
    pages: Pages,
    used: u64,
    pages_max: usize,
}

/// 32 evenly spread bits of the 48 that count. Features may be the smallest of many hashes, so no bits are taken as
/// they are.
fn tag_of(feature: u64) -> u32 {
    ((feature & 0xffff_ffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Where the slots go that a bucket has no room for.
fn after(bucket: usize) -> usize {
    if bucket + 1 == PAGE_BUCKETS { 0 } else { bucket + 1 }
}

/// Slots are taken from the first on and never emptied.
fn is_full(slots: &Bucket) -> bool {
    slots.last().is_some_and(|slot| *slot != 0)
}

fn first_free(slots: &mut Bucket) -> Option<&mut u64> {
    slots.iter_mut().find(|slot| **slot == 0)
}

/// The number of pages, a power of two, that `bytes` hold.
pub(super) fn pages_in(bytes: u64) -> usize {
    let pages = (bytes / PAGE_BYTES as u64).clamp(PAGES_MIN as u64, PAGES_MAX as u64);
    1 << pages.ilog2()
}

impl FeatureTable {
    /// An empty table that grows to at most `bytes_max` bytes of memory (rounded down to a power of two).
    pub(super) fn in_memory(bytes_max: u64) -> Self {
        FeatureTable { pages: Pages::in_memory(PAGES_MIN), used: 0, pages_max: pages_in(bytes_max) }
    }

    /// The table in `pages`, of which `used` slots are taken, growing to at most `pages_max` pages.
    pub(super) fn new(pages: Pages, used: u64, pages_max: usize) -> Self {
        FeatureTable { pages, used, pages_max }
    }

    /// Its pages.
    pub(super) fn pages(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// Slots taken.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    fn place_of(&self, tag: u32) -> (usize, usize) {
        let page = tag as usize & (self.pages.count() - 1);
        let bucket = ((tag >> BUCKET_SHIFT) as usize * PAGE_BUCKETS) >> (u32::BITS - BUCKET_SHIFT);
        (page, bucket)
    }

    /// Numbers inserted with this feature (its low 48 bits count), newest first.
    pub(super) fn find(&mut self, feature: u64) -> impl Iterator<Item = u32> + use<> {
        let tag = tag_of(feature);
        let (page, bucket) = self.place_of(tag);
        let mut found = [0u32; 2 * BUCKET_SLOTS];
        let mut count = 0;
        let buckets = self.pages.read_page(page).map(|page| page.as_slice()).unwrap_or_default();
        for bucket in [bucket, after(bucket)] {
            let Some(slots) = buckets.get(bucket) else { break };
            for slot in slots.iter().filter(|slot| (**slot >> 32) as u32 == tag && **slot as u32 != 0) {
                if let Some(place) = found.get_mut(count) {
                    *place = *slot as u32;
                    count += 1;
                }
            }
            if !is_full(slots) {
                break;
            }
        }
        if let Some(found) = found.get_mut(..count).filter(|found| found.len() > 1) {
            found.sort_unstable_by(|a, b| b.cmp(a));
        }
        found.into_iter().take(count).map(|number| number - 1)
    }

    /// Whether it should [`grow`](FeatureTable::grow) before more comes: when half full, so that hardly any two buckets are,
    /// since of those the oldest numbers would be lost with each doubling.
    pub(super) fn is_full(&self) -> bool {
        let slots = (self.pages.count() * PAGE_BUCKETS * BUCKET_SLOTS) as u64;
        self.used * 2 > slots && self.pages.count() < self.pages_max
    }

    /// Adds `number` (below `u32::MAX`) under this feature.
    pub(super) fn insert(&mut self, feature: u64, number: u32) {
        self.place(u64::from(tag_of(feature)) << 32 | (u64::from(number) + 1));
    }

    fn place(&mut self, slot: u64) {
        let (page, bucket) = self.place_of((slot >> 32) as u32);
        let Some(page) = self.pages.change_page(page) else { return };
        for bucket in [bucket, after(bucket)] {
            if let Some(free) = page.get_mut(bucket).and_then(first_free) {
                *free = slot;
                self.used += 1;
                return;
            }
        }
        let number = |bucket: usize| {
            let slots = page.get(bucket).into_iter().flatten();
            slots.zip(0usize..).map(|(slot, at)| (*slot as u32, bucket, at)).min().unwrap_or_default()
        };
        let (_, bucket, at) = number(bucket).min(number(after(bucket)));
        if let Some(oldest) = page.get_mut(bucket).and_then(|slots| slots.get_mut(at)) {
            *oldest = slot;
        }
    }

    /// Doubles the table: each page's slots go to it and to one new page.
    pub(super) fn grow(&mut self) {
        let count = self.pages.count();
        self.pages.double();
        self.used = 0;
        for page in 0..count {
            self.pages.take(page).into_iter().for_each(|slot| self.place(slot));
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

    fn kept(table: &mut FeatureTable, numbers: std::ops::Range<u32>) -> usize {
        numbers.filter(|n| table.find(feature(*n)).any(|found| found == *n)).count()
    }

    fn ages(mut table: FeatureTable) {
        insert(&mut table, 0..50_000);
        let all = kept(&mut table, 0..50_000);
        assert!(all > 49_900, "{all} of 50000 kept in a table with room for 129024");
        insert(&mut table, 50_000..500_000);
        assert_eq!(table.pages().count(), 256);
        let newest = kept(&mut table, 450_000..500_000);
        let oldest = kept(&mut table, 0..50_000);
        assert!(newest > 40_000 && oldest < 5_000, "newest {newest}, oldest {oldest}");
    }

    #[test]
    fn finds_what_was_inserted_while_it_grows_and_ages_the_oldest() {
        ages(FeatureTable::in_memory(1 << 20));
    }

    #[test]
    fn a_file_with_a_small_cache_holds_the_same_within_its_bound() {
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
        ages(FeatureTable::new(Pages::on_file(file, 7, PAGES_MIN, 768 << 10), 0, pages_in(1 << 20)));
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
        let kept = (0..50_000).filter(|n| table.find(small(*n)).any(|found| found == *n)).count();
        assert!(kept > 48_000, "{kept} of 50000 kept");
    }
}
