//! The commands of docs/TASKS.md do what a user expects of them: they succeed, one after another.

use std::process::{Command, Stdio};

use super::fixture::{Home, json};

const PAGE: &str = include_str!("../../../docs/TASKS.md");

/// The commands of the last column, in the order of the page.
fn commands() -> Vec<String> {
    let page = PAGE.replace("\\|", "\u{1}");
    let mut found = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cell = line.trim_matches('|').rsplit('|').next().unwrap_or_default().trim();
        let code = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        found.extend(code.filter(|code| code.contains("fhrd ")).map(|code| code.replace('\u{1}', "|")));
    }
    found
}

#[test]
fn the_documented_commands_run() {
    let home = Home::new();
    for name in ["docs/a.txt", "docs/b.o", "docs/old/c.txt", "photos/p.jpg"] {
        home.write(name, name.repeat(1000).as_bytes());
    }
    home.write("patterns", b"*.o\n");
    home.write("list", b"docs\nphotos\n");
    home.write(
        "config/fhrd/nightly.toml",
        b"[backup]\npaths = ['docs']\n[forget]\nkeep_daily = 30\nkeep_last = 30\nprune = true\n",
    );
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_fhrd"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let commands = commands();
    assert!(commands.len() > 50, "{commands:?}");
    for command in
        commands.iter().filter(|command| !command.starts_with("fhrd mount") && !command.starts_with("fhrd serve"))
    {
        let snapshots = || {
            let mut command = home.command(&["snapshots", "--json"]);
            command.env("FHRD_REPO", "backup").env("FHRD_PASSWORD", "pass").output().unwrap()
        };
        let first = match command.contains("1f3a") {
            true => json(&snapshots())[0]["short_id"].as_str().unwrap().to_string(),
            false => String::new(),
        };
        let mut shell = Command::new("/bin/sh");
        for (key, value) in home.command(&[]).get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        let shell = shell.arg("-c").arg(command.replace("1f3a", &first)).current_dir(home.path(""));
        let output = shell
            .env("PATH", &path)
            .env("FHRD_REPO", "backup")
            .env("FHRD_PASSWORD", "pass")
            .env("FHRD_FROM_PASSWORD", "pass")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {}: {errors}", output.status);
    }
    let mut list = home.command(&["snapshots", "--json", "--repo", "second"]);
    let list = list.env("FHRD_PASSWORD", "pass").output().unwrap();
    assert!(json(&list).as_array().unwrap().len() > 5, "copies are there");
    assert_eq!(home.read("back/docs/a.txt"), home.read("docs/a.txt"));
}

#[test]
fn every_verb_has_its_line() {
    let pages = [PAGE, include_str!("../../../README.md"), include_str!("../../../docs/GUIDE.md")].concat();
    for verb in Home::new().verbs() {
        assert!(pages.contains(&format!("fhrd {verb}")), "no page has `fhrd {verb}`");
    }
}
