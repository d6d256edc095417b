//! Counters and histograms of a run. Each worker measures alone; merging gives the metrics of a stage.
//!
//! 1. A [`Distribution`] is an HDR histogram of constant size (about 26 KB, two significant digits).
//! 2. [`StageMetrics`] counts the input and output of a stage and measures its time: serving, blocked because the
//!    input queue is empty, blocked because the output queue is full.
//! 3. [`StageMetrics::summary`] gives the statistics that `--stats` and the bench print as JSON.
//! 4. A [`Timeline`] records a quantity over the time of a run, in constant memory.
//! 5. [`Progress`] holds the shared counters that a progress bar shows.

mod distribution;
mod progress;
mod stage;
mod timeline;

pub use distribution::{Distribution, DistributionSummary};
pub use progress::{Counter, CurrentFile, Progress};
pub use stage::{StageMetrics, StageSummary};
pub use timeline::Timeline;
