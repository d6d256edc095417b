//! Words that answer: help, hints, and messages where there is nothing to show or to do.

use std::time::Duration;

use super::fixture::{Home, code, json, stderr, stdout};

fn home() -> Home {
    let home = Home::new();
    home.write("src/a", b"a");
    home.write("src/b.o", b"object");
    home
}

#[test]
fn the_program_alone_prints_its_help_in_groups() {
    let home = Home::new();
    let mut alone = home.command(&[]);
    let output = alone.env("FHRD_REPO", "somewhere").output().unwrap();
    let text = stdout(&output);
    assert_eq!(code(&output), 2);
    for words in ["Back up:\n  init", "Keep:\n  forget", "Models and training runs:\n  runs", "Options:\n"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for verb in home.verbs() {
        let help = stdout(&home.run(&[&verb, "--help"]));
        assert!(help.contains("Examples:\n  fhrd "), "{verb}: {help}");
    }
    json(&home.run(&["man", "pages", "--json"]));
    let page = String::from_utf8(home.read("pages/fhrd-backup.1")).unwrap();
    assert!(page.contains("Examples:"), "{page}");
}

#[test]
fn the_version_names_platform_and_features_and_the_manual_only_itself() {
    let home = Home::new();
    let long = stdout(&home.run(&["--version"]));
    let version = env!("CARGO_PKG_VERSION");
    assert!(long.starts_with(&format!("fhrd {version}")), "{long}");
    let architecture = std::env::consts::ARCH;
    assert!(long.contains(&format!("\nplatform: linux {architecture}")) && long.contains("\nCPU features: "), "{long}");
    assert_eq!(stdout(&home.run(&["-V"])), format!("fhrd {version}\n"));
    let limited = home.command(&["--version"]).env("FHRD_CPU_FEATURES", "portable").output().unwrap();
    assert!(stdout(&limited).contains("CPU features: none"), "{}", stdout(&limited));
    assert_eq!(code(&home.run(&["man", "pages", "--quiet"])), 0);
    let page = String::from_utf8(home.read("pages/fhrd.1")).unwrap();
    // A page escapes hyphens.
    let escaped = version.replace('-', "\\-");
    assert!(page.contains(&format!("v{escaped}\n")) && !page.contains("CPU features"), "{page}");
}

#[test]
fn what_other_programs_call_it_gets_a_hint() {
    let home = home();
    for (arguments, hint) in [
        (&["create", "src"][..], "hint: `fhrd backup PATH...` stores a snapshot"),
        (&["extract"], "hint: `fhrd restore latest"),
        (&["list"], "hint: `fhrd snapshots` lists"),
        (&["unlock"], "hint: a repository has no locks"),
        (&["snapshots", "-r", "/backup"], "hint: `--repo LOCATION`"),
    ] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(hint), "{arguments:?}: {}", stderr(&output));
    }
    assert!(!stderr(&home.run(&["snapshotz"])).contains("hint:"));
}

/// What a shell is offered for the last word of a line.
pub fn completed(home: &Home, words: &[&str]) -> String {
    let mut asked = home.command(&[&["--", "fhrd"], words].concat());
    let index = words.len().to_string();
    let asked = asked.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index).env("_CLAP_COMPLETE_COMP_TYPE", "9");
    stdout(&asked.env("_CLAP_COMPLETE_SPACE", "true").env("_CLAP_IFS", "\n").output().unwrap())
}

#[test]
fn completions_know_the_values() {
    let home = home();
    home.write("config/fhrd/nightly.toml", b"");
    let report = home.backup(&["src", "--host", "nas", "--tag", "weekly", "--run", "tune", "--step", "1"]);
    let id = report["snapshot"].as_str().unwrap()[..8].to_string();
    json(&home.run(&["publish", "latest:src", "me/src", "--json"]));
    for (words, expected) in [
        (&["restore", ""][..], id.as_str()),
        (&["unpublish", ""], "me/src"),
        (&["ls", "la"], "latest"),
        (&["snapshots", "--host", ""], "nas"),
        (&["snapshots", "--tag", ""], "weekly"),
        (&["steps", ""], "tune"),
        (&["backup", "--profile", ""], "nightly"),
        (&["restore", "latest", "--overwrite", ""], "if-changed"),
        (&["snapshots", "--group-by", ""], "host,paths"),
        (&["for"], "forget"),
    ] {
        let offered = completed(&home, words);
        assert!(offered.lines().any(|line| line == expected), "{words:?}: {offered}");
    }
    assert!(!completed(&home, &["snapshots", "--repo", "nowhere", "--host", ""]).contains("nas"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&home.run(&["completions", shell]));
        assert!(script.contains("COMPLETE") && script.contains("fhrd"), "{shell}: {script}");
    }
}

