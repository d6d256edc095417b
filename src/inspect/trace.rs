//! Trace: writes the chunks of a source tree in Destor's text format, as input for simulations of deduplication.
//!
//! 1. Walk the paths as a backup does, sorted by name. Every name of a regular file is a file of the trace. The trace
//!    has no directories, links or metadata.
//! 2. Read each file through a buffer of a few chunks and split it with the configured chunker. Holes are read as
//!    zeros. The chunker's seed is fixed, so equal bytes give equal chunks in every trace.
//! 3. Name each chunk by the first 20 bytes of its BLAKE3.
//!
//! For each file, a trace has the line `file start N`, the N bytes of its name, a line for each chunk, and `file end`.
//! A chunk's line is 40 upper-case hexadecimal digits and the decimal length in bytes. The trace ends with `stream end`
//! without a line break.
//!
//! A file that cannot be opened is skipped. A file that changes or cannot be read further ends early in the trace. Both
//! are logged (`tracing::warn!`) and counted.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::chunk::{Chunker, chunker};
use crate::config::RepositoryConfig;
use crate::error::{Error, Result};
use crate::filesystem::{Event, SourceFile, WalkPlan, Walker};
use crate::kernel::sieve::Anchor;
use crate::metrics::Progress;
use crate::repo::tree::{FileIdentity, Node, NodeKind};

/// Seed of the keyed chunkers: the same for all traces, so that traces can be compared.
pub const CHUNKER_SEED: u64 = 0;
/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 20;
/// Minimum size of the read buffer, bytes.
const BUFFER_BYTES_MIN: usize = 4 << 20;
/// Minimum size of the read buffer, chunks of the maximum size.
const BUFFER_CHUNKS: usize = 4;

/// Statistics of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct TraceReport {
    /// Files.
    pub files: u64,
    /// Chunks of all files.
    pub chunks: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// Files that could not be read, or changed meanwhile. Each is logged.
    pub problems: u64,
}

/// Destination of a trace.
pub struct TraceOutput<'a> {
    /// Receives the text.
    pub out: &'a mut dyn Write,
    /// Name of the destination in errors.
    pub name: &'a Path,
    /// Identity of the destination file. The trace skips this file.
    pub identity: Option<FileIdentity>,
}

/// Writes the trace of `paths` with the chunker of `config`.
///
/// # Errors
/// Fails with [`Error::Usage`] if no path exists, with [`Error::Io`] if the trace cannot be written, and with
/// [`Error::Interrupted`] once `stop` is set.
pub fn trace<P: AsRef<Path>>(
    paths: &[P],
    config: &RepositoryConfig,
    output: TraceOutput<'_>,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<TraceReport> {
    let plan = WalkPlan::new(paths)?;
    if plan.found() == 0 {
        let names: Vec<String> = paths.iter().map(|path| path.as_ref().display().to_string()).collect();
        return Err(Error::Usage(format!("nothing to trace: {} does not exist", names.join(", "))));
    }
    let bytes_max = config.chunk_bytes_max.0 as usize;
    let mut tracer = Tracer {
        chunker: chunker(config, CHUNKER_SEED),
        bytes_max,
        buffer: vec![0; (BUFFER_CHUNKS * bytes_max).max(BUFFER_BYTES_MIN)],
        anchors: Vec::new(),
        output,
        report: TraceReport::default(),
        progress,
        stop,
    };
    let mut walker = Walker::new(plan, Default::default(), Default::default());
    while let Some(event) = walker.next() {
        match event {
            Event::Entry { path, node } if node.kind == NodeKind::File => tracer.file(&walker, &path, &node)?,
            Event::Problem { error, .. } => tracer.problem(&error),
            _ => {}
        }
    }
    tracer.write(b"stream end")?;
    tracer.output.out.flush().map_err(|error| Error::io("write", tracer.output.name, error))?;
    Ok(tracer.report)
}

/// The line of a chunk, with its line break.
fn chunk_line(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
    let name = blake3::hash(bytes);
    let pairs = name.as_bytes().iter().take(FINGERPRINT_BYTES).flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    let mut line: Vec<u8> = pairs.collect();
    line.extend_from_slice(format!(" {}\n", bytes.len()).as_bytes());
    line
}

struct Tracer<'a, 'out> {
    chunker: Box<dyn Chunker>,
    bytes_max: usize,
    buffer: Vec<u8>,
    anchors: Vec<Anchor>,
    output: TraceOutput<'out>,
    report: TraceReport,
    progress: &'a Progress,
    stop: &'a AtomicBool,
}

impl Tracer<'_, '_> {
    fn write(&mut self, text: &[u8]) -> Result<()> {
        self.output.out.write_all(text).map_err(|error| Error::io("write", self.output.name, error))
    }

    fn problem(&mut self, error: &Error) {
        tracing::warn!("{error}");
        self.report.problems += 1;
        self.progress.errors.add(1);
    }

    fn file(&mut self, walker: &Walker, path: &Path, node: &Node) -> Result<()> {
        if self.output.identity == Some(node.identity()) {
            return Ok(());
        }
        let source = match walker.location(node).open(node) {
            Ok(source) => source,
            Err(error) => {
                self.problem(&error);
                return Ok(());
            }
        };
        let name = path.as_os_str().as_bytes();
        self.write(format!("file start {}\n", name.len()).as_bytes())?;
        self.write(name)?;
        self.write(b"\n")?;
        match self.content(&source)? {
            Err(error) => self.problem(&error),
            Ok(()) if source.is_changed().unwrap_or(true) => self.problem(&changed(&source)),
            Ok(()) => {}
        }
        self.write(b"file end\n")?;
        self.report.files += 1;
        self.progress.files_done.add(1);
        Ok(())
    }

