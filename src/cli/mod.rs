//! The command line: parses the arguments, runs the verb, prints the result, and maps errors to exit codes. Public is
//! what another program with the options of `fhrd` needs: [`parsed`] and [`run`], what a verb gets, and [`output`].

mod args;
mod backup;
mod bench;
mod called;
mod cat;
mod check;
mod choice;
mod cold;
mod complete;
mod copy;
mod diff;
mod dispatch;
mod distance;
mod dump;
mod estimate;
mod exit;
mod find;
mod forget;
mod hooks;
mod import;
mod init;
mod key;
mod lineage;
mod location;
mod logging;
mod ls;
mod manual;
mod models;
#[cfg(target_os = "linux")]
mod mount;
mod no_snapshots;
mod notice;
pub mod output;
pub mod outputs;
mod pace;
mod parity;
mod process;
mod progress;
mod prune;
mod publish;
mod recompress;
mod repair;
mod report;
mod request;
mod requests;
mod restore;
mod rewrite;
mod runs;
mod scan;
mod schedule;
mod secrets;
mod session;
mod shares;
mod snapshots;
mod stages;
mod stats;
mod status;
mod tag;
mod tensor;
mod thaw;
mod trace;
mod upgrade;
mod verify;

use std::process::ExitCode;

use clap::{Command, FromArgMatches};

use crate::error::Result;
use args::{Arguments, Verb};

pub use args::Options;
pub use called::{Called, hosted};
pub use exit::Exit;
pub use process::check_cpu_features;
pub use session::Session;

/// Parses the arguments of this process and runs the verb.
pub fn main() -> ExitCode {
    command().into()
}

fn command() -> Exit {
    bench::complete();
    let Arguments { verb, options } = parsed(args::command);
    if let Verb::Bench(arguments) = &verb {
        return bench::run(options, arguments);
    }
    run(options, |session| dispatch::watched(session, &verb))
}

/// The arguments of this process, by the command line that `command` makes. Must be called before other threads run.
/// Ends the process after the help, after completions for a shell, and with an error.
pub fn parsed<A: FromArgMatches>(command: fn() -> Command) -> A {
    process::start();
    complete::answer(command);
    args::of_process(command())
}

/// Runs a verb with these options, and reports its error. How the process shall end.
pub fn run(options: Options, verb: impl FnOnce(&Session) -> Result<Exit>) -> Exit {
    logging::start(&options);
    process::raise_open_files();
    let mut session = Session::new(options, process::stop_flag());
    let result = location::prepare(&mut session).and_then(|()| verb(&session));
    logging::finish();
    match result {
        Ok(exit) => output::ended(&session.options, exit),
        Err(error) if output::is_closed(&error) => Exit::Fine,
        Err(error) => {
            output::report(&session.options, &error, choice::damage_hint(&error));
            Exit::from(&error)
        }
    }
}
