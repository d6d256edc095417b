//! `fhrd status`: the state of the repository at a glance.

use std::io::Write;

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use super::args::StatusArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::no_snapshots;
use super::output::{
    Align, failed, note_empty, print, print_json, size, split_ns, time_utc, write_fitting, write_pairs,
};
use super::snapshots::SnapshotDocument;
use crate::error::Result;
use crate::inspect::status::{
    ColdStatus, DamageStatus, ParityStatus, PendingStatus, RepositoryStatus, SourceStatus, SpaceStatus, status,
};
use crate::overview::texts::{damage_text, is_damaged, is_late, pending_text, proof_text, row, run_text};
use crate::repo::reads::ReadRun;

/// The status as JSON.
#[derive(Serialize)]
pub(super) struct StatusDocument<'a> {
    sources: Vec<SourceDocument<'a>>,
    late: usize,
    snapshots_unreadable: usize,
    snapshots_unreported: usize,
    bytes_without_snapshots: u64,
    /// Snapshots that this machine has seen and that were all gone at once.
    snapshots_gone: usize,
    /// Whether there is no container, although snapshots have content.
    lacks_containers: bool,
    last_check: Option<RunDocument<'a>>,
    last_verify: Option<RunDocument<'a>>,
    proof: Value,
    damage: &'a DamageStatus,
    space: &'a SpaceStatus,
    parity: &'a ParityStatus,
    cold: &'a ColdStatus,
    pending: &'a PendingStatus,
}

/// The last snapshot of a host and its paths as JSON.
#[derive(Serialize)]
struct SourceDocument<'a> {
    host: &'a str,
    paths: Vec<String>,
    snapshots: usize,
    age_seconds: i64,
    late: bool,
    last: SnapshotDocument<'a>,
}

/// What a command has read, as JSON.
#[derive(Serialize)]
struct RunDocument<'a> {
    time: String,
    #[serde(flatten)]
    run: &'a ReadRun,
}

/// Prints the status.
///
/// # Errors
/// Errors of the repository.
pub fn run(session: &Session, arguments: &StatusArguments) -> Result<Exit> {
    let options = &session.options;
    let repository = location::open(session)?;
    let status = status(&repository, &choice::filter(&arguments.filter)?)?;
    for (name, error) in &status.unreadable_snapshots {
        tracing::error!("cannot read {name}: {error}");
    }
    no_snapshots::say(status.bytes_without_snapshots);
    no_snapshots::say_gone(status.snapshots_gone);
    let late = status.sources.iter().filter(|source| is_late(source, &status, arguments.expect)).count();
    let is_missing = arguments.expect.is_some() && status.sources.is_empty();
    if options.json {
        print_json(&document(&status, late, arguments.expect))?;
    } else {
        if status.sources.is_empty() && status.bytes_without_snapshots == 0 {
            note_empty(options, "there are no such snapshots");
        }
        print(|out| write(out, &status, arguments.expect))?;
    }
    let newer = status.unreadable_snapshots.iter().filter(|(_, error)| error.is_newer()).count();
    let exit = Exit::of_unreadable(status.unreadable_snapshots.len() as u64, newer as u64);
    let exit = match exit {
        _ if is_damaged(&status) => Exit::Damaged,
        Exit::Fine if late > 0 || is_missing => Exit::Late,
        exit => exit,
    };
    let are_missing = status.bytes_without_snapshots > 0 || status.snapshots_gone > 0;
    Ok(no_snapshots::outcome(are_missing, exit))
}

