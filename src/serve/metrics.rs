//! Metrics for Prometheus.
//!
//! 1. What is served is counted as it happens. What is stored is taken from the last look at the repository: a scrape
//!    reads nothing, and lets the next look begin if the last one is some seconds old.
//! 2. Names are those that `--metrics-file` uses for the same things, without `last_run` where they are not of a run.
//! 3. Labels are routes, codes, caches and hosts: there are a few of them, whatever clients ask for. Hosts are bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::answer::{self, HttpAnswer};
use super::catalogue::KnownNames;
use super::fault::Fault;
use super::state::ServeState;
use crate::error::{Error, Result};
use crate::repo::read::Reader;
use crate::repo::snapshot::NamedSnapshot;
use crate::text::{printable, shortened};

/// Type of the document. Without it, counters are read as numbers of no type.
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper ends of the buckets of latencies, seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Hosts that have a series, at most: those with the latest snapshots.
const HOSTS_MAX: usize = 500;
/// Characters of a host that are shown.
const HOST_CHARS_MAX: usize = 100;

type MetricLabels<const N: usize> = [(&'static str, String); N];
type NumberGauge = Gauge<f64, AtomicU64>;

/// What a server counts.
pub struct ServeMetrics {
    requests: Family<MetricLabels<2>, Counter>,
    seconds: Family<MetricLabels<1>, Histogram, fn() -> Histogram>,
    sent_bytes: Counter,
    connections: Gauge,
}

impl Default for ServeMetrics {
    fn default() -> Self {
        ServeMetrics {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            sent_bytes: Counter::default(),
            connections: Gauge::default(),
        }
    }
}

/// A connection that is open while this value lives.
pub struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ServeMetrics {
    /// Counts a connection.
    pub fn connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }

    /// Counts an answer that begins `time` after its request came.
    pub fn answer(&self, template: &'static str, status: StatusCode, time: Duration) {
        let route = ("route", template.to_string());
        let code = ("code", status.as_str().to_string());
        self.requests.get_or_create(&[route.clone(), code]).inc();
        self.seconds.get_or_create(&[route]).observe(time.as_secs_f64());
    }

    /// Counts bytes of bodies.
    pub fn sent_bytes(&self) -> Counter {
        self.sent_bytes.clone()
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("http_requests", "Requests that were answered", self.requests.clone());
        let help = "Time from a request to the start of its answer";
        registry.register("http_request_duration_seconds", help, self.seconds.clone());
        registry.register("http_sent_bytes", "Bytes of the bodies of answers", self.sent_bytes.clone());
        registry.register("http_open_connections", "Connections that are open", self.connections.clone());
    }
}

/// The document, and the start of a look that the next one shows.
///
/// # Errors
/// [`Fault::Failed`].
pub fn metrics(state: &Arc<ServeState>) -> std::result::Result<HttpAnswer, Fault> {
    if !state.catalogue.is_recent() {
        let catalogue = state.catalogue.clone();
        // Nobody waits for it.
        tokio::task::spawn_blocking(move || catalogue.refresh());
    }
    let text = text(state)?;
    Ok(answer::with_type(StatusCode::OK, KIND, answer::whole(text)))
}

fn text(state: &ServeState) -> Result<String> {
    let mut registry = Registry::with_prefix("fhrd");
    state.metrics.register(&mut registry);
    let (hits, misses) = (Family::<MetricLabels<1>, Counter>::default(), Family::<MetricLabels<1>, Counter>::default());
    let caches = [
        ("directories", state.catalogue.directories().look_ups().counts()),
        ("hashes", state.hashes.look_ups().counts()),
        ("reads", Reader::look_ups()),
    ];
    for (cache, counts) in caches {
        let labels = [("cache", cache.to_string())];
        hits.get_or_create(&labels).inc_by(counts.0);
        misses.get_or_create(&labels).inc_by(counts.1);
    }
    registry.register("cache_hits", "Look-ups in a cache that found what was wanted", hits);
    registry.register("cache_misses", "Look-ups in a cache that did not", misses);
    register_known(&mut registry, &state.catalogue.known());
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| Error::internal(format!("cannot write metrics: {error}")))?;
    Ok(text)
}

