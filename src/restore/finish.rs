//! Finish: sets the metadata of complete files and removes files that damage left incomplete.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use super::message::{RestoreCounts, RestoreFile, RestoreJob};
use crate::error::{Error, Result};
use crate::filesystem::Target;
use crate::metrics::Progress;
use crate::pipeline::Sink;

/// The stage.
pub struct FinishStage<'a> {
    /// Directory that receives the tree.
    pub target: Arc<Target>,
    /// Path of that directory.
    pub root: PathBuf,
    /// Counters of the restore.
    pub counts: Arc<RestoreCounts>,
    /// Counters for the progress bar.
    pub progress: &'a Progress,
}

impl FinishStage<'_> {
    fn file(&self, file: &RestoreFile) {
        self.progress.files_done.add(1);
        if let Some(error) = file.take_failure() {
            self.counts.unreadable(&error, &file.path.display().to_string());
            self.remove(file);
            return;
        }
        let mut problems = Vec::new();
        self.target.finish_file(&file.path, &file.file, &file.node, &mut problems);
        problems.iter().for_each(|error| self.counts.problem(error));
        self.counts.files.add(1);
    }

    /// Removes all names of a file and marks its inode as lost, so that Plan adds no further name.
    fn remove(&self, file: &RestoreFile) {
        let mut names = file.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.is_lost = true;
        for path in names.paths.drain(..) {
            let path = self.root.join(path);
            if let Err(error) = std::fs::remove_file(&path) {
                self.counts.problem(&Error::io("remove the incomplete file", path, error));
            }
        }
    }
}

impl Sink for FinishStage<'_> {
    type In = RestoreJob;
    type Output = ();

    fn name(&self) -> &'static str {
        "finish"
    }

    fn process(&mut self, job: RestoreJob) -> Result<()> {
        job.finished.iter().for_each(|file| self.file(file));
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}
