//! Containers and segments of a repository, and the look-up that everything shares.
//!
//! 1. A chunk is stored if the intact container index of a listed container names it. Segments only find it quickly.
//! 2. A segment that is damaged, and a container that no readable segment names, are searched through copies of the
//!    container indexes instead ([`super::recovery`]).
//! 3. Segments are merged while others read. If one has vanished, the segments are listed again.
//! 4. Marks say which entries are bad ([`ContainerListing::is_usable`]). Writers take only the others as stored, and
//!    readers prefer them.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::coverage::poorly_indexed;
use super::listing_again::Changes;
use super::recovery::Recovery;
use super::segment::IndexSegment;
use super::segment_writer::NewSegments;
use super::unlistable::{UnlistableDirectories, list_containers};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::marks::{Marks, Quarantine};
use crate::store::{BlobKind, BlobName, Store};
use crate::types::{ContainerId, Fingerprint};

/// Listings of the segments that one step takes because a segment has vanished.
const LISTINGS_MAX: usize = 10;

/// Bytes of the pages of a segment that may stay in memory, at most.
const SMALL_SEGMENT_BYTES: u64 = 1 << 20;
/// Bytes of all pages that stay in memory, at most.
const CACHED_BYTES_MAX: u64 = 16 << 20;

/// Containers and segments of a repository at one moment.
pub struct ContainerListing {
    store: Arc<dyn Store>,
    /// Ids of all containers.
    pub containers: HashSet<ContainerId>,
    /// Segments that do not open, with the reason. Their containers count as unlisted. Also the directory of segments,
    /// if it cannot be listed.
    pub damaged: Vec<(String, Error)>,
    segments: RwLock<ListedSegments>,
    new_segments: NewSegments,
    quarantine: RwLock<Arc<Quarantine>>,
    recovery: Recovery,
    /// Number of containers that segments name and that are lost.
    pub lost: usize,
    /// Number of containers that segments name and that a prune is recorded to have deleted.
    pub pruned: usize,
    /// Marks that could not be read, or that a listing of marks lacked. What they list seems to be sound.
    marks_unread: AtomicU64,
    /// Containers that segments name, but perhaps not with all records. Readers ask their own indexes.
    poor: RwLock<HashSet<ContainerId>>,
    /// Whether these were looked for.
    is_proved: AtomicBool,
    /// Whether there are any changes.
    pub(super) has_changed: AtomicBool,
    pub(super) changes: RwLock<Changes>,
    /// Directories of containers that could not be listed, now or earlier.
    pub(super) unlistable: UnlistableDirectories,
}

/// The segments of a repository.
#[derive(Clone, Default)]
pub(super) struct ListedSegments {
    /// Open segments without replaced ones, those with most records first.
    pub(super) active: Arc<Vec<Arc<IndexSegment>>>,
    /// Segments that another one replaces, and that were not deleted yet.
    pub(super) replaced: Arc<Vec<Arc<IndexSegment>>>,
}

impl ListedSegments {
    pub(super) fn all(&self) -> Vec<&IndexSegment> {
        self.active.iter().chain(self.replaced.iter()).map(Arc::as_ref).collect()
    }
}

impl ContainerListing {
    /// Lists a repository and reads its marks.
    ///
    /// # Errors
    /// Errors of listing the store. Segments that cannot be read are in [`Self::damaged`].
    pub fn take(store: &Arc<dyn Store>) -> Result<Self> {
        Self::take_with(store, Marks::read(store.as_ref())?)
    }

    /// Lists a repository whose marks are `marks`.
    ///
    /// # Errors
    /// Errors of [`Self::take`].
    pub fn take_with(store: &Arc<dyn Store>, marks: Marks) -> Result<Self> {
        for (name, error) in &marks.damaged {
            tracing::warn!("ignoring {name}: {error}");
        }
        let (segments, damaged) = open_segments(store, &ListedSegments::default())?;
        let (containers, unlistable) = list_containers(store, &segments.all())?;
        let listing = Self::of(store, containers);
        listing.unlistable.add(unlistable);
        listing.note_marks_unread(marks.unread().count() as u64);
        listing.set_quarantine(marks.quarantine);
        Ok(ContainerListing { damaged, segments: RwLock::new(segments), ..listing })
    }

