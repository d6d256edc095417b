//! A mark as a blob: a CBOR map in an envelope of type `FHRDMARK`.

use minicbor::{Decode, Encode};

use super::quarantine::{BadParts, PositionSet, Quarantine};
use crate::error::{Error, Result};
use crate::store::{BlobKind, BlobName, ParityShare, Store, StoreExt, get_hashed};
use crate::types::ContainerId;
use crate::wire::Envelope;

const MAGIC: [u8; 8] = *b"FHRDMARK";
/// Bytes of a mark, at most.
pub(super) const BYTES_LIMIT: u64 = 4 << 20;
/// Containers of one mark of the kind `quarantine`. More are spread over several marks.
const CONTAINERS_MAX: usize = 256;

const QUARANTINE: &str = "quarantine";
const WRITER_FEATURES: &str = "writer-features";
const READ_ONLY: &str = "read-only";
const SET_ASIDE: &str = "set-aside";
const PARITY: &str = "parity";
const COLD: &str = "cold";

/// What a mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkKind {
    /// Bytes that proved bad. Writers store their chunks again.
    Quarantine(Quarantine),
    /// Writers must support these feature bits.
    WriterFeatures(u64),
    /// Nobody may write.
    ReadOnly,
    /// Nobody may write until a repair is complete.
    SetAside,
    /// Containers get so much parity.
    Parity(ParityShare),
    /// Data containers are in cold storage, so each container has a hot index.
    Cold,
    /// A newer version wrote it.
    Unknown(String),
}

/// A mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// What it says.
    pub kind: MarkKind,
    /// When it was set, nanoseconds since 1970.
    pub time_ns: i64,
    /// Why it was set, for people.
    pub reason: String,
}

/// The payload.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
struct MarkRecord {
    #[n(0)]
    kind: String,
    #[n(1)]
    time_ns: i64,
    #[n(2)]
    reason: String,
    /// 16 random bytes, so that no name returns.
    #[cbor(n(3), with = "minicbor::bytes")]
    salt: Vec<u8>,
    #[n(4)]
    containers: Option<Vec<ContainerRecord>>,
    #[n(5)]
    features: Option<u64>,
    /// Parts of a share, in hundredths of a percent.
    #[n(6)]
    parity: Option<u32>,
}

/// A container with bad parts.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
struct ContainerRecord {
    #[n(0)]
    container: ContainerId,
    /// Absent if the whole container is bad. Starts and ends of ranges of frames.
    #[n(1)]
    frames: Option<Vec<u32>>,
    /// Starts and ends of ranges of entries.
    #[n(2)]
    entries: Option<Vec<u32>>,
}

impl ContainerRecord {
    fn new(container: ContainerId, parts: &BadParts) -> Self {
        let flattened = |set: &PositionSet| Some(set.ranges().iter().flat_map(|(start, end)| [*start, *end]).collect());
        match parts {
            BadParts::Whole => ContainerRecord { container, frames: None, entries: None },
            BadParts::Parts { frames, entries } => {
                ContainerRecord { container, frames: flattened(frames), entries: flattened(entries) }
            }
        }
    }

    fn parts(&self) -> BadParts {
        let set = |flattened: &[u32]| {
            let mut set = PositionSet::default();
            for range in flattened.chunks_exact(2) {
                if let [start, end] = range {
                    set.insert(*start, *end);
                }
            }
            set
        };
        match (&self.frames, &self.entries) {
            (Some(frames), Some(entries)) => BadParts::Parts { frames: set(frames), entries: set(entries) },
            _ => BadParts::Whole,
        }
    }
}

impl Mark {
    /// A mark of this moment.
    pub fn new(kind: MarkKind, reason: impl Into<String>) -> Self {
        Mark { kind, time_ns: jiff::Timestamp::now().as_nanosecond() as i64, reason: reason.into() }
    }

