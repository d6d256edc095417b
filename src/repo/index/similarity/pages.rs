//! Pages of slots: a checksummed file behind a bounded cache, or memory alone.
//!
//! 1. A page has 4096 bytes: a checksum, seeded by the file's seed and the page's number, 56 bytes, and 63 buckets of
//!    eight 8-byte slots, little-endian. A page that is torn, foreign or not written yet fails its checksum and counts
//!    as empty. The 56 bytes are zero. If the repository is encrypted, so are the buckets, and the 56 bytes are the
//!    nonce, zeros, and the tag.
//! 2. A table of all pages finds the resident ones, so a hit costs no hashing. The clock algorithm chooses the page to
//!    evict, and a changed page is written back first.
//! 3. Errors of the file never reach the caller. A page that cannot be read is empty. A page that cannot be written
//!    makes the whole file [`broken`](Pages::is_broken).

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::crypto::{Cipher, NONCE_BYTES, TAG_BYTES};

/// Bytes of a page on disk.
pub(super) const PAGE_BYTES: usize = 4096;
/// Slots of a bucket.
pub(super) const BUCKET_SLOTS: usize = 8;
/// Buckets of a page.
pub(super) const PAGE_BUCKETS: usize = 63;
/// Resident pages, at least, for any memory bound.
const RESIDENT_MIN: usize = 16;
/// Bytes before the buckets.
const HEADER_BYTES: usize = PAGE_BYTES - PAGE_BUCKETS * BUCKET_SLOTS * 8;
const CHECKSUM_BYTES: usize = 8;
const NONCE: Range<usize> = CHECKSUM_BYTES..CHECKSUM_BYTES + NONCE_BYTES;
const TAG: Range<usize> = HEADER_BYTES - TAG_BYTES..HEADER_BYTES;

/// Eight slots in one cache line.
pub(super) type Bucket = [u64; BUCKET_SLOTS];

/// A page in memory.
#[repr(align(64))]
struct Page([Bucket; PAGE_BUCKETS]);

/// A page of the file, and whether it is resident.
#[derive(Default)]
struct PageSlot {
    page: Option<Box<Page>>,
    is_used: bool,
    is_changed: bool,
}

/// All pages of a table (see the module).
pub(super) struct Pages {
    /// The file and the seed of its checksums.
    file: Option<(File, u64)>,
    /// Encrypts the pages of the file.
    cipher: Option<Cipher>,
    slots: Vec<PageSlot>,
    /// Numbers of the resident pages.
    resident: Vec<u32>,
    /// Position of the clock hand in `resident`.
    hand: usize,
    bytes_max: usize,
    broken: bool,
}

impl Pages {
    /// `count` empty pages in memory.
    pub(super) fn in_memory(count: usize) -> Self {
        Self::new(None, count, usize::MAX)
    }

    /// The `count` pages of `file`. At most `bytes_max` bytes are in memory, including the table of pages.
    pub(super) fn on_file(file: File, seed: u64, count: usize, bytes_max: usize) -> Self {
        Self::new(Some((file, seed)), count, bytes_max)
    }

    /// The same pages, encrypted in the file.
    pub(super) fn encrypted(self, cipher: Option<Cipher>) -> Self {
        Pages { cipher, ..self }
    }

    fn new(file: Option<(File, u64)>, count: usize, bytes_max: usize) -> Self {
        let slots = std::iter::repeat_with(PageSlot::default).take(count).collect();
        Pages { file, cipher: None, slots, resident: Vec::new(), hand: 0, bytes_max, broken: false }
    }

