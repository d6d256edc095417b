//! Requests to S3 that the client library cannot make, signed with its credentials.

use std::ops::Range;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use jiff::fmt::rfc2822::DateTimeParser;
use md5::{Digest, Md5};
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody, HttpResponse};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_MATCH};
use reqwest::header::{LAST_MODIFIED, RANGE};

use super::key::percent_encoded;
use super::object::{ExpectedObject, Fetched, ObjectPage, ObjectRange, ObjectState, collected, unquoted};
use super::page::parse_page;
use crate::store::remote::failure::{Cause, RequestFailure, tagged};

/// Bytes of a page of a listing, at most: 1000 keys of 1024 bytes, encoded, fit.
const PAGE_BYTES_MAX: u64 = 16 << 20;
/// Headers with what a user has noted begin so.
pub(super) const METADATA_PREFIX: &str = "x-amz-meta-";

/// Sends requests to one bucket.
#[derive(Debug)]
pub struct S3Requests {
    /// Has the credentials.
    pub(in crate::store::remote) objects: Arc<AmazonS3>,
    /// Sends what is signed here.
    pub(in crate::store::remote) client: HttpClient,
    /// URL of the bucket, without a slash at the end.
    pub(in crate::store::remote) base: String,
    /// Region that signatures name.
    pub(in crate::store::remote) region: String,
    /// Whether requests are signed. Some buckets are open to all.
    pub(in crate::store::remote) is_signed: bool,
    /// Whether who asks pays for the answer.
    pub(in crate::store::remote) requester_pays: bool,
}

impl S3Requests {
    /// Sends a GET of `key`, which is empty for the bucket. The answer may be a refusal.
    async fn get(&self, key: &str, query: &[(&str, &str)], headers: HeaderMap) -> Result<HttpResponse, RequestFailure> {
        self.send(Method::GET, key, query, headers, HttpRequestBody::empty()).await
    }

    /// Sends a request about `key`, which is empty for the bucket. The answer may be a refusal. A PUT says the MD5 of
    /// its body, which buckets with retention demand; what makes something says its length, even if there is none.
    pub(super) async fn send(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: HttpRequestBody,
    ) -> Result<HttpResponse, RequestFailure> {
        let pair = |(name, value): &(&str, &str)| format!("{name}={}", percent_encoded(value, false));
        let query: Vec<String> = query.iter().map(pair).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        let url = format!("{}/{}{mark}{}", self.base, percent_encoded(key, true), query.join("&"));
        let mut request = HttpRequest::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = url.parse().map_err(other)?;
        *request.headers_mut() = headers;
        let makes = matches!(*request.method(), Method::PUT | Method::POST);
        let len = HeaderValue::from(request.body().content_length());
        if let Some(bytes) = request.body().as_bytes().filter(|_| *request.method() == Method::PUT) {
            let digest = BASE64_STANDARD.encode(Md5::digest(bytes));
            request.headers_mut().insert("content-md5", HeaderValue::from_str(&digest).map_err(other)?);
        }
        if self.is_signed {
            let credential = self.objects.credentials().get_credential().await?;
            let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
            authorizer.with_request_payer(self.requester_pays).try_authorize(&mut request, None)?;
        }
        if makes {
            request.headers_mut().insert(CONTENT_LENGTH, len);
        }
        self.client.execute(request).await.map_err(failed)
    }

