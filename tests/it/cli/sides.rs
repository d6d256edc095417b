//! Options of every verb mean the same before the verb and after it.

use super::fixture::{Home, code, json, stderr};

fn home() -> Home {
    let home = Home::new();
    home.write("src/a", b"a");
    home.write("config/fhrd/full.toml", b"repo = \"r\"\n[backup]\npaths = [\"src\"]\n");
    home.write("config/fhrd/empty.toml", b"repo = \"r\"\n");
    json(&home.run(&["init", "--repo", "r", "--json"]));
    home
}

#[test]
fn a_profile_may_stand_on_either_side_of_the_verb() {
    let home = home();
    for words in [["--profile", "full", "backup"], ["backup", "--profile", "full"]] {
        let output = home.run(&words);
        assert_eq!(code(&output), 0, "{words:?}: {}", stderr(&output));
    }
    for words in [["--profile", "empty", "backup"], ["backup", "--profile", "empty"]] {
        let output = home.run(&words);
        assert!(code(&output) == 1 && stderr(&output).contains("nothing to back up"), "{}", stderr(&output));
    }
    let alone = home.run(&["backup"]);
    assert!(code(&alone) == 2 && stderr(&alone).contains("<PATH>..."), "{}", stderr(&alone));
}

#[test]
fn what_an_option_needs_or_excludes_may_stand_on_the_other_side() {
    let home = home();
    for words in [
        &["--json", "--progress", "snapshots", "--repo", "r"][..],
        &["--json", "snapshots", "--progress", "--repo", "r"],
        &["--progress", "snapshots", "--json", "--repo", "r"],
        &["--json", "report", "--repo", "r"],
    ] {
        let output = home.run(words);
        assert_eq!(code(&output), 0, "{words:?}: {}", stderr(&output));
    }
    for (words, expected) in [
        (&["--progress", "snapshots"][..], "--json"),
        (&["snapshots", "--progress"], "--json"),
        (&["report"], "--out"),
        (&["--password-file", "a", "snapshots", "--key-file", "b"], "cannot be used with"),
        (&["snapshots", "--password-command", "a", "--key-file", "b"], "cannot be used with"),
        (&["-v", "snapshots", "-q"], "cannot be used with"),
        (&["key", "-q", "list", "-v"], "cannot be used with"),
    ] {
        let output = home.run(words);
        assert!(code(&output) == 2 && stderr(&output).contains(expected), "{words:?}: {}", stderr(&output));
    }
    let mut both = home.command(&["snapshots", "--repo", "r"]);
    let both = both.env("FHRD_PASSWORD_FILE", "a").env("FHRD_KEY_FILE", "b").output().unwrap();
    assert!(code(&both) == 2 && stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
}

#[test]
fn a_schedule_is_refused_whose_command_could_not_run() {
    let home = home();
    let schedule = |profile: &str, more: &[&str]| {
        home.run(&[&["schedule", "--daily", "04:30", "--print", "--profile", profile], more].concat())
    };
    for (output, expected) in [
        (schedule("empty", &[]), "nothing to back up"),
        (schedule("full", &["--", "report"]), "this command cannot run"),
    ] {
        assert!(code(&output) == 1 && stderr(&output).contains(expected), "{}", stderr(&output));
    }
    for (profile, more) in [("full", &[][..]), ("empty", &["--", "backup", "src"]), ("empty", &["--", "check"])] {
        let output = schedule(profile, more);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
}

#[test]
fn values_that_are_none_say_what_was_expected() {
    let home = home();
    for (words, expected) in [
        (&["snapshots", "--memory", "x"][..], "expected a size such as 256MiB: `x`"),
        (&["backup", "src", "--limit-upload", "x"], "expected a size such as 512 or 10MiB: `x`"),
        (&["prune", "--repack", "x"], "expected a size such as 512 or 10MiB: `x`"),
        (&["status", "--expect", "soon"], "such as 36h, 30d or 2 weeks, that is not too long: `soon`"),
    ] {
        let output = home.run(words);
        let (text, lines) = (stderr(&output), stderr(&output).lines().filter(|line| line.starts_with("error")).count());
        assert!(code(&output) == 2 && lines == 1 && text.contains(expected), "{words:?}: {text}");
    }
}
