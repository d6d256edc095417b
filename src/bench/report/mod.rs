//! What a measurement gives besides its table on the terminal: a JSON document, histograms, and a page with plots.

mod html;
mod machine;
mod percentiles;
mod pictures;
mod plot;
mod write;

pub use machine::Machine;
pub use pictures::pictures;
pub use plot::{Plot, Scale, Scales};
pub use write::{ReportDocument, claims_page, write};

use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::metrics::StageMetrics;

/// What a measurement found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What it is called.
    pub title: String,
    /// Every line of its tables, as an object each.
    pub lines: Vec<Value>,
    /// Lines that failed.
    pub failures: usize,
    /// Its tables.
    pub grids: Vec<Grid>,
    /// Pictures of them.
    pub plots: Vec<Plot>,
    /// What the stages did.
    pub profiles: Vec<Profile>,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// What stands above it.
    pub title: String,
    /// Titles of its columns.
    pub columns: Vec<String>,
    /// Cells; as many as columns, or fewer.
    pub rows: Vec<Vec<String>>,
}

/// What the stages of a run did.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Which run, such as `code, default, backup`.
    pub name: String,
    /// Its stages in order, all rounds together.
    pub stages: Vec<StageMetrics>,
}

/// Lines as objects.
///
/// # Errors
/// [`Error::Internal`] for what JSON cannot hold.
pub fn objects(lines: &[impl Serialize]) -> Result<Vec<Value>> {
    let object =
        |line| serde_json::to_value(line).map_err(|error| Error::internal(format!("cannot report a line: {error}")));
    lines.iter().map(object).collect()
}
