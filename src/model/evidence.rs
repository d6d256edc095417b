//! Evidence: what the files beside a model say of its family, besides the names of its bases.
//!
//! Each sign is a hash whose two highest bits are its kind. Of two models, more shared signs of the strongest kind are
//! stronger evidence. It only proposes candidates: their contents decide.

use super::catalogue::name_hash;

/// Signs of a kind, at most.
const SIGNS_MAX: usize = 16;
/// Bits of the hash.
const KIND_SHIFT: u32 = 62;

/// Kinds of evidence, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvidenceKind {
    /// A tag of the card.
    Tag,
    /// A data set that the card names.
    Dataset,
    /// The architecture in the configuration.
    Architecture,
    /// The start of the tokenizer's file.
    Tokenizer,
}

/// How much of each kind two models share, the strongest kind first.
pub type SharedEvidence = [usize; 4];

/// The signs of these texts.
pub fn signs(kind: EvidenceKind, texts: impl IntoIterator<Item = String>) -> impl Iterator<Item = u64> {
    let hashed = move |text: String| name_hash(&text) >> 2 | (kind as u64) << KIND_SHIFT;
    texts.into_iter().take(SIGNS_MAX).map(hashed)
}

/// What two models share.
pub fn shared(one: &[u64], other: &[u64]) -> SharedEvidence {
    let mut shared = SharedEvidence::default();
    for sign in one.iter().filter(|sign| other.contains(sign)) {
        let kind = (sign >> KIND_SHIFT) as usize;
        shared.iter_mut().rev().nth(kind).into_iter().for_each(|count| *count += 1);
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_counted_by_kind_the_strongest_first() {
        let of = |kind, names: &[&str]| signs(kind, names.iter().map(ToString::to_string)).collect::<Vec<u64>>();
        let one = [of(EvidenceKind::Tag, &["a", "b", "c"]), of(EvidenceKind::Tokenizer, &["t"])].concat();
        let other = [of(EvidenceKind::Tag, &["b", "C"]), of(EvidenceKind::Dataset, &["t"])].concat();
        assert_eq!(shared(&one, &other), [0, 0, 0, 2], "names do not depend on case, kinds are apart");
        assert_eq!(shared(&one, &one), [1, 0, 0, 3]);
        assert!(shared(&one, &one[3..]) > shared(&one, &one[..3]), "a tokenizer is stronger than tags");
        assert_eq!(of(EvidenceKind::Dataset, &["x"; 99]).len(), SIGNS_MAX);
    }
}
