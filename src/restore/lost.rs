//! What damage costs: the lost ranges of a file, and the report of all damaged files. Both are bounded.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};

/// Ranges that are remembered for one file. Of more ranges, the first ones are kept.
const RANGES_MAX: usize = 1000;
/// Damaged files that a report lists.
const FILES_MAX: usize = 1000;
/// Lost ranges of one file that are logged.
const RANGES_LOGGED_MAX: usize = 8;

/// Lost ranges of a file that is being restored.
#[derive(Debug, Default)]
pub struct LostRanges {
    /// Start to end, apart from each other.
    ranges: BTreeMap<u64, u64>,
    /// Ranges that were dropped.
    more: u64,
    /// The first damage or, without damage, the first other error.
    error: Option<Error>,
}

impl LostRanges {
    /// Adds `len` bytes from `offset` on, lost because of `error`.
    pub fn add(&mut self, offset: u64, len: u64, error: Error) {
        self.fail(error);
        let (mut start, mut end) = (offset, offset.saturating_add(len));
        if len == 0 {
            return;
        }
        while let Some((before, until)) = self.ranges.range(..=end).next_back().map(|(one, two)| (*one, *two)) {
            if until < start {
                break;
            }
            self.ranges.remove(&before);
            (start, end) = (start.min(before), end.max(until));
        }
        self.ranges.insert(start, end);
        if self.ranges.len() > RANGES_MAX {
            self.ranges.pop_last();
            self.more += 1;
        }
    }

    /// Records an error that no range is known for.
    pub fn fail(&mut self, error: Error) {
        let is_worse = |old: &Error| !is_damage(old) && is_damage(&error);
        if self.error.as_ref().is_none_or(is_worse) {
            self.error = Some(error);
        }
    }

    /// The error to report. `None`: nothing is lost.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Logs the first ranges as warnings. `path` is where the rest of the file is.
    pub fn log(&self, path: &str) {
        for (start, end) in self.ranges.iter().take(RANGES_LOGGED_MAX) {
            tracing::warn!("{path}: bytes {start} to {end} are lost; zeros replace them");
        }
        let more = self.ranges.len().saturating_sub(RANGES_LOGGED_MAX) as u64 + self.more;
        if more > 0 {
            tracing::warn!("{path}: {more} more ranges are lost; zeros replace them");
        }
    }

    /// Line of the report.
    pub fn report(&self, path: String, saved_as: Option<String>) -> DamagedFile {
        let lost = self.ranges.iter().map(|(start, end)| [*start, end - start]).collect();
        DamagedFile { path, saved_as, lost, lost_more: self.more }
    }
}

/// Whether an error says that stored data is damaged, and not that the target or this version of fhrd is at fault.
pub fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound)
}

/// A file that could not be restored whole.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DamagedFile {
    /// Its path, relative to the target.
    pub path: String,
    /// Path of the file with the bytes that are not lost, relative to the target. `None`: nothing was kept.
    pub saved_as: Option<String>,
    /// Offset and length of each lost range, ascending. Empty for further names of a file.
    pub lost: Vec<[u64; 2]>,
    /// Number of lost ranges that are not listed.
    pub lost_more: u64,
}

/// All files that could not be restored whole.
#[derive(Debug, Default)]
pub struct DamagedFiles(Mutex<DamagedList>);

/// The damaged files of a report.
#[derive(Debug, Default)]
pub struct DamagedList {
    /// The first of them.
    pub files: Vec<DamagedFile>,
    /// Number of the others.
    pub more: u64,
}

impl DamagedFiles {
    /// Adds one.
    pub fn add(&self, file: DamagedFile) {
        let mut list = self.0.lock();
        if list.files.len() < FILES_MAX {
            list.files.push(file);
        } else {
            list.more += 1;
        }
    }

    /// Takes the list.
    pub fn take(&self) -> DamagedList {
        std::mem::take(&mut self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(ranges: &[(u64, u64)]) -> DamagedFile {
        let mut lost = LostRanges::default();
        ranges.iter().for_each(|(offset, len)| lost.add(*offset, *len, Error::corrupt("x", *offset, "y", "z")));
        lost.report("p".into(), None)
    }

    #[test]
    fn adjacent_and_overlapping_ranges_are_merged_in_any_order() {
        assert_eq!(lost(&[(10, 5), (0, 4), (15, 5), (4, 6)]).lost, [[0, 20]]);
        assert_eq!(lost(&[(10, 5), (0, 4), (12, 1), (20, 5), (30, 0)]).lost, [[0, 4], [10, 5], [20, 5]]);
        assert_eq!(lost(&[(u64::MAX - 1, 9), (0, u64::MAX)]).lost, [[0, u64::MAX]]);
    }

    #[test]
    fn ranges_and_files_are_bounded() {
        let many: Vec<(u64, u64)> = (0..1500).rev().map(|number| (number * 10, 1)).collect();
        let report = lost(&many);
        assert_eq!((report.lost.len(), report.lost_more, report.lost[999]), (1000, 500, [9990, 1]));
        let files = DamagedFiles::default();
        (0..1200).for_each(|_| files.add(lost(&[(0, 1)])));
        let list = files.take();
        assert_eq!((list.files.len(), list.more), (1000, 200));
    }

    #[test]
    fn damage_is_reported_before_an_error_of_the_target() {
        let mut lost = LostRanges::default();
        lost.fail(Error::io("write", "x", std::io::Error::other("bad sector")));
        lost.add(0, 1, Error::corrupt("container", 0, "y", "z"));
        assert!(lost.error().is_some_and(is_damage));
    }
}
