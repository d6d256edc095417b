//! A xorb as a client sends it: chunks one after another, each with a header of eight bytes and perhaps compressed.

use std::io::Read;

use lz4_flex::frame::FrameDecoder;

use super::hash::{HashTree, XetHash};
use super::{CHUNK_BYTES_MAX, CHUNKS_MAX, fill, refused};
use crate::keep::upload::CommitFault;

/// Bytes of all chunks of a xorb, at most.
const XORB_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a xorb as it is sent, at most: chunks that grow are sent as they are.
pub const SENT_BYTES_MAX: u64 = XORB_BYTES_MAX + (1 << 20);
/// Bytes of a chunk as it is sent, at most.
const SENT_CHUNK_BYTES_MAX: usize = CHUNK_BYTES_MAX + (1 << 10);
/// Ways to compress a chunk.
const PLAIN: u8 = 0;
const LZ4: u8 = 1;
const GROUPED_LZ4: u8 = 2;

/// A chunk, decompressed.
#[derive(Debug, PartialEq, Eq)]
pub struct XorbChunk {
    /// Its hash, computed.
    pub hash: XetHash,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reads the chunks of a xorb. Memory is that of two chunks and of an LZ4 frame's blocks.
pub struct XorbReader<R> {
    input: R,
    /// Bytes that were read.
    offset: u64,
    chunks: usize,
    len: u64,
    tree: HashTree,
}

impl<R: Read> XorbReader<R> {
    /// Reads from the first chunk on.
    pub fn new(input: R) -> Self {
        XorbReader { input, offset: 0, chunks: 0, len: 0, tree: HashTree::default() }
    }

    /// The next chunk. `None` behind the last one.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] with the offset of a chunk that is not valid, [`CommitFault::TooLong`]; errors of
    /// reading.
    pub fn next_chunk(&mut self) -> Result<Option<XorbChunk>, CommitFault> {
        let at = self.offset;
        let wrong = |reason: &str| refused(format!("the chunk at offset {at} of the xorb {reason}"));
        let mut header = [0u8; 8];
        match fill(&mut self.input, &mut header)? {
            0 => return Ok(None),
            8 => {}
            _ => return Err(wrong("has half a header")),
        }
        let [version, sent0, sent1, sent2, scheme, len0, len1, len2] = header;
        if version != 0 {
            return Err(wrong(&format!("has version {version}, expected 0")));
        }
        let of = |low: u8, middle: u8, high: u8| u32::from_le_bytes([low, middle, high, 0]) as usize;
        let (sent_len, len) = (of(sent0, sent1, sent2), of(len0, len1, len2));
        if !(1..=CHUNK_BYTES_MAX).contains(&len) || !(1..=SENT_CHUNK_BYTES_MAX).contains(&sent_len) {
            return Err(wrong(&format!("has {len} bytes, sent as {sent_len}: expected 1 to {CHUNK_BYTES_MAX}")));
        }
        self.len += len as u64;
        self.chunks += 1;
        if self.chunks > CHUNKS_MAX || self.len > XORB_BYTES_MAX {
            return Err(CommitFault::TooLong);
        }
        let mut sent = vec![0u8; sent_len];
        if fill(&mut self.input, &mut sent)? != sent_len {
            return Err(wrong("is cut short"));
        }
        self.offset += 8 + sent_len as u64;
        let bytes = match scheme {
            PLAIN => Some(sent),
            LZ4 => decompressed(&sent, len),
            GROUPED_LZ4 => decompressed(&sent, len).map(|grouped| ungrouped(&grouped)),
            _ => return Err(wrong(&format!("is compressed in way {scheme}, expected 0, 1 or 2"))),
        };
        let bytes = bytes.filter(|bytes| bytes.len() == len);
        let bytes = bytes.ok_or_else(|| wrong(&format!("is not {len} bytes once it is decompressed")))?;
        let hash = XetHash::of_chunk(&bytes);
        self.tree.add(hash, len as u64);
        Ok(Some(XorbChunk { hash, bytes }))
    }

