//! Puts objects into a bucket: in one request, or in parts.

use std::fmt::Write;

use bytes::Bytes;
use object_store::client::HttpRequestBody;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue};

use super::object::{ObjectState, collected, unquoted};
use super::opened::{Service, SourceBucket};
use super::s3_requests::{METADATA_PREFIX, S3Requests, other, parts, refused, state};
use crate::error::{Error, Result};
use crate::store::remote::failure::{Cause, RequestFailure, tagged};
use crate::store::remote::requests::RequestKind;

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
}

impl ObjectToPut {
    fn headers(&self) -> std::result::Result<HeaderMap, RequestFailure> {
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
    id: String,
    /// ETags of the parts so far.
    parts: Vec<String>,
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
        let found = self.requests.run(RequestKind::Read, async || {
            let empty = HttpRequestBody::empty();
            let answer = client.send(Method::HEAD, key, &[], HeaderMap::new(), empty).await?;
            match answer.status().as_u16() {
                404 => Ok(None),
                200 => state(answer.headers(), 200).map(Some),
                // The answer to HEAD has no text.
                status => Err(refused(status, "")),
            }
        })?;
        found.map_err(|failure| {
            self.note_failure(&failure);
            failure.into_error("read", &self.url_of(key), RequestKind::Read)
        })
    }

    /// Puts an object in one request. Returns its ETag, if the server gives one.
    ///
    /// # Errors
    /// [`Error::Remote`] with the URL of the object, [`Error::Interrupted`].
    pub fn put(&self, object: &ObjectToPut, bytes: &Bytes) -> Result<Option<String>> {
        let client = self.s3()?;
        let put = self.requests.run(RequestKind::Write, async || {
            let body = HttpRequestBody::from(bytes.clone());
            answered(client, Method::PUT, &object.key, &[], object.headers()?, body).await
        })?;
        put.map(|(headers, _)| etag(&headers)).map_err(|failure| self.put_error(failure, &object.key))
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
        Ok(BucketUpload { key: object.key.clone(), id, parts: Vec::new() })
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
        Ok(())
    }

    /// Makes the object of the parts of an upload. Returns its ETag, if the server gives one.
    ///
    /// # Errors
    /// As for [`SourceBucket::put`].
    pub fn finish_upload(&self, upload: &BucketUpload) -> Result<Option<String>> {
        let client = self.s3()?;
        let mut list = "<CompleteMultipartUpload>".to_string();
        for (part, number) in upload.parts.iter().zip(1..) {
            // Writing to memory does not fail.
            let _ = write!(list, "<Part><PartNumber>{number}</PartNumber><ETag>\"{part}\"</ETag></Part>");
        }
        let list = Bytes::from(list + "</CompleteMultipartUpload>");
        let finished = self.requests.run(RequestKind::Write, async || {
            let (query, body) = ([("uploadId", upload.id.as_str())], HttpRequestBody::from(list.clone()));
            let (_, text) = answered(client, Method::POST, &upload.key, &query, HeaderMap::new(), body).await?;
            // The status is sent before the server knows whether it works.
            match tagged(&text, "ETag") {
                Some(etag) => Ok(unquoted(&etag.replace("&quot;", "\"").replace("&#34;", "\""))),
                None => Err(RequestFailure::answered(500, &text)),
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
            answered(client, Method::DELETE, &upload.key, &query, HeaderMap::new(), body).await.map(drop)
        })?;
        aborted.map_err(|failure| self.put_error(failure, &upload.key))
    }

    fn put_error(&self, failure: RequestFailure, key: &str) -> Error {
        self.note_failure(&failure);
        failure.into_error("write", &self.url_of(key), RequestKind::Write)
    }
}

/// The headers and the text of the answer to a request that was not refused.
async fn answered(
    client: &S3Requests,
    method: Method,
    key: &str,
    query: &[(&str, &str)],
    headers: HeaderMap,
    body: HttpRequestBody,
) -> std::result::Result<(HeaderMap, String), RequestFailure> {
    let answer = client.send(method, key, query, headers, body).await?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = collected(parts(answer), ANSWER_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if status.is_success() { Ok((headers, text)) } else { Err(refused(status.as_u16(), &text)) }
}

fn etag(headers: &HeaderMap) -> Option<String> {
    headers.get(ETAG).and_then(|etag| etag.to_str().ok()).and_then(unquoted)
}
