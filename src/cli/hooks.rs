//! Commands of a profile that run before and after a backup.

use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::child::{ended, in_own_group};
use crate::error::{Error, Result};

/// Runs commands of the shell, one after another until one fails. What they print goes to standard error. `variables`
/// are added to their environment. Kills the running one once `stop` is set.
///
/// # Errors
/// [`Error::Io`] with the command if it fails. [`Error::Interrupted`].
pub fn run_hooks(name: &'static str, commands: &[String], variables: &[(&str, &str)], stop: &AtomicBool) -> Result<()> {
    for command in commands {
        tracing::info!("{name}: {command}");
        let failed = |error| Error::io("run the hook", format!("{name}: {command}"), error);
        let output = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::from(output));
        let mut child = in_own_group(shell.envs(variables.iter().copied())).spawn().map_err(failed)?;
        match ended(&mut child, || stop.load(Ordering::Relaxed)).map_err(failed)? {
            Some(status) if status.success() => {}
            Some(status) => return Err(failed(io::Error::other(format!("it ended with {status}")))),
            None => return Err(Error::Interrupted),
        }
    }
    Ok(())
}
