//! A read record as a blob: a CBOR map in an envelope of type `FHRDREAD`.

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::store::{BlobKind, BlobName, Store, StoreExt, get_hashed};
use crate::types::ContainerId;
use crate::wire::{Envelope, WireReader};

const MAGIC: [u8; 8] = *b"FHRDREAD";
/// Bytes of a record, at most.
const BYTES_LIMIT: u64 = 64 << 20;
/// Bytes of a row: the beginning of an id, minutes since 1970, and the result.
const ROW_BYTES: usize = PREFIX_BYTES + 4 + 1;
/// Bytes of an id in a row. Containers that share them count as one: two in a million do once in 30 million times.
const PREFIX_BYTES: usize = 8;
/// Rows of a record, at most: those that were read last.
const ROWS_MAX: usize = 4 << 20;
/// Runs of a record, at most: the last ones.
const RUNS_MAX: usize = 64;
/// Other records that one takes in, at most.
const TAKEN_MAX: usize = 4096;

/// The beginning of a container's id.
pub(super) type Prefix = [u8; PREFIX_BYTES];

/// What one command has read.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Serialize)]
#[cbor(map)]
pub struct ReadRun {
    /// When it ended, nanoseconds since 1970.
    #[n(0)]
    #[serde(skip)]
    pub time_ns: i64,
    /// Machine that read.
    #[n(1)]
    pub host: String,
    /// The command: `check` or `verify`.
    #[n(2)]
    pub verb: String,
    /// Containers that were read whole.
    #[n(3)]
    pub containers: u64,
    /// Bytes of these.
    #[n(4)]
    pub bytes: u64,
    /// Files that were restored into nothing.
    #[n(5)]
    pub files: u64,
    /// Bytes of their content.
    #[n(6)]
    pub content_bytes: u64,
    /// Containers with damage, and files that are not whole.
    #[n(7)]
    pub damaged: u64,
    /// Bytes of all containers at that time.
    #[n(8)]
    pub bytes_of_all: u64,
    /// The [hash](crate::repo::marks::Quarantine::hash) of what marks list, if all was read and no snapshot needs any
    /// of it.
    #[cbor(n(9), with = "minicbor::bytes")]
    #[serde(skip)]
    pub unneeded: Option<[u8; 32]>,
}

/// The payload.
#[derive(Debug, Default, Encode, Decode)]
#[cbor(map)]
struct RecordPayload {
    #[n(0)]
    runs: Vec<ReadRun>,
    #[cbor(n(1), with = "minicbor::bytes")]
    rows: Vec<u8>,
    /// Hashes of the names of records whose rows this one has.
    #[cbor(n(2), with = "minicbor::bytes")]
    taken: Vec<u8>,
}

/// A row: when a container was read last, and with which result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) prefix: Prefix,
    pub(super) minutes: u32,
    pub(super) is_sound: bool,
}

/// A read record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadRecord {
    pub(super) runs: Vec<ReadRun>,
    pub(super) rows: Vec<Row>,
    /// Hashes of the names of records whose rows this one has.
    pub(super) taken: Vec<[u8; 32]>,
}

/// The beginning of an id.
pub(super) fn prefix(id: &ContainerId) -> Prefix {
    let mut prefix = Prefix::default();
    prefix.iter_mut().zip(id.0).for_each(|(byte, of_id)| *byte = of_id);
    prefix
}

impl ReadRecord {
    /// Stores the record. Of too many rows and runs, the newest are stored.
    pub(super) fn put(mut self, store: &dyn Store) -> Result<BlobName> {
        if self.rows.len() > ROWS_MAX {
            self.rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.minutes));
            self.rows.truncate(ROWS_MAX);
        }
        self.rows.sort_unstable_by_key(|row| row.prefix);
        self.runs.sort_unstable();
        self.runs.dedup();
        self.runs.drain(..self.runs.len().saturating_sub(RUNS_MAX));
        self.taken.truncate(TAKEN_MAX);
        let row = |row: &Row| {
            let [a, b, c, d] = row.minutes.to_le_bytes();
            row.prefix.into_iter().chain([a, b, c, d, u8::from(!row.is_sound)])
        };
        let rows = self.rows.iter().flat_map(row).collect();
        let payload = RecordPayload { runs: self.runs, rows, taken: self.taken.concat() };
        let payload = minicbor::to_vec(&payload)
            .map_err(|error| Error::internal(format!("cannot store a read record: {error}")))?;
        store.put_hashed(BlobKind::ReadRecord, &[&Envelope::new(MAGIC).seal(&payload)])
    }

    /// Reads the record called `name`.
    ///
    /// # Errors
    /// Errors of the store; [`Error::ChecksumMismatch`], [`Error::Corrupt`] or [`Error::Unsupported`].
    pub(super) fn load(store: &dyn Store, name: &BlobName) -> Result<ReadRecord> {
        let blob = get_hashed(store, name, BYTES_LIMIT)?;
        let (_, payload) = Envelope::open(MAGIC, name, &blob)?;
        let payload: RecordPayload =
            minicbor::decode(payload).map_err(|error| Error::corrupt(name, 0, "a read record", error.to_string()))?;
        let (len, runs) = (payload.rows.len(), payload.runs.len());
        if runs > RUNS_MAX {
            return Err(Error::corrupt(name, 0, format!("at most {RUNS_MAX} runs"), format!("{runs}")));
        }
        if !len.is_multiple_of(ROW_BYTES) {
            return Err(Error::corrupt(name, 0, format!("rows of {ROW_BYTES} bytes"), format!("{len} bytes")));
        }
        let mut reader = WireReader::new(name, 0, &payload.rows);
        let mut rows = Vec::with_capacity(len / ROW_BYTES);
        while reader.remaining() > 0 {
            rows.push(Row { prefix: reader.array()?, minutes: reader.u32()?, is_sound: reader.u8()? == 0 });
        }
        let taken = payload.taken.chunks_exact(32).filter_map(|hash| hash.try_into().ok()).collect();
        Ok(ReadRecord { runs: payload.runs, rows, taken })
    }
}
