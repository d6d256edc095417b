//! From a request to an answer: who may ask here, who asks, and which route it is.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
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
use super::metrics::metrics;
use super::names;
use super::oci;
use super::pages::{self, PageFrame};
use super::parts::blocking;
use super::question::Question;
use super::route::{LOOKS, NO_ROUTE, Route};
use super::state::{Client, ServeState};
use super::target::{RequestTarget, pairs};
use super::tokens::{bearer, password};
use super::upload;

/// Bytes of the body of a request, at most.
const BODY_BYTES_MAX: usize = 1 << 20;

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

/// What logs and metrics say of a request.
pub struct AskedRoute {
    /// Its route.
    pub template: &'static str,
    /// The line of its token in the file.
    pub token: Option<usize>,
    /// How a client of the route is told what fails.
    on_fault: FaultAnswer,
}

/// An answer that says what fails.
enum FaultAnswer {
    /// As clients of the Hub know it.
    Hub,
    /// As git-lfs does.
    Objects,
    /// As clients of a registry do.
    Registry,
    /// A page, and what its frame shows for the client.
    Page(PageFrame),
}

impl FaultAnswer {
    fn answer(self, fault: Fault, path: &str) -> HttpAnswer {
        match self {
            FaultAnswer::Hub => fault.into(),
            FaultAnswer::Objects => upload::object_fault(fault),
            FaultAnswer::Registry => oci::registry_fault(fault),
            FaultAnswer::Page(frame) => pages::fault_page(frame, fault, path),
        }
    }
}

/// The answer to a request.
pub async fn answer(state: &Arc<ServeState>, request: Request<Incoming>, is_tls: bool) -> (HttpAnswer, AskedRoute) {
    let (parts, body) = request.into_parts();
    let mut asked = AskedRoute { template: NO_ROUTE, token: None, on_fault: FaultAnswer::Hub };
    let answer = match answered(state, &parts, body, is_tls, &mut asked).await {
        Ok(answer) => answer,
        Err(fault) => {
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            std::mem::replace(&mut asked.on_fault, FaultAnswer::Hub).answer(fault, path)
        }
    };
    let answer = if parts.method == Method::HEAD { answer::without_body(answer) } else { answer };
    (answer, asked)
}

async fn answered(
    state: &Arc<ServeState>,
    parts: &http::request::Parts,
    body: Incoming,
    is_tls: bool,
    asked: &mut AskedRoute,
) -> Result<HttpAnswer, Fault> {
    let target = RequestTarget::parse(parts.uri.path(), parts.uri.query());
    let route = target.as_ref().map(|target| Route::of(&target.names));
    if let Some(Ok(route)) = &route {
        asked.template = route.template();
    }
    let is_page = match &route {
        Some(Ok(route)) => route.is_page(),
        _ => wants_page(&parts.headers),
    };
    asked.on_fault = match &route {
        _ if is_page => FaultAnswer::Page(PageFrame::default()),
        Some(Ok(route)) if route.is_registry() => FaultAnswer::Registry,
        Some(Ok(Route::ObjectBatch(..))) => FaultAnswer::Objects,
        _ => FaultAnswer::Hub,
    };
    let origin = checked(state, parts, is_tls)?;
    let (Some(target), Some(route)) = (&target, route) else {
        return Err(Fault::Bad("the path or the query is not valid"));
    };
    let is_open = route.as_ref().is_ok_and(Route::is_open);
    let takes_password = route.as_ref().is_ok_and(Route::takes_password);
    let (client, has_session) = client(state, &parts.headers, is_open, (is_page, takes_password))?;
    if let Client::Holder(token) = &client {
        asked.token = Some(token.line);
    }
    if is_page && !is_open {
        asked.on_fault = FaultAnswer::Page(PageFrame { can_log_out: has_session, may_read_all: client.may_read_all() });
    }
    let methods = route.as_ref().map_or(LOOKS, Route::methods);
    if !methods.split(", ").any(|method| method == parts.method.as_str()) {
        return Err(Fault::NoMethod(methods));
    }
    let (method, headers, path) = (&parts.method, &parts.headers, parts.uri.path());
    let question = Question { state, client, method, headers, target, origin, is_tls, path, has_session };
    routed(&question, route?, body).await
}

/// Whether a browser asks, which shows what it gets.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|kinds| kinds.to_str().ok());
    let mut kinds = accepted.flat_map(|kinds| kinds.split(','));
    kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html")))
}

