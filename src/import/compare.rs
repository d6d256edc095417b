//! Compares a stored snapshot with a listing of restic: the same names in the same order, with the same metadata.

use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;

use crate::error::{Error, Result, quoted};
use crate::inspect::list::{Depth, list};
use crate::repo::Repository;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind};

/// Bytes of a line: a path and a few numbers.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Bits of a mode as restic writes it: set-user-ID, set-group-ID and sticky.
const SPECIAL_BITS: [(u32, u32); 3] = [(1 << 23, 0o4000), (1 << 22, 0o2000), (1 << 20, 0o1000)];

/// An entry of the listing.
#[derive(Debug, Deserialize)]
struct ResticEntry {
    /// `node` for entries.
    #[serde(default)]
    struct_type: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    mode: u32,
    #[serde(default)]
    mtime: Option<jiff::Timestamp>,
}

/// Compares `snapshot` with `listing`.
///
/// # Errors
/// [`Error::Usage`] with the first difference, and those of reading either.
pub(super) fn with_listing(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    listing: &mut dyn BufRead,
    stop: &AtomicBool,
) -> Result<()> {
    let has_owners = rustix::process::geteuid().is_root();
    let unread = list(repository, snapshot, None, Depth::All, &mut |path, node| {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let Some(listed) = next(listing)? else { return Err(differs(path, "restic does not list it")) };
        match difference(path, node, &listed, has_owners) {
            None => Ok(()),
            Some(what) => Err(differs(path, &what)),
        }
    })?;
    if let Some(error) = unread.first {
        return Err(error);
    }
    match next(listing)? {
        None => Ok(()),
        Some(listed) => Err(differs(Path::new(&listed.path), "it is not stored")),
    }
}

fn differs(path: &Path, what: &str) -> Error {
    Error::Usage(format!("{} differs from what restic has: {}", quoted(&path.to_string_lossy()), quoted(what)))
}

/// The next entry that a restore writes: sockets are none.
fn next(listing: &mut dyn BufRead) -> Result<Option<ResticEntry>> {
    loop {
        let mut line = Vec::new();
        let read = listing.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| Error::io("read", "the listing of restic", error))?;
        if line.is_empty() {
            return Ok(None);
        }
        let entry: ResticEntry = serde_json::from_slice(&line).map_err(|error| {
            Error::Usage(format!("the listing of restic cannot be read: {}", quoted(&error.to_string())))
        })?;
        if entry.struct_type == "node" && entry.kind != "socket" {
            return Ok(Some(entry));
        }
    }
}

/// A path as a program in Go writes it: a replacement character for each byte that is not of UTF-8.
fn listed_name(path: &[u8]) -> String {
    path.utf8_chunks().map(|chunk| chunk.valid().to_string() + &"\u{fffd}".repeat(chunk.invalid().len())).collect()
}

fn difference(path: &Path, node: &Node, listed: &ResticEntry, has_owners: bool) -> Option<String> {
    let said = listed.path.trim_start_matches('/').as_bytes();
    let is_same_name = listed_name(path.as_os_str().as_bytes()).as_bytes() == said;
    let kind = match node.kind {
        NodeKind::File => "file",
        NodeKind::Directory => "dir",
        NodeKind::Symlink => "symlink",
        NodeKind::Fifo => "fifo",
        NodeKind::CharacterDevice => "chardev",
        NodeKind::BlockDevice => "dev",
        _ => "another kind",
    };
    let special = SPECIAL_BITS.into_iter().filter(|(theirs, _)| listed.mode & theirs != 0);
    let mode = special.fold(listed.mode & 0o777, |mode, (_, ours)| mode | ours);
    let mtime_ns = i128::from(node.mtime.seconds) * 1_000_000_000 + i128::from(node.mtime.nanoseconds);
    let is_link = node.kind == NodeKind::Symlink;
    let differences = [
        (!is_same_name, format!("restic lists {} here", listed.path)),
        (kind != listed.kind, format!("it is a {} there", listed.kind)),
        (node.kind == NodeKind::File && node.size != listed.size, format!("it has {} bytes there", listed.size)),
        (!is_link && node.mode & 0o7777 != mode, format!("its mode is {mode:o} there, {:o} here", node.mode & 0o7777)),
        (
            listed.mtime.is_some_and(|there| there.as_nanosecond() != mtime_ns),
            format!("its time is {} there", listed.mtime.unwrap_or_default()),
        ),
        (
            has_owners && (node.uid, node.gid) != (listed.uid, listed.gid),
            format!("its owners are {}:{} there", listed.uid, listed.gid),
        ),
    ];
    differences.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
}
