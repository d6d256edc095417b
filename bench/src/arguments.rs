//! The command line of `fhrd bench`. The doc comments are the help texts.

use std::path::PathBuf;

use clap::{Args, Command, CommandFactory, Parser, Subcommand};
use fhrd::cli::Options;

/// The measurements of fhrd; `fhrd bench` runs this program
#[derive(Debug, Parser)]
// The options of every verb come behind those of `bench` in the help, as for every verb of `fhrd`.
#[command(name = "fhrd", bin_name = "fhrd", version, propagate_version = true, next_display_order = 100)]
pub struct CommandLine {
    /// The verb, which is `bench`.
    #[command(subcommand)]
    pub verb: BenchVerb,
    /// Options of every verb.
    #[command(flatten)]
    pub options: Options,
}

/// The verb of this program, as `fhrd` passes it on.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// Run measurements described in TOML files
    #[command(after_help = EXAMPLES)]
    Bench(BenchArguments),
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Measurements, or pages of measurements; the key `kind` selects what runs (docs/BENCH.md)
    #[arg(value_name = "CONFIG.TOML", required = true)]
    pub files: Vec<PathBuf>,
    /// Directory for result.json, tables, report.html and histograms; of several measurements, each has a subdirectory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Skip measurements that have a result.json below DIR. Rows that another build, configuration or machine
    /// measured say so
    #[arg(long, requires = "out", conflicts_with = "dry_run")]
    pub keep: bool,
    /// The result.json of a previous run: ratios must be equal, and speeds must agree within the noise
    #[arg(long, value_name = "RESULT.JSON", conflicts_with = "dry_run")]
    pub against: Option<PathBuf>,
    /// Write a page although its data are not those that its manifests pin. Its rows name the files
    #[arg(long, conflicts_with = "dry_run")]
    pub other_data: bool,
    /// Only show what would run and which data is missing
    #[arg(long)]
    pub dry_run: bool,
}

const EXAMPLES: &str = "Examples:\n  fhrd bench configs/bench/quick.toml --out report\n      a quick comparison";

/// The command line.
pub fn command() -> Command {
    CommandLine::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definitions_and_the_example() {
        command().debug_assert();
        let example = EXAMPLES.lines().find_map(|line| line.strip_prefix("  fhrd ")).unwrap();
        let CommandLine { verb: BenchVerb::Bench(arguments), .. } =
            CommandLine::try_parse_from(["fhrd"].into_iter().chain(example.split(' '))).unwrap();
        assert_eq!(arguments.out, Some("report".into()));
    }
}
