//! `fhrd cold`: whether data containers are in cold storage, and hot indexes of what exists.

use serde::Serialize;

use super::Session;
use super::args::{ColdSetting, ColdVerb};
use super::exit::Exit;
use super::location;
use super::output::{note, print, print_json, size, write_pairs};
use super::progress::shown;
use crate::error::Result;
use crate::metrics::Progress;
use crate::repo::cold::{AddedIndexes, add, set};

/// What was set as JSON.
#[derive(Serialize)]
struct ColdDocument {
    cold: bool,
    before: bool,
}

/// Runs the verb.
///
/// # Errors
/// Errors of the repository; [`Usage`](crate::Error::Usage) if hot indexes are to be added to one that is not cold.
pub fn run(session: &Session, verb: &ColdVerb) -> Result<Exit> {
    match verb {
        ColdVerb::Set { setting } => run_set(session, *setting == ColdSetting::On),
        ColdVerb::Add => run_add(session),
    }
}

fn run_set(session: &Session, cold: bool) -> Result<Exit> {
    let document = ColdDocument { cold, before: set(&location::open(session)?, cold)? };
    let ColdDocument { before, .. } = document;
    if session.options.json {
        print_json(&document)?;
        return Ok(Exit::Fine);
    }
    if !session.options.quiet {
        let show = |is_cold: bool| if is_cold { "on" } else { "off" }.to_string();
        print(|out| write_pairs(out, &[("cold", show(cold)), ("before", show(before))]))?;
    }
    if cold && !before {
        note("new containers get hot indexes; `fhrd cold add` writes those of the containers that exist");
    } else if before && !cold {
        note("data containers in a cold class of storage stay there, and cannot be read until you bring them back");
    }
    Ok(Exit::Fine)
}

fn run_add(session: &Session) -> Result<Exit> {
    let (repository, progress) = (location::open(session)?, Progress::default());
    let added = shown(&session.options, &progress, None, || add(&repository, &progress, &session.stop))?;
    added.unread_containers.iter().for_each(|text| note(&format!("error: {text}")));
    if session.options.json {
        print_json(&added)?;
    } else if !session.options.quiet {
        let pairs = [
            ("added", format!("{} hot indexes, {}", added.containers, size(added.bytes))),
            ("before", format!("{} containers had one", added.containers_before)),
            ("unread", format!("{} containers: {} cold, {} damaged", added.unread, added.cold, added.damaged)),
        ];
        print(|out| write_pairs(out, &pairs))?;
    }
    Ok(match &added {
        AddedIndexes { damaged: 1.., .. } => Exit::Damaged,
        AddedIndexes { cold: 1.., .. } => Exit::Cold,
        // A newer version can read them.
        AddedIndexes { unread: 1.., .. } => Exit::Failed,
        _ => Exit::Fine,
    })
}
