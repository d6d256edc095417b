//! The directory of a zip archive, zip64 included. Members are located, never unpacked.
//!
//! 1. The end record lies in the last 64 KiB; its comment reaches the end of the file. A locator in front of it
//!    leads to the zip64 record.
//! 2. The central directory is read in order, within bounds for its bytes and entries.
//! 3. Where a member's bytes begin, only its local header says.

use super::read::{Cursor, Fault, Window};
use super::tensor::TENSORS_MAX;

/// What the first member begins with.
pub(super) const LOCAL_MAGIC: &[u8] = b"PK\x03\x04";
/// Bytes of a local header in front of its name.
pub(super) const LOCAL_BYTES: usize = 30;
const ENTRY_MAGIC: u32 = 0x0201_4b50;
const END_MAGIC: &[u8] = b"PK\x05\x06";
const END64_MAGIC: &[u8] = b"PK\x06\x06";
const LOCATOR64_MAGIC: &[u8] = b"PK\x06\x07";
const END_BYTES: usize = 22;
const END64_BYTES: u64 = 56;
const LOCATOR64_BYTES: usize = 20;
const COMMENT_BYTES_MAX: usize = 65_535;
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// A 32-bit field that says: see the zip64 field.
const SEE_ZIP64: u64 = 0xffff_ffff;

/// An entry of the central directory.
pub(super) struct Member {
    /// As in the archive; mostly UTF-8.
    pub(super) name: Vec<u8>,
    /// Bytes as they lie in the archive.
    pub(super) len: u64,
    /// Whether those are the member's own bytes: neither compressed nor encrypted.
    pub(super) is_stored: bool,
    /// Offset of the local header.
    header: u64,
}

/// Where the central directory lies.
struct Place {
    entries: u64,
    len: u64,
    offset: u64,
}

/// The members in the order of the central directory.
pub(super) fn members(window: Window) -> Result<Vec<Member>, Fault> {
    let place = place(window)?;
    let Place { entries, len, offset } = place;
    if len > DIRECTORY_BYTES_MAX || entries > TENSORS_MAX as u64 {
        return Fault::because(format!(
            "expected a zip directory of at most {TENSORS_MAX} entries and {DIRECTORY_BYTES_MAX} bytes, \
             found {entries} in {len}"
        ));
    }
    if window.part(offset, len).is_none() {
        return Fault::because(format!(
            "expected a zip directory within {} bytes, found {len} at byte {offset}",
            window.len()
        ));
    }
    let mut cursor = Cursor::new(window, offset, offset + len);
    let mut members = Vec::new();
    for _ in 0..entries {
        members.push(member(&mut cursor)?);
    }
    Ok(members)
}

fn member(cursor: &mut Cursor) -> Result<Member, Fault> {
    let at = cursor.position();
    let magic = cursor.u32()?;
    if magic != ENTRY_MAGIC {
        return Fault::because(format!("expected an entry of a zip directory at byte {at}, found {magic:#010x}"));
    }
    cursor.skip(4)?;
    let (flags, method) = (cursor.u16()?, cursor.u16()?);
    cursor.skip(8)?;
    let (packed, plain) = (u64::from(cursor.u32()?), u64::from(cursor.u32()?));
    let (name_len, extra_len, comment_len) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
    cursor.skip(8)?;
    let header = u64::from(cursor.u32()?);
    let name = cursor.bytes("a name", u64::from(name_len), u64::MAX)?;
    let extra = cursor.bytes("extra fields", u64::from(extra_len), u64::MAX)?;
    cursor.skip(u64::from(comment_len))?;
    let mut fields = [plain, packed, header];
    widen(&mut fields, &extra)?;
    let [plain, packed, header] = fields;
    let is_stored = method == 0 && flags & 1 == 0;
    if is_stored && packed != plain {
        return Fault::because(format!("expected a stored member of {plain} bytes, found {packed} before byte {at}"));
    }
    Ok(Member { name, len: packed, is_stored, header })
}

