//! Counts the files of a listing by directory, and makes the split of them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use super::families::{families, of_directory};
use super::steps::of_all_steps;
use super::work_split::{HUB, LastUnit, UnitTally, WorkSplit, unit_directory, unit_name, unit_of_file};
use crate::filesystem::{is_hub_blob, suggests_model};
use crate::format::card;
use crate::model::detect::{ModelNames, TOKENIZER};
use crate::model::{CANDIDATES_MAX, CARD, CONFIGURATIONS, MODEL_BYTES_MIN, names};

/// Directories whose bytes are counted, at most, and the bytes of their paths. Of those that are too many, the last by
/// path fall to shares by their names all the same.
const DIRECTORIES_MAX: usize = 1 << 20;
const DIRECTORY_BYTES_MAX: usize = 64 << 20;
/// Names of files of a directory that are counted apart, at most, and of all directories: of models, and of others. Of
/// the names of a directory the first count. Those beyond the names of all are of the last directories by path. Names
/// of models there never split a family by file.
pub(super) const MODEL_NAMES_MAX: usize = 1024;
const OTHER_NAMES_MAX: usize = 256;
const ALL_NAMES_MAX: usize = 1 << 18;
/// Bytes of the names of bases that count of a card.
const BASES_BYTES_MAX: usize = 4 << 10;
/// Longest path of a model that may have a family, bytes.
const MODEL_PATH_MAX: usize = 512;
/// Which rules these are. What follows other rules has another digest.
const RULES: u32 = 6;

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
    names: ByKind<NameTallies>,
}

/// One for files that may be models by their names, and one for others: so the names of many plain files take none from
/// those of models.
#[derive(Default)]
pub(super) struct ByKind<T> {
    pub models: T,
    pub others: T,
}

impl<T> ByKind<T> {
    fn of(&mut self, is_model: bool) -> &mut T {
        if is_model { &mut self.models } else { &mut self.others }
    }
}

/// Files by name, of the first names.
#[derive(Default)]
struct NameTallies(BTreeMap<String, UnitTally>);

impl NameTallies {
    /// Takes a file, also with a new name if `max` is not 0. Returns whether there are more names now.
    fn add(&mut self, name: String, one: UnitTally, max: usize) -> bool {
        if let Some(tally) = self.0.get_mut(&name) {
            tally.add(one);
            return false;
        }
        if max == 0 {
            return false;
        }
        self.0.insert(name, one);
        if self.0.len() <= max {
            return true;
        }
        self.0.pop_last();
        false
    }
}

/// Names that are counted, in the directories before `nameless`, and how many may be.
pub(super) struct NameBudget {
    names: usize,
    pub names_max: usize,
    /// The first directory whose names are not counted.
    nameless: Option<PathBuf>,
}

impl Default for NameBudget {
    fn default() -> Self {
        NameBudget { names: 0, names_max: ALL_NAMES_MAX, nameless: None }
    }
}

