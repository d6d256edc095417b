//! Arguments of `restore`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Snapshot id, unique prefix, or `latest`
    #[arg(value_name = "SNAPSHOT")]
    pub id: String,
    /// Directory to write into [default: a new directory fhrd-restore-ID]
    #[arg(long, value_name = "DIR", conflicts_with = "tensor")]
    pub target: Option<PathBuf>,
    /// Keep nothing of damaged files. By default what is good of a file is written as `NAME.damaged`
    #[arg(long, conflicts_with = "tensor")]
    pub no_damaged: bool,
    /// Restore only this tensor; exactly one model must have it. The array of a .npy file is called `array`
    #[arg(long, value_name = "NAME")]
    pub tensor: Option<String>,
    /// Model that has the tensor, or a directory with that model: a path in the snapshot, as `ls` prints it
    #[arg(long, value_name = "FILE", requires = "tensor", conflicts_with_all = ["target", "no_damaged"])]
    pub path: Option<PathBuf>,
    /// File to write the tensor to, .safetensors or .npy [default: a .safetensors file named after the tensor]
    #[arg(long, value_name = "FILE", requires = "tensor", conflicts_with_all = ["target", "no_damaged"])]
    pub output: Option<PathBuf>,
}
