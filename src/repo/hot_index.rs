//! A hot index: what a container has besides its frames, as a blob of its own.
//!
//! It is the header of the container, its index and its footer, one after the other, so the checksums of the container
//! verify it. Then comes the name of the container, and a checksum of all that. Without them, the hot index of another
//! container would pass for this one's, and a prune would believe it. In a repository whose containers are in cold
//! storage, readers take these from here.

use crate::error::{Error, Result};
use crate::repo::container::{
    ContainerKind, FOOTER_BYTES, Footer, HEADER_BYTES, INDEX_BYTES_LIMIT, blob_name, parse_header,
};
use crate::store::{BlobName, Reading, Store};
use crate::types::ContainerId;
use crate::wire::{checksum, verify};

/// Bytes behind the footer: the name of the container, and a checksum.
const SEAL_BYTES: usize = 48;
/// Bytes of a hot index, at most.
pub const HOT_INDEX_BYTES_MAX: u64 = INDEX_BYTES_LIMIT + (HEADER_BYTES + FOOTER_BYTES + SEAL_BYTES) as u64;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotIndex {
    bytes: Vec<u8>,
    /// Offset of the container index in the container.
    index_offset: u64,
    /// Zeros before the container index, bytes.
    padding: u64,
}

/// Store name of the hot index of a container.
pub fn hot_index_name(id: &ContainerId) -> BlobName {
    BlobName::hot_index_of(&id.0)
}

impl HotIndex {
    /// That of the container whose bytes are the concatenation of `parts`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::ChecksumMismatch`] if they are no container.
    pub fn of_parts(parts: &[&[u8]]) -> Result<Self> {
        const WHAT: &str = "a container that is put";
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let footer_at = len.checked_sub(FOOTER_BYTES).ok_or_else(|| too_short(WHAT, len as u64))?;
        let footer = Footer::parse(WHAT, len as u64, &cut(parts, footer_at, len))?;
        let mut bytes = cut(parts, 0, HEADER_BYTES);
        bytes.extend(cut(parts, footer.index_offset as usize, len));
        Self::parse(WHAT, bytes)
    }

