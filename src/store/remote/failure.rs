//! What the error of a request means, and what the user can do.

use std::fmt;

use object_store::client::{HttpError, HttpErrorKind};

use crate::error::Error;

/// Why a request has no result.
#[derive(Debug)]
pub(super) struct RequestFailure {
    cause: Cause,
    /// What the server or the client said.
    text: String,
    /// How often the request was sent.
    tries: u32,
}

/// What a failure means for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// There is no such object.
    Missing,
    /// There is no such bucket.
    NoBucket,
    /// The name is taken, or somebody else is just putting it.
    Taken,
    /// The range begins after the end of the object.
    Range,
    /// The server does not know this kind of request.
    Unsupported,
    /// The credentials are not allowed to do this.
    Denied,
    /// The server does not know these credentials.
    Credentials,
    /// No server answered.
    Unreachable,
    /// It may succeed when tried again.
    Transient,
    /// The user asked to stop.
    Stopped,
    /// Anything else. Trying again does not help.
    Other,
}

impl RequestFailure {
    pub(super) fn new(cause: Cause, text: impl Into<String>) -> Self {
        RequestFailure { cause, text: text.into(), tries: 1 }
    }

    pub(super) fn stopped() -> Self {
        RequestFailure::new(Cause::Stopped, "stopped")
    }

    pub(super) fn cause(&self) -> Cause {
        self.cause
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.cause, Cause::Transient | Cause::Unreachable)
    }

    /// Whether a server has said so.
    pub(super) fn is_answer(&self) -> bool {
        !matches!(self.cause, Cause::Unreachable | Cause::Stopped | Cause::Other)
    }

    /// The failure of a request that was sent `tries` times.
    pub(super) fn after(self, tries: u32) -> Self {
        RequestFailure { tries, ..self }
    }

    /// The error of this failure: `action` is a verb, `what` the URL of the object.
    pub(super) fn into_error(self, action: &'static str, what: &str) -> Error {
        if self.cause == Cause::Stopped {
            return Error::Interrupted;
        }
        Error::io(action, what, std::io::Error::other(self.to_string()))
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)?;
        if self.tries > 1 {
            write!(formatter, " (tried {} times)", self.tries)?;
        }
        Ok(())
    }
}

impl From<object_store::Error> for RequestFailure {
    fn from(error: object_store::Error) -> Self {
        let text = error.to_string();
        RequestFailure::new(cause(&error, &text), text)
    }
}

fn cause(error: &object_store::Error, text: &str) -> Cause {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } if is_missing_bucket(text) => Cause::NoBucket,
        E::NotFound { .. } => Cause::Missing,
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => Cause::Taken,
        E::NotImplemented { .. } | E::NotSupported { .. } => Cause::Unsupported,
        E::PermissionDenied { .. } => Cause::Denied,
        E::Unauthenticated { .. } => Cause::Credentials,
        E::Generic { .. } => match status(text) {
            Some(416) => Cause::Range,
            Some(501) => Cause::Unsupported,
            Some(408 | 429 | 500..) => Cause::Transient,
            Some(_) => Cause::Other,
            None if http_kind(error) == Some(HttpErrorKind::Connect) => Cause::Unreachable,
            None if text.contains("Invalid range") => Cause::Range,
            None => Cause::Transient,
        },
        _ => Cause::Other,
    }
}

/// The status of the server's answer. The client gives it only in its text.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// The kind of a transport error below `error`.
fn http_kind(error: &dyn std::error::Error) -> Option<HttpErrorKind> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(http) = inner.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        source = inner.source();
    }
    None
}

/// Whether the answer is that the bucket, not the object, is missing.
fn is_missing_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"].iter().any(|code| text.contains(code))
}
