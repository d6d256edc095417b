//! A cache bounded by the bytes of what it keeps; the least recently used goes first.

use std::hash::Hash;

use lru::LruCache;

/// Values by key, each with a weight in bytes.
pub struct Kept<K: Hash + Eq, V> {
    values: LruCache<K, (usize, V)>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Hash + Eq, V> Kept<K, V> {
    /// An empty cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Kept { values: LruCache::unbounded(), bytes: 0, bytes_max }
    }

    /// Bytes of all values kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the value of `key` out.
    pub fn take(&mut self, key: &K) -> Option<V> {
        let (bytes, value) = self.values.pop(key)?;
        self.bytes -= bytes;
        Some(value)
    }

    /// From now on at most `bytes_max` bytes; what is too much is handed to `retire`.
    pub fn shrink(&mut self, bytes_max: usize, retire: impl FnMut(V)) {
        self.bytes_max = bytes_max;
        self.make_room(retire);
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
        self.put_and(key, value, bytes, drop);
    }

    /// As [`Self::put`]; what made room is handed to `retire`.
    pub fn put_and(&mut self, key: K, value: V, bytes: usize, mut retire: impl FnMut(V)) {
        self.bytes += bytes;
        if let Some((_, (old, value))) = self.values.push(key, (bytes, value)) {
            self.bytes -= old;
            retire(value);
        }
        self.make_room(retire);
    }

    fn make_room(&mut self, mut retire: impl FnMut(V)) {
        while self.bytes > self.bytes_max {
            let Some((_, (old, value))) = self.values.pop_lru() else { break };
            self.bytes -= old;
            retire(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut kept = Kept::new(100);
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

    #[test]
    fn what_is_taken_out_or_too_much_counts_no_more() {
        let mut kept = Kept::new(100);
        kept.put(1, "one", 30);
        kept.put(2, "two", 30);
        kept.put(3, "three", 30);
        assert_eq!((kept.take(&2), kept.take(&2), kept.bytes()), (Some("two"), None, 60));
        let mut retired = Vec::new();
        kept.shrink(40, |value| retired.push(value));
        assert_eq!((retired, kept.bytes()), (vec!["one"], 30));
        kept.shrink(100, drop);
        kept.put(4, "four", 60);
        assert_eq!((kept.get(&3), kept.get(&4)), (Some("three"), Some("four")));
    }
}