#[test]
fn empty_results_say_so() {
    let home = home();
    json(&home.run(&["init", "--repo", "r", "--json"]));
    home.backup(&["src", "--repo", "r"]);
    for (arguments, words) in [
        (&["snapshots", "--host", "nobody"][..], "there are no such snapshots"),
        (&["find", "nothing-like-it"], "nothing in 1 snapshots matches"),
        (&["runs"], "no snapshot belongs to a training run"),
        (&["models"], "there are no models"),
    ] {
        let output = home.run(&[arguments, &["--repo", "r"]].concat());
        assert_eq!((code(&output), stdout(&output)), (0, String::new()), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
        let quiet = home.run(&[arguments, &["--repo", "r", "--quiet"]].concat());
        assert_eq!(stderr(&quiet), "", "{arguments:?}");
        assert_eq!(json(&home.run(&[arguments, &["--repo", "r", "--json"]].concat())), serde_json::json!([]));
    }
}

#[test]
fn forget_without_a_rule_and_best_without_the_metric_are_errors_that_help() {
    let home = home();
    home.backup(&["src", "--run", "tune", "--step", "1", "--metric", "val_loss=0.5", "--metric", "acc=1"]);
    let output = home.run(&["forget"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("neither rules nor snapshots are given"), "{}", stderr(&output));
    let output = home.run(&["best", "tune", "--metric", "val_los"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("it has only acc, val_loss"), "{}", stderr(&output));
}

#[test]
fn snapshots_before_the_latest_have_names() {
    let home = home();
    for content in ["one", "two", "three"] {
        home.write("src/a", content.as_bytes());
        home.backup(&["src"]);
        std::thread::sleep(Duration::from_millis(5));
    }
    let content = |name: &str| stdout(&home.run(&["cat", &format!("{name}:src/a")]));
    assert_eq!(["latest", "latest~0", "latest~1", "latest~2"].map(content), ["three", "three", "two", "one"]);
    for (name, words) in [("latest~3", "there are 3 such snapshots"), ("latest~x", "expected a number")] {
        let output = home.run(&["ls", name]);
        assert!(code(&output) == 1 && stderr(&output).contains(words), "{name}: {}", stderr(&output));
    }
    let changes = json(&home.run(&["diff", "latest~2", "latest~1", "--json"]));
    assert_eq!(changes["changes"].as_array().map(Vec::len), Some(1));
    json(&home.run(&["restore", "latest~1:src", "--target", "out", "--json"]));
    assert_eq!(home.read("out/a"), b"two");
    json(&home.run(&["tag", "latest~1", "--add", "middle", "--json"]));
    json(&home.run(&["stats", "latest~1", "--json"]));
    json(&home.run(&["check", "latest~1", "--json"]));
}

#[test]
fn restore_says_where_it_deletes_nothing() {
    let home = home();
    home.write("src/deep/c", b"c");
    home.backup(&["src", "--exclude", "*.o"]);
    home.write("src/extra", b"extra");
    home.write("src/deep/more", b"more");
    let arguments = ["restore", "latest", "--target", ".", "--path", "src", "--overwrite", "always", "--delete"];
    let output = home.run(&arguments);
    let words = "2 entries that the snapshot does not have stay, in 1 directories that were stored in part";
    assert!(code(&output) == 0 && stderr(&output).contains(words), "{}", stderr(&output));
    assert_eq!(home.names("src"), ["a", "b.o", "deep", "extra"]);
    assert_eq!(home.names("src/deep"), ["c"]);
    let left_out = home.run(&[&arguments[..], &["--exclude", "extra", "--exclude", "b.o"]].concat());
    assert!(!stderr(&left_out).contains("stored in part"), "{}", stderr(&left_out));
}

#[test]
fn patterns_that_match_nothing_are_warned_of() {
    let home = home();
    home.write("patterns", b"fine\na//b\n");
    let output = home.run(&["backup", "src", "--exclude", "./a", "--exclude", "~/x", "--exclude-file", "patterns"]);
    let text = stderr(&output);
    assert_eq!(code(&output), 0, "{text}");
    for words in ["the pattern `./a` matches nothing", "`~/x` matches nothing", "patterns, line 2: the pattern `a//b`"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("`fine`"), "{text}");
}

#[test]
fn a_password_may_be_typed_three_times() {
    let home = home();
    home.write("password", b"right\n");
    json(&home.run(&["init", "--repo", "r", "--encrypt", "--password-file", "password", "--json"]));
    let typed = |passwords: &str| {
        // `script` runs the program on a terminal of its own.
        let line = format!("{} snapshots --repo r", env!("CARGO_BIN_EXE_fhrd"));
        let mut program = std::process::Command::new("script");
        let environment = home.command(&[]);
        let variables = environment.get_envs().filter_map(|(name, value)| Some((name, value?)));
        program.args(["-qec", &line, "/dev/null"]).current_dir(home.path("")).envs(variables);
        program.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = program.spawn().ok()?;
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, passwords.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Some((code(&output), stdout(&output)))
    };
    let Some((code, text)) = typed("wrong\nagain\nright\n") else {
        eprintln!("skipped: `script` is not installed");
        return;
    };
    assert!(code == 0 && text.matches("try again").count() == 2, "{code}: {text}");
    let (code, text) = typed("one\ntwo\nthree\nright\n").unwrap();
    assert!(code == 12 && text.matches("password of").count() == 3, "{code}: {text}");
}
