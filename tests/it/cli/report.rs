//! `report`: the page is one well-formed document without scripts, its numbers are those of other commands, and names
//! and damage do no harm.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bytesize::ByteSize;
use fhrd::repo::Repository;
use fhrd::repo::marks::{Mark, MarkKind};
use fhrd::repo::snapshot::{self, Snapshot};
use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};
use super::model_fixture::Weights;
use super::tree::noise;
use crate::markup::elements;
use crate::normal::Normal;
use crate::weights::{Tensor, bfloat16, safetensors};

const REPOSITORY: &str = "data/fhrd/repository";

/// The text of the page without its elements.
fn text(page: &str) -> String {
    let body = page.split_once("</style>").unwrap().1;
    let parts = body.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    parts.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Several hosts, a family of models, a run, and names that try to be more than names.
fn prepared() -> Home {
    let home = Home::new();
    home.write("one/photos/a.jpg", &noise(1, 300_000));
    home.write("one/letters/b.txt", &b"a letter\n".repeat(20_000));
    home.write("one/in-it.txt", b"beside the directories");
    home.write("odd/<script>alert(1)<script>/\"a' & b\u{202e}.x\u{1b}[31m", &noise(2, 9000));
    let invalid = home.path("odd").join(OsStr::from_bytes(b"inv\xff\xfe"));
    std::fs::create_dir(&invalid).unwrap();
    std::fs::write(invalid.join("f"), noise(3, 5000)).unwrap();
    let base = Weights::base();
    home.write("m/base/model.safetensors", &base.bf16());
    home.write("m/tune\"><script>/model.safetensors", &base.tuned(2).bf16());
    home.backup(&["one", "--host", "laptop", "--tag", "nightly", "--time", "2020-01-31T12:00:00Z"]);
    home.write("one/photos/c.jpg", &noise(4, 100_000));
    home.backup(&["one", "--host", "laptop", "--tag", "nightly"]);
    let weeks_ago = (jiff::Timestamp::now() - jiff::SignedDuration::from_hours(20 * 24)).to_string();
    home.backup(&["odd", "--time", &weeks_ago, "--host", "evil\"><script>\u{202e}\u{7}"]);
    home.backup(&["m", "--host", "gpu"]);
    for (step, loss) in [("10", "0.9"), ("20", "0.25"), ("30", "inf")] {
        home.write("run/weights", &noise(step.parse().unwrap(), 9000));
        let metric = format!("</svg><script>={loss}");
        home.backup(&["run", "--host", "gpu", "--run", "<script>", "--step", step, "--metric", &metric]);
    }
    home
}

fn page(home: &Home, arguments: &[&str]) -> (i32, String) {
    let output = home.run(&[&["report", "--out", "-"], arguments].concat());
    (code(&output), stdout(&output))
}

#[test]
fn the_page_is_one_document_that_loads_and_runs_nothing() {
    let home = prepared();
    let written = home.run(&["report", "--out", "report.html"]);
    assert_eq!((code(&written), stdout(&written), stderr(&written)), (0, String::new(), String::new()));
    let page = String::from_utf8(home.read("report.html")).unwrap();
    let elements = elements(&page);
    let count = |name: &str| elements.iter().filter(|element| *element == name).count();
    assert_eq!((count("script"), count("link"), count("img"), count("iframe"), count("a")), (0, 0, 0, 0, 0));
    assert!((count("h1"), count("main"), count("style")) == (1, 1, 1) && count("svg") > 8, "{elements:?}");
    assert!(count("title") > 8 && count("desc") >= 9, "pictures have titles and descriptions");
    for words in ["http:", "https:", "url(", "@import", "src=", "href=", "<script", "onerror", "onload"] {
        assert!(!page.contains(words), "{words}");
    }
    let steers =
        |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert_eq!(page.chars().find(|c| steers(*c)), None);
    for shown in ["&lt;script&gt;alert(1)&lt;script&gt;", "evil&quot;&gt;&lt;script&gt;??", "inv\u{fffd}\u{fffd}"] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
    // Each id names one element.
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|part| part.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn the_numbers_are_those_of_stats_and_status() {
    let home = prepared();
    let of = |arguments: &[&str]| json(&home.run(&[arguments, &["--json"]].concat()));
    let (stats, status, report) = (of(&["stats"]), of(&["status"]), of(&["report"]));
    for key in ["stored_bytes", "usage", "snapshots", "containers", "ratio"] {
        assert_eq!(report["stats"][key], stats[key], "{key}");
    }
    for key in ["damage", "space", "pending", "proof"] {
        assert_eq!(report["status"][key], status[key], "{key}");
    }
    let (page, size) =
        (page(&home, &[]).1, |value: &Value| ByteSize(value.as_u64().unwrap()).display().iec().to_string());
    let page = text(&page);
    assert_ne!(status["space"]["added_7_days"], status["space"]["added_30_days"]);
    let usage = &stats["usage"];
    let (files, containers) = (&usage["files"], &stats["containers"]);
    for words in [
        format!("Content {} in {files} files of all snapshots", size(&usage["bytes"])),
        format!("Stored {} in {containers} containers", size(&stats["stored_bytes"]["total"])),
        format!("Snapshots {} of 3 hosts", stats["snapshots"]),
        format!("Added in 30 days {}", size(&status["space"]["added_30_days"])),
        "Damage ✓ None is known".into(),
    ] {
        assert!(page.contains(&words), "{words}: {page}");
    }
    for (kind, usage) in usage["kinds"].as_object().unwrap() {
        let sizes = ["bytes", "distinct_bytes", "stored_bytes"].map(|key| size(&usage[key]));
        let words = format!("{} {} {} {}", usage["files"], sizes[0], sizes[1], sizes[2]);
        assert!(page.contains(&words), "{kind}: {words}");
    }
}

#[test]
fn directories_growth_and_models_add_up() {
    let home = prepared();
    let report = json(&home.run(&["report", "--json"]));
    let directories = report["directories"].as_array().unwrap();
    let sum = |key: &str| directories.iter().map(|one| one[key].as_u64().unwrap()).sum::<u64>();
    let usage = &report["stats"]["usage"];
    for key in ["files", "bytes", "distinct_bytes"] {
        assert_eq!(sum(key), usage[key].as_u64().unwrap(), "{key}: {directories:?}");
    }
    assert!(sum("stored_bytes").abs_diff(usage["stored_bytes"].as_u64().unwrap()) <= 16);
    let of = |host: &str, path: &str| {
        let found = directories.iter().find(|one| one["host"] == host && one["path"] == path);
        let found = found.unwrap_or_else(|| panic!("{path}: {directories:?}"));
        (found["files"].as_u64().unwrap(), found["bytes"].as_u64().unwrap())
    };
    assert_eq!((of("laptop", "one/photos"), of("laptop", "one/letters")), ((3, 700_000), (2, 360_000)));
    assert_eq!(of("laptop", "one"), (2, 44), "files beside the directories");
    assert!(directories.iter().any(|one| one["path_hex"].as_str().is_some_and(|hex| hex.ends_with("fffe"))));

    let growth = report["growth"].as_array().unwrap();
    let added = |key: &str| growth.iter().map(|point| point["added"][key].as_u64().unwrap()).sum::<u64>();
    let last = &growth.last().unwrap()["total"];
    for key in ["bytes", "duplicates", "reduced", "stored"] {
        assert_eq!(last[key], added(key), "{key}");
    }
    assert_eq!(last["bytes"], usage["bytes"]);
    let again = &growth.iter().rfind(|point| point["snapshot"]["host"] == "laptop").unwrap()["added"];
    assert!(again["duplicates"].as_u64().unwrap() >= 480_000 && again["stored"].as_u64().unwrap() < 120_000, "{again}");

    let families = report["families"].as_array().unwrap();
    assert_eq!((families.len(), &families[0]["models"]), (1, &2.into()), "{families:?}");
    let models = json(&home.run(&["models", "--all", "--json"]));
    let stored: u64 = models.as_array().unwrap().iter().map(|model| model["stored"].as_u64().unwrap()).sum();
    assert_eq!(families[0]["stored"], stored);
    let lineage = json(&home.run(&["lineage", "--all", "--json"]));
    assert_eq!(report["lineage"], lineage);
    assert_eq!(report["runs"][0]["steps"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["runs"][0]["steps"][2]["metrics"]["</svg><script>"], "inf");
}

#[test]
fn a_snapshot_that_cannot_be_read_is_named_and_the_rest_is_shown() {
    let home = prepared();
    let first = json(&home.run(&["snapshots", "--json"]))[0]["id"].as_str().unwrap().to_string();
    home.write(&format!("{REPOSITORY}/snapshots/{first}"), b"not a snapshot");
    std::fs::remove_dir_all(home.path("data/fhrd/cache")).unwrap();
    let expected = code(&home.run(&["snapshots"]));
    let (exit, page) = page(&home, &[]);
    elements(&page);
    assert_eq!((exit, expected), (20, 20));
    let page = text(&page);
    for words in ["This report is not complete.", "cannot be read", &first, "Snapshots 6 of 3 hosts", "Damage is known"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    let output = home.run(&["report", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(code(&output) == 20 && report["unreadable"][0]["name"].as_str().unwrap().contains(&first), "{report}");
}

#[test]
fn empty_encrypted_and_read_only_repositories_have_a_page() {
    let home = Home::new();
    home.write("key", &[b'k'; 40]);
    json(&home.run(&["init", "--json"]));
    let (exit, empty) = page(&home, &[]);
    elements(&empty);
    assert!(exit == 0 && text(&empty).contains("There are no snapshots yet."), "{empty}");
    assert_eq!(code(&home.run(&["init", "--repo", "sealed", "--encrypt", "--key-file", "key", "--quiet"])), 0);
    let sealed = ["--repo", "sealed", "--key-file", "key"];
    home.write("src/a", b"content");
    home.backup(&[&["src"], &sealed[..]].concat());
    let (exit, page_of_sealed) = page(&home, &sealed);
    elements(&page_of_sealed);
    assert!(exit == 0 && text(&page_of_sealed).contains("Snapshots 1 of 1 host"), "{page_of_sealed}");
    home.backup(&["src"]);
    let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
    Mark::new(MarkKind::ReadOnly, "the archive is full").save(repository.store.as_ref()).unwrap();
    assert_eq!(page(&home, &[]).0, 0);
}

#[test]
fn the_file_is_replaced_whole_or_not_at_all() {
    let home = Home::new();
    home.write("src/a", b"content");
    home.write("report.html", b"old");
    assert_eq!(code(&home.run(&["report", "--out", "report.html"])), 10);
    assert_eq!(home.read("report.html"), b"old");
    home.backup(&["src"]);
    std::os::unix::fs::symlink("report.html", home.path("link")).unwrap();
    assert_eq!(code(&home.run(&["report", "--out", "link"])), 0);
    assert!(home.path("link").is_symlink() && home.read("report.html").starts_with(b"<!DOCTYPE html>"));
    for (arguments, expected) in [
        (&["report"][..], 2),
        (&["report", "--out", "-", "--json"], 1),
        (&["report", "--out", "/dev/null"], 1),
        (&["report", "--out", "no-such-directory/report.html"], 1),
    ] {
        let output = home.run(arguments);
        assert_eq!((code(&output), stdout(&output)), (expected, String::new()), "{arguments:?}");
    }
    let both = json(&home.run(&["report", "--out", "both.html", "--json"]));
    assert_eq!(both["stats"]["snapshots"], 1);
    assert_eq!(home.names("").iter().filter(|name| name.ends_with(".html") || name.starts_with('.')).count(), 2);
}

#[test]
fn many_hosts_and_snapshots_are_grouped() {
    let home = Home::new();
    home.write("src/a/b", b"content");
    home.backup(&["src"]);
    let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
    let store = repository.store.as_ref();
    let first = snapshot::list(store).unwrap().0.remove(0).snapshot;
    for number in 1..=700 {
        let (time_ns, host) = (first.time_ns - number * 1_000_000_000_000, format!("host-{:03}", number % 150));
        Snapshot { time_ns, host, intent: None, ..first.clone() }.save(store).unwrap();
    }
    let (exit, page) = page(&home, &[]);
    elements(&page);
    assert!(exit == 0 && page.len() < 400_000, "{}", page.len());
    let page = text(&page);
    for words in ["Snapshots 701 of 151 hosts", "51 more are not shown", "12 of 701 snapshots", "91 other directories"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn many_models_and_families_are_grouped() {
    let home = Home::new();
    let mut normal = Normal::new(9);
    let mut values = || normal.weights(180 * 200, 0.02);
    let model = |values: &[f32]| safetensors(&[Tensor::new("w", "BF16", &[180, 200], bfloat16(values))]);
    let base = values();
    for number in 0..16usize {
        let mut tuned = base.clone();
        tuned.iter_mut().skip(number * 16).take(16).for_each(|value| *value += 0.5);
        home.write(&format!("m/tuned-{number}\"><script>\u{7}/model.safetensors"), &model(&tuned));
    }
    for number in 0..29 {
        let mut values = values();
        home.write(&format!("m/alone-{number}/model.safetensors"), &model(&values));
        if number == 0 {
            values.iter_mut().take(16).for_each(|value| *value += 0.5);
            home.write("m/with-one/model.safetensors", &model(&values));
        }
    }
    home.backup(&["m"]);
    let (exit, page) = page(&home, &[]);
    elements(&page);
    assert!(
        exit == 0 && page.len() < 400_000 && !page.contains("<script") && !page.contains('\u{7}'),
        "{}",
        page.len()
    );
    let page = text(&page);
    let families = json(&home.run(&["report", "--json"]))["families"].clone();
    assert_eq!(families.as_array().map(Vec::len), Some(30), "{families}");
    for words in ["46 models of 30 families", "4 other models", "23 other families", "5 smaller families are not shown"]
    {
        assert!(page.contains(words), "{words}: {page}");
    } // Each tree of several models has a sum.
    let tree = stdout(&home.run(&["lineage"]));
    let mut sums: Vec<&str> = tree.lines().filter(|line| line.starts_with("= ")).collect();
    sums.sort_unstable();
    assert!(sums.len() == 2 && sums[0].starts_with("= 16 models ") && sums[1].starts_with("= 2 models "), "{tree}");
}
