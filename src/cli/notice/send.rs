//! Sends notices over HTTP, and runs the command of a profile.
//!
//! 1. A request that fails in a way that may pass (no connection, no answer in time, 429, 5xx) is sent again, after
//!    growing pauses, until the time is over. Any other answer but 2xx ends it.
//! 2. Redirections are followed within the host of the URL only, without a header that names where they come from: the
//!    path is the secret.
//! 3. Warnings name the key of the profile, never the URL.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, StatusCode, Url};

use crate::child::{ended, without_secrets};
use crate::cli::process::stop;
use crate::config::NotifyProfile;
use crate::store::runtime::block_on;
use crate::types::hex;
use crate::wire::read_text_file;

/// The time for one request.
const TRY: Duration = Duration::from_secs(8);
/// The pause before the second request. Each next one is twice as long.
const PAUSE: Duration = Duration::from_millis(500);
/// Redirections that are followed.
const HOPS_MAX: usize = 3;
/// Bytes of a body: healthchecks refuses more, unless it is told otherwise.
const BODY_BYTES_MAX: usize = 10_000;
/// Bytes of a file with a URL.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What a ping says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ping {
    /// The command begins.
    Start,
    /// It was a success.
    Success,
    /// It has failed.
    Failure,
}

/// Where notices go.
#[derive(Default)]
pub(super) struct Targets {
    ping: Option<Url>,
    webhook: Option<Url>,
}

impl Targets {
    /// The URLs of a profile. One that cannot be read or used is a warning.
    pub(super) fn of(notify: &NotifyProfile) -> Targets {
        let text = |url: Option<&str>, file: Option<&Path>, key: &str| match (url, file) {
            (Some(url), _) => parse(key, url),
            (None, Some(file)) => match read_text_file(file, FILE_BYTES_MAX, stop()) {
                Ok(text) => parse(key, text.lines().next().unwrap_or_default()),
                Err(error) => {
                    tracing::warn!("nobody is told by notify.{key}: cannot read {}: {error}", file.display());
                    None
                }
            },
            (None, None) => None,
        };
        let NotifyProfile { ping, ping_file, webhook, webhook_file, .. } = notify;
        Targets {
            ping: text(ping.as_ref().map(|url| url.0.as_str()), ping_file.as_deref(), "ping"),
            webhook: text(webhook.as_ref().map(|url| url.0.as_str()), webhook_file.as_deref(), "webhook"),
        }
    }
}

fn parse(key: &str, text: &str) -> Option<Url> {
    let url = Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if url.is_none() {
        tracing::warn!("nobody is told by notify.{key}: it is no http:// or https:// URL");
    }
    url
}

/// Sends the notices of one run.
pub(super) struct Sender {
    targets: Targets,
    /// Pairs the start of this run with its end.
    run: String,
    client: OnceLock<Option<Client>>,
}

