//! Arguments of `check`.

use clap::Args;

use super::FilterArguments;
use crate::inspect::check::ReadData;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Verify only what these snapshots need: ids, unique prefixes, `latest`, or run:RUN@STEP [default: the whole
    /// repository]
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,
    /// Also read, decode and verify all data, not only the metadata. What is bad is quarantined: the next backup that
    /// meets the same content stores it again, which heals all snapshots
    #[arg(long)]
    pub read_data: bool,
    /// Like --read-data for some containers: random ones (`5%`, `2G`), or part N of T (`3/7`), so that T runs read all
    #[arg(long, value_name = "SHARE", conflicts_with = "read_data")]
    pub read_data_subset: Option<ReadData>,
    /// Read every blob and compare it with its name, the hash of what is stored. Needs no password: whoever can
    /// read a store can prove it
    #[arg(
        long,
        conflicts_with_all = ["snapshots", "read_data", "read_data_subset", "report_only", "FilterArguments"]
    )]
    pub without_key: bool,
    /// Write nothing into the repository: do not quarantine what is bad
    #[arg(long)]
    pub report_only: bool,
    /// Narrows `latest`; without a SNAPSHOT, verify what all snapshots that pass need.
    #[command(flatten)]
    pub filter: FilterArguments,
}
