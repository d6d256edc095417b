//! The rules of the sources, checked: layers, module docs, lengths, who prints, how lints are excepted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files and folders of each layer, lowest first. A file may name those of its own layer and below.
const LAYERS: &[&[&str]] = &[
    // Vocabulary
    &["error"],
    &["types"],
    &["wire"],
    &["config"],
    &["metrics"],
    &["cache"],
    // Loops
    &["kernel"],
    // Plugs
    &["codec"],
    &["format"],
    &["store"],
    // Machinery
    &["pipeline"],
    // Data
    &["repo"],
    &["filesystem"],
    &["chunk"],
    &["similar"],
    &["model"],
    // Flows
    &["backup", "restore", "inspect"],
    // Faces
    &["bench"],
    &["cli"],
    &["main"],
];
/// Names every layer; in none itself.
const EXEMPT: &str = "lib.rs";
/// The layer that prints.
const TOP: usize = 17;
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARACTERS_MAX: usize = 120;
const PRINTING: &[&str] = &["println!", "eprintln!", "print!(", "eprint!("];
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// A source file: where it is below `src`, and its lines without comments and literals.
struct Source {
    name: String,
    text: String,
    code: Vec<String>,
}

impl Source {
    fn new(name: &str, text: &str) -> Self {
        let code = blank(text).lines().map(str::to_string).collect();
        Source { name: name.into(), text: text.into(), code }
    }

    /// The top-level module it belongs to.
    fn module(&self) -> &str {
        let first = self.name.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Lines of code in front of the tests.
    fn library(&self) -> &[String] {
        let tests = self.code.windows(2).position(|pair| {
            pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod ") && pair[1].ends_with('{')
        });
        &self.code[..tests.unwrap_or(self.code.len())]
    }

    fn is_test(&self) -> bool {
        self.name.ends_with("tests.rs") || self.name == "store/contract.rs"
    }
}

/// Replaces comments and the insides of string and character literals by spaces; lines stay.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            quoted(rest)
        } else if (rest.starts_with("r\"") || rest.starts_with("r#")) && !is_word {
            raw(rest).unwrap_or(0)
        } else if first == '\'' {
            character(rest).unwrap_or(0)
        } else {
            0
        };
        if len == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..len].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[len..];
        }
    }
    out
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + body.find(&close)? + close.len())
}

/// Length of a character literal; none for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        return text[3..].find('\'').map(|at| at + 4);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

fn layer_of(module: &str) -> Option<usize> {
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
fn heads(path: &str) -> Vec<String> {
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

fn layer_faults(source: &Source) -> Vec<String> {
    if source.name == EXEMPT {
        return Vec::new();
    }
    let Some(own) = layer_of(source.module()) else {
        return vec![format!("{}: module `{}` is in no layer of the table", source.name, source.module())];
    };
    // `a.rs` and `a/mod.rs` are one `super` below the root, `a/b.rs` two.
    let folders = source.name.matches('/').count();
    let supers = if source.name.ends_with("/mod.rs") { folders } else { folders + 1 };
    let library = source.library().join("\n");
    let higher = named_modules(&library, supers).into_iter().filter(|name| layer_of(name) > Some(own));
    higher.map(|name| format!("{}: names the higher layer `{name}`", source.name)).collect()
}

/// Functions longer than allowed: from the line with `fn` to the one that closes its body.
fn long_functions(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for (start, line) in source.code.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "fn") else { continue };
        let Some(name) = words.get(at + 1).filter(|_| words[..at].iter().all(|word| !word.contains('='))) else {
            continue;
        };
        let (mut depth, mut opened) = (0i32, false);
        let end = source.code[start..].iter().position(|line| {
            for c in line.chars() {
                depth += i32::from(c == '{') - i32::from(c == '}');
                opened |= c == '{';
            }
            (opened && depth <= 0) || (!opened && line.trim_end().ends_with(';'))
        });
        let lines = end.map_or(0, |end| end + 1);
        if lines > FUNCTION_LINES_MAX {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            faults.push(format!("{}:{}: `{name}` has {lines} lines", source.name, start + 1));
        }
    }
    faults
}

