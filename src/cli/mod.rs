//! The command line: parses the arguments, runs the verb, prints the result, and maps errors to exit codes.

mod args;
mod backup;
#[cfg(feature = "bench")]
mod bench;
mod cat;
mod check;
mod choice;
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
mod output;
mod outputs;
mod pace;
mod process;
mod progress;
mod prune;
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
mod snapshots;
mod stages;
mod stats;
mod status;
mod tag;
mod tensor;
mod trace;
mod upgrade;
mod verify;

use std::{process::ExitCode, sync::Arc, sync::atomic::AtomicBool};

use crate::config::UserProfile;
use args::{Arguments, Options};
use exit::Exit;
use notice::RunFacts;

/// Options of every verb with its profile, and the flag that stops it.
struct Session {
    options: Options,
    profile: UserProfile,
    stop: Arc<AtomicBool>,
    /// Numbers for whoever is told how the command has ended.
    facts: RunFacts,
}

/// Parses the arguments of this process and runs the verb.
pub fn main() -> ExitCode {
    process::start();
    complete::answer();
    let arguments = Arguments::of_process();
    logging::start(&arguments.options);
    process::raise_open_files();
    let mut session = Session {
        options: arguments.options,
        profile: UserProfile::default(),
        stop: process::stop_flag(),
        facts: RunFacts::default(),
    };
    let result = location::prepare(&mut session)
        .and_then(|()| outputs::check(&session, &arguments.verb))
        .and_then(|()| notice::watched(&session, &arguments.verb, || dispatch::run(&session, &arguments.verb)));
    logging::finish();
    match result {
        Ok(exit) => output::ended(&session.options, exit).into(),
        Err(error) if output::is_closed(&error) => Exit::Fine.into(),
        Err(error) => {
            output::report(&session.options, &error);
            Exit::from(&error).into()
        }
    }
}
