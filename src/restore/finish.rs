//! Finish: gives complete files their metadata and takes away those that damage has cost.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use super::message::{RestoreCounts, RestoreFile, RestoreJob};
use crate::error::{Error, Result};
use crate::filesystem::Target;
use crate::metrics::Progress;
use crate::pipeline::Sink;

/// The stage.
pub struct FinishStage<'a> {
    /// The directory restored into.
    pub target: Arc<Target>,
    /// Its path.
    pub root: PathBuf,
    /// Counters.
    pub counts: Arc<RestoreCounts>,
    /// For the progress bar.
    pub progress: &'a Progress,
}

impl FinishStage<'_> {
    fn file(&self, file: &RestoreFile) {
        self.progress.files_done.add(1);
        if let Some(error) = file.take_failure() {
            self.counts.damage(&error, &file.path.display().to_string());
            self.remove(file);
            return;
        }
        let mut problems = Vec::new();
        self.target.finish_file(&file.path, &file.file, &file.node, &mut problems);
        problems.iter().for_each(|error| self.counts.problem(error));
        self.counts.files.add(1);
    }

    fn remove(&self, file: &RestoreFile) {
        let mut names = file.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.failed = true;
        for name in names.names.drain(..) {
            let path = self.root.join(name);
            if let Err(error) = std::fs::remove_file(&path) {
                self.counts.problem(&Error::io("remove the incomplete", path, error));
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
