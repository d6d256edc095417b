//! Runs that wait for input, and what stops them; and inputs that never end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{Home, code, is_gone, stderr, stdout};

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn prepared() -> Home {
    let home = Home::new();
    home.write("src/one", b"content");
    assert_eq!(code(&home.run(&["init", "--repo", "repo", "--quiet"])), 0);
    home.backup(&["src", "--repo", "repo"]);
    make_pipe(&home.path("pipe"));
    home
}

/// How a run has ended; `None` if it has not within `limit`.
fn within(child: Child, limit: Duration) -> Option<Output> {
    let (pid, started) = (Pid::from_child(&child), Instant::now());
    let ended = std::thread::spawn(move || child.wait_with_output().unwrap());
    while started.elapsed() < limit {
        if ended.is_finished() {
            return Some(ended.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(pid, Signal::KILL).unwrap();
    None
}

fn started(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn the_first_signal_ends_a_run_that_waits_for_input() {
    let home = prepared();
    assert_eq!(
        code(&home.command(&["init", "--repo", "locked", "--quiet"]).env("FHRD_PASSWORD", "x").output().unwrap()),
        0
    );
    let waiting: [&[&str]; 11] = [
        &["backup", "--read-special", "pipe", "--repo", "repo"],
        &["backup", "src", "--exclude-file", "pipe", "--repo", "repo"],
        &["backup", "--files-from", "pipe", "--repo", "repo"],
        &["backup", "--files-from0", "pipe", "--repo", "repo"],
        &["restore", "latest", "--target", "back", "--exclude-file", "pipe", "--repo", "repo"],
        &["snapshots", "--profile", "./pipe", "--repo", "repo"],
        &["backup", "src", "--config", "pipe", "--repo", "repo"],
        &["snapshots", "--password-file", "pipe", "--repo", "locked"],
        &["snapshots", "--key-file", "pipe", "--repo", "locked"],
        &["snapshots", "--password-command", "exec sleep 100", "--repo", "locked"],
        &["snapshots", "--password-command", "exec >&-; exec sleep 100", "--repo", "locked"],
    ];
    let mut wrong = Vec::new();
    for arguments in waiting {
        for signal in [Signal::INT, Signal::TERM] {
            let child = started(&mut home.command(arguments));
            std::thread::sleep(Duration::from_millis(700));
            kill_process(Pid::from_child(&child), signal).unwrap();
            match within(child, Duration::from_secs(5)) {
                Some(output) if code(&output) == 130 => {}
                Some(output) => wrong.push(format!("{arguments:?}: {} {}", code(&output), stderr(&output))),
                None => wrong.push(format!("{arguments:?}: goes on")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A command of the shell that starts another process and waits for it.
const STARTS_ANOTHER: &str = "sleep 300 & echo $! > started; wait";

/// Runs `fhrd` with a command like [`STARTS_ANOTHER`] and asks it to stop. Both have to end.
fn assert_signal_ends_all(home: &Home, arguments: &[&str]) {
    let fhrd = home.command(arguments);
    let envs = fhrd.get_envs().filter_map(|(name, value)| Some((name, value?)));
    // On a terminal, the command stays in the group of who may type there.
    let mut alone = Command::new("setsid");
    alone.arg("--wait").arg(fhrd.get_program()).args(arguments).envs(envs).current_dir(home.path(""));
    let child = started(&mut alone);
    for _ in 0..200 {
        if fs::read(home.path("started")).is_ok_and(|text| text.ends_with(b"\n")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(within(child, Duration::from_secs(5)).map(|output| code(&output)), Some(130));
    assert!(is_gone(home, "started"), "it goes on");
}

#[test]
fn a_signal_ends_what_a_password_command_has_started() {
    let home = prepared();
    assert_eq!(
        code(&home.command(&["init", "--repo", "locked", "--quiet"]).env("FHRD_PASSWORD", "x").output().unwrap()),
        0
    );
    assert_signal_ends_all(&home, &["snapshots", "--password-command", STARTS_ANOTHER, "--repo", "locked"]);
}

#[test]
fn a_signal_ends_what_a_credential_process_has_started() {
    let home = prepared();
    home.write(".aws/config", format!("[default]\ncredential_process = {STARTS_ANOTHER}\n").as_bytes());
    assert_signal_ends_all(&home, &["snapshots", "--repo", "s3://bucket/prefix"]);
}

#[test]
fn a_signal_ends_what_the_command_of_a_stream_has_started() {
    let home = prepared();
    let named = format!("x={STARTS_ANOTHER}");
    assert_signal_ends_all(&home, &["backup", "--stdin-from-command", &named, "--repo", "repo"]);
}

#[test]
fn pipes_and_standard_input_serve_as_files() {
    let home = prepared();
    home.write("src/two", b"other content");
    let write_late = |text: &'static str| {
        let pipe = home.path("pipe");
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            fs::write(pipe, text).unwrap();
        })
    };
    let listed = || stdout(&home.run(&["ls", "latest", "--repo", "repo"]));
    for (arguments, text, has) in [
        (&["backup", "src", "--exclude-file", "pipe"][..], "two\n", [true, false]),
        (&["backup", "--files-from", "pipe"][..], "src/two\n", [false, true]),
    ] {
        let writer = write_late(text);
        let child = started(home.command(arguments).args(["--repo", "repo"]));
        let output = within(child, Duration::from_secs(60)).expect("ends");
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        writer.join().unwrap();
        assert_eq!(["src/one", "src/two"].map(|name| listed().contains(name)), has, "{arguments:?}");
    }
    let shell = |script: &str| {
        let fhrd = home.command(&[]);
        let envs = fhrd.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let mut command = Command::new("bash");
        command.args(["-c", script]).env("F", fhrd.get_program()).envs(envs).current_dir(home.path(""));
        within(started(&mut command), Duration::from_secs(60)).expect("ends")
    };
    for script in [
        "printf 'two\\n' | $F backup src --exclude-file - --repo repo -q",
        "printf 'two\\n' | $F backup src --exclude-file /dev/stdin --repo repo -q",
        "$F backup src --exclude-file <(sleep 0.3; echo two) --repo repo -q",
        "$F backup src --exclude-file <(echo two) --exclude-file <(true) --config <(true) --repo repo -q",
    ] {
        let output = shell(script);
        assert_eq!(code(&output), 0, "{script}: {}", stderr(&output));
        assert!(listed().contains("src/one") && !listed().contains("src/two"), "{script}: {}", listed());
    }
    let writer = write_late("what comes late");
    let child = started(&mut home.command(&["backup", "--read-special", "pipe", "--repo", "repo"]));
    assert_eq!(within(child, Duration::from_secs(60)).map(|output| code(&output)), Some(0));
    writer.join().unwrap();
    let pipe = "latest:pipe".to_string();
    assert_eq!(stdout(&home.run(&["cat", &pipe, "--repo", "repo"])), "what comes late");
}

#[test]
fn a_time_zone_that_is_no_file_counts_as_unknown() {
    let home = prepared();
    fs::create_dir(home.path("zones")).unwrap();
    symlink("/dev/zero", home.path("zones/zero")).unwrap();
    let file = fs::File::create(home.path("zones/long")).unwrap();
    file.set_len(1 << 33).unwrap();
    let (pipe, zones) = (home.path("pipe").display().to_string(), home.path("zones").display().to_string());
    for zone in ["/dev/zero", ":/dev/zero", &pipe, &format!(":{pipe}"), &zones, &format!("{zones}/long"), "nonsense"] {
        let child = started(home.command(&["snapshots", "--repo", "repo"]).env("TZ", zone));
        let output = within(child, Duration::from_secs(20)).unwrap_or_else(|| panic!("TZ={zone} ends"));
        assert!(code(&output) == 0 && stderr(&output).contains("TZ names no time zone"), "{zone}: {}", stderr(&output));
    }
    let zone = home.command(&["snapshots", "--repo", "repo"]).env("TZ", "Europe/Berlin").output().unwrap();
    assert!(code(&zone) == 0 && !stderr(&zone).contains("TZ names"), "{}", stderr(&zone));
}

#[cfg(target_os = "linux")]
#[test]
fn data_for_a_standard_output_that_is_closed_is_an_error() {
    let home = prepared();
    let file = "latest:src/one".to_string();
    for (arguments, redirection, expected) in [
        (vec!["cat", &file], ">&-", 1),
        (vec!["dump", "latest"], ">&-", 1),
        (vec!["dump", "latest", "--output", "archive.tar"], ">&-", 0),
        (vec!["cat", &file], ">/dev/null", 0),
        (vec!["snapshots"], ">&-", 0),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec \"$@\" {redirection}"), "sh"]).arg(home.command(&[]).get_program());
        command.args(&arguments).args(["--repo", "repo"]).current_dir(home.path(""));
        command.envs(home.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().unwrap();
        assert_eq!(code(&output), expected, "{arguments:?} {redirection}: {}", stderr(&output));
    }
}
