//! A sealed blob: a header, then numbered blocks, each encrypted and authenticated.
//!
//! The header is authenticated with every block, and has the length of the whole. So a block cannot be moved, left out
//! or taken from another blob, and any range can be read without the rest.

use std::io::{Read, Seek, SeekFrom};

use super::keyring::MasterKey;
use super::random;
use super::suite::{Cipher, CipherSuite, TAG_BYTES};
use crate::error::{Error, Result};
use crate::wire::{FORMAT_VERSION, WireReader, checksum, verify};

const MAGIC: [u8; 8] = *b"FHRDSEAL";
/// Bytes of the header of a sealed blob.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the blob in a block, except the last one, which may have fewer.
pub const BLOCK_BYTES: usize = 16 << 10;
/// Bytes of a whole block as stored.
const STORED_BLOCK_BYTES: usize = BLOCK_BYTES + TAG_BYTES;
/// Bytes of a salt.
const SALT_BYTES: usize = 32;
/// Purpose of the keys of blobs.
const CONTEXT: &str = "fhrd 2026-11 sealed blob";

/// Blocks of a blob of `len` bytes: one at least, because a blob without any would not be authenticated.
fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES as u64).max(1)
}

/// Bytes that a sealed blob of `len` bytes takes.
pub fn sealed_len(len: u64) -> u64 {
    len.saturating_add(HEADER_BYTES as u64).saturating_add(blocks(len).saturating_mul(TAG_BYTES as u64))
}

/// Offset in the sealed bytes from which on a reader needs them to open the blob from byte `offset` on, header apart.
pub fn sealed_offset(offset: u64) -> u64 {
    let body = (offset / BLOCK_BYTES as u64).saturating_mul(STORED_BLOCK_BYTES as u64);
    if offset == 0 { 0 } else { body.saturating_add(HEADER_BYTES as u64) }
}

/// Inverse of [`sealed_len`]. Something for lengths that no sealed blob has.
pub fn unsealed_len(stored: u64) -> u64 {
    let body = stored.saturating_sub(HEADER_BYTES as u64);
    body.saturating_sub(body.div_ceil(STORED_BLOCK_BYTES as u64).saturating_mul(TAG_BYTES as u64))
}

/// Header of a sealed blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedHeader {
    /// The cipher.
    pub suite: CipherSuite,
    /// Generation of the master key.
    pub generation: u32,
    /// Bytes of the blob before sealing.
    pub len: u64,
    /// Makes the key: random bytes and the content made it.
    pub salt: [u8; SALT_BYTES],
}

impl SealedHeader {
    /// The header of a new blob of `len` bytes with the hash `content`, which `master` seals.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel gives no random bytes.
    pub fn new(suite: CipherSuite, master: &MasterKey, len: u64, content: &[u8; 32]) -> Result<Self> {
        let salt = random::salt(&master.key, content)?;
        Ok(SealedHeader { suite, generation: master.generation, len, salt })
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[self.suite.number(), 0]);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&checksum::<8>(&[&out]));
        let mut header = [0; HEADER_BYTES];
        header.iter_mut().zip(out).for_each(|(to, from)| *to = from);
        header
    }

    /// Parses the header of the blob `what`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::ChecksumMismatch`] for a damaged one, [`Error::Unsupported`] for one of a newer
    /// version.
    pub fn parse(what: &str, stored: &[u8]) -> Result<Self> {
        let mut reader = WireReader::new(what, 0, stored);
        let magic: [u8; 8] = reader.array()?;
        if magic != MAGIC {
            let got = String::from_utf8_lossy(&magic);
            return Err(Error::corrupt(what, 0, "a sealed blob, type FHRDSEAL", format!("{got:?}")));
        }
        let (version, suite, zero) = (reader.u16()?, reader.u8()?, reader.u8()?);
        let (generation, len, salt) = (reader.u32()?, reader.u64()?, reader.array()?);
        let covered = reader.consumed();
        verify(what, 0, &reader.array::<8>()?, &[covered])?;
        if version != FORMAT_VERSION || zero != 0 {
            return Err(Error::unsupported(what, format!("format version {version}")));
        }
        let suite =
            CipherSuite::from_number(suite).ok_or_else(|| Error::unsupported(what, format!("cipher {suite}")))?;
        Ok(SealedHeader { suite, generation, len, salt })
    }
}

