//! How this command was called: its arguments, and what starts it again. A program asks the system; a command that
//! runs in the process of a host, such as Python, is given both.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::process;
use crate::error::{Error, Result};

/// How a command in the process of a host was called.
#[derive(Debug)]
pub struct Called {
    /// The arguments, after the name of the command.
    pub arguments: Vec<OsString>,
    /// The words that start the command again, from any directory; its arguments follow them.
    pub again: Vec<OsString>,
}

/// Set once, before the command begins.
static HOSTED: OnceLock<Called> = OnceLock::new();

/// Runs the command in the process of a host, which then ends the process with this exit code. Must be called once, and
/// before other threads run.
pub fn hosted(called: Called) -> u8 {
    let _ = HOSTED.set(called);
    process::adopt();
    super::command().code()
}

/// The name of the command and its arguments.
pub fn line() -> Vec<OsString> {
    match HOSTED.get() {
        Some(called) => std::iter::once("fhrd".into()).chain(called.arguments.iter().cloned()).collect(),
        None => std::env::args_os().collect(),
    }
}

/// The words that start this command again, from any directory.
///
/// # Errors
/// [`Error::Io`] if the program cannot be found.
pub fn again() -> Result<Vec<OsString>> {
    match HOSTED.get() {
        Some(called) => Ok(called.again.clone()),
        None => {
            let program = std::env::current_exe().map_err(|error| Error::io("find", "fhrd", error))?;
            Ok(vec![program.into_os_string()])
        }
    }
}

/// A program beside this one.
pub fn beside(name: &str) -> Option<PathBuf> {
    let own = PathBuf::from(again().ok()?.into_iter().next()?);
    Some(own.parent()?.join(name))
}
