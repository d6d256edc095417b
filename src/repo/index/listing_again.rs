//! What readers learn after the listing was taken: containers that others have put or deleted since, and containers
//! that a listing lacks although they are there. These are found by their names, which segments have.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::listing::{ContainerListing, ListedSegments};
use super::unlistable::list_containers;
use crate::error::{Error, Result};
use crate::repo::container::blob_name;
use crate::store::{BlobName, StoreExt, map_parallel};
use crate::types::ContainerId;

/// What a reader has learned since the listing was taken.
#[derive(Default)]
pub(super) struct Changes {
    /// Containers that a prune has deleted.
    gone: HashSet<ContainerId>,
    /// Containers that were not there at the start.
    new: HashSet<ContainerId>,
    /// Containers that no listing had, and that were found by name.
    found_by_name: HashSet<ContainerId>,
    /// A container that a segment names and that is neither listed nor known to be gone.
    unlisted: Option<ContainerId>,
}

impl Changes {
    fn lose(&mut self, id: ContainerId) {
        self.new.remove(&id);
        self.found_by_name.remove(&id);
        self.gone.insert(id);
    }
}

impl ContainerListing {
    /// Whether a look-up may answer with a container: it was in the listing, or is in one that a reader took later.
    pub fn has(&self, id: &ContainerId) -> bool {
        if !self.has_changed.load(Ordering::Acquire) {
            return self.containers.contains(id);
        }
        let changes = self.changes.read();
        changes.new.contains(id)
            || changes.found_by_name.contains(id)
            || self.containers.contains(id) && !changes.gone.contains(id)
    }

    /// Adds the containers that segments name, that the listing lacks and that can be found by name: the listing is not
    /// complete. One that cannot be looked at counts as unread. Returns those that were added. For readers: a writer
    /// relies on none of them.
    ///
    /// # Errors
    /// Errors of the store that end all reading.
    pub fn add_unlisted(&mut self) -> Result<Vec<ContainerId>> {
        let segments = self.segments();
        let named: HashSet<ContainerId> = segments.iter().flat_map(|segment| segment.containers()).copied().collect();
        let unlisted: Vec<ContainerId> = named.into_iter().filter(|id| !self.has(id)).collect();
        let found = self.find_by_name(&unlisted)?;
        self.containers.extend(&found);
        Ok(found)
    }

    /// Adds the containers that the `first` listing of the same run has, that this one lacks and that can be found by
    /// name. For readers, as [`Self::add_unlisted`].
    ///
    /// # Errors
    /// [`Error::Unreadable`] if this listing lacks a segment that the first one has and that is there. Errors of the
    /// store that end all reading.
    pub fn add_seen(&mut self, first: &ContainerListing) -> Result<()> {
        let lacking: Vec<ContainerId> = first.containers.iter().filter(|id| !self.has(id)).copied().collect();
        let found = self.find_by_name(&lacking)?;
        self.containers.extend(&found);
        let known: HashSet<BlobName> =
            self.segments().iter().chain(self.replaced().iter()).map(|segment| segment.name().clone()).collect();
        for segment in first.segments().iter().filter(|segment| !known.contains(segment.name())) {
            if self.store().head(segment.name())?.is_some() {
                return Err(Error::unlisted(segment.name()));
            }
        }
        Ok(())
    }

    /// The containers of `ids` that are there. What cannot be looked at is not absent: it is noted as unread.
    fn find_by_name(&self, ids: &[ContainerId]) -> Result<Vec<ContainerId>> {
        let mut found = Vec::new();
        let store = self.store();
        for (id, head) in ids.iter().zip(map_parallel(store.requests_max(), ids, |id| store.head(&blob_name(id)))) {
            match head {
                Ok(None) => {}
                Ok(Some(_)) => {
                    tracing::warn!("{}", Error::unlisted(blob_name(id)));
                    found.push(*id);
                }
                Err(error) if error.stops_reading() => return Err(error),
                Err(error) => {
                    self.note_unread(id, &error);
                    found.push(*id);
                }
            }
        }
        Ok(found)
    }

    /// Remembers a container that a segment names and the listing has not. Returns false.
    pub(super) fn note_unlisted(&self, id: &ContainerId) -> bool {
        let mut changes = self.changes.write();
        if !changes.gone.contains(id) {
            changes.unlisted = Some(*id);
        }
        false
    }

    /// For readers, which found nothing: if a segment named a container that the listing has not, lists again, and asks
    /// for it by name. Returns whether that may help.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn list_again_for_unlisted(&self) -> Result<bool> {
        let unlisted = self.changes.write().unlisted.take();
        let Some(unlisted) = unlisted else { return Ok(false) };
        self.list_again()?;
        if self.has(&unlisted) {
            return Ok(true);
        }
        let is_there = !self.find_by_name(&[unlisted])?.is_empty();
        let mut changes = self.changes.write();
        match is_there {
            true => _ = changes.found_by_name.insert(unlisted),
            // It was deleted in turn. A segment that was listed now may name the one that followed it. Each container
            // is asked for once.
            false => changes.lose(unlisted),
        }
        Ok(true)
    }

    /// For readers, which found that container `gone` is deleted: lists containers and segments again. Returns whether
    /// it was not known, so that looking again may help.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn list_again_without(&self, gone: &ContainerId) -> Result<bool> {
        if !self.has(gone) {
            return Ok(false);
        }
        tracing::debug!("container {gone} is gone; listing again");
        self.list_again()?;
        // A store that lists what it does not have would be asked again and again.
        self.changes.write().lose(*gone);
        Ok(true)
    }

    fn list_again(&self) -> Result<()> {
        let segments = ListedSegments { active: self.refresh()?, replaced: Arc::default() };
        let (listed, unlistable) = list_containers(self.store(), &segments.all())?;
        self.unlistable.add(unlistable);
        let lacking: Vec<ContainerId> =
            self.containers.difference(&listed).filter(|id| self.has(id)).copied().collect();
        let still_there = self.find_by_name(&lacking)?;
        let mut changes = self.changes.write();
        changes.gone.extend(lacking);
        still_there.iter().for_each(|id| _ = changes.gone.remove(id));
        changes.new = listed.difference(&self.containers).filter(|id| !changes.gone.contains(id)).copied().collect();
        self.has_changed.store(true, Ordering::Release);
        Ok(())
    }
}
