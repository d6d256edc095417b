//! Passwords and key files, from where the user keeps them.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use zeroize::Zeroize;

use super::args::{NewSecretArguments, Options};
use super::output::note;
use super::process::{forbid_core_dumps, stop};
use crate::child::{self, in_own_group, without_secrets};
use crate::crypto::{SecretBytes, SecretKey, Unlock};
use crate::error::{Error, Result};
use crate::types::hex;
use crate::wire::{input_failed, open_without_waiting, read_input};

/// Bytes of a password or key file, at most.
const SECRET_BYTES_MAX: u64 = 1 << 20;
/// Hex digits of a recovery key between two dashes.
const GROUP_DIGITS: usize = 8;

/// How often a password is asked for.
const ATTEMPTS: u32 = 3;

/// Whether the user was asked for a password.
static WAS_ASKED: AtomicBool = AtomicBool::new(false);

/// Where a secret may come from, in the order in which they count.
struct Sources<'a> {
    key_file: Option<&'a Path>,
    password_file: Option<&'a Path>,
    password_command: Option<&'a OsStr>,
    variable: &'static str,
}

/// What opens the repository at `location`: a file, a command, the environment, or the terminal.
///
/// # Errors
/// [`Error::Locked`] if there is nothing to ask; [`Error::Io`].
pub fn existing(options: &Options, location: &Path) -> Result<Unlock> {
    forbid_core_dumps();
    let sources = Sources {
        key_file: options.key_file.as_deref(),
        password_file: options.password_file.as_deref(),
        password_command: options.password_command.as_deref(),
        variable: "FHRD_PASSWORD",
    };
    if let Some(unlock) = sources.read()? {
        return Ok(unlock);
    }
    asked(location, "--password-file, --password-command, --key-file or FHRD_PASSWORD")
}

/// Whether a file, a command or the environment gives a password or key file.
pub fn is_given(options: &Options) -> bool {
    options.key_file.is_some()
        || options.password_file.is_some()
        || options.password_command.is_some()
        || variable("FHRD_PASSWORD").is_some()
}

/// Warns of a variable for the password that is set but empty, where nothing else says the password.
pub fn warn_of_empty(options: &Options) {
    let is_elsewhere =
        options.key_file.is_some() || options.password_file.is_some() || options.password_command.is_some();
    let name = "FHRD_PASSWORD";
    if !is_elsewhere && std::env::var_os(name).is_some_and(|value| value.is_empty()) {
        tracing::warn!("{name} is empty, so it counts as not set");
    }
}

/// Asks for the password of the repository at `location` on the terminal.
fn asked(location: &Path, options: &str) -> Result<Unlock> {
    if !std::io::stdin().is_terminal() {
        let reason = format!("give {options}; there is no terminal to ask for the password");
        return Err(Error::Locked { location: location.display().to_string(), reason });
    }
    WAS_ASKED.store(true, Ordering::Relaxed);
    prompt(&format!("password of {}: ", location.display())).map(Unlock::Password)
}

/// Calls `open` again if the password that the user typed opens nothing, [`ATTEMPTS`] times in all.
///
/// # Errors
/// Errors of the last call.
pub fn with_attempts<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        WAS_ASKED.store(false, Ordering::Relaxed);
        match open() {
            Err(error @ Error::Locked { .. }) if WAS_ASKED.load(Ordering::Relaxed) => {
                note(&format!("{error}; try again"))
            }
            opened => return opened,
        }
    }
    open()
}

/// What opens the other repository of a command, at `location`: the environment, or the terminal.
///
/// # Errors
/// Errors of [`existing`].
pub fn other(location: &Path) -> Result<Unlock> {
    forbid_core_dumps();
    let key_file = variable("FHRD_FROM_KEY_FILE").map(PathBuf::from);
    let sources = Sources {
        key_file: key_file.as_deref(),
        password_file: None,
        password_command: None,
        variable: "FHRD_FROM_PASSWORD",
    };
    if let Some(unlock) = sources.read()? {
        return Ok(unlock);
    }
    asked(location, "FHRD_FROM_PASSWORD or FHRD_FROM_KEY_FILE")
}

/// Whether the environment gives what opens the other repository of a command.
pub fn is_other_given() -> bool {
    ["FHRD_FROM_KEY_FILE", "FHRD_FROM_PASSWORD"].into_iter().any(|name| variable(name).is_some())
}

/// The secret of a new key slot. A password that is typed is asked for twice.
///
/// # Errors
/// [`Error::Usage`] if there is nothing to ask, or both entries differ; [`Error::Io`].
pub fn new(arguments: &NewSecretArguments) -> Result<Unlock> {
    forbid_core_dumps();
    let sources = Sources {
        key_file: arguments.new_key_file.as_deref(),
        password_file: arguments.new_password_file.as_deref(),
        password_command: arguments.new_password_command.as_deref(),
        variable: "FHRD_NEW_PASSWORD",
    };
    match sources.read()? {
        Some(unlock) => Ok(unlock),
        None => typed("--new-password-file, --new-password-command, --new-key-file or FHRD_NEW_PASSWORD"),
    }
}

