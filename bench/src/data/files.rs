//! Expands patterns and directories to files, sorted by name. Links are not followed.

use std::path::{Path, PathBuf};

use fhrd::error::{Error, Result};

/// Paths below `corpus` that match `pattern`, sorted. `*`, `?` and `[…]` match within names, `**` matches directories.
/// A pattern without these is a path that must exist.
///
/// # Errors
/// [`Error::Usage`] for an invalid pattern or one without a match; [`Error::Io`].
pub fn expand(corpus: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    if !pattern.contains(['*', '?', '[']) {
        let path = corpus.join(pattern);
        std::fs::symlink_metadata(&path).map_err(|error| Error::io("find", &path, error))?;
        return Ok(vec![path]);
    }
    let wrong = |what: String| Error::Usage(format!("`{pattern}` below {}: {what}", corpus.display()));
    let corpus_text = corpus.to_str().ok_or_else(|| wrong("the name of the directory is not UTF-8".into()))?;
    let whole = if pattern.starts_with('/') {
        pattern.to_string()
    } else {
        format!("{}/{pattern}", glob::Pattern::escape(corpus_text))
    };
    let found = glob::glob(&whole).map_err(|error| wrong(error.to_string()))?;
    let mut paths = Vec::new();
    for path in found {
        paths.push(path.map_err(|error| wrong(error.to_string()))?);
    }
    paths.retain(|path| !path.is_symlink());
    paths.sort();
    if paths.is_empty() { Err(wrong("no match".into())) } else { Ok(paths) }
}

/// Why `pattern` stands for no file, if it does not: no path matches, or only empty directories.
pub fn lack(corpus: &Path, pattern: &str) -> Option<Error> {
    let has_files = |path: &PathBuf| files_below(path).is_ok_and(|files| !files.is_empty());
    match expand(corpus, pattern) {
        Ok(paths) if paths.iter().any(has_files) => None,
        Ok(_) => Some(Error::Usage(format!("`{pattern}` below {} has no files", corpus.display()))),
        Err(error) => Some(error),
    }
}

/// The regular files at and below `path`, sorted by name.
///
/// # Errors
/// [`Error::Io`].
pub fn files_below(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut left = vec![path.to_path_buf()];
    while let Some(path) = left.pop() {
        let kind = std::fs::symlink_metadata(&path).map_err(|error| Error::io("look at", &path, error))?;
        if kind.is_file() {
            files.push(path);
        } else if kind.is_dir() {
            let fail = |error| Error::io("list", &path, error);
            for entry in std::fs::read_dir(&path).map_err(fail)? {
                left.push(entry.map_err(fail)?.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_lacks_files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("disk")).unwrap();
        let message = |pattern: &str| lack(directory.path(), pattern).map(|error| error.to_string());
        assert!(message("disk").is_some_and(|text| text.contains("`disk`") && text.contains("has no files")));
        assert!(message("none").is_some_and(|text| text.contains("none")) && message("d*").is_some());
        std::fs::write(directory.path().join("disk/image"), "x").unwrap();
        assert_eq!((message("disk"), message("d*")), (None, None));
    }

    #[test]
    fn patterns_and_directories_give_files_sorted_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("odd [name]*");
        for name in ["b/2.img", "b/1.img", "a/3.img", "a/x"] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        std::os::unix::fs::symlink("1.img", root.join("b/0.img")).unwrap();
        let names = |paths: Vec<PathBuf>| -> Vec<String> {
            paths.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect()
        };
        assert_eq!(names(expand(&root, "*/*.img").unwrap()), ["a/3.img", "b/1.img", "b/2.img"]);
        assert_eq!(names(expand(&root, "b").unwrap()), ["b"]);
        assert_eq!(names(files_below(&root).unwrap()), ["a/3.img", "a/x", "b/1.img", "b/2.img"]);
        for missing in ["c", "*.c", "a/[x"] {
            let error = expand(&root, missing).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}
