//! The container index on disk: six sections, column by column.
//!
//! The sections are, in this order: frames, bases, fingerprints, entries, features, operations. A section is split into
//! parts of at most 256 KiB, so that decoding is bounded, and starts with their count. A part has a codec (`u8`: 0 raw,
//! 1 zstd), its raw and its stored length (varints), and the stored bytes.

use super::container_index::{ContainerEntry, ContainerIndex, FEATURES_MAX, Span};
use super::entry_check::{EntryBounds, Violation, check_base, check_frame, check_length, check_offset, check_totals};
use super::frame::{FRAME_HEADER_BYTES, FrameInfo};
use super::layout::{ContainerKind, Footer, HEADER_BYTES};
use super::operations::{Base, Operation, has_base};
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::types::Fingerprint;
use crate::wire::{WireReader, put_varint, unzigzag, zigzag};

const PART_BYTES: usize = 256 << 10;
const LEVEL: i32 = 3;
/// Parts of a section, at most.
const PARTS_LIMIT: u64 = 4096;
/// Entries of a container, at most.
pub const ENTRIES_LIMIT: u64 = 1 << 18;
/// Frames of a container, at most.
pub(super) const FRAMES_LIMIT: u64 = 1 << 18;
/// Bases of a container, at most.
pub(super) const BASES_LIMIT: u64 = 1 << 20;
/// Operations of a container, at most.
pub(super) const OPERATIONS_LIMIT: u64 = 1 << 21;
/// Features of a container, at most.
pub(super) const FEATURES_LIMIT: u64 = 1 << 22;
/// Bytes of a container index as stored, at most.
pub const INDEX_BYTES_LIMIT: u64 = 128 << 20;
/// Bytes of a varint, at most.
const VARINT_BYTES: u64 = 10;
/// Bytes of a base: fingerprint and digest.
const BASE_BYTES: u64 = 40;
/// Bytes of a feature: position and hash.
const FEATURE_BYTES: u64 = 7;
/// Bytes of an operation in its shortest encoding, at most: kind, and varints for length, base and offset.
const OPERATION_BYTES: u64 = 13;
/// Columns of the entries.
const ENTRY_COLUMNS: usize = 7;
/// Sections before the fingerprints.
const FINGERPRINTS_SECTION: usize = 2;

/// Decoded bytes of each section, at most. The counts of the footer bound them, so no small file takes much memory.
struct SectionLimits {
    frames: u64,
    bases: u64,
    fingerprints: u64,
    entries: u64,
    features: u64,
    operations: u64,
}

impl SectionLimits {
    /// The limits of the container called `what`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a count of the footer is too large.
    fn of(what: &str, footer: &Footer) -> Result<Self> {
        let (entries, frames) = (u64::from(footer.entries), u64::from(footer.frames));
        if entries > ENTRIES_LIMIT || frames > FRAMES_LIMIT {
            let expected = format!("at most {ENTRIES_LIMIT} entries and {FRAMES_LIMIT} frames");
            return Err(Error::corrupt(what, footer.index_offset, expected, format!("{entries} and {frames}")));
        }
        Ok(SectionLimits {
            frames: frames * (1 + 2 * VARINT_BYTES),
            bases: VARINT_BYTES + BASES_LIMIT * BASE_BYTES,
            fingerprints: entries * 32,
            entries: entries * ENTRY_COLUMNS as u64 * VARINT_BYTES,
            features: FEATURES_LIMIT.min(entries * FEATURES_MAX as u64) * FEATURE_BYTES,
            operations: VARINT_BYTES + OPERATIONS_LIMIT * OPERATION_BYTES,
        })
    }
}

fn put_section(out: &mut Vec<u8>, raw: &[u8], scratch: &mut Scratch) -> Result<()> {
    put_varint(out, raw.len().div_ceil(PART_BYTES) as u64);
    for part in raw.chunks(PART_BYTES) {
        let mut packed = Vec::new();
        scratch.compress(part, LEVEL, &mut packed)?;
        let (codec, stored): (u8, &[u8]) = if packed.len() < part.len() { (1, &packed) } else { (0, part) };
        out.push(codec);
        put_varint(out, part.len() as u64);
        put_varint(out, stored.len() as u64);
        out.extend_from_slice(stored);
    }
    Ok(())
}

/// Codec, raw length and stored bytes of a part.
fn read_part<'a>(reader: &mut WireReader<'a>) -> Result<(u8, usize, &'a [u8])> {
    let codec = reader.u8()?;
    let raw_len = reader.bounded("bytes of a part", PART_BYTES as u64)? as usize;
    let stored_len = reader.bounded("stored bytes of a part", 2 * PART_BYTES as u64)? as usize;
    Ok((codec, raw_len, reader.bytes(stored_len)?))
}