/// The secret of the first key slot of a new repository.
///
/// # Errors
/// Errors of [`new`].
pub fn first(options: &Options) -> Result<Unlock> {
    forbid_core_dumps();
    let sources = Sources {
        key_file: options.key_file.as_deref(),
        password_file: options.password_file.as_deref(),
        password_command: options.password_command.as_deref(),
        variable: "FHRD_PASSWORD",
    };
    match sources.read()? {
        Some(unlock) => Ok(unlock),
        None => typed("--password-file, --password-command, --key-file or FHRD_PASSWORD"),
    }
}

fn typed(options: &str) -> Result<Unlock> {
    if !std::io::stdin().is_terminal() {
        let message = format!("give {options}: there is no terminal to ask for a new password");
        return Err(Error::Usage(message));
    }
    let password = prompt("new password: ")?;
    if password != prompt("the same again: ")? {
        return Err(Error::Usage("the passwords differ".into()));
    }
    Ok(Unlock::Password(password))
}

fn prompt(text: &str) -> Result<SecretBytes> {
    let typed =
        rpassword::prompt_password(text).map_err(|error| Error::io("read a password from", "the terminal", error));
    typed.map(|password| SecretBytes::new(password.into_bytes()))
}

/// A variable of the environment. An empty one counts as not set.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Sources<'_> {
    fn read(&self) -> Result<Option<Unlock>> {
        if let Some(path) = self.key_file {
            return read_file(path).map(|content| Some(Unlock::KeyFile(SecretBytes::new(content))));
        }
        let password = if let Some(path) = self.password_file {
            read_file(path)?
        } else if let Some(command) = self.password_command {
            output(command)?
        } else if let Some(value) = variable(self.variable) {
            return Ok(Some(Unlock::Password(SecretBytes::new(into_bytes(value)))));
        } else {
            return Ok(None);
        };
        Ok(Some(Unlock::Password(first_line(password))))
    }
}

fn into_bytes(text: OsString) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt;
    text.into_vec()
}

/// The bytes before the first line end.
fn first_line(mut content: Vec<u8>) -> SecretBytes {
    let end = content.iter().position(|byte| *byte == b'\n').unwrap_or(content.len());
    let line = content.get(..end).unwrap_or_default();
    let line = SecretBytes::new(line.strip_suffix(b"\r").unwrap_or(line).to_vec());
    content.zeroize();
    line
}

/// Reads a small file.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    let read = open_without_waiting(path).and_then(|file| read_input(&file, SECRET_BYTES_MAX, stop()));
    read.map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            Error::Usage(format!("{} has more than {SECRET_BYTES_MAX} bytes: not a key", path.display()))
        }
        _ => input_failed("read", path, error),
    })
}

/// The output of a shell command. It may ask on the terminal.
fn output(command: &OsStr) -> Result<Vec<u8>> {
    let mut shell = Command::new("sh");
    let failed = |error| Error::io("run", command, error);
    let shell = without_secrets(&mut shell).arg("-c").arg(command).stdin(Stdio::inherit()).stderr(Stdio::inherit());
    let mut child = in_own_group(shell.stdout(Stdio::piped())).spawn().map_err(failed)?;
    let ended = child::output(&mut child, SECRET_BYTES_MAX, stop()).map_err(|error| match error.kind() {
        // A command that still writes has ended because nobody reads.
        ErrorKind::FileTooLarge => {
            failed(std::io::Error::other(format!("it printed more than {SECRET_BYTES_MAX} bytes")))
        }
        _ => failed(error),
    })?;
    let Some((status, content)) = ended else { return Err(Error::Interrupted) };
    if !status.success() {
        return Err(failed(std::io::Error::other(format!("it ended with {status}"))));
    }
    Ok(content)
}

/// A random recovery key: a password of 64 hex digits in groups.
///
/// # Errors
/// [`Error::Io`] if the kernel gives no random bytes.
pub fn recovery_key() -> Result<String> {
    let mut digits = hex(SecretKey::random()?.bytes());
    let groups: Vec<&str> =
        digits.as_bytes().chunks(GROUP_DIGITS).filter_map(|group| str::from_utf8(group).ok()).collect();
    let text = groups.join("-");
    digits.zeroize();
    Ok(text)
}

/// Name of a key slot if the user gives none.
pub fn default_label() -> String {
    let user = uzers::get_current_username().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{user}@{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_ends_with_its_line() {
        for (content, password) in [("a b", "a b"), ("a b\n", "a b"), ("a\r\nb\n", "a"), ("\n", ""), ("", "")] {
            assert_eq!(first_line(content.into()).bytes(), password.as_bytes(), "{content:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_with_a_secret_leaves_no_core_dump() {
        use rustix::process::{DumpableBehavior, dumpable_behavior};
        let arguments = NewSecretArguments {
            new_password_file: None,
            new_password_command: Some("echo secret".into()),
            new_key_file: None,
            label: None,
        };
        let _ = new(&arguments).unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }

    #[test]
    fn recovery_keys_are_long_and_differ() {
        let (one, other) = (recovery_key().unwrap(), recovery_key().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.split('-').map(str::len).collect::<Vec<_>>(), [8; 8]);
    }

    #[test]
    fn a_command_gives_a_password_or_its_failure() {
        assert_eq!(output(OsStr::new("echo secret")).unwrap(), b"secret\n");
        let error = output(OsStr::new("exit 3")).unwrap_err().to_string();
        assert!(error.contains("exit 3") && error.contains("exit status: 3"), "{error}");
    }
}