    /// The page of `token`, or the first one, of the keys that begin with `prefix`.
    pub(super) async fn page(&self, prefix: &str, token: Option<&str>) -> Result<ObjectPage, RequestFailure> {
        let mut query = vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix)];
        query.extend(token.map(|token| ("continuation-token", token)));
        let answer = self.get("", &query, HeaderMap::new()).await?;
        let status = answer.status();
        let text = String::from_utf8(collected(parts(answer), PAGE_BYTES_MAX).await?).map_err(other)?;
        if status.is_success() { parse_page(&text) } else { Err(RequestFailure::answered(status.as_u16(), &text)) }
    }

    /// A range of the object `key`, which must be the `expected` one.
    pub(super) async fn fetch(
        &self,
        key: &str,
        range: &Range<u64>,
        expected: ExpectedObject<'_>,
    ) -> Result<Fetched, RequestFailure> {
        let fetched = self.fetch_version(key, range, expected, None).await?;
        let version = expected.same().and_then(|same| same.version.as_deref()).filter(|version| *version != "null");
        match (fetched, version) {
            // Reading old versions is a right of its own.
            (Fetched::Replaced, Some(version)) => match self.fetch_version(key, range, expected, Some(version)).await {
                Err(failure) if !failure.is_transient() && failure.cause() != Cause::Stopped => Ok(Fetched::Replaced),
                fetched => fetched,
            },
            (fetched, _) => Ok(fetched),
        }
    }

    async fn fetch_version(
        &self,
        key: &str,
        range: &Range<u64>,
        expected: ExpectedObject<'_>,
        version: Option<&str>,
    ) -> Result<Fetched, RequestFailure> {
        let mut headers = HeaderMap::new();
        if let Some(etag) = expected.same().and_then(|same| same.etag.as_ref()) {
            headers.insert(IF_MATCH, HeaderValue::try_from(format!("\"{etag}\"")).map_err(other)?);
        }
        let query: Vec<(&str, &str)> = version.map(|version| ("versionId", version)).into_iter().collect();
        // No range of an empty object exists.
        let mut ranged = headers.clone();
        if range.end > range.start {
            let text = format!("bytes={}-{}", range.start, range.end - 1);
            ranged.insert(RANGE, HeaderValue::try_from(text).map_err(other)?);
        }
        let mut answer = self.get(key, &query, ranged).await?;
        let may_be_empty = answer.status() == 416 && matches!(expected, ExpectedObject::SameOrNewer(_));
        if may_be_empty {
            answer = self.get(key, &query, headers).await?;
        }
        let status = answer.status().as_u16();
        match status {
            200 | 206 => {}
            412 => return Ok(Fetched::Replaced),
            416 if !matches!(expected, ExpectedObject::Any) => return Ok(Fetched::Replaced),
            _ => {
                let text = collected(parts(answer), PAGE_BYTES_MAX).await?;
                return Err(refused(status, &String::from_utf8_lossy(&text)));
            }
        }
        let state = state(answer.headers(), status)?;
        if !expected.is_met_by(&state)? || (may_be_empty && state.size > 0) {
            return Ok(Fetched::Replaced);
        }
        if may_be_empty {
            return Ok(Fetched::Range(ObjectRange { bytes: Vec::new(), state }));
        }
        if status == 206 && answered_range(answer.headers()) != Some(range.start..range.end.min(state.size)) {
            let text = "the server's answer is not the range that it was asked for";
            return Err(RequestFailure::new(Cause::Transient, text));
        }
        if status == 200 && (range.start > 0 || state.size > range.end) {
            return Err(RequestFailure::new(Cause::Unsupported, "the server answers a range with the whole object"));
        }
        Ok(Fetched::Range(ObjectRange::collected(parts(answer), range, state).await?))
    }
}

/// The range that an answer says that it is.
fn answered_range(headers: &HeaderMap) -> Option<Range<u64>> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes")?;
    let (first, last) = text.split_once('/')?.0.trim().split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?)
}

/// What the headers of an answer say.
pub(super) fn state(headers: &HeaderMap, status: u16) -> Result<ObjectState, RequestFailure> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_string);
    let size = match status {
        206 => text(CONTENT_RANGE.as_str()).and_then(|range| range.rsplit_once('/')?.1.parse().ok()),
        _ => text(CONTENT_LENGTH.as_str()).and_then(|len| len.parse().ok()),
    };
    let size = size.ok_or_else(|| RequestFailure::new(Cause::Transient, "the answer does not say how long it is"))?;
    let noted = |(name, value): (&reqwest::header::HeaderName, &HeaderValue)| {
        let name = name.as_str().strip_prefix(METADATA_PREFIX)?;
        Some((name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
    };
    let mut metadata: Vec<(String, String)> = headers.iter().filter_map(noted).collect();
    metadata.sort();
    Ok(ObjectState {
        size,
        etag: text(ETAG.as_str()).as_deref().and_then(unquoted),
        version: text("x-amz-version-id"),
        modified: text(LAST_MODIFIED.as_str()).and_then(|time| DateTimeParser::new().parse_timestamp(&time).ok()),
        content_type: text(CONTENT_TYPE.as_str()),
        metadata,
    })
}

/// A refusal. What lies in an archive is refused like what nobody may read.
pub(super) fn refused(status: u16, text: &str) -> RequestFailure {
    if status == 403 && tagged(text, "Code") == Some("InvalidObjectState") {
        let class = tagged(text, "StorageClass").unwrap_or("an archive class");
        let text = format!("it is cold: it lies in {class}. Restore it with the tools of the service first");
        return RequestFailure::new(Cause::Other, text);
    }
    RequestFailure::answered(status, text)
}

/// The body of an answer, as it comes.
pub(super) fn parts(answer: HttpResponse) -> impl Stream<Item = Result<Bytes, RequestFailure>> {
    answer.into_body().bytes_stream().map_err(failed)
}

fn failed(error: object_store::client::HttpError) -> RequestFailure {
    object_store::Error::Generic { store: "S3", source: Box::new(error) }.into()
}

pub(super) fn other(error: impl std::fmt::Display) -> RequestFailure {
    RequestFailure::new(Cause::Other, error.to_string())
}
