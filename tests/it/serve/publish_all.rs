//! Every directory with a model, without publications.

use super::fixture::{Server, token_file};
use crate::input::write;
use crate::program::Place;
use crate::weights::{model, weights};

const ALL: &str = "hf_0123456789abcdef0123456789abcdef012345";
const ORG: &str = "hf_fedcba9876543210fedcba9876543210fedcba";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OLDER: &str = "89abcdef0123456789abcdef0123456789abcdef";

fn link(place: &Place, target: &str, name: &str) {
    let path = place.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(target, path).unwrap();
}

/// Models in a directory and in a cache of the Hub, beside what has none.
fn scene() -> (Place, [Vec<u8>; 2]) {
    let place = Place::new();
    let models = [1, 2].map(|seed| model(&weights(seed, 1 << 18), &weights(seed + 2, 1 << 18)));
    write(place.path("work/tune/model.safetensors"), &models[0]);
    write(place.path("work/tune/config.json"), b"{}");
    write(place.path("work/secret/key"), b"secret");
    link(&place, "../secret/key", "work/tune/out");
    link(&place, "config.json", "work/tune/in");
    let cached = "cache-of-hub/models--org--name";
    write(place.path(&format!("{cached}/blobs/aa")), &models[1]);
    write(place.path(&format!("{cached}/blobs/bb")), b"{\"old\":1}");
    write(place.path(&format!("{cached}/refs/main")), COMMIT.as_bytes());
    link(&place, "../../blobs/aa", &format!("{cached}/snapshots/{COMMIT}/model.safetensors"));
    link(&place, "../../blobs/bb", &format!("{cached}/snapshots/{OLDER}/config.json"));
    place.run(&["init"]);
    place.run(&["backup", "work", "cache-of-hub", "--host", "laptop"]);
    (place, models)
}

#[test]
fn every_directory_with_a_model_is_shown_to_who_has_a_token() {
    let (place, models) = scene();
    let file = token_file(&place, &format!("{ALL} read\n{ORG} read org/*\n"));
    let server = Server::start(&place, &["--publish-all", "--token-file", &file]);
    let ask = |token: &str, target: &str| server.ask("GET", target, &format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(server.get("/laptop/work.tune/resolve/main/config.json").status, 401);
    let names = |token: &str| {
        let list = ask(token, "/api/models").json();
        list.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(ALL), ["laptop/work.tune", "org/name"]);
    assert_eq!(names(ORG), ["org/name"]);
    assert!(ask(ALL, "/laptop/work.tune/resolve/main/model.safetensors").body == models[0]);
    assert!(ask(ORG, "/org/name/resolve/main/model.safetensors").body == models[1]);
    assert_eq!(ask(ORG, "/laptop/work.tune/resolve/main/config.json").status, 404, "as if it were absent");
    assert_eq!(ask(ORG, &format!("/org/name/resolve/at-{}/config.json", &OLDER[..12])).body, b"{\"old\":1}");
    // Links lead to what is shown, and to nothing else.
    assert_eq!(ask(ALL, "/laptop/work.tune/resolve/main/in").body, b"{}");
    for target in ["work.tune/resolve/main/out", "work.secret/resolve/main/key", "work/resolve/main/secret/key"] {
        assert_eq!(ask(ALL, &format!("/laptop/{target}")).status, 404, "{target}");
    }
    assert_eq!(ask(ALL, "/laptop/work.tune").status, 200, "it has a page");
    assert!(ask(ALL, "/").text().contains("/laptop/work.tune"));
    // The last backup counts, and a name that is published hides the other.
    write(place.path("work/tune/config.json"), b"{\"new\":1}");
    place.run(&["backup", "work", "cache-of-hub", "--host", "laptop"]);
    place.run(&["publish", "latest:work/tune", "org/name"]);
    let started = std::time::Instant::now();
    let new = || ask(ALL, "/laptop/work.tune/resolve/main/config.json").body == b"{\"new\":1}";
    while !new() {
        assert!(started.elapsed().as_secs() < 30, "the new backup is not seen");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(ask(ALL, "/org/name/resolve/main/model.safetensors").body == models[0]);
    assert_eq!(ask(ALL, &format!("/org/name/resolve/at-{}/config.json", &OLDER[..12])).status, 404);
    server.stop();
}

#[test]
fn it_is_refused_without_tokens_and_with_uploads() {
    let (place, _) = scene();
    let file = token_file(&place, &format!("{ALL} write\n"));
    for words in [&["--publish-all"][..], &["--publish-all", "--writable", "--token-file", &file]] {
        let words = [&["serve", "--listen", "127.0.0.1:0"], words].concat();
        let output = place.command(&place.path(""), &words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_model_that_cannot_be_read_makes_names_unavailable_and_hides_no_others() {
    let (place, _) = scene();
    let lost = crate::independent::containers(&place.repository());
    let other = model(&weights(11, 1 << 18), &weights(12, 1 << 18));
    write(place.path("more/own/model.safetensors"), &other);
    write(place.path("more/own/config.json"), b"{\"own\":1}");
    place.run(&["backup", "more", "--host", "desktop"]);
    lost.iter().for_each(|container| std::fs::remove_file(container).unwrap());
    let file = token_file(&place, &format!("{ALL} read\n"));
    let server = Server::start(&place, &["--publish-all", "--token-file", &file]);
    let ask = |target: &str| server.ask("GET", target, &format!("Authorization: Bearer {ALL}\r\n"));
    assert_eq!(ask("/desktop/more.own/resolve/main/config.json").body, b"{\"own\":1}");
    assert_eq!(ask("/api/models/laptop/work.tune").status, 200, "its listing is in the root of the backup");
    for name in ["org/name", "a/none"] {
        assert_eq!(ask(&format!("/api/models/{name}")).status, 503, "{name}: nobody knows whether it is there");
    }
    server.stop();
}
