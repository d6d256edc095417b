//! The verb `trace`: what it writes and what it refuses.

use std::path::Path;

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::noise;

#[test]
fn nothing_is_overwritten_and_a_missing_path_gives_exit_code_3() {
    let home = Home::new();
    home.write("tree/file", b"x");
    home.write("taken", b"mine");
    let refused = home.run(&["trace", "tree", "--output", "taken"]);
    assert_eq!((code(&refused), home.read("taken")), (1, b"mine".to_vec()));
    let refused = home.run(&["trace", "tree", "--json"]);
    assert!(code(&refused) == 1 && stderr(&refused).contains("--output"), "{}", stderr(&refused));
    let failed = home.run(&["trace", "none", "--output", "new"]);
    assert!(code(&failed) == 1 && !home.path("new").exists(), "{}", stderr(&failed));
    let partial = home.run(&["trace", "tree", "none", "--output", "tree/new"]);
    assert!(code(&partial) == 3 && stderr(&partial).contains("none"), "{}", stderr(&partial));
    let text = String::from_utf8(home.read("tree/new")).unwrap();
    assert!(text.starts_with("file start 9\ntree/file\n") && text.ends_with(" 1\nfile end\nstream end"), "{text}");
}

#[test]
fn a_trace_is_counted_and_the_same_on_standard_output() {
    let home = Home::new();
    let files = [("tree/a\nb", noise(1, 5 << 20)), ("tree/empty", Vec::new()), ("tree/sub/c", noise(2, 100_000))];
    files.iter().for_each(|(name, bytes)| home.write(name, bytes));
    let report = json(&home.run(&["trace", "tree", "--output", "new.trace", "--json"]));
    let text = String::from_utf8(home.read("new.trace")).unwrap();
    let is_chunk = |line: &&str| line.split_once(' ').is_some_and(|(name, _)| name.len() == 40);
    let chunks = text.lines().filter(is_chunk).count() as u64;
    assert!(chunks > 5, "{chunks}");
    assert_eq!((report["files"].as_u64(), report["chunks"].as_u64()), (Some(3), Some(chunks)));
    assert_eq!(report["bytes"].as_u64(), Some((5 << 20) + 100_000));
    assert!(report["output"].as_str().is_some_and(|path| Path::new(path).ends_with("new.trace")));
    let printed = home.run(&["trace", "tree", "--quiet"]);
    assert_eq!((code(&printed), stdout(&printed) == text), (0, true));
}
