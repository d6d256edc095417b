//! Published directories: names under which `serve` shows a part of a snapshot.
//!
//! A name is held by a snapshot of its own, whose root is the published directory: the listing of the snapshot that it
//! was taken from, so no data is copied. What it is published as is in its open map ([`KEY`]). Several snapshots may
//! have one name and revision: the last one counts, and the others are found by their commits.
//!
//! A published snapshot is no backup. It is never `latest` and never a parent, and rules of `forget` leave it alone.

mod name;
mod path;
mod publication;
mod tree;

pub use name::{DEFAULT_REVISION, name_defect, revision_defect};
pub use path::{path_names, path_text};
pub use publication::{COMMIT_DIGITS, KEY, Publication, PublishedKind, PublishedSnapshot, TAG, published};
pub use tree::{
    DirectoryCache, FILES_MAX, PublishedFile, PublishedItem, PublishedTally, PublishedTree, TreePage, TreePath,
};
