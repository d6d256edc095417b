//! A repository with published names, the program that serves it, and requests as bytes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{Place, memory_max};
use crate::trees::Random;

/// Bytes of the large file of [`scene`].
pub const LARGE: usize = 12 << 20;

/// A server that runs.
pub struct Server {
    pub address: SocketAddr,
    child: Child,
}

/// What a server answered.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn parse(bytes: &[u8]) -> Option<Reply> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_string(), value.to_string()));
        let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
        let mut body = bytes[end + 4..].to_vec();
        if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            body = unchunked(&body);
        }
        Some(Reply { status, headers, body })
    }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        let Some(part) = body.get(end + 2..end + 2 + len) else { break };
        whole.extend_from_slice(part);
        body = body.get(end + 4 + len..).unwrap_or_default();
    }
    whole
}

impl Server {
    /// Starts the program for the repository of `place`.
    pub fn start(place: &Place, words: &[&str]) -> Server {
        Self::of(place.start(&[&["serve", "--listen", "127.0.0.1:0"], words].concat()))
    }

    /// A server that was started with `--json`.
    pub fn of(mut child: Child) -> Server {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Ok(document) = serde_json::from_str::<Value>(&line) else {
            let output = child.wait_with_output().unwrap();
            panic!("{line}{}", String::from_utf8_lossy(&output.stderr));
        };
        Server { address: document["listening"].as_str().unwrap().parse().unwrap(), child }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        // Long enough for a machine that does much else.
        stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes. `None` if it closes without an answer.
    pub fn send(&self, bytes: &[u8]) -> Option<Reply> {
        Self::exchange(self.connect(), bytes)
    }

    /// The same with a server that may be dead.
    pub fn try_send(&self, bytes: &[u8]) -> Option<Reply> {
        Self::exchange(TcpStream::connect(self.address).ok()?, bytes)
    }

    fn exchange(mut stream: TcpStream, bytes: &[u8]) -> Option<Reply> {
        // The server may close while it is still sent something.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Reply::parse(&answer)
    }

    /// A request with these lines of headers.
    pub fn ask(&self, method: &str, target: &str, headers: &str) -> Reply {
        let host = if headers.to_lowercase().contains("host:") { String::new() } else { "Host: localhost\r\n".into() };
        let request = format!("{method} {target} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
        self.send(request.as_bytes()).unwrap_or_else(|| panic!("no answer to {request:.200}"))
    }

    pub fn get(&self, target: &str) -> Reply {
        self.ask("GET", target, "")
    }

    pub fn post(&self, target: &str, kind: &str, body: &[u8]) -> Reply {
        let len = body.len();
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: \
             close\r\n\r\n"
        );
        // A server that refuses a long body may close before the client has read why.
        let closed = Reply { status: 413, headers: BTreeMap::new(), body: Vec::new() };
        self.send(&[head.as_bytes(), body].concat()).unwrap_or(closed)
    }

    /// A form that a browser sends, with these lines of headers.
    pub fn form(&self, target: &str, headers: &str, fields: &str) -> Reply {
        let kind = "Content-Type: application/x-www-form-urlencoded";
        let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}\r\nConnection: close\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{fields}", fields.len());
        self.send(request.as_bytes()).unwrap_or_else(|| panic!("no answer to {request:.200}"))
    }

    /// Waits until a request is answered like this.
    pub fn wait_for(&self, target: &str, status: u16) -> Reply {
        let started = Instant::now();
        loop {
            let reply = self.get(target);
            if reply.status == status {
                return reply;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "{target} stays {}", reply.status);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The most memory that the server had, bytes.
    pub fn memory_max(&self) -> u64 {
        memory_max(self.child.id()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Ends the server, which must do so by itself. What it said on standard error.
    pub fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success(), "{status}: {errors}");
        errors
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Content of the large file.
pub fn large() -> Vec<u8> {
    Random(7).bytes(LARGE)
}

/// Writes the sources of [`scene`].
pub fn write_sources(place: &Place) {
    let write = |name: &str, bytes: &[u8]| crate::input::write(place.path(name), bytes);
    write("hub/model/config.json", b"{\"a\":1}");
    write("hub/model/model.safetensors", &large());
    write("hub/model/empty", b"");
    write("hub/model/mid.bin", &Random(8).bytes(3_000_000));
    write("hub/model/below/deep/x y+z#.txt", b"odd");
    write("hub/model/below/\u{fc}%2F.txt", b"umlaut");
    write("hub/dataset/train.csv", b"a,b\n1,2\n3,4\n");
    write("secret/key", b"not published");
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, place.path(name)).unwrap();
    link("below/deep/x y+z#.txt", "hub/model/link.txt");
    link("../../secret/key", "hub/model/out");
    link("/etc/passwd", "hub/model/absolute");
    link("loop", "hub/model/loop");
    link("below", "hub/model/directory");
}

/// Writes a file of tokens that only its owner may read. Its path.
pub fn token_file(place: &Place, lines: &str) -> String {
    let file = place.path("tokens");
    std::fs::write(&file, lines).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    file.to_str().unwrap().into()
}

/// A repository with the published model `me/model`, with two revisions, and the dataset `me/dataset`.
pub fn scene() -> Place {
    let place = Place::new();
    write_sources(&place);
    place.run(&["init"]);
    place.run(&["backup", "hub", "secret"]);
    place.run(&["publish", "latest:hub/model", "me/model"]);
    place.run(&["publish", "latest:hub/model", "me/model", "--revision", "v1"]);
    place.run(&["publish", "latest:hub/dataset", "me/dataset", "--type", "dataset"]);
    place
}