    /// Stores the mark and returns its name. Several names if it quarantines many containers.
    ///
    /// # Errors
    /// Errors of the store. [`Error::Internal`] for an unknown kind.
    pub fn save(&self, store: &dyn Store) -> Result<Vec<BlobName>> {
        let parity = match &self.kind {
            MarkKind::Parity(share) => Some(share.parts()),
            _ => None,
        };
        let save = |blob_kind: BlobKind, kind: &str, containers, features| {
            let mut salt = vec![0; 16];
            getrandom::fill(&mut salt)
                .map_err(|error| Error::io("get random bytes for", store.location(), std::io::Error::other(error)))?;
            let (kind, reason) = (kind.to_string(), self.reason.clone());
            let record = MarkRecord { kind, time_ns: self.time_ns, reason, salt, containers, features, parity };
            let payload =
                minicbor::to_vec(&record).map_err(|error| Error::internal(format!("cannot store a mark: {error}")))?;
            let blob = Envelope::new(MAGIC).seal(&payload);
            store.put_hashed(blob_kind, &[&blob])
        };
        match &self.kind {
            MarkKind::Quarantine(quarantine) => {
                let record = |(id, parts): (&ContainerId, &BadParts)| ContainerRecord::new(*id, parts);
                let records: Vec<ContainerRecord> = quarantine.containers().map(record).collect();
                let batches = records.chunks(CONTAINERS_MAX);
                batches.map(|batch| save(BlobKind::OptionalMark, QUARANTINE, Some(batch.to_vec()), None)).collect()
            }
            MarkKind::WriterFeatures(features) => {
                Ok(vec![save(BlobKind::RequiredMark, WRITER_FEATURES, None, Some(*features))?])
            }
            MarkKind::ReadOnly => Ok(vec![save(BlobKind::RequiredMark, READ_ONLY, None, None)?]),
            MarkKind::SetAside => Ok(vec![save(BlobKind::RequiredMark, SET_ASIDE, None, None)?]),
            MarkKind::Parity(_) => Ok(vec![save(BlobKind::RequiredMark, PARITY, None, None)?]),
            MarkKind::Cold => Ok(vec![save(BlobKind::RequiredMark, COLD, None, None)?]),
            MarkKind::Unknown(kind) => Err(Error::internal(format!("a mark of the unknown kind {kind}"))),
        }
    }

    /// Reads the mark called `name`.
    ///
    /// # Errors
    /// Errors of the store and of [`Self::parse`]; [`Error::ChecksumMismatch`] if its hash is not in the name.
    pub fn load(store: &dyn Store, name: &BlobName) -> Result<Mark> {
        Self::parse(name, &get_hashed(store, name, BYTES_LIMIT)?)
    }

    /// Parses the mark called `name`.
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`] or [`Error::Corrupt`] for a damaged mark, [`Error::Unsupported`] for one in a newer
    /// format.
    pub fn parse(name: &str, blob: &[u8]) -> Result<Mark> {
        let (_, payload) = Envelope::open(MAGIC, name, blob)?;
        let record: MarkRecord =
            minicbor::decode(payload).map_err(|error| Error::corrupt(name, 0, "a mark", error.to_string()))?;
        let kind = match record.kind.as_str() {
            QUARANTINE => {
                let mut quarantine = Quarantine::default();
                for record in record.containers.iter().flatten() {
                    quarantine.insert(record.container, &record.parts());
                }
                MarkKind::Quarantine(quarantine)
            }
            WRITER_FEATURES => MarkKind::WriterFeatures(record.features.unwrap_or(u64::MAX)),
            READ_ONLY => MarkKind::ReadOnly,
            SET_ASIDE => MarkKind::SetAside,
            COLD => MarkKind::Cold,
            // A share that this version cannot have is of a newer one.
            PARITY => record.parity.and_then(ParityShare::new).map_or(MarkKind::Unknown(record.kind), MarkKind::Parity),
            _ => MarkKind::Unknown(record.kind),
        };
        Ok(Mark { kind, time_ns: record.time_ns, reason: record.reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn quarantine(containers: u8) -> Quarantine {
        let mut quarantine = Quarantine::default();
        for number in 0..containers {
            let (mut frames, mut entries) = (PositionSet::default(), PositionSet::default());
            frames.insert(3, 4);
            entries.insert(10, 20 + u32::from(number));
            entries.insert(100, 101);
            quarantine.insert(ContainerId([number; 32]), &BadParts::Parts { frames, entries });
        }
        quarantine.insert(ContainerId([255; 32]), &BadParts::Whole);
        quarantine
    }

    #[test]
    fn a_mark_comes_back_as_it_was_and_every_flipped_byte_is_damage() {
        let store = MemoryStore::new();
        let kinds =
            [MarkKind::Quarantine(quarantine(3)), MarkKind::WriterFeatures(5), MarkKind::ReadOnly, MarkKind::SetAside];
        let parity = MarkKind::Parity(ParityShare::new(300).unwrap());
        for kind in kinds.into_iter().chain([parity, MarkKind::Cold]) {
            let mark = Mark::new(kind, "because");
            let names = mark.save(&store).unwrap();
            let blob = store.get(&names[0], 1 << 20).unwrap();
            assert_eq!(Mark::parse(&names[0], &blob).unwrap(), mark);
            for at in 0..blob.len() {
                let mut flipped = blob.clone();
                flipped[at] ^= 1 << (at % 8);
                assert!(Mark::parse(&names[0], &flipped).is_err_and(|error| error.is_unreadable()), "byte {at}");
            }
        }
    }

    #[test]
    fn many_containers_are_spread_over_several_marks() {
        let store = MemoryStore::new();
        let mut many = Quarantine::default();
        (0..600u32).for_each(|number| {
            let id = ContainerId(*blake3::hash(&number.to_le_bytes()).as_bytes());
            many.insert(id, &BadParts::Whole);
        });
        let names = Mark::new(MarkKind::Quarantine(many.clone()), "").save(&store).unwrap();
        assert_eq!(names.len(), 3);
        assert_eq!(*super::super::Marks::read(&store).unwrap().quarantine, many);
    }
}
