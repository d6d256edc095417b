//! From a request to an answer: who may ask here, who asks, and which route it is.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::timeout;

use super::answer::{self, HttpAnswer};
use super::fault::Fault;
use super::file::file;
use super::hosts::HostFault;
use super::listing;
use super::names;
use super::parts::blocking;
use super::state::{Client, ServeState};
use super::target::{RequestTarget, pairs};
use super::tokens::bearer;
use crate::repo::published::{DEFAULT_REVISION, PublishedKind, TreePath};

/// Bytes of the body of a request, at most.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Methods of all routes but one.
const LOOKS: &str = "GET, HEAD";

/// A request without its body.
struct Question<'a> {
    method: &'a Method,
    headers: &'a HeaderMap,
    target: RequestTarget,
    /// URL of the route, absolute.
    url: String,
}

/// The body of a request for some paths.
#[derive(Deserialize)]
struct WantedPaths {
    paths: PathList,
}

/// One path or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum PathList {
    One(String),
    Several(Vec<String>),
}

/// The answer to a request, and the line of its token in the file.
pub async fn answer(state: &Arc<ServeState>, request: Request<Incoming>, is_tls: bool) -> (HttpAnswer, Option<usize>) {
    let (parts, body) = request.into_parts();
    let mut line = None;
    let answer = match checked(state, &parts, is_tls) {
        Ok((question, client)) => {
            if let Client::Holder(token) = client {
                line = Some(token.line);
            }
            routed(state, &question, client, body).await
        }
        Err(fault) => Err(fault),
    };
    let answer = answer.unwrap_or_else(HttpAnswer::from);
    let answer = if parts.method == Method::HEAD { answer::without_body(answer) } else { answer };
    (answer, line)
}

/// The only value of a header. Several are as none.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Checks for whom a request is, and who sent it.
fn checked<'a>(
    state: &'a ServeState,
    parts: &'a http::request::Parts,
    is_tls: bool,
) -> Result<(Question<'a>, Client<'a>), Fault> {
    let (headers, uri) = (&parts.headers, &parts.uri);
    let host = header(headers, &HOST);
    let origins: Vec<&str> = headers.get_all(ORIGIN).iter().map(|origin| origin.to_str().unwrap_or_default()).collect();
    let hosts = host.into_iter().chain(uri.authority().map(http::uri::Authority::as_str)).map(Some);
    let mut hosts = hosts.peekable();
    if hosts.peek().is_none() {
        return Err(Fault::Bad("the request says not for which host it is"));
    }
    for host in hosts {
        for origin in origins.iter().copied().map(Some).chain([None]) {
            state.hosts.check(host, origin).map_err(|fault| match fault {
                HostFault::Missing => Fault::Bad("the request says not for which host it is"),
                HostFault::Foreign => Fault::ForeignHost,
                HostFault::ForeignOrigin => Fault::ForeignOrigin,
            })?;
        }
    }
    let target = RequestTarget::parse(uri.path(), uri.query());
    let target = target.ok_or(Fault::Bad("the path or the query is not valid"))?;
    let base = state.hosts.public_origin().map_or_else(
        || format!("{}://{}", if is_tls { "https" } else { "http" }, host.unwrap_or_default()),
        str::to_string,
    );
    let question = Question { method: &parts.method, headers, target, url: format!("{base}{}", uri.path()) };
    let client = match &state.tokens {
        None => Client::Anybody,
        Some(_) if is_open(&question.target) => Client::Anybody,
        Some(tokens) => {
            if !headers.contains_key(AUTHORIZATION) {
                return Err(Fault::NoToken);
            }
            let presented = header(headers, &AUTHORIZATION).and_then(bearer).ok_or(Fault::WrongToken)?;
            Client::Holder(tokens.find(presented).ok_or(Fault::WrongToken)?)
        }
    };
    Ok((question, client))
}

/// Whether a route says nothing of what is stored, so that nobody needs a token.
fn is_open(target: &RequestTarget) -> bool {
    match target.names.as_slice() {
        [] => true,
        [name] => matches!(name.as_slice(), b"healthz" | b"readyz"),
        _ => false,
    }
}

