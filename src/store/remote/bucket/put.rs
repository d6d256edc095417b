//! Puts objects into a bucket: in one request, or in parts.

use std::cell::Cell;
use std::fmt::Write;

use bytes::Bytes;
use md5::{Digest, Md5};
use object_store::client::HttpRequestBody;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};

use super::conditions::Conditions;
use super::object::{ObjectState, collected, unquoted};
use super::opened::{Service, SourceBucket};
use super::s3_requests::{METADATA_PREFIX, S3Requests, other, parts, refused, state};
use crate::error::{Error, Result};
use crate::store::remote::failure::{Cause, RequestFailure, tagged};
use crate::store::remote::requests::RequestKind;
use crate::types::hex;

/// What came of a request.
type Sent<T> = std::result::Result<T, RequestFailure>;

/// Bytes of an answer, at most.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What an object is to be, beside its bytes.
#[derive(Debug, Clone, Default)]
pub struct ObjectToPut {
    /// Its key, whole.
    pub key: String,
    /// Type of its content.
    pub content_type: Option<String>,
    /// What its user has noted, by name.
    pub metadata: Vec<(String, String)>,
    /// Whether it may replace no object.
    pub is_new: bool,
}

/// What became of an object to put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPut {
    /// It is there.
    Done,
    /// It may replace none, and this one has its key.
    Taken(ObjectState),
}

impl ObjectToPut {
    fn headers(&self) -> Sent<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(content_type) = &self.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::try_from(content_type).map_err(other)?);
        }
        for (name, value) in &self.metadata {
            let name = HeaderName::try_from(format!("{METADATA_PREFIX}{name}")).map_err(other)?;
            headers.insert(name, HeaderValue::try_from(value).map_err(other)?);
        }
        Ok(headers)
    }
}

/// An upload in parts.
#[derive(Debug)]
pub struct BucketUpload {
    key: String,
    is_new: bool,
    id: String,
    /// ETags of the parts so far.
    parts: Vec<String>,
    /// MD5 of the MD5s of the parts.
    digests: Md5,
    /// Bytes of the parts.
    len: u64,
}

impl BucketUpload {
    /// The ETag that the object gets.
    pub fn etag(&self) -> String {
        format!("{}-{}", hex(&self.digests.clone().finalize()), self.parts.len())
    }

    /// Whether an object is what these parts become.
    fn is_of_parts(&self, found: &ObjectState) -> bool {
        found.size == self.len && found.etag == Some(self.etag())
    }
}

impl SourceBucket {
    fn s3(&self) -> Result<&S3Requests> {
        match &self.service {
            Service::S3(client) => Ok(client),
            Service::Other(_) => Err(Error::Usage(format!("{}: only buckets of S3 are written to", self.url()))),
        }
    }

    /// Fails unless objects can be put here.
    ///
    /// # Errors
    /// [`Error::Usage`] for other services than S3.
    pub fn check_writable(&self) -> Result<()> {
        self.s3().map(drop)
    }

    /// What is known of an object without its bytes. `None` if the server says that there is none.
    ///
    /// # Errors
    /// As for [`SourceBucket::put`].
    pub fn find(&self, key: &str) -> Result<Option<ObjectState>> {
        let client = self.s3()?;
        let found = self.requests.run(RequestKind::Read, async || head(client, key).await)?;
        found.map_err(|failure| {
            self.note_failure(&failure);
            failure.into_error("read", &self.url_of(key), RequestKind::Read)
        })
    }

    /// Puts an object in one request.
    ///
    /// # Errors
    /// [`Error::Remote`] with the URL of the object, [`Error::Interrupted`].
    pub fn put(&self, object: &ObjectToPut, bytes: &Bytes) -> Result<ObjectPut> {
        let client = self.s3()?;
        let send = async |headers| {
            let body = HttpRequestBody::from(bytes.clone());
            answered(client, Method::PUT, &object.key, &[], headers, body).await.map(drop)
        };
        let put = self.requests.run(RequestKind::Write, async || {
            let put = self.send_unless_taken(client, (&object.key, object.is_new), object.headers()?, &send).await?;
            if put == ObjectPut::Done && object.is_new && self.conditions.take_unknown() {
                // The same bytes once more: a server that obeys the condition refuses them.
                match send(conditional(object.headers()?)).await {
                    Ok(()) => self.conditions.set(Conditions::Ignored),
                    Err(failure) if failure.cause() == Cause::Taken => self.conditions.set(Conditions::Obeyed),
                    Err(failure) => tracing::debug!("how the bucket takes conditions stays unknown: {failure}"),
                }
            }
            Ok(put)
        })?;
        put.map_err(|failure| self.put_error(failure, &object.key))
    }

