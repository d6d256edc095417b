//! Members of a zip archive, also of zip64. They are located, never unpacked.
//!
//! 1. The end record is in the last 64 KiB: its comment reaches the end of the file. A locator before it gives the
//!    offset of the zip64 record.
//! 2. The central directory is read in order, within bounds for its bytes and entries.
//! 3. Only the local header of a member gives the offset of its bytes.

use super::read::{FormatError, Window, WindowReader};
use super::tensor::TENSORS_MAX;

/// First bytes of a local header, and so of an archive.
pub(super) const LOCAL_MAGIC: &[u8] = b"PK\x03\x04";
/// Bytes of a local header before the name.
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
/// A 32-bit field of this value is replaced by its zip64 field.
const SEE_ZIP64: u64 = 0xffff_ffff;

/// An entry of the central directory.
pub(super) struct ZipMember {
    /// Name in the archive, usually UTF-8.
    pub(super) name: Vec<u8>,
    /// Stored size, bytes.
    pub(super) len: u64,
    /// Whether the member is neither compressed nor encrypted.
    pub(super) is_stored: bool,
    /// Offset of the local header.
    header: u64,
}

/// Location and size of the central directory.
struct CentralDirectory {
    entries: u64,
    len: u64,
    offset: u64,
}

/// All members, in the order of the central directory.
pub(super) fn members(window: Window) -> Result<Vec<ZipMember>, FormatError> {
    let CentralDirectory { entries, len, offset } = central_directory(window)?;
    if len > DIRECTORY_BYTES_MAX || entries > TENSORS_MAX as u64 {
        return FormatError::defective(format!(
            "expected a zip directory of at most {TENSORS_MAX} entries and {DIRECTORY_BYTES_MAX} bytes, \
             found {entries} in {len}"
        ));
    }
    if window.part(offset, len).is_none() {
        return FormatError::defective(format!(
            "expected a zip directory within {} bytes, found {len} at byte {offset}",
            window.len()
        ));
    }
    let mut reader = WindowReader::new(window, offset, offset + len);
    let mut members = Vec::new();
    for _ in 0..entries {
        members.push(member(&mut reader)?);
    }
    Ok(members)
}

fn member(reader: &mut WindowReader) -> Result<ZipMember, FormatError> {
    let at = reader.position();
    let magic = reader.u32()?;
    if magic != ENTRY_MAGIC {
        return FormatError::defective(format!(
            "expected an entry of a zip directory at byte {at}, found {magic:#010x}"
        ));
    }
    reader.skip(4)?;
    let (flags, method) = (reader.u16()?, reader.u16()?);
    reader.skip(8)?;
    let (packed, plain) = (u64::from(reader.u32()?), u64::from(reader.u32()?));
    let (name_len, extra_len, comment_len) = (reader.u16()?, reader.u16()?, reader.u16()?);
    reader.skip(8)?;
    let header = u64::from(reader.u32()?);
    let name = reader.bytes("a name", u64::from(name_len), u64::MAX)?;
    let extra = reader.bytes("extra fields", u64::from(extra_len), u64::MAX)?;
    reader.skip(u64::from(comment_len))?;
    let mut fields = [plain, packed, header];
    widen(&mut fields, &extra)?;
    let [plain, packed, header] = fields;
    let is_stored = method == 0 && flags & 1 == 0;
    if is_stored && packed != plain {
        return FormatError::defective(format!(
            "expected a stored member of {plain} bytes, found {packed} before byte {at}"
        ));
    }
    Ok(ZipMember { name, len: packed, is_stored, header })
}

/// Replaces the fields that refer to the zip64 extra field. It holds only these fields, in this order.
fn widen(fields: &mut [u64; 3], extra: &[u8]) -> Result<(), FormatError> {
    if !fields.contains(&SEE_ZIP64) {
        return Ok(());
    }
    let mut rest = extra;
    while let [id_low, id_high, len_low, len_high, after @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*len_low, *len_high]));
        let Some((mut field_bytes, after)) = after.split_at_checked(len) else { break };
        if u16::from_le_bytes([*id_low, *id_high]) != 1 {
            rest = after;
            continue;
        }
        for field in fields.iter_mut().filter(|field| **field == SEE_ZIP64) {
            let Some((wide, more)) = field_bytes.split_first_chunk::<8>() else {
                return FormatError::defective(format!(
                    "expected 64-bit fields of a zip member, found {len} bytes of them"
                ));
            };
            *field = u64::from_le_bytes(*wide);
            field_bytes = more;
        }
        return Ok(());
    }
    FormatError::defective("expected a zip64 field of a zip member, found none")
}

