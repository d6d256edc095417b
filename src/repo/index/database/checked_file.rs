//! The file below redb: pages, each under a checksum, or encrypted if the repository is.
//!
//! redb trusts what it reads, and a page that it did not write can make it panic. So every page is checked here, and
//! one that is torn, foreign or was never written is an error of the file.
//!
//! 1. The file begins with 32 bytes: a type, a random seed, and a checksum of both and of the repository's id.
//! 2. Each page has 4096 bytes, and 32 more: a checksum, seeded by the seed and the page's number, and zeros. If the
//!    repository is encrypted, they are the nonce, the tag and zeros.

use std::fmt;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;

use redb::StorageBackend;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::crypto::{Cipher, CipherSuite, NONCE_BYTES, SecretKey, TAG_BYTES};
use crate::wire::checksum;

/// The last byte is the version.
const MAGIC: [u8; 8] = *b"FHRDRDB\x01";
const HEADER_BYTES: usize = 32;
/// Bytes of a page for redb.
pub(super) const PAGE_BYTES: usize = 4096;
/// Bytes of a page on disk.
pub(super) const SLOT_BYTES: usize = PAGE_BYTES + 32;
const CHECKSUM_BYTES: usize = 16;
/// Purpose of the key of a file.
const CONTEXT: &str = "fhrd 2026-11 database of chunks";

type PageContent = [u8; PAGE_BYTES];

/// See the module.
pub(super) struct CheckedFile {
    file: File,
    seed: u64,
    cipher: Option<Cipher>,
}

impl fmt::Debug for CheckedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CheckedFile").field("file", &self.file).finish_non_exhaustive()
    }
}

fn damaged(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, what.into())
}

fn header_checksum(head: &[u8], repository: &str) -> [u8; 16] {
    checksum::<16>(&[head, repository.as_bytes()])
}

impl CheckedFile {
    /// Opens the file of a repository, or begins it if it is empty. `key` encrypts its pages.
    ///
    /// # Errors
    /// Errors of the system, and [`ErrorKind::InvalidData`] for the file of another repository, version or program.
    pub(super) fn open(file: File, repository: &str, key: Option<&SecretKey>) -> Result<Self> {
        let mut header = [0; HEADER_BYTES];
        if file.metadata()?.len() == 0 {
            let mut seed = [0; 8];
            getrandom::fill(&mut seed).map_err(Error::other)?;
            let (head, recorded) = header.split_at_mut(HEADER_BYTES - 16);
            head[..8].copy_from_slice(&MAGIC);
            head[8..].copy_from_slice(&seed);
            recorded.copy_from_slice(&header_checksum(head, repository));
            may_change()?;
            file.write_all_at(&header, 0)?;
        } else {
            file.read_exact_at(&mut header, 0)?;
        }
        let (head, recorded) = header.split_at(HEADER_BYTES - 16);
        if !head.starts_with(&MAGIC) || *recorded != header_checksum(head, repository) {
            return Err(damaged("it is of another format or repository"));
        }
        let seed = head.last_chunk().map_or(0, |seed| u64::from_le_bytes(*seed));
        let cipher = key.map(|key| {
            let key = key.derive(CONTEXT, &[&seed.to_le_bytes()]);
            CipherSuite::of_this_machine().cipher(&key).map_err(Error::other)
        });
        Ok(CheckedFile { file, seed, cipher: cipher.transpose()? })
    }

    fn read_slot(&self, number: u64) -> Result<[u8; SLOT_BYTES]> {
        let mut slot = [0; SLOT_BYTES];
        self.file.read_exact_at(&mut slot, position(number))?;
        Ok(slot)
    }