/// Replaces the fields that refer to the zip64 extra field, which holds those only, in this order.
fn widen(fields: &mut [u64; 3], extra: &[u8]) -> Result<(), Fault> {
    if !fields.contains(&SEE_ZIP64) {
        return Ok(());
    }
    let mut rest = extra;
    while let [id_low, id_high, len_low, len_high, after @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*len_low, *len_high]));
        let Some((mut body, after)) = after.split_at_checked(len) else { break };
        if u16::from_le_bytes([*id_low, *id_high]) != 1 {
            rest = after;
            continue;
        }
        for field in fields.iter_mut().filter(|field| **field == SEE_ZIP64) {
            let Some((wide, more)) = body.split_first_chunk::<8>() else {
                return Fault::because(format!("expected 64-bit fields of a zip member, found {len} bytes of them"));
            };
            *field = u64::from_le_bytes(*wide);
            body = more;
        }
        return Ok(());
    }
    Fault::because("expected a zip64 field of a zip member, found none")
}

fn place(window: Window) -> Result<Place, Fault> {
    let tail_len = window.len().min((END_BYTES + COMMENT_BYTES_MAX + LOCATOR64_BYTES) as u64);
    let tail_start = window.len() - tail_len;
    let tail = window.read(tail_start, tail_len)?;
    let ends_here = |at: &usize| {
        let record = tail.get(*at..).unwrap_or_default();
        let comment = record.get(END_BYTES - 2..END_BYTES).and_then(|len| len.first_chunk::<2>());
        let comment_len = comment.map(|len| usize::from(u16::from_le_bytes(*len)));
        record.starts_with(END_MAGIC) && comment_len == record.len().checked_sub(END_BYTES)
    };
    let Some(at) = (0..tail.len().saturating_sub(END_BYTES - 1)).rev().find(ends_here) else {
        return Fault::because(format!("expected a zip directory at the end of {} bytes, found none", window.len()));
    };
    let end = tail.get(at..).unwrap_or_default();
    let locator = at.checked_sub(LOCATOR64_BYTES).and_then(|from| tail.get(from..at));
    if let Some(locator) = locator.filter(|locator| locator.starts_with(LOCATOR64_MAGIC)) {
        return place64(window, number(locator, 8, 8));
    }
    Ok(Place { entries: number(end, 10, 2), len: number(end, 12, 4), offset: number(end, 16, 4) })
}

fn place64(window: Window, at: u64) -> Result<Place, Fault> {
    let record = window.read(at, END64_BYTES)?;
    if !record.starts_with(END64_MAGIC) {
        return Fault::because(format!("expected a zip64 record at byte {at}, found other bytes"));
    }
    Ok(Place { entries: number(&record, 32, 8), len: number(&record, 40, 8), offset: number(&record, 48, 8) })
}

/// The little-endian number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let field = bytes.get(at..at + width).unwrap_or_default();
    field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Member {
    /// The name, for people.
    pub(super) fn label(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Offset of the first byte of its content.
    pub(super) fn start(&self, window: Window) -> Result<u64, Fault> {
        let local = window.read(self.header, (LOCAL_BYTES + self.name.len()) as u64)?;
        let (fixed, name) = local.split_at(LOCAL_BYTES);
        let name_len = number(fixed, 26, 2);
        if !fixed.starts_with(LOCAL_MAGIC) || name != self.name || name_len != name.len() as u64 {
            return Fault::because(format!(
                "expected the header of member {:?} at byte {}, found other bytes",
                self.label(),
                self.header
            ));
        }
        let start = self.header.checked_add(LOCAL_BYTES as u64 + name_len + number(fixed, 28, 2));
        match start.filter(|start| window.part(*start, self.len).is_some()) {
            Some(start) => Ok(start),
            None => Fault::because(format!(
                "expected member {:?} within {} bytes, found {} at byte {}",
                self.label(),
                window.len(),
                self.len,
                self.header
            )),
        }
    }
}
