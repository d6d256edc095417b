//! Words: retired terms stay retired, and a type name means one thing.
//!
//! docs/GLOSSARY.md has the terms in use. A retired term may not come back as part of an identifier, nor as a term in
//! comments, messages, documents and configurations. Plain English stays free: "form", "contents", "place" or
//! "earlier" are retired as identifiers only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::Source;

/// Parts of identifiers that are retired, each with the term in use.
const RETIRED_PARTS: &[(&str, &str)] = &[
    ("folder", "directory"),
    ("folders", "directories"),
    ("cutter", "chunker"),
    ("cutters", "chunkers"),
    ("piece", "operation"),
    ("pieces", "operations"),
    ("flat", "extent map"),
    ("flats", "extent cache"),
    ("shelf", "frames in flight"),
    ("stretch", "range"),
    ("stretches", "ranges"),
    ("settle", "seal"),
    ("settled", "sealed"),
    ("kept", "cached"),
    ("room", "buffer"),
    ("rooms", "buffers"),
    ("contents", "base cache"),
    ("place", "path, location or offset"),
    ("places", "locations or offsets"),
    ("turned", "rotated"),
    ("word", "element"),
    ("words", "elements"),
    ("parted", "deinterleaved"),
    ("joined", "interleaved"),
    ("form", "mode"),
    ("forms", "modes"),
    ("twin", "scalar"),
    ("twins", "scalars"),
    ("suspect", "candidate"),
    ("suspects", "candidates"),
    ("survey", "prescan"),
    ("ahead", "hoisted or readahead"),
    ("earlier", "previous version"),
    ("told", "warn"),
    ("passed", "silent"),
    ("crew", "workers"),
    ("crews", "workers"),
    ("intake", "receiver"),
    ("intakes", "receivers"),
    ("deepen", "queue depth"),
    ("figures", "statistics"),
    ("truths", "booleans"),
    ("instructions", "CPU features"),
];
/// Whole identifiers in which such a part means something else.
const ALLOWED_IDENTIFIERS: &[&str] = &["flat_map", "open_in_place", "seal_in_place_separate_tag"];
/// Lines in which an attribute of a crate or an element of HTML uses such a word.
const ALLOWED_LINES: &[&str] = &["#[cbor(flat)]", "form method=(method) action=[target] class=[class] { (content) }"];
/// Terms that are retired wherever they stand, each with the term in use. A space stands for any white space.
const RETIRED_TERMS: &[(&str, &str)] = &[
    ("folder", "directory"),
    ("folders", "directories"),
    ("cutter", "chunker"),
    ("cutters", "chunkers"),
    ("twin", "scalar reference"),
    ("twins", "scalar references"),
    ("shelf", "frames in flight"),
    ("crew", "workers"),
    ("intake", "receiver"),
    ("suspects", "candidates"),
    ("anew", "again"),
    ("at hand", "cached"),
    ("makes room", "is evicted"),
    ("make room", "are evicted"),
    ("exclusive or", "XOR"),
    ("passing over", "skipping"),
    ("passed over", "skipped"),
    ("pass over", "skip"),
    ("passes over", "skips"),
    ("reference seconds", "normalised seconds"),
    ("reference second", "normalised second"),
    ("what it takes", "stored size"),
    ("the link before", "the upstream stage"),
    ("turned words", "rotated elements"),
    ("container's directory", "container index"),
    ("container directory", "container index"),
    ("container directories", "container indexes"),
    ("fhrd_instructions", "FHRD_CPU_FEATURES"),
];
/// What is read for retired terms, below the checkout.
const TEXTS: &[&str] = &[
    "ARCHITECTURE.md",
    "README.md",
    "CHANGELOG.md",
    "Cargo.toml",
    ".ci",
    "bench",
    "benches",
    "configs",
    "datasets",
    "docs",
    "fuzz/fuzz_targets",
    "src",
    "tests/it",
];
/// Names the retired words itself.
const SELF: &str = "tests/it/tidy/words.rs";
const TEXT_ENDINGS: &[&str] = &["md", "rs", "toml", "py", "sh"];

