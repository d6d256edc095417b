//! What of a bucket is stored at all.

use std::path::Path;

use crate::filesystem::Patterns;
use crate::store::ListedObject;

/// What of a bucket is stored, in any share.
#[derive(Debug, Clone, Default)]
pub struct ObjectChoice {
    /// Entries to leave out, by pattern. The prefix of the source is their root.
    pub patterns: Patterns,
    /// Objects longer than this are left out, bytes.
    pub bytes_max: Option<u64>,
    /// What the keys of the repository begin with, if it is in the bucket.
    pub own: Option<String>,
}

impl ObjectChoice {
    /// Whether an object is of the repository.
    pub fn is_own(&self, object: &ListedObject) -> bool {
        self.own.as_deref().is_some_and(|own| object.key.starts_with(own))
    }

    /// Whether an object is to be stored at `path`.
    pub fn takes(&self, path: &str, object: &ListedObject, is_directory: bool) -> bool {
        if self.is_own(object) || self.bytes_max.is_some_and(|max| object.size > max) {
            return false;
        }
        if self.patterns.is_empty() {
            return true;
        }
        let names = |path: &Path, is_directory| self.patterns.names(path, is_directory) == Some(true);
        let path = Path::new("/").join(path);
        let mut above = path.ancestors().skip(1).filter(|above| above.parent().is_some());
        !(names(&path, is_directory) || above.any(|above| names(above, true)))
    }
}
