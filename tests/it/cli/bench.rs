//! `fhrd bench` becomes the program `fhrd-bench`. The tests of that program are its own.

use std::process::Command;

use serde_json::Value;

use super::PROGRAM;
use super::fixture::{Home, code, stderr, stdout};

/// A home with the program as `bin/fhrd` and, in these directories, a script `fhrd-bench` that prints the name of its
/// directory, FHRD_CONFIG and its arguments, and exits with 7.
fn installed(directories: &[&str]) -> Home {
    let home = Home::new();
    let script =
        "#!/bin/sh\nown=${0%/*}\nfor word in \"${own##*/}\" \"$FHRD_CONFIG\" \"$@\"; do echo \"$word\"; done\nexit 7\n";
    home.write("script", script.as_bytes());
    // Another process writes what is run, so that no child of another test holds it open.
    let mut line = "set -e; mkdir bin path; cp \"$0\" bin/fhrd".to_string();
    directories.iter().for_each(|name| line += &format!("; cp script {name}/fhrd-bench; chmod +x {name}/fhrd-bench"));
    assert!(Command::new("sh").args(["-c", &line, PROGRAM]).current_dir(home.path("")).status().unwrap().success());
    home
}

/// `bin/fhrd` with these words, where PATH is the directory `path`.
fn command(home: &Home, words: &[&str]) -> Command {
    let mut command = Command::new(home.path("bin/fhrd"));
    command.args(words).current_dir(home.path("")).env("HOME", home.path("")).env("PATH", home.path("path"));
    command.env_remove("FHRD_REPO").env_remove("FHRD_PROFILE").env("FHRD_CONFIG", "c.toml");
    command
}

#[test]
fn the_program_beside_gets_all_arguments_and_the_environment() {
    let home = installed(&["bin", "path"]);
    for words in [
        &["bench", "plan.toml"][..],
        &["--json", "--repo", "bench", "bench", "--out", "d", "--no-such-option", "plan.toml", "-q", "-v"],
        &["bench", "--help"],
        &["bench", "-h"],
        &["bench"],
    ] {
        let output = command(&home, words).output().unwrap();
        assert_eq!(code(&output), 7, "{words:?}: {}", stderr(&output));
        assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), [&["bin", "c.toml"], words].concat());
        assert_eq!(stderr(&output), "", "{words:?}");
    }
    let output = command(&home, &["--", "fhrd", "bench", "--"]).env("COMPLETE", "bash").output().unwrap();
    assert_eq!(stdout(&output), "bin\nc.toml\n--\nfhrd\nbench\n--\n", "completions are the program's");
}

#[test]
fn without_a_program_beside_the_one_on_path_runs() {
    let home = installed(&["path"]);
    let output = command(&home, &["bench", "plan.toml"]).output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (7, "path\nc.toml\nbench\nplan.toml\n".into()), "{}", stderr(&output));
}

#[test]
fn without_the_program_the_error_says_how_to_get_it() {
    let home = installed(&[]);
    let output = command(&home, &["bench", "plan.toml"]).output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (1, String::new()));
    let text = stderr(&output);
    for words in ["fhrd-bench", "`cargo install --path bench`", "`cargo build --workspace`"] {
        assert!(text.starts_with("error: ") && text.contains(words), "{words}: {text}");
    }
    for words in [["--json", "bench", "plan.toml"], ["bench", "plan.toml", "--json"]] {
        let output = command(&home, &words).output().unwrap();
        assert_eq!(code(&output), 1);
        let error: Value = serde_json::from_str(&stderr(&output)).unwrap();
        assert_eq!(error["exit_code"], 1, "{error}");
    }
    // The help names the verb all the same.
    let help = stdout(&command(&home, &["--help"]).output().unwrap());
    assert!(help.contains("\n  bench "), "{help}");
}