    /// Number of pages.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Whether a write failed. Then the content of the file is undefined.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Memory in use, bytes.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.resident.len() * (size_of::<Page>() + 4) + self.slots.len() * size_of::<PageSlot>()
    }

    /// Resident pages, at most.
    fn resident_max(&self) -> usize {
        let table_bytes = self.slots.len() * size_of::<PageSlot>();
        (self.bytes_max.saturating_sub(table_bytes) / (size_of::<Page>() + 4)).max(RESIDENT_MIN)
    }

    /// The buckets of a page for reading; `None` if there is no such page.
    pub(super) fn read_page(&mut self, page: usize) -> Option<&[Bucket; PAGE_BUCKETS]> {
        Some(&self.resident(page)?.page.as_deref()?.0)
    }

    /// The buckets of a page for writing; `None` if there is no such page.
    pub(super) fn change_page(&mut self, page: usize) -> Option<&mut [Bucket; PAGE_BUCKETS]> {
        let slot = self.resident(page)?;
        slot.is_changed = true;
        Some(&mut slot.page.as_deref_mut()?.0)
    }

    /// Removes all slots of a page and returns the used ones.
    pub(super) fn take(&mut self, page: usize) -> Vec<u64> {
        let Some(buckets) = self.change_page(page) else { return Vec::new() };
        let slots = buckets.as_flattened().iter().copied().filter(|slot| *slot != 0).collect();
        *buckets = [[0; BUCKET_SLOTS]; PAGE_BUCKETS];
        slots
    }

    /// Doubles the number of pages. The new ones are empty.
    pub(super) fn double(&mut self) {
        let count = self.slots.len() * 2;
        self.slots.resize_with(count, PageSlot::default);
        if let Some((file, _)) = &self.file
            && let Err(error) = file.set_len(count as u64 * PAGE_BYTES as u64)
        {
            self.fail(&error);
        }
    }

    /// Writes all changed pages.
    pub(super) fn flush(&mut self) {
        let mut changed = self.resident.clone();
        changed.sort_unstable();
        changed.into_iter().for_each(|number| self.write_back(number));
    }

    fn resident(&mut self, number: usize) -> Option<&mut PageSlot> {
        if self.slots.get(number)?.page.is_none() {
            self.load(number);
        }
        let slot = self.slots.get_mut(number)?;
        slot.is_used = true;
        Some(slot)
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
        if let Some(slot) = self.slots.get_mut(number) {
            slot.page = Some(page);
        }
    }

    /// Evicts the first page from the hand on that was not used since the last round of the hand. The hand then points
    /// to its number.
    fn evict(&mut self) -> Option<Box<Page>> {
        loop {
            if self.hand >= self.resident.len() {
                self.hand = 0;
            }
            let number = *self.resident.get(self.hand)?;
            let slot = self.slots.get_mut(number as usize)?;
            if !std::mem::take(&mut slot.is_used) {
                self.write_back(number);
                return self.slots.get_mut(number as usize)?.page.take();
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
        let (recorded, covered) = bytes.split_at(CHECKSUM_BYTES);
        if recorded != checksum(*seed, number, covered) {
            return;
        }
        if let Some(cipher) = &self.cipher
            && open(cipher, number, &mut bytes).is_none()
        {
            return;
        }
        let slots = bytes[HEADER_BYTES..].as_chunks::<8>().0;
        for (slot, bytes) in page.0.as_flattened_mut().iter_mut().zip(slots) {
            *slot = u64::from_le_bytes(*bytes);
        }
    }

    fn write_back(&mut self, number: u32) {
        let Some((file, seed)) = &self.file else { return };
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        let (Some(page), true) = (&slot.page, std::mem::take(&mut slot.is_changed)) else { return };
        let mut bytes = [0; PAGE_BYTES];
        let slots = bytes[HEADER_BYTES..].as_chunks_mut::<8>().0;
        for (slot, bytes) in page.0.as_flattened().iter().zip(slots) {
            *bytes = slot.to_le_bytes();
        }
        if let Some(cipher) = &self.cipher
            && let Err(error) = seal(cipher, number as usize, &mut bytes)
        {
            self.fail(&std::io::Error::other(error));
            return;
        }
        let (recorded, covered) = bytes.split_at_mut(CHECKSUM_BYTES);
        recorded.copy_from_slice(&checksum(*seed, number as usize, covered));
        if let Err(error) = file.write_all_at(&bytes, u64::from(number) * PAGE_BYTES as u64) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.broken, true) {
            tracing::warn!("cannot write the similarity index, which will be rebuilt: {error}");
        }
    }
}

/// Encrypts the buckets of a page. The nonce is random, because a page is written again and again.
fn seal(cipher: &Cipher, number: usize, page: &mut [u8; PAGE_BYTES]) -> crate::Result<()> {
    let (header, buckets) = page.split_at_mut(HEADER_BYTES);
    let (nonce, tag) = cipher.seal_randomly(&(number as u64).to_le_bytes(), buckets)?;
    header[NONCE].copy_from_slice(&nonce);
    header[TAG].copy_from_slice(&tag);
    Ok(())
}

/// Decrypts the buckets of a page; `None` if they were not encrypted with this key, or for another page.
fn open(cipher: &Cipher, number: usize, page: &mut [u8; PAGE_BYTES]) -> Option<()> {
    let (header, buckets) = page.split_at_mut(HEADER_BYTES);
    let nonce = header[NONCE].try_into().ok()?;
    let mut sealed = [buckets, &header[TAG]].concat();
    cipher.open_in_place(nonce, &(number as u64).to_le_bytes(), &mut sealed)?;
    buckets.iter_mut().zip(sealed).for_each(|(to, from)| *to = from);
    Some(())
}

fn checksum(seed: u64, number: usize, covered: &[u8]) -> [u8; CHECKSUM_BYTES] {
    xxh3_64_with_seed(covered, seed ^ number as u64).to_le_bytes()
}