    /// Writes the chunks of a file. The inner result is an error if the file could not be read to its end.
    fn content(&mut self, source: &SourceFile) -> Result<Result<()>> {
        let (mut offset, mut held) = (0, 0);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let want = (source.size() - offset).min((self.buffer.len() - held) as u64) as usize;
            let free = self.buffer.get_mut(held..held + want);
            let free = free.filter(|_| want > 0 || offset == source.size());
            let free = free.ok_or_else(|| Error::internal("a chunk fills the whole read buffer"))?;
            let (read, outcome) = match source.read_full(free, offset) {
                Ok(read) if read < want => (read, Err(changed(source))),
                Ok(read) => (read, Ok(())),
                Err(error) => (0, Err(Error::io("read", source.path(), error))),
            };
            offset += read as u64;
            self.progress.bytes_read.add(read as u64);
            let is_last = outcome.is_err() || offset == source.size();
            held = self.split(held + read, is_last)?;
            if is_last {
                return Ok(outcome);
            }
        }
    }

    /// Splits the first `filled` bytes of the buffer and moves an incomplete chunk to the front. Returns its length.
    fn split(&mut self, filled: usize, is_last: bool) -> Result<usize> {
        let outside = || Error::internal("the chunker returned a chunk outside the buffer");
        let mut start = 0;
        while start < filled {
            let rest = self.buffer.get(start..filled).ok_or_else(outside)?;
            self.anchors.clear();
            let len = self.chunker.cut(rest, &mut self.anchors);
            if len == rest.len() && len < self.bytes_max && !is_last {
                break;
            }
            let line = chunk_line(rest.get(..len).ok_or_else(outside)?);
            self.write(&line)?;
            self.report.chunks += 1;
            self.report.bytes += len as u64;
            start += len;
        }
        self.buffer.copy_within(start..filled, 0);
        Ok(filled - start)
    }
}

fn changed(source: &SourceFile) -> Error {
    let changed = io::Error::other("it changed while it was read; the trace has the bytes that were read");
    Error::io("read consistently", source.path(), changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytesize::ByteSize;

    fn traced(paths: &[&Path], config: &RepositoryConfig, identity: Option<FileIdentity>) -> (String, TraceReport) {
        let mut out = Vec::new();
        let output = TraceOutput { out: &mut out, name: Path::new("memory"), identity };
        let report = trace(paths, config, output, &Progress::default(), &AtomicBool::new(false)).unwrap();
        (String::from_utf8(out).unwrap(), report)
    }

    fn fixed(bytes: u64) -> RepositoryConfig {
        let size = ByteSize(bytes);
        RepositoryConfig {
            chunker: crate::config::ChunkerKind::Fixed,
            chunk_bytes_min: size,
            chunk_bytes_avg: size,
            chunk_bytes_max: ByteSize(2 * bytes),
            pad_containers: false,
        }
    }

    #[test]
    fn the_text_equals_destors_format_byte_by_byte() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("f")).unwrap();
        std::fs::write(directory.path().join("f/b\nc"), [7; 1500]).unwrap();
        std::fs::write(directory.path().join("f/a"), "").unwrap();
        std::os::unix::fs::symlink("a", directory.path().join("f/link")).unwrap();
        let line = |bytes: &[u8]| format!("{} {}\n", &blake3::hash(bytes).to_hex().to_uppercase()[..40], bytes.len());
        let path = directory.path().join("f").canonicalize().unwrap();
        let stored = path.to_str().unwrap().trim_start_matches('/').to_string();
        let (text, report) = traced(&[&path], &fixed(1024), None);
        let expected = format!(
            "file start {0}\n{stored}/a\nfile end\nfile start {1}\n{stored}/b\nc\n{2}{3}file end\nstream end",
            stored.len() + 2,
            stored.len() + 4,
            line(&[7; 1024]),
            line(&[7; 476])
        );
        assert_eq!(text, expected);
        assert_eq!(report, TraceReport { files: 2, chunks: 2, bytes: 1500, problems: 0 });
    }

    #[test]
    fn holes_are_zeros_and_the_output_file_is_skipped() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let hole = std::fs::File::create(directory.path().join("hole")).unwrap();
        hole.set_len(9 << 20).unwrap();
        std::fs::write(directory.path().join("out"), "x").unwrap();
        let metadata = directory.path().join("out").metadata().unwrap();
        let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
        let (text, report) = traced(&[directory.path()], &fixed(1 << 20), Some(identity));
        assert_eq!(report, TraceReport { files: 1, chunks: 9, bytes: 9 << 20, problems: 0 });
        let zeros = String::from_utf8(chunk_line(&vec![0; 1 << 20])).unwrap();
        assert_eq!(text.matches(&zeros).count(), 9);
    }

    #[test]
    fn a_missing_path_is_counted_and_no_path_at_all_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "1").unwrap();
        let (there, missing) = (directory.path().join("a"), directory.path().join("b"));
        let (text, report) = traced(&[&there, &missing], &RepositoryConfig::default(), None);
        assert_eq!((report.files, report.problems), (1, 1));
        assert!(text.ends_with("file end\nstream end"));
        let output = TraceOutput { out: &mut Vec::new(), name: Path::new("x"), identity: None };
        let stop = AtomicBool::new(false);
        let outcome = trace(&[&missing], &RepositoryConfig::default(), output, &Progress::default(), &stop);
        assert!(matches!(outcome, Err(Error::Usage(_))));
    }
}
