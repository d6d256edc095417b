//! Counts the files of a listing by directory, and makes the split of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use super::families::{families, of_directory};
use super::steps::{is_of_steps, of_all_steps};
use super::work_split::{BY_FILE, HUB, LastUnit, UnitTally, WorkSplit, unit_directory, unit_name};
use crate::filesystem::{is_hub_blob, suggests_model};
use crate::model::{CANDIDATES_MAX, CARD, CONFIGURATIONS, MODEL_BYTES_MIN};

/// Directories whose bytes are counted, at most, and the bytes of their paths. Of those that are too many, the last by
/// path fall to shares by their names all the same.
const DIRECTORIES_MAX: usize = 1 << 20;
const DIRECTORY_BYTES_MAX: usize = 64 << 20;
/// Names of files of a directory that are counted apart, at most, and of all directories. Of the names of a directory
/// the first count. Names beyond those of all are of the last directories by path, which are never split by file.
pub(super) const NAMES_MAX: usize = 1024;
const ALL_NAMES_MAX: usize = 1 << 19;
/// Longest path of a model that may have a family, bytes.
const MODEL_PATH_MAX: usize = 512;
/// Which rules these are. What follows other rules has another digest.
const RULES: u32 = 5;

/// What the part of a card that programs read begins with.
const FRONT_MATTER: &[u8] = b"---";

/// The order of models: by whether no card can be beside them, by the length of their paths, and by these.
fn rank(path: &Path) -> (bool, usize, &Path) {
    (is_hub_blob(path), path.as_os_str().len(), path)
}

/// What is known of a directory.
#[derive(Default)]
struct DirectoryTally {
    tally: UnitTally,
    /// The first file that may be a model, by its [`rank`], with the number of its step. So it is of the first step of
    /// a run, whose card is whole when others begin.
    model: Option<PathBuf>,
    has_card: bool,
    has_configuration: bool,
    /// Files by name, of the first names.
    names: BTreeMap<String, UnitTally>,
}

impl DirectoryTally {
    /// Takes a file, also with a new name if that `is_counted`. Returns whether there are more names now.
    fn add_name(&mut self, name: String, is_counted: bool, one: UnitTally) -> bool {
        if let Some(tally) = self.names.get_mut(&name) {
            tally.add(one);
            return false;
        }
        if !is_counted {
            return false;
        }
        self.names.insert(name, one);
        if self.names.len() <= NAMES_MAX {
            return true;
        }
        self.names.pop_last();
        false
    }

    /// Whether there is a model with something that describes it. A card alone does so if it has front matter: programs
    /// have a `README.md`, too, and data or models of others below them. That of a hub's cache is in a snapshot.
    fn is_described(&self, is_hub: bool, read: &dyn Fn(&Path) -> Option<Vec<u8>>) -> bool {
        let Some(model) = &self.model else { return false };
        let has_front_matter = || read(&model.with_file_name(CARD)).is_some_and(|card| card.starts_with(FRONT_MATTER));
        self.has_configuration || (self.has_card && (is_hub || has_front_matter()))
    }
}

/// Whether a directory is that of a model in a hub's cache.
fn is_hub(directory: &Path) -> bool {
    directory.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(HUB))
}

/// Takes the files of a listing, in any order.
#[derive(Default)]
pub struct SplitBuilder {
    /// Directories that the source is given by. They pass their family to no other one.
    roots: Vec<PathBuf>,
    /// By path without the numbers of steps, so those of a training run are one.
    directories: BTreeMap<PathBuf, DirectoryTally>,
    /// Bytes of their paths, and how many may be.
    directory_bytes: usize,
    pub(super) directory_bytes_max: usize,
    /// The first directory that is not counted.
    uncounted: Option<PathBuf>,
    /// Names that are counted, in the directories before `nameless`, and how many may be.
    names: usize,
    pub(super) names_max: usize,
    /// The first directory whose names are not counted.
    nameless: Option<PathBuf>,
    total: UnitTally,
    /// Sum of the hashes of all files.
    listing: [u64; 4],
}

