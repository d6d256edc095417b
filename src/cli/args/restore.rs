//! Arguments of `restore`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::restore::Overwrite;

/// Patterns of `restore`.
#[derive(Debug, Default, Args)]
#[group(conflicts_with = "tensor")]
pub struct RestorePatterns {
    /// Restore only entries that match this pattern, with what is below them; can be given several times. Patterns see
    /// the snapshot as a file system of its own: /src names the entry `src` of it
    #[arg(short, long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// The same, whatever the case of letters
    #[arg(long, value_name = "PATTERN")]
    pub iinclude: Vec<String>,
    /// The same with patterns from a file, one a line
    #[arg(long, value_name = "FILE")]
    pub include_file: Vec<PathBuf>,
    /// The same, whatever the case of letters
    #[arg(long, value_name = "FILE")]
    pub iinclude_file: Vec<PathBuf>,
    /// Leave out entries that match this pattern; can be given several times
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// The same, whatever the case of letters
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<String>,
    /// The same with patterns from a file, one a line
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<PathBuf>,
    /// The same, whatever the case of letters
    #[arg(long, value_name = "FILE")]
    pub iexclude_file: Vec<PathBuf>,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Snapshot id, unique prefix, or `latest`. SNAPSHOT:PATH restores what is in that directory, or that
    /// file, into the target
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub entry: OsString,
    /// Directory to write into, for example / to restore in place [default: a new directory fhrd-restore-ID]
    #[arg(long, value_name = "DIR", conflicts_with = "tensor")]
    pub target: Option<PathBuf>,
    /// Restore only this entry and what is below it: a path in the snapshot, as `ls` prints it; can be given several
    /// times. With --tensor: the model that has the tensor, or a directory with that model
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Which of them to restore.
    #[command(flatten)]
    pub patterns: RestorePatterns,
    /// Delete what the snapshot does not have, in directories that it has whole, once everything is restored. Nothing
    /// is deleted that the backup or this restore leaves out, nor if something could not be restored
    #[arg(long, conflicts_with = "tensor")]
    pub delete: bool,
    /// Which existing entries to replace if they differ: `never`; `if-changed`, if size or time differ; `if-newer`, if
    /// they are older than in the snapshot; `always`, also if only the content differs [default: never]
    #[arg(long, value_name = "WHICH", conflicts_with = "tensor")]
    pub overwrite: Option<Overwrite>,
    /// Show what would be done and change nothing; -v names each entry
    #[arg(long, conflicts_with = "tensor")]
    pub dry_run: bool,
    /// Compare all content with the snapshot afterwards
    #[arg(long, conflicts_with_all = ["tensor", "dry_run"])]
    pub verify: bool,
    /// Wait until everything is on disk; each file before it gets its name
    #[arg(long, conflicts_with = "tensor")]
    pub sync: bool,
    /// Keep nothing of damaged files. By default what is good of a file is written as `NAME.damaged`
    #[arg(long, conflicts_with = "tensor")]
    pub no_damaged: bool,
    /// Restore only this tensor; exactly one model must have it. The array of a .npy file is called `array`
    #[arg(long, value_name = "NAME")]
    pub tensor: Option<String>,
    /// File to write the tensor to, .safetensors or .npy [default: a .safetensors file named after the tensor]
    #[arg(long, value_name = "FILE", requires = "tensor", conflicts_with_all = ["target", "no_damaged"])]
    pub output: Option<PathBuf>,
}
