//! Numbers that a command reports: for metrics and summaries.

use std::collections::BTreeMap;
use std::fmt::Write;

use parking_lot::Mutex;

use crate::cli::output::size;

/// What a number is. Its name ends with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunFact {
    /// Regular files.
    Files,
    /// New and changed files.
    ChangedFiles,
    /// Content of files.
    ContentBytes,
    /// Bytes read from the source or from containers.
    ReadBytes,
    /// Content of new chunks.
    NewBytes,
    /// Bytes added to the repository.
    StoredBytes,
    /// Bytes given back.
    FreedBytes,
    /// Bytes of all containers.
    RepositoryBytes,
    /// Bytes of all containers of a repository without any snapshot.
    WithoutSnapshotsBytes,
    /// Snapshots in the repository, or copied.
    Snapshots,
    /// Entries that could not be read.
    Problems,
    /// Defects, damaged files and containers.
    Defects,
}

impl RunFact {
    /// Every fact, in the order of the enum.
    pub const ALL: [RunFact; 12] = [
        RunFact::Files,
        RunFact::ChangedFiles,
        RunFact::ContentBytes,
        RunFact::ReadBytes,
        RunFact::NewBytes,
        RunFact::StoredBytes,
        RunFact::FreedBytes,
        RunFact::RepositoryBytes,
        RunFact::WithoutSnapshotsBytes,
        RunFact::Snapshots,
        RunFact::Problems,
        RunFact::Defects,
    ];

    /// Name in metrics and documents, and help.
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            RunFact::Files => ("files", "Regular files that the last run met or restored"),
            RunFact::ChangedFiles => ("changed_files", "New and changed files of the last run"),
            RunFact::ContentBytes => ("content_bytes", "Content of the files of the last run"),
            RunFact::ReadBytes => ("read_bytes", "Bytes that the last run read from the source or from containers"),
            RunFact::NewBytes => ("new_bytes", "Content that the repository did not have before the last run"),
            RunFact::StoredBytes => ("stored_bytes", "Bytes that the last run added to the repository"),
            RunFact::FreedBytes => ("freed_bytes", "Bytes that the last run gave back"),
            RunFact::RepositoryBytes => ("repository_bytes", "Bytes of all containers as the last run saw them"),
            RunFact::WithoutSnapshotsBytes => {
                ("without_snapshots_bytes", "Bytes of all containers, if the last run saw data and no snapshot")
            }
            RunFact::Snapshots => ("snapshots", "Snapshots that the last run copied or saw"),
            RunFact::Problems => ("problems", "Entries that the last run could not read"),
            RunFact::Defects => ("defects", "Damage that the last run found"),
        }
    }
}

/// The numbers of this process.
#[derive(Debug, Default)]
pub struct RunFacts(Mutex<BTreeMap<RunFact, u64>>);

impl RunFacts {
    /// Adds to a number.
    pub fn add(&self, fact: RunFact, value: u64) {
        *self.0.lock().entry(fact).or_default() += value;
    }

    /// The numbers.
    pub fn all(&self) -> BTreeMap<RunFact, u64> {
        self.0.lock().clone()
    }

    /// The numbers by their names.
    pub fn by_name(&self) -> BTreeMap<&'static str, u64> {
        self.all().into_iter().map(|(fact, value)| (fact.describe().0, value)).collect()
    }

    /// The numbers behind a sentence, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.by_name() {
            let spoken = name.replace('_', " ");
            // Writing to a string does not fail.
            let _ = match spoken.strip_suffix(" bytes") {
                Some(what) => write!(text, ", {} {what}", size(value)),
                None => write!(text, ", {value} {spoken}"),
            };
        }
        text
    }
}
