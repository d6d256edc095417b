//! A least-recently-used cache whose limit is the bytes of its values.

use std::hash::Hash;

use lru::LruCache;

/// Values by key, each with its size in bytes.
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

    /// Sum of the sizes of all values, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the value of `key`, and makes it the most recently used.
    pub fn get(&mut self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.values.get(key).map(|(_, value)| value.clone())
    }

    /// Whether there is a value of `key`. Does not count as a use.
    pub fn contains(&self, key: &K) -> bool {
        self.values.contains(key)
    }

    /// Adds or replaces a value of `bytes` bytes, and evicts the least recently used ones above the limit. A value that
    /// exceeds the limit empties the cache.
    pub fn put(&mut self, key: K, value: V, bytes: usize) {
        self.bytes += bytes;
        if let Some((_, (old, _))) = self.values.push(key, (bytes, value)) {
            self.bytes -= old;
        }
        self.evict();
    }

    /// Removes a value.
    pub fn remove(&mut self, key: &K) {
        if let Some((bytes, _)) = self.values.pop(key) {
            self.bytes -= bytes;
        }
    }

    /// Removes all values whose keys `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool)
    where
        K: Clone,
    {
        let refused: Vec<K> = self.values.iter().map(|(key, _)| key).filter(|key| !keep(key)).cloned().collect();
        refused.iter().for_each(|key| self.remove(key));
    }

    /// The limit, bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Sets the limit to `bytes_max` bytes, and evicts what exceeds it.
    pub fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.evict();
    }

    fn evict(&mut self) {
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
    fn the_least_recently_used_value_is_evicted() {
        let mut cache = ByteLru::new(100);
        cache.put(1, "one", 40);
        cache.put(2, "two", 40);
        assert_eq!(cache.get(&1), Some("one"));
        cache.put(3, "three", 40);
        assert_eq!((cache.get(&1), cache.get(&2), cache.get(&3)), (Some("one"), None, Some("three")));
        cache.put(3, "three again", 60);
        assert_eq!((cache.get(&1), cache.get(&3)), (Some("one"), Some("three again")));
        cache.put(4, "too large", 101);
        assert_eq!((cache.bytes(), cache.values.len()), (0, 0));
    }
}
