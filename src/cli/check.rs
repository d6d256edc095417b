//! `fhrd check`.

use serde::Serialize;

use super::Session;
use super::args::CheckArguments;
use super::choice;
use super::exit::Exit;
use super::location;
use super::no_snapshots;
use super::notice::RunFact;
use super::output::{note, print, print_json, size, write_pairs};
use super::progress::shown;
use super::requests::{self, WithRequests};
use super::shares;
use crate::error::{Error, Result};
use crate::inspect::check::{
    CheckReport, HotIndexCounts, ReadData, StoredReport, check, check_snapshots, check_stored,
};
use crate::metrics::Progress;
use crate::overview::texts::HEALING;
use crate::repair::quarantine::{self, QuarantineReport};
use crate::repo::Repository;
use crate::repo::bundle;
use crate::repo::container::blob_name;
use crate::repo::heal::{HealReport, heal};
use crate::repo::index::similarity::clues;
use crate::repo::marks::Marks;
use crate::repo::reads::{self, ReadRun};
use crate::repo::snapshot::NamedSnapshot;

/// The report as JSON.
#[derive(Serialize)]
struct CheckOutput<'a> {
    #[serde(flatten)]
    report: WithRequests<'a, CheckReport>,
    /// What was quarantined. Absent if nothing may be written.
    quarantine: Option<QuarantineReport>,
    /// What was written back. Absent without --heal.
    healed: Option<&'a HealReport>,
    /// Whether the repository has a record of what was read.
    recorded: bool,
    /// Bytes of containers, if there is no snapshot.
    bytes_without_snapshots: u64,
}

/// The report of a check without keys as JSON.
#[derive(Serialize)]
struct StoredDocument {
    #[serde(flatten)]
    report: StoredReport,
    /// Bytes of containers, if there is no snapshot.
    bytes_without_snapshots: u64,
}

/// Verifies the repository, or what some snapshots need.
///
/// # Errors
/// Errors of the repository, the configuration and [`check`].
pub fn run(session: &Session, arguments: &CheckArguments) -> Result<Exit> {
    let options = &session.options;
    if arguments.without_key {
        return run_without_key(session);
    }
    let config = location::config(options)?;
    let repository = location::open_fresh(session)?;
    if let Some(share) = arguments.shard.filter(|_| arguments.dry_run) {
        return shares::show_containers(session, share, &repository);
    }
    let progress = Progress::default();
    let read_data = read_data(arguments)?;
    let before = if read_data == ReadData::Nothing || arguments.report_only {
        None
    } else {
        Some(Marks::read(repository.store.as_ref())?)
    };
    let (chosen, stop) = (chosen_snapshots(&repository, arguments)?, &session.stop);
    let report = shown(options, &progress, None, || match &chosen {
        None => check(&repository, &config, read_data, &progress, stop),
        Some(chosen) => check_snapshots(&repository, &config, chosen, read_data, &progress, stop),
    })?;
    // The damage is reported even if it cannot be recorded.
    let quarantine = before.and_then(|before| {
        let done = quarantine::record(&repository, &before, &report);
        done.map_err(|error| note(&format!("warning: nothing is quarantined: {error}"))).ok()
    });
    if quarantine.is_some() {
        delete_damaged_bundles(&repository);
    }
    let healed = arguments.heal.then(|| healed(&repository, &report));
    tell_facts(session, &report);
    let recorded = quarantine.is_some() && record_check(&repository, chosen.is_none(), &report);
    let bytes_without_snapshots = no_snapshots::warn(session, repository.store.as_ref())?;
    let are_gone = no_snapshots::are_gone(&repository);
    if options.json {
        let report = WithRequests::new(&report, &repository);
        let healed = healed.as_ref();
        print_json(&CheckOutput { report, quarantine, healed, recorded, bytes_without_snapshots })?;
    } else {
        print_report(session, &repository, &report, quarantine.as_ref(), healed.as_ref())?;
    }
    let defects = match &healed {
        // What was put back was a defect. Only another look says whether any is left.
        Some(healed) if report.defect_count > 0 && healed.left.is_empty() && !healed.put_back.is_empty() => {
            let look = || check(&repository, &config, read_data, &Progress::default(), stop);
            let again = quarantine::look_again(&repository, stop, look)?;
            note(&format!("note: {} defects are left after healing", again.defect_count));
            again.defect_count
        }
        _ => report.defect_count,
    };
    let is_left = healed.is_some_and(|healed| !healed.left.is_empty());
    Ok(match (defects, report.newer_count) {
        (0, _) if report.parity_cold > 0 => Exit::Cold,
        (0, 0) if !is_left && report.parity_too_large == 0 => {
            no_snapshots::outcome(bytes_without_snapshots > 0 || are_gone, Exit::Fine)
        }
        // It is whole, as far as this version can tell, or it comes back from parity.
        (0, _) => Exit::Failed,
        _ => Exit::Damaged,
    })
}