    /// Checks a slot, and returns the page in it.
    fn page_in(&self, number: u64, mut slot: [u8; SLOT_BYTES]) -> Result<PageContent> {
        let wrong = || damaged(format!("page {number} is damaged"));
        let mut page = [0; PAGE_BYTES];
        let (text, trailer) = slot.split_at_mut(PAGE_BYTES);
        let Some(cipher) = &self.cipher else {
            let expected = self.page_checksum(number, text);
            return match trailer.split_at(CHECKSUM_BYTES) {
                (recorded, [0, ..]) if recorded == expected => {
                    page.copy_from_slice(text);
                    Ok(page)
                }
                _ => Err(wrong()),
            };
        };
        let nonce: [u8; NONCE_BYTES] = *trailer.first_chunk().ok_or_else(wrong)?;
        let tag = trailer.get(NONCE_BYTES..NONCE_BYTES + TAG_BYTES).ok_or_else(wrong)?;
        let mut sealed = [text, tag].concat();
        cipher.open_in_place(nonce, &number.to_le_bytes(), &mut sealed).ok_or_else(wrong)?;
        page.iter_mut().zip(sealed).for_each(|(to, from)| *to = from);
        Ok(page)
    }

    fn page_checksum(&self, number: u64, text: &[u8]) -> [u8; CHECKSUM_BYTES] {
        xxh3_128_with_seed(text, self.seed ^ number).to_le_bytes()
    }

    fn write_page(&self, number: u64, page: &PageContent) -> Result<()> {
        let mut slot = [0; SLOT_BYTES];
        let (text, trailer) = slot.split_at_mut(PAGE_BYTES);
        text.copy_from_slice(page);
        match &self.cipher {
            None => trailer[..CHECKSUM_BYTES].copy_from_slice(&self.page_checksum(number, text)),
            Some(cipher) => {
                let (nonce, tag) = cipher.seal_randomly(&number.to_le_bytes(), text).map_err(Error::other)?;
                trailer[..NONCE_BYTES].copy_from_slice(&nonce);
                trailer[NONCE_BYTES..NONCE_BYTES + TAG_BYTES].copy_from_slice(&tag);
            }
        }
        may_change()?;
        self.file.write_all_at(&slot, position(number))
    }
}

fn position(number: u64) -> u64 {
    HEADER_BYTES as u64 + number * SLOT_BYTES as u64
}

/// The pages that the bytes `offset..offset + len` touch: the number of each, its bytes, and their place in the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let page_bytes = PAGE_BYTES as u64;
    let end = offset + len as u64;
    (offset / page_bytes..end.div_ceil(page_bytes)).map(move |number| {
        let start = number * page_bytes;
        let (from, to) = (offset.max(start), end.min(start + page_bytes));
        (number, (from - start) as usize..(to - start) as usize, (from - offset) as usize..(to - offset) as usize)
    })
}

impl StorageBackend for CheckedFile {
    fn len(&self) -> Result<u64> {
        let slots = self.file.metadata()?.len().saturating_sub(HEADER_BYTES as u64);
        if !slots.is_multiple_of(SLOT_BYTES as u64) {
            return Err(damaged("it ends within a page"));
        }
        Ok(slots / SLOT_BYTES as u64 * PAGE_BYTES as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        for (number, in_page, in_range) in parts(offset, out.len()) {
            out[in_range].copy_from_slice(&self.page_in(number, self.read_slot(number)?)?[in_page]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        if !len.is_multiple_of(PAGE_BYTES as u64) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{len} bytes are no whole pages")));
        }
        may_change()?;
        self.file.set_len(position(len / PAGE_BYTES as u64))
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        for (number, in_page, in_range) in parts(offset, data.len()) {
            let mut page = [0; PAGE_BYTES];
            if in_page.len() < PAGE_BYTES {
                let slot = self.read_slot(number)?;
                // One that was never written has zeros.
                if slot != [0; SLOT_BYTES] {
                    page = self.page_in(number, slot)?;
                }
            }
            page[in_page].copy_from_slice(&data[in_range]);
            self.write_page(number, &page)?;
        }
        Ok(())
    }
}

/// Called before each change of the file, so that tests can end a process there.
#[cfg(not(test))]
pub(super) fn may_change() -> Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use tests::may_change;

#[cfg(test)]
#[path = "checked_file_tests.rs"]
pub(super) mod tests;
