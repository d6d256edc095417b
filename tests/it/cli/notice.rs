//! Metrics files, and notices to a server that answers, hangs, redirects or refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::fixture::{Home, code, is_gone, stderr, stdout};
use crate::program::promtool;

/// A request: its first line, and its body.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// How a server answers.
#[derive(Clone, Copy)]
enum Behaviour {
    Answers(&'static str),
    Hangs,
    /// The first so many requests fail.
    FailsFirst(usize),
}

/// Starts a server for this process. Returns its address and what it is asked.
fn server(behaviour: Behaviour) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap().to_string(), Requests::default());
    let seen = requests.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let Some(request) = request(&stream) else { continue };
            let count = {
                let mut seen = seen.lock().unwrap();
                seen.push(request);
                seen.len()
            };
            let status = match behaviour {
                Behaviour::Answers(status) => status,
                Behaviour::FailsFirst(failures) if count <= failures => "503 Service Unavailable",
                Behaviour::FailsFirst(_) => "200 OK",
                Behaviour::Hangs => {
                    held.push(stream);
                    continue;
                }
            };
            let _ = write!(&stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (address, requests)
}

fn request(stream: &TcpStream) -> Option<(String, String)> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut line, mut len) = (String::new(), String::new(), 0);
    reader.read_line(&mut first).ok()?;
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
        assert!(!line.to_ascii_lowercase().starts_with("referer"), "{line}");
        line.clear();
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some((first.trim().to_string(), String::from_utf8(body).ok()?))
}

fn home(notify: &str) -> Home {
    let home = Home::new();
    let profile = format!("repo = 'store'\n[backup]\npaths = ['docs']\n[notify]\n{notify}\n");
    home.write("config/fhrd/nightly.toml", profile.as_bytes());
    home.write("docs/a", b"letter");
    assert_eq!(code(&home.run(&["init", "--profile", "nightly"])), 0);
    home
}

