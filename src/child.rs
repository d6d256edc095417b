//! Programs that this one starts, such as `ssh` and commands of the shell that the user names: what they get, and how
//! they end.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgid, kill_process_group};

use crate::wire::read_input;

/// Time between two looks at a command.
const PATIENCE: Duration = Duration::from_millis(10);
/// Variables with a password.
const SECRETS: [&str; 3] = ["FHRD_PASSWORD", "FHRD_NEW_PASSWORD", "FHRD_FROM_PASSWORD"];

/// `command` without the passwords in the environment: a program like `ssh` may pass its variables on.
pub fn without_secrets(command: &mut Command) -> &mut Command {
    SECRETS.into_iter().fold(command, |command, name| command.env_remove(name))
}

/// Gives a command a process group of its own, so that [`kill`] ends what it has started, too. Not if somebody could
/// type on a terminal: only the group of this process may read there, and a signal from there reaches all of it.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    if File::open("/dev/tty").is_ok() { command } else { command.process_group(0) }
}

/// Kills a command that nobody has waited for: with its whole process group, if it leads one. Waits for its end.
///
/// # Errors
/// Errors of the system.
pub fn kill(child: &mut Child) -> io::Result<ExitStatus> {
    // Nobody has waited for it yet, so the number is its own, even if it has ended.
    let process = Pid::from_child(child);
    // It may have ended meanwhile.
    let _ = match getpgid(Some(process)) {
        Ok(group) if group == process => kill_process_group(group, Signal::KILL).map_err(io::Error::from),
        _ => child.kill(),
    };
    child.wait()
}

/// Waits for a command to end. Kills it as [`kill`] does, with `None`, once `is_over`.
///
/// # Errors
/// Errors of the system.
pub fn ended(child: &mut Child, is_over: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    loop {
        if is_over() {
            return kill(child).map(|_| None);
        }
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None => std::thread::sleep(PATIENCE),
        }
    }
}

/// Reads what a command prints, at most `bytes_max` bytes, and waits for its end. Kills it as [`kill`] does, with
/// `None`, once `stop` is set.
///
/// # Errors
/// Errors of the system, and [`io::ErrorKind::FileTooLarge`].
pub fn output(child: &mut Child, bytes_max: u64, stop: &AtomicBool) -> io::Result<Option<(ExitStatus, Vec<u8>)>> {
    let read = match child.stdout.take() {
        Some(stdout) => read_input(&File::from(OwnedFd::from(stdout)), bytes_max, stop),
        None => Ok(Vec::new()),
    };
    let status = ended(child, || stop.load(Ordering::Relaxed))?;
    let (Some(status), false) = (status, stop.load(Ordering::Relaxed)) else { return Ok(None) };
    Ok(Some((status, read?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_no_password() {
        let mut command = Command::new("ssh");
        command.env("FHRD_PASSWORD", "secret").env("OTHER", "value");
        let left: Vec<_> = without_secrets(&mut command).get_envs().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(left, [("OTHER".as_ref(), Some("value".as_ref()))]);
    }
}
