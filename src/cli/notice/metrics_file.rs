//! Metrics of the last run in the text format of Prometheus, for node_exporter's textfile collector.
//!
//! 1. Each verb of each profile has a file of its own: node_exporter drops a series that two files have. Names and help
//!    are the same in all of them, and there are no times of samples, which it refuses.
//! 2. The file is replaced at once, so no reader sees half of it. Its temporary name does not end in `.prom`.
//! 3. The time of the last success outlives failures: it is taken from the old file.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::facts::RunFact;
use super::watch::RunEnd;
use crate::cli::output::replaceable;
use crate::error::{Error, Result};
use crate::store::LocalFile;
use crate::wire::read_regular;

/// Start of each line with the time of the last success.
const LAST_SUCCESS: &str = "fhrd_last_success_timestamp_seconds";
/// Bytes of an old file, at most.
const OLD_BYTES_MAX: u64 = 1 << 20;
/// Whoever collects metrics is another user.
const MODE: u32 = 0o644;

/// Replaces the file.
///
/// # Errors
/// [`Error::Io`] with the path.
pub(super) fn write(path: &Path, end: &RunEnd<'_>) -> Result<()> {
    let failed = |error| Error::io("write", path, error);
    let path = &replaceable(path).map_err(failed)?;
    let now = jiff::Timestamp::now().as_second() as f64;
    let last_success = if end.is_success { Some(now) } else { old_success(path).map_err(failed)? };
    let text = text(end, now, last_success)?;
    let write = || {
        let mut file = LocalFile::create(path)?.with_mode(MODE)?;
        file.write_all(text.as_bytes())?;
        file.publish()
    };
    write().map_err(failed)
}

/// The time of the last success that the file has. A file that cannot be read may have one, and is left as it is.
fn old_success(path: &Path) -> io::Result<Option<f64>> {
    let old = match read_regular(path, OLD_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let text = String::from_utf8_lossy(&old);
    let line = text.lines().find(|line| line.starts_with(LAST_SUCCESS));
    let time = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    Ok(time.filter(|time: &f64| time.is_finite()))
}

fn text(end: &RunEnd<'_>, now: f64, last_success: Option<f64>) -> Result<String> {
    let labels = [("verb", end.verb.to_string()), ("profile", end.profile.clone())];
    let labels = labels.into_iter().map(|(name, value)| (Cow::Borrowed(name), Cow::Owned(value)));
    let mut registry = Registry::with_prefix_and_labels("fhrd", labels);
    let mut register = |name: &str, help: &str, value: f64| {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    let success = f64::from(u8::from(end.is_success));
    register("last_run_success", "Whether the last run was a success", success);
    register("last_run_exit_code", "Exit code of the last run", f64::from(end.code));
    register("last_run_timestamp_seconds", "When the last run ended", now);
    register("last_run_duration_seconds", "How long the last run took", end.seconds);
    if let Some(time) = last_success {
        register("last_success_timestamp_seconds", "When the last run that was a success ended", time);
    }
    let facts = end.facts.all();
    for fact in RunFact::ALL {
        if let Some(value) = facts.get(&fact) {
            let (name, help) = fact.describe();
            register(&format!("last_run_{name}"), help, *value as f64);
        }
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| Error::internal(format!("cannot write metrics: {error}")))?;
    Ok(text)
}
