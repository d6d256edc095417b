//! Parity, as far as a check has read containers: what it has rebuilt is sound, and damaged parity is noted.

use super::defect_log::{DEFECTS_MAX, damage};
use super::run::{CheckReport, CheckRun};
use crate::error::{Error, Result};
use crate::repo::container::{blob_name, parse_name};
use crate::repo::parity::protected;
use crate::store::ParityFound;

/// Reads the parity of the containers that were read whole, and notes what is damaged, and what was rebuilt.
pub(super) fn check(run: &CheckRun<'_>, report: &mut CheckReport) -> Result<()> {
    let store = run.repository.parity.as_ref();
    let protected = match protected(store) {
        Err(error @ Error::Unreadable { .. }) => {
            report.notes.push(format!("parity cannot be listed: {error}"));
            return Ok(());
        }
        listed => listed?,
    };
    let read: Vec<_> = report.read.iter().map(|(id, _)| *id).filter(|id| protected.contains_key(id)).collect();
    for id in read {
        run.check_stop()?;
        let (name, mut note) = (blob_name(&id), |text: String| {
            if report.notes.len() < DEFECTS_MAX {
                report.notes.push(text);
            }
        });
        match store.inspect(&name) {
            Ok(ParityFound::Absent) => {}
            Ok(ParityFound::Whole) => report.parity_read += 1,
            Ok(ParityFound::Damaged(error)) => {
                note(format!("the parity of {name} is damaged: {error}"));
                report.parity_damaged.push(id);
            }
            Err(error) => note(format!("the parity of {name} cannot be read: {}", damage(error)?)),
        }
    }
    let healed: Vec<_> = store.healed().iter().filter_map(|name| parse_name(name)).collect();
    report.containers_healed = healed.iter().filter(|id| run.listing.containers.contains(id)).count() as u64;
    Ok(())
}
