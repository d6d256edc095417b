//! What every kind of measurement can do. `experiment.rs` has the table of kinds.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::Result;
use serde_json::Value;

use super::claim::{Claim, Verdict};
use super::report::Report;

/// A measurement as its configuration describes it.
pub trait Measurement {
    /// Claims of papers about its values.
    fn claims(&self) -> &[Claim];

    /// The plan of the measurement.
    fn outline(&self) -> Outline;

    /// Runs the measurement and prints its tables to `out`.
    ///
    /// # Errors
    /// Errors that stop the measurement. Lines that fail are counted in the report.
    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report>;

    /// A verdict on each of its claims, from the lines of its report.
    fn judge(&self, lines: &[Value]) -> Vec<Verdict> {
        self.claims().iter().map(|claim| claim.judge(lines)).collect()
    }
}

/// Plan of a measurement.
pub struct Outline {
    /// One line for each run.
    pub runs: Vec<String>,
    /// Missing data, as far as known without running.
    pub missing: Vec<String>,
}

impl Outline {
    /// The plan with a run for each name of something, called `label`.
    pub fn of<'a>(label: &str, names: impl Iterator<Item = &'a String>, missing: Vec<String>) -> Self {
        Outline { runs: names.map(|name| format!("{label} {name}")).collect(), missing }
    }
}