    /// A listing of the segments and of no containers: to merge segments, and for measurements.
    ///
    /// # Errors
    /// Errors of [`Self::take`].
    pub fn of_segments(store: &Arc<dyn Store>) -> Result<Self> {
        let (segments, damaged) = open_segments(store, &ListedSegments::default())?;
        Ok(ContainerListing { damaged, segments: RwLock::new(segments), ..Self::of(store, HashSet::new()) })
    }

    /// A listing of `containers` and no segments.
    pub(super) fn of(store: &Arc<dyn Store>, containers: HashSet<ContainerId>) -> Self {
        let recovery = Recovery::new(store.clone());
        let store = store.clone();
        let (segments, new_segments, quarantine) = (RwLock::default(), NewSegments::default(), RwLock::default());
        let unlistable = UnlistableDirectories::default();
        let (has_changed, changes) = (AtomicBool::new(false), RwLock::default());
        let (damaged, poor, is_proved) = (Vec::new(), RwLock::default(), AtomicBool::new(false));
        ContainerListing {
            store,
            containers,
            damaged,
            segments,
            new_segments,
            quarantine,
            recovery,
            lost: 0,
            pruned: 0,
            marks_unread: AtomicU64::default(),
            poor,
            is_proved,
            has_changed,
            changes,
            unlistable,
        }
    }

    /// The same listing without some containers. Its segments are the same.
    pub fn without(&self, containers: &HashSet<ContainerId>) -> Self {
        let damaged = self.damaged.iter().map(|(name, error)| (name.clone(), error.duplicate())).collect();
        let listing = Self::of(&self.store, self.containers.difference(containers).copied().collect());
        listing.set_quarantine(self.quarantine());
        listing.unlistable.add(self.unlistable.all());
        let (poor, is_proved) = (RwLock::new(self.poor()), AtomicBool::new(self.is_proved.load(Ordering::Acquire)));
        let (segments, new_segments) = (RwLock::new(self.listed()), self.new_segments.clone());
        ContainerListing { damaged, segments, new_segments, poor, is_proved, ..listing }
    }

    /// The same listing, whose users write segments like `new_segments`.
    pub fn with_new_segments(self, new_segments: NewSegments) -> Self {
        ContainerListing { new_segments, ..self }
    }

    /// What the segments that its users write are like.
    pub fn new_segments(&self) -> &NewSegments {
        &self.new_segments
    }

    /// Whether the chunk of an entry counts as stored by this entry. It does not if a mark says that its bytes, or
    /// those of its bases, are bad.
    pub fn is_usable(&self, container: &ContainerId, entry: u32) -> bool {
        self.quarantine().is_usable(container, entry)
    }

    /// What is bad, as far as marks or the running check know.
    pub fn quarantine(&self) -> Arc<Quarantine> {
        self.quarantine.read().clone()
    }

    /// Replaces what is known to be bad. Locators that exist do not see it.
    pub fn set_quarantine(&self, quarantine: Arc<Quarantine>) {
        *self.quarantine.write() = quarantine;
    }

    /// Records that so many marks could not be read, or were not listed.
    pub fn note_marks_unread(&self, count: u64) {
        self.marks_unread.fetch_add(count, Ordering::Relaxed);
    }

    /// Marks that could not be read, or were not listed, so far.
    pub fn marks_unread(&self) -> u64 {
        self.marks_unread.load(Ordering::Relaxed)
    }

    /// Open segments without replaced ones, those with most records first: they answer most look-ups.
    pub fn segments(&self) -> Arc<Vec<Arc<IndexSegment>>> {
        self.listed().active
    }

    /// Segments that another one replaces, and that were not deleted yet.
    pub fn replaced(&self) -> Arc<Vec<Arc<IndexSegment>>> {
        self.listed().replaced
    }

