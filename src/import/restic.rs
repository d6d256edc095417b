//! The program of restic: which snapshots a repository has, what is in them, and their files in a directory.
//!
//! It is called as its manual says, and gets its password and credentials from its own environment variables. Nothing
//! is written into its repository, not even a lock.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::repo::tags::checked_new_tags;
use crate::store::without_secrets;

/// The first version whose restore deletes what the snapshot lacks.
const VERSION_MIN: (u32, u32) = (0, 17);
/// Bytes of a list of snapshots.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Bytes of an error that are shown.
const ERROR_BYTES_MAX: u64 = 4096;
/// Time between two looks at a running program.
const PATIENCE: Duration = Duration::from_millis(20);

/// The program, and the repository that it reads.
#[derive(Debug)]
pub struct Restic {
    program: PathBuf,
    repository: String,
}

/// A snapshot as restic lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct ForeignSnapshot {
    /// Its id, hex digits.
    pub id: String,
    time: jiff::Timestamp,
    /// Nanoseconds since 1970.
    #[serde(skip)]
    pub time_ns: i64,
    /// Paths of the backup.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Host.
    #[serde(default)]
    pub hostname: String,
    /// Tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Patterns that were left out.
    #[serde(default)]
    pub excludes: Vec<String>,
}

impl ForeignSnapshot {
    /// What a snapshot that was imported from it records.
    pub fn origin(&self) -> String {
        format!("restic:{}", self.id)
    }

    /// The first digits of the id.
    pub fn short_id(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }

    /// Fails if it cannot be recorded.
    fn checked(mut self) -> Result<Self> {
        let id = self.short_id().to_string();
        let wrong = |what: &str| Error::Usage(format!("restic's snapshot {} has {what}", id.escape_debug()));
        if self.id.len() != 64 || !self.id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong("no id of 64 hex digits"));
        }
        self.time_ns = i64::try_from(self.time.as_nanosecond()).map_err(|_| wrong("a time that is too far away"))?;
        for tag in &self.tags {
            checked_new_tags(tag).map_err(|reason| wrong(&format!("the tag `{}`: {reason}", tag.escape_debug())))?;
        }
        Ok(self)
    }
}

impl Restic {
    /// The repository `repository`, as the option `-r` of the program takes it.
    ///
    /// # Errors
    /// [`Error::Io`] if the program cannot be started. [`Error::Usage`] if it is too old.
    pub fn new(program: PathBuf, repository: String, stop: &Arc<AtomicBool>) -> Result<Self> {
        let restic = Restic { program, repository };
        let mut command = Command::new(&restic.program);
        let mut running = restic.start(command.arg("version"), "version")?;
        let mut text = String::new();
        let read = running.output.by_ref().take(ERROR_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| Error::io("read the output of", &restic.program, error))?;
        running.finish(stop)?;
        let version = text.split_whitespace().nth(1).unwrap_or_default();
        let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < VERSION_MIN {
            let (major, minor) = VERSION_MIN;
            let program = restic.program.display();
            return Err(Error::Usage(format!("expected restic {major}.{minor} or later, found {program} {version}")));
        }
        Ok(restic)
    }

    /// Its snapshots, oldest first.
    ///
    /// # Errors
    /// Those of the program, and [`Error::Usage`] for what cannot be recorded.
    pub fn snapshots(&self, stop: &Arc<AtomicBool>) -> Result<Vec<ForeignSnapshot>> {
        let mut running = self.run(&["snapshots", "--json"])?;
        let output = BufReader::new(running.output.by_ref().take(LIST_BYTES_MAX));
        let parsed: serde_json::Result<Vec<ForeignSnapshot>> = serde_json::from_reader(output);
        // The program says best why there is no list.
        running.finish(stop)?;
        let listed = parsed.map_err(|error| Error::Malformed {
            path: self.program.clone(),
            location: format!("in line {} of its output", error.line()),
            expected: "a list of snapshots".into(),
            got: error.to_string(),
        })?;
        let mut snapshots = listed.into_iter().map(ForeignSnapshot::checked).collect::<Result<Vec<_>>>()?;
        snapshots.sort_by(|one, other| (one.time_ns, &one.id).cmp(&(other.time_ns, &other.id)));
        Ok(snapshots)
    }

    /// Makes `directory` equal to the snapshot.
    ///
    /// # Errors
    /// Those of the program.
    pub fn restore(&self, snapshot: &ForeignSnapshot, directory: &Path, stop: &Arc<AtomicBool>) -> Result<()> {
        let target = directory.to_str().ok_or_else(|| {
            Error::Usage(format!("restic needs a directory whose name is UTF-8: {}", directory.display()))
        })?;
        // Files that differ are found by their content, not by their times.
        let arguments = ["restore", &snapshot.id, "--target", target, "--delete", "--overwrite", "always", "--verify"];
        let mut running = self.run(&arguments)?;
        std::io::copy(&mut running.output, &mut std::io::sink())
            .map_err(|error| Error::io("read the output of", &self.program, error))?;
        running.finish(stop)
    }

    /// Gives the listing of a snapshot to `read`: lines of JSON.
    ///
    /// # Errors
    /// Those of the program and of `read`.
    pub fn list(
        &self,
        snapshot: &ForeignSnapshot,
        stop: &Arc<AtomicBool>,
        read: impl FnOnce(&mut BufReader<&mut ChildStdout>) -> Result<()>,
    ) -> Result<()> {
        let mut running = self.run(&["ls", "--json", &snapshot.id])?;
        let outcome = read(&mut BufReader::new(&mut running.output));
        match outcome {
            Ok(()) => running.finish(stop),
            Err(error) => Err(error),
        }
    }

    fn run(&self, arguments: &[&str]) -> Result<Running> {
        let mut command = Command::new(&self.program);
        command.args(["-r", &self.repository, "--no-lock", "--quiet"]).args(arguments);
        self.start(&mut command, arguments.first().copied().unwrap_or_default())
    }

    fn start(&self, command: &mut Command, what: &str) -> Result<Running> {
        let command = without_secrets(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::io("start", &self.program, error))?;
        let no_pipe = || Error::internal("a program has no output");
        let (output, errors) = (child.stdout.take().ok_or_else(no_pipe)?, child.stderr.take().ok_or_else(no_pipe)?);
        // Whoever writes many errors must not wait for a reader.
        let errors = std::thread::spawn(move || {
            let (mut first, mut errors) = (Vec::new(), errors);
            let read = errors.by_ref().take(ERROR_BYTES_MAX).read_to_end(&mut first);
            let rest = read.and_then(|_| std::io::copy(&mut errors, &mut std::io::sink()));
            rest.map(|_| String::from_utf8_lossy(&first).trim().to_string()).unwrap_or_default()
        });
        Ok(Running { title: format!("restic {what}"), child, output, errors: Some(errors) })
    }
}

/// A running program. It is killed if it is dropped before its end.
struct Running {
    title: String,
    child: Child,
    output: ChildStdout,
    errors: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    /// Waits for the end. Fails unless it is success.
    fn finish(mut self, stop: &Arc<AtomicBool>) -> Result<()> {
        let status: ExitStatus = loop {
            let ended = self.child.try_wait().map_err(|error| Error::io("wait for", &self.title, error))?;
            match ended {
                Some(status) => break status,
                None if stop.load(Ordering::Relaxed) => return Err(Error::Interrupted),
                None => std::thread::sleep(PATIENCE),
            }
        };
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match status.success() {
            true => Ok(()),
            false => Err(Error::io("use", &self.title, std::io::Error::other(format!("{status}: {errors}")))),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
