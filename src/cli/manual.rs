//! `fhrd completions` and `fhrd man`: the definitions of the command line in other forms.

use clap::builder::Resettable;
use serde_json::json;

use super::Session;
use super::args::{CompletionsArguments, ManArguments, command};
use super::complete;
use super::exit::Exit;
use super::location;
use super::output::{failed, note, print, print_json};
use crate::error::{Error, Result};

/// Prints a completion script.
///
/// # Errors
/// Errors of writing.
pub fn completions(arguments: &CompletionsArguments) -> Result<Exit> {
    let script = complete::script(&arguments.shell.to_string())?;
    print(|out| out.write_all(&script).map_err(failed))?;
    Ok(Exit::Fine)
}

/// Writes `fhrd.1` and a page for each verb.
///
/// # Errors
/// [`Error::Io`].
pub fn pages(session: &Session, arguments: &ManArguments) -> Result<Exit> {
    let directory = &arguments.directory;
    let failed = |error| Error::io("write manual pages to", directory, error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    // Without what only this machine has.
    let command = command().long_version(Resettable::Reset);
    clap_mangen::generate_to(command, directory).map_err(failed)?;
    let shown = location::shown(directory);
    if session.options.json {
        print_json(&json!({"directory": shown}))?;
    } else if !session.options.quiet {
        note(&format!("wrote the manual pages to {shown}"));
    }
    Ok(Exit::Fine)
}
