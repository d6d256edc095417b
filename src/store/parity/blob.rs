//! The parity blob of a container: header, table of checksums, recovery shards, table and header again.
//!
//! A shard is taken for sound if its checksum is in the table at its place, in either copy. So a damaged part of a
//! table costs only the shards of that part, and only if both copies have it. A checksum that is right by chance makes
//! the code give wrong bytes, which the hash of the container shows.

use xxhash_rust::xxh3::xxh3_64;

use super::code::{ParityEncoder, restore_shards};
use super::layout::{HEADER_BYTES, ParityLayout, SUM_BYTES};
use crate::error::{Error, Result};
use crate::wire::{WireReader, check_readable, checksum, verify};

const MAGIC: [u8; 8] = *b"FHRDPRTY";
const VERSION: u16 = 1;
/// Bytes of the header before its checksum.
const COVERED_BYTES: usize = 64;

/// The checksum of a shard: the lower half of XXH3-64, which is faster than the code by far.
fn sum_of(shard: &[u8]) -> [u8; SUM_BYTES] {
    (xxh3_64(shard) as u32).to_le_bytes()
}

/// The header: bytes 0 to 7 type, 8 version, 10 zero, 12 bytes of a shard, 16 bytes of the container, 24 recovery
/// shards, 28 zero, 32 id of the container, 64 BLAKE3-128 of all before.
fn header(layout: &ParityLayout, id: &[u8; 32]) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let fields: [(usize, &[u8]); 6] = [
        (0, &MAGIC),
        (8, &VERSION.to_le_bytes()),
        (12, &(layout.shard_bytes as u32).to_le_bytes()),
        (16, &layout.len.to_le_bytes()),
        (24, &(layout.recovery_shards as u32).to_le_bytes()),
        (32, id),
    ];
    for (at, field) in fields {
        if let Some(target) = bytes.get_mut(at..at + field.len()) {
            target.copy_from_slice(field);
        }
    }
    let (covered, sum) = bytes.split_at_mut(COVERED_BYTES);
    sum.copy_from_slice(&checksum::<16>(&[covered]));
    bytes
}

/// What a header says.
fn parse_header(name: &str, offset: u64, bytes: &[u8]) -> Result<(ParityLayout, [u8; 32])> {
    let mut reader = WireReader::new(name, offset, bytes);
    let covered = reader.bytes(COVERED_BYTES)?;
    let recorded = reader.array::<16>()?;
    let mut fields = WireReader::new(name, offset, covered);
    let magic = fields.array::<8>()?;
    if magic != MAGIC {
        return Err(fields.error("the header of parity", format!("{magic:02x?}")));
    }
    verify(name, offset, &recorded, &[covered])?;
    check_readable(name, fields.u16()?, 0)?;
    fields.u16()?;
    let (shard_bytes, len, recovery_shards) = (fields.u32()?, fields.u64()?, fields.u32()?);
    fields.u32()?;
    let id = fields.array::<32>()?;
    let layout = ParityLayout::described(len, shard_bytes, recovery_shards)
        .ok_or_else(|| fields.error("shards of a container", format!("{recovery_shards} of {shard_bytes} bytes")))?;
    Ok((layout, id))
}

/// The layout that the first header of the parity blob `name` says, if it is sound and of the container `id`.
pub(super) fn layout_in_header(name: &str, header: &[u8], id: &[u8; 32]) -> Option<ParityLayout> {
    parse_header(name, 0, header).ok().filter(|(_, of)| of == id).map(|(layout, _)| layout)
}

/// The parity blob of the container `id`, whose stored bytes are the concatenation of `parts`.
///
/// # Errors
/// Errors of [`ParityEncoder::encode`].
pub(super) fn encode(
    encoder: &mut ParityEncoder,
    layout: &ParityLayout,
    id: &[u8; 32],
    parts: &[&[u8]],
) -> Result<Vec<u8>> {
    let (header, start) = (header(layout, id), layout.shards_start());
    let mut table = Vec::with_capacity(layout.table_bytes());
    let mut sums = Vec::with_capacity(layout.recovery_shards * SUM_BYTES);
    let mut blob = Vec::with_capacity(layout.blob_bytes());
    blob.extend_from_slice(&header);
    blob.resize(start, 0);
    encoder.encode(
        layout,
        parts,
        |shard| table.extend_from_slice(&sum_of(shard)),
        |shard| {
            sums.extend_from_slice(&sum_of(shard));
            blob.extend_from_slice(shard);
        },
    )?;
    table.append(&mut sums);
    if let Some(first) = blob.get_mut(HEADER_BYTES..HEADER_BYTES + table.len()) {
        first.copy_from_slice(&table);
    }
    blob.extend_from_slice(&table);
    blob.extend_from_slice(&header);
    Ok(blob)
}

