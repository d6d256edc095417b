//! Pages of slots: a checksummed file behind a bounded cache, or memory alone.
//!
//! 1. A page is 4096 bytes: a checksum, seeded by the file's seed and the page's number, 56 bytes of zeros and 63
//!    buckets of eight 8-byte slots, little-endian. A page that is torn, foreign or not written yet fails its checksum
//!    and counts as empty.
//! 2. Resident pages are found through a table of all pages, so a hit costs no hashing. Room for another page is made
//!    by the clock algorithm; a changed page is written back first.
//! 3. Trouble with the file never fails a caller: what cannot be read is empty, and what cannot be written makes the
//!    file as a whole [`broken`](Pages::is_broken).

use std::fs::File;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a page on disk.
pub(super) const PAGE_BYTES: usize = 4096;
/// Slots of a bucket.
pub(super) const BUCKET_SLOTS: usize = 8;
/// Buckets of a page.
pub(super) const PAGE_BUCKETS: usize = 63;
/// Pages kept at least, however little memory is granted.
const RESIDENT_MIN: usize = 16;
/// Bytes before the buckets.
const HEADER_BYTES: usize = PAGE_BYTES - PAGE_BUCKETS * BUCKET_SLOTS * 8;
const CHECKSUM_BYTES: usize = 8;

/// Eight slots, one cache line.
pub(super) type Bucket = [u64; BUCKET_SLOTS];

/// A page in memory.
#[repr(align(64))]
struct Page([Bucket; PAGE_BUCKETS]);

#[derive(Default)]
struct PageSlot {
    page: Option<Box<Page>>,
    is_used: bool,
    is_changed: bool,
}

/// See the module.
pub(super) struct Pages {
    /// The file and what seeds its checksums.
    file: Option<(File, u64)>,
    places: Vec<PageSlot>,
    resident: Vec<u32>,
    hand: usize,
    bytes_max: usize,
    broken: bool,
}

impl Pages {
    /// `count` empty pages in memory.
    pub(super) fn in_memory(count: usize) -> Self {
        Self::new(None, count, usize::MAX)
    }

    /// The `count` pages of `file`, of which as many are in memory as `bytes_max` bytes hold, the table included.
    pub(super) fn on_file(file: File, seed: u64, count: usize, bytes_max: usize) -> Self {
        Self::new(Some((file, seed)), count, bytes_max)
    }

    fn new(file: Option<(File, u64)>, count: usize, bytes_max: usize) -> Self {
        let places = std::iter::repeat_with(PageSlot::default).take(count).collect();
        Pages { file, places, resident: Vec::new(), hand: 0, bytes_max, broken: false }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Whether something could not be written: the file is no longer what it should be.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.resident.len() * (size_of::<Page>() + 4) + self.places.len() * size_of::<PageSlot>()
    }

    /// Pages that may be in memory.
    fn resident_max(&self) -> usize {
        let table_bytes = self.places.len() * size_of::<PageSlot>();
        (self.bytes_max.saturating_sub(table_bytes) / (size_of::<Page>() + 4)).max(RESIDENT_MIN)
    }

    /// The buckets of a page, to be read.
    pub(super) fn read_page(&mut self, page: usize) -> Option<&[Bucket; PAGE_BUCKETS]> {
        Some(&self.resident(page)?.page.as_deref()?.0)
    }

    /// The buckets of a page, to be changed.
    pub(super) fn change_page(&mut self, page: usize) -> Option<&mut [Bucket; PAGE_BUCKETS]> {
        let place = self.resident(page)?;
        place.is_changed = true;
        Some(&mut place.page.as_deref_mut()?.0)
    }

    /// Takes all slots out of a page.
    pub(super) fn take(&mut self, page: usize) -> Vec<u64> {
        let Some(buckets) = self.change_page(page) else { return Vec::new() };
        let slots = buckets.as_flattened().iter().copied().filter(|slot| *slot != 0).collect();
        *buckets = [[0; BUCKET_SLOTS]; PAGE_BUCKETS];
        slots
    }

