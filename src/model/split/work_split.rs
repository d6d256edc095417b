//! The split itself: which file is in which unit, and which unit falls to which share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::families;
use super::steps::{name_of_all_steps, of_all_steps};
use crate::config::share_of;
use crate::filesystem::suggests_model;
use crate::repo::share_record::ShareOrigin;
use crate::repo::tree::BESIDE;

/// Separates the name of a family from that of a file.
const BY_FILE: char = '\0';
/// Longest name of a family that is repeated for each name of a file, bytes.
const FAMILY_BYTES_MAX: usize = 256;
/// What directories of models in a hub's cache begin with.
pub(super) const HUB: &[u8] = b"models--";

/// Files and bytes that fall together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnitTally {
    /// Files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl UnitTally {
    pub(super) fn add(&mut self, other: UnitTally) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Takes away what is part of it.
    pub(super) fn take(&mut self, part: UnitTally) {
        self.files = self.files.saturating_sub(part.files);
        self.bytes = self.bytes.saturating_sub(part.bytes);
    }
}

/// The unit that was asked for last, and its share: that costs a hash for each share, and files come by directory.
#[derive(Debug, Default)]
pub(super) struct LastUnit(Mutex<(String, u32)>);

impl Clone for LastUnit {
    fn clone(&self) -> Self {
        LastUnit::default()
    }
}

impl PartialEq for LastUnit {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LastUnit {}

/// How the files of a source are split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkSplit {
    pub(super) count: u32,
    /// Families of the directories of models. Their paths, and those of `heads`, are without the numbers of steps.
    pub(super) families: BTreeMap<PathBuf, String>,
    /// Directories that pass their family to those below them.
    pub(super) heads: BTreeSet<PathBuf>,
    /// Families that are split by file.
    pub(super) by_file: BTreeSet<String>,
    /// The shares of units that do not follow from their names.
    pub(super) assigned: BTreeMap<String, u32>,
    pub(super) last: LastUnit,
    /// Files whose names or directories were not counted apart. They spread evenly.
    pub(super) uncounted: UnitTally,
    /// Units with their tallies, as far as they were counted.
    pub units: BTreeMap<String, UnitTally>,
    /// All files.
    pub total: UnitTally,
    /// Digest of what decides which file falls to which share.
    pub(super) digest: [u8; 16],
    /// Digest of the files.
    pub(super) listing: [u8; 16],
}

/// What falls to a share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShareTally {
    /// Units.
    pub units: u64,
    /// Their files.
    pub tally: UnitTally,
    /// The unit with the most bytes, as people read it.
    pub largest: Option<String>,
}

impl WorkSplit {
    /// Number of shares.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number, from 1 on, of the share that a file falls to.
    pub fn share_of(&self, path: &Path) -> u32 {
        let unit = self.unit_of(path);
        let mut last = self.last.0.lock();
        if last.0 != unit {
            let share = self.share_of_unit(&unit);
            *last = (unit, share);
        }
        last.1
    }

    fn share_of_unit(&self, unit: &str) -> u32 {
        self.assigned.get(unit).copied().unwrap_or_else(|| share_of(unit.as_bytes(), self.count))
    }

    /// The unit that a file is in.
    pub(super) fn unit_of(&self, path: &Path) -> String {
        let directory = unit_directory(path);
        let family = self.family_of(directory);
        if !self.by_file.contains(&family) {
            return family;
        }
        unit_of_file(&family, &unit_name(path))
    }

    /// The family of a directory.
    pub(super) fn family_of(&self, directory: &Path) -> String {
        let directory = &*of_all_steps(directory);
        if let Some(family) = self.families.get(directory) {
            return family.clone();
        }
        let head = directory.ancestors().skip(1).find(|above| self.heads.contains(*above));
        let family = head.and_then(|head| self.families.get(head));
        family.cloned().unwrap_or_else(|| families::of_directory(directory))
    }

    /// Whether the cards beside a file are needed by shares to which they do not fall.
    pub fn is_beside_others(&self, path: &Path) -> bool {
        !self.by_file.is_empty() && self.by_file.contains(&self.family_of(unit_directory(path)))
    }

    /// What decided which file falls to which share, and the files.
    pub fn origin(&self) -> ShareOrigin {
        let (UnitTally { files, bytes }, split, listing) = (self.total, self.digest, self.listing);
        ShareOrigin { split, listing, files, bytes }
    }

    /// What falls to each share.
    pub fn shares(&self) -> Vec<ShareTally> {
        let count = u64::from(self.count.max(1));
        let even = UnitTally { files: self.uncounted.files / count, bytes: self.uncounted.bytes / count };
        let mut shares = vec![ShareTally { tally: even, ..ShareTally::default() }; self.count as usize];
        let mut largest = vec![0; shares.len()];
        for (unit, tally) in &self.units {
            let at = (self.share_of_unit(unit) as usize).saturating_sub(1);
            let (Some(share), Some(largest)) = (shares.get_mut(at), largest.get_mut(at)) else { continue };
            share.units += 1;
            share.tally.add(*tally);
            if tally.bytes >= *largest {
                (*largest, share.largest) = (tally.bytes, Some(shown_unit(unit)));
            }
        }
        shares
    }
}

/// A unit as people read it.
pub fn shown_unit(unit: &str) -> String {
    unit.replace(BY_FILE, ": ")
}

/// The unit of the files of one name in a family that is split by file. Families with long names have a digest there.
pub(super) fn unit_of_file(family: &str, name: &str) -> String {
    if family.len() <= FAMILY_BYTES_MAX {
        return format!("{family}{BY_FILE}{name}");
    }
    format!("family {}{BY_FILE}{name}", blake3::hash(family.as_bytes()).to_hex())
}

/// The name by which a file falls to a unit. An object has another one once others lie below its key. Models have the
/// same name in all steps; other files have nothing to stay together for.
pub(super) fn unit_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(BESIDE);
    if suggests_model(&path.with_file_name(name)) { name_of_all_steps(name).into_owned() } else { name.to_string() }
}

/// The directory that decides about a file: its own, or that of its model in a hub's cache.
pub(super) fn unit_directory(path: &Path) -> &Path {
    let is_hub = |above: &&Path| above.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(HUB));
    let own = path.parent().unwrap_or(path);
    own.ancestors().find(is_hub).unwrap_or(own)
}
