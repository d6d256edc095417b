//! An S3 server on loopback whose objects are a source: with ETags that bind, odd keys, and objects that go wrong.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::runtime::Runtime;

use super::writes::{self, WriteFaults};
use crate::wire::server::listen;

/// The access key that the server knows.
pub const ACCESS_KEY: &str = "AKIDSOURCE";
/// Objects on a page.
const PAGE: usize = 1000;

/// How an object goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFault {
    None,
    Denied,
    Cold,
    /// Each answer has half of its bytes, and then ends.
    EndsEarly,
    /// Each answer says that it is the range from 0 on, and has its bytes.
    OtherRange,
    /// Answers have no ETag.
    Untagged,
    /// Each answer is the form of a proxy.
    Form,
    /// Each answer says that the object, with the same ETag, has ten bytes.
    Shorter,
    /// It cannot be put.
    Locked,
    /// It is listed, and not there any more.
    Vanished,
    /// The GET with this number, from 1 on, finds another object.
    ReplacedAt(usize),
    /// Each GET finds another object.
    ReplacedAlways,
    /// The first GET finds an empty object.
    Emptied,
    /// The bucket has versions. The GET with this number, from 1 on, finds another one, and the old one may be read.
    VersionedAt(usize),
    /// As before, but it may not.
    VersionDeniedAt(usize),
}

#[derive(Debug, Clone)]
pub struct SourceObject {
    pub bytes: Bytes,
    pub etag: String,
    pub fault: ObjectFault,
    pub gets: usize,
    /// Bytes and ETag of the first version, once there is a second one.
    pub old: Option<(Bytes, String)>,
    /// Type of its content and owner, of an object that was put.
    pub noted: [String; 2],
    /// When it was put.
    pub modified: Timestamp,
}

/// An upload in parts: its key, and its parts by number.
pub type Upload = (String, BTreeMap<u32, Bytes>);

/// When objects were put.
pub fn long_ago() -> Timestamp {
    "2026-03-04T05:06:07Z".parse().unwrap()
}

#[derive(Default)]
pub struct State {
    pub writes: Mutex<WriteFaults>,
    pub uploads: Mutex<BTreeMap<String, Upload>>,
    pub objects: Mutex<BTreeMap<String, SourceObject>>,
    /// What comes in place of pages, and whether also of first ones.
    pages: Mutex<Option<(&'static str, bool)>>,
    seen: Mutex<Vec<String>>,
}

impl State {
    pub fn put(&self, key: &str, bytes: Bytes, fault: ObjectFault) {
        let (noted, modified) = (Default::default(), long_ago());
        let object = SourceObject { etag: etag_of(&bytes), bytes, fault, gets: 0, old: None, noted, modified };
        self.objects.lock().unwrap().insert(key.into(), object);
    }
}

pub struct SourceServer {
    state: Arc<State>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl SourceServer {
    pub fn start() -> Self {
        let state = Arc::<State>::default();
        let shared = state.clone();
        let (address, runtime) = listen(move |request: Request<Incoming>| {
            let shared = shared.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                Ok(answer(&shared, &parts, body))
            }
        });
        SourceServer { state, address, _runtime: runtime }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, SourceObject>> {
        self.state.objects.lock().unwrap()
    }

    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        self.put_with(key, bytes, ObjectFault::None);
    }

    pub fn writes(&self) -> MutexGuard<'_, WriteFaults> {
        self.state.writes.lock().unwrap()
    }

    pub fn put_with(&self, key: &str, bytes: impl Into<Bytes>, fault: ObjectFault) {
        self.state.put(key, bytes.into(), fault);
    }

    /// Answers requests for pages, or for all but first ones, with this.
    pub fn answer_pages_with(&self, page: &'static str, is_all: bool) {
        *self.state.pages.lock().unwrap() = Some((page, is_all));
    }

    /// Uploads in parts that were neither finished nor given up.
    pub fn uploads(&self) -> usize {
        self.state.uploads.lock().unwrap().len()
    }

    /// Takes the requests so far: `LIST`, or the method and the key.
    pub fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }
}

fn etag_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_string()
}

pub type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

pub fn plain(status: u16, text: impl Into<Bytes>) -> Answer {
    let text = text.into();
    let answer = Response::builder().status(status).header("content-length", text.len());
    answer.body(StreamBody::new(stream::iter([Ok(Frame::data(text))])).boxed_unsync()).unwrap()
}

pub fn refusal(status: u16, code: &str) -> Answer {
    plain(status, format!("<Error><Code>{code}</Code><Message>m</Message><StorageClass>GLACIER</StorageClass></Error>"))
}

fn answer(state: &State, request: &Parts, body: Bytes) -> Answer {
    let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !header("authorization").contains(&format!("Credential={ACCESS_KEY}/")) {
        return refusal(403, "InvalidAccessKeyId");
    }
    let path = request.uri.path();
    let Some(rest) = path.strip_prefix("/bucket") else { return refusal(404, "NoSuchBucket") };
    let key = decoded(rest.strip_prefix('/').unwrap_or(rest));
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        (decoded(name), decoded(value))
    };
    let query: BTreeMap<String, String> = request.uri.query().unwrap_or_default().split('&').map(pair).collect();
    if query.contains_key("list-type") {
        state.seen.lock().unwrap().push("LIST".into());
        assert_ne!(query["prefix"].starts_with("repository"), query.contains_key("encoding-type"));
        let pages = *state.pages.lock().unwrap();
        return match pages.filter(|(_, is_all)| *is_all || query.contains_key("continuation-token")) {
            Some((page, _)) => plain(200, page),
            None => list(&state.objects.lock().unwrap(), &query),
        };
    }
    state.seen.lock().unwrap().push(format!("{} {key}", request.method));
    let method_and_key = format!("{} {key}", request.method);
    let before = state.writes.lock().unwrap().before.take_if(|(of, _)| *of == method_and_key);
    before.into_iter().for_each(|(_, happens)| happens(state));
    if request.method != Method::GET && request.method != Method::HEAD {
        return writes::write(state, request, &key, &query, body);
    }
    let mut objects = state.objects.lock().unwrap();
    let Some(object) = objects.get_mut(&key) else { return refusal(404, "NoSuchKey") };
    get(object, query.get("versionId").map(String::as_str), header("if-match"), header("range"))
}

