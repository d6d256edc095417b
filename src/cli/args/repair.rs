//! Arguments of `repair`.

use clap::{Args, Subcommand};

/// What `repair` repairs. Each may be interrupted at any point and run again.
#[derive(Debug, Subcommand)]
pub enum RepairVerb {
    /// Write the index again from the containers; replace damaged copies of the configuration and the model catalogue
    Index,
    /// Store again what is readable of containers whose own index is damaged. Run `check --read-data` before
    Containers,
    /// Write snapshots that are not whole again, without the files and directories that are lost
    Snapshots(RepairSnapshotsArguments),
}

/// Arguments of `repair snapshots`.
#[derive(Debug, Args)]
pub struct RepairSnapshotsArguments {
    /// Only print what would be left out
    #[arg(long)]
    pub dry_run: bool,
    /// Delete the damaged snapshots once they are replaced, and those that cannot be read at all
    #[arg(long)]
    pub forget: bool,
}
