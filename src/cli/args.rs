//! Every verb and every flag of `fhrd`, as one table.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

/// Data-reduction backup engine for source code, images, databases and machine-learning models.
#[derive(Debug, Parser)]
#[command(name = "fhrd", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// What every verb takes.
    #[command(flatten)]
    pub options: Options,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed, or a restore that could not write every entry
  2    the command line makes no sense
  3    the backup or trace is complete but for entries that could not be read
  10   no repository there
  20   the repository is damaged
  130  interrupted";

/// What every verb takes.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The repository; without it, the one in the user's data directory
    #[arg(long, global = true, value_name = "DIR", env = "FHRD_REPO")]
    pub repo: Option<PathBuf>,
    /// Parameters of every stage, as TOML
    #[arg(long, global = true, value_name = "FILE", env = "FHRD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print one JSON document on the standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more on the standard error; twice: everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Say nothing but errors, show no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a repository
    Init,
    /// Store paths as a new snapshot
    Backup(BackupArguments),
    /// Write a snapshot, or one tensor of it, to disk; nothing that exists is overwritten
    Restore(RestoreArguments),
    /// List the snapshots, oldest first
    Snapshots,
    /// List the entries of a snapshot
    Ls(LsArguments),
    /// List the models of a snapshot: their types, what they descend from, what they take
    Models(ModelsArguments),
    /// Show the models of a snapshot, or of all snapshots, as the trees of their families
    Lineage(LineageArguments),
    /// Compare two models bit by bit
    Distance(DistanceArguments),
    /// Show figures of the repository, or of one snapshot
    Stats(StatsArguments),
    /// Verify that everything stored is there and as it was written
    Check(CheckArguments),
    /// Write the chunks of paths as a trace in Destor's text format, which `bench` simulates with
    Trace(TraceArguments),
    /// Run measurements described by TOML files
    Bench(BenchArguments),
}

/// Of `backup`.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Files and directories to store
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Label of the snapshot; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Host to record instead of this machine's name
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Read every file, even those unchanged since the last snapshot
    #[arg(long)]
    pub force: bool,
    /// Print what each stage did and how long it waited
    #[arg(long)]
    pub stats: bool,
}

/// Of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Id of a snapshot, the beginning of one, or `latest`
    #[arg(value_name = "SNAPSHOT")]
    pub id: String,
    /// Folder to write into; without it, a new directory `fhrd-restore-<id>` here
    #[arg(long, value_name = "DIR", conflicts_with = "tensor")]
    pub target: Option<PathBuf>,
    /// Only this tensor, from the one model of the snapshot that has it; the one of a .npy file is called `array`
    #[arg(long, value_name = "NAME")]
    pub tensor: Option<String>,
    /// The model to take the tensor from, or a directory with it: a path within the snapshot, as `ls` prints it
    #[arg(long, value_name = "FILE", requires = "tensor")]
    pub path: Option<PathBuf>,
    /// File to write the tensor to, .safetensors or .npy; without it, one named after the tensor here
    #[arg(long, value_name = "FILE", requires = "tensor")]
    pub output: Option<PathBuf>,
}

/// Of `ls`.
#[derive(Debug, Args)]
pub struct LsArguments {
    /// Id of a snapshot, the beginning of one, or `latest`
    #[arg(value_name = "SNAPSHOT")]
    pub id: String,
    /// Only this entry of the snapshot and what is below it
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Show type, permissions, owner, size and time
    #[arg(short, long)]
    pub long: bool,
}

const COLUMNS: &str = "\
Columns:
  type    type of most bytes
  params  values of all tensors
  family  the first model of those that descend from one another
  base    the nearest of the models that it is stored against
  bits    how far from its base it is: bits in which a value differs from the base's, on average, estimated from samples
  kind    how it is stored against its base: `delta`, as what differs; `cast`, as rounded
          values of a wider type; `same`, as a copy of its content
  stored  bytes that its chunks take in the repository";

/// The snapshots whose models are asked for.
#[derive(Debug, Args)]
pub struct SnapshotChoice {
    /// Id of a snapshot, the beginning of one, or `latest`, which it is without
    #[arg(value_name = "SNAPSHOT")]
    pub id: Option<String>,
    /// Those of all snapshots, each content once, where it was found last
    #[arg(long, conflicts_with = "id")]
    pub all: bool,
}

/// Of `models`.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub struct ModelsArguments {
    /// Which models.
    #[command(flatten)]
    pub snapshots: SnapshotChoice,
}

/// Of `lineage`.
#[derive(Debug, Args)]
pub struct LineageArguments {
    /// Which models.
    #[command(flatten)]
    pub snapshots: SnapshotChoice,
    /// Print a graph in Graphviz's DOT language
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
}

/// Of `distance`.
#[derive(Debug, Args)]
pub struct DistanceArguments {
    /// A model: a file, or SNAPSHOT:PATH for one in the repository
    #[arg(value_name = "MODEL")]
    pub first: String,
    /// The model to compare it with
    #[arg(value_name = "MODEL")]
    pub second: String,
}

/// Of `stats`.
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// Id of a snapshot, the beginning of one, or `latest`; without it, the whole repository
    #[arg(value_name = "SNAPSHOT")]
    pub id: Option<String>,
}

/// Of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Read, decode and verify all data too, not only the metadata
    #[arg(long)]
    pub read_data: bool,
}

/// Of `trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// Files and directories to cut, as `repository.*` of the configuration says
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// File to write, which must not exist; without it, the standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Of `bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// The measurements; the key `kind` of each says which
    #[arg(value_name = "CONFIG.TOML", required = true)]
    pub files: Vec<PathBuf>,
    /// Folder for result.json, report.html and histograms; of several measurements, one below it for each
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The result.json of an earlier run of the same measurement: say whether ratios are the same, which they must be,
    /// and whether speeds agree within the noise
    #[arg(long, value_name = "RESULT.JSON", conflicts_with = "dry_run")]
    pub against: Option<PathBuf>,
    /// Say what would be run and which data is missing, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_may_stand_after_the_verb_and_tags_take_one_word_each() {
        let words = ["fhrd", "backup", "--tag", "a", "x", "--tag=b", "y", "--repo", "r", "-vv"];
        let arguments = Arguments::try_parse_from(words).unwrap();
        assert_eq!((arguments.options.verbose, arguments.options.repo), (2, Some("r".into())));
        let Verb::Backup(backup) = arguments.verb else { panic!("{:?}", arguments.verb) };
        assert_eq!((backup.tags, backup.paths), (vec!["a".into(), "b".into()], vec!["x".into(), "y".into()]));
        assert!(Arguments::try_parse_from(["fhrd", "backup"]).is_err());
    }
}
