//! `fhrd recompress`.

use super::Session;
use super::args::{MetricsArguments, PruneArguments, RecompressArguments};
use super::exit::Exit;
use super::forget::{locks_of_profile, min_age_of_profile};
use super::location;
use super::prune;
use crate::error::Result;
use crate::keep::recompress;

/// Compresses what is stored once more, as archives are.
///
/// # Errors
/// Errors of [`recompress`].
pub fn run(session: &Session, arguments: &RecompressArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let RecompressArguments { grace, repack, dry_run, .. } = *arguments;
    let (extend_locks, metrics) = (locks_of_profile(session)?, MetricsArguments::default());
    let pruned = PruneArguments {
        grace,
        dry_run,
        repack,
        extend_locks,
        min_age: min_age_of_profile(session)?,
        allow_no_snapshots: false,
        allow_no_containers: false,
        metrics,
    };
    let options = prune::options(session, &pruned)?;
    prune::check_snapshots(&repository, &[])?;
    let threads = location::config(&session.options)?.pipeline.workers_of(0);
    let report = recompress(&repository, &options, threads, &session.stop)?;
    if report.bytes_moved == 0 && report.bytes_loose > 0 && !report.dry_run && !report.withdrawn {
        tracing::warn!("nothing was moved: each container with short frames is larger than --repack allows, or in use");
    }
    prune::print_report(session, &repository, &report)
}
