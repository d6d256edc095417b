//! Profiles, hooks, completions and manual pages.

use super::fixture::{Home, code, json, stderr, stdout};

fn home(profile: &str) -> Home {
    let home = Home::new();
    home.write("config/fhrd/nightly.toml", profile.as_bytes());
    home.write("docs/a", b"letter");
    home.write("docs/b.tmp", b"scratch");
    home.write("other/c", b"other");
    home
}

const PROFILE: &str = "
repo = 'store'
[backup]
paths = ['docs']
exclude = ['*.tmp']
tag = ['nightly']
host = 'box'
[hooks]
before = ['echo before >> log', 'echo loud']
after = ['echo after $FHRD_EXIT_CODE >> log; echo $FHRD_SNAPSHOT > id']
after_failure = ['echo failed $FHRD_EXIT_CODE >> log']
";

#[test]
fn a_profile_gives_repository_paths_choice_and_hooks() {
    let home = home(PROFILE);
    assert_eq!(code(&home.run(&["init", "--profile", "nightly"])), 0);
    assert!(home.path("store/config").exists());
    let output = home.run(&["backup", "--profile", "nightly", "--json", "--tag", "more"]);
    let report = json(&output);
    assert_eq!((report["files"].as_u64(), report["excluded"].as_u64()), (Some(1), Some(1)));
    assert!(stderr(&output).contains("loud"), "what hooks print is not part of the document");
    assert_eq!(home.read("log"), b"before\nafter 0\n");
    assert_eq!(String::from_utf8(home.read("id")).unwrap().trim(), report["snapshot"].as_str().unwrap());
    let mut listing = home.command(&["snapshots", "--json"]);
    let listed = json(&listing.env("FHRD_PROFILE", "nightly").output().unwrap());
    assert_eq!(listed[0]["host"], "box");
    assert_eq!(listed[0]["tags"].as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["paths"][0].as_str().unwrap(), home.path("docs").to_str().unwrap());
    // The command line wins over the variable, and the variable over the profile.
    let mut other = home.command(&["init", "--profile", "nightly"]);
    assert_eq!(code(&other.env("FHRD_REPO", "variable").output().unwrap()), 0);
    let mut third = home.command(&["init", "--profile", "nightly", "--repo", "line"]);
    assert_eq!(code(&third.env("FHRD_REPO", "variable").output().unwrap()), 0);
    assert!(home.path("variable/config").exists() && home.path("line/config").exists());
    let replaced = home.backup(&["--profile", "nightly", "other"]);
    assert_eq!(replaced["directories"].as_u64(), Some(1), "paths of the command line replace those of the profile");
}

#[test]
fn a_hook_that_fails_is_a_failure() {
    let before = home(&PROFILE.replace("'echo loud'", "'exit 5', 'echo never >> log'"));
    assert_eq!(code(&before.run(&["init", "--profile", "nightly"])), 0);
    let output = before.run(&["backup", "--profile", "nightly"]);
    assert!(code(&output) == 1 && stderr(&output).contains("exit 5"), "{}", stderr(&output));
    assert_eq!(before.read("log"), b"before\nfailed 1\n");
    assert_eq!(json(&before.run(&["snapshots", "--profile", "nightly", "--json"])).as_array().unwrap().len(), 0);

    let after = home(&PROFILE.replace("echo $FHRD_SNAPSHOT > id", "exit 6"));
    assert_eq!(code(&after.run(&["init", "--profile", "nightly"])), 0);
    assert_eq!(code(&after.run(&["backup", "--profile", "nightly"])), 1);
    assert_eq!(after.read("log"), b"before\nafter 0\nfailed 1\n");
    assert_eq!(json(&after.run(&["snapshots", "--profile", "nightly", "--json"])).as_array().unwrap().len(), 1);

    std::fs::remove_dir_all(after.path("store")).unwrap();
    assert_eq!(code(&after.run(&["backup", "--profile", "nightly"])), 10);
    assert!(after.read("log").ends_with(b"before\nfailed 10\n"));
    assert_eq!(code(&after.run(&["backup", "--profile", "nightly", "--dry-run"])), 10);
    assert!(after.read("log").ends_with(b"before\nfailed 10\n"), "a dry run has no hooks");
}

#[test]
fn a_profile_that_is_missing_or_wrong_is_named() {
    let home = home("repos = 'x'\n");
    for (name, part) in [("nightly", "repos"), ("none", "none.toml"), ("./none", "./none")] {
        let output = home.run(&["snapshots", "--profile", name]);
        assert!(code(&output) == 1 && stderr(&output).contains(part), "{}", stderr(&output));
    }
    home.write("empty.toml", b"");
    let output = home.run(&["backup", "--profile", "./empty.toml"]);
    assert!(code(&output) == 1 && stderr(&output).contains("paths"), "{}", stderr(&output));
}

