//! Xorbs that were uploaded: snapshots of tables of chunks, and of files that have the bytes of these chunks.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Seek, Write};
use std::sync::Arc;

use bytes::Bytes;

use super::chunk_table::{TABLE_BYTES_MAX, XorbChunkRange, decoded, encoded};
use super::hash::XetHash;
use super::refused;
use super::xorb_reader::XorbReader;
use crate::backup::{MemoryContent, MemoryFile};
use crate::error::{Error, Result};
use crate::keep::upload::{CommitFault, SPOOLED, UploadStore};
use crate::repo::index::{ChunkPresence, ContainerListing};
use crate::repo::published::PublishedFile;
use crate::repo::read::{ChunkReader, Reader, is_whole};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_listing;
use crate::repo::tree::TreeCursor;
use crate::repo::upload::StoredUpload;

const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
/// Time after which a xorb expires, nanoseconds. Clients refer to it for three weeks after they have sent it.
const XORB_TIME_NS: i64 = 28 * DAY_NS;
/// A xorb that expires sooner is stored again when it is sent again, nanoseconds.
const XORB_REST_NS: i64 = 22 * DAY_NS;
/// Directories in the snapshot of xorbs: tables, named by the digits of the hashes, and parts, named by their numbers.
const TABLES: &str = "chunks";
const PARTS: &str = "parts";
/// Files in such a directory, at most.
const ENTRIES_MAX: usize = 100_000;

/// A xorb that was received, and whose hashes are right.
#[derive(Debug)]
pub struct ReceivedXorb {
    hash: XetHash,
    chunks: Vec<XorbChunkRange>,
    data: File,
    len: u64,
}

impl ReceivedXorb {
    /// Reads a xorb as a client has sent it. The bytes of its chunks go into `data`, an empty file.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] if it is not valid or has another hash, [`CommitFault::TooLong`]; errors of the files.
    pub fn read(hash: XetHash, mut sent: &File, mut data: File) -> Result<Self, CommitFault> {
        sent.rewind().map_err(|error| Error::io("read", SPOOLED, error))?;
        let mut reader = XorbReader::new(BufReader::new(sent));
        let (mut chunks, mut len) = (Vec::new(), 0);
        while let Some(chunk) = reader.next_chunk()? {
            data.write_all(&chunk.bytes).map_err(|error| Error::io("write", SPOOLED, error))?;
            let chunk_len = chunk.bytes.len() as u32;
            chunks.push(XorbChunkRange { hash: chunk.hash, len: chunk_len, part: 0, offset: len });
            len += u64::from(chunk_len);
        }
        if reader.hash() != Some(hash) {
            return Err(refused(format!("the chunks are not those of the xorb {}", hash.digits())));
        }
        Ok(ReceivedXorb { hash, chunks, data, len })
    }
}

/// A snapshot that has a xorb.
#[derive(Debug, Clone)]
pub(super) struct FoundXorb {
    pub hash: XetHash,
    pub named: NamedSnapshot,
    /// Whether it has this xorb alone.
    pub is_alone: bool,
}

/// A xorb that is stored.
#[derive(Debug)]
pub(super) struct StoredXorb {
    pub chunks: Vec<XorbChunkRange>,
    pub parts: Vec<PublishedFile>,
}

impl StoredXorb {
    /// Reads the table of a xorb.
    ///
    /// # Errors
    /// Errors of reading; [`Error::Corrupt`].
    pub fn load(reader: &Reader, hash: &XetHash, named: &NamedSnapshot) -> Result<Self> {
        let mut chunks = reader.chunks();
        let tables = files_of(&mut chunks, named, TABLES)?;
        let parts = files_of(&mut chunks, named, PARTS)?.into_iter().map(|(_, file)| file);
        let parts: Vec<PublishedFile> = parts.collect();
        let what = || format!("snapshot {:.8} of xorbs", named.id);
        let own = tables.into_iter().find(|(name, _)| *name == hash.digits().as_bytes());
        let (_, table) =
            own.ok_or_else(|| Error::corrupt(what(), 0, format!("a table of {}", hash.digits()), "none"))?;
        if table.len > TABLE_BYTES_MAX {
            return Err(Error::corrupt(what(), 0, format!("at most {TABLE_BYTES_MAX} bytes"), table.len.to_string()));
        }
        let bytes = reader.file(table.content, table.len)?.head(TABLE_BYTES_MAX as usize)?;
        let lens: Vec<u64> = parts.iter().map(|part| part.len).collect();
        Ok(StoredXorb { chunks: decoded(&bytes, &lens)?, parts })
    }
}

