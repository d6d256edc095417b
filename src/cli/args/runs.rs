//! Arguments of the verbs about training runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::repo::checkpoint::BestMode;

/// The step of a run that a backup stores.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Checkpoint of a training run")]
pub struct CheckpointArguments {
    /// Name of the run
    #[arg(long, value_name = "NAME", requires = "step")]
    pub run: Option<String>,
    /// Number of the step
    #[arg(long, value_name = "N", requires = "run")]
    pub step: Option<u64>,
    /// Metric of the step; can be given several times
    #[arg(long = "metric", value_name = "NAME=VALUE", value_parser = parse_metric, requires = "run")]
    pub metrics: Vec<(String, f64)>,
}

fn parse_metric(text: &str) -> Result<(String, f64), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, value)| Some((name.to_string(), value.parse().ok()?)));
    parsed.ok_or_else(|| format!("expected NAME=VALUE with a number, such as val_loss=0.31: `{text}`"))
}

/// Arguments of `steps`.
#[derive(Debug, Args)]
pub struct StepsArguments {
    /// Name of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Show, for each tensor, in how many steps it stayed the same
    #[arg(long)]
    pub tensors: bool,
}

/// Which value is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeValue {
    /// The smallest value
    Min,
    /// The largest value
    Max,
}

impl From<ModeValue> for BestMode {
    fn from(value: ModeValue) -> Self {
        match value {
            ModeValue::Min => BestMode::Min,
            ModeValue::Max => BestMode::Max,
        }
    }
}

/// Arguments of `best`.
#[derive(Debug, Args)]
pub struct BestArguments {
    /// Name of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// The metric to compare
    #[arg(long, value_name = "NAME")]
    pub metric: String,
    /// Which value is best
    #[arg(long, value_name = "MODE", default_value = "min")]
    pub mode: ModeValue,
    /// Restore the step into this directory
    #[arg(long, value_name = "DIR")]
    pub restore: Option<PathBuf>,
}
