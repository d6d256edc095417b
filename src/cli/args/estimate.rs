//! Arguments of `estimate`.

use std::path::PathBuf;

use clap::Args;

use super::backup::ChoiceArguments;
use super::values::parse_grace;

const ESTIMATE_NOTES: &str = "\
It backs up a part of the files into a temporary repository in the cache directory, and extrapolates. Of a source above
1 GiB it reads at most 1 GiB, or 5 % above 20 GiB. A smaller one is read whole if half of the time suffices, and what is
said of it is true. No repository is needed. If there is one with snapshots of these paths, it
also says what a further backup has added. `backup --dry-run` says exactly what the next backup would add.";

/// Arguments of `estimate`.
#[derive(Debug, Args)]
#[command(after_help = ESTIMATE_NOTES)]
pub struct EstimateArguments {
    /// Paths to look at
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// End after this time, such as 60s or 10min, with what was read by then
    #[arg(long, value_name = "DURATION", value_parser = parse_grace, default_value = "60s")]
    pub time: jiff::SignedDuration,
    /// What to leave out.
    #[command(flatten)]
    pub choice: ChoiceArguments,
}
