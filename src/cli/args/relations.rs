//! Which arguments need or exclude others. The options of every verb may stand before the verb or after it, and clap
//! relates only those that stand on the same side.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// What some verbs need, one of each list of ids; how the usage names it.
const NEEDED: [(&str, &[&str], &str); 2] = [
    ("backup", &["paths", "files_from", "files_from0", "stdin", "stdin_from_command", "profile"], "<PATH>..."),
    ("report", &["out", "json"], "--out <FILE>"),
];
/// Options of every verb that exclude each other.
const EXCLUSIVE: [(&str, &str); 4] = [
    ("password_file", "password_command"),
    ("password_file", "key_file"),
    ("password_command", "key_file"),
    ("quiet", "verbose"),
];

/// Checks a command line that clap has accepted.
///
/// # Errors
/// The errors that clap gives where all of it stands on the same side of the verb.
pub(super) fn check(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((verb, mut given)) = matches.subcommand() else { return Ok(()) };
    while let Some((_, deeper)) = given.subcommand() {
        given = deeper;
    }
    let source = |id: &str| given.try_contains_id(id).is_ok_and(|is_there| is_there).then(|| given.value_source(id));
    let is_given = |id: &str| source(id).flatten().is_some_and(|source| source != ValueSource::DefaultValue);
    for (name, ids, usage) in NEEDED {
        if name == verb && !ids.iter().any(|id| is_given(id)) {
            return Err(missing(command, verb, usage));
        }
    }
    if is_given("progress") && !is_given("json") {
        return Err(missing(command, verb, "--json"));
    }
    for (one, other) in EXCLUSIVE {
        if is_given(one) && is_given(other) {
            let [one, other] = [one, other].map(|id| id.replace('_', "-"));
            let text = format!("the argument '--{one}' cannot be used with '--{other}'");
            return Err(command.error(ErrorKind::ArgumentConflict, text));
        }
    }
    Ok(())
}

fn missing(command: &mut Command, verb: &str, usage: &str) -> clap::Error {
    command.build();
    let text = format!("the following required arguments were not provided:\n  {usage}");
    let verb = command.find_subcommand_mut(verb);
    verb.map_or_else(
        || clap::Error::raw(ErrorKind::MissingRequiredArgument, &text),
        |verb| verb.clone().error(ErrorKind::MissingRequiredArgument, &text),
    )
}
