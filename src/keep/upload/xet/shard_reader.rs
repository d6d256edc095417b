//! A shard as a client sends it: records of 48 bytes, first those of files, then those of new xorbs.

use std::io::Read;

use super::hash::XetHash;
use super::{CHUNKS_MAX, RECORD_BYTES, fill, refused};
use crate::keep::upload::CommitFault;

/// Bytes of a shard, at most: clients cut theirs there.
pub const SHARD_BYTES_MAX: u64 = (64 << 20) + (1 << 20);
/// What a shard begins with.
const TAG: [u8; 32] = [
    72, 70, 82, 101, 112, 111, 77, 101, 116, 97, 68, 97, 116, 97, 0, 85, 105, 103, 69, 106, 123, 129, 87, 131, 165,
    189, 217, 92, 205, 209, 74, 169,
];
const VERSION: u64 = 2;
/// Flags of a file: it has hashes of its terms, and a SHA-256.
const WITH_TERM_HASHES: u32 = 1 << 31;
const WITH_SHA256: u32 = 1 << 30;
/// What stands for the end of a list, in place of a hash.
const END: [u8; 32] = [0xff; 32];

/// A range of chunks of a xorb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardTerm {
    /// The xorb.
    pub xorb: XetHash,
    /// Number of its first chunk, and of the one behind the last.
    pub chunks: (u32, u32),
    /// Bytes of these chunks.
    pub len: u32,
    /// Hash of the hashes of these chunks.
    pub hash: XetHash,
}

/// A file that a shard names. All in it is what the client claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardFile {
    /// Hash of the hashes of its chunks.
    pub hash: XetHash,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// What it consists of, in order.
    pub terms: Vec<ShardTerm>,
}

/// A new xorb that a shard names. All in it is what the client claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardXorb {
    /// Its hash.
    pub hash: XetHash,
    /// Hash and length of each chunk.
    pub chunks: Vec<(XetHash, u32)>,
}

/// Reads a shard: all files, then all xorbs, then [`Self::finish`]. Memory is that of one file or xorb, and never more
/// than the shard has bytes.
pub struct ShardReader<R> {
    input: R,
    /// Offset of the next record, and length of the shard, bytes.
    offset: u64,
    len: u64,
}

/// A record: a hash, and four numbers.
struct ShardRecord {
    offset: u64,
    hash: XetHash,
    numbers: [u32; 4],
}

impl<R: Read> ShardReader<R> {
    /// Reads the head of a shard of `len` bytes.
    ///
    /// # Errors
    /// [`CommitFault::Refused`], [`CommitFault::TooLong`]; errors of reading.
    pub fn new(input: R, len: u64) -> Result<Self, CommitFault> {
        if len > SHARD_BYTES_MAX {
            return Err(CommitFault::TooLong);
        }
        let mut reader = ShardReader { input, offset: 0, len };
        let ShardRecord { hash, numbers: [version, version_high, footer, footer_high], .. } = reader.record()?;
        let version = u64::from(version) | u64::from(version_high) << 32;
        if hash.0 != TAG || version != VERSION {
            return Err(refused(format!("the body is no shard of version {VERSION}")));
        }
        if footer != 0 || footer_high != 0 {
            return Err(refused("the shard has a footer, which is not uploaded"));
        }
        Ok(reader)
    }

    /// The next file. `None` behind the last one.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] with the offset of what is not valid; errors of reading.
    pub fn next_file(&mut self) -> Result<Option<ShardFile>, CommitFault> {
        let head = self.record()?;
        if head.hash.0 == END {
            return Ok(None);
        }
        let [flags, count, ..] = head.numbers;
        if flags != WITH_TERM_HASHES | WITH_SHA256 {
            return Err(head.wrong("expected a file with hashes of its terms and a SHA-256"));
        }
        // Each term has a record here and one for its hash.
        if count == 0 || self.records_left() < 2 * u64::from(count) + 1 {
            return Err(head.wrong(&format!("the file has {count} terms, and the shard ends before")));
        }
        let mut terms = Vec::new();
        for _ in 0..count {
            let ShardRecord { hash, numbers: [_, len, first, end], .. } = self.record()?;
            terms.push(ShardTerm { xorb: hash, chunks: (first, end), len, hash });
        }
        for term in &mut terms {
            term.hash = self.record()?.hash;
        }
        let sha256 = self.record()?.hash.as_sha256();
        Ok(Some(ShardFile { hash: head.hash, sha256, terms }))
    }

    /// The next xorb. `None` behind the last one.
    ///
    /// # Errors
    /// Errors of [`Self::next_file`].
    pub fn next_xorb(&mut self) -> Result<Option<ShardXorb>, CommitFault> {
        let head = self.record()?;
        if head.hash.0 == END {
            return Ok(None);
        }
        let [_, count, ..] = head.numbers;
        if count == 0 || count as usize > CHUNKS_MAX || self.records_left() < u64::from(count) {
            return Err(head.wrong(&format!("the xorb has {count} chunks, and the shard ends before")));
        }
        let mut chunks = Vec::new();
        for _ in 0..count {
            let ShardRecord { hash, numbers: [_, len, ..], .. } = self.record()?;
            chunks.push((hash, len));
        }
        Ok(Some(ShardXorb { hash: head.hash, chunks }))
    }

    /// Checks that nothing is behind the last xorb.
    ///
    /// # Errors
    /// [`CommitFault::Refused`].
    pub fn finish(self) -> Result<(), CommitFault> {
        match self.len - self.offset {
            0 => Ok(()),
            rest => Err(refused(format!("{rest} bytes are behind the end of the shard, at offset {}", self.offset))),
        }
    }

