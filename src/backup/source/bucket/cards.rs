//! The cards, configurations and tokenizers of models that the bucket has.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{CARD, CARD_BYTES_MAX, CONFIGURATIONS, TOKENIZER};
use crate::repo::read::at_least_one;
use crate::store::{ListedObject, SourceBucket};

/// Cards that are known, at most: the first by path. Models beside others are found by their values.
const KNOWN_MAX: usize = 1 << 16;
/// Cards in memory: several files of one model ask for the same ones.
const CACHED: usize = 64;

/// Reads cards by the paths of their files.
pub struct ObjectCards {
    bucket: Arc<SourceBucket>,
    /// Keys by stored paths.
    known: BTreeMap<String, String>,
    cached: Mutex<LruCache<String, Option<Vec<u8>>>>,
}

impl ObjectCards {
    /// None yet.
    pub fn new(bucket: Arc<SourceBucket>) -> Self {
        let cached = Mutex::new(LruCache::new(at_least_one(CACHED)));
        ObjectCards { bucket, known: BTreeMap::new(), cached }
    }

    /// Whether an object of this name is one.
    pub fn is_card(name: &str) -> bool {
        name == CARD || name == TOKENIZER || CONFIGURATIONS.contains(&name)
    }

    /// Notes an object of the listing, if it is a card.
    pub fn note(&mut self, path: &str, object: &ListedObject) {
        let name = path.rsplit('/').next().unwrap_or_default();
        if Self::is_card(name) && self.bucket.has_address(&object.key) {
            self.known.insert(path.into(), object.key.clone());
            if self.known.len() > KNOWN_MAX {
                self.known.pop_last();
            }
        }
    }

    /// The start of the card that `path`, a URL with the stored path, names. `None` if there is none to be read.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let stored = path.strip_prefix(self.bucket.url()).ok()?.to_str()?;
        let key = self.known.get(stored)?;
        if let Some(cached) = self.cached.lock().get(key) {
            return cached.clone();
        }
        let card = self.bucket.read_start(key, CARD_BYTES_MAX).unwrap_or_else(|error| {
            tracing::warn!("cannot read a card, so what it says counts for nothing: {error}");
            None
        });
        self.cached.lock().put(key.clone(), card.clone());
        card
    }
}
