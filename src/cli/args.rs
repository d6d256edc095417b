//! Every verb and every flag of `fhrd`, as one table. The doc comments are the help texts.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

/// Data-reduction backup engine for source code, images, databases and machine-learning models
#[derive(Debug, Parser)]
#[command(name = "fhrd", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
    /// Options of every verb.
    #[command(flatten)]
    pub options: Options,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    failure, or a restore that could not write every entry
  2    invalid command line
  3    the backup or trace is complete except for entries that could not be read
  10   no repository found
  20   the repository is damaged; a restore has written everything else
  130  interrupted";

/// Options of every verb.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Repository: a path, or a URL like file:///path [default: the one in your data directory]
    #[arg(long, global = true, value_name = "LOCATION", env = "FHRD_REPO")]
    pub repo: Option<PathBuf>,
    /// TOML file with parameters; keys that it leaves out keep their defaults
    #[arg(long, global = true, value_name = "FILE", env = "FHRD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Print more on standard error; -vv prints everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Print errors only, and no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a repository
    Init,
    /// Store paths as a new snapshot
    Backup(BackupArguments),
    /// Write a snapshot, or one of its tensors, to disk; never overwrites anything
    Restore(RestoreArguments),
    /// List the snapshots, oldest first
    Snapshots,
    /// List the entries of a snapshot
    Ls(LsArguments),
    /// List the models of a snapshot with their types, bases and stored sizes
    Models(ModelsArguments),
    /// Show the models of a snapshot, or of all snapshots, as family trees
    Lineage(LineageArguments),
    /// Compare two models bit by bit
    Distance(DistanceArguments),
    /// Show statistics of the repository, or of one snapshot
    Stats(StatsArguments),
    /// Verify that all stored data is present and undamaged
    Check(CheckArguments),
    /// Write the chunks of paths as a trace in Destor's text format, for simulations by `bench`
    Trace(TraceArguments),
    /// Run the measurements that TOML files describe
    #[cfg(feature = "bench")]
    Bench(BenchArguments),
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Files and directories to store
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Tag of the snapshot; can be given several times
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Host name to record [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Read every file, even if it is unchanged since the parent snapshot
    #[arg(long)]
    pub force: bool,
    /// Print the work and the waiting time of each stage
    #[arg(long)]
    pub stats: bool,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Snapshot id, unique prefix, or `latest`
    #[arg(value_name = "SNAPSHOT")]
    pub id: String,
    /// Directory to write into [default: a new directory fhrd-restore-ID]
    #[arg(long, value_name = "DIR", conflicts_with = "tensor")]
    pub target: Option<PathBuf>,
    /// Keep nothing of damaged files. By default what is good of a file is written as `NAME.damaged`
    #[arg(long, conflicts_with = "tensor")]
    pub no_damaged: bool,
    /// Restore only this tensor; exactly one model must have it. The array of a .npy file is called `array`
    #[arg(long, value_name = "NAME")]
    pub tensor: Option<String>,
    /// Model that has the tensor, or a directory with that model: a path in the snapshot, as `ls` prints it
    #[arg(long, value_name = "FILE", requires = "tensor", conflicts_with_all = ["target", "no_damaged"])]
    pub path: Option<PathBuf>,
    /// File to write the tensor to, .safetensors or .npy [default: a .safetensors file named after the tensor]
    #[arg(long, value_name = "FILE", requires = "tensor", conflicts_with_all = ["target", "no_damaged"])]
    pub output: Option<PathBuf>,
}

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub struct LsArguments {
    /// Snapshot id, unique prefix, or `latest`
    #[arg(value_name = "SNAPSHOT")]
    pub id: String,
    /// List only this entry and the entries below it
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Show type, permissions, owner, size and time
    #[arg(short, long)]
    pub long: bool,
}

const COLUMNS: &str = "\
Columns:
  type    element type of most bytes
  params  number of values in all tensors
  family  root of the model's family tree
  base    nearest of the models that it is stored against
  bits    bit distance from the base: mean number of differing bits per value, estimated from samples
  kind    how the model is stored against its base: `delta`, as the difference; `cast`, as rounded
          values of a wider type; `same`, as a copy of the same content
  stored  bytes of its chunks in the repository";

/// The snapshots whose models are listed.
#[derive(Debug, Args)]
pub struct SnapshotChoice {
    /// Snapshot id, unique prefix, or `latest` (default)
    #[arg(value_name = "SNAPSHOT")]
    pub id: Option<String>,
    /// List the models of all snapshots; each content once, at its latest path
    #[arg(long, conflicts_with = "id")]
    pub all: bool,
}

/// Arguments of `models`.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub struct ModelsArguments {
    /// The snapshots to look at.
    #[command(flatten)]
    pub snapshots: SnapshotChoice,
}

/// Arguments of `lineage`.
#[derive(Debug, Args)]
pub struct LineageArguments {
    /// The snapshots to look at.
    #[command(flatten)]
    pub snapshots: SnapshotChoice,
    /// Print a graph in Graphviz's DOT language
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
}

/// Arguments of `distance`.
#[derive(Debug, Args)]
pub struct DistanceArguments {
    /// First model: a file, or SNAPSHOT:PATH for a model in the repository
    #[arg(value_name = "MODEL")]
    pub first: String,
    /// Second model
    #[arg(value_name = "MODEL")]
    pub second: String,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// Snapshot id, unique prefix, or `latest` [default: the whole repository]
    #[arg(value_name = "SNAPSHOT")]
    pub id: Option<String>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Also read, decode and verify all data, not only the metadata
    #[arg(long)]
    pub read_data: bool,
}

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// Files and directories to split into chunks, by the keys `repository.*` of the configuration
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// New file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `bench`.
#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Measurements; the key `kind` selects what runs
    #[arg(value_name = "CONFIG.TOML", required = true)]
    pub files: Vec<PathBuf>,
    /// Directory for result.json, report.html and histograms; several measurements get a subdirectory each
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The result.json of a previous run: ratios must be equal, and speeds are compared within the noise
    #[arg(long, value_name = "RESULT.JSON", conflicts_with = "dry_run")]
    pub against: Option<PathBuf>,
    /// Print what would run and which data is missing, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_accepts_the_definitions() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_can_follow_the_verb_and_each_tag_takes_one_value() {
        let line = ["fhrd", "backup", "--tag", "a", "x", "--tag=b", "y", "--repo", "r", "-vv"];
        let arguments = Arguments::try_parse_from(line).unwrap();
        assert_eq!((arguments.options.verbose, arguments.options.repo), (2, Some("r".into())));
        let Verb::Backup(backup) = arguments.verb else { panic!("{:?}", arguments.verb) };
        assert_eq!((backup.tags, backup.paths), (vec!["a".into(), "b".into()], vec!["x".into(), "y".into()]));
        assert!(Arguments::try_parse_from(["fhrd", "backup"]).is_err());
    }
}
