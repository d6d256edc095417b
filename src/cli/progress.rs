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
use super::output::{note, rate, size};
use super::scan::Scan;
use crate::metrics::Progress;

const DRAW_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const BAR: &str = "{bar:24} {bytes} of {total_bytes}, {bytes_per_sec}, {msg}, {eta} left";
const SPINNER: &str = "{spinner} {bytes}, {bytes_per_sec}, {msg}";

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
    if !std::io::stderr().is_terminal() {
        let started = Instant::now();
        while over.recv_timeout(LINE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            note(&line(progress, scanned.load(Ordering::Relaxed), started.elapsed()));
        }
        return;
    }
    let bar = ProgressBar::no_length().with_style(style(SPINNER));
    *ON_TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    let mut with_total = false;
    while over.recv_timeout(DRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let known = scanned.load(Ordering::Relaxed) && progress.bytes_total.get() > 0;
        bar.set_position(progress.bytes_read.get());
        if known {
            bar.set_length(progress.bytes_total.get().max(progress.bytes_read.get()));
        }
        if known != with_total {
            bar.set_style(style(if known { BAR } else { SPINNER }));
            with_total = known;
        }
        bar.set_message(files(progress, known));
    }
    *ON_TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = None;
    bar.finish_and_clear();
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn files(progress: &Progress, known: bool) -> String {
    let (done, total) = (progress.files_done.get(), progress.files_total.get());
    let errors = progress.errors.get();
    let errors = match errors {
        0 => String::new(),
        1 => ", 1 problem".into(),
        several => format!(", {several} problems"),
    };
    let total = if known { format!(" of {}", total.max(done)) } else { String::new() };
    format!("{done}{total} files{errors}")
}

fn line(progress: &Progress, known: bool, elapsed: Duration) -> String {
    let (done, total) = (progress.bytes_read.get(), progress.bytes_total.get());
    let seconds = elapsed.as_secs_f64();
    let known = known && total > 0;
    let of = if known { format!(" of {}", size(total.max(done))) } else { String::new() };
    format!("{}{of}, {}, {}", size(done), rate(done, seconds), files(progress, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_shown_after_the_scan() {
        let progress = Progress::default();
        progress.bytes_read.add(1 << 20);
        progress.files_done.add(3);
        let seconds = Duration::from_secs(2);
        assert_eq!(line(&progress, false, seconds), "1.0 MiB, 512.0 KiB/s, 3 files");
        progress.bytes_total.add(2 << 20);
        progress.files_total.add(4);
        progress.errors.add(1);
        assert_eq!(line(&progress, true, seconds), "1.0 MiB of 2.0 MiB, 512.0 KiB/s, 3 of 4 files, 1 problem");
    }

    #[test]
    fn indicatif_accepts_every_template() {
        assert!([BAR, SPINNER].into_iter().all(|template| ProgressStyle::with_template(template).is_ok()));
    }
}
