//! Finish: gives complete files their names and creates their hard links, in the order of the snapshot.
//!
//! A file that is not in one job with all its chunks gets its metadata here, any other in Write.
//!
//! A file that is not whole becomes `NAME.damaged`, with zeros where bytes are lost, and so do its hard links. It is
//! removed if none of its bytes were restored, or if the caller wants no damaged files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::lost::{DamagedFile, LostRanges, is_damage};
use super::message::{FinishedEntry, InodeState, RestoreCounts, RestoreJob, RestoreLink};
use super::restore_file::RestoreFile;
use crate::error::{Error, Result};
use crate::filesystem::{Completeness, NewFile, Target};
use crate::metrics::Progress;
use crate::pipeline::Sink;

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
        *file.inode.lock().unwrap_or_else(PoisonError::into_inner) = state;
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
        let state = link.inode.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let created =
            |existing: &Path, completeness| self.target.create_hard_link(existing, link.kind, &link.at, completeness);
        let path = link.path.display().to_string();
        match state {
            InodeState::Complete(existing) => match created(&existing, Completeness::Complete) {
                Ok(_) => self.counts.created(link.kind, 1),
                Err(error) => self.counts.problem(&error),
            },
            InodeState::Incomplete { saved_as, is_damage } => {
                let saved = saved_as.map(|existing| created(&existing, Completeness::Damaged));
                let saved = saved.transpose().unwrap_or_else(|error| {
                    self.counts.problem(&error);
                    None
                });
                let saved_as = saved.map(|name| link.path.with_file_name(name).display().to_string());
                self.incomplete_link(path, saved_as, is_damage);
            }
            InodeState::Pending => self.counts.problem(&Error::internal("a hard link came before its file")),
        }
        let mut problems = Vec::new();
        link.at.release(&mut problems);
        problems.iter().for_each(|error| self.counts.problem(error));
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
