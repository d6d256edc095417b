//! The class of storage that the user names is in the requests that put data containers and their parity, at Google and
//! at Azure. The settings come to the program as a user gives them.
//!
//! The server speaks as much of either as the program asks of it. It looks at no signature, and it refuses deletions,
//! as a bucket does whose key may only add.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::server::{Answer, AnswerBody, BUCKET, StoredObjects, decoded, list, listen, pair, read, sent};
use crate::input::write;
use crate::program::finished;
use crate::trees::Random;

/// A key of an account of Azure: any base64.
const AZURE_KEY: &str = "c2VjcmV0";

/// What differs between the services.
struct Dialect {
    url: &'static str,
    class_header: &'static str,
    class: &'static str,
    /// Settings of the program, for this address.
    environment: fn(SocketAddr) -> Vec<(&'static str, String)>,
}

const GOOGLE: Dialect = Dialect {
    url: "gs://bucket/prefix",
    class_header: "x-goog-storage-class",
    class: "COLDLINE",
    environment: |address| vec![("STORAGE_EMULATOR_HOST", address.to_string())],
};

/// As a service of its own, with the key of an account.
const GOOGLE_WITH_KEY: Dialect = Dialect {
    class: "ARCHIVE",
    environment: |address| {
        let key = r#"{"gcs_base_url": "", "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#;
        vec![("FHRD_ENDPOINT", format!("http://{address}")), ("GOOGLE_SERVICE_ACCOUNT_KEY", key.into())]
    },
    ..GOOGLE
};

const AZURE: Dialect = Dialect {
    url: "az://bucket/prefix",
    class_header: "x-ms-access-tier",
    class: "Cold",
    environment: |address| {
        vec![
            ("FHRD_ENDPOINT", format!("http://{address}")),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account".into()),
            ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY.into()),
        ]
    },
};

/// The class in a request that put an object.
type Class = Option<String>;

#[derive(Default)]
struct Objects {
    stored: StoredObjects,
    /// In the order of the requests.
    puts: Vec<(String, Class)>,
    /// Why the last request was refused that has credentials which are none.
    refused: Option<String>,
}

struct ClassServer {
    objects: Arc<Mutex<Objects>>,
    address: SocketAddr,
    dialect: &'static Dialect,
    home: tempfile::TempDir,
    _runtime: Runtime,
}

impl ClassServer {
    fn start(dialect: &'static Dialect) -> Self {
        let objects = Arc::<Mutex<Objects>>::default();
        let shared = objects.clone();
        let (address, runtime) = listen(move |request| answer(shared.clone(), dialect, request));
        ClassServer { objects, address, dialect, home: tempfile::tempdir().unwrap(), _runtime: runtime }
    }

    /// Runs the program; it must succeed.
    fn run(&self, words: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fhrd"));
        command.args(words).args(["--json", "--quiet", "--repo", self.dialect.url]).env_clear();
        for name in ["HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, self.home.path().join(name));
        }
        command.envs((self.dialect.environment)(self.address)).env("FHRD_PASSWORD", "secret");
        command.env("FHRD_STORAGE_CLASS", format!("containers={}", self.dialect.class));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let refused = self.objects.lock().unwrap().refused.clone();
        assert_eq!(refused, None, "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        finished(output, &words.join(" "))
    }

    /// The requests that put objects since the last call.
    fn puts(&self) -> Vec<(String, Class)> {
        std::mem::take(&mut self.objects.lock().unwrap().puts)
    }

    /// Fails unless each put has the class of its kind. Returns the names that are cold.
    fn assert_classes(&self, what: &str) -> Vec<String> {
        let puts = self.puts();
        let cold: Vec<String> = puts.iter().filter(|(_, class)| class.is_some()).map(|(key, _)| key.clone()).collect();
        for (key, class) in &puts {
            let is_data_or_parity = key.starts_with("prefix/containers/") || key.starts_with("prefix/parity/");
            assert!(
                class.as_deref().is_none_or(|class| class == self.dialect.class && is_data_or_parity),
                "{what}: {key}"
            );
        }
        cold
    }

    /// Also the first mark has parity.
    fn assert_marks_are_protected(&self) {
        let stored = &self.objects.lock().unwrap().stored;
        let marks: Vec<&str> = stored.keys().filter_map(|key| key.strip_prefix("prefix/marks/")).collect();
        let has_parity = |mark: &&str| {
            let hash = mark.rsplit_once(['/', '-']).map_or(*mark, |(_, hash)| hash);
            stored.keys().any(|key| key.starts_with("prefix/parity/") && key.contains(hash))
        };
        assert!(marks.len() == 2 && marks.iter().all(has_parity), "{:?}", stored.keys());
    }

    fn damage(&self, key: &str) -> Bytes {
        let stored = &mut self.objects.lock().unwrap().stored;
        let sound = stored[key].0.clone();
        let mut bytes = sound.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        stored.get_mut(key).unwrap().0 = bytes.into();
        sound
    }

    fn bytes(&self, key: &str) -> Bytes {
        self.objects.lock().unwrap().stored[key].0.clone()
    }
}

async fn answer(
    objects: Arc<Mutex<Objects>>,
    dialect: &'static Dialect,
    request: Request<Incoming>,
) -> std::io::Result<Response<AnswerBody>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let path = decoded(parts.uri.path().trim_start_matches('/'));
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    let query: BTreeMap<String, String> = parts.uri.query().unwrap_or_default().split('&').map(pair).collect();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut objects = objects.lock().unwrap();
    let answer = match parts.method {
        _ if bucket != BUCKET => {
            objects.refused = Some(format!("{} {}", parts.method, parts.uri));
            Answer::error(404, "NoSuchBucket")
        }
        Method::GET if query.contains_key("list-type") => list(&objects.stored, &query, 1000, 0),
        Method::GET if query.get("comp").is_some_and(|what| what == "list") => azure_page(&objects.stored, &query),
        Method::GET | Method::HEAD => {
            let generation = objects.stored.get(key).map(|(_, time)| generation(*time)).unwrap_or_default();
            read(&objects.stored, key, header("range")).with("x-goog-generation", generation)
        }
        Method::PUT => {
            let is_new = header("x-goog-if-generation-match") == "0" || header("if-none-match") == "*";
            let there = objects.stored.get(key).map(|(bytes, time)| (bytes.len(), *time));
            let expected = [header("x-goog-if-generation-match"), header("if-match")].concat();
            let tags = there.map(|(len, time)| [generation(time), format!("\"{}-{len}\"", time.as_nanosecond())]);
            let is_as_expected = expected.is_empty() || tags.is_some_and(|tags| tags.contains(&expected));
            if is_new && there.is_some() {
                Answer::error(if dialect.url == AZURE.url { 409 } else { 412 }, "BlobAlreadyExists")
            } else if !is_new && !is_as_expected {
                Answer::error(412, "ConditionNotMet")
            } else {
                let class = Some(header(dialect.class_header)).filter(|class| !class.is_empty()).map(String::from);
                objects.puts.push((key.into(), class));
                let (len, time) = (body.len(), jiff::Timestamp::now());
                objects.stored.insert(key.into(), (body, time));
                let answer = Answer::new(201, "").with("etag", format!("\"{}-{len}\"", time.as_nanosecond()));
                answer.with("x-goog-generation", generation(time))
            }
        }
        _ => Answer::error(403, "AccessDenied"),
    };
    Ok(sent(answer, &parts.method, None))
}

