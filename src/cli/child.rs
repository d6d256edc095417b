//! The end of commands of the shell that the user names: hooks, notices, and those that print a password.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgid, kill_process_group};

/// Time between two looks at a command.
const PATIENCE: Duration = Duration::from_millis(10);

/// Gives a command a process group of its own, so that [`ended`] ends what it has started, too. Not if somebody could
/// type on a terminal: only the group of this process may read there, and a signal from there reaches all of it.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    if File::open("/dev/tty").is_ok() { command } else { command.process_group(0) }
}

/// Waits for a command to end. Kills it, with `None`, once `is_over`: with its whole process group, if it leads one.
///
/// # Errors
/// Those of the system.
pub fn ended(child: &mut Child, is_over: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    loop {
        if is_over() {
            // Nobody has waited for it yet, so the number is its own, even if it has ended.
            let process = Pid::from_child(child);
            let _ = match getpgid(Some(process)) {
                Ok(group) if group == process => kill_process_group(group, Signal::KILL).map_err(io::Error::from),
                _ => child.kill(),
            };
            return child.wait().map(|_| None);
        }
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None => std::thread::sleep(PATIENCE),
        }
    }
}
