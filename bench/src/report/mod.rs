//! Reports of measurements: a JSON document, histograms, tables in Markdown, and a page with plots.

mod html;
mod machine;
mod markdown;
mod percentiles;
mod pictures;
mod plot;
mod plot_density;
mod plot_graph;
mod plot_heat;
mod plot_strips;
mod write;

pub use machine::Machine;
pub use pictures::pictures;
pub use plot::{Plot, Scale, Scales};
pub use plot_density::{Bins, HistogramPlot, Violins, quantile};
pub use plot_graph::GraphPlot;
pub use plot_heat::HeatMap;
pub use plot_strips::Strips;
pub use write::{ReportDocument, claims_page, claims_table, write};

use fhrd::error::{Error, Result};
use fhrd::metrics::StageMetrics;
use serde::Serialize;
use serde_json::Value;

/// Results of a measurement.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Title of the report.
    pub title: String,
    /// Every line of its tables as a JSON object.
    pub lines: Vec<Value>,
    /// Number of lines that failed.
    pub failures: usize,
    /// Its tables.
    pub grids: Vec<Grid>,
    /// Its plots.
    pub plots: Vec<Plot>,
    /// Metrics of the stages of each run.
    pub profiles: Vec<Profile>,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// Heading of the table.
    pub title: String,
    /// Titles of the columns.
    pub columns: Vec<String>,
    /// Cells of each row; a row can have fewer cells than columns.
    pub rows: Vec<Vec<String>>,
}

/// Metrics of the stages of a run.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name of the run, such as `code, default, backup`.
    pub name: String,
    /// The stages in order, all rounds together.
    pub stages: Vec<StageMetrics>,
}

/// Lines as JSON objects.
///
/// # Errors
/// [`Error::Internal`] if a line cannot be serialised.
pub fn objects(lines: &[impl Serialize]) -> Result<Vec<Value>> {
    let object =
        |line| serde_json::to_value(line).map_err(|error| Error::internal(format!("cannot report a line: {error}")));
    lines.iter().map(object).collect()
}
