//! Whether the bytes of a container are its own: they have the chunks that segments say.
//!
//! The name of a container is the hash of all its bytes, and an index is read without them. After a mix-up of files, or
//! by somebody who can write, the whole bytes of another container may be under the name. Its index is intact. So
//! records of segments are compared with it: a few, and all of them only if none of these fits. Then all bytes are
//! read, because segments may be wrong, too.

use super::listing::ContainerListing;
use super::segment::IndexSegment;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::{ContainerIndex, blob_name};
use crate::store::read_stored_hash;
use crate::types::ContainerId;

/// Entries whose records are looked for first.
const PROBES: usize = 8;

/// Fails if segments of `listing` have records of container `id`, `container_index` fits none of them, and the bytes
/// have not the hash that the name says. What no segment names, or only one that cannot be read, is not refused.
/// Returns whether all bytes were read: parity may have given them back then.
///
/// # Errors
/// [`Error::Corrupt`].
pub(super) fn check_owner(
    listing: &ContainerListing,
    id: &ContainerId,
    container_index: &ContainerIndex,
) -> Result<bool> {
    let segments = listing.segments();
    let mut is_any_other = false;
    for segment in segments.iter() {
        let Some(number) = segment.position_of(id) else { continue };
        match has_probe(segment, id, container_index).and_then(|has| match has {
            true => Ok(Some(true)),
            false => fits(segment, number, container_index),
        }) {
            Ok(Some(true)) => return Ok(false),
            Ok(Some(false)) => is_any_other = true,
            Ok(None) => {}
            // Another process may have merged the segment, or it is damaged: nobody knows.
            Err(error) => {
                tracing::debug!("{error}");
                return Ok(false);
            }
        }
    }
    if !is_any_other {
        return Ok(false);
    }
    // Only the hash of all bytes tells which of both is wrong.
    match read_stored_hash(listing.store().as_ref(), &blob_name(id), &|| Ok(())) {
        Ok(()) => Ok(true),
        // The index is not from there.
        Err(error) if error.kind() == ErrorKind::Cold => Ok(false),
        Err(error) if error.is_proven_damage() && error.kind() == ErrorKind::Damaged => Err(not_its_own(id)),
        Err(error) => Err(error),
    }
}

/// The error of a container with the bytes of another one.
pub(super) fn not_its_own(id: &ContainerId) -> Error {
    Error::corrupt(blob_name(id), 0, "the chunks that segments say it has", "the bytes of another container")
}

/// Whether the segment has one of a few entries of the container at its place.
fn has_probe(segment: &IndexSegment, id: &ContainerId, container_index: &ContainerIndex) -> Result<bool> {
    let step = container_index.entries.len().div_ceil(PROBES).max(1);
    for (position, entry) in (0u32..).zip(&container_index.entries).step_by(step) {
        if segment.find(&entry.fingerprint)?.contains(&(*id, position)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether any record of container `number` of the segment fits. `None` if there is no record of it.
fn fits(segment: &IndexSegment, number: u32, container_index: &ContainerIndex) -> Result<Option<bool>> {
    let mut fits = None;
    for page in segment.pages() {
        for record in page?.iter().filter(|record| record.container == number) {
            let entry = container_index.entries.get(record.entry as usize);
            if entry.is_some_and(|entry| entry.fingerprint == record.fingerprint) {
                return Ok(Some(true));
            }
            fits = Some(false);
        }
    }
    Ok(fits)
}