/// The files in a directory of the snapshot of xorbs, by their names.
fn files_of(chunks: &mut ChunkReader, named: &NamedSnapshot, directory: &str) -> Result<Vec<(Vec<u8>, PublishedFile)>> {
    let mut cursor = TreeCursor::open(named.snapshot.root);
    let content = loop {
        match cursor.next(chunks)? {
            None => return Err(Error::corrupt(format!("snapshot {:.8} of xorbs", named.id), 0, directory, "none")),
            Some(node) if node.name == directory.as_bytes() => break node.content,
            Some(_) => {}
        }
    };
    let (mut cursor, mut files) = (TreeCursor::open(content), Vec::new());
    while let Some(node) = cursor.next(chunks)? {
        if files.len() >= ENTRIES_MAX {
            return Err(Error::corrupt("a snapshot of xorbs", 0, format!("at most {ENTRIES_MAX} files"), "more"));
        }
        files.push((node.name, PublishedFile { content: node.content, len: node.size }));
    }
    Ok(files)
}

impl UploadStore {
    /// The snapshots of `wanted` xorbs that `counts` says yes to, by what they were uploaded for, and until when they
    /// last. The last of several for one xorb is that which lasts longest.
    ///
    /// # Errors
    /// Errors of listing the store.
    pub(super) fn xorbs(
        &self,
        wanted: &BTreeSet<XetHash>,
        counts: &dyn Fn(&str, i64) -> bool,
    ) -> Result<Vec<FoundXorb>> {
        let mut found = Vec::new();
        for named in snapshot_listing::list(&self.repository)?.snapshots {
            let Some(StoredUpload { expires_ns, name, xorbs: Some(hashes), .. }) = StoredUpload::of(&named.snapshot)
            else {
                continue;
            };
            let (hashes, _) = hashes.as_chunks::<32>();
            if !counts(&name, expires_ns) {
                continue;
            }
            let is_alone = hashes.len() == 1;
            let own = hashes.iter().map(|hash| XetHash(*hash)).filter(|hash| wanted.contains(hash));
            found.extend(own.map(|hash| (expires_ns, FoundXorb { hash, named: named.clone(), is_alone })));
        }
        found.sort_by_key(|(expires_ns, _)| *expires_ns);
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }

    /// Stores a xorb, unless it is there, whole, and lasts. Returns whether it was stored. It stays until it expires.
    ///
    /// # Errors
    /// [`CommitFault::Unavailable`] beside a prune; errors of storing.
    pub fn add_xorb(&self, owner: &str, xorb: ReceivedXorb) -> Result<bool, CommitFault> {
        let now_ns = self.repository.clock.now_ns();
        let lasts = |name: &str, expires_ns: i64| name == owner && expires_ns > now_ns.saturating_add(XORB_REST_NS);
        for found in self.xorbs(&BTreeSet::from([xorb.hash]), &lasts)? {
            if self.is_xorb_whole(&found)? {
                return Ok(false);
            }
        }
        let data = MemoryContent::Range { file: Arc::new(xorb.data), start: 0, len: xorb.len };
        let stored = self.store_xorbs(owner, &[(xorb.hash, xorb.chunks)], vec![data], self.without_pauses);
        stored.map(|_| true).map_err(|error| self.explained(error))
    }

    /// Stores xorbs as one snapshot: their tables, and the parts that these name. `without_pauses` does not wait for a
    /// prune.
    ///
    /// # Errors
    /// Errors of storing.
    pub(super) fn store_xorbs(
        &self,
        owner: &str,
        xorbs: &[(XetHash, Vec<XorbChunkRange>)],
        parts: Vec<MemoryContent>,
        without_pauses: bool,
    ) -> Result<NamedSnapshot> {
        let table = |(hash, chunks): &(XetHash, Vec<XorbChunkRange>)| MemoryFile {
            path: format!("{TABLES}/{}", hash.digits()).into(),
            content: MemoryContent::Parts(vec![Bytes::from(encoded(chunks))]),
        };
        let part = |(at, content)| MemoryFile { path: format!("{PARTS}/{at:08}").into(), content };
        let files = xorbs.iter().map(table).chain(parts.into_iter().enumerate().map(part)).collect();
        let hashes: Vec<u8> = xorbs.iter().flat_map(|(hash, _)| hash.0).collect();
        let upload = StoredUpload {
            expires_ns: self.repository.clock.now_ns().saturating_add(XORB_TIME_NS),
            name: owner.into(),
            sha256: Vec::new().into(),
            xorbs: Some(hashes.into()),
        };
        self.store_with(files, upload, without_pauses)
    }

    /// Whether all of a xorb is there, and what is stored with it.
    fn is_xorb_whole(&self, found: &FoundXorb) -> Result<bool> {
        let listing = Arc::new(ContainerListing::take(&self.repository.store)?);
        let mut reader = ChunkReader::new(&self.repository, listing.clone());
        let mut presence = ChunkPresence::new(self.repository.store.clone(), listing, Arc::default());
        let mut is_there = || {
            for directory in [TABLES, PARTS] {
                for (_, file) in files_of(&mut reader, &found.named, directory)? {
                    if let Some(content) = file.content
                        && !is_whole(content, &mut reader, &mut presence)?
                    {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        };
        match is_there() {
            Err(error) if Error::is_unreadable(&error) => {
                tracing::warn!("a xorb, snapshot {:.8}, is damaged: {error}", found.named.id);
                Ok(false)
            }
            outcome => outcome,
        }
    }
}
