//! The directory on disk: six sections, column by column.
//!
//! A section is: codec (`u8`: 0 raw, 1 zstd), raw length and stored length (varints), stored bytes. In this order:
//! frames, bases, fingerprints, entries, features, pieces. A section of more than 256 KiB is cut into several parts,
//! preceded by their count, so that decoding is bounded.

use super::{Base, ContainerIndex, Entry, FEATURES_MAX, FrameInfo, Operation};
use crate::codec::Scratch;
use crate::config::{CHUNK_BYTES_LIMIT, DELTA_BASE_BYTES_LIMIT, FRAME_BYTES_LIMIT};
use crate::error::Result;
use crate::repo::container::frame::FRAME_HEADER_BYTES;
use crate::repo::container::layout::{Footer, HEADER_BYTES};
use crate::repo::container::resolve::DEPTH_LIMIT;
use crate::types::Fingerprint;
use crate::wire::{WireReader, put_varint, unzigzag, zigzag};

const PART_BYTES: usize = 256 << 10;
const LEVEL: i32 = 3;
/// No directory section is longer, bytes.
const SECTION_BYTES_LIMIT: u64 = 1 << 30;
const ENTRIES_LIMIT: u64 = 1 << 22;
/// Sections before that of the fingerprints.
const FINGERPRINTS_SECTION: usize = 2;

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

/// A part as stored: codec, raw length and bytes.
fn read_part<'a>(reader: &mut WireReader<'a>) -> Result<(u8, usize, &'a [u8])> {
    let codec = reader.u8()?;
    let raw_len = reader.bounded("bytes of a part", PART_BYTES as u64)? as usize;
    let stored_len = reader.bounded("stored bytes of a part", 2 * PART_BYTES as u64)? as usize;
    Ok((codec, raw_len, reader.bytes(stored_len)?))
}

fn read_part_count(reader: &mut WireReader<'_>) -> Result<u64> {
    reader.bounded("parts of a section", SECTION_BYTES_LIMIT / PART_BYTES as u64)
}

fn read_section(reader: &mut WireReader<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let mut raw = Vec::new();
    for _ in 0..read_part_count(reader)? {
        let at = reader.clone();
        let (codec, raw_len, stored) = read_part(reader)?;
        match codec {
            0 if stored.len() == raw_len => raw.extend_from_slice(stored),
            1 => scratch
                .decompress(stored, raw_len, &mut raw)
                .map_err(|error| at.error("zstd data", error.to_string()))?,
            other => return Err(at.unsupported(format!("codec {other}"))),
        }
    }
    Ok(raw)
}

/// The directory's bytes.
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
    Ok(out)
}

/// The value of one column for the entry of a number.
type Column<'a> = &'a dyn Fn(usize, &Entry) -> u64;

fn entry_columns(entries: &[Entry]) -> Vec<u8> {
    let mut raw = Vec::new();
    let columns: [Column<'_>; 7] = [
        &|_, entry| u64::from(entry.raw_len),
        &|_, entry| u64::from(entry.raw_len - entry.literal_len.min(entry.raw_len)),
        &|number, entry| {
            let last = number.checked_sub(1).and_then(|last| entries.get(last)).map_or(0, |last| last.frame);
            zigzag(i64::from(entry.frame) - i64::from(last))
        },
        &|number, entry| {
            let last = number.checked_sub(1).and_then(|last| entries.get(last));
            let guess =
                last.filter(|last| last.frame == entry.frame).map_or(0, |last| last.literal_offset + last.literal_len);
            zigzag(i64::from(entry.literal_offset) - i64::from(guess))
        },
        &|_, entry| u64::from(entry.depth),
        &|_, entry| u64::from(entry.operations.1),
        &|_, entry| u64::from(entry.features.1),
    ];
    for column in columns {
        for (number, entry) in entries.iter().enumerate() {
            put_varint(&mut raw, column(number, entry));
        }
    }
    raw
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

/// Parses a directory; `what` names the container in errors.
pub(super) fn decode(what: &str, footer: &Footer, bytes: &[u8]) -> Result<ContainerIndex> {
    let mut scratch = Scratch::default();
    let mut reader = WireReader::new(what, footer.index_offset, bytes);
    let mut sections = Vec::with_capacity(6);
    for _ in 0..6 {
        sections.push(read_section(&mut reader, &mut scratch)?);
    }
    reader.finish()?;
    let section = |number: usize| {
        let raw: &[u8] = sections.get(number).map_or(&[], Vec::as_slice);
        WireReader::new(what, footer.index_offset, raw)
    };
    let frames = decode_frames(section(0), footer)?;
    let bases = decode_bases(section(1))?;
    let operations = decode_operations(section(5), bases.len() as u64)?;
    let (entries, feature_count) =
        decode_entries(section(FINGERPRINTS_SECTION), section(3), footer, &frames, &operations)?;
    let features = decode_features(section(4), feature_count)?;
    Ok(ContainerIndex { frames, entries, bases, operations, features, by_prefix: Vec::new() })
}

/// The fingerprints of a directory; the sections before theirs are passed over and those behind it not looked at.
pub(super) fn decode_fingerprints(what: &str, footer: &Footer, bytes: &[u8]) -> Result<Vec<Fingerprint>> {
    let mut reader = WireReader::new(what, footer.index_offset, bytes);
    for _ in 0..FINGERPRINTS_SECTION {
        for _ in 0..read_part_count(&mut reader)? {
            read_part(&mut reader)?;
        }
    }
    let raw = read_section(&mut reader, &mut Scratch::default())?;
    let mut prints = fingerprints(WireReader::new(what, footer.index_offset, &raw), footer)?;
    (0..footer.entries).map(|_| Ok(Fingerprint(prints.array()?))).collect()
}

/// The section of fingerprints, which has to have one for every entry.
fn fingerprints<'a>(section: WireReader<'a>, footer: &Footer) -> Result<WireReader<'a>> {
    let count = footer.entries as usize;
    if u64::from(footer.entries) > ENTRIES_LIMIT || section.remaining() != count * 32 {
        return Err(section.error(format!("{count} fingerprints"), format!("{} bytes", section.remaining())));
    }
    Ok(section)
}

