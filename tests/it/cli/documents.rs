//! What `--json` prints is what docs/JSON.md says, and exit codes are what docs/EXIT-CODES.md says, for every verb.

use std::collections::BTreeMap;

use serde_json::Value;

use super::documented::{JSON_PAGE, check, table};
use super::fixture::{Home, code, json, stderr};
use super::look::damage_data;

const CODES_PAGE: &str = include_str!("../../../docs/EXIT-CODES.md");

/// Command lines of each verb that succeed in the home of [`prepared`]. A new verb gets its line here.
fn samples() -> BTreeMap<&'static str, Vec<Vec<&'static str>>> {
    let of = |lines: &[&'static str]| lines.iter().map(|line| line.split(' ').collect()).collect();
    BTreeMap::from([
        (
            "init",
            of(&[
                "init --repo other",
                "init --repo frozen --parity 3% --cold",
                "init --repo sealed-too --encrypt --key-file key --recovery-key",
            ]),
        ),
        (
            "key",
            of(&[
                "key list --repo sealed",
                "key add --repo sealed --key-file key --new-key-file key-2 --label second",
                "key add --repo sealed --key-file key --recovery-key",
                "key export exported --repo sealed --key-file key",
                "key import exported --repo sealed --new-key-file key-2",
                "key rotate --repo sealed --key-file key",
                "key passwd --repo sealed --key-file key --new-key-file key-2",
            ]),
        ),
        ("backup", of(&["backup src", "backup src --dry-run", "backup src --force --exclude x"])),
        ("estimate", of(&["estimate src"])),
        ("import", of(&["import --from restic other --program ./restic --dry-run"])),
        (
            "restore",
            of(&[
                "restore latest --target whole --dry-run",
                "restore latest --target whole --dry-run --list-containers --price-per-gib 0.02",
                "restore latest --target whole --sync --verify",
                "restore latest:src --path a --target part --overwrite always",
                "restore latest --tensor w --path src/m.safetensors --output w.npy",
                "restore latest --tensor w --path src/n.safetensors --output w.safetensors",
            ]),
        ),
        ("snapshots", of(&["snapshots", "snapshots --group-by host,tags"])),
        ("ls", of(&["ls latest", "ls latest src/a"])),
        ("find", of(&["find *"])),
        ("diff", of(&["diff latest:src/a latest:src/m.safetensors", "diff latest latest"])),
        ("cat", of(&["cat latest:src/a"])),
        ("dump", of(&["dump latest:src --output src.tar"])),
        ("mount", of(&["mount src"])),
        ("serve", of(&["serve"])),
        ("runs", of(&["runs"])),
        ("steps", of(&["steps tune", "steps tune --tensors"])),
        ("best", of(&["best tune --metric loss"])),
        ("models", of(&["models", "models --all", "models --families"])),
        ("lineage", of(&["lineage"])),
        ("distance", of(&["distance src/m.safetensors src/n.safetensors"])),
        ("forget", of(&["forget --keep-last 9", "forget --keep-last 1 --dry-run"])),
        ("copy", of(&["copy --from-repo second", "copy latest --from-repo second --dry-run"])),
        (
            "rewrite",
            of(&["rewrite latest --exclude link --dry-run", "rewrite --exclude b --forget", "rewrite -e none"]),
        ),
        ("tag", of(&["tag latest --add more"])),
        ("publish", of(&["publish latest:src me/src", "publish latest:src me/src --type dataset --revision v1"])),
        ("unpublish", of(&["unpublish me/src"])),
        ("published", of(&["published"])),
        ("prune", of(&["prune", "prune --dry-run --grace 0s"])),
        ("cold", of(&["cold set on", "cold add", "cold set off"])),
        ("parity", of(&["parity set 3%", "parity add", "parity set off"])),
        ("recompress", of(&["recompress", "recompress --dry-run"])),
        ("status", of(&["status", "status --expect 26h"])),
        ("stats", of(&["stats", "stats latest", "stats latest:src", "stats --by-snapshot", "stats --debug"])),
        ("report", of(&["report --out report.html", "report"])),
        ("check", of(&["check", "check --read-data", "check --read-data --heal", "check --without-key"])),
        ("verify", of(&["verify", "verify --sample 100% --within 90d"])),
        ("repair", of(&["repair index", "repair containers", "repair snapshots --dry-run"])),
        ("upgrade", of(&["upgrade", "upgrade --dry-run", "upgrade --repo sealed --key-file key-2"])),
        ("schedule", of(&["schedule --daily 04:30 --profile ./p.toml --print"])),
        ("trace", of(&["trace src --output trace"])),
        ("man", of(&["man pages"])),
        ("completions", of(&["completions bash"])),
    ])
}

/// A file in safetensors' format with one tensor of 40,000 values.
fn model(shift: u32) -> Vec<u8> {
    let mut header = r#"{"w":{"dtype":"F32","shape":[40000],"data_offsets":[0,160000]}}"#.to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let values = (0..40_000u32).map(|at| 0x3d00_0000 + at.wrapping_mul(2_654_435_761) % 0x40_0000);
    let values = values.enumerate().map(|(at, bits)| if at % 100 == 0 { bits + shift } else { bits });
    let content: Vec<u8> = values.flat_map(u32::to_le_bytes).collect();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &content].concat()
}

