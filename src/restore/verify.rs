//! Compares the target with the snapshot, after a restore.
//!
//! Files are compared by their fingerprints, chunk by chunk, so the repository's data is not read again. Metadata is
//! not compared.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chosen_tree::{ChosenTree, Selection, TreeStep};
use super::comparison::FileComparison;
use super::message::RestoreCounts;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Target};
use crate::repo::reader::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind};
use crate::types::RepositoryKey;

/// Compares the entries that a restore was asked for.
pub struct Verification {
    /// Reads listings and recipes.
    pub reader: ChunkReader,
    /// The target, opened for a dry run.
    pub target: Arc<Target>,
    /// Key of the fingerprints.
    pub key: RepositoryKey,
    /// Counters of the restore.
    pub counts: Arc<RestoreCounts>,
    /// Set when the user wants to stop.
    pub stop: Arc<AtomicBool>,
}

impl Verification {
    /// Compares everything below `root`. An entry that differs or is missing is a problem.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and those of reading the repository, except damage.
    pub fn run(mut self, root: Option<ContentReference>, selection: Selection) -> Result<()> {
        let mut tree = ChosenTree::new(root, selection);
        let mut descent = Descent::new(self.target.clone());
        let mut comparison = FileComparison::new(self.key);
        while let Some(step) = tree.next(&mut self.reader)? {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            match step {
                TreeStep::Enter(node) => {
                    if let Err(error) = descent.enter(&node, None) {
                        self.counts.problem(&error);
                        tree.skip();
                    }
                }
                TreeStep::Leave(left) => {
                    if left.node.is_some() {
                        descent.leave(None, &mut Vec::new())?;
                    }
                }
                TreeStep::Entry(node) => self.entry(&descent, &mut comparison, &node)?,
                // The restore has reported it.
                TreeStep::Unreadable(_) => {}
            }
        }
        Ok(())
    }

    fn entry(&mut self, descent: &Descent, comparison: &mut FileComparison, node: &Node) -> Result<()> {
        if node.kind == NodeKind::Socket {
            return Ok(());
        }
        match self.difference(descent, comparison, node) {
            Ok(None) => self.counts.verified.add(1),
            Ok(Some(difference)) => {
                let path = descent.path().join(OsStr::from_bytes(&node.name));
                let error = std::io::Error::other(difference);
                self.counts.problem(&Error::io("verify", self.target.path_of(&path), error));
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => self.counts.problem(&error),
        }
        Ok(())
    }

    /// What differs between an entry and the snapshot.
    fn difference(
        &mut self,
        descent: &Descent,
        comparison: &mut FileComparison,
        node: &Node,
    ) -> Result<Option<&'static str>> {
        let Some(existing) = descent.existing(node)? else { return Ok(Some("it is missing")) };
        if existing.kind != node.kind {
            return Ok(Some("it is an entry of another kind"));
        }
        if (&existing.link_target, existing.device_number) != (&node.link_target, node.device_number) {
            return Ok(Some("it differs from the snapshot"));
        }
        if node.kind != NodeKind::File {
            return Ok(None);
        }
        let file = descent.open_existing(&existing)?;
        let stop = || self.stop.load(Ordering::Relaxed);
        let is_same =
            file.size() == node.size && comparison.holds(file.file(), node.content, &mut self.reader, stop)?;
        Ok((!is_same).then_some("its content differs from the snapshot"))
    }
}
