//! An object of the source, with its place in the tree.

use crate::store::ListedObject;

/// An object with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedObject {
    /// Its path in the snapshot.
    pub path: String,
    /// The object.
    pub object: ListedObject,
    /// Whether it marks a directory.
    pub is_directory: bool,
    /// Why it cannot be stored, if it cannot.
    pub defect: Option<&'static str>,
}
