//! Whether chunks are stored, proved from as few bytes of the repository as possible.
//!
//! A chunk is stored if the intact container index of a listed container has a usable entry of it. Only the
//! fingerprints are decoded, because a backup asks for tens of thousands of chunks of its parent snapshot and needs
//! nothing else of them. The container indexes used last answer nearly all look-ups, the listing the others.
//!
//! Once something is known to be missing, bad or unreadable, an entry counts only if all that it copies from is there
//! ([`WholeEntries`]).

use std::sync::Arc;

use lru::LruCache;

use super::container_indexes::{ContainerIndexes, SharedContainerIndexes, read_fingerprints};
use super::listing::ContainerListing;
use super::locate::Locator;
use super::whole::WholeEntries;
use crate::error::Result;
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint};

/// Cached fingerprints, bytes.
const BYTES_MAX: usize = 16 << 20;

/// Answers whether chunks are stored.
pub struct ChunkPresence {
    store: Arc<dyn Store>,
    listing: Arc<ContainerListing>,
    shared: Arc<SharedContainerIndexes>,
    /// Fingerprints of the usable entries of containers, ascending.
    cached: LruCache<ContainerId, Vec<Fingerprint>>,
    bytes: usize,
    bytes_max: usize,
    whole: WholeEntries,
}

/// Container indexes that the search for bases caches, and their bytes.
const CONTAINER_INDEXES_MAX: usize = 64;
const CONTAINER_INDEX_BYTES_MAX: usize = 16 << 20;

impl ChunkPresence {
    /// For the containers of `listing`. Those that it has loaded are recorded in `shared`.
    pub fn new(store: Arc<dyn Store>, listing: Arc<ContainerListing>, shared: Arc<SharedContainerIndexes>) -> Self {
        Self::one_of(1, store, listing, shared)
    }

    /// One of so many that together cache what one does.
    pub fn one_of(
        count: usize,
        store: Arc<dyn Store>,
        listing: Arc<ContainerListing>,
        shared: Arc<SharedContainerIndexes>,
    ) -> Self {
        let count = count.max(1);
        let (count_max, bytes_max) = (CONTAINER_INDEXES_MAX, CONTAINER_INDEX_BYTES_MAX / count);
        let container_indexes = ContainerIndexes::sharing(store.clone(), count_max, bytes_max, shared.clone());
        let whole = WholeEntries::new(Locator::new(listing.clone(), container_indexes));
        ChunkPresence {
            store,
            listing,
            shared,
            cached: LruCache::unbounded(),
            bytes: 0,
            bytes_max: BYTES_MAX / count,
            whole,
        }
    }

