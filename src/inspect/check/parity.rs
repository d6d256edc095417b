//! Parity, as far as a check has read: what it has rebuilt is sound, and damaged parity is noted.

use super::defect_log::{DEFECTS_MAX, damage};
use super::run::{CheckReport, CheckRun};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::{blob_name, parse_name};
use crate::repo::parity::{protected, short_blobs};
use crate::store::{BlobKind, BlobName, ParityFound};

/// Reads the parity of the containers that were read whole, and then that of the short blobs. Notes what is damaged,
/// and what was rebuilt; if there `is_share`, also that parity is missing.
pub(super) fn check(run: &CheckRun<'_>, is_share: bool, report: &mut CheckReport) -> Result<()> {
    let store = run.repository.parity.as_ref();
    let (protected, short) = match protected(store).and_then(|found| Ok((found, short_blobs(store)?))) {
        Err(error @ Error::Unreadable { .. }) => {
            report.notes.push(format!("parity cannot be listed: {error}"));
            return Ok(());
        }
        listed => listed?,
    };
    let mut read: Vec<BlobName> = report.read.iter().map(|(id, _)| blob_name(id)).collect();
    if !read.is_empty() {
        read.extend(short.into_iter().map(|blob| blob.name));
    }
    let found = read.len();
    read.retain(|name| name.hash().is_some_and(|hash| protected.contains_key(&hash)));
    if is_share && read.len() < found {
        report.notes.push(format!("{} blobs that were read have no parity: `fhrd parity add`", found - read.len()));
    }
    for name in read {
        run.check_stop()?;
        let mut note = |text: String| {
            if report.notes.len() < DEFECTS_MAX {
                report.notes.push(text);
            }
        };
        match store.inspect(&name) {
            Ok(ParityFound::Absent) => {}
            Ok(ParityFound::Whole) => report.parity_read += 1,
            Ok(ParityFound::Damaged(error)) => {
                note(format!("the parity of {name} is damaged: {error}"));
                report.parity_damaged += 1;
                report.healable.parity.insert(name);
            }
            Err(error) if error.kind() == ErrorKind::Cold => report.parity_cold += 1,
            Err(error) => note(format!("the parity of {name} cannot be read: {}", damage(error)?)),
        }
    }
    if report.parity_cold > 0 {
        report.notes.push(format!("the parity of {} blobs is in cold storage, and was not read", report.parity_cold));
    }
    for name in store.healed() {
        if name.kind() == BlobKind::Container {
            let is_listed = parse_name(&name).is_some_and(|id| run.listing.containers.contains(&id));
            report.containers_healed += u64::from(is_listed);
        } else {
            report.short_blobs_healed += 1;
        }
    }
    Ok(())
}
