//! Arguments of the verbs for models.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

const COLUMNS: &str = "\
Columns:
  type    element type of most bytes
  params  number of values in all tensors
  family  root of the model's family tree
  base    nearest of the models that the model is stored against
  bits    bit distance from the base: mean number of differing bits per value, estimated from samples
  kind    how the model is stored against its base: `delta`, as the difference; `cast`, as rounded
          values of a wider type; `same`, as a copy of the same content
  stored  stored size of the chunks of the model

Chunks that several models share count for each of them, also in the sum below the table.";

/// The snapshots whose models are listed.
#[derive(Debug, Args)]
pub struct SnapshotChoice {
    /// Snapshot id, unique prefix, or `latest` (default); with a path, only models there
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub id: Option<OsString>,
    /// Include the models of all snapshots; models with the same content once, at their latest path
    #[arg(long, conflicts_with = "id")]
    pub all: bool,
}

/// Orders of models. All but the first begin with the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModelOrder {
    /// By path, or by name of the family
    Path,
    /// By size
    Size,
    /// By stored size
    Stored,
    /// By number of parameters
    Params,
    /// By distance from the base
    Bits,
}

/// Arguments of `models`.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub struct ModelsArguments {
    /// The snapshots to look at.
    #[command(flatten)]
    pub snapshots: SnapshotChoice,
    /// Only models of this family, as the column names it
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Order of the list; all but `path` begin with the largest
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<ModelOrder>,
    /// Only the first N
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Show a line for each family instead of each model
    #[arg(long)]
    pub families: bool,
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
