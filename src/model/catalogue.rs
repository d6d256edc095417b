//! The catalogue: which models the repository holds records of.
//!
//! Each backup that stores models writes a blob: an envelope of type `FHRDMODL` around a CBOR map with the time of the
//! backup and an entry for each model. The records are chunks. Like an index, the catalogue is a hint: a blob that does
//! not parse is skipped.

use std::collections::HashSet;
use std::io;

use minicbor::{Decode, Encode};

use super::record::ModelRecord;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BlobKind, BlobName, Store, StoreExt, get_hashed};
use crate::types::Fingerprint;
use crate::wire::Envelope;

/// Prefix of the catalogue's blobs in the store.
pub const PREFIX: &str = "models";
const MAGIC: [u8; 8] = *b"FHRDMODL";
const BYTES_LIMIT: u64 = 64 << 20;
/// Entries in memory, at most: the latest ones.
const ENTRIES_MAX: usize = 1 << 16;
/// Entries of a blob, at most; a backup of more models writes several blobs.
pub const BLOB_ENTRIES_MAX: usize = 1 << 12;

/// What the catalogue records of a model, so that its record need not be read.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CatalogueEntry {
    /// [`ModelRecord::id`].
    #[n(0)]
    pub id: Fingerprint,
    /// The chunk that holds the record.
    #[n(1)]
    pub record: Fingerprint,
    /// Hashes of the names by which cards may refer to it.
    #[n(2)]
    pub names: Vec<u64>,
    /// [`ModelRecord::keys`].
    #[n(3)]
    pub keys: Vec<u64>,
    /// [`ModelRecord::content`].
    #[n(4)]
    pub content: Option<Fingerprint>,
    /// Hashes of the names of its bases. Older writers did not note them.
    #[n(5)]
    pub bases: Option<Vec<u64>>,
    /// [`ModelRecord::evidence`].
    #[n(6)]
    pub evidence: Option<Vec<u64>>,
}

/// The entries of one backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CatalogueBlob {
    /// Start of the backup, nanoseconds since 1970.
    #[n(0)]
    pub time_ns: i64,
    /// Entries in the order of storing.
    #[n(1)]
    pub entries: Vec<CatalogueEntry>,
}

/// Hash of a name, independent of case.
pub(super) fn name_hash(name: &str) -> u64 {
    Fingerprint(*blake3::hash(name.to_lowercase().as_bytes()).as_bytes()).prefix()
}

impl CatalogueEntry {
    /// The entry of a record that is stored as chunk `chunk`.
    pub fn new(record: &ModelRecord, chunk: Fingerprint) -> Self {
        let hashed = |names: &[String]| names.iter().map(|name| name_hash(name)).collect();
        CatalogueEntry {
            id: record.id,
            record: chunk,
            names: hashed(&record.names),
            keys: record.keys(),
            content: record.content,
            bases: (!record.bases.is_empty()).then(|| hashed(&record.bases)),
            evidence: record.evidence.clone(),
        }
    }
}

