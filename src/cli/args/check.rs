//! Arguments of `check`.

use clap::Args;

use super::FilterArguments;
use super::MetricsArguments;
use crate::config::WorkShare;
use crate::inspect::check::ReadData;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Verify only what these snapshots need: ids, unique prefixes, `latest`, or run:RUN@STEP [default: the whole
    /// repository]
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,
    /// Also read, decode and verify all data, not only the metadata. Damaged data is quarantined: the next backup that
    /// contains the same data stores it again, which heals all snapshots
    #[arg(long)]
    pub read_data: bool,
    /// Like --read-data, but for some containers only: a random share (`5%`, `2G`), or part N of T (`3/7`)
    #[arg(long, value_name = "SHARE", conflicts_with = "read_data")]
    pub read_data_subset: Option<ReadData>,
    /// With --read-data, read only the containers that fall to share I of N: N processes with the shares 1/N to N/N
    /// read all of them. Each checks the metadata, too
    #[arg(long, value_name = "I/N", requires = "read_data")]
    pub shard: Option<WorkShare>,
    /// Only show how many containers and bytes fall to each share
    #[arg(short = 'n', long, requires = "shard")]
    pub dry_run: bool,
    /// Write back what parity has rebuilt, and make damaged parity again
    #[arg(long, conflicts_with_all = ["without_key", "report_only"])]
    pub heal: bool,
    /// Read every blob and compare its hash with its name. This needs no password, so whoever can read the store can
    /// prove that it is intact
    #[arg(
        long,
        conflicts_with_all = ["snapshots", "read_data", "read_data_subset", "shard", "report_only", "FilterArguments"]
    )]
    pub without_key: bool,
    /// Write nothing into the repository: do not quarantine damaged data
    #[arg(long)]
    pub report_only: bool,
    /// Narrows `latest`; without a SNAPSHOT, verify what all snapshots that pass need.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Where metrics go.
    #[command(flatten)]
    pub metrics: MetricsArguments,
}
