//! The families of directories of models, from their cards.
//!
//! 1. The base of a model is the first one in its card that is a directory of the listing: by its whole path, by its
//!    last two names if the card gives two, else by its last name. Of several such directories it is the first by path.
//!    A card that names its own directory, by its name or as `.`, says nothing.
//! 2. The family is named by the model at the end of the chain. If its card names bases that are not there, the first
//!    of these names the family, so that the descendants of a base that is elsewhere stay together.
//! 3. In a circle, the first directory by path is the end of the chain.
//! 4. The steps of a training run are one directory here: paths are without the numbers of steps
//!    ([`of_all_steps`]), and so are names of bases with their owners. The card of the first step counts for all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::steps::of_all_steps;
use crate::model::names;

/// What cards say of a model.
struct CardDescent {
    /// The directory of its base, if it is there.
    base: Option<PathBuf>,
    /// The first base, if none is there.
    absent: Option<String>,
}

/// The family of a directory without models.
pub(super) fn of_directory(directory: &Path) -> String {
    format!("directory {}", directory.to_string_lossy())
}

/// The families of directories, without the numbers of steps. `models` has a file of a model in each; `read` reads
/// cards.
pub(super) fn families(
    models: &BTreeMap<PathBuf, PathBuf>,
    read: &dyn Fn(&Path) -> Option<Vec<u8>>,
) -> BTreeMap<PathBuf, String> {
    let mut by_name: BTreeMap<String, &PathBuf> = BTreeMap::new();
    let found: Vec<(&PathBuf, Vec<String>)> = models
        .iter()
        .map(|(directory, file)| {
            let found = names(file, read);
            for name in own_names(directory, &found.names) {
                if let Some(name) = listed_name(&name) {
                    by_name.entry(name).or_insert(directory);
                }
            }
            (directory, found.bases)
        })
        .collect();
    let descents: BTreeMap<&PathBuf, CardDescent> =
        found.into_iter().map(|(directory, bases)| (directory, descent(directory, &bases, models, &by_name))).collect();
    let mut roots: BTreeMap<PathBuf, String> = BTreeMap::new();
    for directory in descents.keys() {
        let (chain, root) = root_of(directory, &descents, &roots);
        roots.extend(chain.into_iter().map(|member| (member, root.clone())));
    }
    roots
}

/// A name without the numbers of steps. `None` for `checkpoint-500` without an owner, which is in many runs.
fn listed_name(name: &str) -> Option<String> {
    let plain = of_all_steps(Path::new(name)).to_string_lossy().into_owned();
    (name.contains('/') || plain == name).then_some(plain)
}

/// The names by which cards may name the models of a directory. The last of `names` is that of the file, which is the
/// same in most directories.
fn own_names(directory: &Path, names: &[String]) -> Vec<String> {
    let mut own: Vec<String> = names.split_last().map(|(_, names)| names.to_vec()).unwrap_or_default();
    let mut above = directory.iter().rev().map(|name| name.to_string_lossy());
    if let (Some(last), Some(owner)) = (above.next(), above.next()) {
        own.push(format!("{owner}/{last}"));
    }
    own
}

fn descent(
    directory: &Path,
    bases: &[String],
    models: &BTreeMap<PathBuf, PathBuf>,
    by_name: &BTreeMap<String, &PathBuf>,
) -> CardDescent {
    // A base comes by its last name, then by its whole one.
    let bases = || bases.iter().filter(|base| base.contains(|byte| !matches!(byte, '.' | '/')));
    let whole = bases().filter(|base| base.contains('/'));
    let there = |base: &&String| -> Option<&PathBuf> {
        let path = of_all_steps(Path::new(base.as_str()));
        let by_path = models.get_key_value(&*path).map(|(found, _)| found);
        by_path.or_else(|| by_name.get(&listed_name(last_two(base))?).copied())
    };
    let is_other = |base: &&String| there(base).is_none_or(|found| found.as_path() != directory);
    let all = whole.chain(bases().filter(|base| !base.contains('/')));
    let ordered: Vec<&String> = all.filter(is_other).collect();
    let base = ordered.iter().find_map(there).map(|found| (*found).clone());
    let absent = ordered.first().filter(|_| base.is_none()).map(|base| unlisted_name(base));
    CardDescent { base, absent }
}

/// The last two names of a base, or its only one.
fn last_two(base: &str) -> &str {
    let base = base.trim_end_matches('/');
    let before_last = base.rfind('/').and_then(|last| base.get(..last)?.rfind('/'));
    before_last.and_then(|at| base.get(at + 1..)).unwrap_or(base)
}

/// How a base that is not there is called: a path of another machine by its last name, or by that of the run if this
/// is the number of a step.
fn unlisted_name(base: &str) -> String {
    let is_path = base.starts_with(['/', '.', '~']) || base.contains('\\');
    let mut last = base.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).filter(|name| !name.is_empty());
    let last = last.find(|name| of_all_steps(Path::new(name)) == Path::new(name));
    last.filter(|_| is_path).unwrap_or(base).to_string()
}

/// The chain of bases of a directory, as far as `roots` does not know it, and the name of the family at its end.
fn root_of(
    directory: &Path,
    descents: &BTreeMap<&PathBuf, CardDescent>,
    roots: &BTreeMap<PathBuf, String>,
) -> (BTreeSet<PathBuf>, String) {
    let mut chain: BTreeSet<PathBuf> = BTreeSet::new();
    let mut at = directory.to_path_buf();
    let root = loop {
        if let Some(root) = roots.get(&at) {
            break root.clone();
        }
        let Some(descent) = descents.get(&at) else { break of_directory(&at) };
        if !chain.insert(at.clone()) {
            break of_directory(&first_of_circle(&at, descents));
        }
        match (&descent.base, &descent.absent) {
            (Some(base), _) => at.clone_from(base),
            (None, Some(absent)) => break format!("base {absent}"),
            (None, None) => break of_directory(&at),
        }
    };
    (chain, root)
}

/// The first directory, by path, of the circle that `start` is in.
fn first_of_circle(start: &Path, descents: &BTreeMap<&PathBuf, CardDescent>) -> PathBuf {
    let (mut first, mut at) = (start.to_path_buf(), start.to_path_buf());
    while let Some(base) = descents.get(&at).and_then(|descent| descent.base.clone()) {
        if base == start {
            break;
        }
        first = first.min(base.clone());
        at = base;
    }
    first
}