fn list(objects: &BTreeMap<String, SourceObject>, query: &BTreeMap<String, String>) -> Answer {
    let text = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, after) = (text("prefix"), text("continuation-token"));
    let all: Vec<_> = objects
        .range(prefix.to_string()..)
        .skip_while(|(key, _)| !after.is_empty() && key.as_str() <= after)
        .take_while(|(key, _)| key.starts_with(prefix))
        .take(PAGE + 1)
        .collect();
    let mut body = "<ListBucketResult><EncodingType>url</EncodingType>".to_string();
    for (key, object) in all.iter().take(PAGE) {
        let (key, size, etag, modified) = (encoded(key), object.bytes.len(), &object.etag, object.modified);
        write!(body, "<Contents><Key>{key}</Key><LastModified>{modified:.3}</LastModified>").unwrap();
        write!(body, "<ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size></Contents>").unwrap();
    }
    if let (true, Some((last, _))) = (all.len() > PAGE, all.get(PAGE - 1)) {
        let token = last.replace('&', "&amp;");
        write!(body, "<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>").unwrap();
    }
    plain(200, body + "</ListBucketResult>")
}

fn get(object: &mut SourceObject, version: Option<&str>, if_match: &str, range: &str) -> Answer {
    if let Some(version) = version {
        assert_eq!(version, "version-1");
        let may_read = matches!(object.fault, ObjectFault::VersionedAt(_));
        let Some((bytes, etag)) = object.old.clone().filter(|_| may_read) else { return refusal(403, "AccessDenied") };
        let fault = ObjectFault::VersionedAt(usize::MAX);
        let mut old = SourceObject { bytes, etag, fault, old: None, ..object.clone() };
        return get(&mut old, None, if_match, range);
    }
    object.gets += 1;
    match object.fault {
        ObjectFault::Denied => return refusal(403, "AccessDenied"),
        ObjectFault::Cold => return refusal(403, "InvalidObjectState"),
        ObjectFault::Vanished => return refusal(404, "NoSuchKey"),
        ObjectFault::ReplacedAt(number) | ObjectFault::VersionedAt(number) | ObjectFault::VersionDeniedAt(number)
            if number != object.gets => {}
        ObjectFault::ReplacedAt(_)
        | ObjectFault::ReplacedAlways
        | ObjectFault::VersionedAt(_)
        | ObjectFault::VersionDeniedAt(_) => {
            object.old = Some((object.bytes.clone(), object.etag.clone()));
            object.bytes = object.bytes.iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<u8>>().into();
            object.etag = format!("{}-{}", etag_of(&object.bytes), object.gets);
        }
        ObjectFault::Emptied => (object.bytes, object.etag) = (Bytes::new(), etag_of(b"")),
        ObjectFault::Form => return plain(200, "<html>Log in</html>"),
        ObjectFault::None | ObjectFault::EndsEarly => {}
        ObjectFault::OtherRange | ObjectFault::Untagged | ObjectFault::Shorter | ObjectFault::Locked => {}
    }
    if !if_match.is_empty() && if_match.trim_matches('"') != object.etag {
        return refusal(412, "PreconditionFailed");
    }
    let len = if object.fault == ObjectFault::Shorter { 10 } else { object.bytes.len() };
    let asked = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let (status, from, to) = match asked {
        None => (200, 0, len),
        Some((from, to)) => {
            (206, from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap().saturating_add(1).min(len))
        }
    };
    let (from, to) = if object.fault == ObjectFault::OtherRange { (0, to - from) } else { (from, to) };
    if from >= len && asked.is_some() {
        return refusal(416, "InvalidRange");
    }
    let bytes = object.bytes.slice(from..to);
    let sent = if object.fault == ObjectFault::EndsEarly { bytes.slice(..bytes.len() / 2) } else { bytes.clone() };
    let mut answer = Response::builder()
        .status(status)
        .header("last-modified", DateTimePrinter::new().timestamp_to_rfc9110_string(&object.modified).unwrap())
        .header("content-type", "application/x-test")
        .header("x-amz-meta-owner", "somebody")
        .header("x-amz-version-id", version_of(object))
        .header("content-length", bytes.len());
    if object.fault != ObjectFault::Untagged {
        answer = answer.header("etag", format!("\"{}\"", object.etag));
    }
    if status == 206 {
        answer = answer.header("content-range", format!("bytes {from}-{}/{len}", to - 1));
    }
    let frame = Ok::<_, std::io::Error>(Frame::data(sent));
    answer.body(StreamBody::new(stream::iter([frame])).boxed_unsync()).unwrap()
}

/// The version that an answer names.
fn version_of(object: &SourceObject) -> &'static str {
    match (object.fault, &object.old) {
        (ObjectFault::VersionedAt(_) | ObjectFault::VersionDeniedAt(_), None) => "version-1",
        (ObjectFault::VersionedAt(_) | ObjectFault::VersionDeniedAt(_), Some(_)) => "version-2",
        _ => "null",
    }
}

fn encoded(key: &str) -> String {
    let byte = |byte: u8| match byte {
        b' ' => "+".to_string(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    key.bytes().map(byte).collect()
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
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
