//! What is known of the models of published names: their values, stored bytes and bases.
//!
//! To find that reads the store, so it is done in the background, name by name, once for each commit. A page shows what
//! is known when it is asked for.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::catalogue::{Catalogue, PublishedNames};
use crate::inspect::models::ModelReport;
use crate::repo::published::{PublishedKind, PublishedSnapshot};

/// The models of a commit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitModels {
    /// Number of models.
    pub models: usize,
    /// Type of the most values of the largest one.
    pub dtype: String,
    /// Values in all tensors.
    pub parameters: u64,
    /// Stored bytes of their chunks, if all are known.
    pub stored: Option<u64>,
    /// What the largest one is stored against.
    pub base: Option<String>,
}

/// What is known, by commit. Nothing of a commit that has no model, or whose models cannot be read.
#[derive(Default)]
pub struct KnownModels(Mutex<HashMap<String, Option<Arc<CommitModels>>>>);

impl KnownModels {
    /// What is known of a commit.
    pub fn get(&self, commit: &str) -> Option<Arc<CommitModels>> {
        self.0.lock().get(commit).cloned().flatten()
    }

    /// Finds what is not known yet. Blocks. Returns whether the rest is a matter of time.
    fn find(&self, catalogue: &Catalogue, names: &PublishedNames, halt: &AtomicBool) -> bool {
        let commits: HashSet<&str> = names.snapshots.iter().map(|found| found.commit.as_str()).collect();
        self.0.lock().retain(|commit, _| commits.contains(commit.as_str()));
        let models = names.snapshots.iter().filter(|found| found.publication.kind == PublishedKind::Model);
        // People look at the latest ones first.
        for found in models.rev() {
            if self.0.lock().contains_key(&found.commit) {
                continue;
            }
            match catalogue.models(found, halt) {
                Ok(models) => _ = self.0.lock().insert(found.commit.clone(), together(found, &models).map(Arc::new)),
                Err(error) if error.is_unreadable() => {
                    tracing::warn!("the models of {} cannot be read: {error}", found.publication.name);
                    self.0.lock().insert(found.commit.clone(), None);
                }
                Err(error) => {
                    tracing::debug!("the models of names are not read: {error}");
                    return true;
                }
            }
        }
        false
    }
}

/// What `models` of a published snapshot are together. `None` without any in what is shown.
fn together(found: &PublishedSnapshot, models: &[ModelReport]) -> Option<CommitModels> {
    let directory = Path::new(OsStr::from_bytes(&found.publication.directory));
    let own: Vec<&ModelReport> = models.iter().filter(|model| model.path.starts_with(directory)).collect();
    let largest = own.iter().max_by_key(|model| model.size)?;
    let mut stored = own.iter().filter(|model| model.same_as.is_none()).map(|model| model.stored_bytes);
    Some(CommitModels {
        models: own.len(),
        dtype: largest.dtype.clone(),
        parameters: own.iter().map(|model| model.parameters).fold(0, u64::saturating_add),
        stored: stored.try_fold(0, |sum: u64, bytes| Some(sum.saturating_add(bytes?))),
        base: largest.base_name.clone(),
    })
}

/// Looks again and again whether there are new names, until `stopped` says so.
pub async fn watch(
    catalogue: Arc<Catalogue>,
    known: Arc<KnownModels>,
    every: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    let mut last: Option<Arc<PublishedNames>> = None;
    loop {
        let names = catalogue.known().names;
        let is_new = |names: &Arc<PublishedNames>| last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, names));
        if let Some(names) = names.filter(is_new) {
            let (catalogue, known, own) = (catalogue.clone(), known.clone(), names.clone());
            let found = tokio::task::spawn_blocking(move || known.find(&catalogue, &own, &AtomicBool::new(false)));
            last = match found.await {
                Ok(true) => None,
                Ok(false) => Some(names),
                Err(error) => {
                    tracing::error!("the models of names cannot be read: {error}");
                    Some(names)
                }
            };
        }
        if timeout(every, stopped.wait_for(|is_stopped| *is_stopped)).await.is_ok() {
            return;
        }
    }
}
