//! Locks of objects (S3 Object Lock): until when nobody may delete what is stored now.
//!
//! The client of the service has no such requests, but it signs URLs. So these requests are sent here.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt;
use jiff::Timestamp;
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody, HttpResponse};
use object_store::path::Path;
use object_store::signer::{HeaderName, HeaderValue, Method, SignedUrlOptions, Signer};

use super::RemoteStore;
use super::failure::{Cause, RequestFailure, tagged};
use super::requests::RequestKind;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BlobName, Locks, no_locks};

/// How long a signed URL is good. It is used at once, but clocks differ.
const URL_LIFE: Duration = Duration::from_secs(900);
/// Bytes of an answer that are looked at.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends the requests about locks, and those about cold storage.
pub(super) struct ObjectLocks {
    signer: Arc<dyn Signer>,
    client: HttpClient,
    /// The mode of objects that have no lock yet. Known once the bucket was asked.
    mode: OnceLock<LockMode>,
    /// Whether a lock that was made has been seen.
    is_confirmed: AtomicBool,
}

/// Who may end a lock early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockMode {
    /// Who has a right of its own for that.
    Governance,
    /// Nobody.
    Compliance,
}

/// The lock of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ObjectLock {
    mode: LockMode,
    end: Timestamp,
}

impl LockMode {
    fn name(self) -> &'static str {
        match self {
            LockMode::Governance => "GOVERNANCE",
            LockMode::Compliance => "COMPLIANCE",
        }
    }

    fn parse(text: &str) -> Self {
        if text == LockMode::Compliance.name() { LockMode::Compliance } else { LockMode::Governance }
    }
}

