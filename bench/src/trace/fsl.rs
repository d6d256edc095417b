//! The hash files of the File systems and Storage Lab (FSL): published traces of home directories and servers.
//!
//! All numbers are packed and little-endian. The header has the version, the number of files, the chunking and the
//! bits of a hash; later versions add times and bytes. Each file has a header, which depends on the version, and its
//! chunks. A chunk of variable chunking has its length, its hash and, since version 6, a byte with its compression
//! ratio. Versions before 3 lack the length and are refused. With fixed chunking, only the last chunk of a file is
//! shorter: the rest of the file.

use std::io::BufRead;

use fhrd::error::Result;

use super::input::TraceInput;
use super::item::{CHUNK_BYTES_MAX, FINGERPRINT_BYTES, Items, NAME_BYTES_MAX, TraceChunk, TraceItem, chunk_bytes};

/// The first four bytes of a hash file.
pub(super) const MAGIC: u32 = 0xDEAD_DEAD;
/// Bytes of a path in a field of fixed length.
const PATH_BYTES: usize = 4096;
/// Bytes of the chunking parameters after the first four. For fixed chunking, the first four are the length of a
/// chunk.
const PARAMETERS_BYTES: u64 = 40;
/// Valid lengths of a hash, bytes.
const HASH_BYTES: std::ops::RangeInclusive<usize> = 6..=MAX_HASH_BYTES;
const MAX_HASH_BYTES: usize = 32;
/// Bits of the file type in the permissions of a file.
const TYPE_BITS: u64 = 0o170_000;
/// File type of a symbolic link.
const SYMBOLIC_LINK: u64 = 0o120_000;

/// Lengths of chunks.
#[derive(Clone, Copy)]
enum Chunking {
    /// All chunks have this length.
    Fixed(u64),
    /// Each chunk has its own length.
    Variable,
}

pub(super) struct FslTrace<R> {
    input: TraceInput<R>,
    version: u32,
    chunking: Chunking,
    hash_bytes: usize,
    files_left: u64,
    file: Option<FslFile>,
}

/// A file being read.
struct FslFile {
    chunks_left: u64,
    bytes_left: u64,
}

impl<R: BufRead> FslTrace<R> {
    /// Reads the header.
    pub(super) fn new(mut input: TraceInput<R>) -> Result<Self> {
        let magic = input.u32()?;
        if magic != MAGIC {
            return Err(input.malformed(format!("the number {MAGIC:#x}"), format!("{magic:#x}")));
        }
        let version = input.u32()?;
        if !(1..=7).contains(&version) {
            return Err(input.malformed("a version from 1 to 7", version.to_string()));
        }
        let files_left = input.u64()?;
        input.skip(PATH_BYTES as u64 + 8)?;
        let (method, first) = (input.u32()?, input.u32()?);
        let chunking = match method {
            1 if chunk_bytes(u64::from(first)).is_some() => Chunking::Fixed(u64::from(first)),
            1 => return Err(input.malformed(format!("chunks of 1 to {CHUNK_BYTES_MAX} bytes"), first.to_string())),
            2 if version >= 3 => Chunking::Variable,
            2 => return Err(input.malformed("version 3 or later for chunks of variable size", version.to_string())),
            _ => return Err(input.malformed("chunking 1 (fixed) or 2 (variable)", method.to_string())),
        };
        input.skip(PARAMETERS_BYTES)?;
        let (_method, hash_bits) = (input.u32()?, input.u32()?);
        let hash_bytes = (hash_bits / 8) as usize;
        if hash_bits % 8 != 0 || !HASH_BYTES.contains(&hash_bytes) {
            return Err(input.malformed("hashes of 48 to 256 bits, in whole bytes", hash_bits.to_string()));
        }
        input.skip(if version >= 3 { PATH_BYTES as u64 + 16 } else { 0 } + if version >= 5 { 8 } else { 0 })?;
        Ok(FslTrace { input, version, chunking, hash_bytes, files_left, file: None })
    }

    fn name(&mut self, len: u32) -> Result<Vec<u8>> {
        if u64::from(len) > NAME_BYTES_MAX {
            return Err(self.input.malformed(format!("a name of at most {NAME_BYTES_MAX} bytes"), len.to_string()));
        }
        let mut name = self.input.bytes(len as usize)?;
        // The name ends at its first zero byte.
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    fn file_header(&mut self) -> Result<TraceItem> {
        let (name, bytes, chunks);
        match self.version {
            1 => {
                name = self.name(PATH_BYTES as u32)?;
                (bytes, chunks) = (self.input.u64()?, self.input.u64()?);
            }
            2 | 3 => {
                (bytes, chunks) = (self.input.u64()?, self.input.u64()?);
                let len = self.input.u32()?;
                name = self.name(len)?;
            }
            version => {
                bytes = self.input.u64()?;
                // Blocks (since version 5), owner and group.
                self.input.skip(if version >= 5 { 16 } else { 8 })?;
                let permissions = self.input.u64()?;
                // Three times, number of links, device, inode.
                self.input.skip(6 * 8)?;
                chunks = self.input.u64()?;
                let (len, target_len) = (self.input.u32()?, self.input.u32()?);
                name = self.name(len)?;
                if permissions & TYPE_BITS == SYMBOLIC_LINK {
                    self.name(target_len)?;
                }
            }
        }
        self.file = Some(FslFile { chunks_left: chunks, bytes_left: bytes });
        Ok(TraceItem::FileStart { name })
    }

    fn chunk(&mut self, bytes: u64) -> Result<TraceItem> {
        let mut hash = [0; MAX_HASH_BYTES];
        self.input.fill(hash.get_mut(..self.hash_bytes).unwrap_or_default())?;
        if self.version >= 6 {
            self.input.skip(1)?;
        }
        let Some(bytes) = chunk_bytes(bytes) else {
            return Err(self.input.malformed(format!("a chunk of 1 to {CHUNK_BYTES_MAX} bytes"), bytes.to_string()));
        };
        let fingerprint = hash.first_chunk::<FINGERPRINT_BYTES>().copied().unwrap_or_default();
        Ok(TraceItem::Chunk(TraceChunk { fingerprint, bytes }))
    }
}

impl<R: BufRead> Items for FslTrace<R> {
    fn item(&mut self) -> Result<TraceItem> {
        let Some(file) = &mut self.file else {
            let Some(left) = self.files_left.checked_sub(1) else {
                self.input.end()?;
                return Ok(TraceItem::StreamEnd);
            };
            self.files_left = left;
            return self.file_header();
        };
        let Some(left) = file.chunks_left.checked_sub(1) else {
            self.file = None;
            return Ok(TraceItem::FileEnd);
        };
        file.chunks_left = left;
        let bytes = match self.chunking {
            Chunking::Fixed(size) => {
                let bytes = file.bytes_left.min(size);
                file.bytes_left -= bytes;
                bytes
            }
            Chunking::Variable if self.version >= 7 => u64::from(self.input.u32()?),
            Chunking::Variable => self.input.u64()?,
        };
        self.chunk(bytes)
    }
}