    /// Doubles the number of pages; the new ones are empty.
    pub(super) fn double(&mut self) {
        let count = self.places.len() * 2;
        self.places.resize_with(count, PageSlot::default);
        if let Some((file, _)) = &self.file
            && let Err(error) = file.set_len(count as u64 * PAGE_BYTES as u64)
        {
            self.fail(&error);
        }
    }

    /// Writes every changed page.
    pub(super) fn flush(&mut self) {
        let mut changed = self.resident.clone();
        changed.sort_unstable();
        changed.into_iter().for_each(|number| self.write_back(number));
    }

    fn resident(&mut self, number: usize) -> Option<&mut PageSlot> {
        if self.places.get(number)?.page.is_none() {
            self.load(number);
        }
        let place = self.places.get_mut(number)?;
        place.is_used = true;
        Some(place)
    }

    fn load(&mut self, number: usize) {
        let resident_max = if self.file.is_some() { self.resident_max() } else { usize::MAX };
        while self.resident.len() > resident_max {
            self.evict();
            self.resident.swap_remove(self.hand);
        }
        let full = self.resident.len() == resident_max;
        let page = if full { self.evict() } else { None };
        let mut page = page.unwrap_or_else(|| Box::new(Page([[0; BUCKET_SLOTS]; PAGE_BUCKETS])));
        self.read(number, &mut page);
        match self.resident.get_mut(self.hand).filter(|_| full) {
            Some(evicted) => *evicted = number as u32,
            None => self.resident.push(number as u32),
        }
        self.hand += usize::from(full);
        if let Some(place) = self.places.get_mut(number) {
            place.page = Some(page);
        }
    }

    /// Gives up the first page from the hand on that was not used since the hand last passed; the hand then points at
    /// its number.
    fn evict(&mut self) -> Option<Box<Page>> {
        loop {
            if self.hand >= self.resident.len() {
                self.hand = 0;
            }
            let number = *self.resident.get(self.hand)?;
            let place = self.places.get_mut(number as usize)?;
            if !std::mem::take(&mut place.is_used) {
                self.write_back(number);
                return self.places.get_mut(number as usize)?.page.take();
            }
            self.hand += 1;
        }
    }

    fn read(&self, number: usize, page: &mut Page) {
        page.0 = [[0; BUCKET_SLOTS]; PAGE_BUCKETS];
        let Some((file, seed)) = &self.file else { return };
        let mut bytes = [0; PAGE_BYTES];
        if let Err(error) = file.read_exact_at(&mut bytes, number as u64 * PAGE_BYTES as u64) {
            tracing::debug!("similarity page {number}: {error}");
            return;
        }
        let (recorded, body) = bytes.split_at(CHECKSUM_BYTES);
        if recorded != checksum(*seed, number, body) {
            return;
        }
        let slots = bytes.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<8>().0;
        for (slot, bytes) in page.0.as_flattened_mut().iter_mut().zip(slots) {
            *slot = u64::from_le_bytes(*bytes);
        }
    }

    fn write_back(&mut self, number: u32) {
        let Some((file, seed)) = &self.file else { return };
        let Some(place) = self.places.get_mut(number as usize) else { return };
        let (Some(page), true) = (&place.page, std::mem::take(&mut place.is_changed)) else { return };
        let mut bytes = [0; PAGE_BYTES];
        let slots = bytes.get_mut(HEADER_BYTES..).unwrap_or_default().as_chunks_mut::<8>().0;
        for (slot, bytes) in page.0.as_flattened().iter().zip(slots) {
            *bytes = slot.to_le_bytes();
        }
        let (recorded, body) = bytes.split_at_mut(CHECKSUM_BYTES);
        recorded.copy_from_slice(&checksum(*seed, number as usize, body));
        if let Err(error) = file.write_all_at(&bytes, u64::from(number) * PAGE_BYTES as u64) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.broken, true) {
            tracing::warn!("the similarity index cannot be written and will be made anew: {error}");
        }
    }
}

fn checksum(seed: u64, number: usize, body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    xxh3_64_with_seed(body, seed ^ number as u64).to_le_bytes()
}
