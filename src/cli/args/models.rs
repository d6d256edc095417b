//! Arguments of the verbs for models.

use clap::Args;

const COLUMNS: &str = "\
Columns:
  type    element type of most bytes
  params  number of values in all tensors
  family  root of the model's family tree
  base    nearest of the models that the model is stored against
  bits    bit distance from the base: mean number of differing bits per value, estimated from samples
  kind    how the model is stored against its base: `delta`, as the difference; `cast`, as rounded
          values of a wider type; `same`, as a copy of the same content
  stored  stored size of the chunks of the model";

/// The snapshots whose models are listed.
#[derive(Debug, Args)]
pub struct SnapshotChoice {
    /// Snapshot id, unique prefix, or `latest` (default)
    #[arg(value_name = "SNAPSHOT")]
    pub id: Option<String>,
    /// Include the models of all snapshots; models with the same content once, at their latest path
    #[arg(long, conflicts_with = "id")]
    pub all: bool,
}

/// Arguments of `models`.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub struct ModelsArguments {
    /// The snapshots to look at.
    #[command(flatten)]
    pub snapshots: SnapshotChoice,
}

/// Arguments of `lineage`.
#[derive(Debug, Args)]
pub struct LineageArguments {
    /// The snapshots to look at.
    #[command(flatten)]
    pub snapshots: SnapshotChoice,
    /// Print a graph in Graphviz's DOT language
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
}

/// Arguments of `distance`.
#[derive(Debug, Args)]
pub struct DistanceArguments {
    /// First model: a file, or SNAPSHOT:PATH for a file in the repository
    #[arg(value_name = "MODEL")]
    pub first: String,
    /// Second model
    #[arg(value_name = "MODEL")]
    pub second: String,
}
