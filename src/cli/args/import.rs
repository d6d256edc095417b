//! Arguments of `import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

const IMPORT_NOTES: &str = "\
restic restores each snapshot, oldest first, into a directory, from which it is backed up. So restic itself is needed,
and room for the largest snapshot. It finds its password as always: RESTIC_PASSWORD_FILE, RESTIC_PASSWORD or
RESTIC_PASSWORD_COMMAND. Nothing is written into its repository. Each snapshot has the time, host,
paths, tags and files of the original, and is compared with it; one that differs is not stored. Run it again to go on:
what is there is not imported twice. Only root can restore owners and devices.";

/// Programs whose snapshots can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFrom {
    /// restic
    Restic,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_NOTES)]
pub struct ImportArguments {
    /// The program that has made the snapshots
    #[arg(long, value_enum)]
    pub from: ImportFrom,
    /// Its repository, as its option -r takes it
    #[arg(value_name = "REPOSITORY")]
    pub repository: String,
    /// The program to run
    #[arg(long, value_name = "FILE", default_value = "restic")]
    pub program: PathBuf,
    /// Directory for restored files [default: in the cache directory]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Only show what would be imported
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}
