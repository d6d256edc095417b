//! The command line: parses the arguments, runs the verb, prints the result, and maps errors to exit codes.

mod args;
mod backup;
#[cfg(feature = "bench")]
mod bench;
mod cat;
mod check;
mod choice;
mod copy;
mod diff;
mod distance;
mod dump;
mod exit;
mod find;
mod forget;
mod hooks;
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
mod output;
mod pace;
mod process;
mod progress;
mod prune;
mod repair;
mod request;
mod requests;
mod restore;
mod rewrite;
mod runs;
mod scan;
mod secrets;
mod snapshots;
mod stages;
mod stats;
mod tag;
mod tensor;
mod trace;
mod upgrade;

use std::{process::ExitCode, sync::Arc, sync::atomic::AtomicBool};

use crate::config::UserProfile;
use crate::error::Result;
use args::{Arguments, Options, Verb};
use exit::Exit;

/// Options of every verb with its profile, and the flag that stops it.
struct Session {
    options: Options,
    profile: UserProfile,
    stop: Arc<AtomicBool>,
}

/// Parses the arguments of this process and runs the verb.
pub fn main() -> ExitCode {
    let arguments = Arguments::of_process();
    logging::start(&arguments.options);
    process::keep_freed_memory();
    process::raise_open_files();
    let mut session =
        Session { options: arguments.options, profile: UserProfile::default(), stop: process::stop_flag() };
    let result = location::prepare(&mut session).and_then(|()| run(&session, &arguments.verb));
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

fn run(session: &Session, verb: &Verb) -> Result<Exit> {
    process::check_cpu_features()?;
    match verb {
        Verb::Init(arguments) => init::run(session, arguments),
        Verb::Key(verb) => key::run(session, verb),
        Verb::Backup(arguments) => backup::run(session, arguments),
        Verb::Restore(arguments) => restore::run(session, arguments),
        Verb::Snapshots(arguments) => snapshots::run(session, arguments),
        Verb::Ls(arguments) => ls::run(session, arguments),
        Verb::Find(arguments) => find::run(session, arguments),
        Verb::Diff(arguments) => diff::run(session, arguments),
        Verb::Cat(arguments) => cat::run(session, arguments),
        Verb::Dump(arguments) => dump::run(session, arguments),
        #[cfg(target_os = "linux")]
        Verb::Mount(arguments) => mount::run(session, arguments),
        Verb::Runs => runs::runs(session),
        Verb::Steps(arguments) => runs::steps(session, arguments),
        Verb::Best(arguments) => runs::best(session, arguments),
        Verb::Models(arguments) => models::run(session, arguments),
        Verb::Lineage(arguments) => lineage::run(session, arguments),
        Verb::Distance(arguments) => distance::run(session, arguments),
        Verb::Stats(arguments) => stats::run(session, arguments),
        Verb::Forget(arguments) => forget::run(session, arguments),
        Verb::Copy(arguments) => copy::run(session, arguments),
        Verb::Rewrite(arguments) => rewrite::run(session, arguments),
        Verb::Tag(arguments) => tag::run(session, arguments),
        Verb::Prune(arguments) => prune::run(session, arguments),
        Verb::Check(arguments) => check::run(session, arguments),
        Verb::Repair(what) => repair::run(session, what),
        Verb::Upgrade(arguments) => upgrade::run(session, arguments),
        Verb::Trace(arguments) => trace::run(session, arguments),
        Verb::Completions(arguments) => manual::completions(arguments),
        Verb::Man(arguments) => manual::pages(session, arguments),
        #[cfg(feature = "bench")]
        Verb::Bench(arguments) => bench::run(session, arguments),
    }
}
