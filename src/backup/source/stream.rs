//! Streams, such as the standard output of a command. Stream is the first stage of their backup, instead of Read.
//!
//! 1. Each stream becomes one file in the root of the snapshot. They are read one after another, in the order of their
//!    names.
//! 2. Waiting for bytes ends when the user stops the run.
//! 3. If bytes come from a command, its exit status counts: unless it is success, the run fails and there is no
//!    snapshot, also of other streams. A run that fails first kills the command and what that has started.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::labels::SnapshotLabels;
use super::open::{OpenSource, SourceKind, SourcePlan};
use super::parents::FoundParents;
use crate::backup::buffers::BufferPool;
use crate::backup::counts::ReadCounts;
use crate::backup::message::{Outcome, ReadBatch, ReadItem, TreeItem};
use crate::child::{ended, in_own_group, kill};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::pipeline::{Emit, Source};
use crate::repo::Repository;
use crate::repo::snapshot::Snapshot;
use crate::repo::tree::{HoleMap, Node, NodeKind, Timestamp};
use crate::wire::has_input;

/// Permissions of the file.
const MODE: u32 = 0o600;

/// Where the bytes of a stream come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamInput {
    /// Standard input.
    StandardInput,
    /// Standard output of a command: the program and its arguments.
    Command(Vec<OsString>),
    /// Standard output of a command of the shell.
    Shell(OsString),
}

/// A stream to store as one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedStream {
    /// Name of the file in the snapshot.
    pub name: OsString,
    /// Where the bytes come from.
    pub input: StreamInput,
}

/// Streams to store as one file each.
#[derive(Debug, Clone)]
pub struct StreamSource {
    /// The streams, at least one. Their names differ.
    pub streams: Vec<NamedStream>,
    /// What the snapshot says about itself.
    pub labels: SnapshotLabels,
}

impl NamedStream {
    /// Fails with [`Error::Usage`] if the name is no file name.
    fn check(&self) -> Result<()> {
        let name = self.name.as_bytes();
        let is_name = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0);
        if is_name {
            return Ok(());
        }
        Err(Error::Usage(format!("expected the name of a file without slashes, found `{}`", self.name.display())))
    }
}

impl StreamSource {
    /// One stream.
    pub fn new(name: impl Into<OsString>, input: StreamInput, labels: SnapshotLabels) -> Self {
        StreamSource { streams: vec![NamedStream { name: name.into(), input }], labels }
    }

    /// The streams in the order of their names. Fails with [`Error::Usage`] if two have the same, or one is none.
    fn sorted(&self) -> Result<Vec<NamedStream>> {
        let mut streams = self.streams.clone();
        streams.iter().try_for_each(NamedStream::check)?;
        streams.sort_by(|one, other| one.name.cmp(&other.name));
        let is_double = |pair: &[NamedStream]| matches!(pair, [one, other] if one.name == other.name);
        match streams.windows(2).find(|pair| is_double(pair)) {
            Some([one, ..]) => Err(Error::Usage(format!("two streams have the name `{}`", one.name.display()))),
            _ => Ok(streams),
        }
    }
}

impl SourceKind for StreamSource {
    /// A stream cannot be read twice.
    fn is_repeatable(&self) -> bool {
        false
    }

    fn labels(&self) -> Option<&SnapshotLabels> {
        Some(&self.labels)
    }

    fn plan(&self) -> Result<SourcePlan<'_>> {
        let streams = self.sorted()?;
        let paths = streams.iter().map(|stream| [b"/", stream.name.as_encoded_bytes()].concat()).collect();
        Ok(SourcePlan::new(paths, |run| {
            let time_ns = self.labels.time_ns(run.started_ns);
            StreamStage::open(streams, time_ns, run.config, run.progress, run.counts.clone()).map(OpenSource::of_stage)
        }))
    }

    fn parents(&self, _: &Repository, _: &[Vec<u8>]) -> Result<FoundParents> {
        Ok(FoundParents::default())
    }

    fn description(&self, started_ns: i64) -> Result<Snapshot> {
        self.labels.description(started_ns)
    }

    fn decide(&self, problems: u64) -> Result<u64> {
        Ok(problems)
    }
}

/// The stage.
pub struct StreamStage<'a> {
    /// The stream that is read. The first one is open before the stages run.
    open: Option<OpenStream>,
    next: std::vec::IntoIter<NamedStream>,
    time_ns: i64,
    pool: BufferPool,
    progress: &'a Progress,
    counts: Arc<ReadCounts>,
}

/// A stream that is open.
struct OpenStream {
    node: Node,
    file: File,
    /// Name of the source in messages.
    title: String,
    child: Option<Child>,
}

/// Fails if nobody can write to the standard input. If it was closed, the runtime has opened /dev/null in its place.
fn check_input() -> Result<()> {
    let failed = |error: io::Error| Error::io("read", STANDARD_INPUT, error);
    let input = rustix::fs::fstat(io::stdin().as_fd()).map_err(|error| failed(error.into()))?;
    let is_device = rustix::fs::FileType::from_raw_mode(input.st_mode) == rustix::fs::FileType::CharacterDevice;
    let is_null = rustix::fs::stat("/dev/null").is_ok_and(|null| is_device && null.st_rdev == input.st_rdev);
    match is_null {
        true => Err(Error::Usage("the standard input is closed, or /dev/null: there is nothing to store".into())),
        false => Ok(()),
    }
}