pub(super) fn document<'a>(
    status: &'a RepositoryStatus,
    late: usize,
    expect: Option<SignedDuration>,
) -> StatusDocument<'a> {
    let source = |source: &'a SourceStatus| {
        let snapshot = &source.last.snapshot;
        SourceDocument {
            host: &snapshot.host,
            paths: snapshot.paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
            snapshots: source.snapshots,
            age_seconds: source.age_seconds(status.now_ns),
            late: is_late(source, status, expect),
            last: SnapshotDocument::new(&source.last),
        }
    };
    let time = |time_ns: i64| {
        let (seconds, nanoseconds) = split_ns(time_ns);
        time_utc(seconds, nanoseconds)
    };
    let run = |run: &'a ReadRun| RunDocument { time: time(run.time_ns), run };
    let mut proof = json!(status.proof);
    if let Some(fields) = proof.as_object_mut() {
        fields.insert("oldest".into(), status.proof.oldest_ns.map(time).into());
    }
    StatusDocument {
        sources: status.sources.iter().map(source).collect(),
        late,
        snapshots_unreadable: status.unreadable_snapshots.len(),
        snapshots_unreported: status.unreported,
        bytes_without_snapshots: status.bytes_without_snapshots,
        snapshots_gone: status.snapshots_gone,
        lacks_containers: status.lacks_containers,
        last_check: status.last_check.as_ref().map(run),
        last_verify: status.last_verify.as_ref().map(run),
        proof,
        damage: &status.damage,
        space: &status.space,
        parity: &status.parity,
        cold: &status.cold,
        pending: &status.pending,
    }
}

fn write(out: &mut dyn Write, status: &RepositoryStatus, expect: Option<SignedDuration>) -> Result<()> {
    use Align::{Left, Right};
    if !status.sources.is_empty() {
        let columns = [
            ("host", Left),
            ("paths", Left),
            ("last", Left),
            ("time", Left),
            ("age", Right),
            ("snapshots", Right),
            ("state", Left),
        ];
        let rows = status.sources.iter().map(|source| row(source, status, expect)).collect();
        write_fitting(out, &columns, rows)?;
        writeln!(out).map_err(failed)?;
    }
    let mut pairs = vec![
        ("checked", run_text(status.last_check.as_ref(), status.now_ns)),
        ("verified", run_text(status.last_verify.as_ref(), status.now_ns)),
        ("proven", proof_text(&status.proof, status.space.bytes_containers, status.now_ns)),
        ("damage", damage_text(status)),
        ("space", space_text(&status.space)),
    ];
    pairs.extend(parity_text(&status.parity).map(|text| ("parity", text)));
    pairs.extend(cold_text(&status.cold).map(|text| ("cold", text)));
    let newer = status.unreadable_snapshots.iter().filter(|(_, error)| error.is_newer()).count();
    if newer > 0 {
        pairs.push(("newer", format!("{newer} snapshots that only a newer version can read")));
    }
    pairs.push(("pending", pending_text(&status.pending)));
    if status.unreported > 0 {
        pairs.push(("running", format!("{} backups run, or were killed before they were complete", status.unreported)));
    }
    write_pairs(out, &pairs)
}

/// None without parity.
fn parity_text(parity: &ParityStatus) -> Option<String> {
    let ParityStatus { share, containers, containers_without, containers_too_long, bytes } = parity;
    let unprotected = match (share, containers_without - containers_too_long) {
        (None, _) if *containers == 0 => return None,
        (_, 0) => String::new(),
        (Some(_), bare) => format!("; {bare} have none: `fhrd parity add` protects them"),
        (None, bare) => format!("; {bare} have none"),
    };
    let too_long = match containers_too_long {
        0 => String::new(),
        long => format!("; {long} are too long for it"),
    };
    let share = share.as_deref().unwrap_or("off");
    Some(format!("{share}; {containers} containers protected by {}{unprotected}{too_long}", size(*bytes)))
}

/// None if the repository is not cold.
fn cold_text(cold: &ColdStatus) -> Option<String> {
    let ColdStatus { is_cold, hot_indexes, hot_indexes_missing } = cold;
    let missing = match hot_indexes_missing {
        0 => String::new(),
        missing => format!("; {missing} have none: `fhrd cold add` writes them"),
    };
    is_cold.then(|| format!("data may be in cold storage; {hot_indexes} containers have hot indexes{missing}"))
}

fn space_text(space: &SpaceStatus) -> String {
    let SpaceStatus { bytes, containers, added_7_days, added_30_days, .. } = *space;
    let (week, month) = (size(added_7_days), size(added_30_days));
    let total = size(bytes);
    format!("{total} in {containers} containers; the snapshots of 7 days added {week}, those of 30 days {month}")
}