fn central_directory(window: Window) -> Result<CentralDirectory, FormatError> {
    // Most archives have no comment.
    for comment_bytes_max in [0, COMMENT_BYTES_MAX] {
        let tail_len = window.len().min((END_BYTES + comment_bytes_max + LOCATOR64_BYTES) as u64);
        let tail = window.read(window.len() - tail_len, tail_len)?;
        let ends_here = |at: &usize| {
            let record = tail.get(*at..).unwrap_or_default();
            let comment = record.get(END_BYTES - 2..END_BYTES).and_then(|len| len.first_chunk::<2>());
            let comment_len = comment.map(|len| usize::from(u16::from_le_bytes(*len)));
            let fits = comment_len.is_some_and(|len| len <= comment_bytes_max);
            record.starts_with(END_MAGIC) && fits && comment_len == record.len().checked_sub(END_BYTES)
        };
        let Some(at) = (0..tail.len().saturating_sub(END_BYTES - 1)).rev().find(ends_here) else { continue };
        let end = tail.get(at..).unwrap_or_default();
        let locator = at.checked_sub(LOCATOR64_BYTES).and_then(|from| tail.get(from..at));
        if let Some(locator) = locator.filter(|locator| locator.starts_with(LOCATOR64_MAGIC)) {
            return central_directory64(window, number(locator, 8, 8));
        }
        return Ok(CentralDirectory::of_end(end));
    }
    FormatError::defective(format!("expected a zip directory at the end of {} bytes, found none", window.len()))
}

impl CentralDirectory {
    fn of_end(end: &[u8]) -> Self {
        CentralDirectory { entries: number(end, 10, 2), len: number(end, 12, 4), offset: number(end, 16, 4) }
    }

    fn of_end64(end: &[u8]) -> Self {
        CentralDirectory { entries: number(end, 32, 8), len: number(end, 40, 8), offset: number(end, 48, 8) }
    }
}

fn central_directory64(window: Window, at: u64) -> Result<CentralDirectory, FormatError> {
    let record = window.read(at, END64_BYTES)?;
    if !record.starts_with(END64_MAGIC) {
        return FormatError::defective(format!("expected a zip64 record at byte {at}, found other bytes"));
    }
    Ok(CentralDirectory::of_end64(&record))
}

/// Length of the archive without a comment that ends at the end of `window`, bytes. `None` if no such archive does.
/// Offsets in an archive count from its first byte, whatever is before it.
pub(super) fn archive_len(window: Window) -> Result<Option<u64>, FormatError> {
    const RECORDS64_BYTES: usize = END64_BYTES as usize + LOCATOR64_BYTES;
    let tail_len = window.len().min((RECORDS64_BYTES + END_BYTES) as u64);
    let tail = window.read(window.len() - tail_len, tail_len)?;
    let Some((before, end)) = tail.split_last_chunk::<END_BYTES>() else { return Ok(None) };
    if !end.starts_with(END_MAGIC) || number(end, END_BYTES - 2, 2) != 0 {
        return Ok(None);
    }
    let (end64, locator) = before.split_at_checked(END64_BYTES as usize).unwrap_or_default();
    let is_wide = end64.starts_with(END64_MAGIC) && locator.starts_with(LOCATOR64_MAGIC);
    let directory = if is_wide { CentralDirectory::of_end64(end64) } else { CentralDirectory::of_end(end) };
    let directory_end = directory.offset.checked_add(directory.len);
    if is_wide && directory_end != Some(number(locator, 8, 8)) {
        return Ok(None);
    }
    let records_len = END_BYTES + if is_wide { RECORDS64_BYTES } else { 0 };
    let len = directory_end.and_then(|end| end.checked_add(records_len as u64));
    Ok(len.filter(|len| *len <= window.len()))
}

/// The little-endian number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let field = bytes.get(at..at + width).unwrap_or_default();
    field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl ZipMember {
    /// The name in error messages.
    pub(super) fn label(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Offset of the first byte of the content.
    pub(super) fn start(&self, window: Window) -> Result<u64, FormatError> {
        let local = window.read(self.header, (LOCAL_BYTES + self.name.len()) as u64)?;
        let (fixed, name) = local.split_at(LOCAL_BYTES);
        let name_len = number(fixed, 26, 2);
        if !fixed.starts_with(LOCAL_MAGIC) || name != self.name || name_len != name.len() as u64 {
            return FormatError::defective(format!(
                "expected the header of member {:?} at byte {}, found other bytes",
                self.label(),
                self.header
            ));
        }
        let start = self.header.checked_add(LOCAL_BYTES as u64 + name_len + number(fixed, 28, 2));
        match start.filter(|start| window.part(*start, self.len).is_some()) {
            Some(start) => Ok(start),
            None => FormatError::defective(format!(
                "expected member {:?} within {} bytes, found {} at byte {}",
                self.label(),
                window.len(),
                self.len,
                self.header
            )),
        }
    }
}
