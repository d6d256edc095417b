//! The patterns of what `backup`, `estimate`, `restore` and `rewrite` leave out.

use std::path::PathBuf;

use clap::Args;

/// What to leave out by its path. In a snapshot a leading `/` is the root of it.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "exclusions", multiple = true)]
pub struct ExcludeArguments {
    /// Leave out entries that match this pattern; like most options here, it can be given several times
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Like --exclude, but ignore case
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<String>,
    /// Read patterns from a file, one per line; lines that begin with `#` are comments
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<PathBuf>,
    /// Like --exclude-file, but ignore case
    #[arg(long, value_name = "FILE")]
    pub iexclude_file: Vec<PathBuf>,
}