impl CatalogueBlob {
    /// Stores the blob, unless it is empty.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn save(&self, store: &dyn Store) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let payload =
            minicbor::to_vec(self).map_err(|error| Error::internal(format!("cannot store the catalogue: {error}")))?;
        let blob = Envelope::new(MAGIC).seal(&payload);
        store.put_hashed(BlobKind::Model, &[&blob]).map(drop)
    }

    /// Reads one blob.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Corrupt`] or [`Error::ChecksumMismatch`] for a damaged blob.
    pub fn load(store: &dyn Store, name: &BlobName) -> Result<CatalogueBlob> {
        let blob = get_hashed(store, name, BYTES_LIMIT)?;
        let (_, payload) = Envelope::open(MAGIC, name, &blob)?;
        minicbor::decode(payload).map_err(|error| Error::corrupt(name, 0, "a catalogue", error.to_string()))
    }

    /// Like [`Self::load_all`], for a writer: without a list no model is known, with a warning.
    ///
    /// # Errors
    /// Errors of listing the store that are not damage.
    pub fn load_known(store: &dyn Store) -> Result<Vec<CatalogueEntry>> {
        match Self::load_each(store, false).map(|(entries, _)| entries) {
            Err(error @ Error::Unreadable { .. }) => {
                tracing::warn!("no model is known: {error}");
                Ok(Vec::new())
            }
            entries => entries,
        }
    }

    /// The entries of all blobs, latest last. Blobs that are damaged, newer or cold are skipped with a warning.
    ///
    /// # Errors
    /// Errors of listing the store, and other ones of reading it.
    pub fn load_all(store: &dyn Store) -> Result<Vec<CatalogueEntry>> {
        Self::load_readable(store).map(|(entries, _)| entries)
    }

    /// Like [`Self::load_all`], and says what was skipped.
    ///
    /// # Errors
    /// Errors of [`Self::load_all`].
    pub fn load_readable(store: &dyn Store) -> Result<(Vec<CatalogueEntry>, SkippedCatalogues)> {
        Self::load_each(store, true)
    }

    /// Unless it `is_strict`, any blob can be skipped.
    fn load_each(store: &dyn Store, is_strict: bool) -> Result<(Vec<CatalogueEntry>, SkippedCatalogues)> {
        let (mut blobs, mut count, mut skipped) = (Vec::new(), 0, SkippedCatalogues::default());
        let (mut asked, mut is_gone) = (HashSet::new(), true);
        // Whoever writes a blob again puts the new one first, so another listing has it.
        while std::mem::take(&mut is_gone) {
            for listed in store.list(BlobKind::Model.into())? {
                if !asked.insert(listed.name.clone()) {
                    continue;
                }
                match CatalogueBlob::load(store, &listed.name) {
                    Ok(blob) => {
                        count += blob.entries.len();
                        blobs.push(NamedBlob { name: listed.name, blob });
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => is_gone = true,
                    Err(error) if error.stops_reading() || is_strict && !error.is_unavailable() => return Err(error),
                    Err(error) => {
                        tracing::warn!("skipping {}: {error}", listed.name);
                        skipped.unreadable += 1;
                        skipped.newer += u64::from(error.is_newer());
                        skipped.damaged += u64::from(error.is_proven_damage());
                    }
                }
                // Bounds the memory, however many blobs there are.
                if count > 2 * ENTRIES_MAX {
                    count = retain_latest(&mut blobs);
                }
            }
        }
        retain_latest(&mut blobs);
        let mut entries: Vec<CatalogueEntry> = blobs.into_iter().flat_map(|named| named.blob.entries).collect();
        entries.drain(..entries.len().saturating_sub(ENTRIES_MAX));
        Ok((entries, skipped))
    }
}

/// Blobs that [`CatalogueBlob::load_readable`] could not read, so their models are not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkippedCatalogues {
    /// Of any cause.
    pub unreadable: u64,
    /// Of these, blobs that a newer version wrote.
    pub newer: u64,
    /// Of these, blobs whose bytes proved wrong.
    pub damaged: u64,
}

impl SkippedCatalogues {
    /// What cannot be read, as an error. `None` if all could.
    pub fn error(&self) -> Option<Error> {
        let text = format!("{} blobs of the catalogue cannot be read: see `fhrd repair index`", self.unreadable);
        let what = BlobKind::Model.to_string();
        (self.unreadable > 0).then(|| match self.unreadable <= self.newer {
            true => Error::unsupported(what, text),
            false => Error::Unreadable { what, offset: 0, source: io::Error::other(text) },
        })
    }
}

/// A blob and its name.
struct NamedBlob {
    name: BlobName,
    blob: CatalogueBlob,
}