    fn records_left(&self) -> u64 {
        (self.len - self.offset) / RECORD_BYTES as u64
    }

    fn record(&mut self) -> Result<ShardRecord, CommitFault> {
        let offset = self.offset;
        let mut bytes = [0u8; RECORD_BYTES];
        if self.records_left() == 0 || fill(&mut self.input, &mut bytes)? != RECORD_BYTES {
            return Err(refused(format!("the shard ends at offset {offset}, expected {RECORD_BYTES} more bytes")));
        }
        self.offset += RECORD_BYTES as u64;
        let (mut hash, mut numbers) = ([0; 32], [0; 4]);
        hash.copy_from_slice(&bytes[..32]);
        for (number, own) in numbers.iter_mut().zip(bytes[32..].chunks_exact(4)) {
            *number = own.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        }
        Ok(ShardRecord { offset, hash: XetHash(hash), numbers })
    }
}

impl ShardRecord {
    fn wrong(&self, reason: &str) -> CommitFault {
        refused(format!("the record at offset {} of the shard: {reason}", self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(hash: [u8; 32], numbers: [u32; 4]) -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        hash.into_iter().chain(numbers).collect()
    }

    fn head() -> Vec<u8> {
        record(TAG, [2, 0, 0, 0])
    }

    fn end() -> Vec<u8> {
        record(END, [0; 4])
    }

    const FLAGS: u32 = WITH_TERM_HASHES | WITH_SHA256;

    /// A shard of one file of two terms, and one xorb of two chunks.
    fn shard() -> Vec<Vec<u8>> {
        vec![
            head(),
            record([1; 32], [FLAGS, 2, 0, 0]),
            record([2; 32], [0, 700, 0, 2]),
            record([3; 32], [0, 50, 5, 6]),
            record([4; 32], [0; 4]),
            record([5; 32], [0; 4]),
            record([6; 32], [0; 4]),
            end(),
            record([2; 32], [0, 2, 700, 300]),
            record([7; 32], [0, 400, 0, 0]),
            record([8; 32], [400, 300, 0, 0]),
            end(),
        ]
    }

    type ReadShard = (Vec<ShardFile>, Vec<ShardXorb>);

    fn read(bytes: &[u8]) -> Result<ReadShard, CommitFault> {
        let mut reader = ShardReader::new(bytes, bytes.len() as u64)?;
        let (mut files, mut xorbs) = (Vec::new(), Vec::new());
        while let Some(file) = reader.next_file()? {
            files.push(file);
        }
        while let Some(xorb) = reader.next_xorb()? {
            xorbs.push(xorb);
        }
        reader.finish().map(|()| (files, xorbs))
    }

    #[test]
    fn files_and_xorbs_come_back() {
        let (files, xorbs) = read(&shard().concat()).unwrap();
        let term =
            |xorb, chunks, len, hash| ShardTerm { xorb: XetHash([xorb; 32]), chunks, len, hash: XetHash([hash; 32]) };
        let terms = vec![term(2, (0, 2), 700, 4), term(3, (5, 6), 50, 5)];
        assert_eq!(files, [ShardFile { hash: XetHash([1; 32]), sha256: [6; 32], terms }]);
        let chunks = vec![(XetHash([7; 32]), 400), (XetHash([8; 32]), 300)];
        assert_eq!(xorbs, [ShardXorb { hash: XetHash([2; 32]), chunks }]);
        assert_eq!(read(&[head(), end(), end()].concat()).unwrap(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_is_no_shard_is_refused_before_memory_is_taken() {
        let good = shard();
        let with = |at: usize, record: Vec<u8>| {
            let mut records = good.clone();
            records[at] = record;
            records.concat()
        };
        let many = |numbers| [head(), record([1; 32], numbers)].concat();
        for (what, bytes) in [
            ("nothing", Vec::new()),
            ("half a head", head()[..40].to_vec()),
            ("another tag", with(0, record([0; 32], [2, 0, 0, 0]))),
            ("another version", with(0, record(TAG, [3, 0, 0, 0]))),
            ("a long version", with(0, record(TAG, [2, 1, 0, 0]))),
            ("a footer", with(0, record(TAG, [2, 0, 200, 0]))),
            ("96 bytes with four thousand million terms", many([FLAGS, u32::MAX - 1, 0, 0])),
            ("96 bytes with as many chunks", [head(), end(), record([1; 32], [0, u32::MAX - 1, 0, 0])].concat()),
            ("more chunks than a xorb has", with(8, record([2; 32], [0, CHUNKS_MAX as u32 + 1, 0, 0]))),
            ("a file without a SHA-256", with(1, record([1; 32], [WITH_TERM_HASHES, 2, 0, 0]))),
            ("a file without hashes of its terms", with(1, record([1; 32], [WITH_SHA256, 2, 0, 0]))),
            ("a file with something else", with(1, record([1; 32], [FLAGS | 1, 2, 0, 0]))),
            ("a file without terms", with(1, record([1; 32], [FLAGS, 0, 0, 0]))),
            ("a xorb without chunks", with(8, record([2; 32], [0; 4]))),
            ("no end of xorbs", good[..11].concat()),
            ("no xorbs", good[..8].concat()),
            ("bytes behind the end", [good.concat(), vec![0]].concat()),
            ("a record behind the end", [good.concat(), end()].concat()),
        ] {
            assert!(matches!(read(&bytes), Err(CommitFault::Refused(_))), "{what}");
        }
        for len in 0..good.concat().len() {
            assert!(read(&good.concat()[..len]).is_err(), "{len}");
        }
        let head = head();
        let claimed = ShardReader::new(head.as_slice(), SHARD_BYTES_MAX + 1);
        assert!(matches!(claimed.err(), Some(CommitFault::TooLong)));
    }
}
