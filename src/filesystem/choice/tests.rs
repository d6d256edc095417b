//! Patterns, ignore files, tags and limits, asked as a walk asks them.

use std::fs;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::CWD;

use super::*;
use crate::error::Error;

fn patterns(lines: &[&str]) -> Patterns {
    let mut builder = PatternsBuilder::default();
    lines.iter().for_each(|line| builder.add(line, false, "test").unwrap());
    builder.build().unwrap()
}

/// Whether the patterns exclude a path; one that ends in a slash is a directory.
fn excludes(lines: &[&str], path: &str) -> bool {
    patterns(lines).names(Path::new(path.trim_end_matches('/')), path.ends_with('/')) == Some(true)
}

#[test]
fn a_pattern_matches_at_any_depth_unless_it_is_absolute() {
    for path in ["/x.o", "/home/u/a/x.o", "/x.o/"] {
        assert!(excludes(&["*.o"], path), "{path}");
    }
    assert!(!excludes(&["*.o"], "/x.oo") && !excludes(&["*.o"], "/x.o/inside.c"));
    assert!(excludes(&["a/b"], "/home/a/b") && excludes(&["a/b"], "/a/b") && !excludes(&["a/b"], "/a/x/b"));
    assert!(excludes(&["/a/b"], "/a/b") && !excludes(&["/a/b"], "/home/a/b"));
    assert!(excludes(&["a/**/b"], "/home/a/x/y/b") && excludes(&["/home/*/tmp"], "/home/u/tmp"));
    assert!(!excludes(&["/home/*/tmp"], "/home/u/v/tmp"), "a star stays within a name");
    assert!(excludes(&["cache/"], "/a/cache/") && !excludes(&["cache/"], "/a/cache"));
    assert!(excludes(&["#x#"], "/a/#x#"), "no comments on the command line");
    assert!(excludes(&["x{1,2}"], "/x2") && excludes(&["x[0-9]"], "/x7") && excludes(&[r"\*"], "/*"));
    assert!(!excludes(&[r"\*"], "/a"));
    assert!(excludes(&["a/**"], "/a/b") && !excludes(&["a/**"], "/a/"), "what is inside");
}

#[test]
fn the_last_matching_pattern_decides() {
    assert!(!excludes(&["*.log", "!keep.log"], "/a/keep.log") && excludes(&["*.log", "!keep.log"], "/a/x.log"));
    assert!(excludes(&["!keep.log", "*.log"], "/a/keep.log"));
    assert_eq!(patterns(&["!a"]).names(Path::new("/a"), false), Some(false));
    assert_eq!(patterns(&["b"]).names(Path::new("/a"), false), None);
}

#[test]
fn the_case_of_letters_counts_unless_ignored() {
    let mut builder = PatternsBuilder::default();
    builder.add("*.jpg", true, "test").unwrap();
    builder.add("*.png", false, "test").unwrap();
    let patterns = builder.build().unwrap();
    let is_excluded = |path: &str| patterns.names(Path::new(path), false) == Some(true);
    assert!(is_excluded("/a.JPG") && is_excluded("/a.jpg") && is_excluded("/a.png") && !is_excluded("/a.PNG"));
}

#[test]
fn names_that_are_not_utf8_are_matched_by_wildcards() {
    let path = Path::new(std::ffi::OsStr::from_bytes(b"/a/\xff\xfe.tmp"));
    for (pattern, expected) in [("*.tmp", true), ("a/??.tmp", true), ("*.log", false)] {
        assert_eq!(patterns(&[pattern]).names(path, false) == Some(true), expected, "{pattern}");
    }
}

#[test]
fn a_bad_pattern_is_an_error_that_names_its_place() {
    let error = |pattern: &str| PatternsBuilder::default().add(pattern, false, "--exclude").unwrap_err().to_string();
    for pattern in ["", "!", "  ", "a{b", "[b-a]", &"?".repeat(1025), &"{".repeat(600)] {
        assert!(error(pattern).contains("--exclude"), "{pattern}");
    }
    let mut builder = PatternsBuilder::default();
    let error = builder.add_lines("# fine\n\na\nb{\n", false, "list").unwrap_err().to_string();
    assert!(error.contains("list, line 4"), "{error}");
}

