//! Layers: which module may name which.

use std::collections::BTreeSet;

use super::source::Source;

/// The exact order of the top-level modules, lowest first. A file may name modules of its own row and of rows above it
/// in this table.
const LAYERS: &[&[&str]] = &[
    // Vocabulary
    &["error"],
    &["types"],
    &["wire"],
    &["read_at"],
    &["config"],
    &["metrics"],
    &["memory"],
    &["child"],
    &["text"],
    // Loops
    &["kernel"],
    // Plugs
    &["crypto"],
    &["codec"],
    &["format"],
    &["opened"],
    &["store"],
    // Machinery
    &["pipeline"],
    &["html"],
    // Data
    &["repo"],
    &["filesystem"],
    &["chunk"],
    &["similar"],
    &["model"],
    // Flows
    &["backup", "restore", "inspect", "keep", "mount"],
    &["import"],
    &["repair"],
    &["overview"],
    &["serve"],
    // Faces
    &["cli"],
    &["main"],
    // A package of its own
    &["bench"],
];
/// Names every module and belongs to no row.
const EXEMPT: &str = "lib.rs";
/// Modules that a module does not name, although the rows allow it: repairs work without the source, and inspections
/// name `keep`, so that `keep` would be in a circle with them.
const NEVER: &[(&str, &[&str])] = &[("repair", &["backup"]), ("keep", &["inspect"])];
/// Modules that may name nothing of the crate but themselves: pure loops and the runner's mechanics would rot first.
const APART: &[&str] = &["kernel"];

pub fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Top-level modules that a line names: `crate::x`, `crate::{x, y}` at the list's first level, and `super::x` where
/// `super` is the crate's root.
fn named_modules(code: &str, supers_to_root: usize) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let to_root = format!("{}super::", "super::".repeat(supers_to_root.saturating_sub(1)));
    for root in ["crate::", &to_root] {
        for (at, _) in code.match_indices(root) {
            let is_part = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
            if is_part || (root != "crate::" && supers_to_root == 0) {
                continue;
            }
            named.extend(heads(&code[at + root.len()..]));
        }
    }
    named.retain(|name| layer_of(name).is_some());
    named
}

/// The first names of a path, or of each path of a list of them.
pub fn heads(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = path.strip_prefix('{') else { return vec![word(path)] };
    let (mut depth, mut start, mut names) = (0i32, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(word(list[start..at].trim_start()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(word(list[start..at].trim_start()));
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

pub fn layer_faults(source: &Source) -> Vec<String> {
    if source.name == EXEMPT {
        return Vec::new();
    }
    let Some(own) = layer_of(source.module()) else {
        return vec![format!("{}: module `{}` is in no row of the table", source.name, source.module())];
    };
    let never = NEVER.iter().find(|(module, _)| *module == source.module() && !source.is_test());
    let mut faults = Vec::new();
    for name in named_modules_of(source) {
        if layer_of(&name) > Some(own) {
            faults.push(format!("{}: names the higher module `{name}`", source.name));
        } else if never.is_some_and(|(_, names)| names.contains(&name.as_str())) {
            faults.push(format!("{}: names `{name}`, which `{}` does without", source.name, source.module()));
        }
    }
    faults
}

fn named_modules_of(source: &Source) -> BTreeSet<String> {
    // `a.rs` and `a/mod.rs` are one `super` below the root, `a/b.rs` two.
    let directories = source.name.matches('/').count();
    let supers = if source.name.ends_with("/mod.rs") { directories } else { directories + 1 };
    named_modules(&source.library().join("\n"), supers)
}

/// Modules that a module which stands apart names.
pub fn apart_faults(source: &Source) -> Vec<String> {
    let own = source.module();
    if !APART.contains(&own) {
        return Vec::new();
    }
    let foreign = named_modules_of(source).into_iter().filter(|name| name != own && !source.is_test());
    foreign.map(|name| format!("{}: names `{name}`, but `{own}` stands apart", source.name)).collect()
}

#[test]
fn a_lower_module_that_names_a_higher_one_is_found_however_it_is_written() {
    let faults = |name: &str, text: &str| layer_faults(&Source::new(name, text)).len();
    assert_eq!(faults("store/local.rs", "use crate::backup::backup;"), 1);
    assert_eq!(faults("store/local.rs", "use crate::{error::{Error, Result}, backup::read, cli};"), 2);
    assert_eq!(faults("store/local.rs", "fn f() { super::super::repo::x() }"), 1);
    assert_eq!(faults("wire.rs", "use super::store::Store;"), 1);
    assert_eq!(faults("error.rs", "use crate::types::hex;"), 1);
    assert_eq!(faults("store/mod.rs", "use super::repo::Node;"), 1);
    assert_eq!(faults("store/local.rs", "use super::repo::Node;"), 0);
    assert_eq!(faults("inspect/list.rs", "use crate::{error::Error, repo::read};"), 0);
    assert_eq!(faults("repair/index.rs", "use crate::backup::adopt_orphans;"), 1);
    assert_eq!(faults("repair/power_cut_tests.rs", "use crate::backup::backup;"), 0);
    assert_eq!(faults("repair/index.rs", "use crate::keep::prune;"), 0);
    assert_eq!(faults("keep/publish.rs", "use crate::inspect::list;"), 1);
    assert_eq!(faults("inspect/check/chosen.rs", "use crate::keep::prune;"), 0);
    assert_eq!(faults("wire.rs", "// crate::cli\nconst A: &str = \"crate::cli\";"), 0);
    assert_eq!(faults("wire.rs", "#[cfg(test)]\nmod tests {\n    use crate::cli;\n}"), 0);
    assert_eq!(faults("novel.rs", ""), 1);
}

#[test]
fn a_kernel_that_names_anything_is_found() {
    let apart = |name: &str, text: &str| apart_faults(&Source::new(name, text)).len();
    assert_eq!(apart("kernel/planes.rs", "use crate::error::Result;"), 1);
    assert_eq!(apart("kernel/rans/mod.rs", "use super::super::wire::WireReader;"), 1);
    assert_eq!(apart("kernel/rans/mod.rs", "use crate::kernel::counts;"), 0);
    assert_eq!(apart("codec/raw.rs", "use crate::error::Result;"), 0);
}
