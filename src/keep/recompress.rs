//! Recompress: encodes what is stored as archives are, in rounds, each of which is a prune.
//!
//! A round moves what fits into its bounds, so that little space is needed at once and no writer waits for long. What
//! was moved is no longer loose, so a run that ends early goes on where it stopped.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::prune::{estimate_prune, prune};
use super::prune_report::{PruneOptions, PruneReport};
use crate::error::Result;
use crate::repo::Repository;

/// Stored bytes that a round moves, for each thread that compresses: about a minute's work.
const ROUND_BYTES_PER_THREAD: u64 = 256 << 20;

/// Frees what no snapshot needs, and encodes the solid frames of containers older than the grace period again, with
/// `threads` threads. `repack_bytes_max` of `options` bounds the bytes that all rounds move.
///
/// The report counts all rounds. What it says of the repository at the start is that of the first one.
///
/// # Errors
/// Errors of [`prune`]. What earlier rounds have done stays.
pub fn recompress(
    repository: &Repository,
    options: &PruneOptions,
    threads: usize,
    stop: &Arc<AtomicBool>,
) -> Result<PruneReport> {
    in_rounds(repository, options, threads.max(1), ROUND_BYTES_PER_THREAD, stop)
}

fn in_rounds(
    repository: &Repository,
    options: &PruneOptions,
    threads: usize,
    round_bytes_per_thread: u64,
    stop: &Arc<AtomicBool>,
) -> Result<PruneReport> {
    let options = PruneOptions { recompress_threads: threads, ..*options };
    if options.dry_run {
        return estimate_prune(repository, &options, &[], stop);
    }
    let round_bytes = round_bytes_per_thread.saturating_mul(threads as u64);
    let mut left = options.repack_bytes_max;
    let mut whole: Option<PruneReport> = None;
    let mut loose = u64::MAX;
    loop {
        let round = prune(repository, &PruneOptions { repack_bytes_max: left.min(round_bytes), ..options }, stop)?;
        left = left.saturating_sub(round.bytes_moved);
        // A container that is larger than the bounds stays, and so does what a backup relies on.
        let is_last = round.withdrawn || round.bytes_moved == 0 || round.bytes_loose >= loose || left == 0;
        loose = round.bytes_loose;
        tracing::info!("recompressed {} of {} bytes", round.bytes_moved, round.bytes_loose);
        whole = Some(match whole {
            None => round,
            Some(before) => before.with_round(&round),
        });
        if is_last {
            return Ok(whole.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::backup::{BackupRequest, TreeSource, backup};
    use crate::config::Config;
    use crate::inspect::check::check;
    use crate::keep::SkippedRule;
    use crate::metrics::Progress;
    use crate::store::MemoryStore;

    fn options() -> PruneOptions {
        PruneOptions {
            grace: Duration::ZERO,
            dry_run: false,
            allow_no_containers: false,
            repack_bytes_max: u64::MAX,
            container_bytes: 1 << 20,
            patience: Duration::ZERO,
            extend_locks: None,
            recompress_threads: 0,
            min_age: None,
            skipped_rule: SkippedRule::Nothing,
        }
    }

    /// Text that no other number has, of terms that all have.
    fn text(number: u64) -> Vec<u8> {
        let scattered = |at: u64| (at ^ number << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let term = |at: u64| format!("term{} ", (scattered(at) ^ scattered(at) >> 29).wrapping_mul(0xbf58_476d) % 8192);
        (0..60_000).flat_map(|at| term(at).into_bytes()).collect()
    }

    #[test]
    fn frames_of_tiny_entries_are_full_by_their_number() {
        let mut config = Config::default();
        config.container.bytes_target = bytesize::ByteSize::mib(1);
        let repository = Repository::init(Arc::new(MemoryStore::new()), &config.repository).unwrap();
        let source = tempfile::tempdir().unwrap();
        for number in 0..300u64 {
            let directory = source.path().join(number.to_string());
            fs::create_dir(&directory).unwrap();
            let all = text(number);
            (0..300).for_each(|at| fs::write(directory.join(at.to_string()), &all[at * 200..][..200]).unwrap());
        }
        let request = BackupRequest::new(TreeSource::new(vec![source.path().into()], "test"));
        backup(&repository, &config, &request, &Progress::default(), &Arc::default()).unwrap();
        let first = recompress(&repository, &options(), 2, &Arc::default()).unwrap();
        let second = recompress(&repository, &options(), 2, &Arc::default()).unwrap();
        assert!(first.bytes_moved > 0, "{first:?}");
        assert_eq!((second.bytes_moved, second.bytes_loose), (0, 0), "{second:?}");
    }

    #[test]
    fn rounds_end_once_nothing_is_loose_and_count_together() {
        let mut config = Config::default();
        config.container.bytes_target = bytesize::ByteSize::mib(1);
        let repository = Repository::init(Arc::new(MemoryStore::new()), &config.repository).unwrap();
        let source = tempfile::tempdir().unwrap();
        for number in 0..30 {
            fs::write(source.path().join(number.to_string()), text(number)).unwrap();
        }
        let request = BackupRequest::new(TreeSource::new(vec![source.path().into()], "test"));
        backup(&repository, &config, &request, &Progress::default(), &Arc::default()).unwrap();
        let options = options();
        let look = || recompress(&repository, &PruneOptions { dry_run: true, ..options }, 2, &Arc::default()).unwrap();
        let before = look();
        let done = in_rounds(&repository, &options, 2, 600 << 10, &Arc::default()).unwrap();
        assert!(before.containers > 2 && done.bytes_moved > 2 << 20, "{before:?} {done:?}");
        let after = look();
        assert_eq!(after.bytes_loose, 0);
        assert_eq!(done.bytes_deleted - done.bytes_written, before.bytes - after.bytes);
        assert_eq!((done.containers, done.bytes_loose), (before.containers, before.bytes_loose));
        let checked = check(&repository, &config, true, &Progress::default(), &Arc::default()).unwrap();
        assert!(checked.defects.is_empty(), "{checked:?}");
    }
}
