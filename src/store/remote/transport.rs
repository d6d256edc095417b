//! Sends requests over HTTP, no faster than the limits allow, and gives up when nothing moves.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, PutPayload};
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, RANGE};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::listing_page::PageRoot;
use crate::store::rate::{RateLimit, RateLimits};

/// A request is sent in slices of this length, bytes.
pub(super) const SLICE_BYTES: usize = 128 << 10;

/// The time to connect to a server.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the body of a refusal, at most.
const REFUSAL_BYTES_MAX: u64 = 1 << 20;
/// Bytes of an answer beyond the range that was asked for, at most: a document such as a page of a listing.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

/// Makes HTTP clients.
#[derive(Debug)]
pub(super) struct Transport {
    /// A request fails if no byte has moved for so long.
    pub(super) idle: Duration,
    /// Limits of what its clients send and receive.
    pub(super) limits: RateLimits,
    /// Whether a range is asked for as it is stored, even if that is gzip. Google decodes it otherwise, from the start.
    pub(super) takes_gzip: bool,
}

/// One HTTP client.
#[derive(Debug)]
struct PacedClient {
    client: reqwest::Client,
    idle: Duration,
    limits: RateLimits,
    takes_gzip: bool,
}

/// When a byte of a request has moved last.
#[derive(Debug)]
struct LastMove(Mutex<Instant>);

/// A body that moves no faster than a limit allows.
struct PacedBody<B> {
    inner: Pin<Box<B>>,
    limit: Arc<RateLimit>,
    last_move: Arc<LastMove>,
    /// Until when the next bytes must wait.
    wait: Option<Pin<Box<Sleep>>>,
    /// When the body fails unless bytes come. Not for uploads, whose request watches them.
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    /// Bytes that may still come.
    left: u64,
}

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let is_plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        // Servers that give credentials to machines of a cloud are near, or not there at all.
        let connect = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let connect = connect.and_then(|text| text.parse::<jiff::SignedDuration>().ok());
        let connect = connect.and_then(|time| Duration::try_from(time).ok()).unwrap_or(CONNECT_TIMEOUT);
        let client = reqwest::Client::builder()
            .user_agent(concat!("fhrd/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect)
            .https_only(!is_plain)
            // The API of a store has none, and a hostile server could send requests to others with them.
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .build()
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) })?;
        Ok(HttpClient::new(PacedClient {
            client,
            idle: self.idle,
            limits: self.limits.clone(),
            takes_gzip: self.takes_gzip,
        }))
    }
}

impl HttpService for PacedClient {
    fn call<'life, 'future>(
        &'life self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'future>>
    where
        'life: 'future,
        Self: 'future,
    {
        Box::pin(self.send(request))
    }
}

impl PacedClient {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let page = PageRoot::of(&parts.method, parts.uri.query());
        let url = parts.uri.to_string().parse().map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let range_bytes = range_len(&parts.headers);
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        if self.takes_gzip && request.headers().contains_key(RANGE) {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let last_move = Arc::new(LastMove(Mutex::new(Instant::now())));
        *request.body_mut() = Some(match body.as_bytes() {
            Some(bytes) if bytes.len() <= SLICE_BYTES => bytes.clone().into(),
            bytes => {
                // What is sent in one piece moves once, and is not limited.
                let body = bytes.map(sliced).unwrap_or(body);
                reqwest::Body::wrap(PacedBody::new(body, self.limits.upload.clone(), last_move.clone(), None, u64::MAX))
            }
        });
        let answer = match select(pin!(self.client.execute(request)), pin!(last_move.idle(self.idle))).await {
            Either::Left((answer, _)) => answer.map_err(failed)?,
            Either::Right(((), _)) => return Err(idle(self.idle)),
        };
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = reqwest::Body::from(answer).map_err(failed);
        let bytes_max =
            if status.is_success() { range_bytes.saturating_add(DOCUMENT_BYTES_MAX) } else { REFUSAL_BYTES_MAX };
        let body = PacedBody::new(body, self.limits.download.clone(), last_move, Some(self.idle), bytes_max);
        let body = match page.filter(|_| status == StatusCode::OK) {
            None => HttpResponseBody::new(body),
            Some(root) => {
                let page = body.collect().await?.to_bytes();
                match root.defect(&page) {
                    None => page.into(),
                    Some(defect) => return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(defect))),
                }
            }
        };
        let mut answer = HttpResponse::new(body);
        (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
        Ok(answer)
    }
}

