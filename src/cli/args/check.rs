//! Arguments of `check`.

use clap::Args;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Also read, decode and verify all data, not only the metadata
    #[arg(long)]
    pub read_data: bool,
}
