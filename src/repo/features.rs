//! Features of a repository that older programs do not know.
//!
//! What the previous release cannot read, or would spoil, is written only into a repository that has the feature: it
//! was created with it, or `fhrd upgrade` has enabled it. Programs that do not know a feature only read there.
//!
//! 1. A new repository has the bits of its features in the envelope of its configuration, which never changes.
//! 2. An upgrade puts a mark of the kind `writer-features`.

use serde::Serialize;

use crate::error::Result;
use crate::repo::Repository;
use crate::repo::index::{ContainerListing, NewSegments};
use crate::repo::keys;
use crate::repo::marks::{Mark, MarkKind, Marks};
use crate::repo::parity::heal_marks;
use crate::wire;

/// Why an upgrade puts its mark.
const REASON: &str = "enabled by `fhrd upgrade`";

/// A feature that writers must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Every key slot is stored twice.
    KeyCopies,
    /// Quantised and pruned tensors are stored as what follows from stored floats, zeros are left out, dequantised
    /// floats are codes, and bytes have classes.
    Derivations,
    /// Files of compressed streams are stored as what these unpack to, and are rebuilt from it.
    Rebuilt,
    /// The last page of a small index segment has no padding.
    ShortPages,
    /// Listings are stored as differences to those of the parent.
    Listings,
}

impl Feature {
    /// All that this program knows.
    pub const ALL: [Feature; 5] =
        [Feature::KeyCopies, Feature::Derivations, Feature::Rebuilt, Feature::ShortPages, Feature::Listings];

    /// Its bit among the writer-required features.
    pub const fn bit(self) -> u64 {
        match self {
            Feature::KeyCopies => wire::KEY_COPIES,
            Feature::Derivations => wire::DERIVATIONS,
            Feature::Rebuilt => wire::REBUILT,
            Feature::ShortPages => wire::SHORT_PAGES,
            Feature::Listings => wire::LISTINGS,
        }
    }

    /// Its name in JSON and in docs/FORMAT.md.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::KeyCopies => "key-copies",
            Feature::Derivations => "derivations",
            Feature::Rebuilt => "rebuilt",
            Feature::ShortPages => "short-pages",
            Feature::Listings => "listings",
        }
    }

    /// What it does, for people.
    pub const fn purpose(self) -> &'static str {
        match self {
            Feature::KeyCopies => "every key slot is stored twice",
            Feature::Derivations => "quantised and pruned tensors follow from stored models",
            Feature::Rebuilt => "compressed files are stored as what they unpack to",
            Feature::ShortPages => "small index segments end without padding",
            Feature::Listings => "listings are stored as differences to those of the parent",
        }
    }

    /// Whether a repository has a use for it.
    const fn is_needed(self, is_encrypted: bool) -> bool {
        match self {
            Feature::KeyCopies => is_encrypted,
            Feature::Derivations | Feature::Rebuilt | Feature::ShortPages | Feature::Listings => true,
        }
    }
}

/// The features that a repository needs. A new one is created with them.
pub fn needed(is_encrypted: bool) -> Vec<Feature> {
    Feature::ALL.into_iter().filter(|feature| feature.is_needed(is_encrypted)).collect()
}

/// The bits of some features.
pub fn bits(features: &[Feature]) -> u64 {
    features.iter().fold(0, |bits, feature| bits | feature.bit())
}

/// The features of a repository at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Features(u64);

impl Features {
    /// Whether it has a feature.
    pub const fn have(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }
}

/// The features that a repository has. Marks are not read if the configuration has all that it needs.
///
/// # Errors
/// Errors of [`has`].
pub fn of(repository: &Repository) -> Result<Features> {
    let needed = bits(&needed(repository.encryption.is_some()));
    let has_all = repository.writer_features & needed == needed;
    Ok(Features(if has_all { repository.writer_features } else { all_bits(repository)? }))
}

/// Whether a repository has a feature, so that this program may write what older ones do not know.
///
/// # Errors
/// Errors of reading the marks, unless the configuration has the feature. An unreadable mark may be the one that has
/// it.
pub fn has(repository: &Repository, feature: Feature) -> Result<bool> {
    if repository.writer_features & feature.bit() != 0 {
        return Ok(true);
    }
    Ok(all_bits(repository)? & feature.bit() != 0)
}

/// Lists the containers and segments of a repository, whose marks are `marks`, for a run that writes segments. Every
/// program reads padded pages: they serve if a mark cannot be read, and in a repository that hides lengths.
///
/// # Errors
/// Errors of [`ContainerListing::take`].
pub fn list_to_write(repository: &Repository, marks: Marks) -> Result<ContainerListing> {
    let of_marks = marks.writer_features().unwrap_or(0);
    let has_feature = (repository.writer_features | of_marks) & Feature::ShortPages.bit() != 0;
    let shortens_pages = has_feature && !repository.config.pad_containers;
    let new_segments = NewSegments::new(repository.salts.clone(), shortens_pages);
    Ok(ContainerListing::take_with(&repository.store, marks)?.with_new_segments(new_segments))
}