/// The lower-case parts of an identifier: `FooBar_baz` has three.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for section in identifier.split('_').filter(|section| !section.is_empty()) {
        let mut part = String::new();
        let mut was_lower = false;
        for c in section.chars() {
            if c.is_uppercase() && was_lower {
                parts.push(std::mem::take(&mut part));
            }
            was_lower = c.is_lowercase() || c.is_ascii_digit();
            part.extend(c.to_lowercase());
        }
        parts.push(part);
    }
    parts
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// Identifiers with a retired part.
pub fn retired_identifiers(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(&source.code) {
        // Names of tests are sentences.
        let is_test = source.library().len() < number || source.is_test();
        if ALLOWED_LINES.contains(&line.trim()) {
            continue;
        }
        for identifier in identifiers(line).filter(|name| !ALLOWED_IDENTIFIERS.contains(name)) {
            if is_test && line.trim_start().starts_with("fn ") {
                continue;
            }
            let own = parts(identifier);
            if let Some((old, new)) = RETIRED_PARTS.iter().find(|(old, _)| own.iter().any(|part| part == old)) {
                faults.push(format!("{}:{number}: `{identifier}`: not `{old}` but {new}", source.name));
            }
        }
    }
    faults
}

/// Type names that two files, or two places of one, define.
pub fn ambiguous_types(sources: &[Source]) -> Vec<String> {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        for (number, line) in (1..).zip(source.library()) {
            let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub"));
            let is_alias = line.starts_with("type ") || line.starts_with("pub");
            let kind = words.next().unwrap_or_default();
            if !(matches!(kind, "struct" | "enum" | "trait" | "union") || (kind == "type" && is_alias)) {
                continue;
            }
            let name = identifiers(words.next().unwrap_or_default()).next().unwrap_or_default().to_string();
            defined.entry(name).or_default().push(format!("{}:{number}", source.name));
        }
    }
    defined.retain(|name, places| !name.is_empty() && places.len() > 1);
    defined.iter().map(|(name, places)| format!("the type `{name}` is defined {}", places.join(" and "))).collect()
}

fn texts(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let mut inner: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        inner.sort();
        inner.iter().filter(|path| !path.ends_with("datasets/sample")).for_each(|path| texts(path, found));
    } else if path.parent().and_then(Path::file_name).is_some_and(|name| name == ".ci")
        || path.extension().is_some_and(|ending| TEXT_ENDINGS.iter().any(|text| ending == *text))
    {
        found.push(path.into());
    }
}

/// Terms found in a text, with the number of the line that each begins on.
fn terms_in(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let of_line = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
        words.extend(of_line.filter(|word| !word.is_empty()).map(|word| (number, word.to_lowercase())));
    }
    let mut found = Vec::new();
    for (old, new) in RETIRED_TERMS {
        let term: Vec<&str> = old.split(' ').collect();
        for at in words.windows(term.len()) {
            if at.iter().zip(&term).all(|((_, word), part)| word == part) {
                found.push((at[0].0, *old, *new));
            }
        }
    }
    found
}

/// Retired terms anywhere in sources, documents and configurations.
pub fn retired_terms() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    TEXTS.iter().for_each(|name| texts(&root.join(name), &mut paths));
    let mut faults = BTreeSet::new();
    for path in paths.iter().filter(|path| !path.ends_with(SELF)) {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.strip_prefix(root).unwrap().display();
        faults.extend(terms_in(&text).iter().map(|(line, old, new)| format!("{name}:{line}: not `{old}` but {new}")));
    }
    faults.into_iter().collect()
}

#[test]
fn retired_words_are_found_in_identifiers_and_texts() {
    let faults = |text: &str| retired_identifiers(&Source::new("wire.rs", text)).len();
    assert_eq!(faults("let cache_folder = 1;"), 1);
    assert_eq!(faults("struct SieveCutter;"), 1);
    assert_eq!(faults("const FOLDER: u8 = 1;"), 1);
    assert_eq!(faults("let holder = replaced.flat_map(f).inplace();"), 0);
    assert_eq!(faults("// a folder\nlet a = \"folder\";"), 0);
    assert_eq!(terms_in("a\nFolders lie at\nhand").len(), 2);
    assert_eq!(terms_in("by an exclusive\n//   or").len(), 1);
    assert_eq!(terms_in("an exclusive\nor of two").len(), 1);
    assert_eq!(terms_in("the exclusive organ").len(), 0);
}

#[test]
fn a_type_name_with_two_meanings_is_found() {
    let source = |name: &str, text: &str| Source::new(name, text);
    let one = source("a.rs", "pub struct Place(u8);\nimpl X for Y {\n    type Out = u8;\n}");
    let other = source("b.rs", "enum Place {}\nimpl X for Z {\n    type Out = u8;\n}");
    assert_eq!(ambiguous_types(&[one]), [""; 0]);
    let one = source("a.rs", "pub(super) struct Place<'a>(&'a u8);");
    assert_eq!(ambiguous_types(&[one, other]), ["the type `Place` is defined a.rs:1 and b.rs:1"]);
}