/// Sorts the blobs, latest last, and drops the oldest ones beyond the bound. Returns the number of entries left.
fn retain_latest(blobs: &mut Vec<NamedBlob>) -> usize {
    blobs.sort_by(|one, other| (one.blob.time_ns, &one.name).cmp(&(other.blob.time_ns, &other.name)));
    let mut count = 0;
    let needed = blobs.iter().rev().take_while(|named| {
        let is_needed = count < ENTRIES_MAX;
        count += if is_needed { named.blob.entries.len() } else { 0 };
        is_needed
    });
    let needed = needed.count();
    blobs.drain(..blobs.len() - needed);
    count
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::store::{Durable, MemoryStore, ObservedStore, StoreCall, StoreObserver, named};

    #[test]
    fn entries_are_read_oldest_first_and_damaged_blobs_are_skipped() {
        let store = MemoryStore::default();
        let entry = |byte: u8| {
            let (id, record) = (Fingerprint([byte; 32]), Fingerprint([0; 32]));
            let content = Some(Fingerprint([9; 32]));
            let (bases, evidence) = (Some(vec![3]), None);
            CatalogueEntry { id, record, names: vec![1], keys: vec![2], content, bases, evidence }
        };
        CatalogueBlob { time_ns: 5, entries: vec![entry(2), entry(3)] }.save(&store).unwrap();
        CatalogueBlob { time_ns: 4, entries: vec![entry(1)] }.save(&store).unwrap();
        CatalogueBlob { time_ns: 6, entries: Vec::new() }.save(&store).unwrap();
        store.put_if_absent(&named("models/abc"), &[b"junk"]).unwrap();
        let all = CatalogueBlob::load_all(&store).unwrap();
        assert_eq!(all, [entry(1), entry(2), entry(3)]);
    }

    #[test]
    fn a_blob_that_is_written_again_meanwhile_is_found_under_its_new_name() {
        /// Writes the blob again before each of the first three reads.
        struct Writer(Arc<MemoryStore>, AtomicU32);
        impl StoreObserver for Writer {
            fn before(&self, call: StoreCall, _: &str) -> Result<u64> {
                if call == StoreCall::Get && self.1.fetch_add(1, Ordering::Relaxed) < 3 {
                    let old = self.0.list(BlobKind::Model.into())?.swap_remove(0).name;
                    let blob = CatalogueBlob::load(self.0.as_ref(), &old)?;
                    CatalogueBlob { time_ns: blob.time_ns + 1, ..blob }.save(self.0.as_ref())?;
                    self.0.delete(&old, Durable::OnReturn)?;
                }
                Ok(0)
            }
        }
        let (id, record) = (Fingerprint([7; 32]), Fingerprint([0; 32]));
        let (bases, evidence) = (None, Some(vec![4]));
        let entry = CatalogueEntry { id, record, names: vec![1], keys: vec![2], content: None, bases, evidence };
        let inner = Arc::new(MemoryStore::default());
        CatalogueBlob { time_ns: 5, entries: vec![entry.clone()] }.save(inner.as_ref()).unwrap();
        let store = ObservedStore::with(inner.clone(), Writer(inner, AtomicU32::default()));
        assert_eq!(CatalogueBlob::load_all(&store).unwrap(), [entry]);
    }

    #[test]
    fn only_the_latest_blobs_are_retained() {
        let entry = CatalogueEntry {
            id: Fingerprint([1; 32]),
            record: Fingerprint([0; 32]),
            names: vec![],
            keys: vec![],
            content: None,
            bases: None,
            evidence: None,
        };
        let blob = |time_ns: i64| NamedBlob {
            name: crate::store::named(&time_ns.to_string()),
            blob: CatalogueBlob { time_ns, entries: vec![entry.clone(); ENTRIES_MAX / 4] },
        };
        let mut blobs: Vec<NamedBlob> = [5, 1, 4, 2, 6, 3].into_iter().map(blob).collect();
        assert_eq!(retain_latest(&mut blobs), ENTRIES_MAX);
        assert_eq!(blobs.iter().map(|named| named.blob.time_ns).collect::<Vec<_>>(), [3, 4, 5, 6]);
    }

    #[test]
    fn hashes_of_names_do_not_depend_on_case() {
        assert_eq!(name_hash("Org/Model"), name_hash("org/model"));
        assert_ne!(name_hash("a"), name_hash("b"));
    }
}
