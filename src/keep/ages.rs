//! How long blobs have been in the store, whatever clock they were dated by.
//!
//! A blob that is dated later than now was put while some clock was wrong, and its date says nothing. It counts from
//! the first time that a prune on this machine has seen it so, which a file in the cache directory remembers. If that
//! time is later than now, too, this clock was wrong, and it counts from now on.
//!
//! Nothing is lost if an age is wrong: the grace period only spares writers that are alive from storing again. See
//! [`crate::repo::claims`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::repo::Repository;
use crate::repo::paths::{cache_directory, create_private};
use crate::store::LocalFile;
use crate::wire::open_regular;

/// Name of the file in the local cache directory: a line for each blob, seconds since 1970 and its name.
const FILE: &str = "dated-ahead";
/// Dates that are less ahead will soon be past.
const FUTURE_MIN: Duration = Duration::from_secs(3600);
/// Bytes of the file that are read, at most.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// When blobs were put, as far as can be told.
#[derive(Debug)]
pub struct BlobAges {
    path: Option<PathBuf>,
    /// When blobs that are dated ahead were seen first: by earlier prunes, and now.
    before: BTreeMap<String, SystemTime>,
    seen: BTreeMap<String, SystemTime>,
}

impl BlobAges {
    /// What this machine remembers of `repository`. A file that cannot be read is as good as empty.
    pub fn load(repository: &Repository) -> Self {
        Self::read(cache_directory(repository).ok().map(|directory| directory.join(FILE)))
    }

    fn read(path: Option<PathBuf>) -> Self {
        let text = path.as_deref().and_then(read_text).unwrap_or_default();
        let line = |line: &str| {
            let (seconds, name) = line.split_once(' ')?;
            let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
            Some((name.to_string(), at))
        };
        BlobAges { path, before: text.lines().filter_map(line).collect(), seen: BTreeMap::new() }
    }

    /// From when on the blob `name` counts: from `modified`, by the clock of its store, unless that is much later than
    /// `now`.
    pub fn put_at(&mut self, name: &str, modified: SystemTime, now: SystemTime) -> SystemTime {
        if modified <= now + FUTURE_MIN {
            return modified;
        }
        let first = self.before.get(name).copied().filter(|first| *first <= now).unwrap_or(now);
        self.seen.insert(name.into(), first);
        first
    }

    /// Remembers the blobs that were dated ahead, and forgets the others. If that fails, they wait longer.
    pub fn save(&self) {
        let Some(path) = self.path.as_deref().filter(|_| !self.seen.is_empty() || !self.before.is_empty()) else {
            return;
        };
        if !self.seen.is_empty() {
            tracing::warn!(
                "{} blobs are dated later than now: a clock was wrong; their age counts from when a prune saw them first",
                self.seen.len()
            );
        }
        if let Err(error) = self.write(path) {
            tracing::debug!("{} is not written: {error}", path.display());
        }
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        if self.seen.is_empty() {
            return std::fs::remove_file(path);
        }
        path.parent().map_or(Ok(()), create_private).map_err(std::io::Error::other)?;
        let seconds = |at: &SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let text: String = self.seen.iter().map(|(name, at)| format!("{} {name}\n", seconds(at))).collect();
        LocalFile::replace(path, text.as_bytes())
    }
}

fn read_text(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    open_regular(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn day(number: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(number * DAY)
    }

    /// Prunes on these days, by a clock that may jump, that see a blob dated to day 9000. The day from which it counts.
    fn seen(days: &[u64]) -> Vec<u64> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache").join(FILE);
        let each = days.iter().map(|now| {
            let mut ages = BlobAges::read(Some(path.clone()));
            assert_eq!(
                ages.put_at("containers/past", day(now - 1), day(*now)),
                day(now - 1),
                "a date that is past is believed"
            );
            let at = ages.put_at("containers/ahead", day(9000), day(*now));
            ages.save();
            at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / DAY
        });
        each.collect()
    }

    #[test]
    fn a_blob_dated_ahead_counts_from_when_it_was_seen_first() {
        assert_eq!(seen(&[100, 101, 130]), [100, 100, 100]);
        // The clock here was ahead, too, and is right again. Then it is long ago, and right again.
        assert_eq!(seen(&[800, 100, 101]), [800, 100, 100]);
        assert_eq!(seen(&[100, 1, 101]), [100, 1, 1]);
    }

    #[test]
    fn what_is_no_longer_dated_ahead_is_forgotten_and_a_file_of_garbage_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        std::fs::write(&path, [&b"x\n\xff 99999999999999999999 y\n5 "[..], &[0; 9]].concat()).unwrap();
        let mut ages = BlobAges::read(Some(path.clone()));
        assert_eq!(ages.put_at("a", day(11), day(10)), day(10));
        ages.save();
        BlobAges::read(Some(path.clone())).save();
        assert!(!path.exists());
    }
}