    /// What a segment in place of `sources` must name as replaced: these, and what they replace and is still there.
    pub(super) fn replaced_by_successor(&self, sources: &[&IndexSegment]) -> Vec<BlobName> {
        let mut names: Vec<BlobName> = sources.iter().map(|segment| segment.name().clone()).collect();
        let replaced = self.replaced();
        let is_replaced = |name: &&BlobName| sources.iter().any(|it| it.replaced().contains(name));
        names.extend(replaced.iter().map(|segment| segment.name()).filter(is_replaced).cloned());
        names
    }

    /// The store that was listed.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Names of the segments in which a look-up met damage.
    pub fn damaged_segments(&self) -> Vec<String> {
        self.recovery.damaged()
    }

    /// What is known of damaged segments.
    pub(super) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    fn listed(&self) -> ListedSegments {
        self.segments.read().clone()
    }

    /// Lists the segments again, and opens new ones. The containers stay those of the start.
    ///
    /// # Errors
    /// Errors of listing the store.
    pub fn refresh(&self) -> Result<Arc<Vec<Arc<IndexSegment>>>> {
        let (segments, damaged) = open_segments(&self.store, &self.listed())?;
        for (name, error) in damaged.iter().filter(|(name, _)| self.damaged.iter().all(|known| known.0 != *name)) {
            tracing::debug!("{name}: {error}");
        }
        *self.segments.write() = segments.clone();
        self.recovery.forget_unlisted();
        Ok(segments.active)
    }

    fn poor(&self) -> HashSet<ContainerId> {
        self.poor.read().clone()
    }

    /// For readers, which found nothing, and for whoever deletes: proves that segments have all records of the
    /// containers that they name. From then on, the own indexes of the others are asked. Returns whether that may help;
    /// only the first call does anything.
    ///
    /// # Errors
    /// Errors of the store that are not damage.
    pub fn prove_segments(&self) -> Result<bool> {
        if self.is_proved.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let poor = poorly_indexed(self).inspect_err(|_| self.is_proved.store(false, Ordering::Release))?;
        if poor.is_empty() {
            return Ok(false);
        }
        tracing::debug!("{} containers are not proved to be whole in a segment", poor.len());
        *self.poor.write() = poor;
        self.recovery.forget_unlisted();
        Ok(true)
    }

    /// Containers whose own indexes are asked: those that no segment lists, and those of which none has all records.
    fn unlisted(&self) -> Vec<ContainerId> {
        let mut unlisted = self.orphans();
        unlisted.extend(self.poor().into_iter().filter(|id| self.has(id)));
        unlisted.sort();
        unlisted.dedup();
        unlisted
    }

    /// Containers that no segment lists, in name order.
    pub fn orphans(&self) -> Vec<ContainerId> {
        let segments = self.segments();
        let named: HashSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
        let mut orphans: Vec<ContainerId> = self.containers.iter().filter(|id| !named.contains(id)).copied().collect();
        orphans.sort();
        orphans
    }

    /// Removes the containers that no segment lists. Nothing new may depend on such a container: it may belong to
    /// another process, or it could not be adopted.
    pub fn forget_orphans(&mut self) {
        self.orphans().iter().for_each(|orphan| {
            self.containers.remove(orphan);
        });
    }

