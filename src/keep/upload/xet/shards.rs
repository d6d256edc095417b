//! Shards that were uploaded: their claims are compared with the stored xorbs, and their files become objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Seek, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use lru::LruCache;

use super::chunk_table::XorbChunkRange;
use super::hash::{HashTree, XetHash};
use super::refused;
use super::shard_reader::{ShardFile, ShardReader, ShardTerm, ShardXorb};
use super::xorbs::StoredXorb;
use crate::error::{Error, Result};
use crate::keep::upload::{CommitFault, OBJECT_BYTES_MAX, ObjectKey, SPOOLED, UploadStore};
use crate::repo::published::PublishedFile;
use crate::repo::read::Reader;
use crate::repo::snapshot::NamedSnapshot;
use crate::types::hex;

/// Tables of xorbs in memory, of at most 400 kB each.
const TABLES_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Chunks of all files of a shard, at most. Each costs a hash.
const SHARD_CHUNKS_MAX: u64 = 8 << 20;
/// Files of a shard, at most: fewer than a snapshot of xorbs may have parts.
const SHARD_FILES_MAX: usize = 50_000;

/// A shard whose claims of xorbs, terms and files are true. The SHA-256 of a file is compared when it is put together.
pub struct CheckedShard {
    files: Vec<(ShardFile, u64)>,
    new_xorbs: Vec<ShardXorb>,
    xorbs: FoundXorbs,
}

/// Stored xorbs, some of which are in memory.
struct FoundXorbs {
    reader: Reader,
    snapshots: BTreeMap<XetHash, NamedSnapshot>,
    tables: LruCache<XetHash, Arc<StoredXorb>>,
}

impl FoundXorbs {
    fn get(&mut self, hash: &XetHash) -> Result<Arc<StoredXorb>, CommitFault> {
        if let Some(found) = self.tables.get(hash) {
            return Ok(found.clone());
        }
        let named = self.snapshots.get(hash).ok_or_else(|| {
            refused(format!(
                "the xorb {} was not uploaded here: delete `xet` in the cache of the client, and upload again",
                hash.digits()
            ))
        })?;
        let loaded = Arc::new(StoredXorb::load(&self.reader, hash, named)?);
        self.tables.put(*hash, loaded.clone());
        Ok(loaded)
    }

    /// The chunks of a term.
    fn chunks(&mut self, term: &ShardTerm) -> Result<(Arc<StoredXorb>, std::ops::Range<usize>), CommitFault> {
        let xorb = self.get(&term.xorb)?;
        let (first, end) = term.chunks;
        if first >= end || end as usize > xorb.chunks.len() {
            let (digits, count) = (term.xorb.digits(), xorb.chunks.len());
            return Err(refused(format!("the xorb {digits} has {count} chunks, and a term names {first} to {end}")));
        }
        Ok((xorb, first as usize..end as usize))
    }

    /// Compares what a shard says of a xorb.
    fn check_xorb(&mut self, claimed: &ShardXorb) -> Result<(), CommitFault> {
        let stored = self.get(&claimed.hash)?;
        if !stored.chunks.iter().map(|chunk| (chunk.hash, chunk.len)).eq(claimed.chunks.iter().copied()) {
            return Err(refused(format!("the xorb {} has other chunks", claimed.hash.digits())));
        }
        Ok(())
    }

    /// Compares what a shard says of a file. Its length. `chunks_left` is how many chunks it may have.
    fn check_file(&mut self, file: &ShardFile, chunks_left: &mut u64) -> Result<u64, CommitFault> {
        let (mut tree, mut len) = (HashTree::default(), 0);
        for term in &file.terms {
            let (xorb, range) = self.chunks(term)?;
            *chunks_left = chunks_left.checked_sub(range.len() as u64).ok_or(CommitFault::TooLong)?;
            let chunks = xorb.chunks.get(range).unwrap_or_default();
            let term_len: u64 = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
            let hash = XetHash::of_term(chunks.iter().map(|chunk| &chunk.hash));
            if term_len != u64::from(term.len) || hash != term.hash {
                return Err(refused(format!("a term of the xorb {} has other chunks", term.xorb.digits())));
            }
            chunks.iter().for_each(|chunk| tree.add(chunk.hash, u64::from(chunk.len)));
            len += term_len;
        }
        if tree.root().map(XetHash::of_file) != Some(file.hash) {
            return Err(refused(format!("the file {} has other chunks", file.hash.digits())));
        }
        Ok(len)
    }