/// A parity blob that was read, perhaps damaged.
pub(super) struct ParityBlob {
    pub layout: ParityLayout,
    /// The container whose parity it is.
    pub id: [u8; 32],
    /// The bytes, as many as the layout says. What could not be read is zero.
    bytes: Vec<u8>,
    /// Whether it had another length.
    is_cut: bool,
}

impl ParityBlob {
    /// Parses what was read of the blob called `name`. One of the headers must be sound.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::ChecksumMismatch`] if both are damaged, [`Error::Unsupported`] for parity of a
    /// newer version.
    pub fn parse(name: &str, mut bytes: Vec<u8>) -> Result<Self> {
        let first = parse_header(name, 0, bytes.get(..HEADER_BYTES).unwrap_or(&bytes));
        let (layout, id) = first.or_else(|error| {
            let Some(last) = bytes.len().checked_sub(HEADER_BYTES) else { return Err(error) };
            parse_header(name, last as u64, bytes.get(last..).unwrap_or_default()).map_err(|_| error)
        })?;
        let is_cut = bytes.len() != layout.blob_bytes();
        // A layout of a container that is not there must not cost its memory: most of its shards are missing then.
        if bytes.len() < layout.blob_bytes() / 2 {
            let (expected, got) = (format!("{} bytes", layout.blob_bytes()), bytes.len().to_string());
            return Err(Error::corrupt(name, bytes.len() as u64, expected, got));
        }
        bytes.resize(layout.blob_bytes(), 0);
        Ok(ParityBlob { layout, id, bytes, is_cut })
    }

    fn part(&self, start: usize, len: usize) -> &[u8] {
        self.bytes.get(start..start + len).unwrap_or_default()
    }

    /// Whether `shard` has the checksum of shard `number`, counted through data and recovery shards.
    fn is_sound(&self, number: usize, shard: &[u8]) -> bool {
        let sum = sum_of(shard);
        let tables = [HEADER_BYTES, self.layout.second_table_start()];
        tables.into_iter().any(|start| self.part(start + number * SUM_BYTES, SUM_BYTES) == sum)
    }

    fn recovery_shard(&self, number: usize) -> &[u8] {
        self.part(self.layout.shards_start() + number * self.layout.shard_bytes, self.layout.shard_bytes)
    }

    /// Whether every byte is as it was written. Of the checksums of the container's shards only that both tables agree.
    pub fn is_whole(&self) -> bool {
        let ParityLayout { data_shards, recovery_shards, .. } = self.layout;
        let (header, table_bytes) = (header(&self.layout, &self.id), self.layout.table_bytes());
        let second = self.layout.second_table_start();
        let (table, padding) = (self.part(HEADER_BYTES, table_bytes), HEADER_BYTES + table_bytes);
        !self.is_cut
            && [0, second + table_bytes].into_iter().all(|start| self.part(start, HEADER_BYTES) == header)
            && table == self.part(second, table_bytes)
            && self.part(padding, self.layout.shards_start() - padding).iter().all(|byte| *byte == 0)
            && (0..recovery_shards).all(|number| self.is_sound(data_shards + number, self.recovery_shard(number)))
    }

    /// Numbers of the shards of `container` that are bad. It has all shards with their padding.
    pub fn bad_shards(&self, container: &[u8]) -> Vec<usize> {
        let shards = container.chunks_exact(self.layout.shard_bytes).enumerate();
        shards.filter(|(number, shard)| !self.is_sound(*number, shard)).map(|(number, _)| number).collect()
    }

    /// Computes the shards `bad` of `container` again, and takes about `work_bytes` bytes for that. Returns whether the
    /// container came out.
    ///
    /// # Errors
    /// Errors of [`restore_shards`].
    pub fn rebuild(&self, container: &mut [u8], bad: &[usize], work_bytes: usize) -> Result<bool> {
        let ParityLayout { len, data_shards, recovery_shards, .. } = self.layout;
        let shards = (0..recovery_shards).map(|number| (number, self.recovery_shard(number)));
        let sound = shards.filter(|(number, shard)| self.is_sound(data_shards + number, shard));
        if !bad.is_empty() && !restore_shards(&self.layout, container, bad, sound, work_bytes)? {
            return Ok(false);
        }
        // The code answers with wrong bytes if a shard is bad and its checksum is not.
        Ok(container.get(..len as usize).is_some_and(|bytes| *blake3::hash(bytes).as_bytes() == self.id))
    }
}