impl fmt::Debug for ObjectLocks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ObjectLocks").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl ObjectLocks {
    pub(super) fn new(signer: Arc<dyn Signer>, client: HttpClient) -> Self {
        ObjectLocks { signer, client, mode: OnceLock::new(), is_confirmed: AtomicBool::new(false) }
    }

    /// Sends a request with this query, or none. An answer that is no success is a failure.
    pub(super) async fn send(
        &self,
        method: Method,
        object: &Path,
        query: Option<&str>,
        body: Option<String>,
    ) -> Result<HttpResponse, RequestFailure> {
        let mut options = SignedUrlOptions::new().with_query(query.map(|query| (query, "")));
        if let Some(body) = &body {
            let sum = BASE64_STANDARD.encode(digest(&SHA256, body.as_bytes()));
            let sum = HeaderValue::try_from(sum).map_err(other)?;
            options = options.with_signed_header(HeaderName::from_static("x-amz-checksum-sha256"), sum);
        }
        let url = self.signer.signed_url_opts(method.clone(), object, URL_LIFE, &options).await?;
        let mut request = HttpRequest::new(body.map_or_else(HttpRequestBody::empty, Into::into));
        *request.method_mut() = method;
        *request.uri_mut() = url.as_str().parse().map_err(other)?;
        *request.headers_mut() = options.signed_headers;
        let answer = self.client.execute(request).await.map_err(failed)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        Err(RequestFailure::answered(status, &text_of(answer).await?))
    }

    /// Asks the bucket for the mode of new locks. `None` if it has no locks.
    async fn mode_of_bucket(&self) -> Result<Option<LockMode>, RequestFailure> {
        match self.send(Method::GET, &Path::default(), Some("object-lock"), None).await {
            Ok(answer) => {
                let text = text_of(answer).await?;
                if !text.trim_end().ends_with("</ObjectLockConfiguration>") {
                    // A part of the answer, unless the server does not know the question.
                    let is_listing = text.contains("<ListBucketResult");
                    let failure = || RequestFailure::new(Cause::Transient, "the server's answer about locks is cut");
                    return if is_listing { Ok(None) } else { Err(failure()) };
                }
                let is_enabled = tagged(&text, "ObjectLockEnabled") == Some("Enabled");
                Ok(is_enabled.then(|| LockMode::parse(tagged(&text, "Mode").unwrap_or_default())))
            }
            Err(failure) if matches!(failure.cause(), Cause::Missing | Cause::Unsupported | Cause::Other) => {
                tracing::debug!("the bucket has no locks: {failure}");
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The lock of an object.
    async fn look(&self, object: &Path) -> Result<Option<ObjectLock>, RequestFailure> {
        let answer = self.send(Method::HEAD, object, None, None).await?;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let Some(end) = header("x-amz-object-lock-retain-until-date") else { return Ok(None) };
        let mode = LockMode::parse(header("x-amz-object-lock-mode").unwrap_or_default());
        Ok(Some(ObjectLock { mode, end: end.parse().map_err(other)? }))
    }

    /// Makes the lock of an object last until `end`, at least.
    async fn extend(&self, object: &Path, end: Timestamp, new_mode: LockMode) -> Result<(), RequestFailure> {
        let before = self.look(object).await?;
        if before.is_some_and(|lock| lock.end >= end) {
            return Ok(());
        }
        // The mode of a lock is never changed.
        let mode = before.map_or(new_mode, |lock| lock.mode).name();
        let date = end.strftime("%Y-%m-%dT%H:%M:%SZ");
        let xml = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        let body = format!("<Retention {xml}><Mode>{mode}</Mode><RetainUntilDate>{date}</RetainUntilDate></Retention>");
        match self.send(Method::PUT, object, Some("retention"), Some(body)).await {
            // Somebody else may just have made it longer.
            Err(failure) if !failure.is_transient() => {
                let after = self.look(object).await?;
                if after.map(|lock| lock.end) > before.map(|lock| lock.end) { Ok(()) } else { Err(failure) }
            }
            sent => sent.map(drop),
        }
    }
}

impl RemoteStore {
    /// What sends requests about locks, and the mode of new ones.
    ///
    /// # Errors
    /// [`Error::Usage`] if the bucket has no locks.
    fn object_locks(&self) -> Result<(&ObjectLocks, LockMode)> {
        let none = || no_locks(&self.location);
        let locks = self.locks.as_ref().ok_or_else(none)?;
        if let Some(mode) = locks.mode.get() {
            return Ok((locks, *mode));
        }
        let found = self.read("inspect", "", async || locks.mode_of_bucket().await)?;
        let mode = found.ok_or_else(none)?;
        Ok((locks, *locks.mode.get_or_init(|| mode)))
    }
}

impl Locks for RemoteStore {
    fn locked_until(&self, name: &BlobName) -> Result<Option<SystemTime>> {
        let (locks, _) = self.object_locks()?;
        let object = self.object(name);
        let lock = self.read("inspect", name, async || locks.look(&object).await)?;
        Ok(lock.map(|lock| lock.end.into()))
    }

    fn lock(&self, name: &BlobName, end: SystemTime) -> Result<()> {
        let (locks, mode) = self.object_locks()?;
        let object = self.object(name);
        let end = Timestamp::try_from(end).and_then(|end| Timestamp::from_second(end.as_second()));
        let end = end.map_err(|error| Error::Usage(format!("cannot lock for so long: {error}")))?;
        let extended = self.requests.run(RequestKind::Write, async || locks.extend(&object, end, mode).await)?;
        extended.map_err(|failure| self.error(failure, "lock", name))?;
        if !locks.is_confirmed.load(Ordering::Relaxed) {
            let seen = self.locked_until(name)?;
            if seen.is_none_or(|seen| seen < end.into()) {
                return Err(Error::Remote {
                    action: "lock",
                    what: format!("{name} in {}", self.location),
                    reason: "the server does not show the new lock; these credentials may lack the right \
                             s3:GetObjectRetention"
                        .into(),
                    kind: ErrorKind::Failed,
                });
            }
            locks.is_confirmed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The text of an answer, or its start.
async fn text_of(answer: HttpResponse) -> Result<String, RequestFailure> {
    let (mut bytes, mut parts) = (Vec::new(), answer.into_body().bytes_stream());
    while let Some(part) = parts.next().await {
        bytes.extend_from_slice(&part.map_err(failed)?);
        if bytes.len() >= ANSWER_BYTES_MAX {
            bytes.truncate(ANSWER_BYTES_MAX);
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn failed(error: object_store::client::HttpError) -> RequestFailure {
    object_store::Error::Generic { store: "S3", source: Box::new(error) }.into()
}

fn other(error: impl fmt::Display) -> RequestFailure {
    RequestFailure::new(Cause::Other, error.to_string())
}
