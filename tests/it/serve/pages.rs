//! Pages for people, read as a browser without scripts does.

use super::fixture::{Reply, Server, scene, token_file, write_sources};
use crate::markup::elements;
use crate::program::Place;

const ALL: &str = "hf_0123456789abcdef0123456789abcdef012345";
const OTHER: &str = "hf_11112222333344445555666677778888999900";
/// Names and texts that must stay names and texts.
const MARKUP: &str = "<script>alert(1)<\u{2044}script>\"'&<img src=x onerror=alert(1)>";
const STEERING: &str = "a\u{1b}[31m\u{202e}gnp.exe\u{2066}\n\u{9b}b";

/// A page, after what must be true of every page.
fn page(server: &Server, target: &str) -> String {
    let reply = server.get(target);
    assert_eq!(reply.status, 200, "{target}: {reply:?}");
    checked(target, &reply)
}

pub fn checked(target: &str, reply: &Reply) -> String {
    let policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                  frame-ancestors 'none'";
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(reply.header(name), value, "{target}: {name}");
    }
    let text = reply.text();
    for wrong in
        ["<script", "<img", "<iframe", "javascript:", " style=", " onerror=\"", "\u{1b}", "\u{202e}", "\u{2066}"]
    {
        assert!(!text.contains(wrong), "{target} has {wrong:?}: {text}");
    }
    let elements = elements(text);
    for (element, count) in
        [("html", 1), ("h1", 1), ("main", 1), ("script", 0), ("style", 0), ("iframe", 0), ("img", 0)]
    {
        assert_eq!(elements.iter().filter(|name| *name == element).count(), count, "{target}: {element}");
    }
    let outside = text.replace("http://127.0.0.1", "").replace("http://localhost", "");
    assert!(!outside.contains("http://") && !outside.contains("https://"), "{target} names others: {text}");
    assert!(text.contains("<meta name=\"viewport\""), "{text}");
    text.into()
}

/// The targets of the links of a page.
fn links(page: &str) -> Vec<String> {
    let targets = page.split(" href=\"").skip(1);
    targets.map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&")).collect()
}

fn safetensors(names: &[&str]) -> Vec<u8> {
    let tensors: serde_json::Map<String, serde_json::Value> = names
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let offsets = [at * 24, (at + 1) * 24];
            (name.to_string(), serde_json::json!({ "dtype": "F32", "shape": [2, 3], "data_offsets": offsets }))
        })
        .collect();
    let header = serde_json::Value::Object(tensors).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend((0..names.len() * 24).map(|at| at as u8));
    file
}

/// The scene of the other tests with a README, a model file and names that are hostile.
pub fn hostile_scene() -> Place {
    let place = Place::new();
    write_sources(&place);
    let write = |name: &str, bytes: &[u8]| crate::input::write(place.path(name), bytes);
    write("hub/model/README.md", format!("# A model\n\t{MARKUP}\n{STEERING}\n").as_bytes());
    write("hub/model/tiny.safetensors", &safetensors(&["model.b", MARKUP, STEERING, "model.a"]));
    write("hub/model/broken.gguf", b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    write("hub/model/page.html", b"<script>alert(1)</script>");
    write(&format!("hub/model/{MARKUP}/x"), b"in it");
    write(&format!("hub/model/{}", STEERING.replace('\n', "")), b"steers");
    write("hub/model/100%25?#&.txt", b"odd");
    place.run(&["init"]);
    place.run(&["backup", "hub", "secret"]);
    place.run(&["publish", "latest:hub/model", "me/model"]);
    place.run(&["publish", "latest:hub/model", "me/model", "--revision", "refs/pr/1"]);
    place.run(&["publish", "latest:hub/dataset", "me/dataset", "--type", "dataset"]);
    place
}

#[test]
fn every_page_is_reached_by_links_and_every_download_is_whole() {
    let place = hostile_scene();
    let server = Server::start(&place, &[]);
    let home = page(&server, "/");
    assert!(home.contains("14.") && home.contains(">dataset<") && home.contains(">model<"), "{home}");
    let (mut seen, mut waiting, mut downloads) = (Vec::new(), vec!["/".to_string()], 0);
    while let Some(target) = waiting.pop() {
        if seen.contains(&target) || target.starts_with('#') {
            continue;
        }
        seen.push(target.clone());
        if let Some(path) = target.split_once("/download/").map(|(_, path)| path) {
            let reply = server.get(&target);
            let disposition = reply.header("content-disposition").to_string();
            assert!(reply.status == 200 && disposition.starts_with("attachment; "), "{target}: {reply:?}");
            assert_eq!(reply.header("content-security-policy"), "default-src 'none'; sandbox", "{target}");
            assert_eq!(
                (reply.header("content-type"), reply.header("x-content-type-options")),
                ("application/octet-stream", "nosniff")
            );
            let revision = path.split('/').next().unwrap();
            let root = if target.starts_with("/datasets") { "hub/dataset" } else { "hub/model" };
            let name = percent_decoded(&path[revision.len() + 1..]);
            let expected = std::fs::read(place.path(root).join(&name)).unwrap();
            assert!(reply.body == expected, "{target}");
            downloads += 1;
        } else if target.ends_with(".css") || target.ends_with(".svg") {
            assert_eq!(server.get(&target).status, 200, "{target}");
        } else {
            let text = page(&server, &target);
            let path = target.split('?').next().unwrap();
            let full = |link: String| if link.starts_with('?') { format!("{path}{link}") } else { link };
            // Other orders of the same list lead nowhere else.
            waiting.extend(links(&text).into_iter().filter(|link| !link.contains("sort=")).map(full));
        }
    }
    // Each of two revisions and a commit, and the dataset by name and by commit.
    assert!(downloads >= 3 * 13 + 2, "{downloads} of {seen:?}");
    server.stop();
}

fn percent_decoded(text: &str) -> std::path::PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, tail)) = rest.split_first() {
        match byte {
            b'%' => {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
                rest = &tail[2..];
            }
            byte => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes).into()
}

