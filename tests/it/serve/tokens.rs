//! Who may ask.

use super::fixture::{Server, scene, token_file};

const ALL: &str = "hf_0123456789abcdef0123456789abcdef012345";
const ORG: &str = "hf_fedcba9876543210fedcba9876543210fedcba";
const OTHER: &str = "hf_11112222333344445555666677778888999900";

#[test]
fn a_token_reads_its_names_and_a_forged_one_nothing() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n{ORG} write me/*\n{OTHER} read you/*\n"));
    let server = Server::start(&place, &["--token-file", &file, "--public-url", "http://models.example"]);
    let target = "/me/model/resolve/main/config.json";
    let status = |target: &str, headers: &str| server.ask("GET", target, headers).status;
    let with = |token: &str| format!("Authorization: Bearer {token}\r\n");
    assert_eq!((status(target, &with(ALL)), status(target, &with(ORG))), (200, 200));
    let hidden = server.ask("GET", target, &with(OTHER));
    assert_eq!((hidden.status, hidden.header("x-error-code")), (404, "RepoNotFound"), "as if it were absent");
    let list = |token: &str| server.ask("GET", "/api/models", &with(token)).json().as_array().unwrap().len();
    assert_eq!((list(ALL), list(ORG), list(OTHER)), (1, 1, 0));
    assert_eq!(server.ask("GET", "/api/whoami-v2", &with(ORG)).json()["name"], "token-2");
    for (headers, message) in [
        (String::new(), "a token is needed"),
        (with(""), "Invalid credentials in Authorization header"),
        (with(&ALL[..ALL.len() - 1]), "Invalid credentials in Authorization header"),
        (with(&format!("{ALL}0")), "Invalid credentials in Authorization header"),
        (with(&"x".repeat(20_000)), "Invalid credentials in Authorization header"),
        (format!("Authorization: Basic {ALL}\r\n"), "Invalid credentials in Authorization header"),
        (format!("{}{}", with(ALL), with(OTHER)), "Invalid credentials in Authorization header"),
        ("Authorization: Bearer \u{fc}\r\n".into(), "Invalid credentials in Authorization header"),
        (format!("Cookie: token={ALL}\r\n"), "a token is needed"),
    ] {
        for target in [target, "/", "/me/model", "/api/models", "/api/whoami-v2", "/nothing", "/api/models/me/none"] {
            let reply = server.ask("GET", target, &headers);
            let found = (reply.status, reply.header("x-error-message"), reply.header("www-authenticate"));
            assert_eq!(found, (401, message, "Bearer"), "{target} {headers:.80}");
        }
    }
    // What says nothing of the repository is open.
    for target in ["/healthz", "/readyz", "/style.css", "/icon.svg", "/login"] {
        assert_eq!(status(target, ""), 200, "{target}");
    }
    let errors = server.stop();
    assert!(!errors.contains("hf_"), "no token is in the log: {errors}");
}

#[test]
fn damage_tells_nobody_which_names_exist() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n{OTHER} read you/*\n"));
    // Whoever may put blobs can do this.
    std::fs::write(place.repository().join("snapshots").join("ab".repeat(32)), b"nothing").unwrap();
    let server = Server::start(&place, &["--token-file", &file]);
    let status =
        |target: &str, token: &str| server.ask("GET", target, &format!("Authorization: Bearer {token}\r\n")).status;
    for end in ["", "/refs", "/tree/main"] {
        let both = ["model", "none"].map(|name| status(&format!("/api/models/me/{name}{end}"), OTHER));
        assert_eq!(both, [404, 404], "{end}");
    }
    assert_eq!(status("/api/models/me/model", ALL), 200);
    assert_eq!(status("/api/models/me/none", ALL), 503, "who may read everything learns of the damage");
}

#[test]
fn requests_for_other_hosts_and_from_other_pages_are_refused() {
    let place = scene();
    let server = Server::start(&place, &["--public-url", "https://models.example"]);
    let status = |headers: &str| server.ask("GET", "/api/models", headers).status;
    for host in ["localhost", "127.0.0.1:1", "[::1]", "models.example", "10.1.2.3"] {
        assert_eq!(status(&format!("Host: {host}\r\n")), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "@localhost"] {
        assert_eq!(status(&format!("Host: {host}\r\n")), 421, "{host}");
    }
    assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), 400, "for two hosts");
    assert_eq!(server.send(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap().status, 400, "for no host");
    let absolute = b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(server.send(absolute).unwrap().status, 421);
    for (origin, expected) in
        [("http://localhost", 200), ("https://models.example", 200), ("http://evil.example", 403), ("null", 403)]
    {
        assert_eq!(status(&format!("Host: localhost\r\nOrigin: {origin}\r\n")), expected, "{origin}");
    }
    server.stop();
}

#[test]
fn what_would_let_everybody_read_must_be_said() {
    let place = scene();
    std::fs::write(place.path("short"), "abc read\n").unwrap();
    for (words, text) in [
        (&["--listen", "0.0.0.0:0"][..], "give --token-file, or say --no-auth"),
        (&["--token-file", "short"], "line 1: a token has 16 to 512 characters"),
        (&["--token-file", "none"], "cannot read none"),
        (&["--public-url", "models.example"], "expected a URL"),
        (&["--tls-cert", "short", "--tls-key", "short"], "is of no use for TLS"),
    ] {
        let output = place.command(&place.path(""), &[&["serve"], words].concat()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(text), "{words:?}: {errors}");
    }
}
