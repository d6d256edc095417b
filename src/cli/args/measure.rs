//! Arguments of the verbs that measure.

use std::path::PathBuf;

use clap::Args;

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
    /// Measurements, or pages of measurements; the key `kind` selects what runs (docs/BENCH.md)
    #[arg(value_name = "CONFIG.TOML", required = true)]
    pub files: Vec<PathBuf>,
    /// Directory for result.json, report.html and histograms; several measurements get a subdirectory each
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Do not measure again what has a result.json below DIR. Rows that another build, configuration or machine
    /// measured say so
    #[arg(long, requires = "out", conflicts_with = "dry_run")]
    pub keep: bool,
    /// The result.json of a previous run: ratios must be equal, and speeds are compared within the noise
    #[arg(long, value_name = "RESULT.JSON", conflicts_with = "dry_run")]
    pub against: Option<PathBuf>,
    /// Print what would run and which data is missing, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}
