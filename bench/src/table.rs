//! Tables of comparisons. Columns are fixed so that two runs can be compared side by side. A case that failed is a
//! line, too.

use std::collections::BTreeMap;
use std::io::Write;

use fhrd::error::{Error, Result};
use serde::Serialize;

use super::comparison::{Case, Parameter};
use super::data::{HeldFiles, SetSource};

/// Result of a case on a set.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonLine<F> {
    /// Name of the set.
    pub set: String,
    /// Name of the scheme.
    pub scheme: String,
    /// Parameters that distinguish it from other lines of the set and scheme.
    pub parameters: BTreeMap<String, Parameter>,
    /// What the set holds, if it is a mixture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldFiles>,
    /// Average chunk length.
    pub chunk_bytes: u64,
    /// Error message if the measurement failed.
    pub failure: Option<String>,
    /// Measurements, if the case did not fail.
    #[serde(flatten)]
    pub measurements: Option<F>,
}

impl<F> ComparisonLine<F> {
    /// Summarises the rounds of `case`, or records its error.
    pub fn new<T>(
        source: &SetSource,
        case: &Case,
        outcome: Result<Vec<T>, String>,
        summarise: impl FnOnce(&[T]) -> F,
    ) -> Self {
        let of_set = source.parameters.iter().map(|(name, value)| (name.clone(), Parameter::Number(*value as f64)));
        ComparisonLine {
            set: source.name.clone(),
            scheme: case.scheme.clone(),
            parameters: case.parameters.clone().into_iter().chain(of_set).collect(),
            held: source.held,
            chunk_bytes: case.config.repository.chunk_bytes_avg.0,
            failure: outcome.as_ref().err().cloned(),
            measurements: outcome.ok().map(|samples| summarise(&samples)),
        }
    }

    /// The scheme with its parameters.
    pub fn label(&self) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| format!(" {name} {value}"));
        std::iter::once(self.scheme.clone()).chain(parameters).collect()
    }

    /// All cells: set, scheme, chunk length, and the measurements or the error.
    pub fn row(&self, cells: impl FnOnce(&F) -> Vec<String>) -> Vec<String> {
        let failed = || vec![format!("FAILED: {}", self.failure.as_deref().unwrap_or_default())];
        let measurements = self.measurements.as_ref().map_or_else(failed, cells);
        [self.set.clone(), self.label(), kib(self.chunk_bytes)].into_iter().chain(measurements).collect()
    }

    /// Writes the cells of the measurements after the chunk length, or the error.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, out: &mut dyn Write, cells: impl FnOnce(&F) -> Vec<String>) -> Result<()> {
        let failed = || vec![format!(" FAILED: {}", self.failure.as_deref().unwrap_or_default())];
        let mut line = vec![kib(self.chunk_bytes)];
        line.extend(self.measurements.as_ref().map_or_else(failed, cells));
        write_line(out, &self.set, &self.label(), &line)
    }
}

/// Writes a line: set and scheme, then values or titles, right-aligned.
///
/// # Errors
/// [`Error::Io`].
pub fn write_line<T: AsRef<str>>(out: &mut dyn Write, set: &str, scheme: &str, cells: &[T]) -> Result<()> {
    let numbers: String = cells.iter().map(|cell| format!(" {:>9}", cell.as_ref())).collect();
    writeln!(out, "{set:<24} {scheme:<28}{numbers}").map_err(failed)
}

/// Flushes the output, because a comparison can take hours.
///
/// # Errors
/// [`Error::Io`].
pub fn flush(out: &mut dyn Write) -> Result<()> {
    out.flush().map_err(failed)
}

fn failed(error: std::io::Error) -> Error {
    Error::io("write", "the table", error)
}

/// Megabytes with one decimal.
pub fn mb(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// KiB, with one decimal if it is not a whole number.
fn kib(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { (bytes >> 10).to_string() } else { format!("{:.1}", bytes as f64 / 1024.0) }
}

/// A number with two decimals.
pub fn two(value: f64) -> String {
    format!("{value:.2}")
}

/// The formatted value, or a dash.
pub fn or_dash(value: Option<f64>, show: impl FnOnce(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Comparison;

    fn line(outcome: Result<Vec<u64>, String>) -> ComparisonLine<u64> {
        let text = "kind = \"schemes\"\ncorpus = \"\"\nwork = \"\"\nchunk_bytes = [1536]\nsets = [\"a\"]\n\
            [[scheme]]\nname = \"none\"\n";
        let cases = Comparison::parse(text, "x".as_ref()).unwrap().cases;
        let source = SetSource { name: "code".into(), paths: Vec::new(), parameters: BTreeMap::new(), held: None };
        ComparisonLine::new(&source, &cases[0], outcome, |samples| samples[0])
    }

    #[test]
    fn columns_are_aligned() {
        let mut out = Vec::new();
        write_line(&mut out, "set", "scheme", &["KiB", "MB"]).unwrap();
        line(Ok(vec![12_340_000])).write(&mut out, |bytes| vec![mb(*bytes)]).unwrap();
        let row = |cells: [&str; 4]| {
            let [set, scheme, first, second] = cells;
            format!("{set:<24} {scheme:<28} {first:>9} {second:>9}\n")
        };
        let expected = row(["set", "scheme", "KiB", "MB"]) + &row(["code", "none", "1.5", "12.3"]);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(
            (or_dash(None, two), or_dash(Some(1.234), two), kib(65536)),
            ("-".into(), "1.23".into(), "64".into())
        );
    }

    #[test]
    fn a_failure_is_a_line_with_its_error() {
        let line = line(Err("x was restored with other content at byte 3".into()));
        let mut out = Vec::new();
        line.write(&mut out, |_| Vec::new()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("      1.5  FAILED: x was restored with other content at byte 3\n"), "{text}");
        let measurements =
            serde_json::to_value(ComparisonLine { measurements: Some(BTreeMap::from([("stored", 1)])), ..named() })
                .unwrap();
        assert!(measurements["failure"].is_null() && measurements["stored"] == 1, "{measurements}");
    }

    fn named() -> ComparisonLine<BTreeMap<&'static str, u64>> {
        let (set, scheme, parameters) = ("code".into(), "none".into(), BTreeMap::new());
        ComparisonLine { set, scheme, parameters, held: None, chunk_bytes: 1, failure: None, measurements: None }
    }
}