#[test]
fn megabytes_of_patterns_need_bounded_time() {
    let started = Instant::now();
    let mut builder = PatternsBuilder::default();
    let names: String = (0..40_000).map(|number| format!("some/directory/name-{number:06}\n")).collect();
    assert!(names.len() > 1 << 20);
    builder.add_lines(&names, false, "names").unwrap();
    let patterns = builder.build().unwrap();
    assert_eq!(patterns.names(Path::new("/x/some/directory/name-039999"), false), Some(true));
    assert_eq!(patterns.names(Path::new("/x/some/directory/name-04"), false), None);
    // Wildcards need more memory, and the matcher refuses what is beyond its limit.
    let mut builder = PatternsBuilder::default();
    let wild: String = (0..100_000).map(|number| format!("*a*{number}?*b*\n")).collect();
    builder.add_lines(&wild, false, "wild").unwrap();
    assert!(matches!(builder.build(), Err(Error::Config { .. })));
    let mut builder = PatternsBuilder::default();
    let error = (0..5).find_map(|_| builder.add_lines(&names, false, "names").err()).unwrap();
    assert!(error.to_string().contains("bytes of patterns"), "{error}");
    // A pattern that a backtracking matcher would try for ever.
    let slow = patterns_of("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b");
    assert_eq!(slow.names(Path::new(&format!("/{}", "a".repeat(4000))), false), None);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

fn patterns_of(pattern: &str) -> Patterns {
    patterns(&[pattern])
}

/// What a choice leaves out of the files below a directory, relative to it.
fn left_out(choice: &EntryChoice, root: &Path) -> Vec<String> {
    let mut left_out = Vec::new();
    let mut waiting = vec![(root.to_path_buf(), Scope::default())];
    while let Some((directory, scope)) = waiting.pop() {
        let open = File::open(&directory).unwrap();
        let mut warnings = Vec::new();
        let scope = choice.enter(&scope, open.as_fd(), &directory, 1, &mut warnings).unwrap();
        left_out.extend(warnings.iter().map(|warning| format!("!{warning}")));
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let facts = EntryFacts { is_directory: path.is_dir(), size: path.metadata().unwrap().len() };
            if choice.exclusion(&scope, &path, facts).is_some() {
                left_out.push(path.strip_prefix(root).unwrap().display().to_string());
            } else if facts.is_directory {
                waiting.push((path, scope.clone()));
            }
        }
    }
    left_out.sort();
    left_out
}

