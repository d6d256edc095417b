//! Nodes of listings as maps of fields, for [`super::listing`], which does not know what most fields mean.
//!
//! A node is its length (varint) and a CBOR map with integer keys. A value is any CBOR item of definite length.

use crate::wire::WireReader;

/// Fields of a node, at most. Nodes with more are literal.
pub(super) const FIELDS_MAX: usize = 64;
/// Key of a node's name.
const NAME: u64 = 0;
/// The fields with a column: last change of the content, last access, last change of the metadata, inode, device.
pub(super) const COLUMN_KEYS: [u64; COLUMNS] = [7, 8, 9, 11, 12];
/// Number of them.
pub(super) const COLUMNS: usize = 5;
/// The first so many of them are times.
const TIMES: usize = 3;
/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// Major types of CBOR.
const UINT: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// A field: its key and its value as CBOR.
pub(super) type Field<'a> = (u64, &'a [u8]);

/// Takes the next node, with its length, and its map; `None` if none is whole.
pub(super) fn next_record<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut reader = WireReader::new(super::WHAT, 0, rest);
    let len = usize::try_from(reader.varint().ok()?).ok()?;
    let map = reader.bytes(len).ok()?;
    let (record, behind) = rest.split_at_checked(rest.len() - reader.remaining())?;
    *rest = behind;
    Some((record, map))
}

/// Puts the fields of a map into `fields`; `None` if it is no map of at most [`FIELDS_MAX`] ascending integers.
pub(super) fn split<'a>(map: &'a [u8], fields: &mut Vec<Field<'a>>) -> Option<()> {
    fields.clear();
    let (major, count, mut at) = head(map)?;
    if major != MAP || count > FIELDS_MAX as u64 {
        return None;
    }
    for _ in 0..count {
        let (major, key, head_len) = head(map.get(at..)?)?;
        let start = at + head_len;
        let end = start + item_len(map.get(start..)?)?;
        if major != UINT || fields.last().is_some_and(|last| last.0 >= key) {
            return None;
        }
        fields.push((key, map.get(start..end)?));
        at = end;
    }
    (at == map.len()).then_some(())
}

/// The name among the fields of a node.
pub(super) fn name_of<'a>(fields: &[Field<'a>]) -> Option<&'a [u8]> {
    let (_, value) = fields.first().filter(|field| field.0 == NAME)?;
    let (major, len, at) = head(value)?;
    let name = value.get(at..)?;
    (major == BYTES && name.len() as u64 == len).then_some(name)
}

/// The column of a key.
pub(super) fn column_of(key: u64) -> Option<usize> {
    COLUMN_KEYS.iter().position(|column| *column == key)
}

/// The number that column `column` has for a value: an integer, or nanoseconds since 1970, mod 2^64.
pub(super) fn number_of(column: usize, value: &[u8]) -> Option<u64> {
    let uint = |bytes: &[u8]| head(bytes).filter(|(major, ..)| *major == UINT);
    if column >= TIMES {
        return uint(value).filter(|(.., at)| *at == value.len()).map(|(_, number, _)| number);
    }
    let rest = value.strip_prefix(&[ARRAY << 5 | 2])?;
    let (major, number, at) = head(rest)?;
    let seconds = match major {
        UINT => number,
        NEGATIVE => !number,
        _ => return None,
    };
    let rest = rest.get(at..)?;
    let (_, nanoseconds, _) = uint(rest).filter(|(.., at)| *at == rest.len())?;
    Some(seconds.wrapping_mul(SECOND as u64).wrapping_add(nanoseconds))
}

/// Appends the value for a number of column `column`.
pub(super) fn put_number(column: usize, number: u64, out: &mut Vec<u8>) {
    if column >= TIMES {
        return put_head(UINT, number, out);
    }
    let (seconds, nanoseconds) = ((number as i64).div_euclid(SECOND), (number as i64).rem_euclid(SECOND));
    put_head(ARRAY, 2, out);
    match seconds {
        0.. => put_head(UINT, seconds as u64, out),
        _ => put_head(NEGATIVE, !(seconds as u64), out),
    }
    put_head(UINT, nanoseconds as u64, out);
}

/// Appends the key of a field.
pub(super) fn put_key(key: u64, out: &mut Vec<u8>) {
    put_head(UINT, key, out);
}

/// Appends the head of a map.
pub(super) fn put_map(count: usize, out: &mut Vec<u8>) {
    put_head(MAP, count as u64, out);
}

/// Appends the shortest head of an item.
fn put_head(major: u8, number: u64, out: &mut Vec<u8>) {
    let (info, len) = match number {
        0..=23 => (number as u8, 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out.push(major << 5 | info);
    // CBOR has the highest byte first.
    out.extend((0..len).rev().map(|at| (number >> (8 * at)) as u8));
}

/// Major type and number of the first head, and its length; `None` for one without a definite length.
fn head(bytes: &[u8]) -> Option<(u8, u64, usize)> {
    let first = *bytes.first()?;
    let len = match first & 31 {
        low @ 0..=23 => return Some((first >> 5, u64::from(low), 1)),
        low @ 24..=27 => 1 << (low - 24),
        _ => return None,
    };
    let number = bytes.get(1..1 + len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((first >> 5, number, 1 + len))
}

/// Length of the first item, with all that is in it.
fn item_len(bytes: &[u8]) -> Option<usize> {
    // Every item takes a byte at least, so this ends.
    let (mut at, mut items) = (0, 1u64);
    while items > 0 {
        let (major, number, head_len) = head(bytes.get(at..)?)?;
        at += head_len;
        items -= 1;
        match major {
            BYTES | TEXT => {
                at = at.checked_add(usize::try_from(number).ok()?)?;
                bytes.get(..at)?;
            }
            ARRAY => items = items.checked_add(number)?,
            MAP => items = items.checked_add(number.checked_mul(2)?)?,
            TAG => items += 1,
            _ => {}
        }
    }
    Some(at)
}
