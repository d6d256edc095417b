//! A small S3 server on loopback, in memory. It fails as a test wants it to.
//!
//! It knows GET (with ranges), HEAD, conditional PUT, DELETE, listings in pages and uploads in parts of one bucket. It
//! looks at the id of the access key, not at signatures. Puts must bring a checksum, as S3 wants it where objects are
//! locked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::runtime::Runtime;

/// The bucket that exists.
pub const BUCKET: &str = "bucket";
/// The access key that the server knows.
pub const ACCESS_KEY: &str = "AKIDEXAMPLE";
/// What a bucket with locks says about them.
const LOCK_CONFIGURATION: &str =
    "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>";
/// The header with the end of a lock.
const UNTIL_HEADER: &str = "x-amz-object-lock-retain-until-date";

/// How a request goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFault {
    /// 409, and nothing is stored.
    Conflict,
    /// 412, although this request has just stored the object.
    TakenByItself,
    /// 500, and nothing is done.
    ServerError,
    /// 503, and nothing is done.
    SlowDown,
    /// All is done, and no answer ever comes.
    NoAnswer,
    /// All is done, and the connection is closed without an answer.
    Closed,
    /// The connection is closed in the middle of the answer.
    CutBody,
    /// The answer has half of its bytes, and says so.
    ShortBody,
    /// The answer says that it is longer than it is.
    WrongLength,
    /// A listing has entries of the page before once more.
    RepeatedPage,
}

impl WireFault {
    pub const ALL: [WireFault; 10] = [
        WireFault::Conflict,
        WireFault::TakenByItself,
        WireFault::ServerError,
        WireFault::SlowDown,
        WireFault::NoAnswer,
        WireFault::Closed,
        WireFault::CutBody,
        WireFault::ShortBody,
        WireFault::WrongLength,
        WireFault::RepeatedPage,
    ];

    /// Whether it can happen to such a request.
    pub fn concerns(self, request: &Seen) -> bool {
        match self {
            WireFault::Conflict | WireFault::TakenByItself => request.method == Method::PUT,
            WireFault::CutBody | WireFault::ShortBody | WireFault::WrongLength => request.method == Method::GET,
            WireFault::RepeatedPage => request.method == Method::GET && request.is_listing,
            _ => true,
        }
    }
}

/// A request that came.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "a failing test prints all of it")]
pub struct Seen {
    pub method: Method,
    pub key: String,
    pub is_listing: bool,
}

/// What the server does with `If-None-Match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionalPut {
    Honoured,
    /// 501.
    Unknown,
    /// The object is replaced.
    Ignored,
}

/// How the server behaves.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Requests with these numbers, from 0 on, go wrong.
    pub fault: Option<(Range<usize>, WireFault)>,
    pub conditional_put: ConditionalPut,
    pub may_write: bool,
    /// Whether objects can be locked, and a DELETE only hides them.
    pub has_locks: bool,
    /// Entries on a page of a listing.
    pub page: usize,
    /// Whether a listing has keys outside the prefix that was asked for.
    pub ignores_prefix: bool,
    /// Time before each answer.
    pub latency: Duration,
    /// The change with this number, from 0 on, is done and never answered.
    pub stalls_at: Option<usize>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            fault: None,
            conditional_put: ConditionalPut::Honoured,
            may_write: true,
            has_locks: false,
            page: 1000,
            ignores_prefix: false,
            latency: Duration::ZERO,
            stalls_at: None,
        }
    }
}

/// Objects by key, each with its time.
pub type StoredObjects = BTreeMap<String, (Bytes, jiff::Timestamp)>;

#[derive(Default)]
struct State {
    objects: Mutex<StoredObjects>,
    /// When the locks of objects end.
    locks: Mutex<BTreeMap<String, String>>,
    uploads: Mutex<BTreeMap<String, BTreeMap<u32, Bytes>>>,
    seen: Mutex<Vec<Seen>>,
    behaviour: Mutex<Behaviour>,
    is_stalled: AtomicBool,
}

/// See the module.
pub struct S3Server {
    state: Arc<State>,
    address: SocketAddr,
    _runtime: Runtime,
}