    /// Searches the containers of the listing that may have a chunk, and returns the first result of `visit`. It is
    /// called with a container and the position of the entry, and perhaps twice with the same ones.
    ///
    /// # Errors
    /// If `visit` has no result, that of a segment which cannot be read for a reason other than damage. Errors of the
    /// temporary directory.
    pub fn search<T>(
        &self,
        fingerprint: &Fingerprint,
        mut visit: impl FnMut(ContainerId, u32) -> Option<T>,
    ) -> Result<Option<T>> {
        let (mut segments, mut next, mut listings, mut failure) = (self.segments(), 0, 0, None);
        while let Some(segment) = segments.get(next) {
            let hits = match self.recovery.find_known(segment, fingerprint) {
                Some(hits) => hits?,
                None => match segment.find(fingerprint) {
                    Ok(hits) => hits,
                    Err(error) if error.kind() == ErrorKind::NotFound && listings < LISTINGS_MAX => {
                        (segments, next, listings) = (self.refresh()?, 0, listings + 1);
                        continue;
                    }
                    Err(error) if error.is_unreadable() => {
                        self.copies_of(segment, &error)?;
                        continue;
                    }
                    Err(error) => {
                        failure = Some(error);
                        Vec::new()
                    }
                },
            };
            next += 1;
            if let Some(found) = self.first(hits, &mut visit) {
                return Ok(Some(found));
            }
        }
        let hits =
            self.recovery.find_unlisted(fingerprint, || (self.unlisted(), self.orphans().len(), &self.damaged))?;
        match (
            self.first(hits, &mut |container, entry| visit(container, entry).map(|found| (container, found))),
            failure,
        ) {
            (Some((container, found)), _) => {
                self.recovery.use_unlisted(container);
                Ok(Some(found))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// Copies of the indexes of the containers of a segment, which is damaged as `error` says. They are segments in a
    /// temporary directory.
    pub(super) fn copies_of(&self, segment: &IndexSegment, error: &Error) -> Result<Arc<Vec<IndexSegment>>> {
        self.recovery.rebuild(segment, error, &self.containers)
    }

    fn first<T>(
        &self,
        hits: Vec<(ContainerId, u32)>,
        visit: &mut impl FnMut(ContainerId, u32) -> Option<T>,
    ) -> Option<T> {
        let listed = hits.into_iter().filter(|(container, _)| self.has(container) || self.note_unlisted(container));
        listed.into_iter().find_map(|(container, entry)| visit(container, entry))
    }

    /// Containers that no segment lists and that [`Self::search`] has used since the last call, in name order.
    pub fn take_orphans_used(&self) -> Vec<ContainerId> {
        self.recovery.take_used()
    }
}

/// Opens the segments of a store, except those in `known`. Also returns those that do not open, with the reason.
fn open_segments(store: &Arc<dyn Store>, known: &ListedSegments) -> Result<(ListedSegments, Vec<(String, Error)>)> {
    let mut opened: Vec<Arc<IndexSegment>> = known.active.iter().chain(known.replaced.iter()).cloned().collect();
    let (mut damaged, mut cached_bytes) = (Vec::new(), 0);
    for _ in 0..LISTINGS_MAX {
        let mut listed = match store.list(BlobKind::Segment.into()) {
            // Their containers count as unlisted.
            Err(error @ Error::Unreadable { .. }) => {
                return Ok((ListedSegments::default(), vec![(BlobKind::Segment.to_string(), error)]));
            }
            listed => listed?,
        };
        listed.sort();
        opened.retain(|segment| listed.binary_search_by(|blob| blob.name.cmp(segment.name())).is_ok());
        damaged.clear();
        let mut is_complete = true;
        let known: HashSet<BlobName> = opened.iter().map(|segment| segment.name().clone()).collect();
        for blob in listed.into_iter().filter(|blob| !known.contains(&blob.name)) {
            match IndexSegment::open_listed(store.clone(), &blob.name, blob.len) {
                Ok(mut segment) => {
                    let bytes = segment.page_bytes();
                    if bytes <= SMALL_SEGMENT_BYTES && cached_bytes + bytes <= CACHED_BYTES_MAX {
                        cached_bytes += bytes;
                        segment.cache_pages();
                    }
                    opened.push(Arc::new(segment));
                }
                // Its containers are now in a segment that replaces it.
                Err(error) if error.kind() == ErrorKind::NotFound => is_complete = false,
                Err(error) if error.stops_reading() => return Err(error),
                Err(error) => damaged.push((blob.name.into(), error)),
            }
        }
        if is_complete {
            break;
        }
    }
    opened.sort_by_key(|segment| (Reverse(segment.records()), segment.name().clone()));
    let names: HashSet<BlobName> = opened.iter().flat_map(|segment| segment.replaced().to_vec()).collect();
    let (replaced, active) = opened.into_iter().partition(|segment| names.contains(segment.name()));
    Ok((ListedSegments { active: Arc::new(active), replaced: Arc::new(replaced) }, damaged))
}
