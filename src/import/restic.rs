//! The program of restic: which snapshots a repository has, what is in them, and their files in a directory.
//!
//! It is called as its manual says, and gets its password and credentials from its own environment variables. Nothing
//! is written into its repository, not even a lock.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;

use crate::child::{ended, in_own_group, kill, without_secrets};
use crate::error::{Error, Result, quoted};
use crate::repo::tags::checked_new_tags;
use crate::wire::{read_input, wait_for_input};

/// Bytes of a list of snapshots.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Bytes of an error that are shown.
const ERROR_BYTES_MAX: u64 = 4096;

/// The program, and the repository that it reads.
#[derive(Debug)]
pub struct Restic {
    /// The program.
    pub program: PathBuf,
    /// The repository, as its option `-r` takes it.
    pub repository: String,
}

/// A snapshot as restic lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct ForeignSnapshot {
    /// Its id, hex digits.
    pub id: String,
    /// Its time.
    pub time: jiff::Timestamp,
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
    pub fn short_id(&self) -> String {
        self.id.chars().take(8).collect::<String>().escape_debug().to_string()
    }

    /// Its time, nanoseconds since 1970.
    ///
    /// # Errors
    /// [`Error::Usage`] if what it says of itself cannot be recorded.
    pub fn checked_time_ns(&self) -> Result<i64> {
        let wrong = |what: &str| Error::Usage(format!("restic's snapshot {} has {what}", self.short_id()));
        if self.id.len() != 64 || !self.id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong("no id of 64 hex digits"));
        }
        for tag in &self.tags {
            checked_new_tags(tag).map_err(|reason| wrong(&format!("the tag `{}`: {reason}", quoted(tag))))?;
        }
        i64::try_from(self.time.as_nanosecond()).map_err(|_| wrong("a time that is too far away"))
    }
}

impl Restic {
    /// Its snapshots, oldest first, and what it complains of: it leaves out snapshots that it cannot load.
    ///
    /// # Errors
    /// Errors of the program, and [`Error::Malformed`] if it prints no list.
    pub fn snapshots(&self, stop: &AtomicBool) -> Result<(Vec<ForeignSnapshot>, String)> {
        let running = self.start(&["snapshots", "--json"])?;
        let bytes = read_input(&running.output, LIST_BYTES_MAX, stop).map_err(|error| running.failed(error, stop))?;
        // The program says best why there is no list.
        let complaints = running.finish(stop)?;
        let mut snapshots: Vec<ForeignSnapshot> = serde_json::from_slice(&bytes).map_err(|error| Error::Malformed {
            path: self.program.clone(),
            location: format!("in line {} of its output", error.line()),
            expected: "a list of snapshots".into(),
            got: error.to_string(),
        })?;
        snapshots.sort_by(|one, other| (one.time, &one.id).cmp(&(other.time, &other.id)));
        Ok((snapshots, complaints))
    }

    /// Restores the snapshot into the directory `target`, which does not exist.
    ///
    /// # Errors
    /// Errors of the program.
    pub fn restore(&self, snapshot: &ForeignSnapshot, target: &Path, stop: &AtomicBool) -> Result<()> {
        let target = target.to_str().ok_or_else(|| {
            Error::Usage(format!("restic needs a directory with a name in UTF-8: {}", target.display()))
        })?;
        let running = self.start(&["restore", &snapshot.id, "--target", target, "--verify"])?;
        io::copy(&mut running.lines(stop), &mut io::sink()).map_err(|error| running.failed(error, stop))?;
        running.finish(stop).map(drop)
    }

    /// Gives the listing of a snapshot to `read`: lines of JSON.
    ///
    /// # Errors
    /// Errors of the program and of `read`.
    pub fn list(
        &self,
        snapshot: &ForeignSnapshot,
        stop: &AtomicBool,
        read: impl FnOnce(&mut BufReader<ProgramOutput<'_>>) -> Result<()>,
    ) -> Result<()> {
        let running = self.start(&["ls", "--json", &snapshot.id])?;
        let outcome = read(&mut running.lines(stop));
        // Whoever was interrupted has read an error.
        let outcome = if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { outcome };
        outcome.and_then(|()| running.finish(stop).map(drop))
    }

    fn start(&self, arguments: &[&str]) -> Result<RunningProgram> {
        let mut command = Command::new(&self.program);
        command.args(["-r", &self.repository, "--no-lock", "--quiet"]).args(arguments);
        let command = without_secrets(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = in_own_group(command).spawn().map_err(|error| Error::io("start", &self.program, error))?;
        let no_pipe = || Error::internal("a program has no output");
        let (output, errors) = (child.stdout.take().ok_or_else(no_pipe)?, child.stderr.take().ok_or_else(no_pipe)?);
        // Whoever writes many errors must not wait for a reader.
        let errors = std::thread::spawn(move || {
            let (mut first, mut errors) = (Vec::new(), errors);
            let read = errors.by_ref().take(ERROR_BYTES_MAX).read_to_end(&mut first);
            let rest = read.and_then(|_| io::copy(&mut errors, &mut io::sink()));
            rest.map(|_| String::from_utf8_lossy(&first).trim().to_string()).unwrap_or_default()
        });
        let title = format!("restic {}", arguments.first().copied().unwrap_or_default());
        Ok(RunningProgram {
            title,
            child: Some(child),
            output: File::from(OwnedFd::from(output)),
            errors: Some(errors),
        })
    }
}

/// A running program. It is killed if it is dropped before its end.
struct RunningProgram {
    title: String,
    /// `None` once somebody has waited for its end: its number may be that of another process then.
    child: Option<Child>,
    output: File,
    errors: Option<std::thread::JoinHandle<String>>,
}

/// What a program prints, until the run is stopped. That is another error than [`io::ErrorKind::Interrupted`], after
/// which the standard library reads again.
pub struct ProgramOutput<'a> {
    output: &'a File,
    stop: &'a AtomicBool,
}

impl Read for ProgramOutput<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        wait_for_input(self.output, self.stop).map_err(io::Error::other)?;
        self.output.read(space)
    }
}

impl RunningProgram {
    fn lines<'a>(&'a self, stop: &'a AtomicBool) -> BufReader<ProgramOutput<'a>> {
        BufReader::new(ProgramOutput { output: &self.output, stop })
    }

    fn failed(&self, error: io::Error, stop: &AtomicBool) -> Error {
        match stop.load(Ordering::Relaxed) {
            true => Error::Interrupted,
            false => Error::io("read the output of", &self.title, error),
        }
    }

    /// Waits for the end, and returns what it has printed on standard error. Fails unless it is success.
    fn finish(mut self, stop: &AtomicBool) -> Result<String> {
        let Some(mut child) = self.child.take() else { return Err(Error::internal("a program ends twice")) };
        let ended = ended(&mut child, || stop.load(Ordering::Relaxed));
        let Some(status) = ended.map_err(|error| Error::io("wait for", &self.title, error))? else {
            return Err(Error::Interrupted);
        };
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        match status.success() {
            true => Ok(errors),
            false => Err(Error::io("use", &self.title, io::Error::other(format!("{status}: {}", quoted(&errors))))),
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = kill(child);
        }
    }
}
