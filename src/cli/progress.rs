//! Progress on standard error during a long verb.
//!
//! 1. One thread reads the shared counters. On a terminal it draws a bar five times a second, otherwise it prints a
//!    line every ten seconds.
//! 2. For a backup, a second thread walks the paths, metadata only, to count the totals. It stops with the work.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::args::Options;
use super::output::{note, size};
use super::pace::{Pace, rounded};
use super::scan::Scan;
use crate::metrics::Progress;

const DRAW_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Between two samples of the speed, where no bar is drawn.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const BAR: &str = "{bar:24} {msg}";
const SPINNER: &str = "{spinner} {msg}";

/// The bar on the terminal, if there is one.
static ON_TERMINAL: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Runs `write` with the bar hidden.
pub fn above_bar<T>(write: impl FnOnce() -> T) -> T {
    let bar = ON_TERMINAL.lock().unwrap_or_else(PoisonError::into_inner).clone();
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

/// Does `work` and shows `progress` meanwhile, unless the options forbid it. `scan` counts the totals.
pub fn shown<T>(options: &Options, progress: &Progress, scan: Option<Scan<'_>>, work: impl FnOnce() -> T) -> T {
    if options.quiet || options.json {
        return work();
    }
    let (ended, scanned) = (AtomicBool::new(false), AtomicBool::new(scan.is_none()));
    std::thread::scope(|scope| {
        let (alive, over) = channel();
        let guard = Ended { flag: &ended, _alive: alive };
        scope.spawn(|| show(progress, &scanned, over));
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
fn show(progress: &Progress, scanned: &AtomicBool, over: Receiver<()>) {
    let started = Instant::now();
    let mut pace = Pace::default();
    let mut sample = || {
        let (total_is_known, progressed) = (scanned.load(Ordering::Relaxed), Progressed::of(progress));
        pace.record(started.elapsed(), progressed.done);
        (line(progress, &progressed, total_is_known, &pace), progressed, total_is_known)
    };
    if !std::io::stderr().is_terminal() {
        let samples_a_line = (LINE_INTERVAL.as_secs() / SAMPLE_INTERVAL.as_secs()) as u32;
        for number in 1u32.. {
            if over.recv_timeout(SAMPLE_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let (line, ..) = sample();
            if number.is_multiple_of(samples_a_line) {
                note(&line);
            }
        }
    }
    let bar = ProgressBar::no_length().with_style(style(SPINNER));
    *ON_TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    let mut with_total = false;
    while over.recv_timeout(DRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let (line, progressed, is_known) = sample();
        let is_known = is_known && progressed.total > 0;
        bar.set_position(progressed.done);
        if is_known {
            bar.set_length(progressed.total.max(progressed.done));
        }
        if is_known != with_total {
            bar.set_style(style(if is_known { BAR } else { SPINNER }));
            with_total = is_known;
        }
        bar.set_message(line);
    }
    *ON_TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = None;
    bar.finish_and_clear();
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What the speed is measured in: bytes, or files where no bytes are counted.
#[derive(Debug, Clone, Copy)]
struct Progressed {
    done: u64,
    /// 0: not known.
    total: u64,
    in_bytes: bool,
}

impl Progressed {
    fn of(progress: &Progress) -> Self {
        let (done, total) = (progress.bytes_read.get(), progress.bytes_total.get());
        if done == 0 && total == 0 {
            return Progressed { done: progress.files_done.get(), total: progress.files_total.get(), in_bytes: false };
        }
        Progressed { done, total, in_bytes: true }
    }
}

fn files(progress: &Progress, is_known: bool) -> String {
    let (done, total) = (progress.files_done.get(), progress.files_total.get());
    let errors = match progress.errors.get() {
        0 => String::new(),
        1 => ", 1 problem".into(),
        several => format!(", {several} problems"),
    };
    let total = if is_known && total > 0 { format!(" of {}", total.max(done)) } else { String::new() };
    format!("{done}{total} files{errors}")
}

/// Amounts, speed and time left.
fn line(progress: &Progress, progressed: &Progressed, is_known: bool, pace: &Pace) -> String {
    let Progressed { done, total, in_bytes } = *progressed;
    let is_known = is_known && total > 0;
    let mut parts = Vec::new();
    if in_bytes {
        let of = if is_known { format!(" of {}", size(total.max(done))) } else { String::new() };
        parts.push(format!("{}{of}, {}/s", size(done), size(pace.rate() as u64)));
    }
    parts.push(files(progress, is_known));
    if let Some(left) = pace.left(total).filter(|_| is_known) {
        parts.push(format!("{} left", rounded(left)));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_after(progress: &Progress, is_known: bool, seconds: u64) -> String {
        let (mut pace, progressed) = (Pace::default(), Progressed::of(progress));
        pace.record(Duration::from_secs(seconds), progressed.done);
        line(progress, &progressed, is_known, &pace)
    }

    #[test]
    fn totals_and_the_time_left_are_shown_after_the_scan() {
        let progress = Progress::default();
        progress.bytes_read.add(1 << 20);
        progress.files_done.add(3);
        assert_eq!(shown_after(&progress, false, 2), "1.0 MiB, 512.0 KiB/s, 3 files");
        progress.bytes_total.add(2 << 20);
        assert_eq!(shown_after(&progress, false, 4), "1.0 MiB, 256.0 KiB/s, 3 files");
        progress.files_total.add(4);
        progress.errors.add(1);
        assert_eq!(
            shown_after(&progress, true, 4),
            "1.0 MiB of 2.0 MiB, 256.0 KiB/s, 3 of 4 files, 1 problem, 4 s left"
        );
    }

    #[test]
    fn without_bytes_the_files_tell_the_time_left() {
        let progress = Progress::default();
        progress.files_total.add(400);
        progress.files_done.add(100);
        assert_eq!(shown_after(&progress, true, 50), "100 of 400 files, 2 min 30 s left");
    }

    #[test]
    fn indicatif_accepts_every_template() {
        assert!([BAR, SPINNER].into_iter().all(|template| ProgressStyle::with_template(template).is_ok()));
    }
}