/// Answers every request that comes to a free port of loopback, until the runtime ends.
pub fn listen<A>(answer: impl Fn(Request<Incoming>) -> A + Clone + Send + 'static) -> (SocketAddr, Runtime)
where
    A: Future<Output = std::io::Result<Response<AnswerBody>>> + Send,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (service, io) = (service_fn(answer.clone()), TokioIo::new(stream));
            // A connection that ends early is what some tests are about.
            tokio::spawn(async move {
                _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            });
        }
    });
    (address, runtime)
}

impl S3Server {
    pub fn start() -> Self {
        let state = Arc::<State>::default();
        let shared = state.clone();
        let (address, runtime) = listen(move |request| serve(shared.clone(), request));
        S3Server { state, address, _runtime: runtime }
    }

    /// The URL for `--endpoint`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The objects, which a test may change.
    pub fn objects(&self) -> MutexGuard<'_, StoredObjects> {
        self.state.objects.lock().unwrap()
    }

    /// When the locks of objects end, by key, which a test may change.
    pub fn locks(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.state.locks.lock().unwrap()
    }

    /// Uploads in parts that were neither finished nor removed.
    pub fn unfinished_uploads(&self) -> usize {
        self.state.uploads.lock().unwrap().len()
    }

    /// Behaves so from now on, and numbers requests from 0 again.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.state.behaviour.lock().unwrap() = behaviour;
        self.state.seen.lock().unwrap().clear();
        self.state.is_stalled.store(false, Ordering::SeqCst);
    }

    /// Whether the change is done that is never answered.
    pub fn is_stalled(&self) -> bool {
        self.state.is_stalled.load(Ordering::SeqCst)
    }

    /// The requests since then.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }
}

