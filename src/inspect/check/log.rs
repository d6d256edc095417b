//! Defects found: all are counted, the first ones kept, and a damaged blob is never crowded out by what suffers from
//! it.

use super::DEFECTS_MAX;
use crate::error::{Error, Result};

/// Defects of two ranks.
#[derive(Debug, Default)]
pub(super) struct DefectLog {
    count: u64,
    own: Vec<String>,
    consequences: Vec<String>,
}

impl DefectLog {
    /// A blob is damaged itself.
    pub(super) fn own(&mut self, text: String) {
        self.count += 1;
        push(&mut self.own, text);
    }

    /// The blob `name` is damaged itself, as `error` says, which may name it, too.
    pub(super) fn damaged(&mut self, name: &str, error: &Error) {
        let text = error.to_string();
        self.own(if text.contains(name) { text } else { format!("{name}: {text}") });
    }

    /// Something cannot be read, perhaps because of damage elsewhere.
    pub(super) fn consequence(&mut self, text: String) {
        self.count += 1;
        push(&mut self.consequences, text);
    }

    /// Appends what `other` found.
    pub(super) fn merge(&mut self, other: DefectLog) {
        self.count += other.count;
        other.own.into_iter().for_each(|text| push(&mut self.own, text));
        other.consequences.into_iter().for_each(|text| push(&mut self.consequences, text));
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The first of them.
    pub(super) fn into_texts(self) -> Vec<String> {
        self.own.into_iter().chain(self.consequences).take(DEFECTS_MAX).collect()
    }
}

fn push(texts: &mut Vec<String>, text: String) {
    if texts.len() < DEFECTS_MAX {
        texts.push(text);
    }
}

/// An error that is damage, to be logged; any other fails. Features that are not known count as damage, for a flipped
/// bit asks for them, too; so do blocks that the device cannot read.
pub(super) fn damage(error: Error) -> Result<Error> {
    let unreadable = |source: &std::io::Error| source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    let damaged = match &error {
        Error::Io { source, .. } => unreadable(source),
        other => other.is_unreadable(),
    };
    if damaged { Ok(error) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_blob_is_told_of_however_many_suffer() {
        let mut log = DefectLog::default();
        (0..5000).for_each(|number| log.consequence(format!("entry {number}")));
        let mut other = DefectLog::default();
        other.own("the container".into());
        log.merge(other);
        assert_eq!(log.count(), 5001);
        let texts = log.into_texts();
        assert_eq!((texts.len(), texts[0].as_str(), texts[1].as_str()), (DEFECTS_MAX, "the container", "entry 0"));
    }

    #[test]
    fn a_closed_door_is_no_damage_but_a_bad_block_is() {
        let io = |errno: rustix::io::Errno| Error::io("read", "x", std::io::Error::from(errno));
        assert!(damage(io(rustix::io::Errno::ACCESS)).is_err());
        assert!(damage(Error::Interrupted).is_err());
        assert!(damage(io(rustix::io::Errno::IO)).is_ok());
        assert!(damage(Error::unknown_features("x", 1)).is_ok());
        assert!(damage(Error::BlobMissing { what: "x".into() }).is_ok());
    }
}
