//! `restore --thaw` and `restore --list-containers`: what a restore needs from cold storage.
//!
//! 1. All containers are asked for first, because each one takes hours. What was asked for before, by whom ever, is not
//!    asked for again.
//! 2. Then fhrd waits and looks at those that are on their way. It can be stopped at any time; the next run goes on.

use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::Session;
use super::args::RestoreArguments;
use super::exit::Exit;
use super::output::{failed, note, print, print_json, size, write_pairs};
use super::progress::shown;
use crate::child;
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::pause::pause;
use crate::repo::snapshot::NamedSnapshot;
use crate::restore::{NeededContainer, NeededContainers, RestoreRequest, needed_containers};
use crate::store::{BlobName, StoreExt, ThawRequest, ThawState, Thawing, try_map_parallel};

/// The first wait between two looks at what is on its way. Each later one is twice as long.
const WAIT: Duration = Duration::from_secs(1);
/// The longest one: thawing takes minutes at least, and each look costs a request for each container.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// What a restore needs, as JSON.
#[derive(Serialize)]
struct NeededDocument {
    snapshot: String,
    containers: Vec<ContainerDocument>,
    bytes: u64,
    /// Their price, if one per GiB was given.
    price: Option<f64>,
    /// What cannot be found: containers, and chunks of which nobody knows where they are.
    missing: Vec<String>,
    missing_count: u64,
    /// Whether more may be needed, which shows once these are thawed.
    lacks_indexes: bool,
}

/// A container in it.
#[derive(Serialize)]
struct ContainerDocument {
    name: String,
    bytes: u64,
}

/// Prints the data containers that a restore reads. The exit code says whether any is missing.
///
/// # Errors
/// Errors of [`needed_containers`], and of writing.
pub fn list(
    session: &Session,
    repository: &Repository,
    named: &NamedSnapshot,
    request: &RestoreRequest,
    price_per_gib: Option<f64>,
) -> Result<Exit> {
    let NeededContainers { there, missing, missing_count, lacks_indexes } =
        needed_containers(repository, named, request, &session.stop)?;
    let bytes = there.iter().map(|one| one.bytes).sum();
    let price = price_per_gib.map(|price| price * bytes as f64 / f64::from(1 << 30));
    missing.iter().for_each(|text| note(&format!("error: {text}")));
    if lacks_indexes {
        note(
            "warning: containers in cold storage have no hot index: what they need besides shows once they are thawed",
        );
    }
    if session.options.json {
        let container = |one: &NeededContainer| ContainerDocument { name: one.name.to_string(), bytes: one.bytes };
        let (snapshot, containers) = (named.id.to_string(), there.iter().map(container).collect());
        print_json(&NeededDocument { snapshot, containers, bytes, price, missing, missing_count, lacks_indexes })?;
    } else {
        print(|out| {
            let mut lines = there.iter();
            lines.try_for_each(|one| writeln!(out, "{} {}", one.bytes, one.name).map_err(failed))?;
            let mut pairs = vec![("containers", format!("{}, {}", there.len(), size(bytes)))];
            pairs.extend(price.map(|price| ("price", price_text(price))));
            pairs.extend((missing_count > 0).then(|| ("missing", format!("{missing_count} containers and chunks"))));
            write_pairs(out, &pairs)
        })?;
    }
    Ok(if missing_count > 0 { Exit::Damaged } else { Exit::Fine })
}

/// A price with four decimals, or with so many that it has four significant digits.
fn price_text(price: f64) -> String {
    let magnitude = if price > 0.0 { price.log10().floor() } else { 0.0 };
    let decimals = (3.0 - magnitude).clamp(4.0, 20.0) as usize;
    format!("{price:.decimals$}")
}

/// Asks for the data containers that a restore reads, and waits until they can be read.
///
/// # Errors
/// [`Error::Usage`] if the store has no requests for cold storage and no command is given, or if the command fails;
/// [`Error::Interrupted`]; errors of the store.
pub fn thaw(
    session: &Session,
    repository: &Repository,
    named: &NamedSnapshot,
    request: &RestoreRequest,
    arguments: &RestoreArguments,
) -> Result<()> {
    let mut asked: BTreeSet<BlobName> = BTreeSet::new();
    loop {
        // What is missing is damage, which the restore reports.
        let found = needed_containers(repository, named, request, &session.stop)?;
        let (mut needed, lacks_indexes) = (found.there, found.lacks_indexes);
        // A container without a hot index says what else is needed once it can be read.
        needed.retain(|one| asked.insert(one.name.clone()));
        if needed.is_empty() {
            return Ok(());
        }
        thaw_these(session, repository, &needed, arguments)?;
        if !lacks_indexes {
            return Ok(());
        }
    }
}

fn thaw_these(
    session: &Session,
    repository: &Repository,
    needed: &[NeededContainer],
    arguments: &RestoreArguments,
) -> Result<()> {
    if let Some(command) = &arguments.thaw_command {
        return run_command(session, command, needed);
    }
    let Some(thawing) = repository.store.thawing() else {
        return Err(Error::Usage(format!(
            "fhrd cannot ask {} for what is in cold storage, only buckets of S3: say --thaw-command, or thaw the \
             containers that `--dry-run --list-containers` prints with the tools of the service",
            repository.store.location()
        )));
    };
    let progress = Progress::default();
    progress.files_total.add(needed.len() as u64);
    progress.bytes_total.add(needed.iter().map(|one| one.bytes).sum());
    let request = ThawRequest { days: arguments.thaw_days, tier: arguments.thaw_tier.clone() };
    shown(&session.options, &progress, None, || {
        let waiting = ask(repository, thawing, needed, &request, &progress)?;
        if !waiting.is_empty() && !session.options.quiet && !session.options.json {
            note(&format!("{} of {} containers are being thawed; waiting for them", waiting.len(), needed.len()));
        }
        wait(session, repository, thawing, waiting, &progress)
    })
}

