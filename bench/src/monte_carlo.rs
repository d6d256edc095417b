//! Expected bit distance of a fine-tune from its base, by simulation (ZipLLM, section 4.3 and figure 12).
//!
//! Weights are normal with deviation `sigma_weight`, changes normal with deviation `sigma_delta`. A weight is rounded
//! to the dtype. So is the sum of the rounded weight and its change. The mean number of bits in which the two differ is
//! the expected bit distance.
//!
//! Besides a line for each pair of deviations, the lines *smallest* and *largest* have the range over all pairs whose
//! `sigma_delta` is above 0.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::claim::Claim;
use super::data::Random;
use super::data::rounding::{brain, half};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, HeatMap, Plot, Report};
use super::table::{flush, two};

/// Configuration of a simulation of bit distances.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonteCarloBench {
    /// `"monte-carlo"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Samples of each pair of deviations.
    #[serde(default = "samples")]
    pub samples: u32,
    /// Seed of all random numbers.
    #[serde(default)]
    pub seed: u64,
    /// Types of the values.
    pub dtypes: Vec<SampledDtype>,
    /// Standard deviations of the weights.
    pub sigma_weight: Vec<f64>,
    /// Standard deviations of the changes.
    pub sigma_delta: Vec<f64>,
    /// Claims of papers about the simulated values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// Type of the simulated values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SampledDtype {
    /// bfloat16.
    #[serde(rename = "BF16")]
    Bf16,
    /// Half precision.
    #[serde(rename = "F16")]
    F16,
}

fn title() -> String {
    "Expected bit distance".into()
}
fn samples() -> u32 {
    100_000
}

impl SampledDtype {
    const fn name(self) -> &'static str {
        match self {
            SampledDtype::Bf16 => "BF16",
            SampledDtype::F16 => "F16",
        }
    }

    /// Number of bits in which a weight and its changed value differ.
    fn distance(self, weight: f64, change: f64) -> u32 {
        match self {
            SampledDtype::Bf16 => {
                let bits = brain(weight as f32);
                let stored = f64::from(f32::from_bits(u32::from(bits) << 16));
                (bits ^ brain((stored + change) as f32)).count_ones()
            }
            SampledDtype::F16 => (half(weight as f32) ^ half((weight + change) as f32)).count_ones(),
        }
    }
}

impl MonteCarloBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: MonteCarloBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let is_deviation = |sigma: &f64| (0.0..=100.0).contains(sigma);
        let deviations = || config.sigma_weight.iter().chain(&config.sigma_delta);
        if config.sigma_weight.is_empty() || config.sigma_delta.is_empty() || !deviations().all(is_deviation) {
            return Err(wrong("`sigma_weight` and `sigma_delta` need at least one number each, from 0 to 100".into()));
        }
        if config.samples == 0 || config.dtypes.is_empty() {
            return Err(wrong("`samples` must be at least 1, and `dtypes` needs a type".into()));
        }
        Ok(config)
    }

    /// Mean distance of one pair of deviations.
    fn expected(&self, dtype: SampledDtype, weight: f64, delta: f64) -> f64 {
        let mut random = Random::of_part(self.seed, &format!("{} {weight} {delta}", dtype.name()));
        let mut sample = || u64::from(dtype.distance(weight * random.normal(), delta * random.normal()));
        (0..self.samples).map(|_| sample()).sum::<u64>() as f64 / f64::from(self.samples)
    }
}

impl Measurement for MonteCarloBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        let runs = self.sigma_weight.iter().map(|sigma| format!("weights of sigma {sigma}")).collect();
        Outline { runs, missing: Vec::new() }
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Simulates every pair of deviations and prints a line for each deviation of the weights.
///
/// # Errors
/// [`Error::Interrupted`].
fn run(config: &MonteCarloBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let mut report = Report { title: config.title.clone(), ..Report::default() };
    let names = |values: &[f64]| values.iter().map(f64::to_string).collect::<Vec<_>>();
    for dtype in &config.dtypes {
        let (mut cells, mut rows, mut range) = (Vec::new(), Vec::new(), (f64::MAX, f64::MIN));
        for weight in &config.sigma_weight {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let of_row: Vec<f64> =
                config.sigma_delta.iter().map(|delta| config.expected(*dtype, *weight, *delta)).collect();
            for (delta, bits) in config.sigma_delta.iter().zip(&of_row) {
                let parameters = json!({"sigma_weight": weight, "sigma_delta": delta});
                let line = json!({"set": dtype.name(), "method": "expected", "parameters": parameters, "bits": bits});
                report.lines.push(line);
                if *delta > 0.0 {
                    range = (range.0.min(*bits), range.1.max(*bits));
                }
            }
            let row: Vec<String> =
                std::iter::once(weight.to_string()).chain(of_row.iter().map(|bits| two(*bits))).collect();
            let text: String = row.iter().map(|cell| format!(" {cell:>7}")).collect();
            writeln!(out, "{}{text}", dtype.name()).map_err(|error| Error::io("write", "the table", error))?;
            cells.push(of_row.into_iter().map(Some).collect());
            rows.push(row);
        }
        for (method, bits) in [("smallest", range.0), ("largest", range.1)] {
            report.lines.push(json!({"set": dtype.name(), "method": method, "bits": bits}));
        }
        let columns = std::iter::once("sigma of weights".to_string()).chain(names(&config.sigma_delta)).collect();
        report.grids.push(Grid { title: format!("{}: bits, by sigma of changes", dtype.name()), columns, rows });
        report.plots.push(Plot::HeatMap(HeatMap {
            title: format!("Expected bit distance, {}", dtype.name()),
            across: "sigma of changes".into(),
            up: "sigma of weights".into(),
            unit: "bits".into(),
            columns: names(&config.sigma_delta),
            rows: names(&config.sigma_weight),
            cells,
        }));
        flush(out)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_grow_with_changes_and_shrink_with_weights() {
        let text = "kind = \"monte-carlo\"\nsamples = 4000\ndtypes = [\"BF16\", \"F16\"]\nsigma_weight = [0.015, 0.05]\n\
            sigma_delta = [0, 0.0005, 0.02]\n";
        let config = MonteCarloBench::parse(text, "x").unwrap();
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let bits = |set: &str, weight: f64, delta: f64| {
            let is_it = |line: &&serde_json::Value| {
                let of = &line["parameters"];
                line["set"] == set && of["sigma_weight"] == weight && of["sigma_delta"] == delta
            };
            report.lines.iter().find(is_it).unwrap()["bits"].as_f64().unwrap()
        };
        for set in ["BF16", "F16"] {
            assert_eq!(bits(set, 0.015, 0.0), 0.0);
            assert!(bits(set, 0.015, 0.0005) < bits(set, 0.015, 0.02));
            assert!(bits(set, 0.05, 0.0005) < bits(set, 0.015, 0.0005));
        }
        // FP16 has three more bits of mantissa.
        assert!(bits("F16", 0.05, 0.0005) > bits("BF16", 0.05, 0.0005) + 1.0);
        let ends = report.lines.iter().filter(|line| line["set"] == "BF16" && line["parameters"].is_null());
        let ends: Vec<f64> = ends.map(|line| line["bits"].as_f64().unwrap()).collect();
        assert_eq!(ends, [bits("BF16", 0.05, 0.0005), bits("BF16", 0.015, 0.02)]);
        assert_eq!((report.plots.len(), report.grids.len(), report.lines.len()), (2, 2, 16));
        assert!(MonteCarloBench::parse(&text.replace("0.015", "-1"), "x").is_err());
    }
}
