//! Arguments of `backup`.

use std::ffi::OsString;
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::Args;

use super::MetricsArguments;
use super::exclude::ExcludeArguments;
use super::runs::CheckpointArguments;
use super::values::parse_bytes;
use crate::config::{OpenStreams, WorkShare};
use crate::repo::tags::checked_new_tags;

const PATTERNS: &str = "\
Patterns have the syntax of .gitignore files. `*` and `?` match within a name, `**` matches any directories,
`[a-z]` a character of a class, `{a,b}` either pattern, and `\\` escapes a character. A pattern that ends in `/`
matches directories only. A pattern that begins with `/` matches the absolute path; any other matches at any
depth. `!PATTERN` keeps what an earlier pattern excludes: the last matching pattern decides. Patterns of
--exclude come first, then --iexclude, --exclude-file and --iexclude-file. An excluded directory is not read,
so nothing below it can be kept. docs/CHOOSING.md has the details.";

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = PATTERNS)]
pub struct BackupArguments {
    /// Files and directories to store, or the URL of a bucket, as s3://bucket/prefix; with --stdin-from-command, the
    /// command and its arguments
    #[arg(conflicts_with = "stdin", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Tag of the snapshot, or several; can be given several times
    #[arg(long = "tag", value_name = "TAG[,TAG]", value_parser = checked_new_tags)]
    pub tags: Vec<String>,
    /// Host name to record [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Time to record: 2026-01-31, "2026-01-31 12:00:00" (both local time) or 2026-01-31T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,
    /// Parent snapshot (id, `latest` or run:NAME@STEP): files unchanged since then are not read [default: by host and
    /// paths]
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "force")]
    pub parent: Option<String>,
    /// Read every file, even if it is unchanged since the parent snapshot
    #[arg(long)]
    pub force: bool,
    /// Back up into nothing: report exactly what a backup would store. It needs as much space in the cache directory
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Use no local caches and write none. More is read, and similar data of previous backups may not be found
    #[arg(long, conflicts_with = "dry_run")]
    pub no_cache: bool,
    /// How much to compress: `default`, or `archive`, which is slow and makes code, text and databases much smaller
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "default", hide_possible_values = true)]
    pub level: BackupLevel,
    /// Which compressed files are stored as what they unpack to, so that their versions share it: `auto`, `always`
    /// or `never`
    #[arg(long, value_name = "WHICH", value_parser = open_streams)]
    pub open: Option<OpenStreams>,
    /// Print the work and waiting time of each stage
    #[arg(long)]
    pub stats: bool,
    /// The step of a training run that is stored.
    #[command(flatten)]
    pub checkpoint: CheckpointArguments,
    /// What to leave out.
    #[command(flatten)]
    pub choice: ChoiceArguments,
    /// Where paths or content come from.
    #[command(flatten)]
    pub input: InputArguments,
    /// The share of the work.
    #[command(flatten)]
    pub share: ShareArguments,
    /// Where metrics go.
    #[command(flatten)]
    pub metrics: MetricsArguments,
}

/// The share of the work that this process does.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Work split among processes")]
pub struct ShareArguments {
    /// Store only share I of N: families of models fall together. N processes with the shares 1/N to N/N store all.
    /// With --dry-run, show how the files are split, and read none
    #[arg(long, value_name = "I/N")]
    pub shard: Option<WorkShare>,
    /// Name of the job: `snapshots --group NAME` lists its snapshots, and says whether each share is there
    #[arg(long, value_name = "NAME", requires = "shard")]
    pub group: Option<String>,
    /// With --dry-run, split by bytes, the largest family first, and write the list of objects of each share into this
    /// directory, for --share-list
    #[arg(long, value_name = "DIRECTORY", requires_all = ["shard", "dry_run"])]
    pub write_share_lists: Option<PathBuf>,
    /// Store what is in the list of this share, and list no bucket
    #[arg(long, value_name = "FILE", requires = "shard", conflicts_with = "dry_run")]
    pub share_list: Option<PathBuf>,
}

fn open_streams(name: &str) -> Result<OpenStreams, String> {
    OpenStreams::from_name(name).ok_or_else(|| "it must be auto, always or never".into())
}

/// How much `backup` compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BackupLevel {
    /// As the configuration says
    Default,
    /// Level 19 of zstd, in long frames
    Archive,
}

/// What to leave out.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Choosing")]
pub struct ChoiceArguments {
    /// Patterns.
    #[command(flatten)]
    pub exclude: ExcludeArguments,
    /// Leave out everything beside a file of this name, if it begins with HEADER; the file itself is stored
    #[arg(long, value_name = "NAME[:HEADER]")]
    pub exclude_if_present: Vec<OsString>,
    /// Leave out everything beside a CACHEDIR.TAG with a valid signature
    #[arg(long)]
    pub exclude_caches: bool,
    /// Leave out files larger than this: 100MB is 100 x 1000 x 1000 bytes, 100MiB is 100 x 1024 x 1024
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub exclude_larger_than: Option<ByteSize>,
    /// Obey the patterns in files of this name, such as .gitignore, in their own directories
    #[arg(long, value_name = "NAME")]
    pub ignore_file: Vec<OsString>,
    /// Stay on the file system of each path; mount points and btrfs subvolumes are stored as empty directories
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Store the time of the last access of each entry
    #[arg(long)]
    pub with_atime: bool,
    /// Store what symbolic links lead to, in place of the links
    #[arg(long)]
    pub dereference: bool,
    /// Store the content of devices and named pipes among the given paths, and of links to them, as regular files
    #[arg(long)]
    pub read_special: bool,
    /// Read holes of sparse files, too, and store them as zeros: for file systems that report holes where data is
    #[arg(long)]
    pub read_holes: bool,
}

/// Where paths or content come from.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Input")]
pub struct InputArguments {
    /// Also store the paths listed in a file, one per line, not patterns; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stdin", "stdin_from_command"])]
    pub files_from: Vec<PathBuf>,
    /// Like --files-from, but each path ends with a NUL byte, as `find -print0` prints them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stdin", "stdin_from_command"])]
    pub files_from0: Vec<PathBuf>,
    /// Store the only path given as if it were at PATH: a snapshot of a file system as the live one. Parents are found
    /// and patterns match as if it were there
    #[arg(long, value_name = "PATH", conflicts_with_all = ["stdin", "stdin_from_command"])]
    pub as_path: Option<PathBuf>,
    /// Server of the bucket that is stored, if it is not the service's own. Variables such as
    /// FHRD_SOURCE_AWS_ACCESS_KEY_ID give its credentials; see docs/REMOTE.md
    #[arg(long, value_name = "URL", env = "FHRD_SOURCE_ENDPOINT")]
    pub source_endpoint: Option<String>,
    /// Store standard input as one file
    #[arg(long, conflicts_with = "stdin_from_command")]
    pub stdin: bool,
    /// Store the standard output of a command as one file: `--stdin-from-command -- COMMAND ARGUMENT...`, or of several
    /// commands of the shell as files with these names. If a command fails, no snapshot is stored
    #[arg(long, value_name = "NAME=COMMAND", num_args = 0..=1, default_missing_value = "")]
    pub stdin_from_command: Vec<OsString>,
    /// Name of this file in the snapshot
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    pub stdin_filename: OsString,
}
