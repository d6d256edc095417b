//! Server processes: found, started, awaited and ended.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A server may take this long to start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A process that ends with the test, with its children.
pub struct ServerProcess(Child);

impl ServerProcess {
    /// Starts `command`, whose output goes to `log`.
    pub fn start(mut command: Command, log: &Path) -> Self {
        use std::os::unix::process::CommandExt;
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let errors = log.try_clone().unwrap();
        // A group of its own, so that what the server started ends with it.
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        ServerProcess(command.spawn().unwrap())
    }

    /// Waits until something listens on the port of this machine.
    pub fn await_port(&mut self, port: u16, log: &Path) {
        let until = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = self.0.try_wait().unwrap();
            let text = || std::fs::read_to_string(log).unwrap_or_default();
            assert!(ended.is_none(), "the server ended: {ended:?}: {}", text());
            assert!(Instant::now() < until, "the server does not listen on port {port}: {}", text());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A port on which nothing listens.
pub fn free_port() -> u16 {
    let [port] = free_ports();
    port
}

/// Different ports on which nothing listens.
pub fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners: [TcpListener; COUNT] = std::array::from_fn(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The program that the environment variable names, or the first of `paths` that exists.
pub fn find_program(variable: &str, paths: &[&str]) -> Option<PathBuf> {
    match std::env::var_os(variable) {
        Some(path) if path.is_empty() => None,
        Some(path) => {
            let path = PathBuf::from(path);
            assert!(path.exists(), "{variable} names {}, which does not exist", path.display());
            Some(path)
        }
        None => paths.iter().map(PathBuf::from).find(|path| path.exists()),
    }
}

/// Says what happened with a server, also if the output of passing tests is not shown.
fn record(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
    if let Some(path) = std::env::var_os("FHRD_TEST_SERVERS_LOG") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{text}\n").as_bytes()).unwrap();
    }
}

/// Says that `test` could not run.
pub fn not_run(test: &str, why: &str) {
    record(&format!("NOT RUN: {test}: {why}"));
}

/// Says that `test` ran against `server`.
pub fn did_run(test: &str, server: &str) {
    record(&format!("ran: {test}: {server}"));
}