impl OpenStream {
    /// Opens a stream; starts the command if there is one. The file gets the time `time_ns`, since 1970.
    ///
    /// # Errors
    /// [`Error::Usage`] if the standard input is closed. [`Error::Io`] if the command cannot be started.
    fn new(stream: &NamedStream, time_ns: i64) -> Result<Self> {
        let (descriptor, title, child): (OwnedFd, String, Option<Child>) = match &stream.input {
            StreamInput::StandardInput => {
                check_input()?;
                let input = io::stdin().as_fd().try_clone_to_owned();
                (input.map_err(|error| Error::io("read", STANDARD_INPUT, error))?, STANDARD_INPUT.into(), None)
            }
            StreamInput::Command(command) => start(command, command.first())?,
            StreamInput::Shell(command) => start(&["/bin/sh".into(), "-c".into(), command.clone()], Some(command))?,
        };
        let mtime = Timestamp {
            seconds: time_ns.div_euclid(1_000_000_000),
            nanoseconds: time_ns.rem_euclid(1_000_000_000) as u32,
        };
        let node = Node {
            name: stream.name.as_bytes().to_vec(),
            kind: NodeKind::File,
            mode: MODE,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            mtime,
            ctime: mtime,
            ..Node::default()
        };
        Ok(OpenStream { node, file: File::from(descriptor), title, child })
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::io("read", &self.title, error)
    }

    /// Waits until there are bytes, the stream ends or the run stops.
    fn wait(&self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        loop {
            emit.check()?;
            if has_input(&self.file).map_err(|error| self.failed(error))? {
                return Ok(());
            }
        }
    }

    /// Waits for the command to end. Fails unless it ends with success.
    fn finish_command(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let ended = ended(&mut child, || emit.check().is_err());
        match ended.map_err(|error| Error::io("wait for", &self.title, error))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let what = io::Error::other(format!("it ended with {status}; no snapshot is written"));
                Err(Error::io("use the output of", &self.title, what))
            }
            None => emit.check().and(Err(Error::Interrupted)),
        }
    }
}

impl<'a> StreamStage<'a> {
    /// Opens the first of the streams. Their files get the time `time_ns`, since 1970.
    ///
    /// # Errors
    /// Errors of [`OpenStream::new`].
    fn open(
        streams: Vec<NamedStream>,
        time_ns: i64,
        config: &Config,
        progress: &'a Progress,
        counts: Arc<ReadCounts>,
    ) -> Result<Self> {
        let batch_bytes = config.pipeline.batch_bytes.0 as usize;
        let pool = BufferPool::new(batch_bytes, 4 * config.pipeline.queue_depth + 8);
        let mut stage = StreamStage { open: None, next: streams.into_iter(), time_ns, pool, progress, counts };
        stage.open_next()?;
        Ok(stage)
    }

    fn open_next(&mut self) -> Result<()> {
        self.open = self.next.next().map(|stream| OpenStream::new(&stream, self.time_ns)).transpose()?;
        Ok(())
    }

    /// Fills a buffer as far as the stream goes. Returns the number of bytes; less than its length at the end.
    fn fill(&self, stream: &mut OpenStream, space: &mut [u8], emit: &mut Emit<ReadBatch>) -> Result<usize> {
        let mut filled = 0;
        while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            stream.wait(emit)?;
            match stream.file.read(rest) {
                Ok(0) => break,
                Ok(read) => {
                    filled += read;
                    self.counts.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
                    self.progress.bytes_read.add(read as u64);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(stream.failed(error)),
            }
        }
        Ok(filled)
    }

    fn store(&mut self, stream: &mut OpenStream, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let begin = ReadItem::Tree(TreeItem::Begin(Box::new(std::mem::take(&mut stream.node))));
        emit.emit(ReadBatch { items: vec![begin], bytes: 0 })?;
        loop {
            let mut buffer = self.pool.take();
            let want = self.pool.buffer_bytes();
            let read = self.fill(stream, buffer.space(want), emit)?;
            if read > 0 {
                let data = ReadItem::Data(Bytes::from_owner(buffer.filled(read)));
                emit.emit(ReadBatch { items: vec![data], bytes: read as u64 })?;
            }
            if read < want {
                break;
            }
        }
        stream.finish_command(emit)?;
        let end = TreeItem::End { outcome: Outcome::Complete, small_holes: HoleMap::default(), sent: None };
        emit.emit(ReadBatch { items: vec![ReadItem::Tree(end)], bytes: 0 })
    }
}

const STANDARD_INPUT: &str = "standard input";

/// Starts a command, which messages call `title`. Returns its standard output, this title and its process.
fn start(command: &[OsString], title: Option<&OsString>) -> Result<(OwnedFd, String, Option<Child>)> {
    let (Some((program, arguments)), Some(title)) = (command.split_first(), title) else {
        return Err(Error::Usage("expected a command after `--`".into()));
    };
    let failed = |error| Error::io("start", title, error);
    let mut command = Command::new(program);
    let command = in_own_group(command.args(arguments).stdout(Stdio::piped()));
    let mut child = command.spawn().map_err(failed)?;
    let Some(output) = child.stdout.take() else { return Err(Error::internal("a command has no standard output")) };
    Ok((output.into(), title.to_string_lossy().into_owned(), Some(child)))
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill(&mut child);
        }
    }
}

impl Source for StreamStage<'_> {
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        "read"
    }

    fn run(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        while let Some(mut stream) = self.open.take() {
            self.store(&mut stream, emit)?;
            self.open_next()?;
        }
        Ok(())
    }
}
