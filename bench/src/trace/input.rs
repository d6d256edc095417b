//! Reads the bytes of a trace in order, tracks the position for errors, and bounds each read.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use fhrd::error::{Error, Result};

/// A trace being read.
pub(super) struct TraceInput<R> {
    reader: R,
    path: PathBuf,
    offset: u64,
    /// Lines read so far, if the format has lines.
    lines: Option<u64>,
}

impl<R: BufRead> TraceInput<R> {
    /// Reads the trace at `path` from its first byte.
    pub(super) fn new(path: &Path, reader: R) -> Self {
        TraceInput { reader, path: path.into(), offset: 0, lines: None }
    }

    /// Adds line numbers to errors.
    pub(super) fn count_lines(&mut self) {
        self.lines = Some(0);
    }

    /// An error at the bytes read last.
    pub(super) fn malformed(&self, expected: impl Into<String>, got: impl Into<String>) -> Error {
        let line = self.lines.map_or_else(String::new, |lines| format!("in line {}, ", lines + 1));
        Error::Malformed {
            path: self.path.clone(),
            location: format!("{line}before byte {}", self.offset),
            expected: expected.into(),
            got: got.into(),
        }
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("read", &self.path, error)
    }

    /// Exactly `count` bytes. The caller bounds `count`.
    pub(super) fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.reader).take(count as u64).read_to_end(&mut bytes).map_err(|error| self.failed(error))?;
        self.offset += bytes.len() as u64;
        if bytes.len() < count {
            return Err(self.malformed(format!("{count} bytes"), format!("the end after {}", bytes.len())));
        }
        Ok(bytes)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    /// Fills `space`.
    pub(super) fn fill(&mut self, space: &mut [u8]) -> Result<()> {
        match self.reader.read_exact(space) {
            Ok(()) => {
                self.offset += space.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.malformed(format!("{} bytes", space.len()), "the end"))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Skips `count` bytes.
    pub(super) fn skip(&mut self, count: u64) -> Result<()> {
        let skipped = std::io::copy(&mut (&mut self.reader).take(count), &mut std::io::sink());
        let skipped = skipped.map_err(|error| self.failed(error))?;
        self.offset += skipped;
        match skipped == count {
            true => Ok(()),
            false => Err(self.malformed(format!("{count} bytes"), format!("the end after {skipped}"))),
        }
    }

    /// A little-endian number.
    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian number.
    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The bytes up to the next line break or the end of the input, at most `bytes_max`, and whether there is a line
    /// break.
    pub(super) fn line(&mut self, bytes_max: u64, expected: &str) -> Result<(Vec<u8>, bool)> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(bytes_max + 1).read_until(b'\n', &mut line);
        self.offset += read.map_err(|error| self.failed(error))? as u64;
        let is_ended = line.pop_if(|last| *last == b'\n').is_some();
        if line.len() as u64 > bytes_max {
            return Err(self.malformed(expected, format!("a line of more than {bytes_max} bytes")));
        }
        Ok((line, is_ended))
    }

    /// Counts a valid line.
    pub(super) fn next_line(&mut self) {
        self.lines = self.lines.map(|lines| lines + 1);
    }

    /// Fails unless all bytes are read.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.reader.fill_buf().map(<[u8]>::is_empty) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.malformed("the end", "more bytes")),
            Err(error) => Err(self.failed(error)),
        }
    }
}
