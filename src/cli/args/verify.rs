//! Arguments of `verify`.

use clap::Args;

use super::FilterArguments;
use super::MetricsArguments;
use super::values::parse_grace;
use crate::config::WorkShare;
use crate::inspect::verify::SampleShare;

const VERIFY_NOTES: &str = "\
With --within, a nightly run reads the next part: as large a share of all bytes as the time since the last run is of the
given time, and whatever was not read for longest. What was read is recorded in the repository, so several machines can
take turns, and `status` knows it. A sample restores files, which proves the way from a snapshot to the bytes of a file;
--within proves every stored byte. Use both.";

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_NOTES)]
pub struct VerifyArguments {
    /// Restore a random share of the files of all snapshots into nothing: decode all content, and check it. Read the
    /// same share of the snapshots, at least one, from the store, not from a local copy [default: 2%, without --within]
    #[arg(long, value_name = "PERCENT")]
    pub sample: Option<SampleShare>,
    /// Read the containers that were not read for longest, so that regular runs read all of them within this time, such
    /// as 90d
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_grace)]
    pub within: Option<jiff::SignedDuration>,
    /// Read only what falls to share I of N, so that N processes with the shares 1/N to N/N read together what one
    /// would
    #[arg(long, value_name = "I/N")]
    pub shard: Option<WorkShare>,
    /// Only show how many containers and bytes fall to each share
    #[arg(short = 'n', long, requires = "shard")]
    pub dry_run: bool,
    /// Write nothing into the repository: neither quarantine damaged data nor record what was read
    #[arg(long)]
    pub report_only: bool,
    /// The snapshots of the sample.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Where metrics go.
    #[command(flatten)]
    pub metrics: MetricsArguments,
}