fn other_faults(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: &str| faults.push(format!("{}:{line}: {what}", source.name));
    if !source.text.starts_with("//! ") {
        fault(1, "the first line is no module doc");
    }
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        fault(lines, &format!("more than {FILE_LINES_MAX} lines"));
    }
    for (number, line) in (1..).zip(&source.code) {
        let is_word = |at: usize| line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        if line.match_indices("allow(").any(|(at, _)| !is_word(at)) {
            fault(number, "a lint is allowed: expect it, with a reason");
        }
        if UNFINISHED.iter().any(|word| line.contains(word)) {
            fault(number, "unfinished");
        }
    }
    for (number, line) in (1..).zip(source.text.lines()) {
        let may_be_long = line.contains('"') || line.contains("://");
        if line.chars().count() > LINE_CHARACTERS_MAX && !may_be_long {
            fault(number, &format!("more than {LINE_CHARACTERS_MAX} characters"));
        }
    }
    if layer_of(source.module()) < Some(TOP) && !source.is_test() {
        for (number, line) in (1..).zip(source.library()) {
            if PRINTING.iter().any(|word| line.contains(word)) {
                fault(number, "only the command line and the bench print");
            }
        }
    }
    faults
}

fn collect(folder: &Path, root: &Path, sources: &mut Vec<Source>) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, root, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            sources.push(Source::new(&name, &std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn the_sources_keep_the_rules() {
    let mut sources = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    collect(&root, &root, &mut sources);
    assert!(sources.len() > 50, "only {} files found", sources.len());
    let check = |source| [layer_faults(source), long_functions(source), other_faults(source)].concat();
    let faults: Vec<String> = sources.iter().flat_map(check).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn a_lower_layer_that_names_a_higher_one_is_found_however_it_is_written() {
    let faults = |name: &str, text: &str| layer_faults(&Source::new(name, text)).len();
    assert_eq!(faults("store/local.rs", "use crate::backup::backup;"), 1);
    assert_eq!(faults("store/local.rs", "use crate::{error::{Error, Result}, backup::read, cli};"), 2);
    assert_eq!(faults("store/local.rs", "fn f() { super::super::repo::x() }"), 1);
    assert_eq!(faults("wire.rs", "use super::store::Store;"), 1);
    assert_eq!(faults("store/mod.rs", "use super::repo::Node;"), 1);
    assert_eq!(faults("store/local.rs", "use super::repo::Node;"), 0);
    assert_eq!(faults("inspect/list.rs", "use crate::{error::Error, repo::reader};"), 0);
    assert_eq!(faults("wire.rs", "// crate::cli\nconst A: &str = \"crate::cli\";"), 0);
    assert_eq!(faults("wire.rs", "#[cfg(test)]\nmod tests {\n    use crate::cli;\n}"), 0);
    assert_eq!(faults("novel.rs", ""), 1);
}

#[test]
fn long_functions_and_the_other_faults_are_found() {
    let function = |lines: usize| format!("//! x\nfn f() {{\n{}}}\n", "    g('{', \"}\");\n".repeat(lines - 2));
    assert_eq!(long_functions(&Source::new("wire.rs", &function(FUNCTION_LINES_MAX))), [""; 0]);
    assert_eq!(long_functions(&Source::new("wire.rs", &function(FUNCTION_LINES_MAX + 1))).len(), 1);
    let faults = |name: &str, text: &str| other_faults(&Source::new(name, text)).len();
    assert_eq!(faults("wire.rs", "use x;"), 1);
    assert_eq!(faults("wire.rs", &"//! x\n".repeat(FILE_LINES_MAX + 1)), 1);
    assert_eq!(faults("wire.rs", "//! x\n#[allow(dead_code)]\nfn f() {}"), 1);
    assert_eq!(faults("wire.rs", "//! x\nfn f() { println!() }"), 1);
    assert_eq!(faults("wire.rs", "//! x\n#![allow(dead_code)]\nfn f() {}"), 1);
    assert_eq!(faults("wire.rs", "//! x\nfn f() { todo!() }"), 1);
    assert_eq!(faults("wire.rs", &format!("//! x\n// {}", "y".repeat(LINE_CHARACTERS_MAX))), 1);
    assert_eq!(faults("wire.rs", &format!("//! x\n// https://{}", "y".repeat(LINE_CHARACTERS_MAX))), 0);
    assert_eq!(faults("cli/ls.rs", "//! x\nfn f() { println!() }"), 0);
    assert_eq!(faults("wire.rs", "//! x\n/// println!\nfn f() { g(r#\"println!\"#) }"), 0);
}
