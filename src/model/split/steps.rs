//! The steps of training runs: directories beside each other whose names differ in numbers only.
//!
//! 1. Of the directories above a model, and its own, a step is the deepest one whose name says so, as `checkpoint-500`
//!    or `iter_0000500`, and that has another one beside it. Other names with numbers may be of anything.
//! 2. The run is named by the path of the step without its numbers. Below the step, its own numbers are replaced, too,
//!    as in `checkpoint-500/global_step500`; others stay, so that `mp_rank_00` of each step is with its likes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What names of steps have in them.
const STEP_NAMES: [&str; 5] = ["step", "checkpoint", "ckpt", "iter", "epoch"];
/// What stands for a number.
const NUMBER: char = '#';

/// Directories by what they have in common with those beside them.
pub(super) struct Steps {
    beside: BTreeMap<(PathBuf, String), u32>,
}

impl Steps {
    /// Takes these directories and all above them.
    pub(super) fn new<'a>(directories: impl Iterator<Item = &'a PathBuf>) -> Self {
        let all: BTreeSet<&Path> = directories.flat_map(|directory| directory.ancestors()).collect();
        let mut beside = BTreeMap::new();
        for key in all.into_iter().filter_map(key_of) {
            *beside.entry(key).or_default() += 1;
        }
        Steps { beside }
    }

    /// The name of the run that a directory is a step of.
    pub(super) fn run_of(&self, directory: &Path) -> Option<String> {
        let count = |at: &Path| self.beside.get(&key_of(at)?).copied();
        let has_others = |at: &&Path| count(at).is_some_and(|count| count > 1);
        let step = directory.ancestors().filter(|at| says_step(at)).find(has_others)?;
        let (above, name) = key_of(step)?;
        let own: Vec<String> = numbers(&text_of(step));
        let below = directory.strip_prefix(step).ok()?.to_string_lossy().into_owned();
        Some(format!(
            "run {}/{name}/{}",
            above.display(),
            without(&below, |number| own.iter().any(|own| own == number))
        ))
    }
}

fn text_of(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn says_step(directory: &Path) -> bool {
    let name = text_of(directory).to_lowercase();
    STEP_NAMES.iter().any(|step| name.contains(step))
}

/// The directory above, and the name without its numbers. `None` if it has no number.
fn key_of(directory: &Path) -> Option<(PathBuf, String)> {
    let name = text_of(directory);
    let plain = without(&name, |_| true);
    (plain != name).then(|| Some((directory.parent()?.to_path_buf(), plain))).flatten()
}

/// The numbers of a name.
fn numbers(name: &str) -> Vec<String> {
    let all = name.split(|letter: char| !letter.is_ascii_digit());
    all.filter(|number| !number.is_empty()).map(str::to_string).collect()
}

/// The text without those of its numbers that are `replaced`.
fn without(text: &str, replaced: impl Fn(&str) -> bool) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(from.len());
        let (number, after) = from.split_at(end);
        plain.push_str(before);
        if replaced(number) {
            plain.push(NUMBER)
        } else {
            plain.push_str(number)
        }
        rest = after;
    }
    plain + rest
}