impl SplitBuilder {
    /// For a source that is given by these directories.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        let roots = roots.iter().map(|root| of_all_steps(root).into_owned()).collect();
        SplitBuilder {
            roots,
            directory_bytes_max: DIRECTORY_BYTES_MAX,
            names_max: ALL_NAMES_MAX,
            ..SplitBuilder::default()
        }
    }

    /// Takes a file, whose content changes with `state`.
    pub fn add(&mut self, path: &Path, size: u64, state: &[u8]) {
        let one = UnitTally { files: 1, bytes: size };
        self.total.add(one);
        self.add_to_listing(path, size, state);
        let directory = &*of_all_steps(unit_directory(path));
        if self.uncounted.as_deref().is_some_and(|first| directory >= first) {
            return;
        }
        if !self.directories.contains_key(directory) {
            self.directory_bytes += directory.as_os_str().len();
        }
        let found = self.directories.entry(directory.to_path_buf()).or_default();
        found.tally.add(one);
        let name = unit_name(path);
        found.has_card |= name == CARD;
        found.has_configuration |= CONFIGURATIONS.contains(&name.as_str());
        let len = path.as_os_str().len();
        let is_before = |first: &PathBuf| rank(path) < rank(first);
        let is_model = size >= MODEL_BYTES_MIN && len <= MODEL_PATH_MAX && suggests_model(path);
        if is_model && found.model.as_ref().is_none_or(is_before) {
            found.model = Some(path.to_path_buf());
        }
        let is_named = self.nameless.as_deref().is_none_or(|first| directory < first);
        self.names += usize::from(found.add_name(name, is_named, one));
        while self.directories.len() > DIRECTORIES_MAX || self.directory_bytes > self.directory_bytes_max {
            let Some((path, last)) = self.directories.pop_last() else { break };
            self.names -= last.names.len();
            self.directory_bytes -= path.as_os_str().len();
            self.uncounted = Some(path);
        }
        while self.names > self.names_max && self.drop_last_names() {}
    }

    /// Forgets the names of the last directory that has some, so that the result does not depend on the order of files.
    fn drop_last_names(&mut self) -> bool {
        let end = self.nameless.take().map_or(Bound::Unbounded, Bound::Excluded);
        let last = self.directories.range_mut::<PathBuf, _>((Bound::Unbounded, end)).next_back();
        let Some((path, last)) = last else { return false };
        self.names -= std::mem::take(&mut last.names).len();
        self.nameless = Some(path.clone());
        true
    }

    fn add_to_listing(&mut self, path: &Path, size: u64, state: &[u8]) {
        let mut hasher = blake3::Hasher::new();
        let path = path.as_os_str().as_encoded_bytes();
        hasher.update(&(path.len() as u64).to_le_bytes()).update(path);
        hasher.update(&size.to_le_bytes()).update(state);
        let hash = hasher.finalize();
        let (parts, _) = hash.as_bytes().as_chunks::<8>();
        for (sum, part) in self.listing.iter_mut().zip(parts) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*part));
        }
    }

    /// The split into `count` shares. `read` reads cards.
    pub fn finish(self, count: u32, read: &dyn Fn(&Path) -> Option<Vec<u8>>) -> WorkSplit {
        let is_head = |(path, found): &(&PathBuf, &DirectoryTally)| {
            !self.roots.contains(path) && found.is_described(is_hub(path), read)
        };
        let heads = self.directories.iter().filter(is_head);
        let heads: BTreeSet<PathBuf> = heads.map(|(path, _)| path.clone()).collect();
        // A directory without a card below such a one is part of that model, and so are the steps of its training.
        let is_own = |path: &Path, found: &DirectoryTally| {
            let has_card = found.has_card || found.has_configuration;
            let is_run_of_head = || is_of_steps(path) && path.parent().is_some_and(|above| heads.contains(above));
            (has_card && !is_run_of_head()) || !path.ancestors().skip(1).any(|above| heads.contains(above))
        };
        let with_models = self.directories.iter().filter(|(path, found)| is_own(path, found));
        let with_models = with_models.filter_map(|(path, found)| Some((path.clone(), found.model.clone()?)));
        let models = with_models.take(CANDIDATES_MAX).collect();
        let families = families(&models, read);
        let mut split = WorkSplit {
            count,
            families,
            heads,
            by_file: BTreeSet::new(),
            assigned: BTreeMap::new(),
            last: LastUnit::default(),
            uncounted: UnitTally::default(),
            units: BTreeMap::new(),
            total: self.total,
            digest: [0; 16],
            listing: shortened(blake3::hash(&self.listing.map(u64::to_le_bytes).concat())),
        };
        split.by_file = by_file(&split, &self.directories, self.nameless.as_deref());
        split.uncounted = self.total;
        for (directory, found) in &self.directories {
            split.uncounted.take(found.tally);
            let family = split.family_of(directory);
            if !split.by_file.contains(&family) {
                split.units.entry(family).or_default().add(found.tally);
                continue;
            }
            let mut rest = found.tally;
            for (name, tally) in &found.names {
                split.units.entry(format!("{family}{BY_FILE}{name}")).or_default().add(*tally);
                rest.take(*tally);
            }
            split.uncounted.add(rest);
        }
        split.digest = digest(&split);
        split
    }
}