impl NameBudget {
    fn covers(&self, directory: &Path) -> bool {
        self.nameless.as_deref().is_none_or(|first| directory < first)
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
    roots: BTreeSet<PathBuf>,
    /// By path without the numbers of steps, so those of a training run are one.
    directories: BTreeMap<PathBuf, DirectoryTally>,
    /// Bytes of their paths, and how many may be.
    directory_bytes: usize,
    pub(super) directory_bytes_max: usize,
    /// The first directory that is not counted.
    uncounted: Option<PathBuf>,
    pub(super) names: ByKind<NameBudget>,
    total: UnitTally,
    /// Sum of the hashes of all files.
    listing: [u64; 4],
}

impl SplitBuilder {
    /// For a source that is given by these directories.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        let roots = roots.iter().map(|root| of_all_steps(root).into_owned()).collect();
        SplitBuilder { roots, directory_bytes_max: DIRECTORY_BYTES_MAX, ..SplitBuilder::default() }
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
        let has_name_of_model = suggests_model(path);
        let is_model = size >= MODEL_BYTES_MIN && len <= MODEL_PATH_MAX && has_name_of_model;
        if is_model && found.model.as_ref().is_none_or(is_before) {
            found.model = Some(path.to_path_buf());
        }
        let budget = self.names.of(has_name_of_model);
        let names_max = if has_name_of_model { MODEL_NAMES_MAX } else { OTHER_NAMES_MAX };
        let names_max = if budget.covers(directory) { names_max } else { 0 };
        budget.names += usize::from(found.names.of(has_name_of_model).add(name, one, names_max));
        while self.directories.len() > DIRECTORIES_MAX || self.directory_bytes > self.directory_bytes_max {
            let Some((path, last)) = self.directories.pop_last() else { break };
            self.names.models.names -= last.names.models.0.len();
            self.names.others.names -= last.names.others.0.len();
            self.directory_bytes -= path.as_os_str().len();
            self.uncounted = Some(path);
        }
        let budget = self.names.of(has_name_of_model);
        while budget.names > budget.names_max && drop_last_names(&mut self.directories, has_name_of_model, budget) {}
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
        let (models, heads) = self.described(read);
        let families = families(models);
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
        split.by_file = by_file(&split, &self.directories, &self.names.models);
        split.uncounted = self.total;
        for (directory, found) in &self.directories {
            split.uncounted.take(found.tally);
            let family = split.family_of(directory);
            if !split.by_file.contains(&family) {
                split.units.entry(family).or_default().add(found.tally);
                continue;
            }
            let mut rest = found.tally;
            for (name, tally) in found.names.models.0.iter().chain(&found.names.others.0) {
                split.units.entry(unit_of_file(&family, name)).or_default().add(*tally);
                rest.take(*tally);
            }
            split.uncounted.add(rest);
        }
        split.digest = digest(&split);
        split
    }

    /// What the cards say of the models of directories, and the directories that pass their family to those below them.
    /// No card is read twice.
    ///
    /// A model is described by a configuration, or by a card with front matter: programs have a `README.md`, too, and
    /// models of others below it. A directory that is not, below one that is, is part of that model.
    fn described(&self, read: &dyn Fn(&Path) -> Option<Vec<u8>>) -> (BTreeMap<PathBuf, ModelNames>, BTreeSet<PathBuf>) {
        let (mut models, mut described) = (BTreeMap::new(), BTreeSet::new());
        // It names no base, and is large.
        let read = |card: &Path| if card.file_name().is_some_and(|name| name == TOKENIZER) { None } else { read(card) };
        let has_card = |tally: &DirectoryTally| tally.has_card || tally.has_configuration;
        let all = || self.directories.iter().filter_map(|(path, tally)| Some((path, tally, tally.model.as_ref()?)));
        for (path, tally, model) in all().filter(|(_, tally, _)| has_card(tally)).take(CANDIDATES_MAX) {
            let has_front_matter = Cell::new(false);
            let noting = |card: &Path| {
                let text = read(card)?;
                let is_card = card.file_name().is_some_and(|name| name == CARD);
                has_front_matter.set(has_front_matter.get() || (is_card && card::has_front_matter(&text)));
                Some(text)
            };
            models.insert(path.clone(), bounded(names(model, &noting)));
            if tally.has_configuration || is_hub(path) || has_front_matter.get() {
                described.insert(path.clone());
            }
        }
        let mut heads: BTreeSet<PathBuf> = described.difference(&self.roots).cloned().collect();
        let is_part = |path: &Path| path.ancestors().skip(1).any(|above| heads.contains(above));
        models.retain(|path, _| described.contains(path) || !is_part(path));
        let rest = all().filter(|(path, tally, _)| !has_card(tally) && !is_part(path));
        for (path, _, model) in rest.take(CANDIDATES_MAX.saturating_sub(models.len())) {
            models.insert(path.clone(), bounded(names(model, &read)));
        }
        // A head with nothing below it decides nothing, so it does not make jobs differ.
        if self.uncounted.is_none() {
            heads.retain(|head| self.has_directory_below(head));
        }
        (models, heads)
    }

    fn has_directory_below(&self, directory: &Path) -> bool {
        let mut behind = self.directories.range::<Path, _>((Bound::Excluded(directory), Bound::Unbounded));
        behind.next().is_some_and(|(next, _)| next.starts_with(directory))
    }
}

/// What counts of the names of a model: those of many are in memory at the same time.
fn bounded(mut found: ModelNames) -> ModelNames {
    let mut bytes = 0;
    found.evidence = Vec::new();
    found.bases.retain(|base| {
        bytes += base.len();
        bytes <= BASES_BYTES_MAX
    });
    found.bases.shrink_to_fit();
    found
}

