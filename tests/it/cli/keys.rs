//! Encrypted repositories as a user meets them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::{describe, noise};

/// A word that is in the source's contents and names, and must be nowhere else.
const WORD: &str = "CONFIDENTIAL-PLANS";

/// Runs `fhrd` with a password in the environment, and no terminal.
fn run(home: &Home, password: Option<&str>, words: &[&str]) -> Output {
    let mut command = home.command(words);
    command.env_remove("FHRD_PASSWORD").env_remove("FHRD_NEW_PASSWORD").env("XDG_STATE_HOME", home.path("state"));
    if let Some(password) = password {
        command.env("FHRD_PASSWORD", password);
    }
    command.env("FHRD_NEW_PASSWORD", "newer").stdin(Stdio::null()).output().unwrap()
}

fn ok(home: &Home, password: &str, words: &[&str]) -> Output {
    let output = run(home, Some(password), words);
    assert_eq!(code(&output), 0, "{words:?}: {}", stderr(&output));
    output
}

/// A home with an encrypted repository `r` of two snapshots.
fn sealed() -> Home {
    let home = Home::new();
    ok(&home, "secret", &["init", "--repo", "r", "--encrypt", "--label", "first"]);
    let text = format!("{WORD} ").repeat(20_000);
    home.write(&format!("source/{WORD}/text"), text.as_bytes());
    home.write("source/noise", &noise(1, 400_000));
    ok(&home, "secret", &["backup", "--repo", "r", "source"]);
    home.write("source/text-2", text.replacen("PLANS ", "plans ", 50).as_bytes());
    ok(&home, "secret", &["backup", "--repo", "r", "source"]);
    home
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn an_encrypted_repository_works_and_shows_nothing() {
    let home = sealed();
    ok(&home, "secret", &["restore", "latest:source", "--repo", "r", "--target", "out"]);
    assert_eq!(describe(&home.path("source")), describe(&home.path("out")));
    for words in [
        &["check", "--read-data"][..],
        &["ls", "latest"],
        &["find", "text*"],
        &["stats", "latest"],
        &["repair", "index"],
        &["tag", "latest", "--add", "kept"],
        &["forget", "--keep-last", "1"],
        &["prune", "--grace", "0s"],
        &["check", "--read-data"],
    ] {
        ok(&home, "secret", &[words, &["--repo", "r"]].concat());
    }
    ok(&home, "secret", &["restore", "latest:source", "--repo", "r", "--target", "out-2"]);
    assert_eq!(describe(&home.path("source")), describe(&home.path("out-2")));
    let (mut salts, mut blobs) = (BTreeSet::new(), 0);
    for directory in ["r", "cache", "state"] {
        for path in files(&home.path(directory)) {
            let bytes = std::fs::read(&path).unwrap();
            let is_shown = bytes.windows(WORD.len()).any(|window| window == WORD.as_bytes());
            assert!(!is_shown, "{} shows the source", path.display());
            if bytes.starts_with(b"FHRDSEAL") && directory == "r" {
                blobs += 1;
                salts.insert(bytes[24..56].to_vec());
            }
        }
    }
    assert!(blobs >= 4 && salts.len() == blobs, "{blobs} blobs, {} keys", salts.len());
}

#[test]
fn what_is_stored_looks_like_noise() {
    let home = sealed();
    let mut counts = [0u64; 256];
    for path in files(&home.path("r/containers")) {
        std::fs::read(&path).unwrap()[64..].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    }
    let expected = counts.iter().sum::<u64>() as f64 / 256.0;
    assert!(expected > 1500.0, "{expected}");
    let chi_square: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    // 255 degrees of freedom: one in a million of all noise is above 377.
    assert!(chi_square < 377.0, "{chi_square}");
}

#[test]
fn a_missing_or_wrong_password_has_an_exit_code_of_its_own() {
    let home = sealed();
    for password in [None, Some("wrong"), Some("")] {
        for words in [&["snapshots"][..], &["backup", "source"], &["restore", "latest", "--target", "out"], &["check"]]
        {
            let output = run(&home, password, &[words, &["--repo", "r"]].concat());
            assert_eq!(code(&output), 12, "{password:?} {words:?}: {}", stderr(&output));
        }
    }
    assert!(!home.path("out").exists());
    home.write("password", b"secret\nsecond line\n");
    for words in [["--password-file", "password"], ["--password-command", "echo secret"]] {
        let output = run(&home, None, &[&["snapshots", "--repo", "r"][..], &words].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
    // What says where the secret is, and is no secret.
    home.write("long", &[b'x'; (1 << 20) + 1]);
    for words in [
        ["--password-file", "absent"],
        ["--key-file", "absent"],
        ["--key-file", "source"],
        ["--password-file", "long"],
        ["--password-command", "exit 3"],
        ["--password-command", "cat long"],
        ["--password-command", "echo"],
    ] {
        for verb in [&["snapshots"][..], &["key", "rotate"]] {
            let output = run(&home, None, &[verb, &["--repo", "r"], &words].concat());
            assert_eq!(code(&output), 12, "{words:?}: {}", stderr(&output));
        }
        // The secret of a new slot opens nothing, so nothing is locked.
        let new = words.map(|word| word.replacen("--", "--new-", 1));
        let output = run(&home, Some("secret"), &["key", "add", "--repo", "r", &new[0], &new[1]]);
        assert_eq!(code(&output), 1, "{new:?}: {}", stderr(&output));
    }
    assert_eq!(slots(&home), ["first"]);
    assert_eq!(code(&run(&home, None, &["init", "--repo", "s", "--encrypt", "--password-file", "absent"])), 1);
}

#[test]
fn the_command_line_chooses_among_secrets_and_empty_variables_count_as_not_set() {
    let home = sealed();
    home.write("password", b"secret\n");
    let with = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = home.command(words);
        command.env_remove("FHRD_PASSWORD").env("XDG_STATE_HOME", home.path("state")).stdin(Stdio::null());
        command.envs(variables.iter().copied()).output().unwrap()
    };
    let empty = ["FHRD_REPO", "FHRD_KEY_FILE", "FHRD_PASSWORD_FILE", "FHRD_PASSWORD", "FHRD_LIMIT_UPLOAD"];
    let empty = empty.map(|name| (name, ""));
    let given = ["snapshots", "--repo", "r", "--password-command", "echo secret"];
    for (variables, words) in [
        (&[("FHRD_KEY_FILE", "absent"), ("FHRD_PASSWORD_FILE", "absent")][..], &given[..]),
        (
            &[("FHRD_PASSWORD_COMMAND", "exit 1"), ("FHRD_KEY_FILE", "")],
            &["--password-file=password", "snapshots", "--repo=r"],
        ),
        (&[("FHRD_PASSWORD_FILE", "password"), ("FHRD_REPO", "r"), ("FHRD_KEY_FILE", "")], &["snapshots"]),
        (&empty, &given),
    ] {
        let output = with(variables, words);
        assert_eq!(code(&output), 0, "{variables:?} {words:?}: {}", stderr(&output));
    }
    // What only the environment says still counts, and says where it is from.
    let output = with(&[("FHRD_KEY_FILE", "absent")], &["snapshots", "--repo", "r"]);
    assert!(code(&output) == 12 && stderr(&output).contains("absent"), "{}", stderr(&output));
    let output = with(&empty, &["snapshots", "--repo", "r"]);
    assert_eq!(code(&output), 12);
    let warning = "warning: FHRD_PASSWORD is empty, so it counts as not set\n";
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
    assert!(!stderr(&with(&empty, &given)).contains(warning), "the password is from elsewhere");
}

/// A home with the plain repository `r` that no machine knows, and a source.
fn plain() -> Home {
    let home = Home::new();
    home.write("source/file", b"text");
    let output = run(&home, None, &["init", "--repo", "r"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let output = run(&home, None, &["backup", "--repo", "r", "source"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    home
}

#[test]
fn a_secret_and_a_local_repository_without_encryption_do_not_go_together() {
    let home = plain();
    home.write("password", b"secret\n");
    let before = files(&home.path("r"));
    let verbs = [
        &["backup", "source"][..],
        &["copy", "--from-repo", "r"],
        &["forget", "--keep-last", "1"],
        &["prune"],
        &["tag", "latest", "--add", "x"],
        &["rewrite", "latest", "--exclude", "x"],
        &["repair", "index"],
        &["check"],
        &["snapshots"],
        &["restore", "latest", "--target", "out"],
    ];
    for verb in verbs {
        let output = run(&home, Some("secret"), &[verb, &["--repo", "r"]].concat());
        assert_eq!(code(&output), 12, "{verb:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("--allow-unencrypted"), "{verb:?}: {}", stderr(&output));
    }
    for secret in [["--password-file", "password"], ["--password-command", "echo x"], ["--key-file", "password"]] {
        let output = run(&home, None, &[&["backup", "source", "--repo", "r"][..], &secret].concat());
        assert_eq!(code(&output), 12, "{secret:?}: {}", stderr(&output));
    }
    assert_eq!(files(&home.path("r")), before);
    ok(&home, "secret", &["backup", "source", "--repo", "r", "--allow-unencrypted"]);
    let mut command = home.command(&["backup", "source", "--repo", "r"]);
    command.env("XDG_STATE_HOME", home.path("state")).env("FHRD_PASSWORD", "secret").env("FHRD_ALLOW_UNENCRYPTED", "1");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn a_source_of_copies_without_encryption_is_refused_if_its_secret_is_given() {
    let home = plain();
    let output = run(&home, None, &["init", "--repo", "target", "--copy-chunker-params", "--from-repo", "r"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let copy = |variables: &[(&str, &str)]| {
        let mut command = home.command(&["copy", "--repo", "target", "--from-repo", "r"]);
        command.env_remove("FHRD_PASSWORD").env("XDG_STATE_HOME", home.path("state")).stdin(Stdio::null());
        code(&command.envs(variables.iter().copied()).output().unwrap())
    };
    assert_eq!(copy(&[("FHRD_FROM_PASSWORD", "secret")]), 12);
    assert_eq!(copy(&[("FHRD_FROM_PASSWORD", "")]), 0);
}

#[test]
fn a_new_repository_is_encrypted_if_a_secret_is_given() {
    let home = Home::new();
    home.write("source/file", b"text");
    let is_encrypted = |path: &str| home.path(path).join("keys").exists();
    ok(&home, "secret", &["init", "--repo", "r"]);
    ok(&home, "secret", &["backup", "--repo", "r", "source"]);
    ok(&home, "secret", &["backup", "source"]);
    assert!(is_encrypted("r") && is_encrypted("data/fhrd/repository"));
    let output = ok(&home, "secret", &["init", "--repo", "plain", "--unencrypted"]);
    assert!(stderr(&output).contains("--allow-unencrypted"), "{}", stderr(&output));
    assert!(!is_encrypted("plain"));
    assert_eq!(code(&run(&home, Some("secret"), &["backup", "--repo", "plain", "source"])), 12);
    ok(&home, "secret", &["backup", "--repo", "plain", "--allow-unencrypted", "source"]);
    assert_eq!(code(&run(&home, None, &["init", "--repo", "without"])), 0);
    assert!(!is_encrypted("without"));
}

fn slots(home: &Home) -> Vec<String> {
    let listed = json(&run(home, None, &["key", "list", "--repo", "r", "--json"]));
    listed.as_array().unwrap().iter().map(|slot| slot["label"].as_str().unwrap().to_string()).collect()
}

#[test]
fn key_slots_are_added_changed_and_removed() {
    let home = sealed();
    assert_eq!(slots(&home), ["first"]);
    ok(&home, "secret", &["key", "add", "--repo", "r", "--label", "second"]);
    assert_eq!(slots(&home), ["first", "second"]);
    ok(&home, "newer", &["ls", "latest", "--repo", "r"]);
    let added = json(&ok(&home, "secret", &["key", "add", "--repo", "r", "--recovery-key", "--json"]));
    ok(&home, added["recovery_key"].as_str().unwrap(), &["ls", "latest", "--repo", "r"]);
    let recovery_slot = added["added"][0].as_str().unwrap();
    let output = ok(&home, "secret", &["key", "remove", recovery_slot, "--repo", "r"]);
    assert!(stderr(&output).contains("key rotate"), "{}", stderr(&output));
    assert_eq!(code(&run(&home, added["recovery_key"].as_str(), &["ls", "latest", "--repo", "r"])), 12);
    ok(&home, "secret", &["key", "passwd", "--repo", "r", "--label", "third"]);
    assert_eq!(slots(&home), ["second", "third"]);
    assert_eq!(code(&run(&home, Some("secret"), &["ls", "latest", "--repo", "r"])), 12);
    for prefix in ["", "zz"] {
        assert_eq!(code(&run(&home, Some("newer"), &["key", "remove", prefix, "--repo", "r"])), 1, "`{prefix}`");
    }
    assert_eq!(slots(&home).len(), 2);
}

#[test]
fn a_new_master_key_encrypts_what_is_written_from_then_on() {
    let home = sealed();
    ok(&home, "secret", &["key", "add", "--repo", "r", "--label", "second"]);
    let rotated = json(&ok(&home, "secret", &["key", "rotate", "--repo", "r", "--json"]));
    assert_eq!(rotated["generation"], 2);
    assert_eq!(slots(&home), ["first"]);
    assert_eq!(code(&run(&home, Some("newer"), &["ls", "latest", "--repo", "r"])), 12);
    home.write("source/more", &noise(2, 100_000));
    let report = json(&ok(&home, "secret", &["backup", "--repo", "r", "source", "--json"]));
    assert!(report["chunks_new"].as_u64().is_some_and(|new| new > 0), "{report}");
    let generations: Vec<u8> =
        files(&home.path("r/containers")).iter().map(|path| std::fs::read(path).unwrap()[12]).collect();
    assert!(generations.contains(&1) && generations.contains(&2), "{generations:?}");
    ok(&home, "secret", &["check", "--read-data", "--repo", "r"]);
    ok(&home, "secret", &["restore", "latest:source", "--repo", "r", "--target", "out"]);
    assert_eq!(describe(&home.path("source")), describe(&home.path("out")));
}

#[test]
fn exported_keys_open_a_repository_whose_slots_are_lost() {
    let home = sealed();
    ok(&home, "secret", &["key", "export", "exported", "--repo", "r"]);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(home.path("exported").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::remove_dir_all(home.path("r/keys")).unwrap();
    assert_eq!(code(&run(&home, Some("secret"), &["ls", "latest", "--repo", "r"])), 12);
    // Keys of another repository are refused.
    ok(&home, "secret", &["init", "--repo", "other", "--encrypt"]);
    assert_eq!(code(&run(&home, None, &["key", "import", "exported", "--repo", "other"])), 12);
    let output = run(&home, None, &["key", "import", "exported", "--repo", "r"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    ok(&home, "newer", &["check", "--read-data", "--repo", "r"]);
    // A generation after which no other one can come.
    let digits = String::from_utf8(home.read("exported")).unwrap();
    let two = digits.replacen("81a20001015820", "82a20001015820", 1);
    assert_ne!(two, digits);
    let last = format!("{}a2001affffffff015820{}", two.trim_end(), "33".repeat(32));
    for content in [&b""[..], b"keys 00", &home.read("exported")[..100], b"\xff\xfe", last.as_bytes()] {
        home.write("bad", content);
        assert_eq!(code(&run(&home, None, &["key", "import", "bad", "--repo", "r"])), 20, "{content:?}");
    }
}

#[test]
fn an_exchanged_repository_is_noticed() {
    let home = sealed();
    // A plain repository, and one with keys of its own, in place of the first.
    for options in [&["--unencrypted"][..], &["--encrypt"]] {
        std::fs::rename(home.path("r"), home.path("kept")).unwrap();
        let output = run(&home, Some("secret"), &[&["init", "--repo", "fake"][..], options].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        std::fs::rename(home.path("fake"), home.path("r")).unwrap();
        let output = run(&home, Some("secret"), &["backup", "source", "--repo", "r"]);
        assert_eq!(code(&output), 12, "{}", stderr(&output));
        assert!(stderr(&output).contains("exchanged its files"), "{}", stderr(&output));
        assert!(files(&home.path("r/containers")).is_empty(), "nothing was stored there");
        std::fs::remove_dir_all(home.path("r")).unwrap();
        std::fs::rename(home.path("kept"), home.path("r")).unwrap();
    }
    // The configuration of another repository with a slot of this one.
    ok(&home, "secret", &["init", "--repo", "other", "--encrypt"]);
    for name in ["config", "config-copy"] {
        std::fs::copy(home.path(&format!("other/{name}")), home.path(&format!("r/{name}"))).unwrap();
    }
    let output = run(&home, Some("secret"), &["ls", "latest", "--repo", "r"]);
    assert_eq!(code(&output), 12, "{}", stderr(&output));
}

#[test]
fn a_link_to_another_repository_is_noticed() {
    let home = sealed();
    std::fs::rename(home.path("r"), home.path("kept")).unwrap();
    ok(&home, "secret", &["init", "--repo", "fake", "--unencrypted"]);
    std::os::unix::fs::symlink(home.path("fake"), home.path("r")).unwrap();
    let output = run(&home, Some("secret"), &["backup", "source", "--repo", "r"]);
    assert_eq!(code(&output), 12, "{}", stderr(&output));
    assert!(files(&home.path("fake/containers")).is_empty(), "nothing was stored there");
}

#[test]
fn an_encrypted_repository_that_is_gone_is_not_followed_by_a_plain_one() {
    let home = Home::new();
    home.write("source/file", b"text");
    ok(&home, "secret", &["init", "--encrypt"]);
    ok(&home, "secret", &["backup", "source"]);
    std::fs::remove_dir_all(home.path("data/fhrd/repository")).unwrap();
    for words in [["backup", "source"], ["init", "-v"]] {
        let output = run(&home, Some("secret"), &words);
        assert_eq!(code(&output), 12, "{}", stderr(&output));
        assert!(!home.path("data/fhrd/repository/config").exists());
    }
    // Whoever asks for a new encrypted one gets it.
    ok(&home, "another", &["init", "--encrypt"]);
    ok(&home, "another", &["backup", "source"]);
}

#[test]
fn an_old_key_slot_that_comes_back_is_noticed() {
    let home = sealed();
    let name = home.names("r/keys").remove(0);
    let old = home.read(&format!("r/keys/{name}"));
    ok(&home, "secret", &["key", "export", "exported", "--repo", "r"]);
    ok(&home, "secret", &["key", "rotate", "--repo", "r"]);
    let output = run(&home, Some("secret"), &["key", "import", "exported", "--repo", "r"]);
    assert!(code(&output) != 0 && stderr(&output).contains("later export"), "{}", stderr(&output));
    std::fs::rename(home.path("r/keys"), home.path("kept")).unwrap();
    home.write(&format!("r/keys/{name}"), &old);
    let output = run(&home, Some("secret"), &["backup", "source", "--repo", "r"]);
    assert_eq!(code(&output), 12, "{}", stderr(&output));
    assert!(stderr(&output).contains("older keys"), "{}", stderr(&output));
    // Beside the new one, it is not used.
    let new = home.names("kept").remove(0);
    std::fs::rename(home.path(&format!("kept/{new}")), home.path(&format!("r/keys/{new}"))).unwrap();
    ok(&home, "secret", &["backup", "source", "--repo", "r"]);
}

#[test]
fn an_old_key_slot_and_an_old_claim_that_come_back_change_nothing_where_the_repository_is_known() {
    let home = sealed();
    let old = home.names("r/keys").remove(0);
    let bytes = home.read(&format!("r/keys/{old}"));
    ok(&home, "secret", &["key", "rotate", "--repo", "r"]);
    let later = home.names("r/keys").remove(0);
    let store = fhrd::store::open(home.path("r")).unwrap();
    let unlock = fhrd::crypto::Unlock::Password(fhrd::crypto::SecretBytes::new(b"secret".to_vec()));
    let claim = crate::keys::returned::bring_back(&store, (&old, &bytes), &later, &unlock);
    home.write("source/more", &noise(2, 100_000));
    let before = files(&home.path("r/containers"));
    let output = ok(&home, "secret", &["backup", "--repo", "r", "source"]);
    for name in [&claim, &old] {
        assert!(stderr(&output).contains(name), "{}", stderr(&output));
    }
    let mut new = files(&home.path("r/containers"));
    new.retain(|path| !before.contains(path));
    assert!(!new.is_empty() && new.iter().all(|path| std::fs::read(path).unwrap()[12] == 2), "{new:?}");
    // Another machine remembers nothing.
    std::fs::remove_dir_all(home.path("state")).unwrap();
    let output = run(&home, Some("secret"), &["backup", "--repo", "r", "source"]);
    assert_eq!(code(&output), 12, "{}", stderr(&output));
    assert!(stderr(&output).contains(&claim) && stderr(&output).contains(&old), "{}", stderr(&output));
    ok(&home, "secret", &["key", "rotate", "--repo", "r"]);
    ok(&home, "secret", &["backup", "--repo", "r", "source"]);
    ok(&home, "secret", &["check", "--read-data", "--repo", "r"]);
}

#[test]
fn a_link_may_change_between_repositories_that_are_known() {
    let home = sealed();
    ok(&home, "secret", &["init", "--repo", "s", "--encrypt"]);
    for target in ["r", "s", "r"] {
        let _ = std::fs::remove_file(home.path("link"));
        std::os::unix::fs::symlink(home.path(target), home.path("link")).unwrap();
        ok(&home, "secret", &["backup", "source", "--repo", "link"]);
    }
}

#[test]
fn blobs_that_are_no_key_slots_lock_nobody_out_who_has_used_the_repository() {
    let home = sealed();
    for number in 0..400 {
        home.write(&format!("r/keys/{number:064x}"), b"no key slot");
    }
    ok(&home, "secret", &["snapshots", "--repo", "r"]);
    std::fs::remove_dir_all(home.path("state")).unwrap();
    let output = run(&home, Some("secret"), &["snapshots", "--repo", "r"]);
    assert_eq!(code(&output), 12, "{}", stderr(&output));
    assert!(stderr(&output).contains("Delete those that are no key slots"), "{}", stderr(&output));
}

#[test]
fn a_damaged_blob_costs_its_files_and_is_named() {
    let home = sealed();
    let containers = files(&home.path("r/containers"));
    let largest = containers.iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(largest, &bytes).unwrap();
    let output = run(&home, Some("secret"), &["check", "--read-data", "--repo", "r"]);
    assert_eq!(code(&output), 20);
    let name = largest.file_name().unwrap().to_str().unwrap();
    assert!(format!("{}{}", stdout(&output), stderr(&output)).contains(name), "{}", stderr(&output));
    // The next backup of the same source heals.
    ok(&home, "secret", &["backup", "--repo", "r", "source"]);
    ok(&home, "secret", &["restore", "latest:source", "--repo", "r", "--target", "out"]);
    assert_eq!(describe(&home.path("source")), describe(&home.path("out")));
}

#[test]
fn padded_containers_take_few_lengths_and_restore() {
    let home = Home::new();
    ok(&home, "secret", &["init", "--repo", "r", "--encrypt", "--pad-containers"]);
    for (number, len) in [1_000, 30_000, 333_333, 1_234_567].into_iter().enumerate() {
        home.write(&format!("source/{number}"), &noise(number as u64, len));
        ok(&home, "secret", &["backup", "--repo", "r", "source"]);
    }
    ok(&home, "secret", &["forget", "--repo", "r", "--keep-last", "1", "--prune", "--grace", "0s"]);
    let mut containers = 0;
    for path in files(&home.path("r/containers")) {
        let header = std::fs::read(&path).unwrap();
        let len = u64::from_le_bytes(header[16..24].try_into().unwrap());
        let significant = 64 - len.leading_zeros() - len.trailing_zeros();
        assert!(significant <= len.ilog2().ilog2() + 2, "{len} has {significant} significant bits");
        containers += 1;
    }
    assert!(containers > 1, "{containers}");
    ok(&home, "secret", &["check", "--repo", "r", "--read-data"]);
    ok(&home, "secret", &["restore", "latest:source", "--repo", "r", "--target", "out"]);
    assert_eq!(describe(&home.path("source")), describe(&home.path("out")));
}
