//! The frame of a page, and its headers: no script may run, and nothing is loaded from elsewhere.

use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use maud::{DOCTYPE, Markup, html};

use super::login::{login_page, own_path};
use crate::html::STYLE;
use crate::html::picture::name;
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::target::encoded;
use crate::text::printable;

/// What the look of these pages has more than that of a report.
const OWN_STYLE: &str = include_str!("style.css");
/// The icon.
const ICON: &str = include_str!("icon.svg");
/// What a browser may load and do for a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";
/// A script of a page of another origin learns nothing, and an own form still has its origin.
const REFERRER: &str = "same-origin";

/// Pages of the whole repository.
const SITE: [(&str, &str); 5] = [
    ("/snapshots", "Snapshots"),
    ("/families", "Families"),
    ("/runs", "Runs"),
    ("/space", "Space"),
    ("/health", "Health"),
];

/// A step of the way to a page: what it says, and where it leads.
pub type TrailStep = (String, String);

/// What the frame of a page shows for a client.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageFrame {
    /// Whether there is a session to end.
    pub can_log_out: bool,
    /// Whether the client may read everything.
    pub may_read_all: bool,
}

/// An answer with a page. The title is text from data; the content stands below it.
pub fn page(frame: PageFrame, status: StatusCode, title: &str, trail: &[TrailStep], content: &Markup) -> HttpAnswer {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (printable(title)) " · fhrd" }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="/icon.svg";
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    nav aria-label="Site" {
                        a.brand href="/" { "fhrd" }
                        @if frame.may_read_all {
                            @for (target, text) in SITE { a href=(target) { (text) } }
                        }
                    }
                    @if frame.can_log_out {
                        (sent("post", Some("/logout"), None, &html! { button type="submit" { "Log out" } }))
                    }
                }
                @if !trail.is_empty() {
                    nav.trail aria-label="Path" {
                        @for (text, target) in trail { a href=(target) { (name(text)) } span aria-hidden="true" { "/" } }
                    }
                }
                main #main {
                    h1 { (name(title)) }
                    (content)
                }
                footer { "Served by fhrd." }
            }
        }
    };
    let mut answer = answer::with_type(status, "text/html; charset=utf-8", answer::whole(page.into_string()));
    answer::set(&mut answer, CONTENT_SECURITY_POLICY, POLICY);
    answer::set(&mut answer, REFERRER_POLICY, REFERRER);
    // It is for one client, and what it says may change.
    answer::set(&mut answer, CACHE_CONTROL, "no-store");
    answer
}

/// What a browser shows for a request for `path` that fails, with the menu of its client. Other clients see
/// the code, too.
pub fn fault_page(frame: PageFrame, fault: Fault, path: &str) -> HttpAnswer {
    let (status, message) = (fault.status(), fault.message());
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "Not allowed",
        _ => "This did not work",
    };
    let content = html! {
        p { (printable(&message)) "." }
        p { a href="/" { "All names" } }
    };
    let mut answer = match fault {
        Fault::NoToken | Fault::WrongToken => login_page(status, own_path(path), ""),
        _ => page(frame, status, title, &[], &content),
    };
    for (name, value) in HttpAnswer::from(fault).headers() {
        answer.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    answer
}

/// The look of all pages.
pub fn style() -> HttpAnswer {
    let text = format!("{STYLE}{OWN_STYLE}");
    let mut answer = answer::with_type(StatusCode::OK, "text/css; charset=utf-8", answer::whole(text));
    answer::set(&mut answer, CACHE_CONTROL, "no-cache");
    answer
}

/// The icon of all pages.
pub fn icon() -> HttpAnswer {
    let mut answer = answer::with_type(StatusCode::OK, "image/svg+xml", answer::whole(ICON));
    answer::set(&mut answer, CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; sandbox");
    answer::set(&mut answer, CACHE_CONTROL, "max-age=86400");
    answer
}

/// Fields that a browser sends, to `target` or to the address of their page.
pub fn sent(method: &str, target: Option<&str>, class: Option<&str>, content: &Markup) -> Markup {
    html! {
        form method=(method) action=[target] class=[class] { (content) }
    }
}

/// A part of a path that holds no other one, for a URL.
pub fn url_part(text: &str) -> String {
    encoded(text.as_bytes()).replace('/', "%2F")
}