#[test]
fn start_success_and_failure_are_told_with_a_summary() {
    let (address, requests) = server(Behaviour::Answers("200 OK"));
    let home = home(&format!(
        "ping = 'http://{address}/s3cret/?a=b'\nwebhook_file = 'hook'\ncommand = 'echo $FHRD_EVENT $FHRD_VERB $FHRD_EXIT_CODE >> log'"
    ));
    home.write("hook", format!("http://{address}/hook-s3cret\n").as_bytes());
    let output = home.run(&["backup", "--profile", "nightly", "-vv"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!(stdout(&output) + &stderr(&output)).contains("s3cret"), "{}", stderr(&output));
    let seen: Vec<(String, String)> = std::mem::take(&mut requests.lock().unwrap());
    let (start, end, hook) = (&seen[0], &seen[1], &seen[2]);
    let run = start.0.split_once("rid=").unwrap().1;
    assert!(start.0.starts_with("POST /s3cret/start?a=b&rid="), "{start:?}");
    assert!(end.0.starts_with("POST /s3cret?a=b&rid=") && end.0.ends_with(run), "{end:?}");
    assert!(end.1.contains("fhrd backup of nightly on ") && end.1.contains("exit code 0"), "{end:?}");
    assert!(end.1.contains("1 files") && end.1.contains("6 B content"), "{end:?}");
    let document: Value = serde_json::from_str(&hook.1).unwrap();
    assert_eq!(
        (&document["event"], &document["verb"], &document["facts"]["files"]),
        (&"success".into(), &"backup".into(), &1.into())
    );
    assert_eq!(home.read("log"), b"success backup 0\n");

    assert_eq!(code(&home.run(&["backup", "--profile", "nightly", "--dry-run"])), 0);
    assert!(requests.lock().unwrap().is_empty(), "a dry run tells nobody");
    std::fs::remove_dir_all(home.path("store")).unwrap();
    assert_eq!(code(&home.run(&["check", "--profile", "nightly"])), 10);
    let seen: Vec<(String, String)> = std::mem::take(&mut requests.lock().unwrap());
    assert!(seen[1].0.starts_with("POST /s3cret/fail?") && seen[1].1.contains("failed: "), "{seen:?}");
    assert_eq!(home.read("log"), b"success backup 0\nfailure check 10\n");
}

#[test]
fn a_server_that_fails_at_first_is_asked_again() {
    let (address, requests) = server(Behaviour::FailsFirst(3));
    let home = home(&format!("webhook = 'http://{address}/hook'\nverbs = ['backup']"));
    assert_eq!(code(&home.run(&["check", "--profile", "nightly"])), 0);
    assert!(requests.lock().unwrap().is_empty());
    let output = home.run(&["backup", "--profile", "nightly"]);
    assert_eq!((code(&output), stderr(&output).contains("notify")), (0, false), "{}", stderr(&output));
    assert_eq!(requests.lock().unwrap().len(), 4);
}

#[test]
fn a_server_that_refuses_redirects_or_is_not_there_is_a_warning() {
    let elsewhere = "302 Found\r\nLocation: http://127.0.0.2:1/s3cret";
    for (behaviour, reason) in [(Behaviour::Answers("404 Not Found"), "404"), (Behaviour::Answers(elsewhere), "302")] {
        let (address, requests) = server(behaviour);
        let home = home(&format!("webhook = 'http://user:pw@{address}/s3cret'"));
        let output = home.run(&["backup", "--profile", "nightly"]);
        let text = stderr(&output);
        assert!(code(&output) == 0 && text.contains("notify.webhook") && text.contains(reason), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(requests.lock().unwrap().len(), 1, "it is not asked again");
    }
    let wrong = home("ping = 's3cret'\nwebhook_file = 'nowhere'\ncommand = 'exit 5'");
    let output = wrong.run(&["backup", "--profile", "nightly"]);
    let text = stderr(&output);
    assert!(code(&output) == 0 && text.contains("notify.ping") && text.contains("notify.webhook"), "{text}");
    assert!(text.contains("notify.command") && !text.contains("s3cret"), "{text}");
}

#[test]
fn a_server_that_hangs_delays_the_end_for_a_bounded_time() {
    let (address, _) = server(Behaviour::Hangs);
    let home = home(&format!("ping = 'http://{address}/s3cret'\nwebhook = 'http://{address}/s3cret'"));
    let started = Instant::now();
    let output = home.run(&["backup", "--profile", "nightly"]);
    let text = stderr(&output);
    assert!(code(&output) == 0 && text.contains("does not answer in time") && !text.contains("s3cret"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(70), "{:?}", started.elapsed());
}

#[test]
fn metrics_are_written_at_success_and_failure_and_replaced_at_once() {
    let home = home("");
    let value = |name: &str| {
        let text = String::from_utf8(home.read("fhrd.prom")).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("fhrd_{name}{{"))).map(str::to_string);
        line.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
    };
    assert_eq!(code(&home.run(&["backup", "--profile", "nightly", "--metrics-file", "fhrd.prom"])), 0);
    let text = String::from_utf8(home.read("fhrd.prom")).unwrap();
    assert!(text.contains("{verb=\"backup\",profile=\"nightly\"}") && text.ends_with('\n'), "{text}");
    assert_eq!(
        (value("last_run_success"), value("last_run_files"), value("last_run_content_bytes")),
        (Some(1.0), Some(1.0), Some(6.0))
    );
    let success = value("last_success_timestamp_seconds").unwrap();
    assert!(success > 1.6e9 && value("last_run_timestamp_seconds") == Some(success));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(home.path("fhrd.prom")).unwrap().permissions().mode() & 0o777, 0o644);

    std::fs::rename(home.path("store"), home.path("away")).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(code(&home.run(&["backup", "--profile", "nightly", "--metrics-file", "fhrd.prom"])), 10);
    assert_eq!(
        (value("last_run_success"), value("last_run_exit_code"), value("last_run_files")),
        (Some(0.0), Some(10.0), None)
    );
    assert_eq!(value("last_success_timestamp_seconds"), Some(success));
    assert!(value("last_run_timestamp_seconds") > Some(success));
    std::fs::rename(home.path("away"), home.path("store")).unwrap();
    for verb in ["check", "verify", "prune"] {
        assert_eq!(code(&home.run(&[verb, "--profile", "nightly", "--metrics-file", "fhrd.prom"])), 0);
        assert_eq!(value("last_run_success"), Some(1.0), "{verb}");
    }
    let names = home.names("");
    assert!(!names.iter().any(|name| name.contains("metrics")), "{names:?}");
    // A place that cannot be written to is a warning.
    let output = home.run(&["check", "--profile", "nightly", "--metrics-file", "nowhere/fhrd.prom"]);
    assert!(code(&output) == 0 && stderr(&output).contains("metrics"), "{}", stderr(&output));
    promtool(&home.read("fhrd.prom"));
}

#[test]
fn metrics_never_replace_a_device_a_pipe_or_a_link() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let home = home("");
    let pipe = home.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    symlink("file", home.path("link")).unwrap();
    symlink("/dev/null", home.path("null")).unwrap();
    home.write("file", b"fhrd_last_success_timestamp_seconds{verb=\"backup\",profile=\"nightly\"} NaN\n");
    let backup = |file: &str| home.run(&["backup", "--profile", "nightly", "--metrics-file", file]);
    for refused in ["pipe", "null", "/dev/null", "dangling"] {
        let _ = symlink("nowhere", home.path("dangling"));
        let output = backup(refused);
        assert!(code(&output) == 0 && stderr(&output).contains("metrics"), "{refused}: {}", stderr(&output));
    }
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    std::fs::rename(home.path("docs"), home.path("gone")).unwrap();
    assert_ne!(code(&backup("link")), 0);
    let text = String::from_utf8(home.read("file")).unwrap();
    assert!(!text.contains("NaN") && text.contains("last_run_success"), "{text}");
    assert!(home.path("link").is_symlink() && !home.path("nowhere").exists());
}

