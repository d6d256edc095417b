//! Reads the sources of the crate and blanks what is not code.

use std::path::{Path, PathBuf};

/// A source file.
pub struct Source {
    /// Path below `src`; of a file below `bench/src`, behind `bench`.
    pub name: String,
    pub text: String,
    /// Lines with comments and literals replaced by spaces.
    pub code: Vec<String>,
}

impl Source {
    pub fn new(name: &str, text: &str) -> Self {
        let code = blank(text).lines().map(str::to_string).collect();
        Source { name: name.into(), text: text.into(), code }
    }

    /// Name of its top-level module.
    pub fn module(&self) -> &str {
        let first = self.name.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Lines of code before the module of tests.
    pub fn library(&self) -> &[String] {
        let tests = self.code.windows(2).position(|pair| {
            pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod ") && pair[1].ends_with('{')
        });
        &self.code[..tests.unwrap_or(self.code.len())]
    }

    pub fn is_test(&self) -> bool {
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

/// Directories of sources, and what comes before the names of their files.
const ROOTS: [(&str, &str); 2] = [("src", ""), ("bench/src", "bench")];

/// Every file of [`ROOTS`].
pub fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for (directory, prefix) in ROOTS {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        let before = sources.len();
        collect(&root, &root, Path::new(prefix), &mut sources);
        assert!(sources.len() > before + 50, "only {} files found in {directory}", sources.len() - before);
    }
    sources
}

fn collect(directory: &Path, root: &Path, prefix: &Path, sources: &mut Vec<Source>) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, root, prefix, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = prefix.join(path.strip_prefix(root).unwrap()).to_string_lossy().into_owned();
            sources.push(Source::new(&name, &std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Directories of other sources.
const OTHERS: &[&str] = &["tests", "bench/tests", "benches", "fuzz", "python"];

/// Every file in Rust or Python of [`OTHERS`], from the root of the project, with its number of lines.
pub fn other_files() -> Vec<(String, usize)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    OTHERS.iter().for_each(|directory| count_lines(&root.join(directory), root, &mut files));
    assert!(files.len() > 100 && files.iter().any(|(name, _)| name.ends_with(".py")), "{} files", files.len());
    files
}

fn count_lines(directory: &Path, root: &Path, files: &mut Vec<(String, usize)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Build outputs and environments are not sources.
        if name.starts_with('.') || name == "target" || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            if !path.join("pyvenv.cfg").exists() {
                count_lines(&path, root, files);
            }
        } else if name.ends_with(".rs") || name.ends_with(".py") {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            files.push((path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), lines));
        }
    }
}
