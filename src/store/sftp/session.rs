//! One run of `ssh`, whose other end speaks SFTP.
//!
//! A caller sends a request and waits for its reply. Callers on other threads do the same at the same time, and each
//! may have several requests in flight. One thread reads the replies and hands them out; another one keeps the last
//! messages of `ssh`, which say why it ended. Both end with `ssh`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufReader, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::address::SftpAddress;
use super::failure::SftpFailure;
use super::packet::{self, PACKET_BYTES_MAX, Reply, Request};
use crate::child::without_secrets;
use crate::error::quoted;
use crate::store::{RateLimits, StoreOptions};

/// A server that has not answered a request after this time is taken for dead.
const REPLY_LIMIT: Duration = Duration::from_secs(300);
/// Time between two looks at whether the user has asked to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a dying `ssh` has to say why.
const LAST_MESSAGE_LIMIT: Duration = Duration::from_secs(1);
/// Messages of `ssh` that are remembered, bytes.
const MESSAGE_BYTES_MAX: usize = 2000;
/// Data of a read or write request: what every server takes, and what is asked for at most.
const DATA_BYTES_MIN: u64 = 32 << 10;
const DATA_BYTES_MAX: u64 = PACKET_BYTES_MAX as u64 - 1024;

/// Whether a wait ends when the user asks to stop. Reads do; what is being written is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitKind {
    Stoppable,
    ToTheEnd,
}

impl WaitKind {
    /// Whether the wait ends because of the flag `stop`.
    pub fn is_over(self, stop: &AtomicBool) -> bool {
        self == WaitKind::Stoppable && stop.load(Ordering::Relaxed)
    }
}

/// Extensions that the server has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub hardlink: bool,
    pub fsync: bool,
    pub posix_rename: bool,
    pub statvfs: bool,
    limits: bool,
}

/// A reply as it came: kind and fields.
type RawReply = (u8, Bytes);

/// What the threads of a session share.
#[derive(Debug)]
struct SharedSession {
    child: Mutex<Child>,
    waiting: Mutex<WaitingRequests>,
    messages: Mutex<Vec<u8>>,
}

#[derive(Debug, Default)]
struct WaitingRequests {
    /// By the number of the request.
    senders: HashMap<u32, SyncSender<RawReply>>,
    /// Why the session ended.
    lost: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SftpSession {
    stdin: Mutex<Option<ChildStdin>>,
    shared: Arc<SharedSession>,
    next_number: AtomicU32,
    stop: Arc<AtomicBool>,
    /// What it sends and receives is no faster than these.
    limits: RateLimits,
    pub extensions: Extensions,
    /// Bytes of one read request, at most.
    pub read_bytes: usize,
    /// Bytes of one write request, at most.
    pub write_bytes: usize,
}

/// A request in flight.
pub(super) struct RequestInFlight<'a> {
    session: &'a SftpSession,
    receiver: Receiver<RawReply>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// The command that connects. A shell starts `ssh`, so that `command` may have options, and so that Ctrl-C does not end
/// `ssh` before what is being written is finished.
fn ssh(address: &SftpAddress, command: Option<&OsStr>) -> Command {
    let mut script = OsString::from("trap '' INT HUP; exec ");
    script.push(command.unwrap_or(OsStr::new("ssh")));
    script.push(" \"$@\"");
    let mut ssh = Command::new("sh");
    ssh.arg("-c").arg(script).arg("ssh");
    ssh.args(["-T", "-x", "-a", "-oClearAllForwardings=yes", "-oPermitLocalCommand=no"]);
    ssh.args(["-oServerAliveInterval=15", "-oServerAliveCountMax=4", "-oConnectTimeout=30"]);
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        ssh.arg("-oBatchMode=yes");
    }
    if let Some(port) = address.port {
        ssh.arg("-p").arg(port.to_string());
    }
    if let Some(user) = &address.user {
        ssh.arg("-l").arg(user);
    }
    ssh.args(["-s", "--", &address.host, "sftp"]);
    without_secrets(&mut ssh).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    ssh
}

