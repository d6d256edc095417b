//! Which containers are read next, so that runs at regular times read each one within a given time.
//!
//! 1. The share of all bytes that a run reads is somewhat more than the share that the time since the last such run is
//!    of the given time. The first one counts as a day after another. A missed night is made good by the next one.
//! 2. Containers that were never read come first, then those that were not read for longest.
//! 3. Whatever would be too old at the next run is read, too, however much that is.

use std::collections::HashSet;

use super::VERB;
use crate::config::WorkShare;
use crate::repo::reads::{ReadLedger, ReadRun};
use crate::types::ContainerId;

/// The time since the last run that the first one assumes: a day.
const FIRST_GAP_NS: i64 = 86_400 * 1_000_000_000;

/// Runs read this much more than their share, so that new containers delay no other one.
const SLACK: f64 = 1.1;

/// The containers to read now, of `containers` with their lengths, which are those of a share of the work if it is
/// given.
pub(super) fn choose(
    containers: &[(ContainerId, u64)],
    ledger: &ReadLedger,
    share: Option<WorkShare>,
    (now_ns, within_ns): (i64, i64),
) -> HashSet<ContainerId> {
    let is_turn = |run: &&ReadRun| run.verb == VERB && run.files == 0;
    // The shares of a job run at about the same time, so of as many runs the first one may be of the job before.
    let shares = share.map_or(1, WorkShare::count) as usize;
    let last_run =
        ledger.runs.iter().rev().filter(is_turn).nth(shares - 1).map(|run| now_ns.saturating_sub(run.time_ns));
    let gap_ns = last_run.unwrap_or(FIRST_GAP_NS).clamp(1, within_ns.max(1));
    let total: u64 = containers.iter().map(|(_, len)| len).sum();
    let budget = (SLACK * total as f64 * (gap_ns as f64 / within_ns.max(1) as f64)).ceil() as u64;
    let last_read = |id: &ContainerId| ledger.last_read(id).map(|read| read.time_ns);
    let mut ordered: Vec<(Option<i64>, &ContainerId, u64)> =
        containers.iter().map(|(id, len)| (last_read(id), id, *len)).collect();
    ordered.sort_unstable();
    let (mut chosen, mut bytes) = (HashSet::new(), 0);
    for (read_ns, id, len) in ordered {
        let is_due = read_ns.is_some_and(|time_ns| time_ns.saturating_add(within_ns) < now_ns.saturating_add(gap_ns));
        if bytes < budget || is_due {
            bytes += len;
            chosen.insert(*id);
        }
    }
    chosen
}