async fn routed(
    state: &Arc<ServeState>,
    question: &Question<'_>,
    client: Client<'_>,
    body: Incoming,
) -> Result<HttpAnswer, Fault> {
    let names: Vec<&[u8]> = question.target.names.iter().map(Vec::as_slice).collect();
    let is_look = matches!(*question.method, Method::GET | Method::HEAD);
    if let [b"api", kind, org, name, b"paths-info", revision] = names.as_slice() {
        if *question.method != Method::POST {
            return Err(Fault::NoMethod("POST"));
        }
        let kind = kind_of(kind)?;
        let found = state.find(client, kind, &name_of(org, name)?, &text(revision)?).await?;
        let wanted = wanted(state, question.headers, body).await?;
        return listing::paths(state, found, wanted).await;
    }
    if !is_look {
        return Err(Fault::NoMethod(LOOKS));
    }
    match names.as_slice() {
        [] => Ok(answer::text(StatusCode::OK, "fhrd serves models and datasets to clients of the Hub, read-only.\n")),
        [b"healthz"] => Ok(answer::text(StatusCode::OK, "ok\n")),
        [b"readyz"] => ready(state).await,
        [b"api", rest @ ..] => api(state, question, client, rest).await,
        [b"datasets", org, name, b"resolve", revision, path @ ..] if !path.is_empty() => {
            resolved(state, question, client, (PublishedKind::Dataset, org, name), revision, path).await
        }
        [org, name, b"resolve", revision, path @ ..] if !path.is_empty() => {
            resolved(state, question, client, (PublishedKind::Model, org, name), revision, path).await
        }
        _ => Err(Fault::NoRoute),
    }
}

async fn ready(state: &ServeState) -> Result<HttpAnswer, Fault> {
    let catalogue = state.catalogue.clone();
    match blocking(move || catalogue.is_ready()).await? {
        true => Ok(answer::text(StatusCode::OK, "ready\n")),
        false => Err(Fault::Unavailable("the snapshots cannot be listed".into())),
    }
}

async fn api(
    state: &Arc<ServeState>,
    question: &Question<'_>,
    client: Client<'_>,
    names: &[&[u8]],
) -> Result<HttpAnswer, Fault> {
    let Question { target, url, .. } = question;
    match names {
        [b"whoami-v2"] => Ok(names::who(client)),
        [kind] => names::list(state, client, kind_of(kind)?, target, url).await,
        [kind, org, name, rest @ ..] => {
            let (kind, name) = (kind_of(kind)?, name_of(org, name)?);
            match rest {
                [] => names::name(state, state.find(client, kind, &name, DEFAULT_REVISION).await?).await,
                [b"revision", revision] => {
                    names::name(state, state.find(client, kind, &name, &text(revision)?).await?).await
                }
                [b"refs"] => names::revisions(state, client, kind, &name).await,
                [b"tree", revision, path @ ..] => {
                    let found = state.find(client, kind, &name, &text(revision)?).await?;
                    listing::tree(state, found, owned(path), target, url).await
                }
                _ => Err(Fault::NoRoute),
            }
        }
        _ => Err(Fault::NoRoute),
    }
}

async fn resolved(
    state: &ServeState,
    question: &Question<'_>,
    client: Client<'_>,
    (kind, org, name): (PublishedKind, &[u8], &[u8]),
    revision: &[u8],
    path: &[&[u8]],
) -> Result<HttpAnswer, Fault> {
    let found = state.find(client, kind, &name_of(org, name)?, &text(revision)?).await?;
    file(state, found, owned(path), question.method, question.headers).await
}

fn owned(path: &[&[u8]]) -> TreePath {
    path.iter().map(|name| name.to_vec()).collect()
}

/// Spaces and other kinds have no names here.
fn kind_of(kind: &[u8]) -> Result<PublishedKind, Fault> {
    match kind {
        b"models" => Ok(PublishedKind::Model),
        b"datasets" => Ok(PublishedKind::Dataset),
        b"spaces" | b"kernels" | b"buckets" => Err(Fault::NoName),
        _ => Err(Fault::NoRoute),
    }
}

fn name_of(org: &[u8], name: &[u8]) -> Result<String, Fault> {
    match (std::str::from_utf8(org), std::str::from_utf8(name)) {
        (Ok(org), Ok(name)) => Ok(format!("{org}/{name}")),
        _ => Err(Fault::NoName),
    }
}

fn text(revision: &[u8]) -> Result<String, Fault> {
    std::str::from_utf8(revision).map(str::to_string).map_err(|_| Fault::NoRevision)
}

/// The paths in the body of a request: JSON, or a form as older clients send it.
async fn wanted(state: &ServeState, headers: &HeaderMap, body: Incoming) -> Result<Vec<String>, Fault> {
    let collected = timeout(state.limits.body, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let collected = collected.map_err(|_| Fault::TooSlow)?;
    let bytes: Bytes = collected.map_err(|_| Fault::TooLong)?.to_bytes();
    let is_urlencoded =
        header(headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    if is_urlencoded {
        let text = std::str::from_utf8(&bytes).ok().and_then(pairs);
        let pairs = text.ok_or(Fault::Bad("the form is not valid"))?;
        return Ok(pairs.into_iter().filter(|(key, _)| key == "paths").map(|(_, value)| value).collect());
    }
    let wanted: WantedPaths = serde_json::from_slice(&bytes).map_err(|_| Fault::Bad("expected JSON with `paths`"))?;
    Ok(match wanted.paths {
        PathList::One(path) => vec![path],
        PathList::Several(paths) => paths,
    })
}