fn planted(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

#[test]
fn ignore_files_hold_for_their_directory_and_the_deepest_decides() {
    let directory = planted(&[
        (".ignore", "*.o\n/only-here\ndir/\n# comment\n"),
        ("a.o", ""),
        ("only-here", ""),
        ("in/.ignore", "!keep.o\n"),
        ("in/keep.o", ""),
        ("in/b.o", ""),
        ("in/only-here", ""),
        ("in/dir/x", ""),
        ("dir", ""),
    ]);
    let choice = EntryChoice { ignore_files: vec![".ignore".into()], ..EntryChoice::everything().unwrap() };
    assert_eq!(left_out(&choice, directory.path()), ["a.o", "in/b.o", "in/dir", "only-here"]);
    let saved = EntryChoice { patterns: patterns(&["!a.o"]), ..choice };
    assert_eq!(left_out(&saved, directory.path()), ["in/b.o", "in/dir", "only-here"], "the command line decides first");
}

#[test]
fn an_ignore_file_that_cannot_be_used_is_reported_and_excludes_nothing() {
    let directory = planted(&[
        ("large/.ignore", &"x\n".repeat(40_000)),
        ("large/x", ""),
        ("bad/.ignore", &format!("y\n{}\n", "{".repeat(20_000) + &"}".repeat(20_000))),
        ("bad/y", ""),
        ("dir/.ignore/z", ""),
        ("link/w", ""),
    ]);
    std::os::unix::fs::symlink("../large/.ignore", directory.path().join("link/.ignore")).unwrap();
    rustix::fs::mkfifoat(CWD, directory.path().join("fifo"), 0o600.into()).unwrap();
    let choice =
        EntryChoice { ignore_files: vec![".ignore".into(), "fifo".into()], ..EntryChoice::everything().unwrap() };
    let (warnings, rest): (Vec<String>, Vec<String>) =
        left_out(&choice, directory.path()).into_iter().partition(|line| line.starts_with('!'));
    assert_eq!(rest, ["bad/y"]);
    assert!(warnings.len() == 2 && warnings.iter().all(|warning| warning.contains("/.ignore")), "{warnings:?}");
}

#[test]
fn the_bytes_of_ignore_files_above_one_another_are_bounded() {
    let path = |depth: usize| "d/".repeat(depth) + ".ignore";
    let text = "x\n".repeat(30_000);
    let files: Vec<(String, &str)> = (0..6).map(|depth| (path(depth), text.as_str())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let directory = planted(&files);
    let choice = EntryChoice { ignore_files: vec![".ignore".into()], ..EntryChoice::everything().unwrap() };
    assert_eq!(left_out(&choice, directory.path()).len(), 2);
}

#[test]
fn a_tag_excludes_all_but_itself_if_its_header_is_right() {
    let signature = "Signature: 8a477f597d28d172789f06886806bc55";
    let directory = planted(&[
        ("cache/CACHEDIR.TAG", &format!("{signature}\n# more")),
        ("cache/x/y", ""),
        ("cache/z", ""),
        ("false/CACHEDIR.TAG", &signature[1..]),
        ("false/z", ""),
        ("no/.nobackup", ""),
        ("no/z", ""),
    ]);
    let caches = EntryChoice { tags: vec![TagFile::of_caches()], ..EntryChoice::everything().unwrap() };
    assert_eq!(left_out(&caches, directory.path()), ["cache/x", "cache/z"]);
    let tag = |text: &str| vec![TagFile::parse(text.as_ref()).unwrap()];
    let named = EntryChoice { tags: tag(".nobackup"), ..EntryChoice::everything().unwrap() };
    assert_eq!(left_out(&named, directory.path()), ["no/z"]);
    let headed = EntryChoice { tags: tag("CACHEDIR.TAG:ignature"), ..EntryChoice::everything().unwrap() };
    assert_eq!(left_out(&headed, directory.path()), ["false/z"]);
    for wrong in ["", ":x", "a/b", ".", ".."] {
        assert!(TagFile::parse(wrong.as_ref()).is_err(), "{wrong}");
    }
}

#[test]
fn files_beyond_the_limit_are_left_out_and_directories_are_not() {
    let choice = EntryChoice { file_bytes_max: Some(10), ..EntryChoice::everything().unwrap() };
    let of =
        |is_directory, size| choice.exclusion(&Scope::default(), Path::new("x"), EntryFacts { is_directory, size });
    assert_eq!((of(false, 10), of(false, 11), of(true, 0)), (None, Some(Exclusion::Size), None));
}

#[test]
fn a_given_path_chooses_the_file_system() {
    let choice = EntryChoice { one_file_system: true, ..EntryChoice::everything().unwrap() };
    let open = File::open("/").unwrap();
    let enter = |scope: &Scope, device| choice.enter(scope, open.as_fd(), Path::new("/"), device, &mut Vec::new());
    let scope = enter(&Scope::default(), 7).unwrap();
    assert!(enter(&scope, 7).is_ok());
    assert_eq!(enter(&scope, 8).unwrap_err(), Exclusion::FileSystem);
}
