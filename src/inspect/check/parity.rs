//! Parity, as far as a check has read: what it has rebuilt is sound, and damaged parity is noted.

use super::defect_log::{DEFECTS_MAX, damage};
use super::run::{CheckReport, CheckRun};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::{blob_name, parse_name};
use crate::repo::parity::{protected, short_blobs};
use crate::store::{BlobKind, BlobName, ParityFound, ParityStore, Store};

/// Reads the parity of the containers that were read whole, and then that of the short blobs. Notes what is damaged,
/// and what was rebuilt; if parity is set, also that it is missing.
pub(super) fn check(run: &CheckRun<'_>, report: &mut CheckReport) -> Result<()> {
    let store = run.repository.parity.as_ref();
    let is_share = store.share().is_some();
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
    let (read, lacking): (Vec<_>, Vec<_>) =
        read.into_iter().partition(|name| name.hash().is_some_and(|hash| protected.contains_key(&hash)));
    let is_mark = |name: &BlobName| name.kind() == BlobKind::RequiredMark;
    let is_long = |name: &BlobName| store.len_of(name).is_ok_and(|len| len.is_some_and(ParityStore::is_too_long));
    let (long, bare): (Vec<_>, Vec<_>) =
        lacking.iter().filter(|name| is_share && !is_mark(name)).partition(|name| is_long(name));
    let (long, bare) = (long.len(), bare.len());
    if long > 0 {
        report.notes.push(format!("{long} containers that were read are too long for parity"));
    }
    if bare > 0 {
        report.notes.push(format!("{bare} blobs that were read have no parity: `fhrd parity add`"));
    }
    let marks = lacking.iter().filter(|name| is_mark(name)).count();
    if marks > 0 {
        let text = "required marks have no parity, and while one cannot be read nobody writes: `fhrd repair index`";
        report.notes.push(format!("{marks} {text} protects them"));
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
            Ok(ParityFound::TooLarge(reason)) => {
                report.parity_too_large += 1;
                note(format!("the parity of {name} was not read: {reason}"));
            }
            Ok(ParityFound::Damaged(error)) => {
                note(format!("the parity of {name} is damaged: {error}"));
                report.parity_damaged += 1;
                report.healable.parity.insert(name);
            }
            Err(error) if error.kind() == ErrorKind::Cold => report.parity_cold += 1,
            Err(error) => note(format!("the parity of {name} cannot be read: {}", damage(error)?)),
        }
    }
    report.parity_too_large += store.too_large().len() as u64;
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