#[test]
fn a_schedule_is_written_once_and_runs_the_command() {
    let home = home("");
    let schedule =
        |more: &[&str]| home.run(&[&["schedule", "--daily", "04:30", "--profile", "nightly"], more].concat());
    let written = schedule(&["--directory", "units", "--json"]);
    let document: Value = serde_json::from_slice(&written.stdout).unwrap();
    assert_eq!((code(&written), &document["timer"]), (0, &"fhrd-backup-nightly.timer".into()));
    let service = String::from_utf8(home.read("units/fhrd-backup-nightly.service")).unwrap();
    let line = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut run = home.command(&[]);
    let program = line.split(' ').next().unwrap();
    assert_eq!(program, run.get_program());
    run.args(line.split(' ').skip(1));
    assert_eq!(code(&run.output().unwrap()), 0);
    let timer = String::from_utf8(home.read("units/fhrd-backup-nightly.timer")).unwrap();
    assert!(timer.contains("OnCalendar=*-*-* 04:30:00") && timer.contains("Persistent=true"), "{timer}");
    assert_eq!(code(&schedule(&["--directory", "units"])), 0, "the same again changes nothing");
    assert_eq!(code(&schedule(&["--directory", "units", "--on", "sat,sun"])), 1);
    assert_eq!(code(&schedule(&["--directory", "units", "--on", "sat,sun", "--force"])), 0);
    let timer = home.read("units/fhrd-backup-nightly.timer");
    assert!(String::from_utf8(timer).unwrap().contains("OnCalendar=Sat,Sun *-*-* 04:30:00"));

    let printed = stdout(&schedule(&["--print", "--", "verify", "--within", "90d"]));
    assert!(printed.contains(" verify --within 90d --profile nightly\n"), "{printed}");
    let crontab = stdout(&schedule(&["--crontab", "--on", "mon,sun"]));
    assert!(
        crontab.starts_with("30 4 * * 1,0 /") && crontab.ends_with("backup --profile nightly --quiet\n"),
        "{crontab}"
    );
    assert_eq!(code(&home.run(&["schedule", "--daily", "04:30", "--print"])), 1, "without a profile");
    assert_eq!(code(&schedule(&["--print", "--", "verify", "--nonsense"])), 1);
    for wrong in ["24:00", "4", "noon"] {
        assert_eq!(code(&home.run(&["schedule", "--daily", wrong, "--profile", "nightly", "--print"])), 2, "{wrong}");
    }
    if std::process::Command::new("systemd-analyze").arg("--version").output().is_ok() {
        let unit = home.path("units/fhrd-backup-nightly.timer");
        let output = std::process::Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
        let text = stderr(&output);
        let own: Vec<&str> =
            text.lines().filter(|line| line.contains("fhrd-backup")).filter(|line| !line.contains("man")).collect();
        assert!(own.is_empty(), "{own:?}");
    }
}

#[test]
fn a_command_that_does_not_end_in_time_is_ended_with_all_that_it_started() {
    let home = home("command = 'sleep 300 & echo $! > started; wait'");
    let started = Instant::now();
    let output = home.run(&["backup", "--profile", "nightly"]);
    let text = stderr(&output);
    assert!(code(&output) == 0 && text.contains("notify.command"), "{text}");
    // What it started holds the standard error of the run.
    assert!(started.elapsed() < Duration::from_secs(70), "{:?}", started.elapsed());
    assert!(is_gone(&home, "started"), "it goes on");
}

#[test]
fn a_quiet_command_still_says_what_goes_wrong() {
    let home = home("");
    let quiet = |arguments: &[&str]| {
        let output = home.run(&[arguments, &["--profile", "nightly", "--quiet"]].concat());
        (code(&output), stderr(&output))
    };
    assert_eq!(quiet(&["backup"]), (0, String::new()));
    // The code is that of the command: what it was asked for is done.
    for verb in ["backup", "check"] {
        let (exit, text) = quiet(&[verb, "--metrics-file", "docs/a/fhrd.prom"]);
        assert!(exit == 0 && text.starts_with("warning: the metrics are not written: "), "{verb} {exit} {text}");
    }
    std::os::unix::fs::symlink("nowhere", home.path("docs/link")).unwrap();
    let (exit, text) = quiet(&["backup", "--dereference"]);
    assert!(exit == 0 && text.contains("warning: ") && text.contains("link"), "{exit} {text}");
    std::fs::remove_file(home.path("docs/link")).unwrap();
    // An exit code of 3 is explained, although the summary that would do it is not shown.
    let containers = home.path("store/containers");
    std::fs::rename(&containers, home.path("away")).unwrap();
    std::fs::create_dir(&containers).unwrap();
    let (exit, text) = quiet(&["backup", "--force"]);
    assert!(exit == 3 && text.contains("missing or unreadable: run `fhrd repair index`"), "{exit} {text}");
}