    /// Sends the request that makes the object of a key, if it may replace one or there is none.
    async fn send_unless_taken(
        &self,
        client: &S3Requests,
        (key, is_new): (&str, bool),
        headers: HeaderMap,
        send: &impl AsyncFn(HeaderMap) -> Sent<()>,
    ) -> Sent<ObjectPut> {
        if !is_new {
            return send(headers).await.map(|()| ObjectPut::Done);
        }
        let known = self.conditions.get();
        if known != Conditions::Obeyed {
            match head(client, key).await {
                // Whoever may not look relies on the condition.
                Err(denied)
                    if denied.cause() == Cause::Denied && matches!(known, Conditions::Unknown | Conditions::Asked) => {}
                found => {
                    if let Some(found) = found? {
                        return Ok(ObjectPut::Taken(found));
                    }
                }
            }
        }
        if known == Conditions::Refused {
            return send(headers).await.map(|()| ObjectPut::Done);
        }
        match send(conditional(headers.clone())).await {
            Err(failure) if failure.cause() == Cause::Unsupported => {
                tracing::debug!("the bucket does not know conditional puts: {failure}");
                self.conditions.set(Conditions::Refused);
                match head(client, key).await? {
                    Some(found) => Ok(ObjectPut::Taken(found)),
                    None => send(headers).await.map(|()| ObjectPut::Done),
                }
            }
            Err(failure) if matches!(failure.cause(), Cause::Taken | Cause::Conflict) => {
                let none = || RequestFailure::new(Cause::Conflict, format!("{failure}, but there is no object"));
                match head(client, key).await {
                    // The object is there, and nobody here may look at it.
                    Err(denied) if denied.cause() == Cause::Denied && failure.cause() == Cause::Taken => {
                        Ok(ObjectPut::Taken(ObjectState::default()))
                    }
                    found => found?.map(ObjectPut::Taken).ok_or_else(none),
                }
            }
            sent => sent.map(|()| ObjectPut::Done),
        }
    }

    /// Begins an upload in parts.
    ///
    /// # Errors
    /// As for [`SourceBucket::put`].
    pub fn start_upload(&self, object: &ObjectToPut) -> Result<BucketUpload> {
        let client = self.s3()?;
        let started = self.requests.run(RequestKind::Write, async || {
            let (query, body) = ([("uploads", "")], HttpRequestBody::empty());
            let (_, text) = answered(client, Method::POST, &object.key, &query, object.headers()?, body).await?;
            let none = || RequestFailure::new(Cause::Other, "the server began no upload");
            tagged(&text, "UploadId").map(str::to_string).ok_or_else(none)
        })?;
        let id = started.map_err(|failure| self.put_error(failure, &object.key))?;
        let (key, is_new) = (object.key.clone(), object.is_new);
        Ok(BucketUpload { key, is_new, id, parts: Vec::new(), digests: Md5::new(), len: 0 })
    }

    /// Puts the next part of an upload.
    ///
    /// # Errors
    /// As for [`SourceBucket::put`].
    pub fn put_part(&self, upload: &mut BucketUpload, bytes: &Bytes) -> Result<()> {
        let client = self.s3()?;
        let number = (upload.parts.len() + 1).to_string();
        let put = self.requests.run(RequestKind::Write, async || {
            let query = [("partNumber", number.as_str()), ("uploadId", upload.id.as_str())];
            let body = HttpRequestBody::from(bytes.clone());
            let (headers, _) = answered(client, Method::PUT, &upload.key, &query, HeaderMap::new(), body).await?;
            etag(&headers).ok_or_else(|| RequestFailure::new(Cause::Other, "the server gives no ETag of a part"))
        })?;
        upload.parts.push(put.map_err(|failure| self.put_error(failure, &upload.key))?);
        upload.digests.update(Md5::digest(bytes));
        upload.len += bytes.len() as u64;
        Ok(())
    }

    /// Makes the object of the parts of an upload.
    ///
    /// # Errors
    /// As for [`SourceBucket::put`].
    pub fn finish_upload(&self, upload: &BucketUpload) -> Result<ObjectPut> {
        let client = self.s3()?;
        let mut list = "<CompleteMultipartUpload>".to_string();
        for (part, number) in upload.parts.iter().zip(1..) {
            // Writing to memory does not fail.
            let _ = write!(list, "<Part><PartNumber>{number}</PartNumber><ETag>\"{part}\"</ETag></Part>");
        }
        let list = Bytes::from(list + "</CompleteMultipartUpload>");
        let send = async |headers| {
            let (query, body) = ([("uploadId", upload.id.as_str())], HttpRequestBody::from(list.clone()));
            let sent = answered(client, Method::POST, &upload.key, &query, headers, body).await;
            sent.and_then(|(_, text)| completed(&text))
        };
        let is_first = Cell::new(true);
        let finished = self.requests.run(RequestKind::Write, async || {
            // Some servers obey the condition for whole objects alone. Later, the object may be that of this upload.
            if is_first.replace(false)
                && upload.is_new
                && let Ok(Some(found)) = head(client, &upload.key).await
                && !upload.is_of_parts(&found)
            {
                return Ok(ObjectPut::Taken(found));
            }
            match self.send_unless_taken(client, (&upload.key, upload.is_new), HeaderMap::new(), &send).await {
                // This request or one before it may have finished the upload, which is then unknown.
                Err(failure) if failure.is_transient() || failure.cause() == Cause::Missing => {
                    match head(client, &upload.key).await {
                        Ok(Some(found)) if upload.is_of_parts(&found) => Ok(ObjectPut::Done),
                        _ => Err(failure),
                    }
                }
                sent => sent,
            }
        })?;
        finished.map_err(|failure| self.put_error(failure, &upload.key))
    }

