//! What the error of a request means, and what the user can do.

use std::fmt;

use object_store::client::{HttpError, HttpErrorKind};

use super::requests::RequestKind;
use crate::error::{Error, ErrorKind, quoted};

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
    /// Somebody else is changing the same object just now.
    Conflict,
    /// The range begins after the end of the object.
    Range,
    /// The server does not know this kind of request.
    Unsupported,
    /// The object is in cold storage.
    Cold,
    /// The credentials are not allowed to do this.
    Denied,
    /// The server does not know these credentials.
    Credentials,
    /// There are no credentials.
    NoCredentials,
    /// The bucket is in another region.
    Region,
    /// The server does not accept the time of the request.
    Clock,
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

    /// The failure of a request that was answered with `status`, which is no success.
    pub(super) fn answered(status: u16, body: &str) -> Self {
        use object_store::Error as E;
        // As the client of the service says it.
        let (path, source) = (String::new(), format!("status code: {status}: {body}").into());
        let error = match status {
            409 if tagged(body, "Code") == Some("RestoreAlreadyInProgress") => {
                return RequestFailure::new(Cause::Taken, "the object was asked for before");
            }
            // Another request is changing the same object.
            409 => return RequestFailure::new(Cause::Transient, "the server answered 409"),
            401 => E::Unauthenticated { path, source },
            403 => E::PermissionDenied { path, source },
            404 => E::NotFound { path, source },
            _ => E::Generic { store: "S3", source },
        };
        error.into()
    }

    pub(super) fn cause(&self) -> Cause {
        self.cause
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.cause, Cause::Transient | Cause::Unreachable | Cause::Conflict)
    }

    /// Whether a server has said so.
    pub(super) fn is_answer(&self) -> bool {
        !matches!(self.cause, Cause::Unreachable | Cause::Stopped | Cause::NoCredentials | Cause::Other)
    }

    /// The failure of a request that was sent `tries` times.
    pub(super) fn after(self, tries: u32) -> Self {
        RequestFailure { tries, ..self }
    }

    /// The error of this failure: `action` is a verb, `what` the object.
    pub(super) fn into_error(self, action: &'static str, what: &str, kind: RequestKind) -> Error {
        let is_refused_write = self.cause == Cause::Denied && kind == RequestKind::Write;
        let advice = match self.cause {
            Cause::Stopped => return Error::Interrupted,
            Cause::Cold => return Error::Cold { what: what.into() },
            Cause::NoBucket => "create it with the tools of the service, or correct its name",
            Cause::Denied if kind == RequestKind::Write => {
                "these credentials may not write or delete here. To read, they suffice"
            }
            Cause::Denied => "the credentials are wrong, or may not read and list here",
            Cause::Credentials => "check the credentials in the environment or in the profile",
            Cause::NoCredentials => {
                "there are no credentials in the environment, and this machine has no role that gives some; \
                 docs/REMOTE.md lists where they may come from"
            }
            Cause::Region => "the bucket is in another region: set AWS_REGION to it, or correct the endpoint",
            Cause::Clock => "the clock of this machine is wrong",
            Cause::Unreachable => "check the network and the endpoint",
            _ => "",
        };
        let what_is_wrong =
            if self.cause == Cause::NoBucket { "the bucket does not exist".into() } else { self.to_string() };
        let reason = if advice.is_empty() { what_is_wrong } else { format!("{what_is_wrong}; {advice}") };
        let kind = match self.cause {
            Cause::NoBucket => ErrorKind::NoRepository,
            _ if is_refused_write => ErrorKind::ReadOnly,
            Cause::Unreachable | Cause::Transient => ErrorKind::Unreachable,
            _ => ErrorKind::Failed,
        };
        Error::Remote { action, what: what.into(), reason, kind }
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
        let cause = cause(&error, &text);
        RequestFailure::new(cause, quoted(&shortened(&error, &text)))
    }
}

