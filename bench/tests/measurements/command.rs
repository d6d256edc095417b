//! The program: what runs, what it prints and writes, and how it fails.

use super::documented::{JSON_PAGE, check, table};
use super::fixture::{Home, code, json, stderr, stdout};

#[test]
fn schemes_are_compared_on_a_directory() {
    let home = Home::new();
    (0..40).for_each(|number| {
        home.write(&format!("corpus/set/{number}"), format!("file {number}\n").repeat(5000).as_bytes())
    });
    let schemes = "kind = \"schemes\"\ncorpus = \"corpus\"\nwork = \"work\"\nrestore = true\nsets = [\"set\"]\n\
        [[scheme]]\nname = \"whole\"\n[scheme.config.subdedup]\nstrategy = \"none\"\n[[scheme]]\nname = \"default\"\n";
    home.write("bench.toml", schemes.as_bytes());
    let output = home.run(&["bench", "bench.toml", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let document = json(&output);
    let lines = &document["lines"];
    let of = |number: usize, key: &str| lines[number][key].clone();
    assert_eq!((of(0, "scheme"), of(1, "scheme")), ("whole".into(), "default".into()));
    assert!(of(0, "stored").as_u64() > Some(0) && of(0, "bytes") == of(1, "bytes"), "{lines}");
    assert!(of(1, "restore_seconds").is_number(), "{lines}");
    assert!(document["profiles"].as_array().is_some_and(|runs| runs.len() == 4), "a backup and a restore of both");
    assert!(document["config"]["text"] == schemes && document["commit"].is_null(), "no checkout: {document}");
}

#[test]
fn several_measurements_write_reports_to_directories_of_their_names() {
    let home = Home::new();
    (0..8).for_each(|number| home.write(&format!("corpus/set/{number}"), "a line of text\n".repeat(5000).as_bytes()));
    let head = "corpus = \"corpus\"\nwork = \"work\"\nsets = [\"set\"]\n[[scheme]]\nname = \"one\"\n[[sweep]]\n\
        key = \"compress.level\"\nvalues = [1, 19]\n[[claim]]\nsource = \"Somebody\"\ntext = \"19 over 1\"\n\
        expected = \"more\"\nfigure = \"ratio\"\nof = { level = 19 }\nover = { level = 1 }\nremark = \"none\"\nrule = { at_least = 0 }\n";
    home.write("a.toml", format!("kind = \"schemes\"\n{head}").as_bytes());
    home.write("b.toml", format!("kind = \"versions\"\n{head}").as_bytes());
    let output = home.run(&["bench", "a.toml", "b.toml", "--dry-run"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.starts_with("a.toml\n  one level 1, 128 KiB\n  one level 19, 128 KiB\nb.toml\n"), "{printed}");
    assert!(!home.path("work").exists(), "nothing was run");
    let output = home.run(&["bench", "a.toml", "b.toml", "--out", "out"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("Somebody") && !printed.contains("not measured"), "{printed}");
    for name in ["out/a/result.json", "out/a/tables.md", "out/b/report.html", "out/claims.md", "out/claims-table.md"] {
        assert!(home.path(name).exists(), "{name}");
    }
    let claims = std::fs::read_to_string(home.path("out/claims-table.md")).unwrap();
    assert_eq!(claims.lines().filter(|line| line.starts_with("|  | 19 over 1 | more | ")).count(), 2);
    let words = std::fs::read_to_string(home.path("out/claims.md")).unwrap();
    assert!(words.contains("`fhrd bench a.toml b.toml --out DIR` · commit "), "{words}");
    assert!(words.contains("| Somebody | 2 | 2 | 0 | 0 | 0 |") && !words.contains("19 over 1"), "{words}");
    home.write("elsewhere/a.toml", b"kind = \"magic\"");
    let output = home.run(&["bench", "a.toml", "elsewhere/a.toml", "--out", "out"]);
    assert!(code(&output) == 1 && stderr(&output).contains("magic"), "faults are reported before anything runs");
}

#[test]
#[cfg(target_os = "linux")]
fn a_scheme_whose_restore_differs_fails_the_comparison() {
    let home = Home::new();
    home.write("corpus/fine", b"the same");
    // A file with different content at every read.
    let schemes = "kind = \"schemes\"\ncorpus = \"corpus\"\nwork = \"work\"\nrestore = true\nrepeats = 2\n\
        sets = [{ name = \"odd\", paths = [\"/proc/sys/kernel/random/uuid\"] }, \"fine\"]\n\
        [[scheme]]\nname = \"whole\"\n";
    home.write("bench.toml", schemes.as_bytes());
    let output = home.run(&["bench", "bench.toml", "--json"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("1 lines failed"), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = &document["lines"];
    assert!(lines[0]["set"] == "odd" && lines[0]["failure"].is_string() && lines[0].get("stored").is_none(), "{lines}");
    assert!(lines[1]["set"] == "fine" && lines[1]["failure"].is_null() && lines[1]["stored"].is_number(), "{lines}");
}

#[test]
fn a_page_of_other_data_than_its_manifests_pin_is_refused() {
    let home = Home::new();
    home.write("corpus/set/a", b"abc");
    home.write("corpus/set/b", b"no manifest has it");
    let schemes = "kind = \"schemes\"\nwork = \"work\"\nsets = [\"set\"]\n[[scheme]]\nname = \"one\"\n\
        [[claim]]\nsource = \"Somebody\"\ntext = \"stored\"\nexpected = \"some\"\nfigure = \"ratio\"\nmeasure = \"value\"\n\
        of = { scheme = \"one\" }\nremark = \"none\"\nrule = { at_least = 0 }\n";
    home.write("a.toml", schemes.as_bytes());
    home.write("page.toml", b"kind = \"page\"\nmanifests = \"pins\"\n[[measurement]]\nfile = \"a.toml\"\n");
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let pin = |sum: &str| {
        let manifest = format!("files = [{{ path = \"set/a\", bytes = 3, sha256 = \"{sum}\" }}]\n");
        home.write("pins/set.toml", manifest.as_bytes());
    };
    let rows = || std::fs::read_to_string(home.path("out/claims-table.md")).unwrap();
    pin(sum);
    let run = |more: &[&str]| home.run(&[&["bench", "page.toml", "--out", "out"], more].concat());
    let output = run(&[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(rows().contains("set; not pinned: set/b |") && rows().contains("Read: 2 files of 0.0 GB."), "{}", rows());
    let result: serde_json::Value = serde_json::from_slice(&home.read("out/result.json")).unwrap();
    assert_eq!((&result["data"][0]["path"], &result["data"][0]["sha256"]), (&"set/a".into(), &sum.into()));
    pin(&sum.replace('b', "c"));
    for more in [&[][..], &["--keep"]] {
        let output = run(more);
        assert!(code(&output) == 1 && stderr(&output).contains("refused") && stderr(&output).contains("set/a"));
    }
    let output = run(&["--keep", "--other-data"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(rows().contains("other data than the manifests pin: set/a; not pinned: set/b |"), "{}", rows());
    home.write("corpus/set/a", b"abcd");
    pin(sum);
    assert_eq!(code(&run(&["--keep"])), 0, "what a kept result has read is what counts");
    assert_eq!(code(&run(&[])), 1);
}

#[test]
fn a_measurement_of_unknown_kind_is_refused() {
    let home = Home::new();
    for (text, names) in [("kind = \"magic\"", ["magic", "identify"]), ("a = 1", ["kind", "missing"])] {
        home.write("bench.toml", text.as_bytes());
        let output = home.run(&["bench", "bench.toml"]);
        assert_eq!(code(&output), 1);
        assert!(names.iter().all(|name| stderr(&output).contains(name)), "{}", stderr(&output));
    }
}

#[test]
fn the_plan_is_the_document_that_is_documented() {
    let home = Home::new();
    home.write("corpus/set/a", b"letter");
    let text =
        "kind = \"schemes\"\ncorpus = \"corpus\"\nwork = \"work\"\nsets = [\"set\"]\n[[scheme]]\nname = \"one\"\n";
    home.write("bench.toml", text.as_bytes());
    let rows = table(JSON_PAGE, "`_hex`.\n");
    let document = rows.iter().find(|row| row[0] == "bench").unwrap()[1];
    let printed = json(&home.run(&["bench", "bench.toml", "--dry-run", "--json"]));
    check(&printed, document, "bench").unwrap_or_else(|reason| panic!("{reason}\n{printed}"));
}

#[test]
fn the_command_line_is_that_of_a_verb_of_fhrd() {
    let home = Home::new();
    let help = home.run(&["bench", "--help"]);
    assert_eq!(code(&help), 0);
    for words in ["Usage: fhrd bench [OPTIONS] <CONFIG.TOML>...\n", "--against", "--repo", "Examples:\n  fhrd bench "] {
        assert!(stdout(&help).contains(words), "{words}: {}", stdout(&help));
    }
    let wrong = home.run(&["bench", "--no-such-option", "--json"]);
    assert_eq!(code(&wrong), 2);
    let last = stderr(&wrong).lines().next_back().unwrap_or_default().to_string();
    check(&serde_json::from_str(&last).unwrap(), "[error](#error)", "bench").unwrap();
    let unknown = home.command(&["bench", "x.toml"]).env("FHRD_CPU_FEATURES", "magic").output().unwrap();
    assert!(code(&unknown) == 1 && stderr(&unknown).contains("magic"), "{}", stderr(&unknown));
    let mut asked = home.command(&["--", "fhrd", "bench", "--"]);
    let asked = asked.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").env("_CLAP_IFS", "\n");
    let offered = asked.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true").output().unwrap();
    for option in ["--dry-run", "--against", "--json"] {
        assert!(stdout(&offered).lines().any(|line| line == option), "{option}: {}", stdout(&offered));
    }
}
