//! Chunks of PNG: what is pushed comes out with the headers and checksums of IDAT chunks.

use std::collections::VecDeque;
use std::io;

/// Name of the chunks that hold the image.
pub(super) const IDAT: &[u8; 4] = b"IDAT";
/// Most chunks of one image that are taken apart.
pub(super) const CHUNKS_MAX: usize = 1 << 16;

/// Puts bytes into chunks of given lengths; passes them as they are when all chunks are full.
#[derive(Debug, Default)]
pub(super) struct Framer {
    chunks: VecDeque<u32>,
    left: u32,
    crc: u32,
    in_chunk: bool,
}

impl Framer {
    /// Frames what is pushed next into chunks of these lengths.
    ///
    /// # Errors
    /// The chunks before are not full.
    pub(super) fn start(&mut self, chunks: VecDeque<u32>) -> io::Result<()> {
        if !self.chunks.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "chunks begin within chunks"));
        }
        self.chunks = chunks;
        self.in_chunk = false;
        Ok(())
    }

    /// Appends `bytes` to `out`, framed.
    pub(super) fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if !self.in_chunk {
                let Some(&len) = self.chunks.front() else {
                    out.extend_from_slice(bytes);
                    return;
                };
                out.extend_from_slice(&[(len >> 24) as u8, (len >> 16) as u8, (len >> 8) as u8, len as u8]);
                out.extend_from_slice(IDAT);
                self.left = len;
                self.crc = crc32(u32::MAX, IDAT);
                self.in_chunk = true;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.left as usize));
            out.extend_from_slice(now);
            self.crc = crc32(self.crc, now);
            self.left -= now.len() as u32;
            bytes = rest;
            if self.left == 0 {
                let sum = !self.crc;
                out.extend_from_slice(&[(sum >> 24) as u8, (sum >> 16) as u8, (sum >> 8) as u8, sum as u8]);
                self.chunks.pop_front();
                self.in_chunk = false;
            }
        }
    }
}

/// The chunks at the start of `bytes`, which have length, name, content and right checksum.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) lens: Vec<u32>,
    pub(super) payload: Vec<u8>,
    /// Bytes of the chunks as they are in the file.
    pub(super) framed_len: usize,
}

impl Chunks {
    /// Reads all whole, non-empty chunks; `more`: the chunk that follows is longer than `bytes`, with its end.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<usize> {
        loop {
            let rest = bytes.get(self.framed_len..)?;
            let Some((head, _)) = rest.split_first_chunk::<8>() else { return Some(self.framed_len + 8) };
            let len =
                u32::from(head[0]) << 24 | u32::from(head[1]) << 16 | u32::from(head[2]) << 8 | u32::from(head[3]);
            if &head[4..] != IDAT || len == 0 || len > 1 << 30 || self.lens.len() == CHUNKS_MAX {
                return None;
            }
            let end = 12 + len as usize;
            let Some(chunk) = rest.get(..end) else { return Some(self.framed_len + end) };
            let (content, sum) = chunk[8..].split_at(len as usize);
            let crc = !crc32(crc32(u32::MAX, IDAT), content);
            if sum != [(crc >> 24) as u8, (crc >> 16) as u8, (crc >> 8) as u8, crc as u8] {
                return None;
            }
            self.payload.extend_from_slice(content);
            self.lens.push(len);
            self.framed_len += end;
        }
    }
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 != 0 { value >> 1 ^ 0xEDB8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, &byte| CRC_TABLE[((crc ^ u32::from(byte)) & 0xFF) as usize] ^ crc >> 8)
}