/// The writer-required bits of the configuration and of all marks.
fn all_bits(repository: &Repository) -> Result<u64> {
    Ok(repository.writer_features | Marks::read(repository.store.as_ref())?.writer_features()?)
}

/// What an upgrade did, or would do.
#[derive(Debug, Serialize)]
pub struct UpgradeReport {
    /// Nothing was changed, as requested.
    pub dry_run: bool,
    /// The features that were enabled.
    pub enabled: Vec<FeatureReport>,
    /// The features that the repository had before.
    pub present: Vec<FeatureReport>,
    /// Name of the mark that says so to writers, put now or before. None if there is none.
    pub mark: Option<String>,
}

/// A feature in a report.
#[derive(Debug, Serialize)]
pub struct FeatureReport {
    /// Its name.
    pub feature: &'static str,
    /// What it does.
    pub purpose: &'static str,
}

impl From<Feature> for FeatureReport {
    fn from(feature: Feature) -> Self {
        FeatureReport { feature: feature.name(), purpose: feature.purpose() }
    }
}

/// Enables the features that the repository needs and does not have. From then on, older programs do not write into it.
///
/// Two upgrades at the same time put two marks that say the same.
///
/// # Errors
/// If somebody forbids this program to write, or a mark cannot be read. Errors of the store.
pub fn upgrade(repository: &Repository, dry_run: bool) -> Result<UpgradeReport> {
    crate::repo::marks::check_writable(repository)?;
    let present = all_bits(repository)?;
    let is_present = |feature: &Feature| present & feature.bit() != 0;
    let missing: Vec<Feature> =
        needed(repository.encryption.is_some()).into_iter().filter(|feature| !is_present(feature)).collect();
    let mark = if missing.is_empty() || dry_run {
        Marks::read(repository.store.as_ref())?.writer_features_name.map(String::from)
    } else {
        let mark = Mark::new(MarkKind::WriterFeatures(bits(&missing)), REASON);
        mark.save(repository.store.as_ref())?.into_iter().next().map(String::from)
    };
    if !dry_run {
        repository.ready_directories()?;
        keys::heal_slots(repository)?;
        heal_marks(repository)?;
    }
    let present = Feature::ALL.into_iter().filter(is_present).map(FeatureReport::from).collect();
    Ok(UpgradeReport { dry_run, enabled: missing.into_iter().map(FeatureReport::from).collect(), present, mark })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::RepositoryConfig;
    use crate::store::{BlobKind, MemoryStore, Store};

    fn plain() -> (Arc<MemoryStore>, Repository) {
        let store = Arc::new(MemoryStore::new());
        let repository = Repository::init(store.clone(), &RepositoryConfig::default()).unwrap();
        (store, repository)
    }

    #[test]
    fn each_feature_has_a_bit_and_a_name_of_its_own_and_all_are_known() {
        assert_eq!(bits(&Feature::ALL), wire::WRITER_FEATURES_KNOWN);
        assert_eq!(wire::WRITER_FEATURES_KNOWN.count_ones() as usize, Feature::ALL.len());
        let names = Feature::ALL.map(Feature::name);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn a_new_repository_has_the_features_that_it_needs_and_an_upgrade_puts_no_mark() {
        let (store, repository) = plain();
        let needed = wire::DERIVATIONS | wire::REBUILT | wire::SHORT_PAGES | wire::LISTINGS;
        assert_eq!(repository.writer_features, needed);
        let report = upgrade(&repository, false).unwrap();
        assert!(report.enabled.is_empty() && report.mark.is_none());
        assert!(store.list(BlobKind::Mark.into()).unwrap().is_empty());
    }

    #[test]
    fn a_mark_gives_a_feature_and_an_unreadable_one_is_not_taken_for_none() {
        let (store, repository) = plain();
        assert!(!has(&repository, Feature::KeyCopies).unwrap());
        let name = Mark::new(MarkKind::WriterFeatures(wire::KEY_COPIES), "").save(store.as_ref()).unwrap().remove(0);
        assert!(has(&repository, Feature::KeyCopies).unwrap());
        let mut blob = store.get(&name, 1 << 10).unwrap();
        blob[20] ^= 1;
        store.replace(&name, &blob);
        assert!(has(&repository, Feature::KeyCopies).unwrap(), "its hash gives one byte back");
        blob[40] ^= 1;
        store.replace(&name, &blob);
        let repository = Repository::open(store.clone()).unwrap();
        assert!(has(&repository, Feature::KeyCopies).is_err());
        let created = Repository { writer_features: wire::KEY_COPIES, ..repository };
        assert!(has(&created, Feature::KeyCopies).unwrap(), "the configuration says so");
    }
}
