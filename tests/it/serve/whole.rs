//! Pages of the whole repository, and who may see them.

use std::time::{Duration, Instant};

use super::fixture::{Server, token_file};
use super::pages::checked;
use crate::cli::model_fixture::Weights;
use crate::program::Place;

const ALL: &str = "hf_0123456789abcdef0123456789abcdef012345";
const ORG: &str = "hf_fedcba9876543210fedcba9876543210fedcba";
const PAGES: [&str; 5] = ["/snapshots", "/health", "/space", "/families", "/runs"];
/// What must stay a name.
const HOSTILE: &str = "evil\"><script>\u{202e}\u{7}";

/// A family of two models, of which one is published, a run, and a host with a hostile name.
fn family_scene() -> Place {
    let place = Place::new();
    let write = |name: &str, bytes: &[u8]| crate::input::write(place.path(name), bytes);
    let base = Weights::base();
    write("m/secret-base/model.safetensors", &base.bf16());
    write("m/tuned/model.safetensors", &base.tuned(2).bf16());
    write("odd/x", b"odd");
    place.run(&["init"]);
    place.run(&["backup", "m", "--host", "gpu", "--tag", "nightly"]);
    place.run(&["publish", "latest:m/tuned", "me/tuned"]);
    place.run(&["backup", "odd", "--host", HOSTILE]);
    for (step, loss) in [("10", "0.9"), ("20", "0.25"), ("30", "0.5")] {
        write("run/weights", step.as_bytes());
        place.run(&["backup", "run", "--run", "tune", "--step", step, "--metric", &format!("val={loss}")]);
    }
    place
}

/// A page for a token, once it is there.
fn read(server: &Server, target: &str, token: &str) -> String {
    let started = Instant::now();
    loop {
        let reply = server.ask("GET", target, &format!("Authorization: Bearer {token}\r\n"));
        assert_eq!(reply.status, 200, "{target}: {reply:?}");
        let text = checked(target, &reply);
        if !text.contains("is being read") {
            return text;
        }
        assert_eq!(reply.header("refresh"), "5");
        assert!(started.elapsed() < Duration::from_secs(60), "{target}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn the_whole_repository_is_shown_to_those_who_may_read_all_of_it() {
    let place = family_scene();
    let file = token_file(&place, &format!("{ALL} read\n{ORG} read me/*\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    for target in PAGES {
        for (headers, status) in [(String::new(), 401), (format!("Authorization: Bearer {ORG}\r\n"), 403)] {
            let reply = server.ask("GET", target, &headers);
            assert_eq!(reply.status, status, "{target}");
            let text = checked(target, &reply);
            assert!(
                !text.contains("gpu") && !text.contains("secret-base") && !text.contains("href=\"/health"),
                "{text}"
            );
        }
    }
    let [snapshots, health, space, families, runs] = PAGES.map(|target| read(&server, target, ALL));
    for text in [&snapshots, &health, &space] {
        assert!(text.contains("evil&quot;&gt;&lt;script&gt;??"), "{text}");
    }
    assert!(snapshots.contains("nightly") && snapshots.contains("tune@20") && snapshots.contains("1–5 of 5"));
    assert!(!snapshots.contains("me/tuned"), "what is published is no backup: {snapshots}");
    let found = read(&server, "/snapshots?q=GPU+nightly", ALL);
    assert!(found.contains("1–1 of 1") && !found.contains("tune@20"), "{found}");
    assert!(health.contains("None is known") && health.contains("never, as far as"), "{health}");
    assert!(space.contains("<svg") && space.contains("secret-base"), "{space}");
    assert!(families.contains("└╴") && families.contains("secret-base"), "{families}");
    assert!(runs.contains("<svg") && runs.contains("lowest 0.25 at step 20, highest 0.9 at step 10"), "{runs}");
    server.stop();
}

#[test]
fn stored_bytes_and_bases_of_names_are_found_in_the_background() {
    let place = family_scene();
    let file = token_file(&place, &format!("{ALL} read\n{ORG} read me/*\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let started = Instant::now();
    while !read(&server, "/", ALL).contains("secret-base") {
        assert!(started.elapsed() < Duration::from_secs(30), "{}", read(&server, "/", ALL));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(read(&server, "/", ALL).contains("sort=-stored"));
    assert!(read(&server, "/me/tuned", ALL).contains("secret-base"));
    for target in ["/", "/me/tuned", "/?sort=base", "/?q=secret"] {
        let text = read(&server, target, ORG);
        assert!(!text.contains("secret-base") && !text.contains(">base<"), "{text}");
    }
    server.stop();
}

#[test]
fn a_store_that_is_gone_is_never_shown_as_healthy() {
    let place = family_scene();
    let server = Server::start(&place, &[]);
    let until = |is_shown: &dyn Fn(&str) -> bool| {
        let started = Instant::now();
        loop {
            let text = checked("/health", &server.ask("GET", "/health", ""));
            if is_shown(&text) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{text}");
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    until(&|text| text.contains("None is known") && !text.contains("so this is old"));
    std::fs::rename(place.repository(), place.path("away")).unwrap();
    until(&|text| text.contains("so this is old"));
    std::fs::rename(place.path("away"), place.repository()).unwrap();
    until(&|text| !text.contains("so this is old"));
    server.stop();
}

#[test]
fn who_may_read_some_names_learns_no_number_of_unreadable_snapshots() {
    let place = family_scene();
    let listed = place.run(&["snapshots"]);
    let odd = listed.as_array().unwrap().iter().find(|one| one["host"] == HOSTILE).unwrap();
    let path = place.repository().join("snapshots").join(odd["id"].as_str().unwrap());
    std::fs::remove_dir_all(place.path("cache")).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"damaged").unwrap();
    let file = token_file(&place, &format!("{ALL} read\n{ORG} read me/*\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let (all, some) = (read(&server, "/", ALL), read(&server, "/", ORG));
    assert!(all.contains("1 snapshot cannot be read"), "{all}");
    assert!(some.contains("Something cannot be read") && !some.contains("1 snapshot"), "{some}");
    let absent = server.ask("GET", "/me/absent", &format!("Authorization: Bearer {ORG}\r\n"));
    assert_eq!(absent.status, 503, "{absent:?}");
    assert!(!String::from_utf8_lossy(&absent.body).contains("1 snapshot"), "{absent:?}");
    server.stop();
}
