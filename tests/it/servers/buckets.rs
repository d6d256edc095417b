//! Servers of buckets: OpenStack Swift with its S3 API, moto and Azurite.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::process::{ServerProcess, find_program, free_port, free_ports, not_run};

/// Azurite's account and key are the same everywhere.
const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running server with an empty bucket.
pub struct BucketServer {
    /// For messages.
    pub name: &'static str,
    /// URL of the bucket.
    pub url: String,
    /// URL of the server.
    pub endpoint: String,
    /// Variables with credentials.
    pub environment: Vec<(&'static str, String)>,
    _process: ServerProcess,
    directory: tempfile::TempDir,
}

/// Starts one kind of server. `None` if it is not installed.
type StartServer = fn() -> Option<BucketServer>;

/// Every server.
pub const SERVERS: [(&str, StartServer); 3] =
    [("OpenStack Swift", BucketServer::swift), ("moto", BucketServer::moto), ("Azurite", BucketServer::azurite)];

/// Starts the server called `name`. `None`, and NOT RUN for `test`, if it is not installed.
pub fn start(test: &str, name: &str) -> Option<BucketServer> {
    let (_, start) = SERVERS.iter().find(|(known, _)| *known == name).unwrap();
    let started = start();
    if started.is_none() {
        not_run(test, &format!("{name} is not installed (.ci/run --all servers installs it)"));
    }
    started
}

/// Starts moto, whose objects in cold storage take `seconds` to thaw. `None`, and NOT RUN for `test`, if it is not
/// installed.
pub fn start_cold_moto(test: &str, seconds: u32) -> Option<BucketServer> {
    let started = BucketServer::cold_moto(seconds);
    if started.is_none() {
        not_run(test, "moto is not installed (.ci/run --all servers installs it)");
    }
    started
}

impl BucketServer {
    /// Starts `command` and waits until it listens on the port of its `endpoint`.
    fn new(name: &'static str, scheme: &str, port: u16, path: &str, command: Command) -> BucketServer {
        let directory = tempfile::tempdir().unwrap();
        Self::in_directory(name, scheme, port, path, command, directory)
    }

    fn in_directory(
        name: &'static str,
        scheme: &str,
        port: u16,
        path: &str,
        mut command: Command,
        directory: tempfile::TempDir,
    ) -> BucketServer {
        command.current_dir(directory.path());
        let log = directory.path().join("log");
        let mut process = ServerProcess::start(command, &log);
        process.await_port(port, &log);
        let endpoint = format!("http://127.0.0.1:{port}{path}");
        let url = format!("{scheme}://bucket/some/prefix");
        BucketServer { name, url, endpoint, environment: Vec::new(), _process: process, directory }
    }

