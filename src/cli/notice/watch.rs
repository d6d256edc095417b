//! Runs a verb, and tells others how it has ended.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::facts::RunFacts;
use super::metrics_file;
use super::send::{self, Ping, Sender, Targets};
use crate::cli::Session;
use crate::cli::args::Verb;
use crate::cli::exit::Exit;
use crate::config::NotifyProfile;
use crate::error::Result;
use crate::repo::paths::profile_name;

/// The longest time that the notices of a start, or of an end that the user asked for, take.
const SHORT: Duration = Duration::from_secs(10);
/// The longest time of all others.
const LONG: Duration = Duration::from_secs(40);

/// A verb whose end others are told, as the command line has it.
struct WatchedVerb<'a> {
    name: &'static str,
    metrics_file: Option<&'a Path>,
    is_dry_run: bool,
}

impl WatchedVerb<'_> {
    /// `None` for a verb of which nobody is told.
    fn of(verb: &Verb) -> Option<WatchedVerb<'_>> {
        let (name, metrics, is_dry_run) = match verb {
            Verb::Backup(arguments) => ("backup", &arguments.metrics, arguments.dry_run),
            Verb::Check(arguments) => ("check", &arguments.metrics, false),
            Verb::Verify(arguments) => ("verify", &arguments.metrics, false),
            Verb::Prune(arguments) => ("prune", &arguments.metrics, arguments.dry_run),
            Verb::Copy(arguments) => ("copy", &arguments.metrics, arguments.dry_run),
            _ => return None,
        };
        Some(WatchedVerb { name, metrics_file: metrics.metrics_file.as_deref(), is_dry_run })
    }
}

/// How a command has ended.
pub(super) struct RunEnd<'a> {
    pub(super) verb: &'static str,
    pub(super) profile: String,
    pub(super) code: u8,
    pub(super) is_success: bool,
    pub(super) seconds: f64,
    /// For people, at most some hundred bytes.
    summary: String,
    error: Option<String>,
    pub(super) facts: &'a RunFacts,
}

/// Runs a verb, and tells others how it has ended. A dry run is nobody's business.
///
/// # Errors
/// Errors of `run`.
pub fn watched(session: &Session, verb: &Verb, run: impl FnOnce() -> Result<Exit>) -> Result<Exit> {
    let Some(watched) = WatchedVerb::of(verb).filter(|watched| !watched.is_dry_run) else { return run() };
    let notify = &session.profile.notify;
    let is_wanted = notify.verbs.is_empty() || notify.verbs.iter().any(|verb| verb == watched.name);
    let sender = if notify.is_empty() || !is_wanted { None } else { Sender::new(Targets::of(notify)) };
    let started = Instant::now();
    let result = std::thread::scope(|scope| {
        if let Some(sender) = &sender {
            // The command does not wait for it.
            scope.spawn(move || sender.ping(Ping::Start, "", SHORT));
        }
        run()
    });
    let end = ended(session, watched.name, &result, started.elapsed());
    if let Some(path) = watched.metrics_file
        && let Err(error) = metrics_file::write(path, &end)
    {
        tracing::warn!("the metrics are not written: {error}");
    }
    if let Some(sender) = &sender {
        let is_interrupted = end.code == Exit::Interrupted.code();
        tell(sender, notify, &end, if is_interrupted { SHORT } else { LONG });
    }
    result
}

fn ended<'a>(session: &'a Session, verb: &'static str, result: &Result<Exit>, time: Duration) -> RunEnd<'a> {
    let (exit, error) = match result {
        Ok(exit) => (*exit, None),
        Err(error) => (Exit::from(error), Some(error.to_string())),
    };
    let is_success = match exit {
        Exit::Fine => true,
        Exit::Incomplete => !session.profile.notify.incomplete_fails,
        _ => false,
    };
    let profile = session.options.profile.as_deref().map(profile_name).unwrap_or_default();
    let profile = profile.to_string_lossy().into_owned();
    let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let outcome = match &error {
        Some(error) => format!("failed: {error}"),
        None => exit.summary().to_string(),
    };
    let name = if profile.is_empty() { String::new() } else { format!(" of {profile}") };
    let facts = session.facts.text();
    let summary = format!(
        "fhrd {verb}{name} on {host}: {outcome}; exit code {}, {:.0} s{facts}",
        exit.code(),
        time.as_secs_f64()
    );
    RunEnd {
        verb,
        profile,
        code: exit.code(),
        is_success,
        seconds: time.as_secs_f64(),
        summary,
        error,
        facts: &session.facts,
    }
}

/// Gives the notices of an end, one after another, in `limit` at most.
fn tell(sender: &Sender, notify: &NotifyProfile, end: &RunEnd<'_>, limit: Duration) {
    let started = Instant::now();
    let left = || limit.saturating_sub(started.elapsed());
    let event = if end.is_success { "success" } else { "failure" };
    sender.ping(if end.is_success { Ping::Success } else { Ping::Failure }, &end.summary, left() / 2);
    let document = json!({
        "event": event,
        "verb": end.verb,
        "profile": end.profile,
        "exit_code": end.code,
        "seconds": end.seconds,
        "summary": end.summary,
        "error": end.error,
        "facts": end.facts.by_name(),
    });
    sender.webhook(&document.to_string(), left() / 2);
    if let Some(command) = &notify.command {
        let code = end.code.to_string();
        let variables = [
            ("FHRD_EVENT", event),
            ("FHRD_VERB", end.verb),
            ("FHRD_EXIT_CODE", &code),
            ("FHRD_SUMMARY", &end.summary),
            ("FHRD_ERROR", end.error.as_deref().unwrap_or_default()),
        ];
        send::run_command(command, &variables, left());
    }
}