/// An answer before it goes wrong.
pub struct Answer {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Answer { status: StatusCode::from_u16(status).unwrap(), headers: Vec::new(), body: body.into() }
    }

    pub fn error(status: u16, code: &str) -> Self {
        Answer::new(status, format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>"))
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

pub type AnswerBody = UnsyncBoxBody<Bytes, std::io::Error>;

async fn serve(state: Arc<State>, request: Request<Incoming>) -> Result<Response<AnswerBody>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let path = decoded(parts.uri.path().trim_start_matches('/'));
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    let mut query: BTreeMap<String, String> = parts.uri.query().unwrap_or_default().split('&').map(pair).collect();
    let seen = Seen { method: parts.method.clone(), key: key.into(), is_listing: query.contains_key("list-type") };
    let behaviour = state.behaviour.lock().unwrap().clone();
    let is_change = |seen: &Seen| ![Method::GET, Method::HEAD].contains(&seen.method);
    let (number, changes) = {
        let mut all = state.seen.lock().unwrap();
        all.push(seen.clone());
        (all.len() - 1, all.iter().filter(|seen| is_change(seen)).count())
    };
    let fault = behaviour.fault.as_ref().filter(|(at, fault)| at.contains(&number) && fault.concerns(&seen));
    let fault = fault.map(|(_, fault)| *fault);
    tokio::time::sleep(behaviour.latency).await;
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_checksum = |name: &str| name == "content-md5" || name.starts_with("x-amz-checksum-");
    let has_checksum = parts.headers.keys().any(|name| is_checksum(name.as_str()));
    let credential = query.get("X-Amz-Credential").cloned().unwrap_or_default();
    let is_known = header("authorization").contains(&format!("Credential={ACCESS_KEY}/"))
        || credential.starts_with(&format!("{ACCESS_KEY}/"));
    let mut answer = match fault {
        Some(WireFault::Conflict) => Answer::error(409, "ConditionalRequestConflict"),
        Some(WireFault::ServerError) => Answer::error(500, "InternalError"),
        Some(WireFault::SlowDown) => Answer::error(503, "SlowDown"),
        _ if !is_known => Answer::error(403, "InvalidAccessKeyId"),
        _ if bucket != BUCKET => Answer::error(404, "NoSuchBucket"),
        _ if parts.method == Method::PUT && !has_checksum => Answer::error(400, "InvalidRequest"),
        _ if query.contains_key("object-lock") => match behaviour.has_locks {
            true => Answer::new(200, LOCK_CONFIGURATION),
            false => Answer::error(404, "ObjectLockConfigurationNotFoundError"),
        },
        _ if seen.is_listing => {
            let repeats = if fault == Some(WireFault::RepeatedPage) { 2 } else { 0 };
            if behaviour.ignores_prefix {
                query.remove("prefix");
            }
            list(&state.objects.lock().unwrap(), &query, behaviour.page, repeats)
        }
        _ => match parts.method {
            Method::GET | Method::HEAD => {
                let answer = read(&state.objects.lock().unwrap(), key, header("range"));
                state.locks.lock().unwrap().get(key).into_iter().fold(answer, |answer, until| {
                    answer.with("x-amz-object-lock-mode", "GOVERNANCE").with(UNTIL_HEADER, until)
                })
            }
            _ if !behaviour.may_write => Answer::error(403, "AccessDenied"),
            _ if query.contains_key("retention") => lock(&state, key, &String::from_utf8_lossy(&body)),
            _ => {
                let is_conditional = !header("if-none-match").is_empty();
                write(&state, &parts.method, key, &query, body, is_conditional.then_some(behaviour.conditional_put))
            }
        },
    };
    if fault == Some(WireFault::TakenByItself) {
        answer = Answer::error(412, "PreconditionFailed");
    }
    let stalls = behaviour.stalls_at.is_some_and(|at| is_change(&seen) && changes == at + 1);
    if stalls {
        state.is_stalled.store(true, Ordering::SeqCst);
    }
    if stalls || fault == Some(WireFault::NoAnswer) {
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    if fault == Some(WireFault::Closed) {
        return Err(std::io::Error::other("closed"));
    }
    Ok(sent(answer, &parts.method, fault))
}

/// Sends an answer, or what a fault makes of it.
pub fn sent(mut answer: Answer, method: &Method, fault: Option<WireFault>) -> Response<AnswerBody> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(*name, value);
    }
    if method == Method::HEAD {
        let nothing = StreamBody::new(stream::empty::<Result<Frame<Bytes>, std::io::Error>>());
        return response.header("content-length", answer.body.len()).body(nothing.boxed_unsync()).unwrap();
    }
    let whole = answer.body.len();
    let mut len = whole;
    match fault {
        Some(WireFault::ShortBody) => {
            len = whole / 2;
            answer.body.truncate(len);
        }
        Some(WireFault::WrongLength) => len += 7,
        Some(WireFault::CutBody) => answer.body.truncate(whole / 2),
        _ => {}
    }
    let body = stream::iter([Ok::<_, std::io::Error>(Frame::data(answer.body))]);
    response.header("content-length", len).body(StreamBody::new(body).boxed_unsync()).unwrap()
}

pub fn list(objects: &StoredObjects, query: &BTreeMap<String, String>, page: usize, repeats: usize) -> Answer {
    let text = |name: &str| query.get(name).map_or("", String::as_str);
    let after = if text("continuation-token").is_empty() { text("start-after") } else { text("continuation-token") };
    let all: Vec<_> = objects.iter().filter(|(key, _)| key.starts_with(text("prefix"))).collect();
    let start = all.partition_point(|(key, _)| key.as_str() <= after);
    let end = all.len().min(start + page);
    let from = start.saturating_sub(repeats);
    let entries: String = all[from..end]
        .iter()
        .map(|(key, (bytes, time))| {
            let (len, etag) = (bytes.len(), time.as_nanosecond());
            format!("<Contents><Key>{key}</Key><LastModified>{time:.3}</LastModified><ETag>\"{etag}-{len}\"</ETag><Size>{len}</Size></Contents>")
        })
        .collect();
    let next = match end < all.len() {
        true => format!("<NextContinuationToken>{}</NextContinuationToken>", all[end - 1].0),
        false => String::new(),
    };
    let truncated = end < all.len();
    Answer::new(
        200,
        format!("<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{entries}{next}</ListBucketResult>"),
    )
}