fn cause(error: &object_store::Error, text: &str) -> Cause {
    use object_store::Error as E;
    if METADATA_SERVERS.iter().any(|server| text.contains(server)) {
        return Cause::NoCredentials;
    }
    match error {
        _ if is_missing_bucket(text) => Cause::NoBucket,
        _ if COLD_CODES.contains(&tagged(text, "Code").unwrap_or_default()) => Cause::Cold,
        E::NotFound { .. } => Cause::Missing,
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => Cause::Taken,
        E::NotImplemented { .. } | E::NotSupported { .. } => Cause::Unsupported,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => refusal(error, text),
        E::Generic { .. } if text.contains("Received redirect without LOCATION") => Cause::Region,
        E::Generic { .. } => match status(text) {
            Some(300..400) => Cause::Region,
            Some(400) => refusal(error, text),
            Some(416) => Cause::Range,
            Some(501) => Cause::Unsupported,
            Some(408 | 429 | 500..) => Cause::Transient,
            Some(_) => Cause::Other,
            None => transport_cause(error, text),
        },
        _ => Cause::Other,
    }
}

/// What S3 and Azure say of an object that must be thawed before it can be read. S3 says it with 403, as if the
/// credentials might not read, and Azure with 409.
const COLD_CODES: [&str; 3] = ["InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"];

/// What a refusal is about.
fn refusal(error: &object_store::Error, text: &str) -> Cause {
    match tagged(text, "Code").unwrap_or_default() {
        "RequestTimeTooSkewed" => Cause::Clock,
        "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException" => Cause::Region,
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | "AuthenticationFailed"
        | "InvalidSecurity" => Cause::Credentials,
        // A server that is short of time says so with 400.
        "RequestTimeout" | "IncompleteBody" | "BadDigest" => Cause::Transient,
        _ => match error {
            object_store::Error::Unauthenticated { .. } => Cause::Credentials,
            object_store::Error::PermissionDenied { .. } => Cause::Denied,
            _ => Cause::Other,
        },
    }
}

/// What the client says of a range that the object does not have. The last two come from Azurite: it answers a range of
/// an empty blob with one that ends before its start, and one at the end of a blob with the whole blob.
const NO_SUCH_RANGE: [&str; 3] = ["Invalid range", "bytes 0--1/0", "Wanted range starting at"];

/// What the client says of a server that answers a range with the whole object. It would do so again.
const WHOLE: &str = "Received non-partial response when range requested";

/// What an error without an answer is about.
fn transport_cause(error: &object_store::Error, text: &str) -> Cause {
    match http_kind(error) {
        Some(HttpErrorKind::Connect) => Cause::Unreachable,
        Some(HttpErrorKind::Unknown) => Cause::Other,
        Some(_) => Cause::Transient,
        None if text.contains(WHOLE) => Cause::Unsupported,
        None if NO_SUCH_RANGE.iter().any(|said| text.contains(said)) => Cause::Range,
        None => Cause::Transient,
    }
}

/// Servers that give credentials to machines of a cloud.
const METADATA_SERVERS: [&str; 4] =
    ["//169.254.169.254", "//[fd00:ec2::254]", "//metadata.google.internal", "//169.254.170.2"];

/// The status of the server's answer. The client gives it only in its text.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// The content of an XML element in the answer.
pub(super) fn tagged<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once("</").map(|(content, _)| content.trim())
}

/// What the server says, or the last cause. The client's own text also has the request and the whole answer.
fn shortened(error: &object_store::Error, text: &str) -> String {
    if let Some(status) = status(text) {
        let parts = [tagged(text, "Code"), tagged(text, "Message")];
        let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        return format!("the server answered {status} {}", parts.join(": ")).trim_end().into();
    }
    let mut last: &dyn std::error::Error = error;
    let mut is_transport = false;
    while let Some(source) = last.source() {
        is_transport |= source.is::<HttpError>();
        last = source;
    }
    if is_transport { last.to_string() } else { text.into() }
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
