//! Which variables of the environment count.
//!
//! An empty variable counts as not set. The command line can choose one of several sources of the password; then
//! variables that name another source do not count.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStr as ClapOsStr, Resettable};
use clap::{Arg, ArgMatches, Command, FromArgMatches};

use super::hints::hint;
use super::relations;
use crate::cli::called;
use crate::cli::output::{note, note_json};

/// The exit code of an invalid command line.
const USAGE: u8 = 2;
/// Ids of the options that say where the password or key comes from.
const SECRETS: [&str; 3] = ["password_file", "password_command", "key_file"];

/// Parses the arguments and the environment of this process, or ends it with an error or the help.
pub fn of_process<A: FromArgMatches>(command: Command) -> A {
    let given = called::line();
    let mut command = considered(command, &given);
    if given.len() < 2 {
        // Nothing is asked for.
        let _ = command.clone().print_help();
        std::process::exit(i32::from(USAGE));
    }
    let is_json = before_dashes(&given).any(|argument| argument == "--json");
    let parsed = matches_of(&mut command, given);
    parsed.and_then(|matches| A::from_arg_matches(&matches)).unwrap_or_else(|error| end(error, is_json))
}

/// The matches of a command line, checked.
///
/// # Errors
/// Why the command line is not valid.
pub fn matches_of(command: &mut Command, given: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    let matches = command.try_get_matches_from_mut(given)?;
    relations::check(command, &matches)?;
    Ok(matches)
}

/// Ends the process with the help that was asked for, or an error.
fn end(mut error: clap::Error, is_json: bool) -> ! {
    let hint = hint(&mut error);
    if is_json && error.use_stderr() {
        let _ = error.print();
        let text = error.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        note_json(line.strip_prefix("error: ").unwrap_or(line), USAGE);
        std::process::exit(i32::from(USAGE));
    }
    let _ = error.print();
    if let Some(hint) = hint {
        note(&format!("hint: {hint}"));
    }
    std::process::exit(error.exit_code())
}

fn before_dashes(given: &[OsString]) -> impl Iterator<Item = &OsString> {
    given.iter().take_while(|argument| *argument != "--")
}

/// `command` with the variables that count beside the arguments `given`.
fn considered(command: Command, given: &[OsString]) -> Command {
    let has_secret = before_dashes(given).any(|argument| is_secret(argument));
    without_variables(command, &|arg| {
        arg.get_env().is_some_and(|name| {
            let is_empty = std::env::var_os(name).is_some_and(|value| value.is_empty());
            is_empty || (has_secret && SECRETS.contains(&arg.get_id().as_str()))
        })
    })
}

/// Whether `argument` is one of the options [`SECRETS`], with or without its value.
fn is_secret(argument: &OsStr) -> bool {
    let name = argument.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
    SECRETS.iter().any(|id| name.strip_prefix(b"--").is_some_and(|name| name == id.replace('_', "-").as_bytes()))
}

/// `command` without the variables of the arguments for which `is_out` is true.
fn without_variables(command: Command, is_out: &dyn Fn(&Arg) -> bool) -> Command {
    command
        .mut_args(|arg| if is_out(&arg) { arg.env(Resettable::<ClapOsStr>::Reset) } else { arg })
        .mut_subcommands(|verb| without_variables(verb, is_out))
}
