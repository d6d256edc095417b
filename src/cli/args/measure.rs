//! Arguments of the verbs that measure.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// Files and directories to split into chunks, as the keys `repository.*` of the configuration say
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
    /// Directory for result.json, report.html and histograms; of several measurements, each has a subdirectory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Skip measurements that have a result.json below DIR. Rows that another build, configuration or machine
    /// measured say so
    #[arg(long, requires = "out", conflicts_with = "dry_run")]
    pub keep: bool,
    /// The result.json of a previous run: ratios must be equal, and speeds must agree within the noise
    #[arg(long, value_name = "RESULT.JSON", conflicts_with = "dry_run")]
    pub against: Option<PathBuf>,
    /// Only show what would run and which data is missing
    #[arg(long)]
    pub dry_run: bool,
}