fn decode_frames(mut reader: WireReader<'_>, footer: &Footer) -> Result<Vec<FrameInfo>> {
    let mut frames = Vec::new();
    let mut offset = HEADER_BYTES as u64;
    for _ in 0..footer.frames {
        let codec = reader.u8()?;
        let raw_len = reader.bounded("raw bytes of a frame", FRAME_BYTES_LIMIT)? as u32;
        let stored_len = reader.bounded("stored bytes of a frame", 2 * FRAME_BYTES_LIMIT)? as u32;
        frames.push(FrameInfo { offset, stored_len, raw_len, codec });
        offset += FRAME_HEADER_BYTES as u64 + u64::from(stored_len);
    }
    reader.finish()?;
    if offset != footer.index_offset {
        return Err(reader.error(format!("frames that end at {}", footer.index_offset), offset.to_string()));
    }
    Ok(frames)
}

fn decode_bases(mut reader: WireReader<'_>) -> Result<Vec<Base>> {
    let count = reader.bounded("bases", ENTRIES_LIMIT)?;
    let mut bases = Vec::new();
    for _ in 0..count {
        bases.push(Base { fingerprint: Fingerprint(reader.array()?), digest: reader.u64()? });
    }
    reader.finish()?;
    Ok(bases)
}

fn decode_features(mut reader: WireReader<'_>, count: u64) -> Result<Vec<u64>> {
    let positions = reader.bytes(count as usize)?;
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
    let count = reader.bounded("pieces", reader.remaining() as u64)? as usize;
    let kinds = reader.bytes(count)?;
    let mut lens = Vec::with_capacity(count);
    for _ in 0..count {
        match reader.bounded("bytes of a piece", CHUNK_BYTES_LIMIT)? {
            0 => return Err(reader.error("a piece of at least one byte", "0")),
            len => lens.push(len as u32),
        }
    }
    let copies = kinds.iter().filter(|kind| **kind != 0).count();
    let mut bases = Vec::with_capacity(copies);
    let mut last = 0i64;
    for _ in 0..copies {
        last = last.wrapping_add(unzigzag(reader.varint()?));
        if last < 0 || last as u64 >= base_count {
            return Err(reader.error(format!("a base below {base_count}"), last.to_string()));
        }
        bases.push(last as u32);
    }
    let mut operations = Vec::with_capacity(count);
    let mut bases = bases.into_iter();
    let mut last_end = 0i64;
    for (kind, len) in kinds.iter().zip(lens) {
        if *kind == 0 {
            operations.push(Operation::Add { len });
            continue;
        }
        let offset = last_end.wrapping_add(unzigzag(reader.varint()?));
        let fits = (0..=CHUNK_BYTES_LIMIT as i64 - i64::from(len)).contains(&offset);
        let (true, Some(base)) = (fits, bases.next()) else {
            return Err(reader.error("a copy within a chunk", format!("offset {offset}, {len} bytes")));
        };
        last_end = offset + i64::from(len);
        let offset = offset as u32;
        operations.push(match kind {
            1 => Operation::Copy { base, offset, len },
            2 => Operation::LiteralCopy { base, offset, len },
            3 => Operation::Delta { base, offset, len },
            other => return Err(reader.error("piece kind 0 to 3", other.to_string())),
        });
    }
    reader.finish()?;
    Ok(operations)
}

