//! `fhrd bench`: the measurements are a program of their own, as `cargo` has them for its subcommands.

use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::args::{Options, ProgramArguments};
use super::called;
use super::exit::Exit;
use super::output;
use crate::error::Error;

/// Name of the program.
const PROGRAM: &str = "fhrd-bench";

/// Becomes the program of the measurements. Reports why, if that is not possible.
pub fn run(mut options: Options, arguments: &ProgramArguments) -> Exit {
    let error = hand_over();
    // What follows the first argument of the verb is left to the program.
    options.json |= arguments.given.iter().any(|argument| argument == "--json");
    output::report(&options, &error, None);
    Exit::from(&error)
}

/// Lets the program answer a shell that asks for completions behind the verb.
pub fn complete() {
    let is_verb = matches!(called::line().as_slice(), [_, dashes, _, verb, ..] if dashes == "--" && verb == "bench");
    if is_verb && env::var_os("COMPLETE").is_some() {
        // Without the program, only the options of every verb are known.
        let _ = hand_over();
    }
}

/// Replaces this process by the program of the measurements: the one beside this program, or else the first on PATH. It
/// gets the arguments as they are, with the verb, and the environment. Returns only why that is not possible.
pub fn hand_over() -> Error {
    for program in called::beside(PROGRAM).into_iter().chain([PathBuf::from(PROGRAM)]) {
        let error = Command::new(&program).args(called::line().iter().skip(1)).exec();
        if error.kind() != ErrorKind::NotFound {
            return Error::io("run", program, error);
        }
    }
    Error::Usage(format!(
        "measurements need the program `{PROGRAM}`, which is neither beside `fhrd` nor on PATH. In the directory of the \
        sources, `cargo install --path bench` installs it, and `cargo build --workspace` builds it"
    ))
}
