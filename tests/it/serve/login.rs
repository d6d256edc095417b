//! Sessions of browsers.

use super::fixture::{Reply, Server, scene, token_file};

const ALL: &str = "hf_0123456789abcdef0123456789abcdef012345";
const OTHER: &str = "hf_11112222333344445555666677778888999900";
const OWN: &str = "Origin: http://localhost\r\n";
const FILE: &str = "/me/model/download/main/mid.bin";

/// The line of a header with the cookie that a server has set.
fn cookie(reply: &Reply) -> String {
    let cookie = reply.header("set-cookie").split(';').next().unwrap();
    assert!(cookie.len() > "fhrd-0123456789abcdef=".len() + 32, "{reply:?}");
    format!("Cookie: {cookie}\r\n")
}

#[test]
fn a_token_opens_the_pages_and_nothing_else() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n{OTHER} read you/*\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let form = server.get("/me/model?q=%3Cscript%3E");
    let next = "name=\"next\" value=\"/me/model?q=%3Cscript%3E\"";
    assert!(form.status == 401 && form.text().contains(next) && !form.text().contains("README"), "{form:?}");
    let logged_in = server.form("/login", OWN, &format!("token={ALL}&next=%2Fme%2Fmodel%3Fq%3Da"));
    assert_eq!((logged_in.status, logged_in.header("location")), (303, "/me/model?q=a"));
    let attributes = logged_in.header("set-cookie").split_once("; ").unwrap().1;
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
    let session = cookie(&logged_in);
    let home = server.ask("GET", "/", &session);
    assert!(home.status == 200 && home.text().contains("me/model") && home.text().contains("Log out"), "{home:?}");
    assert_eq!(home.header("cache-control"), "no-store");
    let whole = std::fs::read(place.path("hub/model/mid.bin")).unwrap();
    assert!(server.ask("GET", FILE, &session).body == whole);
    assert_eq!(server.ask("GET", FILE, "").status, 401);
    for target in
        ["/me/model/resolve/main/mid.bin", "/api/models", "/api/models/me/model", "/api/whoami-v2", "/metrics"]
    {
        assert_eq!(server.ask("GET", target, &session).status, 401, "{target} knows no cookies");
    }
    let other = cookie(&server.form("/login", OWN, &format!("token={OTHER}")));
    let home = server.ask("GET", "/", &other);
    assert!(home.status == 200 && !home.text().contains("me/model"), "{home:?}");
    let pages = ["/me/model", "/me/none"].map(|target| {
        let reply = server.ask("GET", target, &other);
        assert_eq!(reply.status, 404, "{target}");
        reply.body
    });
    assert!(pages[0] == pages[1], "as if it were absent");
    assert_eq!(server.ask("GET", FILE, &other).status, 404);
    // A token that is sent counts, whatever the cookie says.
    assert_eq!(server.ask("GET", "/", &format!("{session}Authorization: Bearer {OTHER}x\r\n")).status, 401);
    let name = session.split('=').next().unwrap();
    for forged in [&format!("{name}=\r\n"), &format!("{name}=0\r\n"), &session.replace('=', "=0"), "Cookie: x\r\n"] {
        assert_eq!(server.ask("GET", "/", forged).status, 401, "{forged}");
    }
    let errors = server.stop();
    assert!(!errors.contains("hf_") && !errors.contains(&session), "{errors}");
}

#[test]
fn a_login_is_refused_without_its_token_and_from_other_pages() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let right = format!("token={ALL}");
    for (headers, fields, status) in [
        (OWN, format!("token={ALL}x&next=/me/model"), 401),
        (OWN, "token=".into(), 401),
        (OWN, String::new(), 401),
        (OWN, "token=%ff".into(), 400),
        ("", right.clone(), 403),
        ("Origin: null\r\n", right.clone(), 403),
        ("Origin: http://evil.example\r\n", right.clone(), 403),
        ("Origin: http://localhost\r\nOrigin: http://evil.example\r\n", right.clone(), 403),
    ] {
        let reply = server.form("/login", headers, &fields);
        assert_eq!((reply.status, reply.header("set-cookie")), (status, ""), "{headers} {fields:.80}");
        assert!(reply.header("content-type").starts_with("text/html"), "{reply:?}");
    }
    let refused = server.form("/login", OWN, &format!("token={ALL}x&next=%2Fme%2Fmodel"));
    assert!(refused.text().contains("Nobody has this token") && refused.text().contains("value=\"/me/model\""));
    assert!(!refused.text().contains(ALL), "a token never comes back");
    for next in ["//evil.example", "https://evil.example", "%2F%5Cevil.example", "%2Fa%0D%0ASet-Cookie: x"] {
        let reply = server.form("/login", OWN, &format!("{right}&next={next}"));
        assert_eq!((reply.status, reply.header("location")), (303, "/"), "{next}");
    }
    let errors = server.stop();
    assert!(!errors.contains("hf_"), "{errors}");
}

#[test]
fn a_session_ends_where_its_owner_ends_it() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n"));
    let server = Server::start(&place, &["--token-file", &file, "--public-url", "https://models.example"]);
    let own = "Origin: https://models.example\r\n";
    let logged_in = server.form("/login", own, &format!("token={ALL}"));
    assert!(logged_in.header("set-cookie").ends_with("; Secure"), "{logged_in:?}");
    let session = cookie(&logged_in);
    let status = || server.ask("GET", "/", &session).status;
    assert_eq!(server.form("/logout", &session, "").status, 403, "of another page");
    assert_eq!(server.ask("GET", "/logout", &format!("{session}{own}")).status, 405);
    assert_eq!(status(), 200);
    let logged_out = server.form("/logout", &format!("{session}{own}"), "");
    assert_eq!((logged_out.status, logged_out.header("location")), (303, "/login"));
    assert!(logged_out.header("set-cookie").contains("Max-Age=0"), "{logged_out:?}");
    assert_eq!(status(), 401);
    server.stop();
    // Behind a proxy that speaks TLS and has no `--public-url`.
    let server = Server::start(&place, &["--token-file", &file]);
    for (origin, is_secure) in [(OWN, false), ("Origin: https://localhost\r\n", true)] {
        let logged_in = server.form("/login", origin, &format!("token={ALL}"));
        assert_eq!(logged_in.header("set-cookie").ends_with("; Secure"), is_secure, "{logged_in:?}");
    }
    server.stop();
    // Where nobody needs a token, there is nothing to log in to.
    let server = Server::start(&place, &[]);
    let reply = server.get("/login");
    assert_eq!((reply.status, reply.header("location")), (303, "/"));
    assert!(!server.get("/").text().contains("Log out"));
    server.stop();
}

#[test]
fn servers_of_one_host_know_their_own_sessions_and_false_cookies_lock_nobody_out() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n"));
    let [one, other] = [(); 2].map(|()| Server::start(&place, &["--token-file", &file]));
    let [first, second] =
        [&one, &other].map(|server| cookie(&server.form("/login", OWN, &format!("token={ALL}"))).trim().to_string());
    let name = |cookie: &str| cookie["Cookie: ".len()..].split('=').next().unwrap().to_string();
    assert_ne!(name(&first), name(&second), "browsers send a cookie to every port");
    let both = format!("{first}; {}\r\n", &second["Cookie: ".len()..]);
    for server in [&one, &other] {
        assert_eq!(server.ask("GET", "/", &both).status, 200);
    }
    let false_ones: String = (0..50).map(|at| format!("{}={at:064x}; ", name(&first))).collect();
    let mixed = format!("Cookie: {false_ones}{}\r\n", &first["Cookie: ".len()..]);
    assert_eq!(one.ask("GET", "/", &mixed).status, 200);
    one.stop();
    other.stop();
}

#[test]
fn what_a_proxy_asks_for_hides_no_session() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let session = cookie(&server.form("/login", OWN, &format!("token={ALL}")));
    let basic = "Authorization: Basic dTpw\r\n";
    assert_eq!(server.ask("GET", "/", &format!("{session}{basic}")).status, 200);
    let form = server.ask("GET", "/", basic);
    assert!(form.status == 401 && form.text().contains("name=\"token\""), "{form:?}");
    assert_eq!(server.ask("GET", "/api/models", &format!("{session}{basic}")).status, 401);
    assert_eq!(server.ask("GET", "/", &format!("{session}{basic}Authorization: Bearer x\r\n")).status, 401);
    server.stop();
}

#[test]
fn a_browser_gets_pages_with_its_menu_also_for_what_is_not_there() {
    let place = scene();
    let file = token_file(&place, &format!("{ALL} read\n"));
    let server = Server::start(&place, &["--token-file", &file]);
    let html = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n";
    let form = server.ask("GET", "/none", html);
    assert!(form.status == 401 && form.text().contains("name=\"token\""), "{form:?}");
    assert!(server.get("/none").json()["error"].is_string(), "other clients get JSON");
    let session = cookie(&server.form("/login", OWN, &format!("token={ALL}")));
    for target in ["/none", "/me/none", "/a//b", "/me/model/none/x"] {
        let reply = server.ask("GET", target, &format!("{session}{html}"));
        let is_page = reply.header("content-type").starts_with("text/html");
        assert!(is_page && matches!(reply.status, 400 | 404), "{target}: {reply:?}");
        let has_menu = reply.text().contains("Log out") && reply.text().contains("href=\"/snapshots\"");
        // A path that cannot be read is refused before anybody is asked who they are.
        assert_eq!(has_menu, reply.status == 404, "{target}: {reply:?}");
    }
    server.stop();
}
