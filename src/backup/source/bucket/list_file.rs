//! The list of a share: its objects, as a driver has placed them, in a file. A process that has one lists nothing.
//!
//! The file is an envelope-free sequence of CBOR arrays, each after its length: a head, then the objects in the order
//! of their tree. It is read by the same version of the program, soon after it was written.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use minicbor::{Decode, Encode};

use super::placed::PlacedObject;
use crate::error::{Error, Result};
use crate::repo::share_record::ShareOrigin;
use crate::store::ListedObject;
use crate::wire::open_regular;

/// What a list begins with.
const MAGIC: &str = "fhrd share 1";
/// Bytes of a record, at most.
const RECORD_BYTES_MAX: u32 = 1 << 20;
/// Bytes of each list that wait in memory.
const WAITING_BYTES_MAX: usize = 8 << 10;

/// What a list says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
struct ListHead {
    #[n(0)]
    magic: String,
    /// The program that wrote it.
    #[n(1)]
    program: String,
    #[n(2)]
    url: String,
    #[n(3)]
    share: String,
    #[cbor(n(4), with = "minicbor::bytes")]
    split: [u8; 16],
    #[cbor(n(5), with = "minicbor::bytes")]
    listing: [u8; 16],
    #[n(6)]
    files: u64,
    #[n(7)]
    bytes: u64,
}

/// What becomes of an object of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub(super) enum ListedUse {
    /// It is stored.
    #[n(0)]
    Stored,
    /// It cannot be stored.
    #[n(1)]
    Refused,
    /// A card of another share.
    #[n(2)]
    Card,
    /// It says that something of its directory is in other shares.
    #[n(3)]
    Elsewhere,
}

/// An object of the list.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
struct ListEntry {
    #[n(0)]
    path: String,
    #[n(1)]
    key: String,
    #[n(2)]
    size: u64,
    #[n(3)]
    etag: Option<String>,
    #[n(4)]
    modified_ns: Option<i64>,
    #[n(5)]
    is_directory: bool,
    #[n(6)]
    usage: ListedUse,
    #[n(7)]
    defect: Option<String>,
}

/// Writes a list. Its file is open only while bytes are added: there may be more lists than files may be open.
pub(super) struct ShareListWriter {
    path: PathBuf,
    /// What is not written yet.
    waiting: Vec<u8>,
}

impl ShareListWriter {
    /// A new list at `path`, of a share of the objects below `url`.
    pub(super) fn create(path: PathBuf, url: &str, share: &str, origin: ShareOrigin) -> Result<Self> {
        File::create_new(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Error::Usage(format!(
                "{} is there already: a job needs a directory of its own for its lists",
                path.display()
            )),
            _ => Error::io("create", &path, error),
        })?;
        let mut writer = ShareListWriter { path, waiting: Vec::new() };
        let ShareOrigin { split, listing, files, bytes } = origin;
        let (url, share, program) = (url.into(), share.into(), program());
        writer.put(&ListHead { magic: MAGIC.into(), program, url, share, split, listing, files, bytes })?;
        Ok(writer)
    }

    /// Adds an object.
    pub(super) fn add(&mut self, placed: &PlacedObject, usage: ListedUse) -> Result<()> {
        let object = &placed.object;
        self.put(&ListEntry {
            path: placed.path.clone(),
            key: object.key.clone(),
            size: object.size,
            etag: object.etag.clone(),
            modified_ns: object.modified.and_then(|time| i64::try_from(time.as_nanosecond()).ok()),
            is_directory: placed.is_directory,
            usage,
            defect: placed.defect.map(Into::into),
        })
    }

    fn put(&mut self, record: &impl Encode<()>) -> Result<()> {
        let bytes = minicbor::to_vec(record).map_err(|error| Error::internal(error.to_string()))?;
        self.waiting.extend((bytes.len() as u32).to_le_bytes());
        self.waiting.extend(bytes);
        if self.waiting.len() >= WAITING_BYTES_MAX { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let file = OpenOptions::new().append(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(&self.waiting));
        self.waiting.clear();
        written.map_err(|error| Error::io("write", &self.path, error))
    }

    /// Ends the list.
    pub(super) fn finish(mut self) -> Result<()> {
        self.put(&END)?;
        self.write()
    }
}

