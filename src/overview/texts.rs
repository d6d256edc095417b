//! The state of a repository in words.

use jiff::SignedDuration;

use crate::inspect::status::{DamageStatus, PendingStatus, ProofStatus, RepositoryStatus, SourceStatus};
use crate::repo::reads::ReadRun;
use crate::repo::snapshot::short_id;
use crate::text::{size, split_ns, time_local};

/// What to do about it.
const ADVICE: &str = "that is right only while the first backup runs, after it was killed, and after all snapshots were \
                      forgotten; if not, look for the directory `snapshots` (moved, emptied, a share that is away) \
                      before any prune, which would delete all data";

/// How damage heals.
pub const HEALING: &str = "back up the same files again, with the same `--open`, to heal it";

/// Whether damage is known.
pub fn is_damaged(status: &RepositoryStatus) -> bool {
    !damages(status).is_empty()
}

/// Whether the last snapshot is older than expected. One from the future says nothing, so it is late, too.
pub fn is_late(source: &SourceStatus, status: &RepositoryStatus, expect: Option<SignedDuration>) -> bool {
    let age = source.age_seconds(status.now_ns);
    expect.is_some_and(|expect| age > expect.as_secs() || source.last.snapshot.is_future(status.now_ns))
}

/// The cells of a source: host, paths, last snapshot, its time and age, snapshots, state.
pub fn row(source: &SourceStatus, status: &RepositoryStatus, expect: Option<SignedDuration>) -> Vec<String> {
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
pub fn duration(seconds: i64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(length, _)| seconds.abs() >= 2 * length);
    unit.map_or_else(|| format!("{seconds} s"), |(length, name)| format!("{} {name}", seconds / length))
}

/// How long ago something was.
fn age(time_ns: i64, now_ns: i64) -> String {
    format!("{} ago", duration(now_ns.saturating_sub(time_ns).div_euclid(1_000_000_000).max(0)))
}

/// What the last run of a command that reads data has found.
pub fn run_text(run: Option<&ReadRun>, now_ns: i64) -> String {
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

/// What reads have proven, of `bytes` in containers.
pub fn proof_text(proof: &ProofStatus, bytes: u64, now_ns: i64) -> String {
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

/// A part in percent.
pub fn share(part: u64, whole: u64) -> String {
    // A part that is not the whole is not shown as 100 %.
    let percent = if whole == 0 { 100.0 } else { (1000.0 * part as f64 / whole as f64).floor() / 10.0 };
    format!("{percent:.1} %")
}

/// What marks list.
fn parts_text(damage: &DamageStatus) -> String {
    let DamageStatus { containers, frames, chunks, whole_containers, .. } = damage;
    format!("{frames} frames, {chunks} chunks, {whole_containers} whole containers in {containers} containers")
}

/// The damage that is known, and what to do.
pub fn damage_text(status: &RepositoryStatus) -> String {
    let texts = damages(status);
    match texts.is_empty() {
        true if status.damage.is_unneeded => {
            format!("{}, which no snapshot needs any more", parts_text(&status.damage))
        }
        true => "none is known".into(),
        false => texts.join("; "),
    }
}

/// The damage that is known, and what to do. The exit code is that of damage exactly if there is some.
fn damages(status: &RepositoryStatus) -> Vec<String> {
    let DamageStatus { containers, marks_unreadable, is_unneeded, .. } = status.damage;
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
    if is_unneeded {
        // A check has said so.
    } else if containers > 0 {
        texts.push(format!("{}; {HEALING}", parts_text(&status.damage)));
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

/// What prunes left for deletion.
pub fn pending_text(pending: &PendingStatus) -> String {
    let PendingStatus { entries, containers, bytes } = *pending;
    match (entries, containers) {
        (0, _) => "no prune is incomplete; `fhrd prune --dry-run` shows what it would free".into(),
        (_, 0) => "an interrupted prune, which the next one finishes".into(),
        _ => format!("{containers} containers, {}, wait for deletion", size(bytes)),
    }
}

/// Says that there are bytes of data without any snapshot.
pub fn describe(bytes: u64) -> String {
    format!("there is no snapshot, but {} of data: {ADVICE}", size(bytes))
}

/// Says that snapshots which this machine has seen were all gone at once.
pub fn describe_gone(gone: usize) -> String {
    format!(
        "the {gone} snapshots that this machine has seen were all gone at once; if nobody has forgotten them, look for \
         the directory `snapshots` (moved, emptied, a share that is away) before any prune, which would delete their \
         data; if they were forgotten, `fhrd prune --allow-no-snapshots` says so"
    )
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