impl Sender {
    /// `None` if there are no random numbers.
    pub(super) fn new(targets: Targets) -> Option<Sender> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).ok()?;
        // A random UUID: its version and variant are in two of the digits.
        let [.., version, _, variant, _, _, _, _, _, _, _] = &mut id;
        (*version, *variant) = (*version & 0x0f | 0x40, *variant & 0x3f | 0x80);
        let digits = hex(&id);
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default().to_string();
        let run = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-");
        Some(Sender { targets, run, client: OnceLock::new() })
    }

    /// Pings, in `limit` at most.
    pub(super) fn ping(&self, ping: Ping, body: &str, limit: Duration) {
        let Some(mut url) = self.targets.ping.clone() else { return };
        let suffix = match ping {
            Ping::Start => Some("start"),
            Ping::Success => None,
            Ping::Failure => Some("fail"),
        };
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(suffix);
        }
        url.query_pairs_mut().append_pair("rid", &self.run);
        self.post("ping", &url, body, "text/plain; charset=utf-8", limit);
    }

    /// Posts a JSON document to the webhook, in `limit` at most.
    pub(super) fn webhook(&self, document: &str, limit: Duration) {
        if let Some(url) = &self.targets.webhook {
            self.post("webhook", url, document, "application/json", limit);
        }
    }

    fn post(&self, key: &str, url: &Url, body: &str, kind: &'static str, limit: Duration) {
        let Some(client) = self.client.get_or_init(client) else {
            tracing::warn!("nobody is told by notify.{key}: no HTTP client can be started");
            return;
        };
        let body = if kind.starts_with("text") { cut(body) } else { body };
        let request = || client.post(url.clone()).header(CONTENT_TYPE, HeaderValue::from_static(kind));
        let sent = block_on(async {
            let (started, mut pause) = (Instant::now(), PAUSE);
            loop {
                let left = limit.saturating_sub(started.elapsed());
                let answer = tokio::time::timeout(TRY.min(left), request().body(body.to_string()).send()).await;
                let (reason, may_pass) = match answer {
                    Ok(Ok(answer)) if answer.status().is_success() => return Ok(()),
                    Ok(Ok(answer)) => (format!("it answers {}", answer.status()), may_pass(answer.status())),
                    Ok(Err(error)) => (reason(error), true),
                    Err(_) => ("it does not answer in time".into(), true),
                };
                if !may_pass || started.elapsed() + pause >= limit {
                    return Err(reason);
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        });
        match sent {
            Ok(Ok(())) => tracing::debug!("notify.{key} was told"),
            Ok(Err(reason)) => tracing::warn!("notify.{key} was not told: {reason}"),
            Err(error) => tracing::warn!("notify.{key} was not told: {error}"),
        }
    }
}

fn client() -> Option<Client> {
    let follow = |attempt: Attempt<'_>| {
        let from = attempt.previous().first();
        let is_same = from.is_some_and(|from| from.origin() == attempt.url().origin());
        if is_same && attempt.previous().len() <= HOPS_MAX { attempt.follow() } else { attempt.stop() }
    };
    let agent = concat!("fhrd/", env!("CARGO_PKG_VERSION"));
    Client::builder().user_agent(agent).referer(false).redirect(Policy::custom(follow)).build().ok()
}

fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT
}

/// What failed, without the URL.
fn reason(error: reqwest::Error) -> String {
    use std::error::Error;
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

/// The beginning of a text, cut where a character ends.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(BODY_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Runs a command of the shell in `limit` at most, and ends what it has started with it. What it prints goes to
/// standard error. A failure is a warning.
pub(super) fn run_command(command: &str, variables: &[(&str, &str)], limit: Duration) {
    use std::os::fd::AsFd;
    use std::os::unix::process::CommandExt;
    let started = Instant::now();
    let run = || -> std::io::Result<Option<String>> {
        let output = std::io::stderr().as_fd().try_clone_to_owned()?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::from(output));
        let shell = without_secrets(&mut shell).envs(variables.iter().copied());
        let mut child = shell.process_group(0).spawn()?;
        Ok(match ended(&mut child, || started.elapsed() >= limit)? {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("it ended with {status}")),
            None => Some("it did not end in time".into()),
        })
    };
    match run() {
        Ok(None) => {}
        Ok(Some(reason)) => tracing::warn!("notify.command failed: {reason}"),
        Err(error) => tracing::warn!("notify.command failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_cut_between_characters() {
        let text = "é".repeat(BODY_BYTES_MAX);
        assert_eq!(cut(&text).len(), BODY_BYTES_MAX);
        assert_eq!(cut(&text[..2]), "é");
        assert_eq!(cut(&format!("a{text}")).len(), BODY_BYTES_MAX - 1);
    }

    #[test]
    fn a_run_has_a_random_uuid() {
        let run = || Sender::new(Targets::default()).unwrap().run;
        let (one, other) = (run(), run());
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert!(one != other && parts == [8, 4, 4, 4, 12] && one.as_bytes()[14] == b'4', "{one}");
        assert!("89ab".contains(one.as_bytes()[19] as char), "{one}");
    }
}
