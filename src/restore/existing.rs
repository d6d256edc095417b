//! What a restore does with an entry that exists in the target.

use std::str::FromStr;

use crate::filesystem::has_attributes;
use crate::repo::tree::{FileFlags, Node, NodeKind};

/// Which existing entries a restore replaces. It never replaces one that is the same already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// None.
    #[default]
    Never,
    /// All that differ. A file of the same size and time is the same.
    IfChanged,
    /// Entries that are older than in the snapshot.
    IfNewer,
    /// All that differ. The content of every file is compared.
    Always,
}

impl Overwrite {
    /// All, with their names.
    pub const ALL: [(&str, Overwrite); 4] = [
        ("never", Overwrite::Never),
        ("if-changed", Overwrite::IfChanged),
        ("if-newer", Overwrite::IfNewer),
        ("always", Overwrite::Always),
    ];
}

impl FromStr for Overwrite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, overwrite)| overwrite).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("expected one of {names}, found `{text}`")
        })
    }
}

/// What happens to an existing entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// It is the same.
    Same,
    /// It is a file, and its content decides whether it is the same.
    Compare,
    /// It is replaced.
    Replace,
    /// It differs and stays.
    Keep,
}

impl Treatment {
    /// Decides about `existing`, which has the name of `node`.
    pub fn of(overwrite: Overwrite, node: &Node, existing: &Node) -> Treatment {
        let is_same = looks_same(node, existing);
        let are_files = node.kind == NodeKind::File && existing.kind == NodeKind::File;
        match overwrite {
            Overwrite::Always if are_files => Treatment::Compare,
            _ if is_same => Treatment::Same,
            Overwrite::Never => Treatment::Keep,
            Overwrite::IfNewer if node.mtime <= existing.mtime => Treatment::Keep,
            // Only the time may differ.
            _ if are_files => Treatment::Compare,
            _ => Treatment::Replace,
        }
    }
}

/// Whether an entry is the same as far as its metadata tells.
pub fn looks_same(node: &Node, existing: &Node) -> bool {
    node.kind == existing.kind
        && match node.kind {
            NodeKind::File => (node.size, node.mtime) == (existing.size, existing.mtime),
            NodeKind::Symlink => node.link_target == existing.link_target,
            _ => node.device_number == existing.device_number,
        }
}

/// Whether an entry already has the metadata that a restore can set.
pub fn has_metadata(node: &Node, existing: &Node) -> bool {
    differences(node, existing, FileFlags::default()).is_empty()
}

/// A file that takes the place of `replaced`. If its own flags are not known, it has those of that file.
pub fn with_flags_of(mut node: Node, replaced: Option<&Node>) -> Node {
    let is_known = |replaced: &&Node| replaced.kind == node.kind && replaced.knows_flags();
    if let Some(replaced) = replaced.filter(is_known).filter(|_| !node.knows_flags()) {
        node.set_file_flags(replaced.file_flags());
    }
    node
}

/// What differs of the metadata that a restore can set, where the target has `refused` these flags.
pub fn differences(node: &Node, existing: &Node, refused: FileFlags) -> Vec<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    let owner = |node: &Node| if is_root { (node.uid, node.gid) } else { (0, 0) };
    let mode = |node: &Node| if node.kind == NodeKind::Symlink { 0 } else { node.mode };
    // Looking at a link or a directory changes this time.
    let atime = |side: &Node| node.atime.filter(|_| node.kind == NodeKind::File).and(side.atime);
    let differs = [
        (mode(node) != mode(existing), "the mode"),
        (owner(node) != owner(existing), "the owner"),
        (node.mtime != existing.mtime, "the time of change"),
        (atime(node) != atime(existing), "the time of access"),
        (!has_attributes(node, existing), "the extended attributes or ACLs"),
        (node.knows_flags() && !has_flags(node, existing, is_root, refused), "the file flags"),
    ];
    differs.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what).collect()
}