    /// The hash of the chunks that were read. `None` if there were none.
    pub fn hash(self) -> Option<XetHash> {
        self.tree.root()
    }
}

/// What one LZ4 frame holds, if it is all of `sent` and has at most `len` bytes.
fn decompressed(mut sent: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    FrameDecoder::new(&mut sent).take(len as u64 + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes).filter(|_| sent.is_empty())
}

/// Undoes the grouping of bytes by their lane in words of four: first all first bytes, then all second ones.
fn ungrouped(grouped: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0u8; grouped.len()];
    let mut rest = grouped.iter();
    for lane in 0..4 {
        bytes.iter_mut().skip(lane).step_by(4).zip(rest.by_ref()).for_each(|(byte, own)| *byte = *own);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::FrameEncoder;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// All first bytes of words, then all second ones.
    fn grouped(bytes: &[u8]) -> Vec<u8> {
        (0..4).flat_map(|lane| bytes.iter().skip(lane).step_by(4)).copied().collect()
    }

    fn header(sent_len: usize, scheme: u8, len: usize) -> [u8; 8] {
        let [sent, len] = [sent_len, len].map(|len| (len as u32).to_le_bytes());
        [0, sent[0], sent[1], sent[2], scheme, len[0], len[1], len[2]]
    }

    fn chunk(scheme: u8, bytes: &[u8]) -> Vec<u8> {
        let sent = match scheme {
            PLAIN => bytes.to_vec(),
            LZ4 => compressed(bytes),
            _ => compressed(&grouped(bytes)),
        };
        [header(sent.len(), scheme, bytes.len()).as_slice(), &sent].concat()
    }

    fn read(xorb: &[u8]) -> Result<(Vec<Vec<u8>>, Option<XetHash>), CommitFault> {
        let (mut reader, mut chunks) = (XorbReader::new(xorb), Vec::new());
        while let Some(chunk) = reader.next_chunk()? {
            assert_eq!(chunk.hash, XetHash::of_chunk(&chunk.bytes));
            chunks.push(chunk.bytes);
        }
        Ok((chunks, reader.hash()))
    }

    #[test]
    fn chunks_of_every_kind_come_back() {
        let chunks: Vec<Vec<u8>> =
            [1, 2, 3, 4, 5, 7, 64, 1001, CHUNK_BYTES_MAX].map(|len| (0..len).map(|at| (at / 3) as u8).collect()).into();
        for scheme in [PLAIN, LZ4, GROUPED_LZ4] {
            let xorb: Vec<u8> = chunks.iter().flat_map(|bytes| chunk(scheme, bytes)).collect();
            let (read, hash) = read(&xorb).unwrap();
            assert!(read == chunks, "{scheme}");
            let mut tree = HashTree::default();
            chunks.iter().for_each(|bytes| tree.add(XetHash::of_chunk(bytes), bytes.len() as u64));
            assert_eq!(hash, tree.root());
        }
        assert_eq!(read(b"").unwrap(), (Vec::new(), None));
    }

    #[test]
    fn what_is_no_xorb_is_refused() {
        let good = chunk(LZ4, &[7; 1000]);
        let mut frame_of_more = compressed(&[7; 100_000]);
        frame_of_more.splice(0..0, header(frame_of_more.len(), LZ4, 5));
        let mut other_version = good.clone();
        other_version[0] = 1;
        let mut behind = compressed(b"hello");
        behind.push(0);
        for (what, xorb) in [
            ("half a header", good[..5].to_vec()),
            ("half a chunk", good[..good.len() - 1].to_vec()),
            ("a second half", [good.as_slice(), &good[..9]].concat()),
            ("another version", other_version),
            ("an empty chunk", header(0, PLAIN, 0).to_vec()),
            ("a chunk of 16 MiB", header(0xff_ffff, LZ4, 0xff_ffff).to_vec()),
            ("a long chunk", chunk(LZ4, &[7; CHUNK_BYTES_MAX + 1])),
            ("another way", [header(5, 3, 5).as_slice(), b"hello"].concat()),
            ("another length", [header(5, PLAIN, 6).as_slice(), b"hello"].concat()),
            ("a frame of more", frame_of_more),
            ("no frame", [header(5, LZ4, 5).as_slice(), b"hello"].concat()),
            ("bytes behind a frame", [header(behind.len(), LZ4, 5).as_slice(), &behind].concat()),
        ] {
            assert!(matches!(read(&xorb), Err(CommitFault::Refused(_))), "{what}");
        }
        let many: Vec<u8> = (0..=CHUNKS_MAX).flat_map(|_| chunk(PLAIN, b"x")).collect();
        assert!(matches!(read(&many), Err(CommitFault::TooLong)), "too many chunks");
        let long = chunk(LZ4, &[7; CHUNK_BYTES_MAX]).repeat((XORB_BYTES_MAX as usize / CHUNK_BYTES_MAX) + 1);
        assert!(matches!(read(&long), Err(CommitFault::TooLong)), "too many bytes");
    }
}
