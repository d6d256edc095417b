//! What a commit adds to the files of a name, and takes away.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::fault::CommitFault;
use crate::repo::published::{FILES_MAX, PublishedFile};

/// Where the bytes of a file of a commit are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitContent {
    /// In the repository.
    Stored(PublishedFile),
    /// In the file on disk: offset and length.
    Inline(u64, u64),
    /// In an object that was uploaded, or a file of the name: its SHA-256, and its length if the commit says it.
    Object(WantedObject),
}

/// The SHA-256 of an object, and its length if that is known.
pub type WantedObject = ([u8; 32], Option<u64>);

/// A change of the files of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommitChange {
    Put(String, CommitContent),
    Delete(String),
    DeleteDirectory(String),
}

impl CommitChange {
    pub(super) fn path(&self) -> &str {
        let (CommitChange::Put(path, _) | CommitChange::Delete(path) | CommitChange::DeleteDirectory(path)) = self;
        path
    }
}

/// A commit as a client sent it.
#[derive(Debug)]
pub struct CommitOperations {
    /// The commit that it builds on, if it says so.
    pub parent: Option<String>,
    /// The bytes of files that came within it.
    pub inline: Arc<File>,
    pub(super) changes: Vec<CommitChange>,
}

/// The files of a name, by their paths.
pub type CommitFiles = BTreeMap<String, CommitContent>;

impl CommitOperations {
    /// Does all changes, one after another, on the files of a name.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] if nothing is left, or a path is a file and a directory; [`CommitFault::TooLong`].
    pub fn apply(self, files: &mut CommitFiles) -> Result<(), CommitFault> {
        for change in self.changes {
            match change {
                CommitChange::Put(path, content) => _ = files.insert(path, content),
                // A commit may come again after an answer was lost, so what is gone may be deleted.
                CommitChange::Delete(path) => _ = files.remove(&path),
                CommitChange::DeleteDirectory(path) => {
                    let prefix = format!("{path}/");
                    let below = files.range(prefix.clone()..).map(|(own, _)| own);
                    let gone: Vec<String> = below.take_while(|own| own.starts_with(&prefix)).cloned().collect();
                    gone.iter().for_each(|own| _ = files.remove(own));
                }
            }
        }
        if files.is_empty() {
            return Err(CommitFault::Refused("the commit leaves no file".into()));
        }
        if files.len() > FILES_MAX {
            return Err(CommitFault::TooLong);
        }
        let is_file = |path: &Path| path.to_str().is_some_and(|path| files.contains_key(path));
        match files.keys().find(|path| Path::new(path).ancestors().skip(1).any(is_file)) {
            None => Ok(()),
            Some(path) => Err(CommitFault::Refused(format!("a directory of `{path}` is a file, too"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(changes: Vec<CommitChange>) -> CommitOperations {
        CommitOperations { parent: None, inline: Arc::new(tempfile::tempfile().unwrap()), changes }
    }

    fn put(path: &str) -> CommitChange {
        CommitChange::Put(path.into(), CommitContent::Inline(0, 1))
    }

    #[test]
    fn operations_follow_each_other_and_leave_a_tree() {
        let mut files: CommitFiles =
            ["a", "b/c", "b/d/e", "bb"].map(|path| (path.into(), CommitContent::Inline(9, 9))).into();
        let (gone, below) = (CommitChange::Delete("none".into()), CommitChange::DeleteDirectory("b".into()));
        operations(vec![below, gone, put("b/x"), CommitChange::Delete("a".into()), put("bb")])
            .apply(&mut files)
            .unwrap();
        let left: Vec<(&str, &CommitContent)> = files.iter().map(|(path, own)| (path.as_str(), own)).collect();
        assert_eq!(left, [("b/x", &CommitContent::Inline(0, 1)), ("bb", &CommitContent::Inline(0, 1))]);
        for wrong in [
            vec![CommitChange::DeleteDirectory("b".into()), CommitChange::Delete("bb".into())],
            vec![put("bb/c")],
            vec![put("b")],
        ] {
            let refused = operations(wrong).apply(&mut files.clone());
            assert!(matches!(refused, Err(CommitFault::Refused(_))), "{refused:?}");
        }
    }
}