fn print_report(
    session: &Session,
    repository: &Repository,
    report: &CheckReport,
    quarantine: Option<&QuarantineReport>,
    healed: Option<&HealReport>,
) -> Result<()> {
    report.notes.iter().for_each(|text| note(&format!("note: {text}")));
    report.newer.iter().for_each(|text| note(&format!("newer: {text}")));
    note_defects(&report.defects, report.defects_more);
    let mut pairs = vec![
        ("snapshots", report.snapshots.to_string()),
        ("index segments", report.segments.to_string()),
        ("containers", format!("{} ({} unreferenced)", report.containers, report.unreferenced_containers)),
        ("frames", report.frames.to_string()),
        ("chunks", report.chunks.to_string()),
        ("stored", size(report.bytes_stored)),
        ("content", size(report.bytes_raw)),
        ("read", format!("{} in {} containers", size(report.bytes_read), report.containers_read)),
        ("damaged", damaged(report)),
        ("quarantined", quarantined(repository, report, quarantine)),
        ("defects", report.defect_count.to_string()),
    ];
    pairs.extend(parity_texts(report, healed));
    let newer = || ("newer", format!("{} parts were written by a newer version", report.newer_count));
    pairs.extend((report.newer_count > 0).then(newer));
    pairs.extend(requests::summary(repository));
    if session.options.quiet { Ok(()) } else { print(|out| write_pairs(out, &pairs)) }
}

/// Stores a record of what the check has read, and returns whether it is stored.
fn record_check(repository: &Repository, is_of_all: bool, report: &CheckReport) -> bool {
    let unneeded = if is_of_all { unneeded(repository, report) } else { None };
    let run = ReadRun { damaged: report.missing_containers, unneeded, ..ReadRun::default() };
    record_reads(repository, "check", report, run)
}

/// The hash of what marks list, if everything was read and no snapshot needs any of it.
fn unneeded(repository: &Repository, report: &CheckReport) -> Option<[u8; 32]> {
    if !report.is_everything_read || report.defect_count > 0 || report.newer_count > 0 {
        return None;
    }
    let marks = Marks::read(repository.store.as_ref()).ok()?;
    let is_known = marks.unread().next().is_none() && !marks.quarantine.is_empty();
    is_known.then(|| marks.quarantine.hash())
}

/// What the arguments say.
fn read_data(arguments: &CheckArguments) -> Result<ReadData> {
    if let Some(share) = arguments.shard {
        return Ok(ReadData::Share(share));
    }
    let read_data = arguments.read_data_subset.unwrap_or_else(|| arguments.read_data.into());
    if arguments.heal && read_data == ReadData::Nothing {
        return Err(Error::Usage("--heal needs --read-data or --read-data-subset: only what is read is healed".into()));
    }
    Ok(read_data)
}

fn tell_facts(session: &Session, report: &CheckReport) {
    let facts = [
        (RunFact::Snapshots, report.snapshots),
        (RunFact::RepositoryBytes, report.bytes_stored),
        (RunFact::ReadBytes, report.bytes_read),
        (RunFact::Defects, report.defect_count),
    ];
    facts.into_iter().for_each(|(fact, value)| session.facts.add(fact, value));
}

/// Stores a record of what a command with this verb has read, and returns whether it is stored. If it is not, a warning
/// says why.
pub fn record_reads(repository: &Repository, verb: &str, report: &CheckReport, run: ReadRun) -> bool {
    // Damage that no snapshot needs is no defect.
    let is_bad = |is_sound: bool| report.defect_count > 0 && !is_sound;
    let damaged = report.read.iter().filter(|(_, is_sound)| is_bad(*is_sound)).count() as u64;
    let run = ReadRun {
        verb: verb.into(),
        containers: report.containers_read,
        bytes: report.bytes_read,
        // A run with defects has never found no damage.
        damaged: (run.damaged + damaged).max(u64::from(report.defect_count > 0)),
        bytes_of_all: run.bytes_of_all.max(report.bytes_stored),
        ..run
    };
    let saved = reads::save(repository, run, &report.read, &report.listed);
    saved.map_err(|error| note(&format!("warning: what was read is not recorded: {error}"))).is_ok()
}

/// Compares every blob with its name.
fn run_without_key(session: &Session) -> Result<Exit> {
    let (options, progress) = (&session.options, Progress::default());
    let store = location::store(options)?;
    let report = shown(options, &progress, None, || check_stored(&store, &progress, &session.stop))?;
    let bytes_without_snapshots = no_snapshots::warn(session, store.as_ref())?;
    let (defects, found) = (report.defect_count, no_snapshots::outcome(bytes_without_snapshots > 0, Exit::Fine));
    if options.json {
        print_json(&StoredDocument { report, bytes_without_snapshots })?;
    } else {
        note_defects(&report.defects, report.defect_count.saturating_sub(report.defects.len() as u64));
        let pairs = [
            ("sound", format!("{} blobs, {}", report.blobs, size(report.bytes))),
            ("not named by hash", format!("{} blobs", report.unnamed)),
            ("defects", report.defect_count.to_string()),
        ];
        if !options.quiet {
            print(|out| write_pairs(out, &pairs))?;
        }
    }
    Ok(if defects > 0 { Exit::Damaged } else { found })
}

