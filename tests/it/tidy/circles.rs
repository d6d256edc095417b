//! Circles: files of a flow that name one another in a ring cannot be read, moved or tested apart.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// Modules whose files have no circles of imports.
const WITHOUT: &[&str] = &["backup"];

/// Path of a module, below the one that is examined.
type ModulePath = Vec<String>;

/// A tree of names after `use` or inside an expression, as the paths that it lists.
fn paths(text: &str) -> Vec<ModulePath> {
    fn tree<'a>(mut text: &'a str, before: &[String], found: &mut Vec<ModulePath>) -> &'a str {
        let mut path = before.to_vec();
        loop {
            text = text.trim_start();
            if let Some(mut list) = text.strip_prefix('{') {
                while !list.trim_start().starts_with('}') && !list.trim_start().is_empty() {
                    list = tree(list, &path, found).trim_start();
                    list = list.strip_prefix(',').unwrap_or(list);
                }
                return list.trim_start().strip_prefix('}').unwrap_or("");
            }
            let len = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
            if len == 0 {
                // Something else than a name ends the path: it must not end the search.
                found.push(path);
                return text.get(1..).filter(|_| !text.starts_with([',', '}'])).unwrap_or(text);
            }
            path.push(text[..len].to_string());
            text = &text[len..];
            match text.strip_prefix("::") {
                Some(rest) => text = rest,
                None => {
                    found.push(path);
                    // What a name is renamed to does not matter.
                    return text.trim_start().strip_prefix("as ").map_or(text, |renamed| {
                        renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ' ')
                    });
                }
            }
        }
    }
    let mut found = Vec::new();
    tree(text, &[], &mut found);
    found
}

/// Paths that a file of `module` names, each from the root of the module. `own` is the path of the file.
fn named(source: &Source, module: &str, own: &[String]) -> Vec<ModulePath> {
    let (code, root) = (source.library().join("\n"), format!("crate::{module}::"));
    let starts_word = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    let mut found = Vec::new();
    for (at, _) in code.match_indices(&root).filter(|(at, _)| starts_word(*at)) {
        found.extend(paths(&code[at + root.len()..]));
    }
    for (at, _) in code.match_indices("super::").filter(|(at, _)| starts_word(*at)) {
        let supers = (1..).take_while(|count| code[at..].starts_with(&"super::".repeat(*count))).count();
        let Some(depth) = own.len().checked_sub(supers) else { continue };
        let below = paths(&code[at + supers * "super::".len()..]);
        found.extend(below.into_iter().map(|path| [&own[..depth], &path].concat()));
    }
    // What the interface of a directory passes on, and names of its own files.
    for (at, _) in code.match_indices("use ").filter(|(at, _)| starts_word(*at)) {
        found.extend(paths(&code[at + "use ".len()..]).into_iter().map(|path| [own, &path].concat()));
    }
    found
}

/// The module of a file in a path, the longest one.
fn file_of<'a>(files: &BTreeMap<ModulePath, &Source>, path: &'a [String]) -> Option<&'a [String]> {
    (0..=path.len()).rev().map(|len| &path[..len]).find(|path| files.contains_key(*path))
}

/// Files of `module` that are in a circle of imports or between two.
fn circle(sources: &[Source], module: &str) -> BTreeSet<String> {
    let path_of = |source: &Source| -> Option<ModulePath> {
        let name = source.name.strip_prefix(module)?.strip_prefix('/')?.strip_suffix(".rs")?;
        let name = if name == "mod" { "" } else { name.strip_suffix("/mod").unwrap_or(name) };
        Some(name.split('/').filter(|part| !part.is_empty()).map(str::to_string).collect())
    };
    let files: BTreeMap<ModulePath, &Source> = sources
        .iter()
        .filter(|source| !source.is_test())
        .filter_map(|source| path_of(source).map(|path| (path, source)))
        .collect();
    let names: BTreeMap<&ModulePath, Vec<ModulePath>> =
        files.iter().map(|(path, source)| (path, named(source, module, path))).collect();
    // A name that an interface passes on is that of the file that has it.
    let target = |path: &ModulePath| {
        let file = file_of(&files, path)?;
        let passed_on = path.get(file.len()).and_then(|name| {
            names[&file.to_vec()].iter().find(|inner| inner.starts_with(file) && inner.last() == Some(name))
        });
        passed_on.and_then(|inner| file_of(&files, inner)).or(Some(file)).map(<[String]>::to_vec)
    };
    let mut edges: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
    for (own, paths) in &names {
        let targets = paths.iter().filter_map(&target);
        edges.insert((*own).clone(), targets.filter(|target| target != *own).collect());
    }
    // Files that name no other one, and files that no other one names, are in no circle.
    loop {
        let left: BTreeSet<ModulePath> = edges.keys().cloned().collect();
        let are_named: BTreeSet<ModulePath> = edges.values().flatten().cloned().collect();
        edges.retain(|own, targets| {
            targets.retain(|target| left.contains(target));
            !targets.is_empty() && are_named.contains(own)
        });
        if edges.len() == left.len() {
            return edges.into_keys().map(|path| path.join("/")).collect();
        }
    }
}

pub fn circle_faults(sources: &[Source]) -> Vec<String> {
    let fault = |module: &&str| {
        let files = circle(sources, module);
        (!files.is_empty()).then(|| format!("{module}: these files name one another in a circle: {files:?}"))
    };
    WITHOUT.iter().filter_map(fault).collect()
}

#[test]
fn circles_are_found_through_lists_and_interfaces() {
    let files = |files: &[(&str, &str)]| -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(name, text)| Source::new(name, text)).collect();
        circle(&sources, "backup").into_iter().collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(files(&[("backup/a.rs", "use super::b::B;"), ("backup/b.rs", "use super::c;")]), none);
    let ring = ("backup/b.rs", "use crate::{error::E, backup};\nfn f() -> crate::backup::a::A { }");
    assert_eq!(files(&[("backup/a.rs", "use super::{c, b::{B, D as E}, e};"), ring]), ["a", "b"]);
    let interface = ("backup/mod.rs", "mod a;\npub use run::{R, backup};");
    let run = ("backup/run.rs", "use super::a::A;");
    assert_eq!(files(&[interface, run, ("backup/a.rs", "use super::R;")]), ["a", "run"]);
    assert_eq!(files(&[interface, run, ("backup/a.rs", "use crate::error::Error;")]), none);
    let inner = ("backup/inner/mod.rs", "mod x;\npub use x::X;");
    let outer = ("backup/a.rs", "use super::inner::X;");
    assert_eq!(files(&[inner, outer, ("backup/inner/x.rs", "use super::super::a::A;")]), ["a", "inner/x"]);
    assert_eq!(
        files(&[inner, outer, ("backup/inner/x.rs", "#[cfg(test)]\nmod tests {\n use super::super::a;\n}")]),
        none
    );
}