/// What a list ends with: one that was cut is no list.
const END: u64 = 0;

fn program() -> String {
    concat!("fhrd ", env!("CARGO_PKG_VERSION")).into()
}

/// Reads a list.
pub struct ShareListReader {
    file: BufReader<File>,
    path: PathBuf,
    has_ended: bool,
}

/// An object of a list, and what becomes of it.
pub(super) type UsedEntry = (PlacedObject, ListedUse);

impl ShareListReader {
    /// Opens the list at `path`, which must be that of `share` of the objects below `url`.
    pub(super) fn open(path: &Path, url: &str, share: &str) -> Result<(Self, ShareOrigin)> {
        let file = open_regular(path).map_err(|error| Error::io("open", path, error))?;
        let mut reader = ShareListReader { file: BufReader::new(file), path: path.into(), has_ended: false };
        let record = reader.record()?;
        let head: ListHead = minicbor::decode(&record).map_err(|error| reader.wrong(&error.to_string()))?;
        for (found, expected) in [(&head.url, url), (&head.share, share), (&head.program, &program())] {
            if found != expected {
                return Err(Error::Usage(format!(
                    "the list {} is of {found}, where {expected} is expected",
                    path.display()
                )));
            }
        }
        let ListHead { split, listing, files, bytes, .. } = head;
        Ok((reader, ShareOrigin { split, listing, files, bytes }))
    }

    /// The next object of any use.
    pub(super) fn entry(&mut self) -> Result<Option<UsedEntry>> {
        if self.has_ended {
            return Ok(None);
        }
        let record = self.record()?;
        if minicbor::decode::<u64>(&record).is_ok_and(|end| end == END) {
            self.has_ended = true;
            return Ok(None);
        }
        let entry: ListEntry = minicbor::decode(&record).map_err(|error| self.wrong(&error.to_string()))?;
        let ListEntry { path, key, size, etag, modified_ns, is_directory, usage, defect } = entry;
        let modified = modified_ns.and_then(|time| Timestamp::from_nanosecond(i128::from(time)).ok());
        let defect = defect.map(|_| "its key or its path cannot be stored, as the driver has said");
        let object = ListedObject { key, size, etag, modified };
        Ok(Some((PlacedObject { path, object, is_directory, defect }, usage)))
    }

    /// The next object that the stage has to do with. Something in another share has a defect that is none.
    pub(super) fn next(&mut self) -> Result<Option<PlacedObject>> {
        while let Some((placed, usage)) = self.entry()? {
            match usage {
                ListedUse::Stored | ListedUse::Refused => return Ok(Some(placed)),
                ListedUse::Elsewhere => return Ok(Some(PlacedObject { defect: Some(ELSEWHERE), ..placed })),
                ListedUse::Card => {}
            }
        }
        Ok(None)
    }

    fn record(&mut self) -> Result<Vec<u8>> {
        let mut len = [0; 4];
        self.file.read_exact(&mut len).map_err(|error| Error::io("read", &self.path, error))?;
        let len = u32::from_le_bytes(len);
        if len > RECORD_BYTES_MAX {
            return Err(self.wrong("a record is too long"));
        }
        let mut record = vec![0; len as usize];
        self.file.read_exact(&mut record).map_err(|error| Error::io("read", &self.path, error))?;
        Ok(record)
    }

    fn wrong(&self, got: &str) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            location: "in a record".into(),
            expected: "the list of a share".into(),
            got: got.into(),
        }
    }
}

/// The defect of what falls to another share. It is compared by address and content, and never shown.
pub(super) const ELSEWHERE: &str = "it falls to another share";
