//! Arguments of the verbs that look into snapshots.

use std::path::PathBuf;

use clap::Args;

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

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// Snapshot id, unique prefix, or `latest` [default: the whole repository]
    #[arg(value_name = "SNAPSHOT")]
    pub id: Option<String>,
}
