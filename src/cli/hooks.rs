//! Commands of a profile that run before and after a backup.

use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};

/// Time between two looks at a running command.
const PATIENCE: Duration = Duration::from_millis(20);

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
        let mut child = shell.envs(variables.iter().copied()).spawn().map_err(failed)?;
        loop {
            match child.try_wait().map_err(failed)? {
                Some(status) if status.success() => break,
                Some(status) => return Err(failed(io::Error::other(format!("it ended with {status}")))),
                None if stop.load(Ordering::Relaxed) => {
                    // It may have ended meanwhile.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(Error::Interrupted);
                }
                None => std::thread::sleep(PATIENCE),
            }
        }
    }
    Ok(())
}
