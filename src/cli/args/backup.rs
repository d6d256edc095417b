//! Arguments of `backup`.

use std::path::PathBuf;

use clap::Args;

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