impl SftpSession {
    /// Connects with the command of the options, or with `ssh`.
    pub fn connect(
        address: &SftpAddress,
        options: &StoreOptions,
        wait_kind: WaitKind,
    ) -> Result<SftpSession, SftpFailure> {
        let cannot_start = |error: std::io::Error| SftpFailure::Lost(format!("cannot start ssh: {error}"));
        let mut child = ssh(address, options.ssh_command.as_deref()).spawn().map_err(cannot_start)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(SftpFailure::Lost("ssh has no streams".into()));
        };
        let flags = fcntl_getfl(&stdin).and_then(|flags| fcntl_setfl(&stdin, flags | OFlags::NONBLOCK));
        flags.map_err(|error| cannot_start(error.into()))?;
        let shared =
            Arc::new(SharedSession { child: Mutex::new(child), waiting: Mutex::default(), messages: Mutex::default() });
        let (version_sender, version_receiver) = sync_channel(1);
        let (silence_sender, silence) = sync_channel::<()>(1);
        let (listener, reader) = (shared.clone(), shared.clone());
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(cannot_start)
        };
        let mut session = SftpSession {
            stdin: Mutex::new(Some(stdin)),
            shared,
            next_number: AtomicU32::new(1),
            stop: options.stop.clone(),
            limits: options.limits.clone(),
            extensions: Extensions::default(),
            read_bytes: DATA_BYTES_MIN as usize,
            write_bytes: DATA_BYTES_MIN as usize,
        };
        spawn("ssh-messages", Box::new(move || listener.keep_messages(stderr, &silence_sender)))?;
        spawn("sftp-replies", Box::new(move || reader.hand_out(stdout, &version_sender, &silence)))?;
        session.send_bytes(&packet::hello())?;
        let in_flight = RequestInFlight { session: &session, receiver: version_receiver };
        let (kind, fields) = in_flight.wait_raw(wait_kind)?;
        session.extensions = session.greeted(kind, fields)?;
        if session.extensions.limits {
            session.adopt_limits(wait_kind)?;
        }
        Ok(session)
    }

    /// The extensions in the first message of the server.
    fn greeted(&self, kind: u8, fields: Bytes) -> Result<Extensions, SftpFailure> {
        if kind != packet::VERSION_REPLY {
            return Err(self.end("the server did not begin with its version".into()));
        }
        let names = packet::extensions(fields)?;
        let has = |name: &str| names.iter().any(|have| have == name.as_bytes());
        Ok(Extensions {
            hardlink: has("hardlink@openssh.com"),
            fsync: has("fsync@openssh.com"),
            posix_rename: has("posix-rename@openssh.com"),
            statvfs: has("statvfs@openssh.com"),
            limits: has("limits@openssh.com"),
        })
    }

    /// Asks how long requests may be.
    fn adopt_limits(&mut self, wait_kind: WaitKind) -> Result<(), SftpFailure> {
        let Reply::Extended(fields) = self.call(Request::extended("limits@openssh.com"), wait_kind)? else {
            return Ok(());
        };
        let [packet_bytes, read_bytes, write_bytes] = packet::limits(fields)?;
        // 0 means that the server does not say.
        let usable = |bytes: u64| {
            let bytes = if bytes == 0 { DATA_BYTES_MIN } else { bytes };
            let packet = if packet_bytes == 0 { DATA_BYTES_MAX } else { packet_bytes.saturating_sub(1024) };
            bytes.min(packet).clamp(1024, DATA_BYTES_MAX) as usize
        };
        (self.read_bytes, self.write_bytes) = (usable(read_bytes), usable(write_bytes));
        Ok(())
    }

    /// Whether the session has ended.
    pub fn is_lost(&self) -> bool {
        lock(&self.shared.waiting).lost.is_some()
    }

    /// Sends a request.
    pub fn send(&self, request: Request) -> Result<RequestInFlight<'_>, SftpFailure> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = sync_channel(1);
        {
            let mut waiting = lock(&self.shared.waiting);
            if let Some(why) = &waiting.lost {
                return Err(SftpFailure::Lost(why.clone()));
            }
            waiting.senders.insert(number, sender);
        }
        self.send_bytes(&request.packet(number))?;
        Ok(RequestInFlight { session: self, receiver })
    }

    /// Sends a request and waits for its reply, which may be a refusal.
    pub fn call(&self, request: Request, wait_kind: WaitKind) -> Result<Reply, SftpFailure> {
        self.send(request)?.wait(wait_kind)
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), SftpFailure> {
        let sent = match lock(&self.stdin).as_mut() {
            Some(stdin) => write_within(stdin, bytes, REPLY_LIMIT),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        sent.map_err(|error| match error.kind() {
            std::io::ErrorKind::TimedOut => {
                self.end(format!("the server takes nothing for {} s", REPLY_LIMIT.as_secs()))
            }
            _ => self.ended(),
        })
    }

    /// Ends the session for the reason `why`, unless it ended already for another one.
    fn end(&self, why: String) -> SftpFailure {
        self.shared.lose(why);
        lock(&self.stdin).take();
        self.ended()
    }

    /// Why the session ended. The thread that reads is about to know.
    fn ended(&self) -> SftpFailure {
        let until = Instant::now() + 2 * LAST_MESSAGE_LIMIT;
        loop {
            if let Some(why) = lock(&self.shared.waiting).lost.clone() {
                return SftpFailure::Lost(why);
            }
            if Instant::now() > until {
                self.shared.lose("ssh does not take requests".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl SftpSession {
    /// Waits until `bytes` that were sent have had their time.
    pub fn pace_sent(&self, bytes: usize) -> Result<(), SftpFailure> {
        sleep(self.limits.upload.take(bytes), WaitKind::ToTheEnd, &self.stop)
    }

    /// Waits until `bytes` that were received have had their time.
    pub fn pace_received(&self, bytes: usize) -> Result<(), SftpFailure> {
        sleep(self.limits.download.take(bytes), WaitKind::Stoppable, &self.stop)
    }
}

/// Sleeps, but no longer than a wait of this kind lasts.
pub(super) fn sleep(time: Duration, wait_kind: WaitKind, stop: &AtomicBool) -> Result<(), SftpFailure> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if wait_kind.is_over(stop) {
            return Err(SftpFailure::Interrupted);
        }
        thread::sleep(left.min(STOP_INTERVAL));
    }
}

impl Drop for SftpSession {
    fn drop(&mut self) {
        lock(&self.stdin).take();
        self.shared.lose("the session was closed".into());
    }
}

impl RequestInFlight<'_> {
    /// Waits for the reply, which may be a refusal.
    pub fn wait(self, wait_kind: WaitKind) -> Result<Reply, SftpFailure> {
        let session = self.session;
        let (kind, fields) = self.wait_raw(wait_kind)?;
        packet::parse(kind, fields).map_err(|bad| match SftpFailure::from(bad) {
            SftpFailure::Lost(why) => session.end(why),
            other => other,
        })
    }

    fn wait_raw(self, wait_kind: WaitKind) -> Result<RawReply, SftpFailure> {
        let until = Instant::now() + REPLY_LIMIT;
        loop {
            match self.receiver.recv_timeout(STOP_INTERVAL) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Disconnected) => return Err(self.session.ended()),
                Err(RecvTimeoutError::Timeout) if wait_kind.is_over(&self.session.stop) => {
                    return Err(SftpFailure::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                    return Err(self.session.end(format!("no reply for {} s", REPLY_LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl SharedSession {
    /// Reads replies until there are no more, and hands them out. The first one goes to `version`.
    fn hand_out(&self, stdout: ChildStdout, version: &SyncSender<RawReply>, silence: &Receiver<()>) {
        let mut stdout = BufReader::with_capacity(64 << 10, stdout);
        let mut is_first = true;
        let why = loop {
            match read_packet(&mut stdout) {
                Ok(Some((kind, number, fields))) if is_first => {
                    // The first message has no number; what stands there is the version.
                    is_first = false;
                    if kind == packet::VERSION_REPLY && number != packet::VERSION {
                        break format!("the server speaks version {number} of SFTP, expected {}", packet::VERSION);
                    }
                    let _ = version.send((kind, fields));
                }
                Ok(Some((kind, number, fields))) => match lock(&self.waiting).senders.remove(&number) {
                    // Nobody may wait for it any more.
                    Some(sender) => drop(sender.send((kind, fields))),
                    None => break "the server answered what nobody asked".to_string(),
                },
                Ok(None) => break self.last_messages(silence),
                Err(error) => break error.to_string(),
            }
        };
        self.lose(why);
    }

    /// Records that the session has ended, wakes all who wait, and ends `ssh`.
    fn lose(&self, why: String) {
        {
            let mut waiting = lock(&self.waiting);
            waiting.lost.get_or_insert(why);
            waiting.senders.clear();
        }
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Why `ssh` ended, in its own words if it has any.
    fn last_messages(&self, silence: &Receiver<()>) -> String {
        let _ = silence.recv_timeout(LAST_MESSAGE_LIMIT);
        let messages = String::from_utf8_lossy(&lock(&self.messages)).into_owned();
        let lines: Vec<&str> = messages.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if !lines.is_empty() {
            return format!("ssh: {}", quoted(&lines.join("; ")));
        }
        let until = Instant::now() + LAST_MESSAGE_LIMIT;
        loop {
            match lock(&self.child).try_wait() {
                Ok(Some(status)) if !status.success() => return format!("ssh ended with {status}"),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                _ => return "the server closed the connection".into(),
            }
        }
    }

    /// Keeps the last messages of `ssh`.
    fn keep_messages(&self, mut stderr: ChildStderr, silence: &SyncSender<()>) {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            let mut messages = lock(&self.messages);
            messages.extend_from_slice(buffer.get(..count).unwrap_or_default());
            let excess = messages.len().saturating_sub(MESSAGE_BYTES_MAX);
            messages.drain(..excess);
        }
        let _ = silence.send(());
    }
}

/// Writes all bytes to a pipe that does not block. Fails if it takes nothing for `limit`.
fn write_within(pipe: &mut (impl Write + AsFd), mut bytes: &[u8], limit: Duration) -> std::io::Result<()> {
    let limit = Timespec::try_from(limit).map_err(std::io::Error::other)?;
    while !bytes.is_empty() {
        match pipe.write(bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let mut waiting = [PollFd::new(&*pipe, PollFlags::OUT)];
                match poll(&mut waiting, Some(&limit)) {
                    Ok(0) => return Err(std::io::ErrorKind::TimedOut.into()),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a message: kind, number and fields. `None` at the end.
fn read_packet(stdout: &mut impl Read) -> std::io::Result<Option<(u8, u32, Bytes)>> {
    let mut head = [0; 4];
    match stdout.read(&mut head)? {
        0 => return Ok(None),
        count => stdout.read_exact(head.get_mut(count..).unwrap_or_default())?,
    }
    let not_sftp = || {
        let text = quoted(&String::from_utf8_lossy(&head));
        std::io::Error::other(format!(
            "what the server sent is not SFTP, it has `{text}` for a length; does a start-up file of its shell print?"
        ))
    };
    let mut packet = vec![0; packet::packet_len(head).ok_or_else(not_sftp)?];
    stdout.read_exact(&mut packet).map_err(|_| std::io::Error::other("the connection broke within a reply"))?;
    packet::split(packet.into()).map(Some).map_err(|_| not_sftp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_takes_nothing_ends_a_write() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let content = vec![7; 1 << 20];
        let error = write_within(&mut writer, &content, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        // Whatever fits at a time arrives, as long as somebody reads.
        let taken = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()).unwrap());
        write_within(&mut writer, &content, Duration::from_secs(60)).unwrap();
        drop(writer);
        assert!(taken.join().unwrap() >= content.len() as u64);
    }
}