fn prepared() -> Home {
    let home = Home::new();
    home.write("src/a", b"letter");
    home.write("p.toml", b"[backup]\npaths = ['src']\n");
    super::import::write_restic(&home, "");
    home.write("src/m.safetensors", &model(0));
    home.write("src/n.safetensors", &model(1));
    home.write("corpus/set/a", b"letter");
    home.write("key", &[b'k'; 40]);
    home.write("key-2", &[b'l'; 40]);
    assert_eq!(code(&home.run(&["init", "--repo", "sealed", "--encrypt", "--key-file", "key", "--quiet"])), 0);
    std::os::unix::fs::symlink("a", home.path("src/link")).unwrap();
    std::fs::hard_link(home.path("src/a"), home.path("src/b")).unwrap();
    json(&home.run(&["init", "--repo", "second", "--json"]));
    home.backup(&["corpus", "--repo", "second"]);
    home.backup(&["src", "--tag", "first", "--run", "tune", "--step", "1", "--metric", "loss=0.5"]);
    home
}

#[test]
fn every_verb_prints_the_document_that_is_documented() {
    let home = prepared();
    let samples = samples();
    let rows = table(JSON_PAGE, "`_hex`.\n");
    let documented: BTreeMap<&str, &str> = rows.iter().map(|row| (row[0], row[1])).collect();
    // A mount and a server end when somebody ends them; their own tests read their documents.
    for verb in home.verbs().into_iter().filter(|verb| !["mount", "serve"].contains(&verb.as_str())) {
        let document = documented.get(verb.as_str()).unwrap_or_else(|| panic!("docs/JSON.md lacks `{verb}`"));
        let lines = samples.get(verb.as_str()).unwrap_or_else(|| panic!("no command line of `{verb}` in this test"));
        for line in lines {
            let output = home.run(&[&line[..], &["--json"]].concat());
            assert_eq!(code(&output), 0, "{line:?}: {}", stderr(&output));
            if document.starts_with("text") {
                assert!(!output.stdout.is_empty(), "{line:?}");
                continue;
            }
            let printed = json(&output);
            check(&printed, document, &verb).unwrap_or_else(|reason| panic!("{line:?}: {reason}\n{printed}"));
        }
    }
}

#[test]
fn every_verb_exits_as_documented() {
    let (home, damaged) = (prepared(), damaged());
    let documented = table(CODES_PAGE, "in this table.\n");
    let samples = samples();
    for verb in home.verbs() {
        let row = documented.iter().find(|row| row[0] == verb);
        let row = row.unwrap_or_else(|| panic!("docs/EXIT-CODES.md lacks `{verb}`"));
        let line = &samples[verb.as_str()][0];
        assert_eq!(code(&home.run(&[&verb, "--no-such-option"])), 2, "{verb}");
        if row[2].starts_with("yes") {
            // A sample may name another repository than the default one.
            let words: Vec<&str> = line.iter().copied().take_while(|word| *word != "--repo").collect();
            let output = home.run(&[&words[..], &["--repo", "nowhere", "--json"]].concat());
            assert_eq!(code(&output), 10, "{line:?}");
            let text = stderr(&output);
            let last = text.lines().next_back().unwrap_or_default();
            let error: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{verb}: {text}"));
            check(&error, "[error](#error)", &verb).unwrap();
            assert_eq!(error["exit_code"], 10);
        }
        if row[3] == "yes" {
            let output = damaged.run(line);
            assert_eq!(code(&output), 20, "{verb}: {}", stderr(&output));
        }
    }
    for verb in ["backup", "trace"] {
        let arguments = [verb, "src/a", "nowhere/at all"];
        assert_eq!(code(&home.run(&arguments)), 3, "{verb}");
    }
}

#[test]
fn what_ends_with_another_code_than_0_says_so_in_its_last_line() {
    let home = prepared();
    home.write("back/src/a", b"something else");
    let fails = |words: &[&str], expected: i32| {
        let output = home.run(&[words, &["--json"]].concat());
        let text = stderr(&output);
        assert_eq!(code(&output), expected, "{words:?}: {text}");
        let last = text.lines().next_back().unwrap_or_default();
        let error: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{words:?}: {text}"));
        check(&error, "[error](#error)", words[0]).unwrap();
        assert_eq!(error["exit_code"], expected, "{words:?}");
    };
    fails(&["snapshots", "--no-such-option"], 2);
    fails(&["prune", "--grace", "-1h"], 2);
    fails(&["restore", "latest", "--target", "back"], 1);
    fails(&["backup", "src", "nowhere"], 3);
    damage_data(&home);
    fails(&["restore", "latest", "--target", "part"], 20);
    fails(&["dump", "latest", "--output", "archive"], 20);
    fails(&["copy", "latest", "--from-repo", "data/fhrd/repository", "--repo", "second"], 3);
    fails(&["check", "--read-data", "--report-only"], 20);
    fails(&["check", "--without-key"], 20);
}

/// A home whose repository has lost both copies of its configuration.
fn damaged() -> Home {
    let home = prepared();
    for name in ["config", "config-copy"] {
        let path = home.path("data/fhrd/repository").join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    home
}
