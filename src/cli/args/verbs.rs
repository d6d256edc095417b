//! Every verb, with the first line of its help.

use clap::Subcommand;

#[cfg(target_os = "linux")]
use super::MountArguments;
#[cfg(feature = "serve")]
use super::ServeArguments;
use super::{
    BackupArguments, BestArguments, CatArguments, CheckArguments, ColdVerb, CompletionsArguments, CopyArguments,
    DiffArguments, DistanceArguments, DumpArguments, EstimateArguments, FindArguments, ForgetArguments,
    ImportArguments, InitArguments, KeyVerb, LineageArguments, LsArguments, ManArguments, ModelsArguments, ParityVerb,
    ProgramArguments, PruneArguments, PublishArguments, RecompressArguments, RepairVerb, ReportArguments,
    RestoreArguments, RewriteArguments, ScheduleArguments, SnapshotsArguments, StatsArguments, StatusArguments,
    StepsArguments, TagArguments, TraceArguments, UnpublishArguments, UpgradeArguments, VerifyArguments,
};

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a repository
    Init(InitArguments),
    /// Manage the keys of an encrypted repository
    #[command(subcommand)]
    Key(KeyVerb),
    /// Store paths as a new snapshot
    Backup(Box<BackupArguments>),
    /// Estimate what a first backup of paths would store
    Estimate(EstimateArguments),
    /// Import the snapshots of another backup program
    Import(ImportArguments),
    /// Write a snapshot, or a part of it, to disk
    Restore(RestoreArguments),
    /// List the snapshots, oldest first
    Snapshots(SnapshotsArguments),
    /// List the entries of a snapshot
    Ls(LsArguments),
    /// Find entries by name, size or time in all snapshots, with the first and the last snapshot of each version
    Find(FindArguments),
    /// Show what changed from one snapshot to another
    Diff(DiffArguments),
    /// Write a file of a snapshot to standard output
    Cat(CatArguments),
    /// Write a directory of a snapshot as a tar archive, or a file as it is
    Dump(DumpArguments),
    /// Show snapshots as a read-only file system
    #[cfg(target_os = "linux")]
    Mount(MountArguments),
    /// List the training runs whose checkpoints are stored
    Runs,
    /// List the steps of a training run with their metrics and no-op rates
    Steps(StepsArguments),
    /// Show or restore the step of a training run with the best value of a metric
    Best(BestArguments),
    /// List the models of a snapshot with their types, bases and stored sizes
    Models(ModelsArguments),
    /// Show the models of a snapshot or of all snapshots as family trees
    Lineage(LineageArguments),
    /// Compare two models bit by bit
    Distance(DistanceArguments),
    /// Show at a glance whether backups are made, and how far they are proven
    Status(StatusArguments),
    /// Show statistics of the repository, or of one snapshot
    Stats(StatsArguments),
    /// Write an HTML page about the repository: health, space, growth, models and training runs
    Report(ReportArguments),
    /// Delete snapshots by rules or ids
    Forget(ForgetArguments),
    /// Copy snapshots of another repository into this one
    Copy(CopyArguments),
    /// Remove entries from snapshots, by storing new snapshots without them
    Rewrite(RewriteArguments),
    /// Change the tags of snapshots
    Tag(TagArguments),
    /// Give a directory of a snapshot a name under which `serve` shows it
    Publish(PublishArguments),
    /// Take a name of a published directory away
    Unpublish(UnpublishArguments),
    /// List the names of published directories
    Published,
    /// Serve what is published to clients of the Hub, read-only
    #[cfg(feature = "serve")]
    Serve(ServeArguments),
    /// Free the space of data that no snapshot needs
    Prune(PruneArguments),
    /// Compress what is stored once more, slowly and much smaller
    Recompress(RecompressArguments),
    /// Store parity, from which damaged data heals without the source
    #[command(subcommand)]
    Parity(ParityVerb),
    /// Keep data in cold storage, and what backups need of it hot
    #[command(subcommand)]
    Cold(ColdVerb),
    /// Verify that all stored data is present and undamaged
    Check(CheckArguments),
    /// Prove in small runs that what is stored can be read, and record it
    Verify(VerifyArguments),
    /// Repair damage as far as possible without the source, and report what is lost
    #[command(subcommand)]
    Repair(RepairVerb),
    /// Enable what older versions of fhrd do not know; they can then still read the repository, but not write into it
    Upgrade(UpgradeArguments),
    /// Write a timer that runs a profile each day
    Schedule(ScheduleArguments),
    /// Write a trace of the chunks of paths in Destor's text format, for simulations with `bench`
    Trace(TraceArguments),
    /// Print a completion script for a shell
    Completions(CompletionsArguments),
    /// Write a manual page for each command
    Man(ManArguments),
    /// Run measurements described in TOML files
    Bench(ProgramArguments),
}
