//! Which files are opened: those whose compressed streams are stored as what they unpack to.
//!
//! It costs much time, and helps where the plain content is like one that is stored. Nobody knows that of a file that
//! was not opened, so with `auto` names and versions decide:
//!
//! 1. the name ends as those of archives that people keep several versions of, and
//! 2. it has the number of a version or a date, or the parent snapshot has the file with other content.
//!
//! A budget bounds the bytes that are opened. The decision depends on the walk alone, never on time or workers.

use crate::config::OpenStreams;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::Node;

/// Ends of names, in lower case.
const ENDS: [&str; 22] = [
    ".gz", ".tgz", ".zip", ".whl", ".jar", ".war", ".ear", ".aar", ".apk", ".crate", ".nupkg", ".egg", ".vsix", ".xpi",
    ".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub", ".npz",
];
/// Shorter files are stored as they are, bytes.
const LEN_MIN: u64 = 4 << 10;
/// Longer files are stored as they are, bytes.
const LEN_MAX: u64 = 4 << 30;
/// Bytes that `auto` opens in any run.
const BUDGET_BYTES: u64 = 128 << 20;
/// `auto` opens at most one byte in this many that were walked, besides.
const BUDGET_SHARE: u64 = 16;

/// Decides, file by file in the order of the walk.
pub struct OpenRule {
    open: OpenStreams,
    walked: u64,
    opened: u64,
}

impl OpenRule {
    /// Decides as `open` says.
    pub fn new(open: OpenStreams) -> Self {
        OpenRule { open, walked: 0, opened: 0 }
    }

    /// Takes note of a file, whether it is read or not.
    pub fn walk(&mut self, node: &Node) {
        self.walked = self.walked.saturating_add(node.size);
    }

    /// Whether a file that is read now may be opened, if its first bytes suggest that.
    pub fn may_open(&mut self, node: &Node, previous_version: Option<ContentReference>) -> bool {
        if !(LEN_MIN..=LEN_MAX).contains(&node.size) {
            return false;
        }
        match self.open {
            OpenStreams::Always => true,
            OpenStreams::Never => false,
            OpenStreams::Auto => {
                let opened = self.opened.saturating_add(node.size);
                let is_wanted = has_known_end(&node.name) && (previous_version.is_some() || has_version(&node.name));
                let fits = is_wanted && opened <= BUDGET_BYTES.saturating_add(self.walked / BUDGET_SHARE);
                if fits {
                    self.opened = opened;
                }
                fits
            }
        }
    }
}

fn has_known_end(name: &[u8]) -> bool {
    let has = |end: &&str| {
        let at = name.len().checked_sub(end.len());
        at.and_then(|at| name.get(at..)).is_some_and(|last| last.eq_ignore_ascii_case(end.as_bytes()))
    };
    ENDS.iter().any(has)
}

/// Whether a name has two numbers with one of `.`, `-` and `_` between them.
fn has_version(name: &[u8]) -> bool {
    let is_version = |[first, between, second]: [u8; 3]| {
        first.is_ascii_digit() && second.is_ascii_digit() && matches!(between, b'.' | b'-' | b'_')
    };
    name.windows(3).any(|window| window.first_chunk().is_some_and(|window| is_version(*window)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Fingerprint;

    fn node(name: &str, size: u64) -> Node {
        Node { name: name.as_bytes().to_vec(), size, ..Node::default() }
    }

    #[test]
    fn versions_of_archives_are_opened_and_other_files_are_not() {
        let mut rule = OpenRule::new(OpenStreams::Auto);
        let previous = Some(ContentReference::Chunk { fingerprint: Fingerprint([1; 32]), len: 5 });
        for (name, before, is_opened) in [
            ("Django-5.2.tar.gz", None, true),
            ("a-2026-01-02.ZIP", None, true),
            ("a.zip", None, false),
            ("a.zip", previous, true),
            ("a-1.2.txt", previous, false),
            ("a1.gz", None, false),
            ("z", previous, false),
        ] {
            assert_eq!(rule.may_open(&node(name, 10_000), before), is_opened, "{name}");
        }
        assert!(!rule.may_open(&node("a-1.2.gz", LEN_MIN - 1), None));
        assert!(OpenRule::new(OpenStreams::Always).may_open(&node("z", 10_000), None));
        assert!(!OpenRule::new(OpenStreams::Never).may_open(&node("a-1.2.gz", 10_000), previous));
    }

    #[test]
    fn a_budget_bounds_what_is_opened() {
        let (mut rule, file) = (OpenRule::new(OpenStreams::Auto), node("a-1.2.gz", 50 << 20));
        let opened = |rule: &mut OpenRule| (0..10).filter(|_| rule.may_open(&file, None)).count();
        assert_eq!(opened(&mut rule), 2);
        rule.walk(&node("other", 1 << 30));
        assert_eq!(opened(&mut rule), 1, "a sixteenth of what was walked");
    }
}