/// What the last look has found.
fn register_known(registry: &mut Registry, known: &KnownNames) {
    let mut gauge = |name: &str, help: &str, value: f64| {
        let gauge = NumberGauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge("listing_success", "Whether the last look at the snapshots succeeded", f64::from(u8::from(known.is_ready)));
    if let Some(time_ns) = known.listed_ns {
        gauge("last_listing_timestamp_seconds", "When the snapshots were listed", seconds(time_ns));
    }
    let Some(names) = &known.names else { return };
    let sum = |counter: &str| {
        let values = names.backups.iter().filter_map(|named| named.snapshot.statistics.get(counter));
        values.fold(0, |sum: u64, value| sum.saturating_add(*value)) as f64
    };
    gauge("snapshots", "Snapshots of backups", names.backups.len() as f64);
    gauge("published_snapshots", "Snapshots that are published", names.snapshots.len() as f64);
    gauge("unreadable_snapshots", "Snapshots that cannot be read", names.unreadable as f64);
    gauge("content_bytes", "Content of all snapshots, as their backups counted it", sum("bytes"));
    gauge("stored_bytes", "Bytes that the backups of all snapshots added to the repository", sum("bytes_stored"));
    let hosts = Family::<MetricLabels<1>, NumberGauge>::default();
    for (host, time_ns) in last_backups(&names.backups, known.now_ns) {
        hosts.get_or_create(&[("host", host)]).set(seconds(time_ns));
    }
    registry.register("last_snapshot_timestamp_seconds", "When the last snapshot of a host was made", hosts);
    let (times, successes) =
        (Family::<MetricLabels<1>, NumberGauge>::default(), Family::<MetricLabels<1>, NumberGauge>::default());
    for run in known.runs.iter() {
        let labels = [("verb", run.verb.clone())];
        times.get_or_create(&labels).set(seconds(run.time_ns));
        successes.get_or_create(&labels).set(f64::from(u8::from(run.damaged == 0)));
    }
    registry.register("last_run_timestamp_seconds", "When the last run ended", times);
    registry.register("last_run_success", "Whether the last run was a success", successes);
}

fn seconds(time_ns: i64) -> f64 {
    time_ns as f64 / 1e9
}

/// The time of the last snapshot of each host, for some hosts. One from the future would hide that others are missing.
fn last_backups(backups: &[NamedSnapshot], now_ns: i64) -> Vec<(String, i64)> {
    let mut times: BTreeMap<String, i64> = BTreeMap::new();
    for snapshot in backups.iter().map(|named| &named.snapshot).filter(|snapshot| !snapshot.is_future(now_ns)) {
        let host = shortened(&printable(&snapshot.host), HOST_CHARS_MAX);
        let time = times.entry(host).or_insert(snapshot.time_ns);
        *time = snapshot.time_ns.max(*time);
    }
    let mut hosts: Vec<(String, i64)> = times.into_iter().collect();
    hosts.sort_by_key(|(_, time_ns)| std::cmp::Reverse(*time_ns));
    hosts.truncate(HOSTS_MAX);
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::snapshot::Snapshot;
    use crate::types::SnapshotId;

    #[test]
    fn hosts_are_bounded_distinct_and_of_the_present() {
        let at = |host: &str, time_ns| NamedSnapshot {
            id: SnapshotId([0; 32]),
            snapshot: Snapshot { host: host.into(), time_ns, ..Snapshot::default() },
        };
        let future = crate::repo::clock::TOLERANCE_NS + 2_000;
        let backups = [at("a", 5), at("a", 7), at("a\n", 8), at("a\u{202e}", 6), at("a", future), at("b", future)];
        assert_eq!(last_backups(&backups, 1_000), [("a?".to_string(), 8), ("a".to_string(), 7)]);
        let many: Vec<NamedSnapshot> = (0..2_000).map(|time| at(&format!("{}{time}", "x".repeat(300)), time)).collect();
        let hosts = last_backups(&many, 10_000);
        assert!(hosts.len() <= HOSTS_MAX && hosts.iter().all(|(host, _)| host.chars().count() <= HOST_CHARS_MAX));
        assert_eq!(hosts[0].1, 1_999);
    }
}
