//! Files whose bytes the caller gives: Memory sends them.

use super::labels::SnapshotLabels;
use super::memory_file::{MemoryFile, sorted};
use super::memory_stage::MemoryStage;
use super::open::{OpenSource, SourceKind, SourcePlan, SourceRun};
use super::parents::{FoundParents, ParentChoice};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::snapshot::Snapshot;

/// Files in memory, and what the snapshot says about itself.
#[derive(Debug, Clone, Default)]
pub struct MemorySource {
    /// The files, in any order.
    pub files: Vec<MemoryFile>,
    /// What the snapshot says about itself.
    pub labels: SnapshotLabels,
    /// The snapshots that it is compared with.
    pub parents: ParentChoice,
    /// Time of the files, nanoseconds since 1970. By default that of the snapshot.
    pub file_time_ns: Option<i64>,
}

impl MemorySource {
    /// The stage that sends the sorted `files`.
    fn open<'a>(&self, files: Vec<MemoryFile>, run: SourceRun<'a>) -> OpenSource<'a> {
        let training = self.labels.checkpoint.as_ref().map(|checkpoint| checkpoint.run.clone());
        let time_ns = self.file_time_ns.unwrap_or_else(|| self.labels.time_ns(run.started_ns));
        let counters = (run.progress, run.counts.clone());
        let cursors = (run.parent_cursors(), run.empty_cursor());
        OpenSource::of_stage(MemoryStage::new(files, cursors, (training, time_ns), run.config, counters))
    }
}

impl SourceKind for MemorySource {
    fn is_repeatable(&self) -> bool {
        true
    }

    fn labels(&self) -> Option<&SnapshotLabels> {
        Some(&self.labels)
    }

    fn plan(&self) -> Result<SourcePlan<'_>> {
        if self.files.is_empty() {
            return Err(Error::Usage("nothing to back up: there are no files".into()));
        }
        let files = sorted(&self.files)?;
        let paths = files.iter().map(|file| [b"/", file.path.as_encoded_bytes()].concat()).collect();
        Ok(SourcePlan::new(paths, move |run| Ok(self.open(files, run))))
    }

    fn parents(&self, repository: &Repository, paths: &[Vec<u8>]) -> Result<FoundParents> {
        self.parents.find(repository, self.labels.parents_of(), paths)
    }

    fn description(&self, started_ns: i64) -> Result<Snapshot> {
        self.labels.description(started_ns)
    }

    fn decide(&self, problems: u64) -> Result<u64> {
        Ok(problems)
    }
}