    /// Puts a file together. The SHA-256 of its bytes.
    fn write(&mut self, file: &ShardFile, mut into: &File) -> Result<[u8; 32], CommitFault> {
        let mut digest = Context::new(&SHA256);
        let mut write = |bytes: &[u8]| {
            digest.update(bytes);
            into.write_all(bytes).map_err(|error| Error::io("write", SPOOLED, error))
        };
        for term in &file.terms {
            let (xorb, range) = self.chunks(term)?;
            for (part, from, to) in ranges(xorb.chunks.get(range).unwrap_or_default()) {
                let part = xorb.parts.get(part as usize).copied();
                let part = part.ok_or_else(|| Error::corrupt("a xorb", from, "a part", "none"))?;
                self.reader.file(part.content, part.len)?.copy((from, to), &mut write)?;
            }
        }
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest.finish().as_ref());
        Ok(sha256)
    }
}

/// Where the bytes of chunks are: part, offset and end. Chunks that stand one after another are one range.
fn ranges(chunks: &[XorbChunkRange]) -> Vec<(u32, u64, u64)> {
    let mut found: Vec<(u32, u64, u64)> = Vec::new();
    for chunk in chunks {
        match found.last_mut() {
            Some((part, _, end)) if *part == chunk.part && *end == chunk.offset => *end = chunk.end(),
            _ => found.push((chunk.part, chunk.offset, chunk.end())),
        }
    }
    found
}

impl CheckedShard {
    /// Number of its files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Puts the file number `at` together in `into`, an empty file. Its SHA-256 and length. Only reads what is stored.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] if it has another SHA-256; errors of reading.
    pub fn put_together(&mut self, at: usize, into: &File) -> Result<ObjectKey, CommitFault> {
        let (file, len) = self.files.get(at).ok_or_else(|| Error::internal("a shard has fewer files"))?;
        let sha256 = self.xorbs.write(file, into)?;
        if sha256 != file.sha256 {
            let (claimed, got) = (hex(&file.sha256), hex(&sha256));
            return Err(refused(format!("a file of the shard has the SHA-256 {got}, not {claimed}")));
        }
        Ok((sha256, *len))
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &ShardFile> {
        self.files.iter().map(|(file, _)| file)
    }

    pub(super) fn new_xorbs(&self) -> &[ShardXorb] {
        &self.new_xorbs
    }
}

impl UploadStore {
    /// Checks a shard. Its xorbs must have been uploaded for something that `may_use` says yes to.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] and [`CommitFault::TooLong`]; errors of reading.
    pub fn check_shard(&self, may_use: &dyn Fn(&str) -> bool, mut sent: &File) -> Result<CheckedShard, CommitFault> {
        let unread = |error| Error::io("read", SPOOLED, error);
        sent.rewind().map_err(unread)?;
        let len = sent.metadata().map_err(unread)?.len();
        let mut reader = ShardReader::new(BufReader::new(sent), len)?;
        let (mut files, mut xorbs) = (Vec::new(), Vec::new());
        while let Some(file) = reader.next_file()? {
            if files.len() >= SHARD_FILES_MAX {
                return Err(CommitFault::TooLong);
            }
            files.push(file);
        }
        while let Some(xorb) = reader.next_xorb()? {
            xorbs.push(xorb);
        }
        reader.finish()?;
        let terms = files.iter().flat_map(|file| &file.terms);
        let wanted: BTreeSet<XetHash> = terms.map(|term| term.xorb).chain(xorbs.iter().map(|xorb| xorb.hash)).collect();
        let now_ns = self.repository.clock.now_ns();
        let counts = |name: &str, expires_ns: i64| may_use(name) && expires_ns > now_ns;
        let snapshots = self.xorbs(&wanted, &counts)?.into_iter().map(|found| (found.hash, found.named)).collect();
        let reader = Reader::open(&self.repository)?;
        let mut found = FoundXorbs { reader, snapshots, tables: LruCache::new(TABLES_MAX) };
        xorbs.iter().try_for_each(|xorb| found.check_xorb(xorb))?;
        let (mut chunks_left, mut bytes_left) = (SHARD_CHUNKS_MAX, OBJECT_BYTES_MAX);
        let mut checked = Vec::with_capacity(files.len());
        for file in files {
            let len = found.check_file(&file, &mut chunks_left)?;
            // A shard of 10 kB can name the same chunks again and again.
            bytes_left = bytes_left.checked_sub(len).ok_or(CommitFault::TooLong)?;
            checked.push((file, len));
        }
        Ok(CheckedShard { files: checked, new_xorbs: xorbs, xorbs: found })
    }

    /// Stores a file of a shard, which [`CheckedShard::put_together`] has written, as an object. It stays until it
    /// expires. Its content.
    ///
    /// # Errors
    /// [`CommitFault::Unavailable`] beside a prune; errors of reading and storing.
    pub fn add_shard_file(
        &self,
        owner: &str,
        (sha256, len): ObjectKey,
        file: File,
    ) -> Result<PublishedFile, CommitFault> {
        let stored = self.add_object(owner, (sha256, len), file).map_err(|error| self.explained(error))?;
        Ok(stored.1)
    }
}
