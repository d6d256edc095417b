//! `/metrics`, read as strictly as Prometheus does.

use std::collections::{BTreeMap, BTreeSet};

use super::fixture::{Reply, Server, scene, token_file};
use crate::program::promtool;

const ALL: &str = "hf_0123456789abcdef0123456789abcdef012345";
const ORG: &str = "hf_fedcba9876543210fedcba9876543210fedcba";
/// What a host's name must not do: end a label, a line, or look like a metric.
const HOSTILE: &str = "a\"} 1\nfhrd_snapshots 9\\\u{202e}";

/// The samples of a document, by name and labels. Every line must be one, or describe the metric whose samples follow.
fn samples(reply: &Reply) -> BTreeMap<String, f64> {
    assert_eq!(reply.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = std::str::from_utf8(&reply.body).unwrap();
    let text = text.strip_suffix("# EOF\n").unwrap();
    let (mut found, mut described, mut family) = (BTreeMap::new(), BTreeSet::new(), String::new());
    for line in text.lines() {
        if let Some(about) = line.strip_prefix("# ") {
            let [what, name, _] = about.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert!(matches!(what, "HELP" | "TYPE"), "{line}");
            assert!(what == "TYPE" || described.insert(name.to_string()), "{name} is described twice");
            family = name.into();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        let end = name.strip_prefix(&*family).unwrap_or_else(|| panic!("{line} is not of {family}"));
        assert!(["", "_total", "_sum", "_count", "_bucket"].contains(&end), "{line}");
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        }
        let value: f64 = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(found.insert(series.to_string(), value).is_none(), "{series} is there twice");
    }
    found
}

#[test]
fn what_was_asked_is_counted_and_what_is_stored_is_named() {
    let place = scene();
    place.run(&["backup", "--host", HOSTILE, "secret"]);
    place.run(&["check", "--read-data"]);
    let server = Server::start(&place, &[]);
    let scrape = || samples(&server.get("/metrics"));
    let file = "fhrd_http_requests_total{route=\"/{name}/resolve/{revision}/{path}\",code=\"200\"}";
    let before = scrape();
    assert_eq!(before.get(file), None, "{before:?}");
    for _ in 0..2 {
        assert_eq!(server.get("/me/model/resolve/main/mid.bin").body.len(), 3_000_000);
    }
    assert_eq!(server.get("/me/model/resolve/main/none").status, 404);
    assert_eq!(server.ask("GET", "/healthz", "Host: evil.example\r\n").status, 421);
    for number in 0..20 {
        server.get(&format!("/made-up-{number}"));
    }
    let after = scrape();
    let value = |name: &str| *after.get(name).unwrap_or_else(|| panic!("no {name}: {after:?}"));
    assert_eq!(value(file), 2.0);
    assert_eq!(value(&file.replace("200", "404")), 1.0);
    assert_eq!(value("fhrd_http_requests_total{route=\"none\",code=\"404\"}"), 20.0, "however many were made up");
    assert_eq!(value("fhrd_http_requests_total{route=\"/healthz\",code=\"421\"}"), 1.0);
    let seconds = "fhrd_http_request_duration_seconds";
    let route = "route=\"/{name}/resolve/{revision}/{path}\"";
    assert_eq!(value(&format!("{seconds}_count{{{route}}}")), 3.0);
    assert!(value(&format!("{seconds}_sum{{{route}}}")) > 0.0, "{after:?}");
    assert_eq!(value(&format!("{seconds}_bucket{{le=\"+Inf\",{route}}}")), 3.0, "{after:?}");
    assert!(value("fhrd_http_sent_bytes_total") >= 6_000_000.0);
    assert!(value("fhrd_http_open_connections") >= 1.0);
    let hits = |cache: &str| value(&format!("fhrd_cache_hits_total{{cache=\"{cache}\"}}"));
    assert!(["directories", "hashes", "reads"].iter().all(|cache| hits(cache) > 0.0), "{after:?}");
    assert_eq!((value("fhrd_snapshots"), value("fhrd_published_snapshots")), (2.0, 3.0));
    assert_eq!((value("fhrd_unreadable_snapshots"), value("fhrd_listing_success")), (0.0, 1.0));
    assert!(value("fhrd_content_bytes") > 15e6 && value("fhrd_stored_bytes") > 15e6);
    assert!(value("fhrd_content_bytes") < 17e6, "what is published is counted once");
    let now = value("fhrd_last_listing_timestamp_seconds");
    let host = "fhrd_last_snapshot_timestamp_seconds{host=\"a\\\"} 1?fhrd_snapshots 9\\\\?\"}";
    for name in [host, "fhrd_last_run_timestamp_seconds{verb=\"check\"}"] {
        assert!((now - 600.0..now + 600.0).contains(&value(name)), "{name}");
    }
    assert_eq!(value("fhrd_last_run_success{verb=\"check\"}"), 1.0);
    // Its format is an older one, where counters have their whole name everywhere.
    let mut text = server.get("/metrics").text().to_string();
    for counter in ["http_requests", "http_sent_bytes", "cache_hits", "cache_misses"] {
        for what in ["HELP", "TYPE"] {
            text = text.replace(&format!("# {what} fhrd_{counter} "), &format!("# {what} fhrd_{counter}_total "));
        }
    }
    promtool(text.as_bytes());
    server.stop();
}

#[test]
fn a_scrape_shows_new_snapshots_soon_and_waits_for_no_store() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let snapshots = || samples(&server.get("/metrics"))["fhrd_snapshots"];
    assert_eq!(snapshots(), 1.0);
    place.run(&["backup", "secret"]);
    let started = std::time::Instant::now();
    while snapshots() != 2.0 {
        assert!(started.elapsed().as_secs() < 30, "scrapes alone let the server look again");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    // What was found before stays if the store is gone.
    let away = place.path("away");
    std::fs::rename(place.repository(), &away).unwrap();
    while samples(&server.get("/metrics"))["fhrd_listing_success"] != 0.0 {
        assert!(started.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    assert_eq!(snapshots(), 2.0);
    std::fs::rename(&away, place.repository()).unwrap();
    server.stop();
}

#[test]
fn metrics_need_a_token_for_everything() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n{ORG} read me/*\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let status = |headers: &str| server.ask("GET", "/metrics", headers).status;
    assert_eq!((status(""), status(&format!("Authorization: Bearer {ORG}\r\n"))), (401, 403));
    assert_eq!((status(&format!("Authorization: Bearer {ORG}x\r\n")), status("Cookie: a=b\r\n")), (401, 401));
    let reply = server.ask("GET", "/metrics", &format!("Authorization: Bearer {ALL}\r\n"));
    assert_eq!(reply.status, 200);
    let found = samples(&reply);
    assert_eq!(found["fhrd_http_requests_total{route=\"/metrics\",code=\"401\"}"], 3.0, "{found:?}");
    server.stop();
}
