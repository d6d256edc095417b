//! The catalogue: which models the repository holds records of.
//!
//! Each backup that stores models writes one blob, an envelope of type `FHRDMODL` with a CBOR map: when, and for each
//! model a head. The records themselves are chunks. Like an index, the catalogue is a hint; a blob that does not
//! parse is passed over.

use minicbor::{Decode, Encode};

use super::record::ModelRecord;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::types::{Fingerprint, hex};
use crate::wire::Envelope;

/// Store directory of the catalogue.
pub const PREFIX: &str = "models";
const MAGIC: [u8; 8] = *b"FHRDMODL";
const BYTES_LIMIT: u64 = 64 << 20;
/// CatalogueBlob kept in memory, those stored last.
const ENTRIES_MAX: usize = 1 << 16;
/// CatalogueBlob of a blob; a backup of more models writes several.
pub const BLOB_ENTRIES_MAX: usize = 1 << 12;

/// What is known of a model without reading its record.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CatalogueEntry {
    /// [`ModelRecord::id`].
    #[n(0)]
    pub id: Fingerprint,
    /// The chunk that holds the record.
    #[n(1)]
    pub record: Fingerprint,
    /// Hashes of the names others may call it by.
    #[n(2)]
    pub names: Vec<u64>,
    /// [`ModelRecord::keys`].
    #[n(3)]
    pub keys: Vec<u64>,
    /// [`ModelRecord::content`].
    #[n(4)]
    pub content: Option<Fingerprint>,
}

/// The heads of one backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CatalogueBlob {
    /// When the backup started, nanoseconds since 1970.
    #[n(0)]
    pub time_ns: i64,
    /// In order of storing.
    #[n(1)]
    pub entries: Vec<CatalogueEntry>,
}

/// Hash of a name; upper and lower case are one.
pub(super) fn name_hash(name: &str) -> u64 {
    Fingerprint(*blake3::hash(name.to_lowercase().as_bytes()).as_bytes()).prefix()
}

impl CatalogueEntry {
    /// The head of a record stored as chunk `chunk`.
    pub fn new(record: &ModelRecord, chunk: Fingerprint) -> Self {
        let names = record.names.iter().map(|name| name_hash(name)).collect();
        CatalogueEntry { id: record.id, record: chunk, names, keys: record.keys(), content: record.content }
    }
}

impl CatalogueBlob {
    /// Stores the blob, unless there is nothing in it.
    pub fn save(&self, store: &dyn Store) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let payload =
            minicbor::to_vec(self).map_err(|error| Error::internal(format!("cannot store the catalogue: {error}")))?;
        let blob = Envelope::new(MAGIC).seal(&payload);
        store.put_if_absent(&format!("{PREFIX}/{}", hex(blake3::hash(&blob).as_bytes())), &[&blob]).map(drop)
    }

    /// Reads one blob.
    ///
    /// # Errors
    /// Those of the store, and [`Error::Corrupt`] or [`Error::ChecksumMismatch`] for a blob that is none.
    pub fn load(store: &dyn Store, name: &str) -> Result<CatalogueBlob> {
        let blob = store.get(name, BYTES_LIMIT)?;
        let digest = hex(blake3::hash(&blob).as_bytes());
        if name.rsplit('/').next() != Some(digest.as_str()) {
            let (what, expected) = (name.to_string(), name.to_string());
            return Err(Error::ChecksumMismatch { what, offset: 0, expected, got: digest });
        }
        let (_, payload) = Envelope::open(MAGIC, name, &blob)?;
        minicbor::decode(payload).map_err(|error| Error::corrupt(name, 0, "a catalogue", error.to_string()))
    }

    /// The heads of all blobs, latest last; blobs that cannot be read are passed over with a warning.
    pub fn load_all(store: &dyn Store) -> Result<Vec<CatalogueEntry>> {
        let (mut found, mut count) = (Vec::new(), 0);
        for listed in store.list(PREFIX)? {
            match CatalogueBlob::load(store, &listed.name) {
                Ok(blob) => {
                    count += blob.entries.len();
                    found.push((blob.time_ns, listed.name, blob.entries));
                }
                Err(error) => tracing::warn!("passing over {}: {error}", listed.name),
            }
            // However many there are, not many more than are kept are in memory.
            if count > 2 * ENTRIES_MAX {
                count = keep_latest(&mut found);
            }
        }
        keep_latest(&mut found);
        let mut entries: Vec<CatalogueEntry> = found.into_iter().flat_map(|found| found.2).collect();
        entries.drain(..entries.len().saturating_sub(ENTRIES_MAX));
        Ok(entries)
    }
}

/// A blob's time, name and heads.
type Found = (i64, String, Vec<CatalogueEntry>);

/// Puts the latest blobs last and drops those before them that are not needed; the number of heads left.
fn keep_latest(found: &mut Vec<Found>) -> usize {
    found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let mut count = 0;
    let needed = found.iter().rev().take_while(|found| {
        let is_needed = count < ENTRIES_MAX;
        count += if is_needed { found.2.len() } else { 0 };
        is_needed
    });
    let needed = needed.count();
    found.drain(..found.len() - needed);
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn heads_come_back_oldest_first_and_damage_is_passed_over() {
        let store = MemoryStore::default();
        let head = |byte: u8| {
            let (id, record) = (Fingerprint([byte; 32]), Fingerprint([0; 32]));
            CatalogueEntry { id, record, names: vec![1], keys: vec![2], content: Some(Fingerprint([9; 32])) }
        };
        CatalogueBlob { time_ns: 5, entries: vec![head(2), head(3)] }.save(&store).unwrap();
        CatalogueBlob { time_ns: 4, entries: vec![head(1)] }.save(&store).unwrap();
        CatalogueBlob { time_ns: 6, entries: Vec::new() }.save(&store).unwrap();
        store.put_if_absent("models/abc", &[b"junk"]).unwrap();
        let all = CatalogueBlob::load_all(&store).unwrap();
        assert_eq!(all, [head(1), head(2), head(3)]);
    }

    #[test]
    fn only_the_latest_blobs_are_kept() {
        let head = CatalogueEntry {
            id: Fingerprint([1; 32]),
            record: Fingerprint([0; 32]),
            names: vec![],
            keys: vec![],
            content: None,
        };
        let blob = |time: i64| (time, time.to_string(), vec![head.clone(); ENTRIES_MAX / 4]);
        let mut found: Vec<Found> = [5, 1, 4, 2, 6, 3].into_iter().map(blob).collect();
        assert_eq!(keep_latest(&mut found), ENTRIES_MAX);
        assert_eq!(found.iter().map(|found| found.0).collect::<Vec<_>>(), [3, 4, 5, 6]);
    }

    #[test]
    fn names_do_not_depend_on_case() {
        assert_eq!(name_hash("Org/Model"), name_hash("org/model"));
        assert_ne!(name_hash("a"), name_hash("b"));
    }
}