fn generation(time: jiff::Timestamp) -> String {
    time.as_nanosecond().to_string()
}

/// A page with everything.
fn azure_page(objects: &StoredObjects, query: &BTreeMap<String, String>) -> Answer {
    let text = |name: &str| query.get(name).map_or("", String::as_str);
    let wanted = |key: &String| key.starts_with(text("prefix")) && key.as_str() >= text("startFrom");
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let blobs: String = objects
        .iter()
        .filter(|(key, _)| wanted(key))
        .map(|(key, (bytes, time))| {
            let (modified, len) = (printer.timestamp_to_rfc9110_string(time).unwrap(), bytes.len());
            format!(
                "<Blob><Name>{key}</Name><Properties><Last-Modified>{modified}</Last-Modified>\
                 <Content-Length>{len}</Content-Length><Content-Type>application/octet-stream</Content-Type>\
                 <Etag>{}-{len}</Etag></Properties></Blob>",
                time.as_nanosecond()
            )
        })
        .collect();
    Answer::new(200, format!("<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"))
}

/// The containers among these names, and the parity.
fn split(names: &[String]) -> [Vec<&String>; 2] {
    let (containers, parity) = names.iter().partition(|name| name.starts_with("prefix/containers/"));
    [containers, parity]
}

fn assert_puts_with_class(dialect: &'static Dialect) {
    let server = ClassServer::start(dialect);
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(5));
    write(source.path().join("one"), &random.bytes(70_000));
    let back_up = |source: &Path| server.run(&["backup", source.to_str().unwrap()]);
    server.run(&["init", "--cold", "--parity", "3%"]);
    assert_eq!(server.assert_classes("init"), [""; 0], "{}", dialect.url);
    server.assert_marks_are_protected();
    back_up(source.path());
    let cold = server.assert_classes("backup");
    let [containers, parity] = split(&cold);
    assert_eq!((containers.len(), parity.len()), (1, 1), "{}: {cold:?}", dialect.url);
    let hash = containers[0].rsplit_once('/').unwrap().1;
    assert!(parity[0].contains(hash), "{cold:?}");

    // A container that is written back, and its parity, have the class again. The request names the damaged version.
    for name in [containers[0], parity[0]] {
        let sound = server.damage(name);
        server.run(&["check", "--read-data", "--heal"]);
        assert!(server.bytes(name) == sound, "{}: {name}", dialect.url);
        assert_eq!(server.assert_classes("heal"), std::slice::from_ref(name), "{}", dialect.url);
    }
}

#[test]
fn google_is_told_the_class_of_data_containers_and_their_parity() {
    assert_puts_with_class(&GOOGLE);
}

#[test]
fn google_is_told_the_class_by_who_has_a_key_of_an_account() {
    assert_puts_with_class(&GOOGLE_WITH_KEY);
}

#[test]
fn azure_is_told_the_tier_of_data_containers_and_their_parity() {
    assert_puts_with_class(&AZURE);
}
