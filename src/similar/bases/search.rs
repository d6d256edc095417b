//! Candidates of bases, for strategies that search in SubDedup itself.

use super::Bases;
use crate::repo::container::{EntryNumber, SessionEntryNumber};

impl Bases {
    /// At most `count_max` entries with a feature, newest first.
    pub fn candidates(&mut self, feature: u64, count_max: usize) -> Vec<EntryNumber> {
        let mut entries = Vec::new();
        self.candidates.find(&[feature], count_max, &mut self.entries.resolver, |_, entry| entries.push(entry));
        entries
    }

    /// Adds the features of session entry `number` to the similarity index.
    pub fn index(&mut self, number: SessionEntryNumber, features: &[u64]) {
        self.candidates.insert(number, features);
    }
}