pub fn read(objects: &StoredObjects, key: &str, range: &str) -> Answer {
    let Some((bytes, time)) = objects.get(key) else { return Answer::error(404, "NoSuchKey") };
    let len = bytes.len();
    let answer = match range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) {
        None => Answer::new(200, bytes.clone()),
        Some((from, to)) => {
            let from = from.parse::<usize>().unwrap();
            let to = to.parse::<usize>().unwrap_or(usize::MAX).min(len.wrapping_sub(1));
            if from >= len {
                return Answer::error(416, "InvalidRange");
            }
            Answer::new(206, bytes.slice(from..=to)).with("content-range", format!("bytes {from}-{to}/{len}"))
        }
    };
    let modified = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(time).unwrap();
    // A hash of each object at each request would be most of the server's work.
    answer.with("etag", format!("\"{}-{len}\"", time.as_nanosecond())).with("last-modified", modified)
}

/// Extends a lock. One that ends later is never shortened.
fn lock(state: &State, key: &str, body: &str) -> Answer {
    let between = |from: &str, to: &str| body.split_once(from).and_then(|(_, rest)| rest.split_once(to)).unwrap().0;
    let (until, mut locks) = (between("<RetainUntilDate>", "</").to_string(), state.locks.lock().unwrap());
    if !state.objects.lock().unwrap().contains_key(key) {
        return Answer::error(404, "NoSuchKey");
    }
    if between("<Mode>", "</") != "GOVERNANCE" || locks.get(key).is_some_and(|before| *before > until) {
        return Answer::error(403, "AccessDenied");
    }
    locks.insert(key.into(), until);
    Answer::new(200, "")
}

fn write(
    state: &State,
    method: &Method,
    key: &str,
    query: &BTreeMap<String, String>,
    body: Bytes,
    condition: Option<ConditionalPut>,
) -> Answer {
    let upload = query.get("uploadId");
    let mut objects = state.objects.lock().unwrap();
    let mut uploads = state.uploads.lock().unwrap();
    let tag = ("etag", format!("\"{}\"", body.len()));
    match (method, upload) {
        (&Method::PUT, None) if condition == Some(ConditionalPut::Unknown) => Answer::error(501, "NotImplemented"),
        (&Method::PUT, None) if condition == Some(ConditionalPut::Honoured) && objects.contains_key(key) => {
            Answer::error(412, "PreconditionFailed")
        }
        (&Method::PUT, None) => {
            // The lock is that of the version before.
            state.locks.lock().unwrap().remove(key);
            objects.insert(key.into(), (body, jiff::Timestamp::now()));
            Answer::new(200, "").with(tag.0, tag.1)
        }
        (&Method::DELETE, None) => {
            state.locks.lock().unwrap().remove(key);
            objects.remove(key);
            Answer::new(204, "")
        }
        (&Method::POST, None) if query.contains_key("uploads") => {
            let id = format!("upload{}", uploads.len() + 1);
            uploads.insert(id.clone(), BTreeMap::new());
            let xml = "InitiateMultipartUploadResult";
            Answer::new(200, format!("<{xml}><Bucket>b</Bucket><Key>k</Key><UploadId>{id}</UploadId></{xml}>"))
        }
        (_, Some(id)) if !uploads.contains_key(id) => Answer::error(404, "NoSuchUpload"),
        (&Method::PUT, Some(id)) => {
            uploads.get_mut(id).unwrap().insert(query["partNumber"].parse().unwrap(), body);
            Answer::new(200, "").with(tag.0, tag.1)
        }
        (&Method::DELETE, Some(id)) => {
            uploads.remove(id);
            Answer::new(204, "")
        }
        (&Method::POST, Some(id)) => {
            let parts = uploads.remove(id).unwrap();
            let whole: Vec<u8> = parts.into_values().flatten().collect();
            objects.insert(key.into(), (whole.into(), jiff::Timestamp::now()));
            let xml = "CompleteMultipartUploadResult";
            Answer::new(
                200,
                format!("<{xml}><Location>l</Location><Bucket>b</Bucket><Key>k</Key><ETag>\"e\"</ETag></{xml}>"),
            )
        }
        _ => Answer::error(405, "MethodNotAllowed"),
    }
}

pub fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (decoded(name), decoded(value))
}

pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}
