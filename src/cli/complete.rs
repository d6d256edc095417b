//! Completion of values: ids of snapshots, hosts, tags, runs and profiles.
//!
//! The script of `fhrd completions SHELL` asks this program, with a variable of the environment that
//! [`clap_complete`] sets. The repository is that of `--repo` on the line, or of FHRD_REPO, or the default one. Only a
//! local one is opened, and nobody is asked for a password: a completion must not wait.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{Arg, Command, Parser};
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter};

use super::args::Arguments;
use super::called;
use super::location;
use super::output::{split_ns, time_local};
use super::snapshots::short_id;
use crate::error::{Error, Result};
use crate::repo::checkpoint::Checkpoint;
use crate::repo::naming::LATEST;
use crate::repo::paths::profile_file;
use crate::repo::published::Publication;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_listing;

/// Snapshots that are offered, the latest first.
const SNAPSHOTS_MAX: usize = 50;

/// Answers a shell that asks for completions of this command line, and ends the process then.
pub fn answer(command: fn() -> Command) {
    let directory = std::env::current_dir().ok();
    let answer =
        CompleteEnv::with_factory(|| with_values(command())).try_complete(called::line(), directory.as_deref());
    if answer.unwrap_or_else(|error| error.exit()) {
        std::process::exit(0);
    }
}

/// The script by which the shell called `name` asks this program.
///
/// # Errors
/// [`Error::Usage`] if there is no such shell; [`Error::Io`].
pub fn script(name: &str) -> Result<Vec<u8>> {
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(name) else {
        return Err(Error::Usage(format!("no completions for `{name}`")));
    };
    let mut script = Vec::new();
    let written = shell.write_registration("COMPLETE", "fhrd", "fhrd", "fhrd", &mut script);
    written.map_err(|error| Error::io("write", "the completion script", error))?;
    Ok(script)
}

/// The command line, whose arguments know what values there are.
fn with_values(command: Command) -> Command {
    command.mut_args(with_candidates).mut_subcommands(with_values)
}

fn with_candidates(arg: Arg) -> Arg {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string).unwrap_or_default();
    let long = arg.get_long().unwrap_or_default().to_string();
    match (long.as_str(), value.as_str()) {
        (_, "SNAPSHOT" | "SNAPSHOT[:PATH]" | "SNAPSHOT:PATH") => arg.add(ArgValueCandidates::new(snapshots)),
        ("host", _) => arg.add(ArgValueCandidates::new(|| distinct(|named| vec![named.snapshot.host.clone()]))),
        ("tag" | "keep-tag" | "add" | "remove" | "set", _) => {
            arg.add(ArgValueCandidates::new(|| distinct(|named| named.snapshot.tags.clone())))
        }
        ("run", _) | (_, "RUN") => arg.add(ArgValueCandidates::new(|| distinct(run_of))),
        (_, "ORG/NAME") => arg.add(ArgValueCandidates::new(|| distinct(published_as))),
        ("profile", _) => arg.add(ArgValueCandidates::new(profiles)),
        (_, "FILE") => arg.add(ArgValueCompleter::new(PathCompleter::any())),
        _ => arg,
    }
}

/// The snapshots of the repository that the line names, oldest first.
fn stored() -> Vec<NamedSnapshot> {
    let given = called::line();
    let at = given.iter().position(|argument| argument == "--repo");
    let repository = at.and_then(|at| given.get(at + 1)).map(|location| [OsString::from("--repo"), location.clone()]);
    let line = ["fhrd".into(), "snapshots".into()].into_iter().chain(repository.into_iter().flatten());
    let Ok(arguments) = Arguments::try_parse_from(line) else { return Vec::new() };
    let listed = location::open_unasked(&arguments.options).and_then(|repository| snapshot_listing::list(&repository));
    listed.map(|listed| listed.snapshots).unwrap_or_default()
}

fn snapshots() -> Vec<CompletionCandidate> {
    let stored = stored();
    let latest = CompletionCandidate::new(LATEST).help(Some("the last one".into()));
    let of = |named: &NamedSnapshot| {
        let time = time_local(split_ns(named.snapshot.time_ns).0);
        CompletionCandidate::new(short_id(named)).help(Some(format!("{time} {}", named.snapshot.host).into()))
    };
    std::iter::once(latest).chain(stored.iter().rev().take(SNAPSHOTS_MAX).map(of)).collect()
}

/// The different values that `of` gives.
fn distinct(of: fn(&NamedSnapshot) -> Vec<String>) -> Vec<CompletionCandidate> {
    let values: BTreeSet<String> = stored().iter().flat_map(of).collect();
    values.into_iter().map(CompletionCandidate::new).collect()
}

fn run_of(named: &NamedSnapshot) -> Vec<String> {
    Checkpoint::of(&named.snapshot).map(|checkpoint| checkpoint.run).into_iter().collect()
}

fn published_as(named: &NamedSnapshot) -> Vec<String> {
    Publication::of(&named.snapshot).map(|publication| publication.name).into_iter().collect()
}

/// Names of the profiles in the user's configuration directory.
fn profiles() -> Vec<CompletionCandidate> {
    let Ok(file) = profile_file("name".as_ref()) else { return Vec::new() };
    let entries = file.parent().and_then(|directory| std::fs::read_dir(directory).ok());
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let names = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    names.filter_map(|path| path.file_stem().map(CompletionCandidate::new)).collect()
}
