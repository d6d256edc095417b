//! Headers of tar archives: ustar, with a PAX header before it for what ustar cannot hold.

use std::io::{self, Write};

use tar::{EntryType, Header};

use crate::repo::tree::{Node, NodeKind};

/// Length of a block, bytes.
pub(super) const BLOCK_BYTES: usize = 512;
/// Largest number of eleven octal digits: sizes and times.
const LONG_MAX: u64 = 0o77_777_777_777;
/// Largest number of seven octal digits: owners and devices.
const SHORT_MAX: u32 = 0o7_777_777;

/// What an entry is in the archive.
#[derive(Debug, Clone, Copy)]
pub(super) enum TarKind<'a> {
    /// What its node says.
    Own,
    /// A further name of the file at this path.
    HardLink(&'a [u8]),
}

/// An entry of an archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct TarEntry<'a> {
    /// Path in the archive.
    pub path: &'a [u8],
    /// Metadata.
    pub node: &'a Node,
    /// What it is.
    pub kind: TarKind<'a>,
    /// Bytes that follow the header.
    pub size: u64,
    /// Further PAX records.
    pub records: &'a [(&'static str, &'a [u8])],
}

/// Writes the headers of an entry.
///
/// # Errors
/// Errors of `out`.
pub(super) fn write_header(out: &mut dyn Write, entry: &TarEntry<'_>) -> io::Result<()> {
    let mut records = Records::default();
    entry.records.iter().for_each(|(key, value)| records.push(key, value));
    let mut path = entry.path.to_vec();
    if matches!(entry.kind, TarKind::Own) && entry.node.kind == NodeKind::Directory {
        path.push(b'/');
    }
    let header = header(entry, &path, &mut records);
    if !records.bytes.is_empty() {
        let mut before = Header::new_ustar();
        put_name(&mut before, b"PaxHeader");
        before.set_entry_type(EntryType::XHeader);
        before.set_mode(0o644);
        before.set_size(records.bytes.len() as u64);
        before.set_mtime(0);
        before.set_cksum();
        out.write_all(before.as_bytes())?;
        out.write_all(&records.bytes)?;
        write_padding(out, records.bytes.len() as u64)?;
    }
    out.write_all(header.as_bytes())
}

/// Fills the last block of `len` bytes with zeros.
///
/// # Errors
/// Errors of `out`.
pub(super) fn write_padding(out: &mut dyn Write, len: u64) -> io::Result<()> {
    let count = (len.next_multiple_of(BLOCK_BYTES as u64) - len) as usize;
    out.write_all([0; BLOCK_BYTES].get(..count).unwrap_or_default())
}

/// The ustar header. What does not fit is added to `records`.
fn header(entry: &TarEntry<'_>, path: &[u8], records: &mut Records) -> Header {
    let node = entry.node;
    let mut header = Header::new_ustar();
    if !put_name(&mut header, path) {
        records.push("path", path);
    }
    let (kind, target) = match (&entry.kind, node.kind) {
        (TarKind::HardLink(first), _) => (EntryType::Link, Some(*first)),
        (TarKind::Own, NodeKind::File | NodeKind::Socket | NodeKind::Unknown) => (EntryType::Regular, None),
        (TarKind::Own, NodeKind::Directory) => (EntryType::Directory, None),
        (TarKind::Own, NodeKind::Symlink) => (EntryType::Symlink, node.link_target.as_deref()),
        (TarKind::Own, NodeKind::Fifo) => (EntryType::Fifo, None),
        (TarKind::Own, NodeKind::CharacterDevice) => (EntryType::Char, None),
        (TarKind::Own, NodeKind::BlockDevice) => (EntryType::Block, None),
    };
    header.set_entry_type(kind);
    if let Some(target) = target
        && !header.as_ustar_mut().is_some_and(|fields| put(&mut fields.linkname, target))
    {
        records.push("linkpath", target);
    }
    header.set_mode(node.mode);
    let mut owner = |key: &'static str, id: u32| {
        if id > SHORT_MAX {
            records.push(key, id.to_string().as_bytes());
        }
        u64::from(id.min(SHORT_MAX))
    };
    header.set_uid(owner("uid", node.uid));
    header.set_gid(owner("gid", node.gid));
    if entry.size > LONG_MAX {
        records.push("size", entry.size.to_string().as_bytes());
    }
    header.set_size(entry.size.min(LONG_MAX));
    let (seconds, nanoseconds) = (node.mtime.seconds, node.mtime.nanoseconds);
    header.set_mtime(u64::try_from(seconds).unwrap_or(0).min(LONG_MAX));
    if nanoseconds > 0 || u64::try_from(seconds).map_or(true, |seconds| seconds > LONG_MAX) {
        records.push("mtime", time_text(seconds, nanoseconds).as_bytes());
    }
    if let Some(fields) = header.as_ustar_mut() {
        for (key, name, field) in [("uname", &node.user, &mut fields.uname), ("gname", &node.group, &mut fields.gname)]
        {
            if let Some(name) = name
                && !put(field, name.as_bytes())
            {
                records.push(key, name.as_bytes());
            }
        }
        if let Some(number) = node.device_number {
            fields.set_device_major(number.major.min(SHORT_MAX));
            fields.set_device_minor(number.minor.min(SHORT_MAX));
        }
    }
    for xattr in &node.xattrs {
        // A record's key ends at the first equals sign.
        if let Ok(name) = std::str::from_utf8(&xattr.name)
            && !name.contains('=')
        {
            records.push(&format!("SCHILY.xattr.{name}"), &xattr.value);
        }
    }
    header.set_cksum();
    header
}

/// Seconds with nine decimals. Nanoseconds count upwards from the second before a negative time, decimals do not.
fn time_text(seconds: i64, nanoseconds: u32) -> String {
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let sign = if total < 0 { "-" } else { "" };
    let total = total.unsigned_abs();
    format!("{sign}{}.{:09}", total / 1_000_000_000, total % 1_000_000_000)
}

fn put_name(header: &mut Header, name: &[u8]) -> bool {
    header.as_ustar_mut().is_some_and(|fields| put(&mut fields.name, name))
}

/// Copies as much of `value` as fits into a field. Returns whether that is all.
fn put(field: &mut [u8], value: &[u8]) -> bool {
    let count = value.len().min(field.len());
    field.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
    count == value.len()
}

/// Records of a PAX header.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
}

impl Records {
    /// Appends a record. Its length counts itself.
    fn push(&mut self, key: &str, value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        self.bytes.extend_from_slice(format!("{len} {key}=").as_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for len in [1, 80, 86, 87, 88, 89, 90, 985, 986, 987, 988, 9_980, 9_990] {
            let mut records = Records::default();
            records.push("path", &vec![b'x'; len]);
            let text = String::from_utf8(records.bytes).unwrap();
            let said: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(said, text.len());
        }
    }

    #[test]
    fn times_before_1970_have_a_sign() {
        assert_eq!(time_text(-1, 999_999_999), "-0.000000001");
        assert_eq!(time_text(-2, 0), "-2.000000000");
        assert_eq!(time_text(5, 7), "5.000000007");
    }
}
