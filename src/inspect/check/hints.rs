//! Checks what saves reads and effort: catalogues of models, bundles of snapshots, clues and read records.

use super::defect_log::{DEFECTS_MAX, DefectLog, damage};
use super::run::{CheckReport, listed_or_logged};
use crate::error::{ErrorKind, Result};
use crate::model;
use crate::repo::Repository;
use crate::repo::bundle;
use crate::repo::index::similarity::clues::{self, is_clues};
use crate::repo::reads::ReadLedger;
use crate::store::{BlobKind, BlobName, ListedBlob};

/// Loads every catalogue of models, and logs those that are damaged.
pub(super) fn catalogues(repository: &Repository, log: &mut DefectLog) -> Result<()> {
    for listed in listed_or_logged(repository.store.as_ref(), BlobKind::Model, log)? {
        if let Err(error) = model::CatalogueBlob::load(repository.store.as_ref(), &listed.name)
            && error.kind() != ErrorKind::NotFound
        {
            log.damaged_blob(&listed.name, &damage(error)?);
        }
    }
    Ok(())
}

/// Reads every bundle of snapshots, and notes those that cannot be read. They are no defect: they only have copies, and
/// whoever writes next deletes them.
pub(super) fn bundles(repository: &Repository, report: &mut CheckReport, log: &mut DefectLog) -> Result<()> {
    let store = repository.store.as_ref();
    let blobs = listed_or_logged(store, BlobKind::Bundle, log)?;
    note_unreadable(&blobs, "only has copies of snapshots", |name| bundle::verify(store, name), report)
}

/// Reads all clues, and notes those that cannot be read. They are no defect: they only save reads, and
/// `check --read-data` deletes them.
pub(super) fn all_clues(repository: &Repository, report: &mut CheckReport, log: &mut DefectLog) -> Result<()> {
    let store = repository.store.as_ref();
    let mut blobs = listed_or_logged(store, BlobKind::Similarity, log)?;
    blobs.retain(|blob| is_clues(&blob.name));
    note_unreadable(&blobs, "only helps to find near versions", |name| clues::load(store, name).map(drop), report)
}

/// Notes those of `blobs` that `read` cannot read, and what they are for.
fn note_unreadable(
    blobs: &[ListedBlob],
    purpose: &str,
    read: impl Fn(&BlobName) -> Result<()>,
    report: &mut CheckReport,
) -> Result<()> {
    let mut unreadable = Vec::new();
    for ListedBlob { name, .. } in blobs {
        match read(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => unreadable.push((name, damage(error)?)),
            _ => {}
        }
    }
    let notes = unreadable.into_iter().take(DEFECTS_MAX);
    report.notes.extend(notes.map(|(name, error)| format!("{name} {purpose}: {error}")));
    Ok(())
}

/// Reads every read record, and notes those that are damaged: they are only hints, and whoever reads next deletes them.
pub(super) fn read_records(repository: &Repository, report: &mut CheckReport) -> Result<()> {
    let ledger = ReadLedger::load(repository.store.as_ref(), repository.clock.now_ns())?;
    for (name, error) in ledger.unreadable {
        report.notes.push(format!("{name} only says what was read: {}", damage(error)?));
    }
    Ok(())
}