/// A body in slices.
fn sliced(bytes: &Bytes) -> HttpRequestBody {
    let slices = (0..bytes.len()).step_by(SLICE_BYTES);
    let slices = slices.map(|at| bytes.slice(at..bytes.len().min(at + SLICE_BYTES)));
    slices.collect::<PutPayload>().into()
}

impl LastMove {
    fn at(&self) -> Instant {
        *self.0.lock()
    }

    fn set(&self, at: Instant) {
        *self.0.lock() = at;
    }

    /// Ends when nothing has moved for `limit`.
    async fn idle(&self, limit: Duration) {
        loop {
            let end = self.at() + limit;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

impl<B> PacedBody<B> {
    fn new(inner: B, limit: Arc<RateLimit>, last_move: Arc<LastMove>, idle: Option<Duration>, bytes_max: u64) -> Self {
        let idle = idle.map(|limit| (limit, Box::pin(sleep(limit))));
        PacedBody { inner: Box::pin(inner), limit, last_move, wait: None, idle, left: bytes_max }
    }
}

impl<B: Body<Data = Bytes, Error = HttpError>> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let body = &mut *self;
        if let Some(wait) = &mut body.wait {
            ready!(wait.as_mut().poll(context));
            body.wait = None;
        }
        let Poll::Ready(frame) = body.inner.as_mut().poll_frame(context) else {
            if let Some((limit, timer)) = &mut body.idle {
                ready!(timer.as_mut().poll(context));
                return Poll::Ready(Some(Err(idle(*limit))));
            }
            return Poll::Pending;
        };
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        match body.left.checked_sub(bytes as u64) {
            Some(left) => body.left = left,
            None => return Poll::Ready(Some(Err(too_long()))),
        }
        let wait = body.limit.take(bytes);
        let next = Instant::now() + wait;
        if !wait.is_zero() {
            body.wait = Some(Box::pin(sleep_until(next)));
        }
        body.last_move.set(next);
        if let Some((limit, timer)) = &mut body.idle {
            timer.as_mut().reset(next + *limit);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Length of the range that a request asks for, `bytes=FIRST-LAST`; 0 without one.
fn range_len(headers: &HeaderMap) -> u64 {
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok()?.strip_prefix("bytes="));
    let (first, last) = range.and_then(|range| range.split_once('-')).unwrap_or_default();
    let bounds = first.parse::<u64>().ok().zip(last.parse::<u64>().ok());
    bounds.map_or(0, |(first, last)| last.saturating_sub(first).saturating_add(1))
}

fn too_long() -> HttpError {
    HttpError::new(HttpErrorKind::Decode, std::io::Error::other("the server sends more than it was asked for"))
}

fn idle(limit: Duration) -> HttpError {
    let text = format!("nothing came or went for {} s", limit.as_secs_f32());
    HttpError::new(HttpErrorKind::Timeout, std::io::Error::new(std::io::ErrorKind::TimedOut, text))
}

fn failed(error: reqwest::Error) -> HttpError {
    let kind = if error.is_builder() {
        HttpErrorKind::Unknown
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else {
        HttpErrorKind::Interrupted
    };
    HttpError::new(kind, error.without_url())
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn read(bytes: usize, bytes_max: u64) -> Result<usize, HttpError> {
        let body = Full::new(Bytes::from(vec![7; bytes])).map_err(|never| match never {});
        let last_move = Arc::new(LastMove(Mutex::new(Instant::now())));
        let body = PacedBody::new(body, Arc::default(), last_move, None, bytes_max);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(body.collect()).map(|collected| collected.to_bytes().len())
    }

    #[test]
    fn an_answer_that_is_too_long_is_not_collected() {
        assert_eq!((read(0, 0).unwrap(), read(1000, 1000).unwrap()), (0, 1000));
        assert!(read(1001, 1000).is_err());
    }

    #[test]
    fn the_length_of_a_range_is_that_of_its_bytes() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, reqwest::header::HeaderValue::from_static(text));
            range_len(&headers)
        };
        assert_eq!(range_len(&HeaderMap::new()), 0);
        assert_eq!(
            ["bytes=0-0", "bytes=10-19", "bytes=-5", "bytes=9-", "lines=1-2", "bytes=9-2"].map(of),
            [1, 10, 0, 0, 0, 1]
        );
    }
}
