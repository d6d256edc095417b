//! A cache bounded by the bytes of what it keeps; the least recently used goes first.

use std::hash::Hash;

use lru::LruCache;

/// Values by key, each with a weight in bytes.
pub struct ByteLru<K: Hash + Eq, V> {
    values: LruCache<K, (usize, V)>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Hash + Eq, V> ByteLru<K, V> {
    /// An empty cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        ByteLru { values: LruCache::unbounded(), bytes: 0, bytes_max }
    }

    /// Bytes of all values kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The value of `key`, which becomes the most recently used.
    pub fn get(&mut self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.values.get(key).map(|(_, value)| value.clone())
    }

    /// Whether there is a value of `key`; it does not count as used.
    pub fn contains(&self, key: &K) -> bool {
        self.values.contains(key)
    }

    /// Keeps a value of `bytes` bytes; others make room.
    pub fn put(&mut self, key: K, value: V, bytes: usize) {
        self.bytes += bytes;
        if let Some((_, (old, _))) = self.values.push(key, (bytes, value)) {
            self.bytes -= old;
        }
        while self.bytes > self.bytes_max {
            let Some((_, (old, _))) = self.values.pop_lru() else { break };
            self.bytes -= old;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut kept = ByteLru::new(100);
        kept.put(1, "one", 40);
        kept.put(2, "two", 40);
        assert_eq!(kept.get(&1), Some("one"));
        kept.put(3, "three", 40);
        assert_eq!((kept.get(&1), kept.get(&2), kept.get(&3)), (Some("one"), None, Some("three")));
        kept.put(3, "three again", 60);
        assert_eq!((kept.get(&1), kept.get(&3)), (Some("one"), Some("three again")));
        kept.put(4, "too large", 101);
        assert_eq!((kept.bytes(), kept.values.len()), (0, 0));
    }
}