fn read_part_count(reader: &mut WireReader<'_>) -> Result<u64> {
    reader.bounded("parts of a section", PARTS_LIMIT)
}

/// Decodes a section of at most `bytes_max` bytes. Checks each part before it takes memory for it.
fn read_section(reader: &mut WireReader<'_>, bytes_max: u64, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let mut raw = Vec::new();
    for _ in 0..read_part_count(reader)? {
        let start = reader.clone();
        let (codec, raw_len, stored) = read_part(reader)?;
        let section_len = raw.len() as u64 + raw_len as u64;
        if section_len > bytes_max {
            return Err(start.error(format!("a section of at most {bytes_max} bytes"), section_len.to_string()));
        }
        match codec {
            0 if stored.len() == raw_len => raw.extend_from_slice(stored),
            1 => scratch
                .decompress(stored, raw_len, &mut raw)
                .map_err(|error| start.error("zstd data", error.to_string()))?,
            0 => return Err(start.error(format!("{raw_len} stored bytes"), stored.len().to_string())),
            other => return Err(start.unsupported(format!("codec {other}"))),
        }
    }
    Ok(raw)
}

/// Encodes a container index.
pub(super) fn encode(container_index: &ContainerIndex) -> Result<Vec<u8>> {
    let mut scratch = Scratch::default();
    let mut out = Vec::new();
    let mut raw = Vec::new();
    for frame in &container_index.frames {
        raw.push(frame.codec);
        put_varint(&mut raw, u64::from(frame.raw_len));
        put_varint(&mut raw, u64::from(frame.stored_len));
    }
    put_section(&mut out, &raw, &mut scratch)?;
    raw.clear();
    put_varint(&mut raw, container_index.bases.len() as u64);
    for base in &container_index.bases {
        raw.extend_from_slice(&base.fingerprint.0);
        raw.extend_from_slice(&base.digest.to_le_bytes());
    }
    put_section(&mut out, &raw, &mut scratch)?;
    raw.clear();
    container_index.entries.iter().for_each(|entry| raw.extend_from_slice(&entry.fingerprint.0));
    put_section(&mut out, &raw, &mut scratch)?;
    put_section(&mut out, &entry_columns(&container_index.entries), &mut scratch)?;
    raw.clear();
    container_index.features.iter().for_each(|feature| raw.push((feature >> 48) as u8));
    container_index.features.iter().for_each(|feature| raw.extend_from_slice(&feature.to_le_bytes()[..6]));
    put_section(&mut out, &raw, &mut scratch)?;
    put_section(&mut out, &operation_columns(&container_index.operations), &mut scratch)?;
    if out.len() as u64 > INDEX_BYTES_LIMIT {
        return Err(Error::internal(format!("a container index of {} bytes cannot be stored", out.len())));
    }
    Ok(out)
}

/// The value of one column for an entry, given the entry before it.
type Column<'a> = &'a dyn Fn(Option<&ContainerEntry>, &ContainerEntry) -> u64;

fn entry_columns(entries: &[ContainerEntry]) -> Vec<u8> {
    let mut raw = Vec::new();
    let columns: [Column<'_>; ENTRY_COLUMNS] = [
        &|_, entry| u64::from(entry.raw_len),
        &|_, entry| u64::from(entry.raw_len - entry.literal_len),
        &|last, entry| zigzag(i64::from(entry.frame) - last.map_or(0, |last| i64::from(last.frame))),
        &|last, entry| {
            let guess = guess_literal_offset(last, i64::from(entry.frame));
            zigzag(i64::from(entry.literal_offset) - i64::from(guess))
        },
        &|_, entry| u64::from(entry.depth),
        &|_, entry| u64::from(entry.operations.len),
        &|_, entry| u64::from(entry.features.len),
    ];
    for column in columns {
        let mut last = None;
        for entry in entries {
            put_varint(&mut raw, column(last, entry));
            last = Some(entry);
        }
    }
    raw
}

/// The literal bytes of an entry usually follow those of the last entry in the same frame.
fn guess_literal_offset(last: Option<&ContainerEntry>, frame: i64) -> u32 {
    let same_frame = last.filter(|last| i64::from(last.frame) == frame);
    same_frame.map_or(0, |last| last.literal_offset + last.literal_len)
}

fn operation_columns(operations: &[Operation]) -> Vec<u8> {
    let (mut kinds, mut lens, mut bases, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut last_base, mut last_end) = (0u32, 0u32);
    for operation in operations {
        kinds.push(operation.kind());
        put_varint(&mut lens, u64::from(operation.len()));
        if let Some((base, offset)) = operation.source() {
            put_varint(&mut bases, zigzag(i64::from(base) - i64::from(last_base)));
            put_varint(&mut offsets, zigzag(i64::from(offset) - i64::from(last_end)));
            (last_base, last_end) = (base, offset + operation.len());
        }
    }
    let mut raw = Vec::new();
    put_varint(&mut raw, operations.len() as u64);
    [kinds, lens, bases, offsets].iter().for_each(|column| raw.extend_from_slice(column));
    raw
}

