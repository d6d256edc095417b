//! `fhrd ls`: the entries of a snapshot, printed as they are read.

use std::borrow::Cow;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::Session;
use super::args::LsArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::output::{failed, hex_unless_utf8, is_terminal, path_bytes, print, printable, size, time_local, time_utc};
use crate::error::{Error, Result};
use crate::inspect::list::{Depth, UnreadListings, list};
use crate::repo::tree::{FileFlags, Node, NodeKind, ObjectFacts, Timestamp};

/// An entry as JSON. Bytes that are not UTF-8 are replaced, and the original bytes follow in hex.
#[derive(Debug, Serialize)]
struct EntryDocument<'a> {
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    r#type: &'static str,
    mode: u32,
    uid: u32,
    gid: u32,
    user: Option<&'a str>,
    group: Option<&'a str>,
    size: u64,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    atime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_target: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_target_hex: Option<String>,
    inode: u64,
    /// Device and inode that all names of one hard-linked file share.
    #[serde(skip_serializing_if = "Option::is_none")]
    hard_link: Option<[u64; 2]>,
    /// Major and minor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_number: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<Cow<'a, str>>,
    /// Letters of `chattr`.
    #[serde(skip_serializing_if = "String::is_empty")]
    flags: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<u32>,
    /// What the bucket knew of the object that was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<ObjectFacts>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sparse: bool,
    /// The file changed while it was read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    changed: bool,
}

impl<'a> EntryDocument<'a> {
    fn new(path: &'a Path, node: &'a Node) -> Self {
        let time = |time: Timestamp| time_utc(time.seconds, time.nanoseconds);
        let bytes = path.as_os_str().as_bytes();
        let (link_target, flags) = (node.link_target.as_deref(), node.file_flags());
        EntryDocument {
            path: String::from_utf8_lossy(bytes),
            path_hex: hex_unless_utf8(bytes),
            r#type: type_name(node.kind),
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            user: node.user.as_deref(),
            group: node.group.as_deref(),
            size: node.size,
            mtime: time(node.mtime),
            ctime: time(node.ctime),
            atime: node.atime.map(time),
            link_target: link_target.map(String::from_utf8_lossy),
            link_target_hex: link_target.and_then(hex_unless_utf8),
            inode: node.inode,
            hard_link: node.hard_link.map(|link| [link.device, link.inode]),
            device_number: node.device_number.map(|number| [number.major, number.minor]),
            xattrs: node.xattrs.iter().map(|xattr| String::from_utf8_lossy(&xattr.name)).collect(),
            flags: FileFlags::letters(flags.bits),
            project: Some(flags.project).filter(|project| *project != 0),
            object: ObjectFacts::of(node),
            sparse: node.sparse,
            changed: node.changed,
        }
    }
}

/// Lists the entries of a snapshot, or a path in it with the entries below.
///
/// # Errors
/// Errors of the repository, the snapshot and [`list`].
pub fn run(session: &Session, arguments: &LsArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let (named, inside) = choice::entry(&repository, &arguments.id, &arguments.filter)?;
    let path = match (inside, &arguments.path) {
        (Some(inside), Some(path)) => Some(inside.join(path.strip_prefix("/").unwrap_or(path))),
        (inside, path) => inside.or_else(|| path.clone()),
    };
    let depth = if arguments.recursive || path.is_none() { Depth::All } else { Depth::One };
    let on_terminal = is_terminal();
    let visit_all = |write: &mut dyn FnMut(&Path, &Node) -> Result<()>| {
        list(&repository, &named, path.as_deref(), depth, &mut |path, node| {
            if session.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            write(path, node)
        })
    };
    let mut unread = UnreadListings::default();
    print(|out| {
        if session.options.json {
            let mut before = "[";
            unread = visit_all(&mut |path, node| {
                out.write_all(std::mem::replace(&mut before, ",\n").as_bytes()).map_err(failed)?;
                serde_json::to_writer(&mut *out, &EntryDocument::new(path, node)).map_err(|error| failed(error.into()))
            })?;
            let end = if before == "[" { "[]\n" } else { "]\n" };
            out.write_all(end.as_bytes()).map_err(failed)
        } else {
            unread = visit_all(&mut |path, node| match arguments.long {
                true => write_long(out, path, node, on_terminal),
                false => {
                    out.write_all(&path_bytes(path.as_os_str().as_bytes(), on_terminal)).map_err(failed)?;
                    writeln!(out).map_err(failed)
                }
            })?;
            Ok(())
        }
    })?;
    Ok(Exit::of_unreadable(unread.count, unread.newer))
}

fn write_long(out: &mut dyn Write, path: &Path, node: &Node, on_terminal: bool) -> Result<()> {
    let name = |name: &Option<String>, id: u32| name.as_deref().map_or_else(|| id.to_string(), printable);
    let (user, group) = (name(&node.user, node.uid), name(&node.group, node.gid));
    let shown = match node.device_number {
        Some(number) => format!("{}, {}", number.major, number.minor),
        None => size(node.size),
    };
    let (mode, time) = (mode_text(node), time_local(node.mtime.seconds));
    write!(out, "{mode} {user:<8} {group:<8} {shown:>10} {time} ").map_err(failed)?;
    out.write_all(&path_bytes(path.as_os_str().as_bytes(), on_terminal)).map_err(failed)?;
    if let Some(target) = &node.link_target {
        out.write_all(b" -> ").map_err(failed)?;
        out.write_all(&path_bytes(target, on_terminal)).map_err(failed)?;
    }
    writeln!(out).map_err(failed)
}

/// Name of a kind of entry in JSON.
pub fn type_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
        NodeKind::Fifo => "fifo",
        NodeKind::Socket => "socket",
        NodeKind::CharacterDevice => "character_device",
        NodeKind::BlockDevice => "block_device",
        NodeKind::Unknown => "unknown",
    }
}

/// Type and permissions in the notation of `ls -l`.
pub fn mode_text(node: &Node) -> String {
    let mut text = String::with_capacity(10);
    text.push(match node.kind {
        NodeKind::File => '-',
        NodeKind::Directory => 'd',
        NodeKind::Symlink => 'l',
        NodeKind::Fifo => 'p',
        NodeKind::Socket => 's',
        NodeKind::CharacterDevice => 'c',
        NodeKind::BlockDevice => 'b',
        NodeKind::Unknown => '?',
    });
    // For each class: its shift, the special bit, and the letter of that bit with and without execution.
    for (shift, special, with, without) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = node.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (node.mode & special != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_in_ls() {
        let text = |kind, mode| mode_text(&Node { kind, mode, ..Node::default() });
        assert_eq!(text(NodeKind::File, 0o644), "-rw-r--r--");
        assert_eq!(text(NodeKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(text(NodeKind::File, 0o6654), "-rwSr-sr--");
        assert_eq!(text(NodeKind::Symlink, 0o777), "lrwxrwxrwx");
    }

    #[test]
    fn a_name_that_is_no_text_is_given_in_hex_too() {
        use std::ffi::OsStr;
        let node = Node { name: b"\xff".to_vec(), mode: 0o600, ..Node::default() };
        let path = Path::new(OsStr::from_bytes(b"a/\xff"));
        let document = serde_json::to_value(EntryDocument::new(path, &node)).unwrap();
        assert_eq!((&document["path"], &document["path_hex"]), (&"a/\u{fffd}".into(), &"612fff".into()));
        assert_eq!((&document["type"], &document["mode"]), (&"file".into(), &0o600.into()));
        assert_eq!(document["mtime"], "1970-01-01T00:00:00.000000000Z");
        assert!(document.get("link_target").is_none());
    }
}
