//! Items of a trace: files in order, each a list of chunks.
//!
//! The format is recognised by content. An FSL hash file starts with its magic number, Destor's text with `file start`
//! or `stream end`.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use fhrd::error::{Error, Result};

use super::destor::DestorTrace;
use super::fsl::{self, FslTrace};
use super::input::TraceInput;

/// Bytes of a fingerprint, as in Destor. Shorter hashes are padded with zeros, longer ones truncated.
pub const FINGERPRINT_BYTES: usize = 20;
/// Longest chunk, bytes.
pub const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// Longest name, bytes.
pub const NAME_BYTES_MAX: u64 = 64 << 10;
/// Bytes read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The items of a trace. An error or [`TraceItem::StreamEnd`] is the last item.
pub type TraceFingerprint = [u8; FINGERPRINT_BYTES];

/// A chunk of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceChunk {
    /// Name of the chunk.
    pub fingerprint: TraceFingerprint,
    /// Length, from 1 to [`CHUNK_BYTES_MAX`].
    pub bytes: u32,
}

/// An item of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceItem {
    /// Start of a file.
    FileStart {
        /// Its name, any bytes.
        name: Vec<u8>,
    },
    /// The next chunk of the file.
    Chunk(TraceChunk),
    /// End of the file.
    FileEnd,
    /// End of the trace: it is complete.
    StreamEnd,
}

/// The items of a trace; nothing follows an error or [`TraceItem::StreamEnd`].
pub type Trace = Box<dyn Iterator<Item = Result<TraceItem>>>;

/// Opens a trace of either format.
///
/// # Errors
/// [`Error::Io`], and [`Error::Malformed`] if the file is not a trace. The items have the same errors.
pub fn open(path: &Path) -> Result<Trace> {
    let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    recognise(path, BufReader::with_capacity(BUFFER_BYTES, file))
}

/// Reads a trace from `reader`. `path` names it in errors.
///
/// # Errors
/// Like [`open`].
pub fn recognise(path: &Path, mut reader: impl BufRead + 'static) -> Result<Trace> {
    let mut head = Vec::new();
    (&mut reader).take(10).read_to_end(&mut head).map_err(|error| Error::io("read", path, error))?;
    let is_fsl = head.starts_with(&fsl::MAGIC.to_le_bytes());
    let is_text = head == b"file start" || head == b"stream end";
    let found = head.escape_ascii().to_string();
    let input = TraceInput::new(path, Cursor::new(head).chain(reader));
    match (is_fsl, is_text) {
        (true, _) => Ok(Box::new(Fused(Some(FslTrace::new(input)?)))),
        (_, true) => Ok(Box::new(Fused(Some(DestorTrace::new(input))))),
        _ => Err(input.malformed("a Destor trace or an FSL hash file", format!("`{found}`"))),
    }
}

/// Reads a format item by item.
pub(super) trait Items {
    /// The next item. Not called after the last one or an error.
    fn item(&mut self) -> Result<TraceItem>;
}

/// Ends the iteration after the last item or an error.
struct Fused<T>(Option<T>);

impl<T: Items> Iterator for Fused<T> {
    type Item = Result<TraceItem>;

    fn next(&mut self) -> Option<Result<TraceItem>> {
        let item = self.0.as_mut()?.item();
        if matches!(item, Err(_) | Ok(TraceItem::StreamEnd)) {
            self.0 = None;
        }
        Some(item)
    }
}

/// The length of a chunk, if it is valid.
pub(super) fn chunk_bytes(bytes: u64) -> Option<u32> {
    u32::try_from(bytes).ok().filter(|bytes| (1..=CHUNK_BYTES_MAX).contains(&u64::from(*bytes)))
}
