//! Arguments of the verbs around measurements.

use std::ffi::OsString;
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

/// Arguments of `bench`, which the program `fhrd-bench` parses.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct ProgramArguments {
    /// Measurements and options of the program `fhrd-bench`, as `fhrd bench --help` describes them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub given: Vec<OsString>,
}