    /// Gives up an upload, so that its parts cost nothing.
    ///
    /// # Errors
    /// As for [`SourceBucket::put`].
    pub fn abort_upload(&self, upload: &BucketUpload) -> Result<()> {
        let client = self.s3()?;
        let aborted = self.requests.run(RequestKind::Write, async || {
            let (query, body) = ([("uploadId", upload.id.as_str())], HttpRequestBody::empty());
            match answered(client, Method::DELETE, &upload.key, &query, HeaderMap::new(), body).await {
                Err(failure) if failure.cause() != Cause::Missing => Err(failure),
                // One that is unknown has no parts.
                _ => Ok(()),
            }
        })?;
        aborted.map_err(|failure| self.put_error(failure, &upload.key))
    }

    fn put_error(&self, failure: RequestFailure, key: &str) -> Error {
        self.note_failure(&failure);
        failure.into_error("write", &self.url_of(key), RequestKind::Write)
    }
}

/// The headers of a request that may replace no object.
fn conditional(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    headers
}

/// What is known of an object without its bytes.
async fn head(client: &S3Requests, key: &str) -> Sent<Option<ObjectState>> {
    let answer = client.send(Method::HEAD, key, &[], HeaderMap::new(), HttpRequestBody::empty()).await?;
    match answer.status().as_u16() {
        404 => Ok(None),
        200 => state(answer.headers(), 200).map(Some),
        // The answer to HEAD has no text.
        status => Err(refused(status, "")),
    }
}

/// Reads the text with which a server answers a request to complete an upload. It sends the status before it knows
/// whether it can.
fn completed(text: &str) -> Sent<()> {
    let is_error = text.contains("<Error>");
    if text.contains("<CompleteMultipartUploadResult") && !is_error {
        return Ok(());
    }
    Err(match tagged(text, "Code").filter(|_| is_error) {
        None => RequestFailure::new(Cause::Transient, "the server does not say whether the object is complete"),
        Some("PreconditionFailed") => RequestFailure::new(Cause::Taken, "the key is taken"),
        Some("NoSuchUpload") => RequestFailure::answered(404, text),
        Some("InternalError" | "SlowDown" | "ServiceUnavailable" | "RequestTimeout" | "OperationAborted") => {
            RequestFailure::answered(500, text)
        }
        Some(_) => RequestFailure::answered(400, text),
    })
}

/// The headers and the text of the answer to a request that was not refused.
async fn answered(
    client: &S3Requests,
    method: Method,
    key: &str,
    query: &[(&str, &str)],
    headers: HeaderMap,
    body: HttpRequestBody,
) -> Sent<(HeaderMap, String)> {
    let answer = client.send(method, key, query, headers, body).await?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = collected(parts(answer), ANSWER_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    match status.as_u16() {
        200..300 => Ok((headers, text)),
        409 => Err(RequestFailure::new(Cause::Conflict, "the server answered 409, as others change the object")),
        412 => Err(RequestFailure::new(Cause::Taken, "the server answered 412")),
        status => Err(refused(status, &text)),
    }
}

fn etag(headers: &HeaderMap) -> Option<String> {
    headers.get(ETAG).and_then(|etag| etag.to_str().ok()).and_then(unquoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_complete_only_if_the_answer_says_so() {
        completed("<CompleteMultipartUploadResult xmlns=\"x\"><ETag>1</ETag></CompleteMultipartUploadResult>").unwrap();
        for (text, cause) in [
            ("", Cause::Transient),
            ("<html><ETag>1</ETag></html>", Cause::Transient),
            ("<Error><Code>InternalError</Code><ETag>1</ETag></Error>", Cause::Transient),
            ("<Error><Code>NoSuchUpload</Code></Error>", Cause::Missing),
            ("<Error><Code>InvalidPart</Code></Error>", Cause::Other),
            ("<CompleteMultipartUploadResult><Error><Code>X</Code></Error>", Cause::Other),
        ] {
            assert_eq!(completed(text).unwrap_err().cause(), cause, "{text}");
        }
    }

    #[test]
    fn only_what_has_the_bytes_of_the_parts_is_taken_for_their_object() {
        let (key, id, parts) = ("k".into(), "i".into(), Vec::new());
        let mut upload = BucketUpload { key, is_new: true, id, parts, digests: Md5::new(), len: 0 };
        for part in ["one", "two"] {
            upload.parts.push(hex(&Md5::digest(part)));
            upload.digests.update(Md5::digest(part));
            upload.len += 3;
        }
        let state = |size, etag: Option<&str>| ObjectState { size, etag: etag.map(Into::into), ..Default::default() };
        let etag = upload.etag();
        assert!(etag.ends_with("-2") && upload.is_of_parts(&state(6, Some(&etag))));
        for other in [state(5, Some(&etag)), state(6, Some("another-2")), state(6, None)] {
            assert!(!upload.is_of_parts(&other));
        }
    }
}
