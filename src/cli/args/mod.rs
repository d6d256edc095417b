//! Every verb and every flag of `fhrd`: arguments in a file for each group. The doc comments are the help texts.

mod backup;
mod check;
mod environment;
mod help;
mod hints;
mod keep;
mod key;
mod look;
mod manual;
mod measure;
mod models;
mod options;
mod repair;
mod restore;
mod runs;
#[cfg(test)]
mod tests;
mod values;

use clap::{Parser, Subcommand};

pub use backup::{BackupArguments, ChoiceArguments, InputArguments};
pub use keep::{CopyArguments, ForgetArguments, InitArguments, PruneArguments, RewriteArguments, TagArguments};
pub use key::{EncryptionArguments, KeyVerb, NewSecretArguments};
pub use look::{
    CatArguments, DiffArguments, DumpArguments, FilterArguments, FindArguments, LsArguments, MountArguments,
    SnapshotsArguments, StatsArguments,
};
pub use manual::{CompletionsArguments, ManArguments};
#[cfg(feature = "bench")]
pub use measure::BenchArguments;
pub use measure::TraceArguments;
pub use models::{DistanceArguments, LineageArguments, ModelOrder, ModelsArguments, SnapshotChoice};
pub use options::Options;
pub use repair::{RepairSnapshotsArguments, RepairVerb, UpgradeArguments};
pub use runs::{BestArguments, CheckpointArguments, StepsArguments};
pub use values::{parse_grace, parse_period};
pub use {check::CheckArguments, help::command, restore::RestoreArguments};

/// Data-reduction backup engine for source code, images, databases and machine-learning models
#[derive(Debug, Parser)]
#[command(name = "fhrd", version, propagate_version = true, after_help = options::EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
    /// Options of every verb.
    #[command(flatten)]
    pub options: Options,
}

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
    /// Show statistics of the repository, or of one snapshot
    Stats(StatsArguments),
    /// Delete snapshots by rules or ids
    Forget(ForgetArguments),
    /// Copy snapshots of another repository into this one
    Copy(CopyArguments),
    /// Remove entries from snapshots, by storing new snapshots without them
    Rewrite(RewriteArguments),
    /// Change the tags of snapshots
    Tag(TagArguments),
    /// Free the space of data that no snapshot needs
    Prune(PruneArguments),
    /// Verify that all stored data is present and undamaged
    Check(CheckArguments),
    /// Repair damage as far as possible without the source, and report what is lost
    #[command(subcommand)]
    Repair(RepairVerb),
    /// Enable what older versions of fhrd do not know; they can then still read the repository, but not write into it
    Upgrade(UpgradeArguments),
    /// Write a trace of the chunks of paths in Destor's text format, for simulations with `bench`
    Trace(TraceArguments),
    /// Print a completion script for a shell
    Completions(CompletionsArguments),
    /// Write a manual page for each command
    Man(ManArguments),
    /// Run measurements described in TOML files
    #[cfg(feature = "bench")]
    Bench(BenchArguments),
}