/// Whether an entry has the flags of `node`, as far as this user may set them and the target takes them.
fn has_flags(node: &Node, existing: &Node, is_root: bool, refused: FileFlags) -> bool {
    let bits = if is_root { !refused.bits } else { !refused.bits & !FileFlags::ONLY_ROOT };
    let [stored, found] = [node, existing].map(Node::file_flags);
    let has_project = !is_root || refused.project != 0 || stored.project == found.project;
    (stored.bits & bits) == (found.bits & bits) && has_project
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::tree::Timestamp;

    fn file(size: u64, seconds: i64) -> Node {
        let mtime = Timestamp { seconds, nanoseconds: 5 };
        Node { name: b"f".to_vec(), size, mtime, mode: 0o600, ..Node::default() }
    }

    #[test]
    fn each_policy_decides_about_same_older_and_newer_files() {
        use Treatment::{Compare, Keep, Same};
        let stored = file(10, 100);
        let [same, older, newer, longer] = [file(10, 100), file(10, 99), file(10, 101), file(11, 99)];
        let expected = [
            (Overwrite::Never, [Same, Keep, Keep, Keep]),
            (Overwrite::IfChanged, [Same, Compare, Compare, Compare]),
            (Overwrite::IfNewer, [Same, Compare, Keep, Compare]),
            (Overwrite::Always, [Compare, Compare, Compare, Compare]),
        ];
        for (overwrite, verdicts) in expected {
            let found = [&same, &older, &newer, &longer].map(|existing| Treatment::of(overwrite, &stored, existing));
            assert_eq!(found, verdicts, "{overwrite:?}");
        }
    }

    #[test]
    fn links_and_other_kinds_are_replaced_only_if_they_differ() {
        let link = |target: &[u8]| Node { kind: NodeKind::Symlink, link_target: Some(target.to_vec()), ..file(0, 100) };
        let verdict = |overwrite, existing: &Node| Treatment::of(overwrite, &link(b"a"), existing);
        assert_eq!(verdict(Overwrite::Always, &link(b"a")), Treatment::Same);
        assert_eq!(verdict(Overwrite::Always, &link(b"b")), Treatment::Replace);
        assert_eq!(verdict(Overwrite::Never, &link(b"b")), Treatment::Keep);
        assert_eq!(verdict(Overwrite::IfChanged, &file(0, 100)), Treatment::Replace);
        assert_eq!(verdict(Overwrite::IfNewer, &file(0, 100)), Treatment::Keep);
    }

    #[test]
    fn flags_that_are_not_known_or_that_the_target_refuses_make_no_difference() {
        let flagged = |bits, project| {
            let mut node = file(1, 1);
            node.set_file_flags(FileFlags { bits, project });
            node
        };
        let differs = |node: &Node, existing: &Node, bits, project| {
            !differences(node, existing, FileFlags { bits, project }).is_empty()
        };
        let (plain, stored) = (flagged(0, 0), flagged(0x40 | 0x8, 0));
        assert!(differs(&stored, &plain, 0, 0) && differs(&plain, &stored, 0, 0));
        assert!(differs(&stored, &plain, 0x8, 0) && !differs(&stored, &plain, 0x48, 0));
        let mut unknown = file(1, 1);
        unknown.forget_absent_flags();
        assert!(!differs(&unknown, &stored, 0, 0) && !has_metadata(&stored, &unknown));
        if rustix::process::geteuid().is_root() {
            assert!(differs(&flagged(0, 7), &plain, 0x48, 0) && !differs(&flagged(0, 7), &plain, 0, 7));
        }
    }

    #[test]
    fn policies_have_names() {
        for (name, overwrite) in Overwrite::ALL {
            assert_eq!(name.parse(), Ok(overwrite));
        }
        assert!("maybe".parse::<Overwrite>().unwrap_err().contains("never, if-changed, if-newer, always"));
    }
}
