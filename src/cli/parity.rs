//! `fhrd parity`: how much parity there is, and parity of what exists.

use serde::Serialize;

use super::Session;
use super::args::{ParitySetting, ParityVerb};
use super::exit::Exit;
use super::location;
use super::output::{note, print, print_json, size, write_pairs};
use super::progress::shown;
use crate::error::Result;
use crate::metrics::Progress;
use crate::repo::parity::{AddedParity, add, set};

/// What was set as JSON. None is no parity.
#[derive(Serialize)]
struct SetDocument {
    share: Option<String>,
    before: Option<String>,
}

/// Runs the verb.
///
/// # Errors
/// Errors of the repository; [`Usage`](crate::Error::Usage) if parity is to be added and none is set.
pub fn run(session: &Session, verb: &ParityVerb) -> Result<Exit> {
    match verb {
        ParityVerb::Set { share } => run_set(session, *share),
        ParityVerb::Add => run_add(session),
    }
}

fn run_set(session: &Session, ParitySetting(share): ParitySetting) -> Result<Exit> {
    let before = set(&location::open(session)?, share)?;
    let text = |share: crate::store::ParityShare| share.to_string();
    let document = SetDocument { share: share.map(text), before: before.map(text) };
    if session.options.json {
        print_json(&document)?;
    } else if !session.options.quiet {
        let show = |share: Option<String>| share.unwrap_or_else(|| "off".into());
        print(|out| write_pairs(out, &[("parity", show(document.share)), ("before", show(document.before))]))?;
    }
    if share.is_some() && !session.options.json {
        note("new containers get parity; `fhrd parity add` protects those that exist");
    }
    Ok(Exit::Fine)
}

fn run_add(session: &Session) -> Result<Exit> {
    let (repository, progress) = (location::open(session)?, Progress::default());
    let added = shown(&session.options, &progress, None, || add(&repository, &progress, &session.stop))?;
    added.damaged_containers.iter().for_each(|text| note(&format!("error: {text}")));
    if session.options.json {
        print_json(&added)?;
    } else if !session.options.quiet {
        let pairs = [
            ("parity", added.share.clone()),
            (
                "added",
                format!(
                    "{} to {} containers and {} short blobs",
                    size(added.bytes),
                    added.containers,
                    added.short_blobs
                ),
            ),
            ("before", format!("{} containers had it", added.containers_before)),
            ("too long", format!("{} containers, which get none", added.containers_too_long)),
            ("cold", format!("{} containers, which get none until they are thawed", added.cold)),
            ("damaged", format!("{} containers, which get none", added.damaged)),
        ];
        print(|out| write_pairs(out, &pairs))?;
    }
    Ok(match &added {
        AddedParity { damaged: 1.., .. } => Exit::Damaged,
        AddedParity { cold: 1.., .. } => Exit::Cold,
        _ => Exit::Fine,
    })
}