fn section_reader<'a>(what: &'a str, footer: &Footer, raw: &'a [u8]) -> WireReader<'a> {
    WireReader::new(what, footer.index_offset, raw)
}

/// Decodes a container index; `what` names the container in errors. Only the sections that the entries need are in
/// memory together.
pub(super) fn decode(what: &str, footer: &Footer, bytes: &[u8]) -> Result<ContainerIndex> {
    let limits = SectionLimits::of(what, footer)?;
    let mut scratch = Scratch::default();
    let mut reader = WireReader::new(what, footer.index_offset, bytes);
    let mut section = |bytes_max| read_section(&mut reader, bytes_max, &mut scratch);
    let frames = decode_frames(section_reader(what, footer, &section(limits.frames)?), footer)?;
    let bases = decode_bases(section_reader(what, footer, &section(limits.bases)?))?;
    let (fingerprints, entries) = (section(limits.fingerprints)?, section(limits.entries)?);
    let features = decode_features(section_reader(what, footer, &section(limits.features)?))?;
    let operations = decode_operations(section_reader(what, footer, &section(limits.operations)?), bases.len() as u64)?;
    reader.finish()?;
    let (entries, feature_count) = decode_entries(
        section_reader(what, footer, &fingerprints),
        section_reader(what, footer, &entries),
        footer,
        &frames,
        &operations,
    )?;
    if feature_count != features.len() as u64 {
        return Err(
            section_reader(what, footer, &[]).error(format!("{feature_count} features"), features.len().to_string())
        );
    }
    Ok(ContainerIndex {
        frames,
        entries,
        bases,
        kind: ContainerKind::default(),
        has_unknown: operations.iter().any(|operation| operation.check_known().is_err()),
        operations,
        features,
        by_prefix: Vec::new(),
    })
}

/// Decodes only the fingerprints. The sections before them are skipped, those after them are not read.
pub(super) fn decode_fingerprints(what: &str, footer: &Footer, bytes: &[u8]) -> Result<Vec<Fingerprint>> {
    let limits = SectionLimits::of(what, footer)?;
    let mut reader = WireReader::new(what, footer.index_offset, bytes);
    for _ in 0..FINGERPRINTS_SECTION {
        for _ in 0..read_part_count(&mut reader)? {
            read_part(&mut reader)?;
        }
    }
    let raw = read_section(&mut reader, limits.fingerprints, &mut Scratch::default())?;
    let mut fingerprints = check_fingerprints(WireReader::new(what, footer.index_offset, &raw), footer)?;
    (0..footer.entries).map(|_| Ok(Fingerprint(fingerprints.array()?))).collect()
}

/// Checks that the section has one fingerprint per entry.
fn check_fingerprints<'a>(section: WireReader<'a>, footer: &Footer) -> Result<WireReader<'a>> {
    let count = footer.entries as usize;
    if section.remaining() != count * 32 {
        return Err(section.error(format!("{count} fingerprints"), format!("{} bytes", section.remaining())));
    }
    Ok(section)
}

fn damage(reader: &WireReader<'_>) -> impl Fn(Violation) -> Error {
    |violation| reader.error(violation.expected, violation.found)
}

fn decode_frames(mut reader: WireReader<'_>, footer: &Footer) -> Result<Vec<FrameInfo>> {
    let mut frames = Vec::new();
    let mut offset = HEADER_BYTES as u64;
    for _ in 0..footer.frames {
        let codec = reader.u8()?;
        let (raw_len, stored_len) = (reader.varint()?, reader.varint()?);
        check_frame(raw_len, stored_len).map_err(damage(&reader))?;
        frames.push(FrameInfo { offset, stored_len: stored_len as u32, raw_len: raw_len as u32, codec });
        offset += FRAME_HEADER_BYTES as u64 + stored_len;
    }
    reader.finish()?;
    if offset.checked_add(footer.padding) != Some(footer.index_offset) {
        let end = footer.index_offset.saturating_sub(footer.padding);
        return Err(reader.error(format!("frames that end at {end}"), offset.to_string()));
    }
    Ok(frames)
}

fn decode_bases(mut reader: WireReader<'_>) -> Result<Vec<Base>> {
    let count = reader.bounded("bases", BASES_LIMIT)?;
    let mut bases = Vec::new();
    for _ in 0..count {
        bases.push(Base { fingerprint: Fingerprint(reader.array()?), digest: reader.u64()? });
    }
    reader.finish()?;
    Ok(bases)
}

