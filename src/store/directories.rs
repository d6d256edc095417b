//! Directories of a store that has some: when one that is not there is empty, and when it is away.
//!
//! 1. A new repository gets the directories of all kinds at once, and then a [`NOTE`] that it has them. One that is
//!    missing there is on a disk or share that is away, or somebody has moved it: what is in it is unread, not absent.
//! 2. So is one that this process has seen.
//! 3. Earlier programs made a directory when they put the first blob into it. In their repositories one is away if
//!    another one has what is never there without it ([`witnesses`]). The next backup makes all and the note.
//! 4. What is in the place of a directory and is none hides what is in it as well. So does what has the name of a blob
//!    and is no file.
//! 5. The note is an empty directory. A program that copies a repository without its empty directories leaves it out,
//!    too.

use std::io;

use super::kind::{BlobKind, lasting_directories};
use crate::error::Error;

/// Why something in the place of a store is none.
pub const NO_DIRECTORY: &str = "it is not a directory";

/// An empty directory in the root: all directories were made. No blob has such a name.
pub(super) const NOTE: &str = ".directories";

/// The directories without which nobody knows what is below `prefix`, the empty one for the root.
pub(super) fn needed_for(prefix: &str, is_encrypted: bool) -> impl Iterator<Item = &'static str> {
    lasting_directories(is_encrypted)
        .filter(move |directory| is_at_or_below(directory, prefix) || is_at_or_below(prefix, directory))
}

/// Whether a listing of `prefix` depends on other directories than its own.
pub(super) fn is_with_others(prefix: &str) -> bool {
    needed_for(prefix, true).any(|directory| directory != prefix)
}

/// Whether `path` is `directory` or below it. All is below the empty one.
pub(super) fn is_at_or_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    directory.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Directories that have something only if `directory` was there: segments and snapshots need containers, snapshots
/// need segments, and bundles are made of snapshots.
pub(super) fn witnesses(directory: &str) -> Vec<&'static str> {
    let kinds: &[BlobKind] = match directory {
        it if it == BlobKind::Container.to_string() => &[BlobKind::Segment, BlobKind::Snapshot],
        it if it == BlobKind::Segment.directory() => &[BlobKind::Snapshot],
        it if it == BlobKind::Snapshot.directory() => &[BlobKind::Bundle],
        _ => &[],
    };
    kinds.iter().map(|kind| kind.directory()).collect()
}

/// The error of a directory that is away.
pub(super) fn away(directory: &str) -> Error {
    let text = "it does not exist, although the repository had it; mount it or move it back (if it is lost for good, \
                create it empty and run `fhrd repair index`)";
    let source = io::Error::new(io::ErrorKind::NotFound, text);
    Error::Unreadable { what: format!("the directory {directory}"), offset: 0, source }
}

/// The error of what is in the place of a directory and is none.
pub(super) fn no_directory(directory: &str) -> Error {
    let source =
        io::Error::new(io::ErrorKind::NotADirectory, "something else is in its place; mount it or move it back");
    Error::Unreadable { what: format!("the directory {directory}"), offset: 0, source }
}

/// The error of what has the name of a blob and is no file.
pub(super) fn no_file(name: &str) -> Error {
    let source = io::Error::other("something that is no regular file is in its place: move it away");
    Error::Unreadable { what: name.into(), offset: 0, source }
}

/// Whether `component` in the directory `parent` is one of those of containers.
pub(super) fn is_containers_part(parent: &str, component: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    parent == BlobKind::Container.to_string() && component.len() == 2 && component.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_needs_the_directories_on_the_way_to_it_and_below_it() {
        let needed = |prefix| needed_for(prefix, false).collect::<Vec<_>>();
        assert_eq!(needed("containers/ab"), ["containers"]);
        assert_eq!(needed("marks"), ["marks", "marks/optional", "marks/required"]);
        assert_eq!(needed("marks/optional"), ["marks", "marks/optional"]);
        assert_eq!((needed("keys"), needed("index-2"), needed("config")), (vec![], vec![], vec![]));
        assert_eq!(needed("").len(), lasting_directories(false).count());
        assert_eq!(needed_for("keys", true).collect::<Vec<_>>(), ["keys"]);
    }
}