/// Checks that pieces cover the chunk and use up its literal bytes, or that all of them belong to a delta.
fn check_operations(reader: &WireReader<'_>, entry: &Entry, operations: &[Operation]) -> Result<()> {
    let sum = |fits: fn(&Operation) -> bool| -> u64 {
        operations.iter().filter(|operation| fits(operation)).map(|operation| u64::from(operation.len())).sum()
    };
    let (total, literal) = (sum(|_| true), sum(|operation| matches!(operation, Operation::Add { .. })));
    let delta = sum(|operation| matches!(operation, Operation::Delta { .. }));
    let (want, want_literal) = (u64::from(entry.raw_len), u64::from(entry.literal_len));
    let fits = match (operations.is_empty(), delta) {
        (true, _) => want == want_literal,
        (false, 0) => total == want && literal == want_literal,
        (false, _) => total == delta && delta <= DELTA_BASE_BYTES_LIMIT,
    };
    if fits {
        return Ok(());
    }
    let expected = format!("pieces of {want} bytes, {want_literal} of them literal, or a delta's alone");
    Err(reader.error(expected, format!("{total} bytes, {literal} literal, {delta} of a delta")))
}

fn decode_entries(
    prints: WireReader<'_>,
    mut reader: WireReader<'_>,
    footer: &Footer,
    frames: &[FrameInfo],
    operations: &[Operation],
) -> Result<(Vec<Entry>, u64)> {
    let mut prints = fingerprints(prints, footer)?;
    let count = footer.entries as usize;
    let mut columns: [Vec<u64>; 7] = Default::default();
    for column in &mut columns {
        for _ in 0..count {
            column.push(reader.varint()?);
        }
    }
    reader.finish()?;
    let cell = |column: usize, row: usize| columns.get(column).and_then(|column| column.get(row)).copied().unwrap_or(0);
    let mut entries: Vec<Entry> = Vec::with_capacity(count);
    let (mut piece_start, mut feature_start) = (0u64, 0u64);
    for row in 0..count {
        let (raw_len, copied) = (cell(0, row), cell(1, row));
        if raw_len > CHUNK_BYTES_LIMIT || copied > raw_len {
            return Err(
                reader.error(format!("a chunk of at most {CHUNK_BYTES_LIMIT} bytes"), format!("{raw_len}, {copied}"))
            );
        }
        let literal_len = raw_len - copied;
        let last = entries.last();
        let frame = unzigzag(cell(2, row)).wrapping_add(last.map_or(0, |last| i64::from(last.frame)));
        let guess =
            last.filter(|last| i64::from(last.frame) == frame).map_or(0, |last| last.literal_offset + last.literal_len);
        let literal_offset = unzigzag(cell(3, row)).wrapping_add(i64::from(guess));
        let frame_len =
            u64::try_from(frame).ok().and_then(|frame| frames.get(frame as usize)).map(|frame| frame.raw_len);
        let end = u64::try_from(literal_offset).ok().and_then(|offset| offset.checked_add(literal_len));
        if literal_len > 0 && !matches!((frame_len, end), (Some(len), Some(end)) if end <= u64::from(len)) {
            return Err(
                reader.error("literal bytes within a frame", format!("frame {frame}, {literal_offset}+{literal_len}"))
            );
        }
        let (depth, operation_count, feature_count) = (cell(4, row), cell(5, row), cell(6, row));
        if depth == 0 || depth > u64::from(DEPTH_LIMIT) || feature_count > FEATURES_MAX as u64 {
            return Err(reader.error("a depth of 1 to 64 and at most 64 features", format!("{depth}, {feature_count}")));
        }
        let own =
            piece_start.checked_add(operation_count).and_then(|end| operations.get(piece_start as usize..end as usize));
        let Some(own) = own else {
            return Err(
                reader.error(format!("{operation_count} pieces from {piece_start}"), operations.len().to_string())
            );
        };
        let entry = Entry {
            fingerprint: Fingerprint(prints.array()?),
            raw_len: raw_len as u32,
            frame: frame as u32,
            literal_offset: literal_offset as u32,
            literal_len: literal_len as u32,
            depth: depth as u8,
            operations: (piece_start as u32, operation_count as u32),
            features: (feature_start as u32, feature_count as u32),
        };
        check_operations(&reader, &entry, own)?;
        entries.push(entry);
        piece_start += operation_count;
        feature_start += feature_count;
    }
    Ok((entries, feature_start))
}
