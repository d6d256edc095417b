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
    Align, failed, note_empty, print, print_json, size, split_ns, time_local, time_utc, write_fitting, write_pairs,
};
use super::snapshots::{SnapshotDocument, short_id};
use crate::error::Result;
use crate::inspect::status::{
    DamageStatus, PendingStatus, ProofStatus, RepositoryStatus, SourceStatus, SpaceStatus, status,
};
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

pub(super) fn is_damaged(status: &RepositoryStatus) -> bool {
    !damages(status).is_empty()
}

/// Whether the last snapshot is older than expected. One from the future says nothing, so it is late, too.
fn is_late(source: &SourceStatus, status: &RepositoryStatus, expect: Option<SignedDuration>) -> bool {
    let age = source.age_seconds(status.now_ns);
    expect.is_some_and(|expect| age > expect.as_secs() || source.last.snapshot.is_future(status.now_ns))
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

/// The cells of a source: host, paths, last snapshot, its time and age, snapshots, state.
pub(super) fn row(source: &SourceStatus, status: &RepositoryStatus, expect: Option<SignedDuration>) -> Vec<String> {
    let snapshot = &source.last.snapshot;
    let paths: Vec<_> = snapshot.paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
    let state = match is_late(source, status, expect) {
        _ if snapshot.is_future(status.now_ns) => "from the future",
        true => "late",
        false if snapshot.problems() > 0 => "incomplete",
        false => "ok",
    };
    vec![
        snapshot.host.clone(),
        paths.join(" "),
        short_id(&source.last),
        time_local(split_ns(snapshot.time_ns).0),
        duration(source.age_seconds(status.now_ns)),
        source.snapshots.to_string(),
        state.into(),
    ]
}

/// Seconds in the largest unit of which there are two.
pub(super) fn duration(seconds: i64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(length, _)| seconds.abs() >= 2 * length);
    unit.map_or_else(|| format!("{seconds} s"), |(length, name)| format!("{} {name}", seconds / length))
}

/// How long ago something was.
fn age(time_ns: i64, now_ns: i64) -> String {
    format!("{} ago", duration(now_ns.saturating_sub(time_ns).div_euclid(1_000_000_000).max(0)))
}

pub(super) fn run_text(run: Option<&ReadRun>, now_ns: i64) -> String {
    let Some(run) = run else { return "never, as far as this repository records".into() };
    let files = match run.files {
        0 => String::new(),
        files => format!("{files} files with {} restored into nothing, ", size(run.content_bytes)),
    };
    let found = match run.damaged {
        0 => "no damage".into(),
        damaged => format!("{damaged} damaged"),
    };
    let containers = match run.bytes {
        0 if run.files > 0 => String::new(),
        // What is lost was not read.
        bytes => format!("{} ({}) read, ", size(bytes), share(bytes, run.bytes_of_all.saturating_add(run.damaged))),
    };
    format!("{}, on {}: {files}{containers}{found}", age(run.time_ns, now_ns), run.host)
}

pub(super) fn proof_text(proof: &ProofStatus, bytes: u64, now_ns: i64) -> String {
    let Some(oldest_ns) = proof.oldest_ns else { return "nothing; `fhrd verify` reads and proves it in parts".into() };
    // Nobody knows the bytes of a lost container, but it has some.
    let of = |part: u64| share(part, bytes.saturating_add(proof.containers_lost));
    let lost = match proof.containers_lost {
        0 => String::new(),
        lost => format!("; {lost} lost containers are not proven"),
    };
    format!(
        "{} of {} were read whole, {} in the last 30 days, {} never; the oldest read was {}{lost}",
        of(proof.bytes),
        size(bytes),
        of(proof.bytes_30_days),
        of(proof.bytes_never),
        age(oldest_ns, now_ns)
    )
}

pub(super) fn share(part: u64, whole: u64) -> String {
    // A part that is not the whole is not shown as 100 %.
    let percent = if whole == 0 { 100.0 } else { (1000.0 * part as f64 / whole as f64).floor() / 10.0 };
    format!("{percent:.1} %")
}

pub(super) fn damage_text(status: &RepositoryStatus) -> String {
    let texts = damages(status);
    if texts.is_empty() { "none is known".into() } else { texts.join("; ") }
}

/// The damage that is known, and what to do. The exit code is that of damage exactly if there is some.
fn damages(status: &RepositoryStatus) -> Vec<String> {
    let DamageStatus { containers, frames, chunks, whole_containers, marks_unreadable } = status.damage;
    let mut texts = Vec::new();
    if status.lacks_containers {
        texts.push(
            "there is no container: look for the directory `containers` (moved, emptied, a disk that is away)".into(),
        );
    }
    let unreadable = status.unreadable_snapshots.iter().filter(|(_, error)| !error.is_newer()).count();
    if unreadable > 0 {
        texts.push(format!("{unreadable} snapshots cannot be read: run `fhrd check`"));
    }
    if containers > 0 {
        let parts = format!("{frames} frames, {chunks} chunks, {whole_containers} whole containers");
        texts.push(format!("{parts} in {containers} containers; back up the same files again to heal it"));
    } else if status.proof.containers_damaged > 0 {
        texts.push(format!("{} containers when they were read; run `fhrd check`", status.proof.containers_damaged));
    }
    if marks_unreadable > 0 {
        texts.push(format!("{marks_unreadable} marks of damage cannot be read: run `fhrd check --read-data`"));
    }
    for (verb, run) in [("check", &status.last_check), ("verify", &status.last_verify)] {
        if let Some(run) = run.as_ref().filter(|run| run.damaged > 0) {
            texts.push(format!("{} when `fhrd {verb}` read data last: run it again", run.damaged));
        }
    }
    texts
}

pub(super) fn pending_text(pending: &PendingStatus) -> String {
    let PendingStatus { entries, containers, bytes } = *pending;
    match (entries, containers) {
        (0, _) => "nothing waits for deletion".into(),
        (_, 0) => "an interrupted prune, which the next one finishes".into(),
        _ => format!("{containers} containers, {}, wait for deletion", size(bytes)),
    }
}

fn space_text(space: &SpaceStatus) -> String {
    let SpaceStatus { bytes, containers, added_7_days, added_30_days, .. } = *space;
    let (week, month) = (size(added_7_days), size(added_30_days));
    format!("{} in {containers} containers; {week} added in 7 days, {month} in 30", size(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_largest_unit_of_which_there_are_two() {
        let shown = [0, 119, 120, 7_199, 7_200, 172_799, 172_800, -7_200].map(duration);
        assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d", "-2 h"]);
        assert_eq!((share(999_999, 1_000_000), share(0, 0)), ("99.9 %".into(), "100.0 %".into()));
    }
}
