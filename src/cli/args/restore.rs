//! Arguments of `restore`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::exclude::ExcludeArguments;
use super::values::{overwrite_names, parse_price};
use crate::repo::tags::checked_tag_list;
use crate::restore::Overwrite;

/// What to restore by its path.
#[derive(Debug, Default, Args)]
#[group(conflicts_with = "tensor")]
pub struct IncludeArguments {
    /// Restore only entries that match this pattern and everything below them; can be given several times. A leading /
    /// is the root of the snapshot: /src matches the entry `src` there
    #[arg(short, long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Like --include, but ignore case
    #[arg(long, value_name = "PATTERN")]
    pub iinclude: Vec<String>,
    /// Like --include with patterns from a file, one per line
    #[arg(long, value_name = "FILE")]
    pub include_file: Vec<PathBuf>,
    /// Like --include-file, but ignore case
    #[arg(long, value_name = "FILE")]
    pub iinclude_file: Vec<PathBuf>,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Snapshot: id, unique prefix, or `latest`. SNAPSHOT:PATH restores the content of this directory, or this file,
    /// into the target
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub entry: OsString,
    /// Directory to write into, or the URL of a bucket, as s3://bucket/prefix; / restores absolute paths in place
    /// [default: a new directory fhrd-restore-ID]
    #[arg(long, value_name = "DIR", conflicts_with = "tensor")]
    pub target: Option<PathBuf>,
    /// Server of the bucket that is written to, if it is not the service's own. Variables such as
    /// FHRD_SOURCE_AWS_ACCESS_KEY_ID give its credentials; see docs/REMOTE.md
    #[arg(long, value_name = "URL", env = "FHRD_SOURCE_ENDPOINT")]
    pub target_endpoint: Option<String>,
    /// Restore only this entry and everything below it: a path in the snapshot, as `ls` prints it; can be given several
    /// times. With --tensor: the model that has the tensor, or a directory with this model
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Which of them to restore.
    #[command(flatten)]
    pub include: IncludeArguments,
    /// Which of them to leave out.
    #[command(flatten)]
    pub exclude: ExcludeArguments,
    /// `latest` is the last snapshot of this host; can be given several times
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// `latest` is the last snapshot with this tag, or with all of TAG,TAG; if given several times, with any
    #[arg(long = "tag", value_name = "TAG[,TAG]", value_parser = checked_tag_list)]
    pub tags: Vec<String>,
    /// Afterwards, delete entries that the snapshot does not have. What the backup or this restore has left out stays,
    /// and nothing is deleted in directories stored in part, or if something could not be restored. Immutable and
    /// append-only entries go, too, with a warning for each
    #[arg(long, conflicts_with = "tensor")]
    pub delete: bool,
    /// Which existing entries to replace: `never`; `if-changed`, if size or time differ; `if-newer`, if the one in the
    /// snapshot is newer; `always`, also if only the content differs [default: never]. Directories that are there get
    /// the stored metadata in any case
    #[arg(long, value_name = "WHICH", conflicts_with = "tensor", value_parser = overwrite_names())]
    #[arg(hide_possible_values = true)]
    pub overwrite: Option<Overwrite>,
    /// Show what would be done and change nothing; -v names each entry
    #[arg(short = 'n', long, conflicts_with = "tensor")]
    pub dry_run: bool,
    /// With --dry-run: list the data containers that the restore reads, with their bytes
    #[arg(long, requires = "dry_run", conflicts_with = "tensor")]
    pub list_containers: bool,
    /// With --list-containers: also say what so many bytes cost at this price per GiB
    #[arg(long, value_name = "PRICE", requires = "list_containers", value_parser = parse_price)]
    pub price_per_gib: Option<f64>,
    /// First ask for the data that is in cold storage, and wait for it. A restore that was stopped goes on if it is run
    /// again
    #[arg(long, conflicts_with_all = ["tensor", "dry_run"])]
    pub thaw: bool,
    /// Days for which what --thaw asks for can be read
    #[arg(long, value_name = "DAYS", requires = "thaw", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub thaw_days: u32,
    /// How fast it comes, in the words of the service: Expedited, Standard or Bulk
    #[arg(long, value_name = "TIER", requires = "thaw", default_value = "Standard", value_parser = ["Expedited", "Standard", "Bulk"])]
    #[arg(hide_possible_values = true)]
    pub thaw_tier: String,
    /// Shell command that asks for it in place of fhrd and waits, for servers that have other requests than S3. It gets
    /// the names of the containers below the repository on standard input, one a line
    #[arg(long, value_name = "COMMAND", requires = "thaw")]
    pub thaw_command: Option<OsString>,
    /// Compare all content, and the metadata that this user can set, with the snapshot afterwards
    #[arg(long, conflicts_with_all = ["tensor", "dry_run"])]
    pub verify: bool,
    /// Wait until everything is on disk; a file gets its name only when its content is on disk
    #[arg(long, conflicts_with = "tensor")]
    pub sync: bool,
    /// Keep nothing of damaged files. By default the good parts of a file are written as `NAME.damaged`
    #[arg(long, conflicts_with = "tensor")]
    pub no_damaged: bool,
    /// Restore only this tensor; exactly one model must have it. The array of a .npy file is called `array`
    #[arg(long, value_name = "NAME", conflicts_with = "exclusions")]
    pub tensor: Option<String>,
    /// File to write the tensor to, .safetensors or .npy [default: a .safetensors file named after the tensor]
    #[arg(long, value_name = "FILE", requires = "tensor", conflicts_with_all = ["target", "no_damaged"])]
    pub output: Option<PathBuf>,
}
