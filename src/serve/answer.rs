//! Answers: bodies and headers that several routes share.

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::fault::Fault;
use crate::error::{Error, Result};

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, Error>;
/// An answer.
pub type HttpAnswer = Response<AnswerBody>;

/// Header with the code of an error.
pub const ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");
const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-error-message");
/// Header with the commit that an answer is of.
pub const COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");

/// A body that is all there.
pub fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body of frames.
pub fn streamed(frames: impl Stream<Item = Result<Frame<Bytes>>> + Send + 'static) -> AnswerBody {
    StreamBody::new(frames).boxed_unsync()
}

/// A body of what comes through a channel.
pub fn received(receiver: Receiver<Result<Bytes>>) -> AnswerBody {
    streamed(stream::unfold(receiver, |mut receiver| async {
        let next = receiver.recv().await?;
        Some((next.map(Frame::data), receiver))
    }))
}

/// A text.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> HttpAnswer {
    with_type(status, "text/plain; charset=utf-8", whole(text))
}

/// A JSON document.
pub fn document(document: &Value) -> HttpAnswer {
    with_type(StatusCode::OK, "application/json", whole(document.to_string()))
}

/// An answer with a body of a type.
pub fn with_type(status: StatusCode, kind: &'static str, body: AnswerBody) -> HttpAnswer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let (nothing_guessed, own_pages) = (HeaderValue::from_static("nosniff"), HeaderValue::from_static("same-origin"));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nothing_guessed);
    answer.headers_mut().insert("cross-origin-resource-policy", own_pages);
    answer
}

/// Sets a header. A value that cannot be one is left out.
pub fn set(answer: &mut HttpAnswer, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// The same answer without its body, for a HEAD. Its length stays.
pub fn without_body(answer: HttpAnswer) -> HttpAnswer {
    use http_body::Body;
    let (mut parts, body) = answer.into_parts();
    if let Some(len) = body.size_hint().exact()
        && !parts.headers.contains_key(CONTENT_LENGTH)
    {
        parts.headers.insert(CONTENT_LENGTH, len.into());
    }
    Response::from_parts(parts, whole(Bytes::new()))
}

impl From<Fault> for HttpAnswer {
    fn from(fault: Fault) -> Self {
        let message = fault.message();
        let mut answer = document(&json!({ "error": message }));
        *answer.status_mut() = fault.status();
        set(&mut answer, ERROR_MESSAGE, &message);
        if let Some(code) = fault.code() {
            set(&mut answer, ERROR_CODE, code);
        }
        match &fault {
            Fault::NoToken | Fault::WrongToken => set(&mut answer, WWW_AUTHENTICATE, "Bearer"),
            Fault::NoEntry(commit) => set(&mut answer, COMMIT, commit),
            Fault::NoMethod(methods) => set(&mut answer, ALLOW, methods),
            Fault::Busy => set(&mut answer, RETRY_AFTER, "5"),
            Fault::NoRange(len) => set(&mut answer, CONTENT_RANGE, &format!("bytes */{len}")),
            _ => {}
        }
        answer
    }
}