/// Prints the texts of defects, and how many `more` defects there are.
pub fn note_defects(defects: &[String], more: u64) {
    defects.iter().for_each(|defect| note(&format!("error: {defect}")));
    if more > 0 {
        note(&format!("error: {more} more defects"));
    }
}

/// The snapshots that the arguments name or that pass their filter. `None` if they choose none.
fn chosen_snapshots(repository: &Repository, arguments: &CheckArguments) -> Result<Option<Vec<NamedSnapshot>>> {
    let filter = choice::filter(&arguments.filter)?;
    if arguments.snapshots.is_empty() {
        if filter.is_empty() {
            return Ok(None);
        }
        let (snapshots, _) = choice::snapshots(repository, &arguments.filter)?;
        if snapshots.is_empty() {
            return Err(Error::Usage("no readable snapshot has this host, these paths and these tags".into()));
        }
        return Ok(Some(snapshots));
    }
    arguments
        .snapshots
        .iter()
        .map(|name| choice::find_snapshot(repository, name, &filter))
        .collect::<Result<_>>()
        .map(Some)
}

fn damaged(report: &CheckReport) -> String {
    let CheckReport { bad_frames, bad_chunks, bad_containers, .. } = report;
    format!("{bad_frames} frames, {bad_chunks} chunks, {bad_containers} whole containers")
}

fn delete_damaged_bundles(repository: &Repository) {
    // What a bundle has is read from the snapshots themselves.
    let deleted = bundle::delete_damaged_bundles(repository, u64::MAX, 0);
    let _ = deleted.inspect_err(|error| note(&format!("warning: damaged bundles stay: {error}")));
    let deleted = clues::delete_damaged_clues(repository);
    let _ = deleted.inspect_err(|error| note(&format!("warning: damaged clues stay: {error}")));
}

/// What was written back. What was found is reported even if nothing can be.
fn healed(repository: &Repository, report: &CheckReport) -> HealReport {
    let mut healed = heal(repository, &report.healable)
        .unwrap_or_else(|error| HealReport { left: vec![error.to_string()], ..HealReport::default() });
    // Damage that no snapshot needs is no defect.
    let is_lost = |(id, is_sound): &&(_, bool)| !is_sound && !healed.put_back.contains(id);
    let lost: Vec<_> = report.read.iter().filter(|read| report.defect_count > 0 && is_lost(read)).collect();
    healed.left.extend(lost.into_iter().map(|(id, _)| {
        let name = blob_name(id);
        match repository.parity.untried(&name) {
            Some(reason) => format!("{name}: {reason}"),
            None => format!("{name}: nothing gives its bytes back; {HEALING}"),
        }
    }));
    healed
}

/// What parity has healed, and what hot indexes there are, if there is any.
fn parity_texts(report: &CheckReport, healed: Option<&HealReport>) -> Vec<(&'static str, String)> {
    let HotIndexCounts { sound: hot, missing, damaged: bad, rebuilt: from_hot } = report.hot_indexes;
    let rebuilt = report.containers_healed + report.short_blobs_healed - from_hot;
    let damaged = report.parity_damaged;
    let mut pairs = Vec::new();
    if report.parity_read > 0 || rebuilt > 0 || damaged > 0 {
        let sound = report.parity_read;
        pairs.push(("parity", format!("{sound} sound, {damaged} damaged; {rebuilt} blobs rebuilt from it")));
    }
    if hot + missing + bad > 0 {
        let text = format!("{hot} sound, {missing} missing, {bad} damaged; {from_hot} containers rebuilt from them");
        pairs.push(("hot indexes", text));
    }
    if let Some(HealReport { containers, short_blobs, parity, hot_indexes, left, .. }) = healed {
        left.iter().for_each(|text| note(&format!("warning: not healed: {text}")));
        let (blobs, left) = (containers + short_blobs, left.len());
        pairs.push(("healed", format!("{blobs} blobs, parity of {parity}, {hot_indexes} hot indexes; {left} left")));
    } else if rebuilt + damaged + from_hot + report.padding_damaged > 0 {
        note("warning: `fhrd check --read-data --heal` writes back what was rebuilt");
    }
    pairs
}

fn quarantined(repository: &Repository, report: &CheckReport, done: Option<&QuarantineReport>) -> String {
    let is_untried = |id| repository.parity.untried(&blob_name(id)).is_some();
    let untried = report.bad.containers().filter(|(id, _)| is_untried(id)).count();
    match done {
        None => "nothing was recorded".into(),
        Some(QuarantineReport { containers: 0, .. }) => "nothing".into(),
        Some(done) if report.defect_count == 0 => {
            format!("damage in {} containers, which no snapshot needs", done.containers)
        }
        Some(done) if untried > 0 => {
            format!(
                "damage in {} containers; parity of {untried} was not tried: see the reasons first",
                done.containers
            )
        }
        Some(done) => format!("damage in {} containers; {HEALING}", done.containers),
    }
}
