//! Logging in: a form takes a token once, and the browser gets a session.

use http::StatusCode;
use http::header::{LOCATION, SET_COOKIE};
use maud::html;

use super::layout::{PageFrame, page, sent};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::question::Question;

/// Bytes of the path that a form leads back to.
const NEXT_BYTES_MAX: usize = 2048;

/// The form. `next` is where it leads.
pub fn login_page(status: StatusCode, next: &str, message: &str) -> HttpAnswer {
    let fields = html! {
        // Programs that keep passwords want a name before it.
        input type="text" name="username" value="token" autocomplete="username" hidden;
        p {
            label for="token" { "Token" }
            input #token type="password" name="token" required maxlength="512" autocomplete="current-password" autofocus;
        }
        input type="hidden" name="next" value=(next);
        button type="submit" { "Log in" }
    };
    let content = html! {
        @if !message.is_empty() { p role="alert" { span.bad { (message) } } }
        (sent("post", Some("/login"), Some("login"), &fields))
        p.note { "Whoever runs this server gives out tokens. The browser stays logged in for 12 hours." }
    };
    page(PageFrame::default(), status, "Log in", &[], &content)
}

/// Where a form leads: a path of this server. Anything else is `/`.
pub fn own_path(next: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let is_own = next.starts_with('/') && !next.starts_with("//") && next.bytes().all(is_plain);
    if is_own && next.len() <= NEXT_BYTES_MAX { next } else { "/" }
}

fn led_to(path: &str) -> HttpAnswer {
    let mut answer = answer::text(StatusCode::SEE_OTHER, "");
    answer::set(&mut answer, LOCATION, path);
    answer
}

/// The page of the form.
pub fn login(question: &Question<'_>) -> HttpAnswer {
    match question.state.tokens {
        Some(_) => login_page(StatusCode::OK, "/", ""),
        None => led_to("/"),
    }
}

/// What the form sends: begins a session, or shows the form again.
///
/// # Errors
/// [`Fault::Failed`].
pub fn log_in(question: &Question<'_>, fields: &[(String, String)]) -> Result<HttpAnswer, Fault> {
    let value = |wanted: &str| fields.iter().find(|(key, _)| key == wanted).map_or("", |(_, value)| value.as_str());
    let next = own_path(value("next"));
    let Some(tokens) = &question.state.tokens else { return Ok(led_to(next)) };
    let Some(token) = tokens.find(value("token").trim()) else {
        return Ok(login_page(StatusCode::UNAUTHORIZED, next, "Nobody has this token."));
    };
    let id = question.state.sessions.begin(token.line)?;
    let mut answer = led_to(next);
    answer::set(&mut answer, SET_COOKIE, &question.state.sessions.cookie(Some(&id), question.is_secure()));
    Ok(answer)
}

/// Ends the session.
pub fn log_out(question: &Question<'_>) -> HttpAnswer {
    question.state.sessions.end(question.headers);
    let mut answer = led_to("/login");
    answer::set(&mut answer, SET_COOKIE, &question.state.sessions.cookie(None, question.is_secure()));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_leads_to_this_server_only() {
        for good in ["/", "/me/model?q=a%20b&page=2", "/a//b"] {
            assert_eq!(own_path(good), good);
        }
        let long = format!("/{}", "x".repeat(NEXT_BYTES_MAX));
        for bad in
            ["", "a", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nSet-Cookie: x", "/ü", &long]
        {
            assert_eq!(own_path(bad), "/", "{bad}");
        }
    }
}