    /// Reads it from the container itself.
    ///
    /// # Errors
    /// Errors of the store, [`Error::Cold`] among them; those of [`Self::parse`].
    pub fn of_container(store: &dyn Store, id: &ContainerId) -> Result<Self> {
        let name = blob_name(id);
        let len = store.len_of(&name)?.ok_or_else(|| Error::BlobMissing { what: (&name).into() })?;
        let footer_at = len.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| too_short(&name, len))?;
        let footer = store.get_range(&name, footer_at, FOOTER_BYTES, Reading::FromStore)?;
        let footer = Footer::parse(&name, len, &footer)?;
        check_index_len(&name, &footer)?;
        let mut bytes = store.get_range(&name, 0, HEADER_BYTES, Reading::FromStore)?;
        let tail_len = (len - footer.index_offset) as usize;
        bytes.extend(store.get_range(&name, footer.index_offset, tail_len, Reading::FromStore)?);
        Self::parse(&name, bytes)
    }

    /// Reads the blob of it.
    ///
    /// # Errors
    /// Errors of the store. [`Error::Corrupt`] and [`Error::ChecksumMismatch`], also if it is of another container.
    pub fn load(store: &dyn Store, id: &ContainerId) -> Result<Self> {
        let name = hot_index_name(id);
        let load = || Self::parse_blob(&name, store.get(&name, HOT_INDEX_BYTES_MAX)?, id);
        crate::store::read_again(store, &name, load)
    }

    /// The blob of it, for the container called `id`.
    pub fn blob(&self, id: &ContainerId) -> Vec<u8> {
        let mut blob = self.bytes.clone();
        blob.extend_from_slice(&id.0);
        let checksum: [u8; 16] = checksum(&[&blob]);
        blob.extend_from_slice(&checksum);
        blob
    }

    /// Checks the blob called `what` of the container `id`.
    fn parse_blob(what: &str, mut blob: Vec<u8>, id: &ContainerId) -> Result<Self> {
        let len = blob.len();
        let seal = len.checked_sub(SEAL_BYTES).and_then(|at| blob.get(at..)?.split_at_checked(id.0.len()));
        let (name, end) = seal.ok_or_else(|| too_short(what, len as u64))?;
        verify(what, 0, end, &[blob.get(..len - end.len()).unwrap_or_default()])?;
        if name != id.0 {
            let got: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Error::corrupt(
                what,
                (len - SEAL_BYTES) as u64,
                format!("the hot index of container {id}"),
                got,
            ));
        }
        blob.truncate(len - SEAL_BYTES);
        Self::parse(what, blob)
    }

    /// Checks all bytes of the hot index called `what`, without the name of its container. A header of a newer version
    /// is left to who reads the container.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::ChecksumMismatch`].
    pub fn parse(what: &str, bytes: Vec<u8>) -> Result<Self> {
        let short = || too_short(what, bytes.len() as u64);
        let footer_at = bytes.len().checked_sub(FOOTER_BYTES).filter(|at| *at >= HEADER_BYTES).ok_or_else(short)?;
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(short)?;
        let (index, footer) = rest.split_at_checked(footer_at - HEADER_BYTES).ok_or_else(short)?;
        match parse_header(what, header) {
            Err(error) if !error.is_newer() => return Err(error),
            _ => {}
        }
        let index_offset = u64::from_le_bytes(footer.first_chunk().copied().unwrap_or_default());
        let len = index_offset.checked_add((index.len() + FOOTER_BYTES) as u64);
        let len = len.ok_or_else(|| Error::corrupt(what, 0, "the offset of an index", index_offset.to_string()))?;
        let footer = Footer::parse(what, len, footer)?;
        check_index_len(what, &footer)?;
        verify(what, HEADER_BYTES as u64, &footer.index_checksum, &[index])?;
        Ok(HotIndex { index_offset, padding: footer.padding.min(index_offset), bytes })
    }

    /// Header, container index and footer.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the container holds. `None` for a container of a newer version.
    pub fn kind(&self) -> Option<ContainerKind> {
        parse_header("a hot index", self.bytes.get(..HEADER_BYTES)?).ok()
    }

    /// Offset of the container index in the container.
    pub fn index_offset(&self) -> u64 {
        self.index_offset
    }

    /// Zeros of the container between its frames and its index, bytes.
    pub fn padding(&self) -> u64 {
        self.padding
    }

    /// Length of the container, bytes.
    pub fn container_len(&self) -> u64 {
        self.index_offset + (self.bytes.len() - HEADER_BYTES) as u64
    }

    /// A range of the container, if all of it is here.
    pub fn range(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let shift = self.index_offset - HEADER_BYTES as u64;
        let start = match offset.checked_sub(self.index_offset) {
            None if offset + len as u64 <= HEADER_BYTES as u64 => offset,
            None => return None,
            Some(_) => offset - shift,
        };
        let start = usize::try_from(start).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

/// Bytes `start` to `end` of the concatenation of `parts`, as far as they are there.
fn cut(parts: &[&[u8]], start: usize, end: usize) -> Vec<u8> {
    let (mut bytes, mut at) = (Vec::new(), 0);
    for part in parts {
        let (from, until) = (start.clamp(at, at + part.len()) - at, end.clamp(at, at + part.len()) - at);
        bytes.extend_from_slice(part.get(from..until).unwrap_or_default());
        at += part.len();
    }
    bytes
}

fn check_index_len(what: &str, footer: &Footer) -> Result<()> {
    if footer.index_len > INDEX_BYTES_LIMIT {
        let expected = format!("a container index of at most {INDEX_BYTES_LIMIT} bytes");
        return Err(Error::corrupt(what, footer.index_offset, expected, footer.index_len.to_string()));
    }
    Ok(())
}

fn too_short(what: &str, len: u64) -> Error {
    Error::corrupt(what, 0, "a header, a container index and a footer", format!("{len} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::{ContainerWriter, StoredFrame};
    use crate::store::MemoryStore;
    use bytes::Bytes;

    fn container() -> Vec<u8> {
        let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
        let payload = Bytes::from_static(b"literal bytes of a frame");
        writer.push_frame(&StoredFrame { codec: 0, raw_len: payload.len() as u32, payload }).unwrap();
        writer.seal().unwrap().parts.concat()
    }

    #[test]
    fn it_has_the_header_the_index_and_the_footer_whatever_the_parts() {
        let container = container();
        let whole = HotIndex::of_parts(&[&container]).unwrap();
        assert_eq!(whole.kind(), Some(ContainerKind::Data));
        for at in 0..=container.len() {
            let (left, right) = container.split_at(at);
            assert_eq!(HotIndex::of_parts(&[left, &[], right]).unwrap(), whole, "cut at {at}");
        }
        assert_eq!(HotIndex::parse("x", whole.bytes().to_vec()).unwrap(), whole);
        let index_at = whole.index_offset() as usize;
        assert_eq!(whole.range(0, HEADER_BYTES).unwrap(), &container[..HEADER_BYTES]);
        assert_eq!(whole.range(index_at as u64, container.len() - index_at).unwrap(), &container[index_at..]);
        assert_eq!(whole.range(index_at as u64 + 3, 5).unwrap(), &container[index_at + 3..index_at + 8]);
        for (offset, len) in [(0, HEADER_BYTES + 1), (HEADER_BYTES as u64, 1), (index_at as u64 - 1, 2)] {
            assert!(whole.range(offset, len).is_none(), "{offset}+{len} is in a frame");
        }
        assert!(whole.range(index_at as u64, container.len()).is_none(), "behind the end");
        assert!(whole.range(u64::MAX - 1, usize::MAX).is_none());
    }

    #[test]
    fn it_is_the_same_from_the_stored_container() {
        let (store, container) = (MemoryStore::new(), container());
        let id = ContainerId(*blake3::hash(&container).as_bytes());
        store.replace(&blob_name(&id), &container);
        let read = HotIndex::of_container(&store, &id).unwrap();
        assert_eq!(read, HotIndex::of_parts(&[&container]).unwrap());
        let blob = read.blob(&id);
        store.replace(&hot_index_name(&id), &blob);
        assert_eq!(HotIndex::load(&store, &id).unwrap(), read);
        for bit in 0..blob.len() * 8 {
            let mut bytes = blob.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            store.replace(&hot_index_name(&id), &bytes);
            assert!(HotIndex::load(&store, &id).is_err_and(|error| error.is_bad_blob()), "bit {bit}");
        }
        for len in 0..blob.len() {
            store.replace(&hot_index_name(&id), &blob[..len]);
            assert!(HotIndex::load(&store, &id).is_err_and(|error| error.is_bad_blob()), "{len} bytes");
        }
    }

    #[test]
    fn it_is_that_of_one_container() {
        let (store, hot_index) = (MemoryStore::new(), HotIndex::of_parts(&[&container()]).unwrap());
        let [one, other] = [ContainerId([1; 32]), ContainerId([2; 32])];
        store.replace(&hot_index_name(&one), &hot_index.blob(&one));
        store.replace(&hot_index_name(&other), &hot_index.blob(&one));
        HotIndex::load(&store, &one).unwrap();
        let error = HotIndex::load(&store, &other).unwrap_err();
        assert!(error.is_bad_blob() && error.to_string().contains("the hot index of container 0202"), "{error}");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage() {
        let whole = HotIndex::of_parts(&[&container()]).unwrap();
        for bit in 0..whole.bytes().len() * 8 {
            let mut bytes = whole.bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = HotIndex::parse("indexes/x", bytes).expect_err("a flipped bit");
            assert!(error.is_bad_blob() && error.to_string().contains("indexes/x"), "bit {bit}: {error}");
        }
        for len in 0..whole.bytes().len() {
            assert!(HotIndex::parse("x", whole.bytes()[..len].to_vec()).is_err_and(|error| error.is_bad_blob()));
        }
        assert!(HotIndex::of_parts(&[b"no container"]).is_err_and(|error| error.is_bad_blob()));
    }
}