    fn with_keys(mut self, id: &str, secret: &str) -> Self {
        self.environment = vec![
            ("AWS_ACCESS_KEY_ID", id.into()),
            ("AWS_SECRET_ACCESS_KEY", secret.into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_EC2_METADATA_DISABLED", "true".into()),
        ];
        self
    }

    fn swift() -> Option<BucketServer> {
        let python = find_program("FHRD_TEST_SWIFT_PYTHON", &[])?;
        let directory = tempfile::tempdir().unwrap();
        let ports = free_ports::<4>();
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/servers/start_swift.py"));
        command.arg(directory.path().join("swift")).args(ports.map(|port| port.to_string()));
        let [port, ..] = ports;
        let server = Self::in_directory("OpenStack Swift", "s3", port, "", command, directory);
        let server = server.with_keys("test:tester", "testing");
        // The servers behind it may not listen yet.
        let token = server.until("a token", || {
            let (status, head) =
                http(port, "GET", "/auth/v1.0", "X-Auth-User: test:tester\r\nX-Auth-Key: testing\r\n", b"");
            let line = head.lines().find(|line| line.to_lowercase().starts_with("x-auth-token:"));
            line.filter(|_| status == 200).map(|line| line.split_once(':').unwrap().1.trim().to_string())
        });
        server.until("a bucket", || {
            let (status, _) = http(port, "PUT", "/v1/AUTH_test/bucket", &format!("X-Auth-Token: {token}\r\n"), b"");
            (status == 201).then_some(())
        });
        Some(server)
    }

    fn moto() -> Option<BucketServer> {
        let port = free_port();
        let mut command = Command::new(find_program("FHRD_TEST_MOTO", &[])?);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = Self::new("moto", "s3", port, "", command).with_keys("tester", "testing");
        server.until("a bucket", || (http(port, "PUT", "/bucket", "", b"").0 == 200).then_some(()));
        Some(server)
    }

    /// moto whose objects in cold storage take `seconds` to thaw.
    fn cold_moto(seconds: u32) -> Option<BucketServer> {
        let port = free_port();
        let python = find_program("FHRD_TEST_MOTO", &[])?.with_file_name("python");
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/servers/start_cold_moto.py"));
        command.args([&seconds.to_string(), "-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = Self::new("moto", "s3", port, "", command).with_keys("tester", "testing");
        server.until("a bucket", || (http(port, "PUT", "/bucket", "", b"").0 == 200).then_some(()));
        Some(server)
    }

    fn azurite() -> Option<BucketServer> {
        let port = free_port();
        let mut command = Command::new(find_program("FHRD_TEST_AZURITE", &[])?);
        command.args(["--silent", "--skipApiVersionCheck", "--inMemoryPersistence", "--blobHost", "127.0.0.1"]);
        command.args(["--blobPort", &port.to_string()]);
        let mut server = Self::new("Azurite", "az", port, "/devstoreaccount1", command);
        server.environment = vec![
            ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1".into()),
            ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY.into()),
        ];
        let headers = azure_headers("", "", "/bucket\nrestype:container");
        server.until("a container", || {
            (http(port, "PUT", "/devstoreaccount1/bucket?restype=container", &headers, b"").0 == 201).then_some(())
        });
        Some(server)
    }

    /// Puts an object into the container of Azurite; `key` needs no escapes.
    pub fn put_into_azurite(&self, key: &str, bytes: &[u8]) {
        let port = self.endpoint.split(':').nth(2).and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap();
        let (kind, path) = ("x-ms-blob-type:BlockBlob\n", format!("/bucket/{key}"));
        let len = if bytes.is_empty() { String::new() } else { bytes.len().to_string() };
        let headers = azure_headers(&len, kind, &path) + "x-ms-blob-type: BlockBlob\r\n";
        assert_eq!(http(port, "PUT", &format!("/devstoreaccount1{path}"), &headers, bytes).0, 201, "{key}");
    }

    /// Tries until there is a result.
    fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(result) = attempt() {
                return result;
            }
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(Instant::now() < until, "{} makes not {what}: {}", self.name, log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// A path in the directory of the server.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sets what `command` needs to use the bucket.
    pub fn let_use(&self, command: &mut Command) {
        for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            command.env_remove(name);
        }
        command.env("FHRD_ENDPOINT", &self.endpoint).envs(self.environment.iter().map(|(name, value)| (name, value)));
    }
}

/// The headers that sign a PUT of `len` bytes, with more of them as they are signed, to what is at `path`.
fn azure_headers(len: &str, more: &str, path: &str) -> String {
    let date = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let signed = format!(
        "PUT\n\n\n{len}\n\n\n\n\n\n\n\n\n{more}x-ms-date:{date}\nx-ms-version:2021-08-06\n\
         /devstoreaccount1/devstoreaccount1{path}"
    );
    let signature = hmac_base64(AZURE_KEY, &signed);
    format!(
        "x-ms-date: {date}\r\nx-ms-version: 2021-08-06\r\n\
         Authorization: SharedKey devstoreaccount1:{signature}\r\n"
    )
}

/// Sends a request that needs no client: status, and what precedes the body.
pub fn http(port: u16, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let (status, text) = http_text(port, method, path, headers, body);
    (status, text.split("\r\n\r\n").next().unwrap_or_default().to_string())
}

/// The status and the whole text of the answer to a request.
pub fn http_text(port: u16, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let text = String::from_utf8_lossy(&http_answer(port, method, path, headers, body)).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text)
}

/// The whole answer to a request, nothing if there is none.
pub fn http_answer(port: u16, method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return Vec::new() };
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    if sent.is_err() || stream.read_to_end(&mut answer).is_err() && answer.is_empty() {
        return Vec::new();
    }
    answer
}

/// The HMAC-SHA256 of `text` under a key in base64, in base64.
fn hmac_base64(key: &str, text: &str) -> String {
    const CODE: &str = "import base64, hashlib, hmac, sys; key, text = sys.argv[1:]; \
                        print(base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode())";
    let output = Command::new("python3").args(["-c", CODE, key, text]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}
