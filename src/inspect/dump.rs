//! Dump: a file of a snapshot as it is, or a directory as a tar archive.
//!
//! 1. The archive has a ustar header for each entry. A PAX header before it holds what ustar cannot: long names, times
//!    with nanoseconds, large numbers, extended attributes. GNU tar, bsdtar and Python read these.
//! 2. The first path of a file with several names holds its content, the others are links to it, as long as a bounded
//!    table remembers the first one. Names are joined only if they have the same content and metadata.
//! 3. A file with holes is written in the sparse format 1.0 of GNU tar: a map of the data, then the data.
//! 4. A file is read before its header is written. If a chunk of it cannot be read, the file is called `NAME.damaged`,
//!    as a restore does, with zeros where bytes are lost. So are its other names. It is logged and counted. A file that
//!    could be read at first and then not ends the archive with an error.
//! 5. Of a directory whose listing cannot be read to its end, the archive has what comes before. It is logged and
//!    counted, too.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::list::walk;
use super::tar_header::{BLOCK_BYTES, TarEntry, TarKind, write_header, write_padding};
use crate::error::{Error, Result};
use crate::filesystem::damaged_name;
use crate::repo::Repository;
use crate::repo::read::{Reader, write_zeros};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind, TreeCursor, find_entry};

/// Bytes of paths of files with several names that are remembered.
const LINK_BYTES_MAX: usize = 32 << 20;
/// Ranges of data of a sparse file. A file with more is written with its zeros.
const DATA_RANGES_MAX: usize = 1 << 20;
/// What names of damaged files have in common.
const DAMAGED: &[u8] = b".damaged";
/// Zero blocks that end an archive, bytes.
const END_BYTES: usize = 1024;

/// Permissions of an archive: it may hold files that others may not read.
pub const ARCHIVE_MODE: u32 = 0o600;

/// The largest permissions of an output file for an entry: nobody may read it who may not read the stored file. Its
/// owner and group are those of whoever writes it, so only what group and others both may is passed on to them.
pub fn dumped_mode(node: &Node) -> u32 {
    match node.kind {
        // The bits of the group may stand for a list of others.
        NodeKind::File if node.xattrs.iter().any(|xattr| xattr.name.starts_with(b"system.posix_acl")) => {
            node.mode & 0o700
        }
        NodeKind::File => {
            let both = (node.mode >> 3) & node.mode & 0o7;
            (node.mode & 0o700) | (both << 3) | both
        }
        _ => ARCHIVE_MODE,
    }
}

/// Result of a dump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DumpReport {
    /// Entries written.
    pub entries: u64,
    /// Entries that an archive cannot hold (sockets).
    pub skipped: u64,
    /// Files with bytes that could not be read, which the archive has as `NAME.damaged`, and directories that could not
    /// be read to their ends. Each one was logged.
    pub damaged: u64,
    /// Damaged ones, and entries left out, that only a newer version can read.
    pub newer: u64,
}

/// Reads files and trees out of one repository.
pub struct Dump<'a> {
    reader: Reader,
    stop: &'a AtomicBool,
}

impl<'a> Dump<'a> {
    /// A reader of `repository` that fails with [`Error::Interrupted`] once `stop` is set.
    ///
    /// # Errors
    /// Fails if the repository cannot be listed.
    pub fn new(repository: &Repository, stop: &'a AtomicBool) -> Result<Self> {
        Ok(Dump { reader: Reader::open(repository)?, stop })
    }

    /// The entry at `path`; `None` for the root of the snapshot.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`], or if a listing cannot be read.
    pub fn entry(&self, snapshot: &NamedSnapshot, path: Option<&Path>) -> Result<Option<Node>> {
        path.map_or(Ok(None), |path| self.reader.lend(|reader| Ok(find_entry(reader, snapshot, path)?.1)))
    }

    /// Passes the bytes `from` to `to` (exclusive) of a file to `write`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the content has another length than the file. Errors of reading and of `write`.
    pub fn file(&self, file: &Node, range: (u64, u64), write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let len = file.content.map_or(0, |content| content.content_len());
        if len != file.size {
            let name = String::from_utf8_lossy(&file.name).into_owned();
            return Err(Error::corrupt(name, 0, format!("{} bytes", file.size), format!("content of {len} bytes")));
        }
        self.reader.file(file.content, len)?.copy(range, &mut |bytes| {
            check_stop(self.stop)?;
            write(bytes)
        })
    }

    /// Writes the tree at `path` of a snapshot as an archive. Names in it start with the last component of `path`.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`], or if a listing above `path` cannot be read; `failed` of an error of `out`.
    pub fn archive(
        &self,
        snapshot: &NamedSnapshot,
        path: Option<&Path>,
        out: &mut dyn Write,
        failed: fn(io::Error) -> Error,
    ) -> Result<DumpReport> {
        let prefix = match path {
            None => PathBuf::new(),
            Some(path) => {
                let full = self.reader.lend(|reader| Ok(find_entry(reader, snapshot, path)?.0))?;
                full.parent().map(Path::to_path_buf).unwrap_or_default()
            }
        };
        let Dump { reader, stop } = self;
        let (report, links, damaged) = (DumpReport::default(), HashMap::new(), DamagedNames::default());
        let mut archive =
            Archive { reader, stop, out, failed, snapshot, prefix, links, link_bytes: 0, damaged, report };
        let unread =
            walk(&mut reader.chunks(), snapshot, path, &mut |path, node| archive.entry(path, node).map(|()| true))?;
        archive.report.damaged += unread.count - unread.newer;
        archive.report.newer += unread.newer;
        archive.write(&[0; END_BYTES])?;
        Ok(archive.report)
    }
}

fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// An archive that is being written.
struct Archive<'a> {
    reader: &'a Reader,
    stop: &'a AtomicBool,
    out: &'a mut dyn Write,
    failed: fn(io::Error) -> Error,
    snapshot: &'a NamedSnapshot,
    /// Directory that the paths of the archive are relative to.
    prefix: PathBuf,
    /// First names of files with several names.
    links: HashMap<[u8; 32], FirstName>,
    link_bytes: usize,
    damaged: DamagedNames,
    report: DumpReport,
}

/// The first name of a file with several names.
struct FirstName {
    /// Path in the archive.
    path: Vec<u8>,
    /// Whether the archive has it as damaged.
    is_damaged: bool,
    /// Whether only what a newer version wrote is missing.
    is_newer: bool,
}

/// Names of one directory that look like those of damaged files.
#[derive(Default)]
struct DamagedNames {
    directory: Option<PathBuf>,
    taken: HashSet<Vec<u8>>,
}

impl Archive<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(self.failed)
    }

    fn entry(&mut self, path: &Path, node: &Node) -> Result<()> {
        check_stop(self.stop)?;
        let full = path;
        let path = path.strip_prefix(&self.prefix).unwrap_or(path).as_os_str().as_bytes();
        if let Some(error) = node.unsupported() {
            tracing::warn!("{}: not in the archive: {error}", path.escape_ascii());
            self.report.skipped += 1;
            self.report.newer += 1;
            return Ok(());
        }
        if node.kind == NodeKind::Socket {
            tracing::warn!("{}: a tar archive cannot hold a socket", path.escape_ascii());
            self.report.skipped += 1;
            return Ok(());
        }
        self.report.entries += 1;
        let digest = node.file_digest();
        if let Some(first) = digest.and_then(|file| self.links.remove(&file)) {
            let name = if first.is_damaged { self.damaged_path(full)? } else { path.to_vec() };
            self.count(first.is_damaged, first.is_newer);
            let entry = TarEntry { path: &name, node, kind: TarKind::HardLink(&first.path), size: 0, records: &[] };
            write_header(&mut *self.out, &entry).map_err(self.failed)?;
            digest.map(|file| self.links.insert(file, first));
            return Ok(());
        }
        let name = match node.content {
            Some(content) if node.kind == NodeKind::File => self.content(full, path, node, content)?,
            _ => {
                let entry = TarEntry { path, node, kind: TarKind::Own, size: 0, records: &[] };
                write_header(&mut *self.out, &entry).map_err(self.failed)?;
                FirstName { path: path.to_vec(), is_damaged: false, is_newer: false }
            }
        };
        if let Some(file) = digest {
            let bytes = name.path.len() + size_of::<([u8; 32], FirstName)>();
            if self.link_bytes + bytes <= LINK_BYTES_MAX {
                self.link_bytes += bytes;
                self.links.insert(file, name);
            }
        }
        Ok(())
    }

    /// A free name beside the damaged file `full`, as a path in the archive.
    fn damaged_path(&mut self, full: &Path) -> Result<Vec<u8>> {
        let (directory, name) = (full.parent().unwrap_or(Path::new("")), full.file_name().unwrap_or_default());
        if self.damaged.directory.as_deref() != Some(directory) {
            let reader = &mut self.reader.chunks();
            let node = find_entry(reader, self.snapshot, directory)?.1;
            let mut cursor = TreeCursor::open(node.map_or(self.snapshot.snapshot.root, |node| node.content));
            self.damaged = DamagedNames { directory: Some(directory.into()), taken: HashSet::new() };
            loop {
                let node = match cursor.next(reader) {
                    Ok(Some(node)) => node,
                    Ok(None) => break,
                    // The walk reports it, and no entry of the rest is in the archive.
                    Err(error) if error.is_unreadable() => break,
                    Err(error) => return Err(error),
                };
                if node.name.windows(DAMAGED.len()).any(|part| part == DAMAGED) {
                    self.damaged.taken.insert(node.name);
                }
            }
        }
        let names = (1..).map(|number| damaged_name(name, number));
        let free = names.into_iter().find(|name| self.damaged.taken.insert(name.as_bytes().to_vec()));
        let path = directory.join(free.as_deref().unwrap_or(OsStr::new("damaged")));
        Ok(path.strip_prefix(&self.prefix).unwrap_or(&path).as_os_str().as_bytes().to_vec())
    }

    /// The ranges of a content that are no holes. `None` if there are too many, or if a recipe cannot be read.
    fn data_ranges(&self, content: ContentReference) -> Result<Option<Vec<(u64, u64)>>> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut are_too_many = false;
        let visited = self.reader.content(content).visit_ranges(|range| {
            check_stop(self.stop)?;
            let count = ranges.len();
            match ranges.last_mut() {
                _ if range.chunk.is_none() => {}
                Some((_, end)) if *end == range.start => *end = range.end(),
                _ if count == DATA_RANGES_MAX => are_too_many = true,
                _ => ranges.push((range.start, range.end())),
            }
            Ok(!are_too_many)
        });
        match visited {
            Ok(()) => Ok(Some(ranges).filter(|_| !are_too_many)),
            Err(error) if error.is_unreadable() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Why a content cannot be read now, if it cannot. Damage says more than what a newer version wrote. A short one
    /// stays in memory until it is written.
    fn defect(&mut self, content: ContentReference, ranges: &[(u64, u64)]) -> Result<Option<Error>> {
        let (mut newer, file) = (None, self.reader.content(content));
        for range in ranges {
            match file.copy_keeping_short(*range, &mut |_| check_stop(self.stop)) {
                Err(error) if error.is_newer() => newer = Some(error),
                Err(error) if error.is_unreadable() => return Ok(Some(error)),
                read => read?,
            }
        }
        Ok(newer)
    }

    /// Writes a file, which has this path in the archive if it is whole.
    fn content(&mut self, full: &Path, path: &[u8], node: &Node, content: ContentReference) -> Result<FirstName> {
        let size = content.content_len();
        let ranges = if node.sparse { self.data_ranges(content)? } else { None };
        let dense = [(0, size)];
        let (ranges, map) = match &ranges {
            // The map ends with an empty range at the end of the file, as GNU tar writes it.
            Some(ranges) if ranges.as_slice() != dense => (ranges.as_slice(), sparse_map(ranges, size)),
            _ => (dense.as_slice(), Vec::new()),
        };
        let defect = self.defect(content, ranges)?;
        let is_damaged = size != node.size || defect.is_some();
        let is_newer = size == node.size && defect.is_some_and(|error| error.is_newer());
        let path = if is_damaged { self.damaged_path(full)? } else { path.to_vec() };
        let data: u64 = ranges.iter().map(|(start, end)| end - start).sum();
        let real_size = size.to_string();
        let records = [
            ("GNU.sparse.major", &b"1"[..]),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", path.as_slice()),
            ("GNU.sparse.realsize", real_size.as_bytes()),
        ];
        let records = if map.is_empty() { &records[..0] } else { &records[..] };
        let stored = data + map.len() as u64;
        let entry = TarEntry { path: &path, node, kind: TarKind::Own, size: stored, records };
        write_header(&mut *self.out, &entry).map_err(self.failed)?;
        self.write(&map)?;
        for range in ranges {
            self.range(&path, content, *range, is_damaged)?;
        }
        self.count(is_damaged, is_newer);
        write_padding(&mut *self.out, stored).map_err(self.failed)?;
        Ok(FirstName { path, is_damaged, is_newer })
    }

    fn count(&mut self, is_damaged: bool, is_newer: bool) {
        self.report.damaged += u64::from(is_damaged && !is_newer);
        self.report.newer += u64::from(is_newer);
    }

    /// Writes a range of a content. What cannot be read of a damaged file becomes zeros.
    fn range(
        &mut self,
        path: &[u8],
        content: ContentReference,
        (start, end): (u64, u64),
        is_damaged: bool,
    ) -> Result<()> {
        let (mut offset, file) = (start, self.reader.content(content));
        while offset < end {
            let (out, failed) = (&mut *self.out, self.failed);
            let copied = file.copy((offset, end), &mut |bytes| {
                check_stop(self.stop)?;
                out.write_all(bytes).map_err(failed)?;
                offset += bytes.len() as u64;
                Ok(())
            });
            match copied {
                Ok(()) if offset == end => {}
                Ok(()) => return Err(Error::internal("a content ended before its length")),
                Err(error) if is_damaged && error.is_unreadable() => {
                    tracing::error!("{} at byte {offset}: {error}", path.escape_ascii());
                    // Without its recipe, the length of a chunk is unknown.
                    let lost = file.locate(offset).ok().flatten().map_or(end, |range| range.end());
                    let lost = lost.clamp(offset + 1, end);
                    write_zeros(lost - offset, &mut |zeros| out_write(&mut *self.out, zeros, failed))?;
                    offset = lost;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn out_write(out: &mut dyn Write, bytes: &[u8], failed: fn(io::Error) -> Error) -> Result<()> {
    out.write_all(bytes).map_err(failed)
}

/// The map of the data of a sparse file, filled with zeros up to a whole block.
fn sparse_map(ranges: &[(u64, u64)], size: u64) -> Vec<u8> {
    let mut text = format!("{}\n", ranges.len() + 1);
    for (start, end) in ranges {
        text.push_str(&format!("{start}\n{}\n", end - start));
    }
    text.push_str(&format!("{size}\n0\n"));
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
    map
}