fn decode_features(mut reader: WireReader<'_>) -> Result<Vec<u64>> {
    let positions = reader.bytes(reader.remaining() / FEATURE_BYTES as usize)?;
    let mut features = Vec::with_capacity(positions.len());
    for position in positions {
        let mut hash = [0u8; 8];
        hash[..6].copy_from_slice(reader.bytes(6)?);
        features.push(u64::from(*position) << 48 | u64::from_le_bytes(hash));
    }
    reader.finish()?;
    Ok(features)
}

fn decode_operations(mut reader: WireReader<'_>, base_count: u64) -> Result<Vec<Operation>> {
    let count = reader.bounded("operations", OPERATIONS_LIMIT.min(reader.remaining() as u64))? as usize;
    let kinds = reader.bytes(count)?;
    let mut lens = Vec::with_capacity(count);
    for _ in 0..count {
        let len = reader.varint()?;
        lens.push(check_length(len).map_err(damage(&reader))?);
    }
    let copies = kinds.iter().filter(|kind| has_base(**kind)).count();
    let mut bases = Vec::with_capacity(copies);
    let mut last = 0i64;
    for _ in 0..copies {
        last = last.wrapping_add(unzigzag(reader.varint()?));
        bases.push(check_base(last, base_count).map_err(damage(&reader))?);
    }
    let mut operations = Vec::with_capacity(count);
    let mut bases = bases.into_iter();
    let mut last_end = 0i64;
    for (kind, len) in kinds.iter().zip(lens) {
        let kind = *kind;
        if !has_base(kind) {
            let known = kind == 0;
            operations.push(if known { Operation::Add { len } } else { Operation::Unknown { kind, base: None, len } });
            continue;
        }
        let offset = last_end.wrapping_add(unzigzag(reader.varint()?));
        let offset = check_offset(offset, len).map_err(damage(&reader))?;
        let base = bases.next().ok_or_else(|| reader.error("a base for every copy", "none"))?;
        last_end = i64::from(offset) + i64::from(len);
        operations.push(match kind {
            1 => Operation::Copy { base, offset, len },
            2 => Operation::LiteralCopy { base, offset, len },
            3 => Operation::Delta { base, offset, len },
            kind => Operation::Unknown { kind, base: Some((base, offset)), len },
        });
    }
    reader.finish()?;
    Ok(operations)
}

fn decode_entries(
    fingerprints: WireReader<'_>,
    mut reader: WireReader<'_>,
    footer: &Footer,
    frames: &[FrameInfo],
    operations: &[Operation],
) -> Result<(Vec<ContainerEntry>, u64)> {
    let mut fingerprints = check_fingerprints(fingerprints, footer)?;
    let count = footer.entries as usize;
    let mut columns: [Vec<u64>; ENTRY_COLUMNS] = Default::default();
    for column in &mut columns {
        for _ in 0..count {
            column.push(reader.varint()?);
        }
    }
    reader.finish()?;
    let mut entries: Vec<ContainerEntry> = Vec::with_capacity(count);
    let (mut operation_start, mut feature_start) = (0u64, 0u64);
    for row in 0..count {
        let [raw_len, copied, frame, literal_offset, depth, operation_count, features] =
            columns.each_ref().map(|column| column[row]);
        let literal_len = raw_len.checked_sub(copied);
        let literal_len =
            literal_len.ok_or_else(|| reader.error(format!("at most {raw_len} copied bytes"), copied.to_string()))?;
        let last = entries.last();
        let frame = unzigzag(frame).wrapping_add(last.map_or(0, |last| i64::from(last.frame)));
        let guess = guess_literal_offset(last, frame);
        let literal_offset = unzigzag(literal_offset).wrapping_add(i64::from(guess));
        let info = usize::try_from(frame).ok().and_then(|frame| frames.get(frame));
        let frame_raw_len = info.map(|info| info.raw_len);
        let bounds = EntryBounds { raw_len, literal_offset, literal_len, frame_raw_len, depth, features };
        bounds.check().map_err(damage(&reader))?;
        let own = operation_start
            .checked_add(operation_count)
            .and_then(|end| operations.get(operation_start as usize..end as usize));
        let own = own.ok_or_else(|| {
            let expected = format!("{operation_count} operations from {operation_start}");
            reader.error(expected, operations.len().to_string())
        })?;
        check_totals(raw_len, literal_len, own).map_err(damage(&reader))?;
        entries.push(ContainerEntry {
            fingerprint: Fingerprint(fingerprints.array()?),
            raw_len: raw_len as u32,
            frame: frame as u32,
            literal_offset: literal_offset as u32,
            literal_len: literal_len as u32,
            depth: depth as u8,
            operations: Span { start: operation_start as u32, len: operation_count as u32 },
            features: Span { start: feature_start as u32, len: features as u32 },
        });
        operation_start += operation_count;
        feature_start += features;
    }
    Ok((entries, feature_start))
}
