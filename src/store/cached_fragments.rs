//! Which blobs the cache of a remote store keeps, and how it cuts them into fragments.

use super::NewName;
use super::cache_files::FragmentName;
use super::kind::{BlobKind, BlobName, CacheUse};

/// Bytes of a block of a blob that is cached whole.
pub(super) const WHOLE_BLOCK_BYTES: u64 = 8 << 20;
/// Bytes of a block of a container.
pub(super) const CONTAINER_BLOCK_BYTES: u64 = 4 << 20;
/// Bytes of the first fragment of a container: its header, and in an encrypted repository its first sealed block.
pub(super) const HEAD_BYTES: u64 = 32 << 10;
/// Bytes of the end of a container that are fetched at once, if the range lies in them. The shortest usually has the
/// whole container index.
pub(super) const TAIL_BYTES: [u64; 3] = [128 << 10, 1 << 20, 8 << 20];

/// Numbers of the fragments that are no blocks.
pub(super) const HEAD: u64 = u64::MAX;
pub(super) const TAIL: u64 = u64::MAX - 1;
pub(super) const ALL: u64 = u64::MAX - 2;

/// A blob that is cached.
#[derive(Clone, Copy)]
pub(super) struct CacheableBlob<'a> {
    /// Its name.
    pub(super) name: &'a BlobName,
    /// The hash in its name: of its bytes, or of the container that it belongs to.
    pub(super) hash: [u8; 32],
}

/// A fragment: its number and its place in the blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Its number.
    pub(super) number: u64,
    /// Offset of its first byte in the blob.
    pub(super) start: u64,
    /// Its bytes.
    pub(super) len: u64,
}

impl<'a> CacheableBlob<'a> {
    /// `None` for blobs that are not cached.
    pub(super) fn of(name: &'a BlobName) -> Option<Self> {
        let hash = name.hash().or_else(|| name.indexed());
        let hash = hash.filter(|_| name.kind().cache_use() != CacheUse::Never)?;
        Some(CacheableBlob { name, hash })
    }

    /// What it is.
    pub(super) fn kind(&self) -> BlobKind {
        self.name.kind()
    }

    /// Whether the concatenation of `parts` may be kept as the whole blob.
    pub(super) fn accepts_parts(&self, parts: &[&[u8]]) -> bool {
        self.kind().cache_use() == CacheUse::Checked
            || NewName::Hashed(self.kind()).for_parts(parts).hash() == Some(self.hash)
    }

    /// Whether it is a container.
    pub(super) fn is_container(&self) -> bool {
        self.kind().cache_use() == CacheUse::Container
    }

    /// The name of a fragment of it.
    pub(super) fn fragment(&self, fragment: &Fragment) -> FragmentName<'a> {
        FragmentName { blob: self.name, fragment: fragment.number }
    }

    /// The fragments with a range of this cached of `len` bytes.
    pub(super) fn fragments(&self, len: u64, start: u64, end: u64) -> Vec<Fragment> {
        let blocks = |block: u64| {
            let block_of = |number: u64| {
                let start = number * block;
                Fragment { number, start, len: block.min(len - start) }
            };
            (start / block..end.div_ceil(block).max(start / block + 1)).map(block_of).collect()
        };
        if !self.is_container() {
            return blocks(WHOLE_BLOCK_BYTES);
        }
        let tail = |bytes: u64| Fragment { number: TAIL, start: len.saturating_sub(bytes), len: bytes.min(len) };
        let [short, ..] = TAIL_BYTES.map(tail);
        if start < short.start && end <= HEAD_BYTES {
            return vec![Fragment { number: HEAD, start: 0, len: HEAD_BYTES.min(len) }];
        }
        match TAIL_BYTES.map(tail).into_iter().find(|tail| tail.start <= start) {
            Some(tail) => vec![tail],
            None => blocks(CONTAINER_BLOCK_BYTES),
        }
    }
}
