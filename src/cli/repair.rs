//! `fhrd repair`.

use super::Session;
use super::args::{RepairSnapshotsArguments, RepairVerb};
use super::exit::Exit;
use super::location;
use super::output::{note, print, print_json, size, write_pairs};
use crate::error::Result;
use crate::repair::containers::repair_containers;
use crate::repair::index::repair_index;
use crate::repair::snapshots::{DamagedSnapshot, SnapshotRepair, repair_snapshots};

/// Repairs a part of the repository. The exit code says whether something is lost.
///
/// # Errors
/// Errors of the repository, the configuration and the repair.
pub fn run(session: &Session, what: &RepairVerb) -> Result<Exit> {
    match what {
        RepairVerb::Index => index(session),
        RepairVerb::Containers => containers(session),
        RepairVerb::Snapshots(arguments) => snapshots(session, arguments),
    }
}

fn index(session: &Session) -> Result<Exit> {
    let report = repair_index(&location::open_fresh(session)?, &session.stop)?;
    if session.options.json {
        print_json(&report)?;
    } else {
        for text in &report.segments_damaged {
            let stays = report.segments_staying.iter().any(|name| text.starts_with(name.as_str()));
            note(&format!("{}: {text}", if stays { "damaged, and stays" } else { "dropped" }));
        }
        report.unreadable.iter().for_each(|text| note(&format!("error: {text}")));
        report.unlistable.iter().for_each(|text| note(&format!("error: cannot list {text}")));
        report.newer.iter().for_each(|text| note(&format!("newer: {text}")));
        report.missing.iter().for_each(|name| note(&format!("error: {name} is missing")));
        report.damaged.iter().for_each(|name| note(&format!("error: {name} is damaged, as a mark says")));
        let pairs = [
            ("containers", format!("{} ({} adopted)", report.containers, report.adopted)),
            (
                "missing",
                format!("{} ({} that no snapshot needs)", report.missing.len() as u64 + report.gone, report.gone),
            ),
            ("there again", report.returned.to_string()),
            ("damaged", report.damaged.len().to_string()),
            ("unreadable", report.unreadable.len().to_string()),
            ("unlistable", format!("{} directories", report.unlistable.len())),
            ("index segments", format!("{} written", report.segments_written)),
            ("snapshots", format!("{} damaged blobs written again", report.snapshots_healed)),
            ("bundles of snapshots", format!("{} damaged ones deleted", report.bundles_deleted)),
            ("clues to near versions", format!("{} damaged blobs deleted", report.clues_deleted)),
            ("model catalogue", format!("{} damaged blobs replaced", report.catalogues_replaced)),
            ("configuration", format!("{} copies written again", report.configs_healed)),
            ("key slots", format!("{} written again", report.key_slots_healed)),
            ("marks", format!("{} written again", report.marks_healed)),
        ];
        if !session.options.quiet {
            print(|out| write_pairs(out, &pairs))?;
        }
    }
    let defects = [&report.missing, &report.damaged, &report.unreadable, &report.unlistable];
    let is_whole = defects.iter().all(|names| names.is_empty());
    Ok(outcome(is_whole, &report.newer))
}

fn containers(session: &Session) -> Result<Exit> {
    let config = location::config(&session.options)?;
    let report = repair_containers(&location::open_fresh(session)?, &config, &session.stop)?;
    let lost: u64 = report.containers.iter().map(|container| container.chunks_lost).sum();
    if session.options.json {
        print_json(&report)?;
    } else {
        for container in &report.containers {
            note(&format!("damaged: {}", container.damage));
            if !container.is_named {
                note(&format!("{}: no index segment says which chunks it had", container.container));
                continue;
            }
            note(&format!(
                "{}: {} chunks stored again ({}), {} stored elsewhere, {} lost",
                container.container,
                container.chunks_saved,
                size(container.bytes_saved),
                container.chunks_elsewhere,
                container.chunks_lost
            ));
        }
        report.missing.iter().for_each(|name| note(&format!("error: {name} is missing")));
        report.damaged.iter().for_each(|name| note(&format!("error: {name} is damaged, as a mark says")));
        report.unlistable.iter().for_each(|text| note(&format!("error: cannot list {text}")));
        let unnamed = match report.unnamed {
            0 => String::new(),
            unnamed => format!(", and those of {unnamed} containers that no index segment names"),
        };
        let saved: u64 = report.containers.iter().map(|container| container.chunks_saved).sum();
        let pairs = [
            ("without an index", format!("{} containers", report.containers.len())),
            ("stored again", format!("{saved} chunks")),
            ("lost", format!("{lost} chunks{unnamed}")),
            ("unlistable", format!("{} directories", report.unlistable.len())),
            ("missing", format!("{} containers, with all their chunks", report.missing.len())),
            (
                "with bad frames",
                format!("{} containers; their sound chunks serve where they are", report.with_bad_frames),
            ),
        ];
        if !session.options.quiet {
            print(|out| write_pairs(out, &pairs))?;
        }
    }
    let defects = [&report.missing, &report.damaged, &report.unlistable];
    let is_known = report.unnamed == 0 && defects.iter().all(|names| names.is_empty());
    Ok(if lost == 0 && is_known { Exit::Fine } else { Exit::Damaged })
}

fn snapshots(session: &Session, arguments: &RepairSnapshotsArguments) -> Result<Exit> {
    let config = location::config(&session.options)?;
    let request = SnapshotRepair {
        dry_run: arguments.dry_run,
        forget: arguments.forget,
        allow_no_containers: arguments.allow_no_containers,
    };
    let report = repair_snapshots(&location::open_fresh(session)?, &config, request, &session.stop)?;
    if session.options.json {
        print_json(&report)?;
    } else {
        for DamagedSnapshot { snapshot, replaced_by, dropped, dropped_count, may_come_back, .. } in &report.damaged {
            dropped.iter().for_each(|text| note(&format!("{snapshot}: lost {text}")));
            let more = dropped_count.saturating_sub(dropped.len() as u64);
            if more > 0 {
                note(&format!("{snapshot}: lost {more} more entries"));
            }
            if *may_come_back {
                note(&format!("{snapshot}: left as it is, because what it lacks may be readable later"));
            }
            if let Some(replaced_by) = replaced_by {
                note(&format!("{snapshot}: written again as {replaced_by}"));
            }
        }
        report.unreadable.iter().for_each(|text| note(&format!("error: {text}")));
        report.newer.iter().for_each(|text| note(&format!("newer: {text}")));
        let would = if arguments.dry_run { "would be " } else { "" };
        let pairs = [
            ("whole", report.whole.to_string()),
            ("blobs written again", format!("{would}{}", report.healed.len())),
            ("damaged", report.damaged.len().to_string()),
            ("unreadable", report.unreadable.len().to_string()),
            ("forgotten", report.forgotten.len().to_string()),
        ];
        if !session.options.quiet {
            print(|out| write_pairs(out, &pairs))?;
        }
    }
    let is_whole = report.damaged.is_empty() && report.unreadable.is_empty();
    Ok(outcome(is_whole, &report.newer))
}

/// The exit code of a repair that leaves alone what only a newer version can read.
fn outcome(is_whole: bool, newer: &[String]) -> Exit {
    match (is_whole, newer) {
        (false, _) => Exit::Damaged,
        (true, []) => Exit::Fine,
        (true, _) => Exit::Failed,
    }
}
