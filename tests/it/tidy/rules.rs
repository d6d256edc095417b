//! Lengths, module docs, exceptions from lints, and who prints.

use super::source::Source;

const INTERFACE_LINES_MAX: usize = 120;
/// Modules that print.
const PRINTS: &[&str] = &["bench", "cli", "main"];
const FILE_LINES_MAX: usize = 500;
/// Lines of a file in Rust that is not below `src`, and of one in Python: there, a class is in one file.
const OTHER_LINES_MAX: &[(&str, usize)] = &[("rs", FILE_LINES_MAX), ("py", 800)];
/// Beginnings of sentences that say nothing without the line before them.
const WITHOUT_SUBJECT: [&str; 4] = ["Those of ", "Those that ", "As of ", "As ["];
/// A program that people keep beside a repository, so it must be one file, and its lines.
const ONE_FILE: (&str, usize) = ("tests/independent/fhrd_restore.py", 2950);
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARACTERS_MAX: usize = 120;
const PRINTING: &[&str] = &["println!", "eprintln!", "print!(", "eprint!("];
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Functions longer than allowed: from the line with `fn` to the one that closes its body.
pub fn long_functions(source: &Source) -> Vec<String> {
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

/// Files longer than allowed, of those with these names and numbers of lines.
pub fn long_files(files: &[(String, usize)]) -> Vec<String> {
    let limit = |name: &str| match name == ONE_FILE.0 {
        true => Some(&ONE_FILE),
        false => OTHER_LINES_MAX.iter().find(|(end, _)| name.rsplit('.').next() == Some(end)),
    };
    let mut faults = Vec::new();
    for (name, lines) in files {
        if let Some((_, limit)) = limit(name).filter(|(_, limit)| lines > limit) {
            faults.push(format!("{name}: {lines} lines, more than {limit}"));
        }
    }
    faults
}

pub fn other_faults(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: &str| faults.push(format!("{}:{line}: {what}", source.name));
    if !source.text.starts_with("//! ") {
        fault(1, "the first line must be a module doc");
    }
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        fault(lines, &format!("more than {FILE_LINES_MAX} lines"));
    }
    if source.name.ends_with("/mod.rs") && lines > INTERFACE_LINES_MAX {
        fault(lines, &format!("`mod.rs` is the interface: more than {INTERFACE_LINES_MAX} lines"));
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
    let mut is_first = true;
    for (number, line) in (1..).zip(source.text.lines()) {
        let text = line.trim_start().strip_prefix("/// ").filter(|text| !text.starts_with('#'));
        if is_first && text.is_some_and(|text| WITHOUT_SUBJECT.iter().any(|start| text.starts_with(start))) {
            fault(number, "the sentence has no subject");
        }
        is_first = text.is_none();
    }
    if !PRINTS.contains(&source.module()) && !source.is_test() {
        for (number, line) in (1..).zip(source.library()) {
            if PRINTING.iter().any(|word| line.contains(word)) {
                fault(number, "only the command line and the measurements print");
            }
        }
    }
    faults
}

#[test]
fn long_functions_and_the_other_faults_are_found() {
    let function = |lines: usize| format!("//! x\nfn f() {{\n{}}}\n", "    g('{', \"}\");\n".repeat(lines - 2));
    assert_eq!(long_functions(&Source::new("wire.rs", &function(FUNCTION_LINES_MAX))), [""; 0]);
    assert_eq!(long_functions(&Source::new("wire.rs", &function(FUNCTION_LINES_MAX + 1))).len(), 1);
    let lengths = |name: &str, lines| long_files(&[(name.into(), lines)]).len();
    assert_eq!((lengths("tests/it/x.rs", 500), lengths("tests/it/x.rs", 501)), (0, 1));
    assert_eq!((lengths("python/fhrd/x.py", 800), lengths("python/fhrd/x.py", 801)), (0, 1));
    assert_eq!((lengths(ONE_FILE.0, ONE_FILE.1), lengths(ONE_FILE.0, ONE_FILE.1 + 1)), (0, 1));
    let faults = |name: &str, text: &str| other_faults(&Source::new(name, text)).len();
    assert_eq!(faults("wire.rs", "use x;"), 1);
    assert_eq!(faults("wire.rs", &"//! x\n".repeat(FILE_LINES_MAX + 1)), 1);
    assert_eq!(faults("store/mod.rs", &"//! x\n".repeat(INTERFACE_LINES_MAX)), 0);
    assert_eq!(faults("store/mod.rs", &"//! x\n".repeat(INTERFACE_LINES_MAX + 1)), 1);
    assert_eq!(faults("wire.rs", "//! x\n#[allow(dead_code)]\nfn f() {}"), 1);
    assert_eq!(faults("wire.rs", "//! x\nfn f() { println!() }"), 1);
    assert_eq!(faults("wire.rs", "//! x\n#![allow(dead_code)]\nfn f() {}"), 1);
    assert_eq!(faults("wire.rs", "//! x\nfn f() { todo!() }"), 1);
    assert_eq!(faults("wire.rs", &format!("//! x\n// {}", "y".repeat(LINE_CHARACTERS_MAX))), 1);
    assert_eq!(faults("wire.rs", &format!("//! x\n// https://{}", "y".repeat(LINE_CHARACTERS_MAX))), 0);
    assert_eq!(faults("wire.rs", "//! x\n/// # Errors\n/// Those of the store.\nfn f() {}"), 1);
    assert_eq!(faults("wire.rs", "//! x\n/// Names, and\n/// Those of the store.\nfn f() {}"), 0);
    assert_eq!(faults("cli/ls.rs", "//! x\nfn f() { println!() }"), 0);
    assert_eq!(faults("wire.rs", "//! x\n/// println!\nfn f() { g(r#\"println!\"#) }"), 0);
}
