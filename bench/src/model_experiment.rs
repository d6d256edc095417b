//! Measurements that compare models or checkpoints. The key `kind` selects one.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::Result;

use super::checkpoints::{self, CheckpointBench};
use super::chunkers::{self, ChunkerBench};
use super::claim::Claim;
use super::differences::{self, DifferenceBench};
use super::experiment::Outline;
use super::monte_carlo::{self, MonteCarloBench};
use super::quantised::{self, QuantisedBench};
use super::reduction::{self, ReductionBench};
use super::report::Report;

/// A measurement of models.
pub enum ModelExperiment {
    /// Differences of two models, value by value.
    Differences(DifferenceBench),
    /// Expected bit distances by simulation.
    MonteCarlo(MonteCarloBench),
    /// Quantised models that stored ones give again.
    Quantised(QuantisedBench),
    /// Reduction of single models by method and family.
    Reduction(ReductionBench),
    /// Compares chunkers.
    Chunkers(ChunkerBench),
    /// Checkpoints of training runs.
    Checkpoints(CheckpointBench),
}

impl ModelExperiment {
    /// Parses TOML text of this kind; `None` if the kind is another one. `origin` names the text in errors.
    ///
    /// # Errors
    /// [`Error::Config`](fhrd::error::Error::Config): the errors of the kind.
    pub fn parse(kind: &str, text: &str, origin: &str) -> Result<Option<Self>> {
        Ok(Some(match kind {
            "differences" => ModelExperiment::Differences(DifferenceBench::parse(text, origin)?),
            "monte-carlo" => ModelExperiment::MonteCarlo(MonteCarloBench::parse(text, origin)?),
            "quantised" => ModelExperiment::Quantised(QuantisedBench::parse(text, origin)?),
            "reduction-by-model" => ModelExperiment::Reduction(ReductionBench::parse(text, origin)?),
            "chunkers" => ModelExperiment::Chunkers(ChunkerBench::parse(text, origin)?),
            "checkpoints" => ModelExperiment::Checkpoints(CheckpointBench::parse(text, origin)?),
            _ => return Ok(None),
        }))
    }

    /// Claims of papers about its values.
    pub fn claims(&self) -> &[Claim] {
        match self {
            ModelExperiment::Differences(bench) => &bench.claim,
            ModelExperiment::MonteCarlo(bench) => &bench.claim,
            ModelExperiment::Checkpoints(bench) => &bench.claim,
            ModelExperiment::Chunkers(bench) => &bench.claim,
            ModelExperiment::Reduction(bench) => &bench.claim,
            ModelExperiment::Quantised(bench) => &bench.claim,
        }
    }

    /// The plan of the measurement.
    pub fn outline(&self) -> Outline {
        match self {
            ModelExperiment::Differences(bench) => Outline {
                runs: bench.pair.iter().map(|pair| format!("pair {}", pair.data.name)).collect(),
                missing: bench.missing(),
            },
            ModelExperiment::Quantised(bench) => Outline {
                runs: bench.pair.iter().map(|pair| format!("pair {}", pair.data.name)).collect(),
                missing: bench.missing(),
            },
            ModelExperiment::Reduction(bench) => Outline {
                runs: bench.family.iter().map(|family| format!("family {}", family.models.name)).collect(),
                missing: bench.missing(),
            },
            ModelExperiment::Chunkers(bench) => Outline {
                runs: bench.chunker.iter().map(|named| format!("chunker {}", named.name)).collect(),
                missing: bench.missing(),
            },
            ModelExperiment::Checkpoints(bench) => Outline {
                runs: bench.run.iter().map(|run| format!("run {}", run.steps.name)).collect(),
                missing: bench.missing(),
            },
            ModelExperiment::MonteCarlo(bench) => Outline {
                runs: bench.sigma_weight.iter().map(|sigma| format!("weights of sigma {sigma}")).collect(),
                missing: Vec::new(),
            },
        }
    }

    /// Runs the measurement and prints its tables to `out`.
    ///
    /// # Errors
    /// Errors that stop the measurement.
    pub fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        match self {
            ModelExperiment::Differences(bench) => differences::run(bench, stop, out),
            ModelExperiment::Quantised(bench) => quantised::run(bench, stop, out),
            ModelExperiment::Reduction(bench) => reduction::run(bench, stop, out),
            ModelExperiment::Chunkers(bench) => chunkers::run(bench, stop, out),
            ModelExperiment::Checkpoints(bench) => checkpoints::run(bench, stop, out),
            ModelExperiment::MonteCarlo(bench) => monte_carlo::run(bench, stop, out),
        }
    }
}
