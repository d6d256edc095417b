//! Log lines on standard error: `warning: …`, without time or module, above the progress bar.

use std::fmt;
use std::io::{self, Write};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::args::Options;
use super::output::printable;
use super::progress::above_bar;

/// Prints events from now on: errors and warnings. `-v` adds information, `-vv` everything; `-q` prints errors only.
pub fn start(options: &Options) {
    let level = match options.verbose {
        _ if options.quiet => Level::ERROR,
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
        writeln!(writer, "{name}: {}", printable(&fields.fields))
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
