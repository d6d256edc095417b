//! Arguments of verbs that write metrics.

use std::path::PathBuf;

use clap::Args;

/// Where the metrics of a run go.
#[derive(Debug, Clone, Default, Args)]
pub struct MetricsArguments {
    /// Write metrics of this run for node_exporter's textfile collector, also if it fails. Each verb and profile needs
    /// a file of its own, such as /var/lib/prometheus/node-exporter/fhrd-backup.prom
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
}
