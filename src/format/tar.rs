//! Tar archives with model files as members. Other archives and other members are opaque.
//!
//! 1. Headers are walked from the start, with sizes and names by ustar, GNU and pax. One small read covers the header
//!    and the extended header of a member. Content is read only if the member is large enough and its first bytes match
//!    a format.
//! 2. The walk ends at the first block that is not a header. Members found before remain valid, because each member is
//!    checked on its own.

use std::collections::{BTreeMap, HashSet};

use super::array::{ArrayListing, ListedArray, list_arrays_as};
use super::read::{FormatError, Window};
use super::recognise::{may_be_model, recognise_as};
use super::tensor::{Recognised, Recognition, TENSORS_MAX, Tensor, checked_model, insert_short};
use super::{Format, HEAD_BYTES};

const BLOCK_BYTES: u64 = 512;
/// Bytes read at a time: an extended header, its content, the header after it, and the first bytes of the content.
const READ_BYTES: u64 = 4 * BLOCK_BYTES;
/// Most headers of an archive that are read.
const HEADERS_MAX: usize = 100_000;
/// Smaller members are not read.
const MEMBER_BYTES_MIN: u64 = 64 << 10;
/// Longest extended header that is read. Longer ones are skipped.
const EXTENDED_BYTES_MAX: u64 = 64 << 10;

/// Uncompressed tar archives.
pub struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        head.first_chunk().is_some_and(is_header)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        let (mut tensors, mut metadata) = (Vec::new(), BTreeMap::new());
        let mut paths = HashSet::new();
        each_member(window, &mut |TarMember { path, start, .. }, content| {
            let Recognition::Model(model) = recognise_as(content, |format| format.name() != self.name())? else {
                return Ok(true);
            };
            if tensors.len() + model.tensors.len() > TENSORS_MAX {
                return Ok(false);
            }
            let path = distinct_path(&mut paths, path, start);
            for Tensor { name, dtype, shape, offset, len } in model.tensors {
                tensors.push(Tensor { name: format!("{path}:{name}"), dtype, shape, offset: start + offset, len });
            }
            for (key, value) in model.metadata {
                insert_short(&mut metadata, format!("{path}:{key}"), value);
            }
            Ok(true)
        })?;
        if tensors.is_empty() {
            return Ok(None);
        }
        checked_model(self.name(), tensors, metadata, window.len())
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        let (mut count, mut paths) = (0, HashSet::new());
        each_member(window, &mut |TarMember { path, start, .. }, content| {
            let admitted = |format: &dyn Format| format.name() != self.name();
            // The first pass only counts: a defective member must list nothing.
            let mut own = 0;
            let ArrayListing::Arrays { .. } = list_arrays_as(content, admitted, &mut |_| own += 1)? else {
                return Ok(true);
            };
            if count + own > TENSORS_MAX {
                return Ok(false);
            }
            count += own;
            let path = distinct_path(&mut paths, path, start);
            list_arrays_as(content, admitted, &mut |array| visit(array.within(&path, start)))?;
            Ok(true)
        })?;
        Ok((count > 0).then_some(self.name()))
    }
}

/// Passes the members that may be models to `visit` until it returns false.
fn each_member<'a>(
    window: Window<'a>,
    visit: &mut dyn FnMut(TarMember, Window<'a>) -> Result<bool, FormatError>,
) -> Result<(), FormatError> {
    let mut walk = TarWalk { window, position: 0, size: None, path: None, buffer: Vec::new(), buffer_start: 0 };
    for _ in 0..HEADERS_MAX {
        let Some(member) = walk.next()? else { break };
        let Some(member) = member else { continue };
        let Some(content) = window.part(member.start, member.len) else { continue };
        if !visit(member, content)? {
            break;
        }
    }
    Ok(())
}

/// A unique path. When unpacked, a second member with the same path replaces the first one. Here, both are listed.
fn distinct_path(paths: &mut HashSet<String>, path: String, start: u64) -> String {
    if paths.insert(path.clone()) { path } else { format!("{path}@{start}") }
}

/// A member that is a regular file and may be a model.
struct TarMember {
    path: String,
    start: u64,
    len: u64,
}

