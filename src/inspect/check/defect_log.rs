//! The defects of a check: all are counted, and the first ones are recorded.
//!
//! Damaged blobs and their consequences have separate limits, so many consequences cannot hide a damaged blob.

use crate::error::{Error, ErrorKind, Result};

/// Maximum number of recorded defects of each rank, and of a report.
pub(super) const DEFECTS_MAX: usize = 1000;

/// Defects of two ranks: damaged blobs and consequences. Beside them, what only a newer version can read, which is no
/// defect.
#[derive(Debug, Default)]
pub(super) struct DefectLog {
    count: u64,
    damaged_blobs: Vec<DefectText>,
    consequences: Vec<DefectText>,
    newer_count: u64,
    newer: Vec<String>,
}

/// A text, and the number of defects that it tells of.
#[derive(Debug)]
struct DefectText {
    text: String,
    count: u64,
}

/// Defects of one kind in one blob, which have one text: how many there are, and the first one.
#[derive(Debug, Default)]
pub(super) struct AlikeDefects {
    count: u64,
    first: String,
}

impl AlikeDefects {
    /// Adds a defect with this text.
    pub(super) fn add(&mut self, text: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = text();
        }
        self.count += 1;
    }

    /// What tells of all of them, `what` such as `frames`, in the blob `name`. `None` without any.
    fn into_text(self, name: &str, what: &str) -> Option<DefectText> {
        let AlikeDefects { count, first } = self;
        let prefix = format!("{name}: ");
        let text = match count {
            0 => return None,
            1 if first.contains(name) => first,
            1 => prefix + &first,
            _ => {
                let first = first.strip_prefix(&prefix).unwrap_or(&first);
                format!("{prefix}{count} {what} cannot be read; the first one: {first}")
            }
        };
        Some(DefectText { text, count })
    }
}

impl DefectLog {
    /// Adds a defect of a blob itself.
    pub(super) fn add(&mut self, text: String) {
        self.count += 1;
        push(&mut self.damaged_blobs, DefectText { text, count: 1 });
    }

    /// Adds the damaged `frames` of the blob `name`, and the `chunks` that it costs.
    pub(super) fn add_alike(&mut self, name: &str, frames: AlikeDefects, chunks: AlikeDefects) {
        self.count += frames.count + chunks.count;
        frames.into_text(name, "frames").into_iter().for_each(|text| push(&mut self.damaged_blobs, text));
        chunks.into_text(name, "chunks").into_iter().for_each(|text| push(&mut self.consequences, text));
    }

    /// Adds what a newer version wrote.
    fn newer(&mut self, text: String) {
        self.newer_count += 1;
        push(&mut self.newer, text);
    }

    /// Adds the damage `error` of the blob `name`. The name is put in front unless the error has it.
    pub(super) fn damaged_blob(&mut self, name: &str, error: &Error) {
        let text = error.to_string();
        let text = if text.contains(name) { text } else { format!("{name}: {text}") };
        if is_newer(error) { self.newer(text) } else { self.add(text) }
    }

    /// Adds what `error` costs.
    pub(super) fn consequence_of(&mut self, error: &Error, text: String) {
        if is_newer(error) { self.newer(text) } else { self.consequence(text) }
    }

    /// Adds a defect that may be the consequence of another one.
    pub(super) fn consequence(&mut self, text: String) {
        self.count += 1;
        push(&mut self.consequences, DefectText { text, count: 1 });
    }

    /// Appends the defects of `other`.
    pub(super) fn merge(&mut self, other: DefectLog) {
        self.count += other.count;
        other.damaged_blobs.into_iter().for_each(|text| push(&mut self.damaged_blobs, text));
        other.consequences.into_iter().for_each(|text| push(&mut self.consequences, text));
        self.newer_count += other.newer_count;
        other.newer.into_iter().for_each(|text| push(&mut self.newer, text));
    }

    /// Forgets the texts. The number stays.
    pub(super) fn drop_texts(&mut self) {
        self.damaged_blobs.clear();
        self.consequences.clear();
        self.newer.clear();
    }

