//! The verb `trace`: what it writes and what it refuses.

use super::fixture::{Home, code, stderr};

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