#[test]
fn completions_and_manual_pages_name_every_verb() {
    let home = Home::new();
    let verbs = home.verbs();
    assert!(verbs.len() > 10 && verbs.contains(&"backup".to_string()), "{verbs:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&home.run(&["completions", shell]));
        assert!(verbs.iter().all(|verb| script.contains(verb)) && script.contains("exclude-caches"), "{shell}");
    }
    assert_eq!(code(&home.run(&["completions", "tcsh"])), 2);
    let written = json(&home.run(&["man", "pages/man1", "--json"]));
    assert_eq!(written["directory"].as_str(), home.path("pages/man1").to_str());
    let pages = home.names("pages/man1");
    assert!(pages.contains(&"fhrd.1".to_string()), "{pages:?}");
    for verb in &verbs {
        let page = String::from_utf8(home.read(&format!("pages/man1/fhrd-{verb}.1"))).unwrap();
        assert!(page.contains(".TH") && page.contains(verb), "{page}");
    }
    home.write("file", b"");
    assert_eq!(code(&home.run(&["man", "file"])), 1);
}

#[test]
fn no_color_is_respected() {
    let home = Home::new();
    for arguments in [&["--help"][..], &["backup", "--no-such-option"], &["snapshots"]] {
        let mut command = home.command(arguments);
        let output = command.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1").output().unwrap();
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{arguments:?}");
    }
}

#[test]
fn a_profile_has_the_rules_of_forget() {
    let rules = "[forget]\nkeep_last = 2\nkeep_tag = ['keep']\ngroup_by = 'host'\nprune = true\ngrace = '0s'\n";
    let home = home(&[&PROFILE.replace("before = ", "# "), rules].concat());
    assert_eq!(code(&home.run(&["init", "--profile", "nightly"])), 0);
    let backup = |options: &[&str]| home.backup(&[&["--profile", "nightly", "--force"], options].concat());
    for text in ["one", "two", "three", "four"] {
        home.write("docs/a", text.repeat(10_000).as_bytes());
        backup(if text == "one" { &["--tag", "keep"] } else { &[] });
    }
    backup(&["--host", "another"]);
    let left = || json(&home.run(&["snapshots", "--profile", "nightly", "--json"])).as_array().unwrap().len();
    let dry = json(&home.run(&["forget", "--profile", "nightly", "--dry-run", "--json"]));
    assert_eq!((dry["deleted"].as_array().unwrap().len(), left()), (1, 5));
    // A dry run shows the prune, too.
    assert_eq!((&dry["prune"]["dry_run"], &dry["prune"]["snapshots"]), (&true.into(), &4.into()), "{dry}");
    let done = json(&home.run(&["forget", "--profile", "nightly", "--json"]));
    assert_eq!((done["deleted"].as_array().unwrap().len(), left()), (1, 4), "{done}");
    assert!(done["prune"]["snapshots"] == 4, "{done}");
    assert_eq!(code(&home.run(&["check", "--profile", "nightly"])), 0);
    // Rules on the command line replace them all, and do not prune.
    let given = json(&home.run(&["forget", "--profile", "nightly", "--keep-last", "1", "--json"]));
    assert_eq!((given["deleted"].as_array().unwrap().len(), left()), (2, 2), "{given}");
    assert_eq!(given.get("prune"), None);
    home.write("config/fhrd/wrong.toml", b"repo = 'store'\n[forget]\nkeep_last = 1\nkeep_within = 'soon'\n");
    let wrong = home.run(&["forget", "--profile", "wrong"]);
    assert!(code(&wrong) == 1 && stderr(&wrong).contains("forget.keep_within"), "{}", stderr(&wrong));
    // What the later prune cannot use is said before anything is deleted.
    backup(&["--host", "laptop"]);
    backup(&["--host", "laptop"]);
    let before = left();
    for wrong in ["grace = 'soon'", "extend_locks = 'soon'"] {
        let profile =
            format!("repo = 'store'\n[backup]\nhost = 'laptop'\n[forget]\nkeep_last = 1\nprune = true\n{wrong}\n");
        home.write("config/fhrd/wrong.toml", profile.as_bytes());
        for options in [&[][..], &["--dry-run"]] {
            let output = home.run(&[&["forget", "--profile", "wrong"], options].concat());
            assert!(code(&output) == 1 && stderr(&output).contains("soon"), "{}", stderr(&output));
            assert_eq!(left(), before, "{wrong}");
        }
    }
}

#[test]
fn a_profile_may_compact_after_each_backup() {
    let containers = |compact: &str| {
        let home = home(&format!("repo = 'store'\n[backup]\npaths = ['docs']\n{compact}[forget]\ngrace = '0s'\n"));
        assert_eq!(code(&home.run(&["init", "--profile", "nightly"])), 0);
        for number in 0..8 {
            home.write("docs/a", format!("letter {number}").as_bytes());
            assert_eq!(code(&home.run(&["backup", "--profile", "nightly"])), 0);
        }
        assert_eq!(code(&home.run(&["check", "--profile", "nightly", "--read-data"])), 0);
        assert_eq!(code(&home.run(&["restore", "latest", "--profile", "nightly", "--target", "out"])), 0);
        assert_eq!(home.read(&format!("out{}", home.path("docs/a").display())), b"letter 7");
        let directories = home.names("store/containers");
        directories.iter().map(|name| home.names(&format!("store/containers/{name}")).len()).sum::<usize>()
    };
    assert_eq!(containers(""), 16);
    let few = containers("compact = '1 MiB'\n");
    assert!(few <= 4, "{few} containers");
    let wrong = home("repo = 'store'\n[backup]\ncompact = 'much'\n").run(&["backup", "docs", "--profile", "nightly"]);
    assert!(code(&wrong) == 1 && stderr(&wrong).contains("compact"), "{}", stderr(&wrong));
}
