//! Runs the verb that the command line names.

use super::Session;
use super::args::Verb;
use super::exit::Exit;
#[cfg(target_os = "linux")]
use super::mount;
use super::{
    backup, bench, cat, check, cold, copy, diff, distance, dump, estimate, find, forget, import, init, key, lineage,
    ls, manual, models, notice, outputs, parity, process, prune, publish, recompress, repair, report, restore, rewrite,
    runs, schedule, snapshots, stats, status, tag, trace, upgrade, verify,
};
use crate::error::Result;

/// Runs `verb`, unless it would write into a repository past its store, and tells who wants to know how it ends.
///
/// # Errors
/// Errors of the verb.
pub fn watched(session: &Session, verb: &Verb) -> Result<Exit> {
    outputs::check(session, verb)?;
    notice::watched(session, verb, || run(session, verb))
}

/// Runs `verb`.
///
/// # Errors
/// Errors of the verb.
pub fn run(session: &Session, verb: &Verb) -> Result<Exit> {
    process::check_cpu_features()?;
    match verb {
        Verb::Init(arguments) => init::run(session, arguments),
        Verb::Key(verb) => key::run(session, verb),
        Verb::Backup(arguments) => backup::run(session, arguments),
        Verb::Estimate(arguments) => estimate::run(session, arguments),
        Verb::Import(arguments) => import::run(session, arguments),
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
        Verb::Status(arguments) => status::run(session, arguments),
        Verb::Stats(arguments) => stats::run(session, arguments),
        Verb::Report(arguments) => report::run(session, arguments),
        Verb::Forget(arguments) => forget::run(session, arguments),
        Verb::Copy(arguments) => copy::run(session, arguments),
        Verb::Rewrite(arguments) => rewrite::run(session, arguments),
        Verb::Tag(arguments) => tag::run(session, arguments),
        Verb::Publish(arguments) => publish::publish(session, arguments),
        Verb::Unpublish(arguments) => publish::unpublish(session, arguments),
        Verb::Published => publish::list(session),
        #[cfg(feature = "serve")]
        Verb::Serve(arguments) => publish::serve::run(session, arguments),
        Verb::Prune(arguments) => prune::run(session, arguments),
        Verb::Parity(verb) => parity::run(session, verb),
        Verb::Cold(verb) => cold::run(session, verb),
        Verb::Recompress(arguments) => recompress::run(session, arguments),
        Verb::Check(arguments) => check::run(session, arguments),
        Verb::Verify(arguments) => verify::run(session, arguments),
        Verb::Repair(what) => repair::run(session, what),
        Verb::Upgrade(arguments) => upgrade::run(session, arguments),
        Verb::Schedule(arguments) => schedule::run(session, arguments),
        Verb::Trace(arguments) => trace::run(session, arguments),
        Verb::Completions(arguments) => manual::completions(arguments),
        Verb::Man(arguments) => manual::pages(session, arguments),
        Verb::Bench(_) => Err(bench::hand_over()),
    }
}
