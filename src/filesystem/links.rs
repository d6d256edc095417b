//! Links that a walk follows on request, and special files whose content it reads on request.
//!
//! 1. With `dereference`, a link is stored as what it leads to, under the name of the link. The target is opened by a
//!    path without links. A link that leads nowhere, or to a directory above it, is stored as a link.
//! 2. With `read_special`, a device or named pipe that the user gave, or a link to one, is stored as a regular file
//!    with what can be read from it. Deeper ones never end, or wait for a writer, so they are stored as what they are.
//! 3. If the user gave a path that is a link or a special file, and it is stored as such, a warning says so.

use std::path::{Path, PathBuf};

use super::capture::Capturer;
use super::choice::EntryChoice;
use crate::error::Error;
use crate::repo::tree::{FileIdentity, Node, NodeKind};

/// What is stored in place of the entry of a walk.
#[derive(Debug)]
pub(super) struct LinkTarget {
    /// Where to open it.
    pub(super) path: PathBuf,
    /// Whether it is a special file whose content is read.
    pub(super) is_special: bool,
}

/// What is stored in place of the entry `node` at `path`. `is_above` says whether a directory is one above it, and
/// `is_given` whether the user gave the path.
pub(super) fn replacement(
    capturer: &Capturer,
    choice: &EntryChoice,
    (path, node): (&Path, &Node),
    is_given: bool,
    is_above: impl Fn(FileIdentity) -> bool,
    warnings: &mut Vec<Error>,
) -> Option<(LinkTarget, Node)> {
    if is_given && choice.read_special && matches!(node.kind, NodeKind::Symlink) | is_special(node.kind) {
        let mut unused = Vec::new();
        let found = capturer.capture_path(path, true, &mut unused).ok().filter(|found| is_special(found.kind));
        if let Some(found) = found {
            warnings.append(&mut unused);
            let target = LinkTarget { path: path.to_path_buf(), is_special: true };
            return Some((target, Node { name: node.name.clone(), ..regular(found) }));
        }
    }
    if node.kind == NodeKind::Symlink && choice.dereference {
        let Ok(target) = path.canonicalize() else {
            tracing::warn!("{}: the link leads nowhere, so it is stored as a link", path.display());
            return None;
        };
        let mut unused = Vec::new();
        let found = capturer.capture_path(&target, false, &mut unused).ok()?;
        if found.kind == NodeKind::Directory && is_above(found.identity()) {
            tracing::warn!("{}: the link leads to a directory above it, so it is stored as a link", path.display());
            return None;
        }
        warnings.append(&mut unused);
        return Some((LinkTarget { path: target, is_special: false }, Node { name: node.name.clone(), ..found }));
    }
    if is_given {
        warn_of_given(path, node.kind);
    }
    None
}

fn is_special(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Fifo | NodeKind::CharacterDevice | NodeKind::BlockDevice)
}

/// A special file as a regular one, whose length nobody knows.
pub(super) fn regular(node: Node) -> Node {
    Node { kind: NodeKind::File, size: 0, sparse: false, device_number: None, hard_link: None, ..node }
}

fn warn_of_given(path: &Path, kind: NodeKind) {
    let path = path.display();
    let what = match kind {
        NodeKind::Symlink => {
            tracing::warn!(
                "{path} is a link, and only the link is stored: give the path that it leads to, or --dereference"
            );
            return;
        }
        NodeKind::Fifo => "a named pipe",
        NodeKind::CharacterDevice | NodeKind::BlockDevice => "a device",
        _ => return,
    };
    tracing::warn!("{path} is {what}, and nothing of its content is stored: --read-special stores what it gives");
}
