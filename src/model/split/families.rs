//! The families of directories of models, from their cards.
//!
//! 1. The base of a model is the first one in its card that is a directory of the listing: by its whole path, by its
//!    last two names if the card gives two, else by its last name. Of several such directories it is the first by path.
//!    A card that names its own directory, by its name or as `.`, says nothing. Names such as `checkpoints/1000` are in
//!    many runs, so those above them count, too.
//! 2. The family is named by the model at the end of the chain. If its card names bases that are not there, the first
//!    of these names the family, so that the descendants of a base that is elsewhere stay together.
//! 3. In a circle, the first directory by path is the end of the chain.
//! 4. The steps of a training run are one directory here: paths are without the numbers of steps
//!    ([`of_all_steps`]), and so are names of bases with their owners. The card of the first step counts for all. If it
//!    names no base, those directly below a model, the result of the training, descend from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::steps::{is_general, is_of_steps, of_all_steps};
use crate::model::detect::ModelNames;

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

/// The families of directories, without the numbers of steps; `models` has what cards say of the models in each.
pub(super) fn families(models: BTreeMap<PathBuf, ModelNames>) -> BTreeMap<PathBuf, String> {
    let mut by_name: BTreeMap<String, &PathBuf> = BTreeMap::new();
    for (directory, found) in &models {
        // The last name is that of the file, which is the same in most directories.
        let names = found.names.split_last().map_or(&[] as &[String], |(_, names)| names);
        let whole = directory.to_string_lossy();
        for name in names.iter().map(String::as_str).chain([&*whole]).filter_map(known_by) {
            by_name.entry(name).or_insert(directory);
        }
    }
    let descents: BTreeMap<&PathBuf, CardDescent> =
        models.iter().map(|(path, found)| (path, descent(path, &found.bases, &models, &by_name))).collect();
    let mut roots: BTreeMap<PathBuf, String> = BTreeMap::new();
    for directory in descents.keys() {
        let (chain, root) = root_of(directory, &descents, &roots);
        roots.extend(chain.into_iter().map(|member| (member, root.clone())));
    }
    roots
}

/// The names of a path, each without the number of its step and with whether it says which run or model it is.
fn parts(path: &str, plain: &str) -> Vec<(String, bool)> {
    let parts = path.split('/').zip(plain.split('/')).filter(|(name, _)| !name.is_empty());
    // The numbers of a directory's steps are left out already.
    parts.map(|(name, plain)| (plain.to_string(), name == plain && !is_general(name))).collect()
}

fn plain(path: &str) -> String {
    of_all_steps(Path::new(path)).to_string_lossy().into_owned()
}

/// The name by which a model at `path`, or with this name, is known: its last two names or its only one, and as many
/// more as it takes to say which run it is. `None` for `checkpoint-500` alone, which is in many runs.
fn known_by(path: &str) -> Option<String> {
    let parts = parts(path, &plain(path));
    let telling = parts.iter().rposition(|(_, is_telling)| *is_telling)?;
    let known = parts.get(telling.min(parts.len().saturating_sub(2))..)?;
    Some(known.iter().map(|(name, _)| name.as_str()).collect::<Vec<&str>>().join("/"))
}

fn descent(
    directory: &Path,
    bases: &[String],
    models: &BTreeMap<PathBuf, ModelNames>,
    by_name: &BTreeMap<String, &PathBuf>,
) -> CardDescent {
    // A base comes by its last name, then by its whole one.
    let whole = bases.iter().filter(|base| base.contains('/'));
    let there = |base: &&String| -> Option<&PathBuf> {
        let path = of_all_steps(Path::new(base.as_str()));
        let result = path.parent().filter(|_| is_of_steps(&path));
        let by_path = models.get_key_value(&*path).or_else(|| models.get_key_value(result?)).map(|(found, _)| found);
        let by_name = |path: &str| by_name.get(&known_by(path)?).copied();
        by_path.or_else(|| by_name(base)).or_else(|| by_name(result?.file_name()?.to_str()?))
    };
    let is_other = |base: &&String| there(base).is_none_or(|found| found.as_path() != directory);
    let all = whole.chain(bases.iter().filter(|base| !base.contains('/')));
    let ordered: Vec<&String> = all.filter(is_other).collect();
    let base = ordered.iter().find_map(there).cloned();
    let absent = ordered.iter().find_map(|base| unlisted_name(base)).filter(|_| base.is_none());
    // The steps of a training below its result, whose cards say nothing more.
    let result = directory.parent().filter(|above| is_of_steps(directory) && models.contains_key(*above));
    let result = result.filter(|_| base.is_none() && absent.is_none()).map(Path::to_path_buf);
    CardDescent { base: base.or(result), absent }
}

/// How a base that is not there is called: a path of another machine by the last name that says which run or model it
/// is. `None` if no name does.
fn unlisted_name(base: &str) -> Option<String> {
    let is_path = base.starts_with(['/', '.', '~']) || base.contains('\\');
    let base = base.replace('\\', "/");
    let plain = plain(&base);
    let last = parts(&base, &plain).into_iter().rfind(|(_, is_telling)| *is_telling)?;
    Some(if is_path { last.0 } else { plain })
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
