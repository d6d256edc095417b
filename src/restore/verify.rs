//! Compares the target with the snapshot, after a restore.
//!
//! Files are compared by their fingerprints, chunk by chunk, so the repository's data is not read again. Of the
//! metadata, everything is compared that a restore by this user sets.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::base::RestoreRoot;
use super::chosen_tree::{ChosenTree, Selection, TreeStep};
use super::comparison::FileComparison;
use super::existing::differences;
use super::message::RestoreCounts;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Target, TargetOptions};
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::read::ChunkReader;
use crate::repo::snapshot::NamedSnapshot;
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

/// Compares a whole snapshot with the directory `target`, without reading the content of the repository. Returns how
/// many entries differ or are missing; each is logged.
///
/// # Errors
/// [`Error::Interrupted`], those of reading the repository, and of a target that is no directory.
pub fn compare_with(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    target: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<u64> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing);
    let root = RestoreRoot::find(&snapshot.snapshot, None, &mut reader)?;
    let options = TargetOptions { dry_run: true, ..TargetOptions::default() };
    let (target, counts) = (Arc::new(Target::create(target, options)?), Arc::new(RestoreCounts::default()));
    let (key, stop) = (repository.key, stop.clone());
    Verification { reader, target, key, counts: counts.clone(), stop }.run(&root, Selection::default())?;
    Ok(counts.problems.get() + counts.damaged.get())
}

impl Verification {
    /// Compares everything below `root`. An entry that differs or is missing is a problem.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and those of reading the repository, except damage.
    pub fn run(mut self, root: &RestoreRoot, selection: Selection) -> Result<()> {
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
                    if let Some(node) = &left.node {
                        descent.leave(None, &mut Vec::new())?;
                        self.directory(&descent, node, left.is_chosen);
                    }
                }
                TreeStep::Entry(node) => self.entry(&descent, &mut comparison, &node)?,
                // The restore has reported it.
                TreeStep::Unreadable(_) => {}
            }
        }
        Ok(())
    }

    /// Compares the metadata of a directory that was left, if it was restored.
    fn directory(&self, descent: &Descent, node: &Node, is_chosen: bool) {
        if !is_chosen {
            return;
        }
        match descent.existing(node) {
            Ok(Some(existing)) => {
                if let Some(difference) = self.metadata_difference(node, &existing) {
                    self.differs(descent, node, difference);
                }
            }
            // Entering it has failed, which is reported.
            Ok(None) => {}
            Err(error) => self.counts.problem(&error),
        }
    }

    /// Compares the metadata of the root with that of `node`.
    pub fn root(&self, node: &Node) {
        match self.target.captured_root() {
            Ok(existing) => {
                if let Some(difference) = self.metadata_difference(node, &existing) {
                    let error = std::io::Error::other(difference);
                    self.counts.problem(&Error::io("verify", self.target.path_of(Path::new("")), error));
                }
            }
            Err(error) => self.counts.problem(&error),
        }
    }

    fn differs(&self, descent: &Descent, node: &Node, difference: String) {
        let path = descent.path().join(OsStr::from_bytes(&node.name));
        let error = std::io::Error::other(difference);
        self.counts.problem(&Error::io("verify", self.target.path_of(&path), error));
    }

    fn entry(&mut self, descent: &Descent, comparison: &mut FileComparison, node: &Node) -> Result<()> {
        // The restore has reported what only a newer version can use.
        if matches!(node.kind, NodeKind::Socket | NodeKind::Unknown) {
            return Ok(());
        }
        match self.difference(descent, comparison, node) {
            Ok(None) => self.counts.verified.add(1),
            Ok(Some(difference)) => self.differs(descent, node, difference),
            Err(error) if error.stops_reading() => return Err(error),
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
    ) -> Result<Option<String>> {
        let Some(existing) = descent.existing(node)? else { return Ok(Some("it is missing".into())) };
        if existing.kind != node.kind {
            return Ok(Some("it is an entry of another kind".into()));
        }
        if (&existing.link_target, existing.device_number) != (&node.link_target, node.device_number) {
            return Ok(Some("it differs from the snapshot".into()));
        }
        if node.kind != NodeKind::File {
            return Ok(self.metadata_difference(node, &existing));
        }
        let file = descent.open_existing(&existing)?;
        let stop = || self.stop.load(Ordering::Relaxed);
        let is_same =
            file.size() == node.size && comparison.holds(file.file(), node.content, &mut self.reader, stop)?;
        match is_same {
            true => Ok(self.metadata_difference(node, &existing)),
            false => Ok(Some("its content differs from the snapshot".into())),
        }
    }

    /// What differs of an entry's metadata. What the target has refused is a warning of the restore.
    fn metadata_difference(&self, node: &Node, existing: &Node) -> Option<String> {
        let differences = differences(node, existing, self.target.refused_flags(existing.device));
        (!differences.is_empty()).then(|| format!("it differs from the snapshot: {}", differences.join(", ")))
    }
}