    /// Number of recorded texts.
    pub(super) fn texts(&self) -> usize {
        self.damaged_blobs.len() + self.consequences.len() + self.newer.len()
    }

    /// Number of all defects.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Number of all parts that only a newer version can read.
    pub(super) fn newer_count(&self) -> u64 {
        self.newer_count
    }

    /// Whether there is neither a defect nor anything of a newer version.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.newer_count == 0
    }

    /// Takes the first texts of what only a newer version can read.
    pub(super) fn take_newer(&mut self) -> Vec<String> {
        std::mem::take(&mut self.newer)
    }

    /// The first [`DEFECTS_MAX`] texts, those of damaged blobs first, and the number of defects of which none tells.
    pub(super) fn into_texts(self) -> (Vec<String>, u64) {
        let mut more = self.count;
        let all = self.damaged_blobs.into_iter().chain(self.consequences).take(DEFECTS_MAX);
        let texts = all.inspect(|one| more = more.saturating_sub(one.count)).map(|one| one.text).collect();
        (texts, more)
    }
}

fn push<T>(texts: &mut Vec<T>, text: T) {
    if texts.len() < DEFECTS_MAX {
        texts.push(text);
    }
}

fn is_newer(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported
}

/// Returns an error to log: damage, such as blocks that the device cannot read, or what a newer version wrote. Any
/// other error is returned as `Err`.
pub(in crate::inspect) fn damage(error: Error) -> Result<Error> {
    let is_bad_block = |source: &std::io::Error| source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    let is_damage = match &error {
        Error::Io { source, .. } => is_bad_block(source),
        other => other.is_unreadable(),
    };
    if is_damage { Ok(error) } else { Err(error) }
}

/// Like [`damage`]. What is in cold storage without a hot index is to be logged, too: nothing else says what it has.
pub(in crate::inspect) fn damage_or_cold(error: Error) -> Result<Error> {
    if error.kind() == ErrorKind::Cold { Ok(error) } else { damage(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_consequences_do_not_hide_a_damaged_blob() {
        let mut log = DefectLog::default();
        (0..5000).for_each(|number| log.consequence(format!("entry {number}")));
        let mut other = DefectLog::default();
        other.add("the container".into());
        log.merge(other);
        assert_eq!(log.count(), 5001);
        let (texts, more) = log.into_texts();
        assert_eq!((texts.len(), texts[0].as_str(), texts[1].as_str()), (DEFECTS_MAX, "the container", "entry 0"));
        assert_eq!(more, 5001 - DEFECTS_MAX as u64);
    }

    #[test]
    fn defects_of_one_kind_in_one_blob_have_one_text_that_counts_them() {
        let (mut log, mut frames, mut chunks) =
            (DefectLog::default(), AlikeDefects::default(), AlikeDefects::default());
        frames.add(|| "containers/a at byte 5".into());
        (0..40).for_each(|number| chunks.add(|| format!("containers/a: entry {number}")));
        log.add_alike("containers/a", frames, chunks);
        log.add_alike("containers/b", AlikeDefects::default(), AlikeDefects::default());
        assert_eq!(log.count(), 41);
        let (texts, more) = log.into_texts();
        let chunks = "containers/a: 40 chunks cannot be read; the first one: entry 0";
        assert_eq!((texts.as_slice(), more), (&["containers/a at byte 5".to_string(), chunks.into()][..], 0));
    }

    #[test]
    fn a_denied_permission_is_no_damage_but_a_bad_block_is() {
        let io = |errno: rustix::io::Errno| Error::io("read", "x", std::io::Error::from(errno));
        assert!(damage(io(rustix::io::Errno::ACCESS)).is_err());
        assert!(damage(Error::Interrupted).is_err());
        assert!(damage(io(rustix::io::Errno::IO)).is_ok());
        assert!(damage(Error::unknown_features("x", 1)).is_ok());
        assert!(damage(Error::BlobMissing { what: "x".into() }).is_ok());
    }
}