/// The key of one blob.
#[derive(Debug)]
pub struct BlobKey {
    cipher: Cipher,
    header: SealedHeader,
    encoded: [u8; HEADER_BYTES],
}

impl BlobKey {
    /// The key of the blob with this header, in `directory`. `master` is the key of the header's generation.
    ///
    /// # Errors
    /// [`Error::Internal`] if the library refuses the key.
    pub fn new(master: &MasterKey, header: SealedHeader, directory: &str) -> Result<Self> {
        let key = master.key.derive(CONTEXT, &[&header.salt, directory.as_bytes()]);
        Ok(BlobKey { cipher: header.suite.cipher(&key)?, header, encoded: header.encode() })
    }

    /// Bytes of the blob before sealing.
    pub fn blob_len(&self) -> u64 {
        self.header.len
    }

    /// Seals the concatenation of `parts`, which has the length in the header.
    ///
    /// # Errors
    /// [`Error::Internal`] for another length.
    pub fn seal(&self, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(usize::try_from(sealed_len(self.header.len)).unwrap_or(0));
        out.extend_from_slice(&self.encoded);
        let (mut number, mut start) = (0, out.len());
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let free = BLOCK_BYTES - (out.len() - start);
                if free == 0 {
                    self.end_block(number, start, &mut out)?;
                    (number, start) = (number + 1, out.len());
                    continue;
                }
                let (now, later) = rest.split_at(free.min(rest.len()));
                out.extend_from_slice(now);
                rest = later;
            }
        }
        self.end_block(number, start, &mut out)?;
        if out.len() as u64 != sealed_len(self.header.len) {
            return Err(Error::internal(format!("a blob of another length than {}", self.header.len)));
        }
        Ok(out)
    }

    fn end_block(&self, number: u64, start: usize, out: &mut Vec<u8>) -> Result<()> {
        let tag = self.cipher.seal(number, &self.encoded, out.get_mut(start..).unwrap_or_default())?;
        out.extend_from_slice(&tag);
        Ok(())
    }

    /// Opens the stored bytes of blob `what`, header included.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the offset of the first block that is not as it was sealed.
    pub fn open(&self, what: &str, stored: &[u8]) -> Result<Vec<u8>> {
        if stored.len() as u64 != sealed_len(self.header.len) {
            let expected = format!("{} bytes in all", sealed_len(self.header.len));
            return Err(Error::corrupt(what, stored.len() as u64, expected, stored.len().to_string()));
        }
        self.open_blocks(what, 0, stored.get(HEADER_BYTES..).unwrap_or_default())
    }

    /// Opens successive stored blocks from block `first` on.
    fn open_blocks(&self, what: &str, first: u64, stored: &[u8]) -> Result<Vec<u8>> {
        let mut out = vec![0; stored.len().saturating_sub(stored.len().div_ceil(STORED_BLOCK_BYTES) * TAG_BYTES)];
        for ((text, sealed), number) in out.chunks_mut(BLOCK_BYTES).zip(stored.chunks(STORED_BLOCK_BYTES)).zip(first..)
        {
            self.open_block(what, number, sealed, text)?;
        }
        if out.is_empty() {
            self.open_block(what, first, stored, &mut [])?;
        }
        Ok(out)
    }

    fn open_block(&self, what: &str, number: u64, sealed: &[u8], text: &mut [u8]) -> Result<()> {
        self.cipher.open(number, &self.encoded, sealed, text).ok_or_else(|| {
            let offset = (HEADER_BYTES as u64).saturating_add(number.saturating_mul(STORED_BLOCK_BYTES as u64));
            Error::corrupt(what, offset, "a block as it was sealed", "another block")
        })
    }

    /// Reads `len` bytes from byte `offset` of the blob `what` on. `read` reads a range of the stored bytes.
    ///
    /// # Errors
    /// Errors of `read`; [`Error::Corrupt`] if the range is beyond the end, or a block is not as it was sealed.
    pub fn open_range(
        &self,
        what: &str,
        offset: u64,
        len: usize,
        read: impl FnOnce(u64, usize) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.header.len);
        let Some(end) = end else {
            let got = format!("a blob of {} bytes", self.header.len);
            return Err(Error::corrupt(what, offset, format!("{len} bytes"), got));
        };
        if len == 0 {
            return Ok(Vec::new());
        }
        let (first, last) = (offset / BLOCK_BYTES as u64, (end - 1) / BLOCK_BYTES as u64);
        let start = HEADER_BYTES as u64 + first * STORED_BLOCK_BYTES as u64;
        let stop = (HEADER_BYTES as u64 + (last + 1) * STORED_BLOCK_BYTES as u64).min(sealed_len(self.header.len));
        let stored = read(start, usize::try_from(stop - start).unwrap_or(usize::MAX))?;
        let mut text = self.open_blocks(what, first, &stored)?;
        let skipped = (offset - first * BLOCK_BYTES as u64) as usize;
        if text.len() < skipped + len {
            return Err(Error::corrupt(what, offset, format!("{len} bytes"), format!("{} bytes", text.len())));
        }
        text.truncate(skipped + len);
        text.drain(..skipped);
        Ok(text)
    }
}

