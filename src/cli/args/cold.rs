//! Arguments of `cold`.

use clap::{Subcommand, ValueEnum};

/// Whether data containers are in cold storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColdSetting {
    /// They are, or will be.
    On,
    /// They are not.
    Off,
}

const NOTES: &str = "\
Data containers of a cold repository may be in a class of storage that gives them only after hours. Their indexes are
kept as hot blobs of their own, so only `restore` and checks of data read data containers: a backup copies nothing from
what earlier ones stored, and `prune` deletes a data container whole or not at all. Everything else stays hot.
`--storage-class containers=GLACIER` gives new data containers that class in a bucket. Older versions of fhrd can read
the repository and cannot write into it, until this is off again.";

/// What `cold` does.
#[derive(Debug, Subcommand)]
pub enum ColdVerb {
    /// Say that data containers are in cold storage, or that they are not any more
    #[command(after_help = NOTES)]
    Set {
        /// `on` or `off`
        #[arg(value_name = "on|off", hide_possible_values = true)]
        setting: ColdSetting,
    },
    /// Write the hot indexes that are missing or damaged, from containers that can be read
    Add,
}
