//! Arguments of the verbs that describe the command line.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// Directory to write into, such as ~/.local/share/man/man1; existing pages are replaced
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
