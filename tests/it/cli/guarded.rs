//! Parity, cold storage and padding as a user meets them: what heals, what is said, and with which exit code.

use std::fs;

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::noise;

const REPOSITORY: &str = "data/fhrd/repository";

fn said(home: &Home, arguments: &[&str], expected: i32) -> (String, String) {
    let output = home.run(arguments);
    assert_eq!(code(&output), expected, "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    (stdout(&output), stderr(&output))
}

#[test]
fn damaged_padding_is_no_defect_and_is_written_back() {
    for is_cold in [false, true] {
        let home = Home::new();
        let init: &[&str] =
            if is_cold { &["init", "--pad-containers", "--cold"] } else { &["init", "--pad-containers"] };
        said(&home, init, 0);
        home.write("directory/noise", &noise(1, 300_007));
        home.backup(&["directory"]);
        let name = home.containers(REPOSITORY).pop().unwrap();
        let whole = home.read(&name);
        // The footer has the offset of the index at 0, and the bytes of padding at 40.
        let footer = &whole[whole.len() - 64..];
        let number = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
        let (index, padding) = (number(0), number(40));
        assert!(padding > 100, "{padding}");
        for at in [index - padding, index - padding / 2, index - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            home.write(&name, &damaged);
            let (_, errors) = said(&home, &["check", "--read-data"], 0);
            assert!(errors.contains("is damaged") && errors.contains("--heal"), "{errors}");
            let report = json(&home.run(&["check", "--read-data", "--json"]));
            assert_eq!(report["padding_damaged"], u64::from(!is_cold), "{report}");
            said(&home, &["check", "--read-data", "--heal"], 0);
            assert!(home.read(&name) == whole, "byte {at}, cold: {is_cold}");
            let (_, errors) = said(&home, &["check", "--read-data"], 0);
            assert!(!errors.contains("damaged"), "{errors}");
        }
        // Damage of a frame beside it is damage.
        let mut damaged = whole.clone();
        damaged[index - 1] ^= 4;
        damaged[1000] ^= 4;
        home.write(&name, &damaged);
        said(&home, &["check", "--read-data", "--heal"], 20);
        assert!(home.read(&name) == damaged);
    }
}

#[test]
fn one_heal_mends_the_index_that_a_repair_has_made_of_mixed_up_containers() {
    let home = Home::new();
    said(&home, &["init", "--parity", "3%"], 0);
    home.write("directory/first", &noise(1, 3_000));
    home.backup(&["directory"]);
    home.write("directory/second", &noise(2, 400_000));
    home.backup(&["directory"]);
    let names = home.containers(REPOSITORY);
    let is_data = |name: &&String| home.read(name)[10] == 0;
    let [short, long] = names.iter().filter(is_data).collect::<Vec<_>>().try_into().unwrap();
    let (short_bytes, long_bytes) = (home.read(short), home.read(long));
    home.write(short, &long_bytes);
    home.write(long, &short_bytes);
    home.run(&["repair", "index"]);
    said(&home, &["check", "--read-data", "--heal"], 0);
    assert!(home.read(short) == short_bytes && home.read(long) == long_bytes);
    let (_, errors) = said(&home, &["check", "--read-data"], 0);
    assert!(!errors.contains("error"), "{errors}");
    said(&home, &["restore", "latest", "--target", "back"], 0);
    assert!(home.read("back/directory/second") == noise(2, 400_000));
}

#[test]
fn a_list_of_containers_names_what_is_missing_and_a_small_price_is_not_zero() {
    let home = Home::new();
    said(&home, &["init", "--cold"], 0);
    home.write("directory/noise", &noise(1, 30_000));
    home.backup(&["directory"]);
    let list = ["restore", "latest", "--target", "back", "--dry-run", "--list-containers", "--price-per-gib", "0.01"];
    let (text, _) = said(&home, &list, 0);
    let price = text.lines().find_map(|line| line.strip_prefix("price")).unwrap().trim().to_string();
    assert!(price.parse::<f64>().unwrap() > 1e-8 && price.len() > 8, "{text}");
    let name = text.lines().next().unwrap().split(' ').nth(1).unwrap().to_string();
    fs::remove_file(home.path(&format!("{REPOSITORY}/{name}"))).unwrap();
    let (text, errors) = said(&home, &list, 20);
    assert!(errors.contains(&format!("{name} is missing")) && text.contains("missing"), "{text}{errors}");
    let output = home.run(&[&list[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(code(&output) == 20 && document["missing_count"].as_u64().is_some_and(|count| count > 0), "{document}");
}

#[test]
fn status_says_that_a_repository_is_cold_and_has_parity() {
    let home = Home::new();
    said(&home, &["init"], 0);
    home.write("directory/file", b"content");
    home.backup(&["directory"]);
    let (text, _) = said(&home, &["status"], 0);
    assert!(!text.contains("cold") && !text.contains("parity"), "{text}");
    said(&home, &["cold", "set", "on"], 0);
    said(&home, &["parity", "set", "3%"], 0);
    let (text, _) = said(&home, &["status"], 0);
    assert!(text.contains("data may be in cold storage; 0 containers have hot indexes; "), "{text}");
    assert!(text.contains(" have none: `fhrd cold add` writes them") && text.contains("  3%; "), "{text}");
    said(&home, &["cold", "add"], 0);
    let report = json(&home.run(&["status", "--json"]));
    assert_eq!((&report["cold"]["is_cold"], &report["cold"]["hot_indexes_missing"]), (&true.into(), &0.into()));
    assert_eq!(report["cold"]["hot_indexes"], report["space"]["containers"], "{report}");
}

#[test]
fn a_tag_for_buckets_is_refused_elsewhere() {
    let home = Home::new();
    said(&home, &["init"], 0);
    for verb in [&["snapshots"][..], &["init", "--repo", "other"]] {
        let (_, errors) = said(&home, &[verb, &["--data-tag", "fhrd=data"]].concat(), 1);
        assert!(errors.contains("no tags of objects"), "{errors}");
    }
}

#[test]
fn a_mark_that_is_damaged_is_written_again_by_a_repair() {
    let home = Home::new();
    said(&home, &["init", "--cold"], 0);
    let marks = format!("{REPOSITORY}/marks/required");
    let name = format!("{marks}/{}", home.names(&marks)[0]);
    let whole = home.read(&name);
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    home.write(&name, &damaged);
    home.write("directory/file", b"content");
    home.backup(&["directory"]);
    let (text, _) = said(&home, &["repair", "index"], 0);
    assert!(text.contains("marks") && text.contains("1 written again"), "{text}");
    assert!(home.read(&name) == whole);
}
