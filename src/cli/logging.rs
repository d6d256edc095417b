//! Log lines on standard error: `warning: …`, without time or module, above the progress bar. Lines that name a change
//! of an entry, such as `+  src/new`, have no level.
//!
//! An error or a warning is printed once. If it comes again, [`finish`] says how often.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use parking_lot::Mutex;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::args::Options;
use super::output::printable;
use super::progress::above_bar;
use crate::backup::CHANGES_TARGET;

/// Distinct lines whose repetitions are counted. Further lines are printed each time.
const LINES_MAX: usize = 1024;
/// Bytes of these lines.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The lines of this process.
static LINES: Mutex<Lines> = Mutex::new(Lines { counts: BTreeMap::new(), bytes: 0 });

/// Lines that were printed, and how often they came again.
struct Lines {
    counts: BTreeMap<String, u64>,
    bytes: usize,
}

impl Lines {
    /// Whether to print a line now: it is new, or there is no memory to know.
    fn is_new(&mut self, line: &str) -> bool {
        if let Some(count) = self.counts.get_mut(line) {
            *count += 1;
            return false;
        }
        if self.counts.len() < LINES_MAX && self.bytes + line.len() <= LINE_BYTES_MAX {
            self.bytes += line.len();
            self.counts.insert(line.to_string(), 0);
        }
        true
    }

    /// Forgets all lines. Returns those that came again.
    fn repeated(&mut self) -> Vec<String> {
        self.bytes = 0;
        let counts = std::mem::take(&mut self.counts).into_iter();
        let line = |(line, count): (String, u64)| format!("{line} ({count} more times)");
        counts.filter(|(_, count)| *count > 0).map(line).collect()
    }
}

/// Prints each line that came again, with its number.
pub fn finish() {
    let repeated = LINES.lock().repeated();
    for line in repeated {
        // Nothing can be done if standard error is closed.
        let _ = above_bar(|| writeln!(io::stderr(), "{line}"));
    }
}

/// Prints events from now on: errors and warnings, also with `-q`. `-v` adds information, `-vv` everything.
pub fn start(options: &Options) {
    let level = match options.verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt().with_max_level(level).event_format(PlainFormat).with_writer(|| AboveBar);
    // A program that embeds fhrd may have set its own subscriber.
    let _ = subscriber.try_init();
}

/// Formats an event as `level: message`.
struct PlainFormat;

impl<S, N> FormatEvent<S, N> for PlainFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let name = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            _ => "debug",
        };
        let mut fields = FormattedFields::<N>::new(String::new());
        context.field_format().format_fields(fields.as_writer(), event)?;
        let text = printable(&fields.fields);
        let line = if event.metadata().target() == CHANGES_TARGET { text } else { format!("{name}: {text}") };
        let can_repeat = *event.metadata().level() <= Level::WARN;
        if can_repeat && !LINES.lock().is_new(&line) {
            return Ok(());
        }
        writeln!(writer, "{line}")
    }
}

/// Standard error, written above the progress bar.
struct AboveBar;

impl Write for AboveBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        above_bar(|| io::stderr().write_all(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_printed_once_and_counted_within_bounds() {
        let mut lines = Lines { counts: BTreeMap::new(), bytes: 0 };
        let printed = ["a", "b", "a", "a"].map(|line| lines.is_new(line));
        assert_eq!(printed, [true, true, false, false]);
        assert_eq!(lines.repeated(), ["a (2 more times)"]);
        assert!(lines.is_new("a"));
        let long = "x".repeat(LINE_BYTES_MAX);
        assert!(lines.is_new(&long) && lines.is_new(&long), "too long to remember");
        (0..2 * LINES_MAX).for_each(|number| assert!(lines.is_new(&number.to_string())));
        assert_eq!(lines.counts.len(), LINES_MAX);
    }
}