/// The families that are split by file.
fn by_file(
    split: &WorkSplit,
    directories: &BTreeMap<PathBuf, DirectoryTally>,
    nameless: Option<&Path>,
) -> BTreeSet<String> {
    let even = split.total.bytes / u64::from(split.count.max(1));
    let mut members: BTreeMap<String, Vec<(&PathBuf, &DirectoryTally)>> = BTreeMap::new();
    for (path, found) in directories {
        members.entry(split.family_of(path)).or_default().push((path, found));
    }
    let is_large = |members: &Vec<(&PathBuf, &DirectoryTally)>| bytes_of(members) > even.saturating_mul(2);
    let is_named = |members: &Vec<(&PathBuf, &DirectoryTally)>| {
        members.iter().all(|(path, _)| nameless.is_none_or(|first| path.as_path() < first))
    };
    let large = members.into_iter().filter(|(_, members)| split.count > 1 && is_named(members) && is_large(members));
    large.filter(|(_, members)| has_common_names(members)).map(|(family, _)| family).collect()
}

fn bytes_of(members: &[(&PathBuf, &DirectoryTally)]) -> u64 {
    members.iter().fold(0, |sum, (_, found)| sum.saturating_add(found.tally.bytes))
}

/// Whether files of one name are mostly those that descend from each other, and no name has most of the bytes. Files of
/// a directory without models have nothing to stay together for. The names in a hub's cache are hashes, so none of
/// them is a file of another directory, or of another revision. The names that are counted stand for the others.
fn has_common_names(members: &[(&PathBuf, &DirectoryTally)]) -> bool {
    let with_models = || members.iter().filter(|(_, found)| found.model.is_some());
    let (models, has_hub) = (with_models().count(), with_models().any(|(path, _)| is_hub(path)));
    let mut names: BTreeMap<&str, UnitTally> = BTreeMap::new();
    for (name, tally) in members.iter().flat_map(|(_, found)| &found.names) {
        names.entry(name).or_default().add(*tally);
    }
    let bytes_of_names = |is_one: &dyn Fn(&UnitTally) -> bool| {
        names.values().filter(|tally| is_one(tally)).fold(0, |sum: u64, tally| sum.saturating_add(tally.bytes))
    };
    let counted = bytes_of_names(&|_| true);
    let common = bytes_of_names(&|tally| tally.files > 1 || (models <= 1 && !has_hub));
    let largest = names.values().map(|tally| tally.bytes).max().unwrap_or_default();
    (common >= counted / 5 * 4 || models == 0) && largest < bytes_of(members) / 4 * 3
}

fn digest(split: &WorkSplit) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&RULES.to_le_bytes()).update(&split.count.to_le_bytes());
    let mut text = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    for (directory, family) in &split.families {
        // A directory of its own family falls to the same share without models, unless it is part of another one then.
        let has_head = directory.ancestors().any(|above| split.heads.contains(above));
        if *family != of_directory(directory) || has_head {
            text(directory.as_os_str().as_encoded_bytes());
            text(family.as_bytes());
        }
    }
    split.heads.iter().for_each(|head| text(head.as_os_str().as_encoded_bytes()));
    split.by_file.iter().for_each(|family| text(family.as_bytes()));
    for (unit, share) in &split.assigned {
        text(unit.as_bytes());
        text(&share.to_le_bytes());
    }
    shortened(hasher.finalize())
}

fn shortened(hash: blake3::Hash) -> [u8; 16] {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

impl WorkSplit {
    /// Notes that the split has changed.
    pub(super) fn update_digest(&mut self) {
        self.digest = digest(self);
    }
}
