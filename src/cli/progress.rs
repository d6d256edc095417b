//! Progress on standard error during a long verb.
//!
//! 1. One thread reads the shared counters. On a terminal it draws a bar five times a second, otherwise it prints a
//!    line every ten seconds. With `--json --progress` it prints a JSON document on a line every second.
//! 2. For a backup, a second thread walks the paths, metadata only, to count the totals. It stops with the work.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::args::Options;
use super::output::{note, printable, size};
use super::pace::{Amounts, Pace, rounded};
use super::scan::Scan;
use crate::metrics::Progress;

const DRAW_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Between two samples of the speed, where no bar is drawn.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const BAR: &str = "{bar:24} {msg}\n{prefix}";
const SPINNER: &str = "{spinner} {msg}\n{prefix}";
/// Characters of the current file's path that fit on a line.
const PATH_CHARS: usize = 78;

/// The bar on the terminal, if there is one.
static ON_TERMINAL: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Runs `write` with the bar hidden.
pub fn above_bar<T>(write: impl FnOnce() -> T) -> T {
    let bar = ON_TERMINAL.lock().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Stops the progress threads when dropped, also after a panic of the work.
struct Ended<'a> {
    flag: &'a AtomicBool,
    _alive: Sender<()>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DisplayMode {
    /// A bar on a terminal, lines elsewhere.
    Text,
    /// A JSON document on a line of its own.
    Json,
}

/// Does `work` and shows `progress` meanwhile, unless the options forbid it. `scan` counts the totals.
pub fn shown<T>(options: &Options, progress: &Progress, scan: Option<Scan<'_>>, work: impl FnOnce() -> T) -> T {
    let mode = match options.json {
        true if options.progress => DisplayMode::Json,
        false if !options.quiet => DisplayMode::Text,
        _ => return work(),
    };
    let (ended, scanned) = (AtomicBool::new(false), AtomicBool::new(scan.is_none()));
    std::thread::scope(|scope| {
        let (alive, over) = channel();
        let guard = Ended { flag: &ended, _alive: alive };
        scope.spawn(|| show(mode, progress, &scanned, over));
        if let Some(scan) = &scan {
            scope.spawn(|| {
                scan.run(progress, &ended);
                scanned.store(true, Ordering::Relaxed);
            });
        }
        let done = work();
        drop(guard);
        done
    })
}

/// Shows the counters until the sender of `over` is dropped.
fn show(mode: DisplayMode, progress: &Progress, scanned: &AtomicBool, over: Receiver<()>) {
    let started = Instant::now();
    let mut pace = Pace::default();
    let mut sample = || {
        let progressed = Progressed::of(progress, scanned.load(Ordering::Relaxed));
        pace.record(started.elapsed(), progressed.done);
        (progressed.line(&pace), progressed.document(&pace, progress), progressed)
    };
    match mode {
        DisplayMode::Json => loop {
            let is_over = over.recv_timeout(SAMPLE_INTERVAL) != Err(RecvTimeoutError::Timeout);
            note(&sample().1.to_string());
            if is_over {
                return;
            }
        },
        DisplayMode::Text if !std::io::stderr().is_terminal() => {
            let samples_a_line = (LINE_INTERVAL.as_secs() / SAMPLE_INTERVAL.as_secs()) as u32;
            for number in 1u32.. {
                if over.recv_timeout(SAMPLE_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let (line, ..) = sample();
                if number.is_multiple_of(samples_a_line) {
                    note(&with_file(line, progress));
                }
            }
        }
        DisplayMode::Text => draw(progress, &over, || {
            let (line, _, progressed) = sample();
            (line, progressed)
        }),
    }
}

/// Draws a bar on the terminal until the sender of `over` is dropped, and the current file below it.
fn draw(progress: &Progress, over: &Receiver<()>, mut sample: impl FnMut() -> (String, Progressed)) {
    let bar = ProgressBar::no_length().with_style(style(SPINNER));
    *ON_TERMINAL.lock() = Some(bar.clone());
    let mut with_total = false;
    while over.recv_timeout(DRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let (line, progressed) = sample();
        let (done, total) = progressed.whole();
        bar.set_position(done);
        if let Some(total) = total {
            bar.set_length(total);
        }
        if total.is_some() != with_total {
            with_total = total.is_some();
            bar.set_style(style(if with_total { BAR } else { SPINNER }));
        }
        bar.set_message(line);
        bar.set_prefix(end_of(&current_file(progress), PATH_CHARS));
    }
    *ON_TERMINAL.lock() = None;
    bar.finish_and_clear();
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn current_file(progress: &Progress) -> String {
    printable(&progress.current.get().to_string_lossy())
}

/// A line with the current file, if there is one.
fn with_file(line: String, progress: &Progress) -> String {
    let file = current_file(progress);
    if file.is_empty() { line } else { format!("{line}, at {file}") }
}

/// The end of a long text.
fn end_of(text: &str, chars_max: usize) -> String {
    let count = text.chars().count();
    if count <= chars_max { text.into() } else { text.chars().skip(count - chars_max).collect() }
}

/// How far a run is. Totals are those of all entries that are no directories, and of their bytes outside holes.
#[derive(Debug, Clone, Copy)]
struct Progressed {
    done: Amounts,
    problems: u64,
    /// Entries and bytes, once they are known.
    totals: Option<(u64, u64)>,
}

impl Progressed {
    fn of(progress: &Progress, is_known: bool) -> Self {
        let done = Amounts {
            entries: progress.files_done.get(),
            bytes: progress.bytes_read.get(),
            skipped: progress.bytes_skipped.get(),
        };
        let totals = (progress.files_total.get(), progress.bytes_total.get());
        let is_known = is_known && totals != (0, 0);
        // What grows while it is read is still done.
        let totals = (totals.0.max(done.entries), totals.1.max(done.bytes.saturating_add(done.skipped)));
        Progressed { done, problems: progress.errors.get(), totals: is_known.then_some(totals) }
    }

    fn bytes_done(&self) -> u64 {
        self.done.bytes.saturating_add(self.done.skipped)
    }

    /// Whether there are bytes to count. Otherwise entries are counted.
    fn has_bytes(&self) -> bool {
        self.bytes_done() > 0 || self.totals.is_some_and(|(_, bytes)| bytes > 0)
    }

    /// What is done, and all of it if that is known.
    fn whole(&self) -> (u64, Option<u64>) {
        match self.has_bytes() {
            true => (self.bytes_done(), self.totals.map(|(_, bytes)| bytes)),
            false => (self.done.entries, self.totals.map(|(entries, _)| entries)),
        }
    }

    fn left(&self, pace: &Pace) -> Option<Duration> {
        self.totals.and_then(|(entries, bytes)| pace.left(entries, bytes))
    }

    /// Amounts, speed and time left.
    fn line(&self, pace: &Pace) -> String {
        let mut parts = Vec::new();
        if self.has_bytes() {
            let of = self.totals.map(|(_, bytes)| format!(" of {}", size(bytes))).unwrap_or_default();
            parts.push(format!("{}{of}, {}/s", size(self.bytes_done()), size(pace.bytes_per_second() as u64)));
        }
        let of = self.totals.filter(|(entries, _)| *entries > 0).map(|(entries, _)| format!(" of {entries}"));
        parts.push(format!("{}{} files", self.done.entries, of.unwrap_or_default()));
        match self.problems {
            0 => {}
            1 => parts.push("1 problem".into()),
            several => parts.push(format!("{several} problems")),
        }
        parts.extend(self.left(pace).map(|left| format!("{} left", rounded(left))));
        parts.join(", ")
    }

    fn document(&self, pace: &Pace, progress: &Progress) -> Value {
        let file = progress.current.get();
        json!({"progress": {
            "files_done": self.done.entries,
            "files_total": self.totals.map(|(entries, _)| entries),
            "bytes_done": self.bytes_done(),
            "bytes_total": self.totals.map(|(_, bytes)| bytes),
            "bytes_per_second": pace.bytes_per_second() as u64,
            "seconds_left": self.left(pace).map(|left| left.as_secs()),
            "problems": self.problems,
            "file": (!file.as_os_str().is_empty()).then(|| file.to_string_lossy()),
        }})
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shown_after(progress: &Progress, is_known: bool, seconds: u64) -> String {
        let (mut pace, progressed) = (Pace::default(), Progressed::of(progress, is_known));
        pace.record(Duration::from_secs(seconds), progressed.done);
        progressed.line(&pace)
    }

    #[test]
    fn totals_and_the_time_left_are_shown_after_the_scan() {
        let progress = Progress::default();
        progress.bytes_read.add(1 << 20);
        progress.files_done.add(64);
        assert_eq!(shown_after(&progress, false, 2), "1.0 MiB, 512.0 KiB/s, 64 files");
        progress.bytes_total.add(2 << 20);
        assert_eq!(shown_after(&progress, false, 4), "1.0 MiB, 256.0 KiB/s, 64 files");
        progress.files_total.add(128);
        progress.errors.add(1);
        assert_eq!(
            shown_after(&progress, true, 4),
            "1.0 MiB of 2.0 MiB, 256.0 KiB/s, 64 of 128 files, 1 problem, 4 s left"
        );
        progress.files_done.add(100);
        assert!(shown_after(&progress, true, 4).contains("164 of 164 files"));
    }

    #[test]
    fn skipped_bytes_are_done_but_no_speed() {
        let progress = Progress::default();
        progress.bytes_read.add(1 << 20);
        progress.bytes_skipped.add(99 << 20);
        progress.bytes_total.add(200 << 20);
        assert_eq!(shown_after(&progress, true, 4), "100.0 MiB of 200.0 MiB, 256.0 KiB/s, 0 files, 4 s left");
    }

    #[test]
    fn without_bytes_the_files_tell_the_time_left() {
        let progress = Progress::default();
        progress.files_total.add(400);
        progress.files_done.add(100);
        assert_eq!(shown_after(&progress, true, 50), "100 of 400 files, 2 min 30 s left");
    }

    #[test]
    fn the_current_file_is_shown_by_its_end() {
        let progress = Progress::default();
        assert_eq!(with_file("x".into(), &progress), "x");
        progress.current.set(Path::new("src/a\u{1b}b"));
        assert_eq!(with_file("x".into(), &progress), "x, at src/a?b");
        assert_eq!((end_of("äbc", 2), end_of("äbc", 3)), ("bc".into(), "äbc".into()));
    }

    #[test]
    fn indicatif_accepts_every_template() {
        assert!([BAR, SPINNER].into_iter().all(|template| ProgressStyle::with_template(template).is_ok()));
    }
}
