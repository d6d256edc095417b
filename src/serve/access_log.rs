//! A line for each request, once its answer has ended.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;

use super::answer::AnswerBody;
use crate::error::{Error, Result};

/// What the line says.
pub struct AccessLine {
    /// Method and path, as the client sent them.
    pub request: String,
    /// Where the client is.
    pub peer: SocketAddr,
    /// When the request came.
    pub started: Instant,
    /// Status of the answer.
    pub status: u16,
    /// Line of the token in its file.
    pub token: Option<usize>,
    /// Bytes that all answers have sent.
    pub sent_bytes: Counter,
}

/// The body of an answer, which writes the line when it is dropped.
pub struct LoggedBody {
    inner: AnswerBody,
    line: AccessLine,
    bytes: u64,
    /// Bytes that the answer announces.
    len: Option<u64>,
    is_whole: bool,
}

impl LoggedBody {
    /// The body `inner` of an answer that `line` describes and that announces `len` bytes.
    pub fn new(inner: AnswerBody, len: Option<u64>, line: AccessLine) -> Self {
        let is_whole = inner.is_end_stream();
        LoggedBody { inner, line, bytes: 0, len, is_whole }
    }
}

impl Body for LoggedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.bytes += bytes;
                self.line.sent_bytes.inc_by(bytes);
            }
            Poll::Ready(None) => self.is_whole = true,
            _ => {}
        }
        self.is_whole |= self.inner.is_end_stream();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        let AccessLine { request, peer, started, status, token, .. } = &self.line;
        let (bytes, milliseconds) = (self.bytes, started.elapsed().as_millis());
        let token = token.map_or_else(|| "-".into(), |line| format!("token-{line}"));
        // Nobody asks for the end behind the last byte that was announced.
        let end = if self.is_whole || self.len.is_some_and(|len| self.bytes >= len) { "" } else { " cut" };
        tracing::info!("{peer} {token} \"{request}\" {status} {bytes} bytes {milliseconds} ms{end}");
    }
}