/// The stored bytes of a blob whose content is read as a stream, from its start. It can be read again from there.
pub struct SealedReader<'a, R: ?Sized> {
    key: &'a BlobKey,
    content: &'a mut R,
    /// Bytes of the content that were not read yet.
    left: u64,
    /// Number of the next block.
    number: u64,
    /// What is ready to be read, from `position` on.
    ready: Vec<u8>,
    position: usize,
}

impl<'a, R: Read + ?Sized> SealedReader<'a, R> {
    /// Seals `content` with `key`. It must have the length in the key's header.
    pub fn new(key: &'a BlobKey, content: &'a mut R) -> Self {
        SealedReader { key, content, left: key.header.len, number: 0, ready: key.encoded.to_vec(), position: 0 }
    }

    /// Reads and seals the next block, if there is one.
    fn next_block(&mut self) -> std::io::Result<()> {
        if self.number == blocks(self.key.header.len) {
            // One byte more than announced must not pass unnoticed.
            return match self.content.read(&mut [0])? {
                0 => Ok(()),
                _ => Err(std::io::Error::other("the stream is longer than announced")),
            };
        }
        let len = self.left.min(BLOCK_BYTES as u64);
        self.ready.clear();
        self.position = 0;
        (&mut self.content).take(len).read_to_end(&mut self.ready)?;
        if self.ready.len() as u64 != len {
            return Err(std::io::Error::other("the stream is shorter than announced"));
        }
        self.key.end_block(self.number, 0, &mut self.ready).map_err(std::io::Error::other)?;
        self.left -= len;
        self.number += 1;
        Ok(())
    }
}

impl<R: Read + ?Sized> Read for SealedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.position == self.ready.len() {
            self.next_block()?;
        }
        let ready = self.ready.get(self.position..).unwrap_or_default();
        let count = ready.len().min(buffer.len());
        buffer.iter_mut().zip(ready).for_each(|(to, from)| *to = *from);
        self.position += count;
        Ok(count)
    }
}

impl<R: Seek + ?Sized> Seek for SealedReader<'_, R> {
    /// Only the start can be sought.
    fn seek(&mut self, position: SeekFrom) -> std::io::Result<u64> {
        if position != SeekFrom::Start(0) {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        self.content.seek(position)?;
        (self.left, self.number, self.position) = (self.key.header.len, 0, 0);
        self.ready = self.key.encoded.to_vec();
        Ok(0)
    }
}

#[cfg(test)]
#[path = "sealed_blob_tests.rs"]
mod tests;