/// After a restore that met damaged containers whose parity is in cold storage: asks for it, or says how.
///
/// # Errors
/// Errors of [`thaw`].
pub fn parity(session: &Session, repository: &Repository, arguments: &RestoreArguments) -> Result<()> {
    let needed: Vec<NeededContainer> =
        repository.parity.cold().into_iter().map(|name| NeededContainer { name, bytes: 0 }).collect();
    if needed.is_empty() {
        return Ok(());
    }
    let what = format!("{} damaged containers have parity in cold storage", needed.len());
    match (&arguments.thaw_command, repository.store.thawing()) {
        (Some(command), _) => run_command(session, command, &needed)?,
        (None, Some(thawing)) if arguments.thaw => {
            let request = ThawRequest { days: arguments.thaw_days, tier: arguments.thaw_tier.clone() };
            ask(repository, thawing, &needed, &request, &Progress::default())?;
        }
        (None, Some(_)) => {
            note(&format!("warning: {what}, which may give them back: `fhrd restore --thaw` asks for it"));
            return Ok(());
        }
        (None, None) => {
            note(&format!("warning: {what}, which may give them back: thaw it and restore again"));
            needed.iter().for_each(|one| note(&format!("warning: in cold storage: {}", one.name)));
            return Ok(());
        }
    }
    note(&format!("warning: {what}; it was asked for. Restore again once it is thawed"));
    Ok(())
}

/// Asks for all containers. Returns those that cannot be read yet.
fn ask<'a>(
    repository: &Repository,
    thawing: &dyn Thawing,
    needed: &'a [NeededContainer],
    request: &ThawRequest,
    progress: &Progress,
) -> Result<Vec<&'a NeededContainer>> {
    let names: Vec<&BlobName> = needed.iter().map(|one| &one.name).collect();
    let states = try_map_parallel(repository.store.requests_max(), &names, |name| thawing.thaw(name, request))?;
    Ok(left(needed.iter(), &states, progress))
}

/// Looks at the containers `waiting` until all can be read.
fn wait(
    session: &Session,
    repository: &Repository,
    thawing: &dyn Thawing,
    mut waiting: Vec<&NeededContainer>,
    progress: &Progress,
) -> Result<()> {
    let mut time = WAIT;
    while !waiting.is_empty() {
        pause(time, &session.stop)?;
        time = (time * 2).min(WAIT_MAX);
        let names: Vec<&BlobName> = waiting.iter().map(|one| &one.name).collect();
        let states = try_map_parallel(repository.store.requests_max(), &names, |name| thawing.thaw_state(name))?;
        if let Some(at) = states.iter().position(|state| *state == ThawState::Cold) {
            let name = names.get(at).map(|name| name.to_string()).unwrap_or_default();
            return Err(Error::Usage(format!(
                "{name} is cold again, although it was asked for: run the restore again"
            )));
        }
        waiting = left(waiting.into_iter(), &states, progress);
    }
    Ok(())
}

/// Returns the containers that cannot be read yet, and counts the others as done.
fn left<'a>(
    all: impl Iterator<Item = &'a NeededContainer>,
    states: &[ThawState],
    progress: &Progress,
) -> Vec<&'a NeededContainer> {
    let (readable, left): (Vec<_>, Vec<_>) = all.zip(states).partition(|(_, state)| **state == ThawState::Readable);
    for (one, _) in readable {
        progress.files_done.add(1);
        progress.bytes_read.add(one.bytes);
    }
    left.into_iter().map(|(one, _)| one).collect()
}

/// Runs the user's command with the names of the containers on its standard input, and waits for its end.
fn run_command(session: &Session, command: &std::ffi::OsStr, needed: &[NeededContainer]) -> Result<()> {
    let spooled = || -> std::io::Result<std::fs::File> {
        // A file: a command that reads nothing blocks nobody.
        let mut file = tempfile::tempfile()?;
        needed.iter().try_for_each(|one| writeln!(file, "{}", one.name))?;
        file.rewind()?;
        Ok(file)
    };
    let names = spooled().map_err(|error| Error::io("write a temporary file in", std::env::temp_dir(), error))?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::from(names)).stdout(Stdio::null());
    let failed = |error| Error::io("run the command of --thaw-command with", "sh", error);
    let mut child = child::in_own_group(child::without_secrets(&mut shell)).spawn().map_err(failed)?;
    let stops = || session.stop.load(std::sync::atomic::Ordering::Relaxed);
    match child::ended(&mut child, stops).map_err(failed)? {
        None => Err(Error::Interrupted),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Error::Usage(format!("the command of --thaw-command failed: {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::price_text;

    #[test]
    fn a_price_has_four_significant_digits_however_small_it_is() {
        let prices = [(0.0, "0.0000"), (12.345_678, "12.3457"), (0.5, "0.5000"), (0.012_345, "0.01235")];
        for (price, text) in prices.into_iter().chain([(3.021e-6, "0.000003021"), (1e-30, "0.00000000000000000000")]) {
            assert_eq!(price_text(price), text);
        }
    }
}
