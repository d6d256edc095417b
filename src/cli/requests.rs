//! What a verb has asked of the repository's store: below encryption and cache, since the repository was opened.

use serde::Serialize;

use super::output::size;
use crate::repo::Repository;
use crate::store::{StoreCounts, StoreExt};

/// A report as JSON, with the requests.
#[derive(Serialize)]
pub struct WithRequests<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    requests: StoreCounts,
}

impl<'a, R> WithRequests<'a, R> {
    /// `report` with the requests so far.
    pub fn new(report: &'a R, repository: &Repository) -> Self {
        WithRequests { report, requests: repository.requests.counts() }
    }
}

/// The requests so far, for people. `None` for a repository on a local disk, where nobody pays for them.
pub fn summary(repository: &Repository) -> Option<(&'static str, String)> {
    (repository.store.requests_max() > 1).then(|| ("requests", text(&repository.requests.counts())))
}

fn text(counts: &StoreCounts) -> String {
    let kinds = [
        (counts.puts, "put"),
        (counts.gets + counts.ranges, "get"),
        (counts.heads, "head"),
        (counts.lists, "list"),
        (counts.deletes, "delete"),
    ];
    let kinds = kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}"));
    let bytes = format!("{} sent, {} received", size(counts.bytes_written), size(counts.bytes_read));
    format!("{} ({}), {bytes}", counts.requests(), kinds.collect::<Vec<_>>().join(", "))
}
