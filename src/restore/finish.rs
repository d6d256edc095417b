//! Finish: gives complete files their names and creates their hard links, in the order of the snapshot.
//!
//! A file that is not in one job with all its chunks gets its metadata here, any other in Write.
//!
//! A file that is not whole becomes `NAME.damaged`, with zeros where bytes are lost, and so do its hard links. It is
//! removed if none of its bytes were restored, or if the caller wants no damaged files.
//!
//! Where the target refuses a hard link, the name gets a copy, with a warning.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::existing::{has_metadata, looks_same};
use super::lost::{DamagedFile, LostRanges, is_damage};
use super::message::{FinishedEntry, InodeState, RestoreCounts, RestoreJob, RestoreLink};
use super::restore_file::RestoreFile;
use crate::error::{Error, Result};
use crate::filesystem::{Completeness, NewFile, Target, TargetName, is_link_refusal};
use crate::metrics::Progress;
use crate::pipeline::Sink;
use crate::repo::tree::{Node, NodeKind};

/// The stage.
pub struct FinishStage<'a> {
    /// Directory that receives the tree.
    pub target: Arc<Target>,
    /// Whether files that are not whole are kept.
    pub keep_damaged: bool,
    /// Counters of the restore.
    pub counts: Arc<RestoreCounts>,
    /// Counters for the progress bar.
    pub progress: &'a Progress,
}

impl FinishStage<'_> {
    fn file(&self, file: &RestoreFile) {
        self.progress.files_done.add(1);
        self.progress.current.set(&file.path);
        let lost = file.take_lost();
        let mut problems = Vec::new();
        let state = match (file.new_file(), lost.error()) {
            (Ok(created), None) => self.whole(file, created, &mut problems),
            (Ok(created), Some(error)) => self.damaged(file, created, &lost, error, &mut problems),
            (Err(error), _) => {
                problems.push(error);
                InodeState::Incomplete { saved_as: None, is_damage: false }
            }
        };
        *file.inode.lock() = state;
        problems.iter().for_each(|error| self.counts.problem(error));
    }

    fn whole(&self, file: &RestoreFile, created: &NewFile, problems: &mut Vec<Error>) -> InodeState {
        if !file.has_metadata() {
            self.target.finish_file(&file.path, &created.file, &file.node, problems);
        }
        match created.publish(Completeness::Complete, problems) {
            Ok(_) => {
                self.counts.files.add(1);
                InodeState::Complete(file.path.clone())
            }
            Err(error) => {
                problems.push(error);
                InodeState::Incomplete { saved_as: None, is_damage: false }
            }
        }
    }

    /// Keeps what is good of a file, and reports what is not.
    fn damaged(
        &self,
        file: &RestoreFile,
        created: &NewFile,
        lost: &LostRanges,
        error: &Error,
        problems: &mut Vec<Error>,
    ) -> InodeState {
        let saved = if self.keep_damaged && file.has_content() { self.save(file, created, problems) } else { None };
        if saved.is_none() {
            created.discard(problems);
        }
        let path = file.path.display().to_string();
        let saved_as = saved.as_ref().map(|saved| saved.display().to_string());
        self.counts.damaged_file(error, lost.report(path, saved_as.clone()));
        if let Some(saved_as) = &saved_as {
            lost.log(saved_as);
        }
        InodeState::Incomplete { saved_as: saved, is_damage: is_damage(error) }
    }

    /// Gives a damaged file its full length, its metadata and a name. `None` if that fails.
    fn save(&self, file: &RestoreFile, created: &NewFile, problems: &mut Vec<Error>) -> Option<PathBuf> {
        if let Err(error) = file.fill_up() {
            problems.push(error);
        }
        self.target.finish_file(&file.path, &created.file, &file.node, problems);
        match created.publish(Completeness::Damaged, problems) {
            Ok(name) => Some(file.path.with_file_name(name)),
            Err(error) => {
                problems.push(error);
                None
            }
        }
    }

    /// Creates a further hard link of an inode.
    fn link(&self, link: RestoreLink) {
        let (path, kind) = (link.path.clone(), link.node.kind);
        let is_replacing = link.existing.is_some();
        let state = link.inode.lock().clone();
        let mut problems = Vec::new();
        match state {
            InodeState::Complete(first) => {
                match self.second_name(&first, link, Completeness::Complete, &mut problems) {
                    Ok(Some(_)) => {
                        self.counts.replaced.add(u64::from(is_replacing));
                        self.counts.created(kind, 1);
                    }
                    Ok(None) => self.counts.unchanged.add(1),
                    Err(error) => problems.push(error),
                }
            }
            InodeState::Incomplete { saved_as, is_damage } => {
                let saved = match saved_as {
                    Some(first) => self.second_name(&first, link, Completeness::Damaged, &mut problems),
                    None => {
                        link.at.release(&mut problems);
                        Ok(None)
                    }
                };
                let saved = saved.unwrap_or_else(|error| {
                    problems.push(error);
                    None
                });
                let saved_as = saved.map(|name| path.with_file_name(name).display().to_string());
                self.incomplete_link(path.display().to_string(), saved_as, is_damage);
            }
            InodeState::Pending => {
                link.at.release(&mut problems);
                problems.push(Error::internal("a hard link came before its file"));
            }
        }
        problems.iter().for_each(|error| self.counts.problem(error));
    }

    /// Gives the inode whose restored name is `first` a further one, and returns it. Where the target refuses that, the
    /// name gets a copy; `None`: it is one already.
    fn second_name(
        &self,
        first: &Path,
        link: RestoreLink,
        completeness: Completeness,
        problems: &mut Vec<Error>,
    ) -> Result<Option<OsString>> {
        let RestoreLink { at, node, token, existing, .. } = link;
        match self.target.create_hard_link(first, node.kind, &at, completeness) {
            Err(refusal) if is_link_refusal(&refusal) => {
                if existing.is_some_and(|existing| self.is_copy(first, &at, &node, &existing)) {
                    at.release(problems);
                    return Ok(None);
                }
                self.counts.copied_links.add(1);
                self.target.warn(&refusal);
                self.target.copy_entry(first, &node, at, completeness, &token, problems).map(Some)
            }
            linked => {
                at.release(problems);
                linked.map(Some)
            }
        }
    }

    /// Whether the entry that has the name already is what a copy would be.
    fn is_copy(&self, first: &Path, at: &TargetName, node: &Node, existing: &Node) -> bool {
        let is_same = match node.kind {
            NodeKind::File => existing.kind == NodeKind::File && self.target.is_copy(first, at, existing),
            _ => looks_same(node, existing),
        };
        is_same && has_metadata(node, existing)
    }

    fn incomplete_link(&self, path: String, saved_as: Option<String>, is_damage: bool) {
        let error = if is_damage {
            Error::corrupt(&path, 0, "the whole content of its first hard link", "less")
        } else {
            Error::io("link", &path, std::io::Error::other("its first hard link could not be written"))
        };
        self.counts.damaged_file(&error, DamagedFile { path, saved_as, lost: Vec::new(), lost_more: 0 });
    }
}

impl Sink for FinishStage<'_> {
    type In = RestoreJob;
    type Output = ();

    fn name(&self) -> &'static str {
        "finish"
    }

    fn process(&mut self, job: RestoreJob) -> Result<()> {
        for entry in job.finished {
            match entry {
                FinishedEntry::File(file) => self.file(&file),
                FinishedEntry::Link(link) => self.link(*link),
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}
