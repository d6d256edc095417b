//! Bytes of files, part by part. A part is read when the connection has space for it, so a slow client holds no thread,
//! and memory is bounded by the number of connections.

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http_body::Frame;

use crate::error::{Error, Result};
use crate::repo::read::StoredFile;

/// Bytes of a part.
pub const PART_BYTES: u64 = 1 << 20;
/// Parts of one answer that are read at the same time.
const PARTS_IN_FLIGHT: usize = 2;

/// Does `work` on a thread that may block. The runtime bounds their number.
///
/// # Errors
/// Errors of `work`; [`Error::Internal`] if it panics.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal(format!("a request failed: {error}")))?
}

/// The bytes `from` to `to` (exclusive) of a file, of one part.
///
/// # Errors
/// Errors of reading. [`Error::Corrupt`] if the file ends before.
pub fn read_part(file: &StoredFile, from: u64, to: u64) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(usize::try_from(to - from).unwrap_or_default());
    // Others may ask for it, too.
    file.copy_keeping_short((from, to), &mut |range| {
        bytes.extend_from_slice(range);
        Ok(())
    })?;
    if bytes.len() as u64 != to - from {
        return Err(Error::corrupt("content of a file", from, format!("{} bytes", to - from), bytes.len().to_string()));
    }
    Ok(bytes.into())
}

/// The bytes `from` to `to` (exclusive) of a file as the frames of a body. An error ends the connection: the client
/// sees that bytes are missing.
pub fn frames(file: StoredFile, from: u64, to: u64) -> impl Stream<Item = Result<Frame<Bytes>>> + Send {
    let next = move |start: &u64| start.checked_add(PART_BYTES).filter(|start| *start < to);
    let starts = std::iter::successors(Some(from).filter(|from| *from < to), next);
    let read = move |start: u64| {
        let file = file.clone();
        async move {
            let end = start.saturating_add(PART_BYTES).min(to);
            let part = blocking(move || read_part(&file, start, end)).await;
            part.map(Frame::data).inspect_err(|error| tracing::error!("a download is cut short: {error}"))
        }
    };
    stream::iter(starts).map(read).buffered(PARTS_IN_FLIGHT)
}
