//! Arguments of `repair`.

use clap::{Args, Subcommand};

/// What `repair` repairs. Each may be interrupted at any point and run again.
#[derive(Debug, Subcommand)]
pub enum RepairVerb {
    /// Rebuild the index from the containers; replace damaged copies of the configuration and the model catalogue
    Index,
    /// Store the readable chunks of containers with a damaged index again. Run `check --read-data` first
    Containers,
    /// Replace damaged snapshots with new ones that leave out the lost files and directories
    Snapshots(RepairSnapshotsArguments),
}

/// Arguments of `repair snapshots`.
#[derive(Debug, Args)]
pub struct RepairSnapshotsArguments {
    /// Only show what would be left out
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Delete damaged snapshots once they are replaced, and those that cannot be read at all
    #[arg(long)]
    pub forget: bool,
    /// Go on even if more containers are missing than are there: snapshots are written again without their files
    #[arg(long)]
    pub allow_no_containers: bool,
}

const UPGRADE_NOTES: &str = "\
This cannot be undone. Commands that run at the same time go on as they began. A new repository has all that it needs.";

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
#[command(after_help = UPGRADE_NOTES)]
pub struct UpgradeArguments {
    /// Only show what would be enabled
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
