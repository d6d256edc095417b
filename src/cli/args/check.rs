//! Arguments of `check`.

use clap::Args;

use crate::inspect::check::ReadData;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Also read, decode and verify all data, not only the metadata
    #[arg(long)]
    pub read_data: bool,
    /// Like --read-data for some containers: random ones (`5%`, `2G`), or part N of T (`3/7`), so that T runs read all
    #[arg(long, value_name = "SHARE", conflicts_with = "read_data")]
    pub read_data_subset: Option<ReadData>,
}