#[test]
fn a_name_shows_its_card_its_revisions_and_how_to_get_it() {
    let place = hostile_scene();
    let server = Server::start(&place, &[]);
    let card = page(&server, "/me/model");
    assert!(card.contains("# A model\n    &lt;script&gt;alert(1)"), "{card}");
    assert!(card.contains("a?[31m?gnp.exe?\n?b"), "{card}");
    assert!(card.contains("HF_ENDPOINT=http://localhost hf download me/model</pre>"), "{card}");
    assert!(card.contains("/me/model/tree/refs%2Fpr%2F1\""), "{card}");
    let commit = server.get("/me/model/resolve/main/config.json").header("x-repo-commit").to_string();
    assert!(card.contains(&commit), "{card}");
    let dataset = page(&server, "/datasets/me/dataset");
    assert!(dataset.contains("hf download me/dataset --repo-type dataset</pre>"), "{dataset}");
    assert!(!dataset.contains("README.md"), "{dataset}");
    // What was published before stays, by its commit.
    crate::input::write(place.path("hub/model/new"), b"new");
    place.run(&["backup", "hub"]);
    place.run(&["publish", "latest:hub/model", "me/model"]);
    let started = std::time::Instant::now();
    while !page(&server, "/me/model/tree/main").contains(">new<") {
        assert!(started.elapsed().as_secs() < 30);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let card = page(&server, "/me/model");
    assert!(card.contains("(before)") && card.contains(&format!("/me/model/tree/{commit}")), "{card}");
    assert!(!page(&server, &format!("/me/model/tree/{commit}")).contains(">new<"));
    server.stop();
}

#[test]
fn a_model_file_shows_its_tensors() {
    let place = hostile_scene();
    let server = Server::start(&place, &[]);
    let target = "/me/model/blob/main/tiny.safetensors";
    let text = page(&server, target);
    assert!(text.contains("safetensors, 4 tensors, 24 values"), "{text}");
    assert!(text.contains("<td>F32</td>") && text.contains(">2 × 3<") && text.contains(">24</td>"), "{text}");
    assert!(text.contains("<bdi>&lt;script&gt;alert(1)") && text.contains("a?[31m?gnp.exe??"), "{text}");
    let order = |query: &str| {
        let text = page(&server, &format!("{target}?{query}"));
        let at = |name: &str| text.find(&format!("<bdi>{name}</bdi>"));
        (at("model.a"), at("model.b"))
    };
    assert!(matches!(order("sort=name"), (Some(a), Some(b)) if a < b));
    assert!(matches!(order("sort=-name"), (Some(a), Some(b)) if a > b));
    assert!(matches!(order("q=MODEL+a"), (Some(_), None)));
    assert_eq!(order("q=nothing"), (None, None));
    let broken = page(&server, "/me/model/blob/main/broken.gguf");
    assert!(broken.contains("This is no sound model file"), "{broken}");
    let text = page(&server, "/me/model/blob/main/page.html");
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;</pre>"), "{text}");
    let large = page(&server, "/me/model/blob/main/mid.bin");
    assert!(large.contains("nothing is shown") && large.contains("3000000 bytes"), "{large}");
    server.stop();
}

#[test]
fn lists_come_in_pages_of_a_hundred() {
    let place = Place::new();
    for number in 0..250 {
        crate::input::write(place.path(&format!("many/{number:03}.txt")), &vec![b'x'; 250 - number]);
    }
    place.run(&["init"]);
    place.run(&["backup", "many"]);
    place.run(&["publish", "latest:many", "me/many"]);
    let server = Server::start(&place, &[]);
    let names = |query: &str| {
        let text = page(&server, &format!("/me/many/tree/main{query}"));
        let names = text.split("<bdi>").skip(1).map(|rest| rest.split('<').next().unwrap().to_string());
        names.filter(|name| name.ends_with(".txt")).collect::<Vec<_>>()
    };
    let first = names("");
    assert_eq!((first.len(), first[0].as_str(), first[99].as_str()), (100, "000.txt", "099.txt"));
    assert_eq!((names("?page=3").len(), names("?page=3")[0].as_str()), (50, "200.txt"));
    assert_eq!(names("?sort=size&page=1")[0], "249.txt");
    assert_eq!(
        names("?q=24"),
        ["024.txt", "124.txt", "224.txt"]
            .into_iter()
            .chain([
                "240.txt", "241.txt", "242.txt", "243.txt", "244.txt", "245.txt", "246.txt", "247.txt", "248.txt",
                "249.txt"
            ])
            .collect::<Vec<_>>()
    );
    let text = page(&server, "/me/many/tree/main?q=txt&sort=-name&page=2");
    let found = links(&text);
    for link in ["?q=txt&sort=-name&page=1", "?q=txt&sort=-name&page=3", "?q=txt&sort=name&page=1"] {
        assert!(found.iter().any(|found| found == link), "{link}: {found:?}");
    }
    assert!(text.contains("101–200 of 250 entries"), "{text}");
    for hostile in
        ["?q=%22%3E%3Cscript%3E", "?sort=%22%3E%3Cscript%3E", "?page=-1", "?page=99999999999999999999", "?q=%E2%80%AE"]
    {
        page(&server, &format!("/me/many/tree/main{hostile}"));
        page(&server, &format!("/{hostile}"));
    }
    server.stop();
}

#[test]
fn what_is_absent_or_not_allowed_is_a_page_that_says_so() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n{OTHER} read you/*\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let ask = |target: &str, token: &str| server.ask("GET", target, &format!("Authorization: Bearer {token}\r\n"));
    for (target, code) in [
        ("/me/none", "RepoNotFound"),
        ("/datasets/me/model", "RepoNotFound"),
        ("/me/model/tree/none", "RevisionNotFound"),
        ("/me/model/tree/main/none", "EntryNotFound"),
        ("/me/model/tree/main/config.json", "EntryNotFound"),
        ("/me/model/blob/main/below", "EntryNotFound"),
        ("/me/model/blob/main/out", "EntryNotFound"),
        ("/me/model/download/main/out", "EntryNotFound"),
        ("/me/model/download/main/directory/deep/x%20y+z%23.txt", "EntryNotFound"),
    ] {
        let reply = ask(target, ALL);
        assert_eq!((reply.status, reply.header("x-error-code")), (404, code), "{target}");
        checked(target, &reply);
    }
    let hidden =
        ["/me/model", "/me/model/tree/main", "/me/model/blob/main/config.json", "/me/model/download/main/mid.bin"];
    for target in hidden {
        let [hidden, absent] =
            [target.to_string(), target.replace("/model", "/none")].map(|target| ask(&target, OTHER));
        assert_eq!((hidden.status, hidden.body == absent.body), (404, true), "{target}");
        assert_eq!(ask(target, ALL).status, 200, "{target}");
    }
    assert!(ask("/", OTHER).text().contains("Nothing is published that you may read"));
    for method in ["POST", "PUT", "DELETE"] {
        let reply = server.ask(method, "/me/model", &format!("Authorization: Bearer {ALL}\r\nContent-Length: 0\r\n"));
        assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"), "{method}");
    }
    let look = server.ask("HEAD", "/me/model", &format!("Authorization: Bearer {ALL}\r\n"));
    assert_eq!((look.status, look.body.len()), (200, 0));
    server.stop();
}
