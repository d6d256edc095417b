//! The objects of the target.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::store::{ListedObject, ObjectState, PageTokens, SourceBucket};

/// Bytes of the memory for each object of the target that is remembered. It takes up to a quarter of them. Others are
/// asked for one by one.
const BYTES_OF_KNOWN: u64 = 300;

/// What is known of an object of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownObject {
    pub size: u64,
    /// Hash of its ETag.
    pub etag: Option<[u8; 16]>,
    /// When it was put, seconds since 1970.
    pub modified: Option<i64>,
}

impl From<ObjectState> for KnownObject {
    fn from(state: ObjectState) -> Self {
        let modified = state.modified.map(|time| time.as_second());
        KnownObject { size: state.size, etag: state.etag.as_deref().map(short_hash), modified }
    }
}

/// The objects of the target, as it was listed at the start.
pub struct KnownObjects {
    by_key: HashMap<[u8; 16], KnownObject>,
    /// Whether there are more of them.
    has_more: bool,
}

impl KnownObjects {
    /// Lists the target.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; errors of listing.
    pub fn take(bucket: &SourceBucket, config: &Config, stop: &AtomicBool) -> Result<Self> {
        let mut known = KnownObjects { by_key: HashMap::new(), has_more: false };
        let mut tokens = PageTokens::default();
        let mut token: Option<String> = None;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let page = bucket.page(token.as_deref())?;
            for ListedObject { key, size, etag, modified } in page.objects {
                let modified = modified.map(|time| time.as_second());
                let object = KnownObject { size, etag: etag.map(|etag| short_hash(&etag)), modified };
                known.by_key.insert(short_hash(&key), object);
            }
            known.has_more = page.next.is_some() && known.by_key.len() as u64 >= config.memory.0 / BYTES_OF_KNOWN;
            if known.has_more || page.next.is_none() {
                return Ok(known);
            }
            token = page.next;
            token.iter().try_for_each(|token| tokens.note(bucket, token))?;
        }
    }

    /// The object of a key; `None` if there is none.
    ///
    /// # Errors
    /// Errors of the request for an object that is not remembered.
    pub fn find(&self, bucket: &SourceBucket, key: &str) -> Result<Option<KnownObject>> {
        let found = self.by_key.get(&short_hash(key)).copied();
        if found.is_some() || !self.has_more {
            return Ok(found);
        }
        Ok(bucket.find(key)?.map(KnownObject::from))
    }
}

/// What stands for a key or an ETag in memory.
pub fn short_hash(text: &str) -> [u8; 16] {
    blake3::hash(text.as_bytes()).as_bytes().first_chunk().copied().unwrap_or_default()
}