struct TarWalk<'a> {
    window: Window<'a>,
    position: u64,
    /// Size of the next member, by its extended header.
    size: Option<u64>,
    /// Path of the next member, by its extended header.
    path: Option<String>,
    /// Bytes read last, from offset `buffer_start`.
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl TarWalk<'_> {
    /// `count` bytes from byte `offset`. The buffer holds them if a read before covered them.
    fn read(&mut self, offset: u64, count: u64) -> Result<&[u8], FormatError> {
        let buffered = self.buffer_start..self.buffer_start + self.buffer.len() as u64;
        if !(buffered.start <= offset && offset.checked_add(count).is_some_and(|end| end <= buffered.end)) {
            let len = READ_BYTES.min(self.window.len().saturating_sub(offset)).max(count);
            self.buffer = self.window.read(offset, len)?;
            self.buffer_start = offset;
        }
        let from = (offset - self.buffer_start) as usize;
        Ok(self.buffer.get(from..from + count as usize).unwrap_or_default())
    }

    /// Reads one header and skips its content. `None` at the end, `Some(None)` for a member that cannot be a model.
    fn next(&mut self) -> Result<Option<Option<TarMember>>, FormatError> {
        if self.window.len().saturating_sub(self.position) < BLOCK_BYTES {
            return Ok(None);
        }
        let header = self.read(self.position, BLOCK_BYTES)?.first_chunk::<512>().copied();
        let Some(header) = header.filter(is_header) else { return Ok(None) };
        let (kind, stated) = (header[156], number(&header[124..136]));
        let mut start = self.position + BLOCK_BYTES;
        let Some(stated) = stated else { return Ok(None) };
        if matches!(kind, b'x' | b'L') {
            self.extend(kind, start, stated)?;
            return Ok(self.advance(start, stated).then_some(None));
        }
        let (size, path) = (self.size.take(), self.path.take());
        // Links and devices have no content, even if their header states a size.
        let len = if matches!(kind, b'1'..=b'6') { 0 } else { size.unwrap_or(stated) };
        if kind == b'S' && header[482] == 1 {
            start = match self.past_sparse_map(start)? {
                Some(start) => start,
                None => return Ok(None),
            };
        }
        if !self.advance(start, len) {
            return Ok(None);
        }
        let is_file = matches!(kind, b'0' | 0 | b'7') && len >= MEMBER_BYTES_MIN;
        if !is_file || !may_be_model(self.read(start, len.min(HEAD_BYTES as u64))?) {
            return Ok(Some(None));
        }
        Ok(Some(Some(TarMember { path: path.unwrap_or_else(|| ustar_path(&header)), start, len })))
    }

    /// Moves to the end of the content. False if that is beyond the end of the archive.
    fn advance(&mut self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len).filter(|end| *end <= self.window.len()) else { return false };
        self.position = end.next_multiple_of(BLOCK_BYTES);
        true
    }

    /// Skips the map of a sparse file: blocks after the header, each of which says whether another one follows.
    fn past_sparse_map(&mut self, mut start: u64) -> Result<Option<u64>, FormatError> {
        for _ in 0..HEADERS_MAX {
            if self.window.part(start, BLOCK_BYTES).is_none() {
                return Ok(None);
            }
            let block = self.read(start, BLOCK_BYTES)?;
            start += BLOCK_BYTES;
            if block.get(504) != Some(&1) {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Reads size and path of the next member from an extended header.
    fn extend(&mut self, kind: u8, start: u64, len: u64) -> Result<(), FormatError> {
        if len > EXTENDED_BYTES_MAX || self.window.part(start, len).is_none() {
            return Ok(());
        }
        let content = self.read(start, len)?;
        if kind == b'L' {
            self.path = Some(until_zero(content));
            return Ok(());
        }
        let (mut path, mut size) = (None, None);
        for (key, value) in PaxRecords(content) {
            match key {
                b"path" => path = Some(String::from_utf8_lossy(value).into_owned()),
                b"size" => size = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()),
                _ => {}
            }
        }
        self.path = path.or(self.path.take());
        self.size = size.or(self.size.take());
        Ok(())
    }
}

/// The records of a pax header: a length that counts itself, a space, `key=value`, a newline.
struct PaxRecords<'a>(&'a [u8]);

impl<'a> Iterator for PaxRecords<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let space = self.0.iter().position(|byte| *byte == b' ')?;
        let len: usize = std::str::from_utf8(&self.0[..space]).ok()?.parse().ok()?;
        let (record, rest) = self.0.split_at_checked(len)?;
        let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        self.0 = rest;
        Some((&record[..equals], &record[equals + 1..]))
    }
}

/// Whether a block has the magic of tar and the right checksum, for which its own field counts as spaces.
fn is_header(block: &[u8; 512]) -> bool {
    let sum_of = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let (sum, field) = (148..156, &block[148..156]);
    let counted = || sum_of(block) - sum_of(field) + sum.len() as u32 * u32::from(b' ');
    block[257..262] == *b"ustar" && number(field) == Some(counted().into())
}

/// A number in octal digits, or in big-endian binary if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let append = |number: u64, byte: &u8| Some(number.checked_mul(256)? | u64::from(*byte));
        return rest.iter().try_fold(u64::from(first & 0x7f), append);
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn until_zero(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// The path in the header. POSIX archives split long paths in two fields.
fn ustar_path(header: &[u8; 512]) -> String {
    let (name, prefix) = (until_zero(&header[..100]), until_zero(&header[345..500]));
    if prefix.is_empty() || header[257..263] != *b"ustar\0" { name } else { format!("{prefix}/{name}") }
}