/// The only value of a header. Several are as none.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Checks for whom a request is, and from where. The origin of this server, as the client sees it.
fn checked(state: &ServeState, parts: &http::request::Parts, is_tls: bool) -> Result<String, Fault> {
    let (headers, uri) = (&parts.headers, &parts.uri);
    let host = header(headers, &HOST);
    let origins: Vec<&str> = headers.get_all(ORIGIN).iter().map(|origin| origin.to_str().unwrap_or_default()).collect();
    let hosts = host.into_iter().chain(uri.authority().map(http::uri::Authority::as_str)).map(Some);
    let mut hosts = hosts.peekable();
    if hosts.peek().is_none() || (host.is_none() && headers.contains_key(HOST)) {
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
    let scheme = if is_tls { "https" } else { "http" };
    let own = || format!("{scheme}://{}", host.unwrap_or_default());
    Ok(state.hosts.public_origin().map_or_else(own, str::to_string))
}

/// Who asks, and whether a session says so. Only pages know sessions: a page elsewhere can make a browser send its
/// cookie to other routes. A token that is sent counts before a session. A browser also sends what a proxy before this
/// server asks of it, by another scheme: that says nothing to this server, so it hides no session.
/// Clients of registries and git-lfs send a token as a password, which counts on their routes.
fn client(
    state: &ServeState,
    headers: &HeaderMap,
    is_open: bool,
    (is_page, takes_password): (bool, bool),
) -> Result<(Client, bool), Fault> {
    let Some(tokens) = &state.tokens else { return Ok((Client::Anybody, false)) };
    if is_open {
        return Ok((Client::Anybody, false));
    }
    let authorization = header(headers, &AUTHORIZATION);
    let has_other_scheme = |text: &str| bearer(text).is_none() && text.contains(' ');
    let is_of_proxy = is_page && authorization.is_some_and(has_other_scheme);
    if headers.contains_key(AUTHORIZATION) && !is_of_proxy {
        let presented = authorization.and_then(bearer).map(str::to_string);
        let presented = presented.or_else(|| authorization.filter(|_| takes_password).and_then(password));
        let presented = presented.ok_or(Fault::WrongToken)?;
        return Ok((Client::Holder(tokens.find(&presented).ok_or(Fault::WrongToken)?), false));
    }
    let line = if is_page { state.sessions.find(headers) } else { None };
    let absent = if is_of_proxy { Fault::WrongToken } else { Fault::NoToken };
    Ok((Client::Holder(line.and_then(|line| tokens.of_line(line)).ok_or(absent)?), true))
}

async fn routed(question: &Question<'_>, route: Route, body: Incoming) -> Result<HttpAnswer, Fault> {
    let Question { state, client, method, headers, target, .. } = question;
    match route {
        Route::Health => Ok(answer::text(StatusCode::OK, "ok\n")),
        Route::Ready => ready(state).await,
        Route::Metrics if client.may_read_all() => metrics(state),
        Route::Metrics => Err(Fault::NotAllowed),
        Route::Who => Ok(names::who(client)),
        Route::Names(kind) => names::list(state, client, kind, target, &question.url()).await,
        Route::Name(at) => names::name(state, question.find(&at).await?).await,
        Route::Revisions(kind, name) => names::revisions(state, client, kind, &name).await,
        Route::Tree(at) => listing::tree(state, question.find(&at).await?, at.path, target, &question.url()).await,
        Route::Paths(at) => {
            let found = question.find(&at).await?;
            listing::paths(state, found, wanted(question, body).await?).await
        }
        Route::File(at) | Route::Download(at) => file(state, question.find(&at).await?, at.path, method, headers).await,
        Route::XetAbsent => Err(Fault::NoRoute),
        Route::XetToken(..) | Route::XetXorb(_) | Route::XetShard(_) => uploaded(question, route, body).await,
        Route::ObjectBatch(kind, name) => {
            let body = bytes_of(state, body).await?;
            upload::batch(question, state.uploads.as_ref(), (kind, &name), &body).await
        }
        Route::Create | Route::ValidCard | Route::Preupload(_) | Route::Commit(_) => {
            uploaded(question, route, body).await
        }
        Route::Object(_) | Route::ObjectCheck(_) => uploaded(question, route, body).await,
        Route::ObjectPart(..) | Route::ObjectParts(_) => uploaded(question, route, body).await,
        Route::Registry => Ok(oci::root()),
        Route::Manifest(name, reference) => oci::manifest(question, &name, &reference).await,
        Route::Blob(name, digest) => oci::blob(question, &name, &digest).await,
        Route::Tags(name) => oci::tags(question, &name).await,
        Route::RegistryAbsent => Err(Fault::NoRoute),
        Route::Home => pages::home(question).await,
        Route::Snapshots => pages::snapshots(question).await,
        Route::Overview(wanted) => pages::overview(question, wanted).await,
        Route::Style => Ok(pages::style()),
        Route::Icon => Ok(pages::icon()),
        Route::Card(kind, name) => pages::card(question, kind, &name).await,
        Route::Files(at) => pages::files(question, &at).await,
        Route::Entry(at) => pages::entry(question, &at).await,
        Route::Login if **method == Method::POST => pages::log_in(question, &own_fields(question, body).await?),
        Route::Login => Ok(pages::login(question)),
        Route::Logout => {
            own_fields(question, body).await?;
            Ok(pages::log_out(question))
        }
    }
}

/// What comes with an upload.
async fn uploaded(question: &Question<'_>, route: Route, body: Incoming) -> Result<HttpAnswer, Fault> {
    let Some(uploads) = &question.state.uploads else {
        return Err(Fault::Forbidden(upload::READ_ONLY));
    };
    match route {
        Route::Commit(at) => upload::commit(question, uploads, &at, body).await,
        Route::Object(object) => upload::object(question, uploads, object, body).await,
        Route::ObjectPart(object, number) => upload::part(question, uploads, (object, number), body).await,
        Route::XetToken(kind, name) => upload::xet_token(question, uploads, (kind, &name)),
        Route::XetXorb(hash) => upload::xorb(question, uploads, hash, body).await,
        Route::XetShard(is_streamed) => upload::shard(question, uploads, is_streamed, body).await,
        route => {
            let body = bytes_of(question.state, body).await?;
            match route {
                Route::Create => upload::create(question, &body).await,
                Route::ValidCard => Ok(upload::valid_card()),
                Route::Preupload(at) => upload::preupload(question, &at, &body).await,
                Route::ObjectCheck(object) => upload::verified(question, uploads, object, &body).await,
                Route::ObjectParts(object) => upload::whole(question, uploads, object, &body).await,
                _ => Err(Fault::NoRoute),
            }
        }
    }
}

async fn ready(state: &ServeState) -> Result<HttpAnswer, Fault> {
    let catalogue = state.catalogue.clone();
    match blocking(move || catalogue.is_ready()).await? {
        true => Ok(answer::text(StatusCode::OK, "ready\n")),
        false => Err(Fault::Unavailable("the snapshots cannot be listed".into())),
    }
}

/// The body of a request.
async fn bytes_of(state: &ServeState, body: Incoming) -> Result<Bytes, Fault> {
    let collected = timeout(state.limits.body, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let collected = collected.map_err(|_| Fault::TooSlow)?;
    Ok(collected.map_err(|_| Fault::TooLong)?.to_bytes())
}

/// Keys and values of a form.
fn fields_of(bytes: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    std::str::from_utf8(bytes).ok().and_then(pairs).ok_or(Fault::Bad("the form is not valid"))
}

/// What a form of an own page sends. A browser says where it comes from, and [`checked`] has compared that.
async fn own_fields(question: &Question<'_>, body: Incoming) -> Result<Vec<(String, String)>, Fault> {
    if !question.headers.contains_key(ORIGIN) {
        return Err(Fault::ForeignOrigin);
    }
    fields_of(&bytes_of(question.state, body).await?)
}

/// The paths in the body of a request: JSON, or a form as older clients send it.
async fn wanted(question: &Question<'_>, body: Incoming) -> Result<Vec<String>, Fault> {
    let bytes = bytes_of(question.state, body).await?;
    let is_urlencoded = header(question.headers, &CONTENT_TYPE)
        .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    if is_urlencoded {
        let pairs = fields_of(&bytes)?;
        return Ok(pairs.into_iter().filter(|(key, _)| key == "paths").map(|(_, value)| value).collect());
    }
    let wanted: WantedPaths = serde_json::from_slice(&bytes).map_err(|_| Fault::Bad("expected JSON with `paths`"))?;
    Ok(match wanted.paths {
        PathList::One(path) => vec![path],
        PathList::Several(paths) => paths,
    })
}