    /// Whether a listed container has a usable entry of the chunk.
    ///
    /// # Errors
    /// That of a container or segment that cannot be read and may have the chunk, unless another container has it.
    pub fn has(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        if self.listing.is_doubtful() {
            return self.whole.has(fingerprint);
        }
        let cached = self
            .cached
            .iter()
            .find(|(_, fingerprints)| fingerprints.binary_search(fingerprint).is_ok())
            .map(|(id, _)| *id);
        if let Some(id) = cached {
            self.cached.promote(&id);
            return Ok(true);
        }
        let listing = self.listing.clone();
        let mut failure = None;
        let found = listing.search(fingerprint, |container, _| {
            // The cached ones were searched before.
            if self.cached.contains(&container) {
                return None;
            }
            match self.load(container) {
                Ok(fingerprints) => fingerprints.binary_search(fingerprint).ok().map(drop),
                Err(error) => {
                    listing.note_unread(&container, &error);
                    failure = Some(error);
                    None
                }
            }
        })?;
        match (found, failure) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found.is_some()),
        }
    }

    fn load(&mut self, container: ContainerId) -> Result<&[Fingerprint]> {
        let mut fingerprints = read_fingerprints(self.store.as_ref(), &container)?;
        self.shared.note_loaded(container);
        let (quarantine, mut position) = (self.listing.quarantine(), 0u32..);
        fingerprints.retain(|_| position.next().is_some_and(|entry| quarantine.is_usable(&container, entry)));
        fingerprints.sort_unstable();
        self.bytes += size_of_val(fingerprints.as_slice());
        while self.bytes > self.bytes_max {
            let Some((_, old)) = self.cached.pop_lru() else { break };
            self.bytes -= size_of_val(old.as_slice());
        }
        Ok(self.cached.get_or_insert(container, || fingerprints))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::{ContainerKind, ContainerWriter, EntryFields, FOOTER_BYTES, OperationList, blob_name};
    use crate::repo::index::{IndexRecord, NewSegment, write_segment};
    use crate::store::{CountingStore, Durable, MemoryStore, StoreExt};

    fn print(number: u8) -> Fingerprint {
        Fingerprint([number; 32])
    }

    /// Stores a container with the chunks `numbers`, and lists it in a segment if `is_listed`.
    fn put(store: &dyn Store, numbers: &[u8], kind: ContainerKind, is_listed: bool) -> ContainerId {
        let mut writer = ContainerWriter::new(kind, &[7; 16]);
        for number in numbers {
            let (frame, literal_offset) = (0, 0);
            let fingerprint = print(*number);
            let fields = EntryFields { fingerprint, raw_len: 0, frame, literal_offset, literal_len: 0, depth: 1 };
            writer.push_entry(fields, &OperationList::default(), &[]).unwrap();
        }
        let sealed = writer.seal().unwrap();
        let id = sealed.store(store).unwrap();
        let records = (0u32..).zip(numbers);
        let records = records.map(|(entry, number)| IndexRecord { fingerprint: print(*number), container: 0, entry });
        if is_listed {
            write_segment(store, NewSegment::padded([7; 16]), &[id], &[], records.collect()).unwrap();
        }
        id
    }

    fn presence(store: &Arc<dyn Store>) -> ChunkPresence {
        let mut listing = ContainerListing::take(store).unwrap();
        listing.forget_orphans();
        ChunkPresence::new(store.clone(), Arc::new(listing), Arc::default())
    }

    #[test]
    fn chunks_of_listed_containers_are_found_and_each_container_is_read_once() {
        let counting = Arc::new(CountingStore::new(MemoryStore::new()));
        let store: Arc<dyn Store> = counting.clone();
        put(store.as_ref(), &[1, 2, 3], ContainerKind::Data, true);
        put(store.as_ref(), &[4, 5], ContainerKind::Data, true);
        put(store.as_ref(), &[6], ContainerKind::Data, false);
        let mut presence = presence(&store);
        let answers =
            |presence: &mut ChunkPresence| [1, 4, 2, 5, 3].map(|number| presence.has(&print(number)).unwrap());
        assert_eq!(answers(&mut presence), [true; 5]);
        let read = counting.counts().ranges;
        assert_eq!(answers(&mut presence), [true; 5]);
        assert_eq!(counting.counts().ranges, read, "all of them are in memory");
        assert_eq!((presence.has(&print(6)).unwrap(), presence.has(&print(9)).unwrap()), (false, false));
    }

    #[test]
    fn a_damaged_container_index_proves_nothing_but_another_container_may() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let damaged = put(store.as_ref(), &[1, 2], ContainerKind::Data, true);
        put(store.as_ref(), &[2, 3], ContainerKind::Metadata, true);
        let name = blob_name(&damaged);
        let mut bytes = store.get(&name, 1 << 20).unwrap();
        let at = bytes.len() - FOOTER_BYTES - 1;
        bytes[at] ^= 1;
        store.delete(&name, Durable::OnReturn).unwrap();
        store.put_if_absent(&name, &[&bytes]).unwrap();
        let mut presence = presence(&store);
        assert!(presence.has(&print(2)).unwrap() && presence.has(&print(3)).unwrap());
        let failure = presence.has(&print(1)).unwrap_err().to_string();
        assert!(failure.contains(name.as_str()), "{failure}");
        store.delete(&name, Durable::OnReturn).unwrap();
        let mut presence = super::tests::presence(&store);
        assert_eq!((presence.has(&print(1)).unwrap(), presence.has(&print(2)).unwrap()), (false, true));
    }
}