/// Forgets the names of the last directory that has some, so that the result does not depend on the order of files.
fn drop_last_names(
    directories: &mut BTreeMap<PathBuf, DirectoryTally>,
    of_models: bool,
    budget: &mut NameBudget,
) -> bool {
    let end = budget.nameless.take().map_or(Bound::Unbounded, Bound::Excluded);
    let last = directories.range_mut::<PathBuf, _>((Bound::Unbounded, end)).next_back();
    let Some((path, last)) = last else { return false };
    budget.names -= std::mem::take(last.names.of(of_models)).0.len();
    budget.nameless = Some(path.clone());
    true
}

/// The families that are split by file.
fn by_file(split: &WorkSplit, directories: &BTreeMap<PathBuf, DirectoryTally>, names: &NameBudget) -> BTreeSet<String> {
    let even = split.total.bytes / u64::from(split.count.max(1));
    let mut members: BTreeMap<String, Vec<(&PathBuf, &DirectoryTally)>> = BTreeMap::new();
    for (path, found) in directories {
        members.entry(split.family_of(path)).or_default().push((path, found));
    }
    let is_large = |members: &Vec<(&PathBuf, &DirectoryTally)>| bytes_of(members) > even.saturating_mul(2);
    let is_named = |members: &Vec<(&PathBuf, &DirectoryTally)>| {
        members.iter().all(|(path, found)| found.model.is_none() || names.covers(path))
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
    let mut names: BTreeMap<&String, UnitTally> = BTreeMap::new();
    for (name, tally) in all_names(members) {
        names.entry(name).or_default().add(*tally);
    }
    let bytes_of_names = |is_one: &dyn Fn(&String, &UnitTally) -> bool| {
        let found = names.iter().filter(|(name, tally)| is_one(name, tally));
        found.fold(0, |sum: u64, (_, tally)| sum.saturating_add(tally.bytes))
    };
    let counted = bytes_of_names(&|_, _| true);
    // The names of the largest model count, too: an adapter beside it has others.
    let largest_model = with_models().filter(|(path, _)| !is_hub(path)).max_by_key(|(_, found)| found.tally.bytes);
    let of_largest = |name: &String| largest_model.is_some_and(|(_, found)| found.names.models.0.contains_key(name));
    let common = bytes_of_names(&|name, tally| tally.files > 1 || of_largest(name) || (models <= 1 && !has_hub));
    let largest = names.values().map(|tally| tally.bytes).max().unwrap_or_default();
    (common >= counted / 5 * 4 || models == 0) && largest < bytes_of(members) / 4 * 3
}

fn all_names<'a>(members: &'a [(&PathBuf, &DirectoryTally)]) -> impl Iterator<Item = (&'a String, &'a UnitTally)> {
    members.iter().flat_map(|(_, found)| found.names.models.0.iter().chain(&found.names.others.0))
}

fn digest(split: &WorkSplit) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&RULES.to_le_bytes()).update(&split.count.to_le_bytes());
    // Each list begins with its length, so that none goes on in the next one.
    let mut list = |texts: Vec<&[u8]>| {
        hasher.update(&(texts.len() as u64).to_le_bytes());
        for text in texts {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text);
        }
    };
    // A directory of its own family falls to the same share without models, unless it is part of another one then.
    let is_part = |directory: &Path| directory.ancestors().skip(1).any(|above| split.heads.contains(above));
    let families = split.families.iter();
    let families = families.filter(|(path, family)| **family != of_directory(path) || is_part(path));
    list(families.flat_map(|(path, family)| [path.as_os_str().as_encoded_bytes(), family.as_bytes()]).collect());
    list(split.heads.iter().map(|head| head.as_os_str().as_encoded_bytes()).collect());
    list(split.by_file.iter().map(String::as_bytes).collect());
    let assigned: Vec<(&[u8], [u8; 4])> =
        split.assigned.iter().map(|(unit, share)| (unit.as_bytes(), share.to_le_bytes())).collect();
    list(assigned.iter().flat_map(|(unit, share)| [*unit, share.as_slice()]).collect());
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
