//! A bucket that is open.

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::conditions::KnownConditions;
use super::key::is_addressable;
use super::object::{ExpectedObject, Fetched, ObjectPage};
use super::other_requests::{ListedObjects, OtherRequests};
use super::s3_requests::S3Requests;
use crate::error::{Error, ErrorKind, Result};
use crate::store::StoreOptions;
use crate::store::remote::failure::{Cause, RequestFailure};
use crate::store::remote::open::Opening;
use crate::store::remote::requests::{RequestKind, Requests};
use crate::store::remote::{azure, gcs, s3};

/// A bucket of files, and a prefix in it. Restores write into one.
#[derive(Debug)]
pub struct SourceBucket {
    pub(super) service: Service,
    pub(super) requests: Requests,
    scheme: &'static str,
    /// Name of the bucket.
    bucket: String,
    /// What keys begin with: empty, or with a slash at the end.
    prefix: String,
    url: String,
    /// The URL with the server, as messages of a repository have it.
    location: String,
    sent: BucketRequests,
    pub(super) conditions: KnownConditions,
    /// Requests in a row that failed for a reason that is not of their object.
    lost: AtomicU32,
}

/// Such requests after which the bucket counts as lost.
const LOST_MAX: u32 = 8;

/// Whether a failure is of the bucket, so that no other object fares better.
fn is_of_bucket(cause: Cause) -> bool {
    matches!(cause, Cause::NoBucket | Cause::Credentials | Cause::NoCredentials | Cause::Region | Cause::Clock)
}

/// How requests get to the service.
#[derive(Debug)]
pub(super) enum Service {
    S3(S3Requests),
    Other(OtherRequests),
}

/// Requests that were sent, without repetitions.
#[derive(Debug, Default)]
pub struct BucketRequests {
    /// Pages of listings.
    pub pages: AtomicU64,
    /// Ranges of objects.
    pub ranges: AtomicU64,
}

impl SourceBucket {
    /// Opens the bucket of a URL, as `s3://bucket/prefix`. Sends no request but, at most, those for credentials and
    /// the region.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is no such URL, or if settings are missing.
    pub fn open(url: &OsStr, options: &StoreOptions) -> Result<SourceBucket> {
        let invalid = || Error::Usage(format!("{} names no bucket: expected s3://BUCKET/PREFIX", url.display()));
        let text = url.to_str().ok_or_else(invalid)?;
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let rest = OsStr::new(rest);
        match scheme.to_ascii_lowercase().as_str() {
            "s3" => s3::connect(rest, options).map(|(opening, client)| Self::new(opening, Service::S3(client), None)),
            "gs" => gcs::connect(rest, options).map(|(opening, client)| Self::other(opening, client, None)),
            "az" => {
                azure::connect(rest, options).map(|(opening, client, account)| Self::other(opening, client, account))
            }
            _ => Err(invalid()),
        }
    }

    fn other(opening: Opening<'_>, client: Arc<dyn ListedObjects>, account: Option<String>) -> Self {
        Self::new(opening, Service::Other(OtherRequests(client)), account)
    }

    fn new(opening: Opening<'_>, service: Service, account: Option<String>) -> Self {
        let requests = Requests::new(opening.options);
        let (scheme, url, location) = (opening.scheme, opening.url(), opening.shown(account));
        let prefix = opening.location.prefix.to_string();
        let prefix = if prefix.is_empty() { prefix } else { format!("{prefix}/") };
        let (bucket, sent) = (opening.location.bucket, BucketRequests::default());
        let (conditions, lost) = Default::default();
        SourceBucket { service, requests, scheme, bucket, prefix, url, location, sent, conditions, lost }
    }

    /// The URL, in its only spelling.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL, with the server if that is not the service's own.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// What tells the bucket, its server and its prefix from others. The URL of a server may have a secret, so this is
    /// what is stored.
    pub fn identity(&self) -> [u8; 16] {
        blake3::hash(self.location.as_bytes()).as_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// What the keys of the source begin with: empty, or with a slash at the end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The URL of an object, for messages.
    pub fn url_of(&self, key: &str) -> String {
        format!("{}://{}/{key}", self.scheme, self.bucket)
    }

    /// Whether the object can be read by its key.
    pub fn has_address(&self, key: &str) -> bool {
        is_addressable(key)
    }

    /// The requests so far.
    pub fn sent(&self) -> &BucketRequests {
        &self.sent
    }

    /// The page of `token`, or the first one.
    ///
    /// # Errors
    /// [`Error::Remote`], [`Error::Interrupted`].
    pub fn page(&self, token: Option<&str>) -> Result<ObjectPage> {
        self.sent.pages.fetch_add(1, Ordering::Relaxed);
        let prefix = self.prefix.as_str();
        let page = self.requests.run(RequestKind::Read, async || match &self.service {
            Service::S3(client) => client.page(prefix, token).await,
            Service::Other(client) => client.page(prefix, token).await,
        })?;
        let page = page.map_err(|failure| self.error(failure, "list", &self.location))?;
        if let Some(found) = page.objects.iter().find(|found| !found.key.starts_with(prefix)) {
            let text = format!("the server lists {}", found.key);
            return Err(self.error(RequestFailure::new(Cause::Other, text), "list", &self.location));
        }
        Ok(page)
    }

    /// A range of the object `key`, as far as the object goes. Bytes come only from the `expected` object.
    ///
    /// # Errors
    /// [`Error::Remote`] with the URL of the object, [`Error::Interrupted`]. [`Self::is_lost`] says whether others can
    /// be read.
    pub fn fetch(&self, key: &str, range: Range<u64>, expected: ExpectedObject<'_>) -> Result<Fetched> {
        let fetched = self.send(key, &range, expected)?;
        let lost = match &fetched {
            Ok(_) => 0,
            Err(failure) => match failure.cause() {
                Cause::Transient | Cause::Unreachable => self.lost.load(Ordering::Relaxed).saturating_add(1),
                cause if is_of_bucket(cause) => LOST_MAX,
                _ => 0,
            },
        };
        self.lost.store(lost, Ordering::Relaxed);
        fetched.map_err(|failure| self.error(failure, "read", &self.url_of(key)))
    }

    /// Notes why a request about an object to put has failed, for [`Self::is_lost`].
    pub(super) fn note_failure(&self, failure: &RequestFailure) {
        if is_of_bucket(failure.cause()) {
            self.lost.store(LOST_MAX, Ordering::Relaxed);
        }
    }

    /// Whether the bucket itself cannot be read, as several objects in a row showed (each costs all tries), or written.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) >= LOST_MAX
    }

    fn send(
        &self,
        key: &str,
        range: &Range<u64>,
        expected: ExpectedObject<'_>,
    ) -> Result<Result<Fetched, RequestFailure>> {
        self.sent.ranges.fetch_add(1, Ordering::Relaxed);
        self.requests.run(RequestKind::Read, async || match &self.service {
            Service::S3(client) => client.fetch(key, range, expected).await,
            Service::Other(client) => client.fetch(key, range, expected).await,
        })
    }

    /// The first bytes of an object, at most `bytes_max`. `None` if there is no such object.
    ///
    /// # Errors
    /// As for [`SourceBucket::fetch`].
    pub fn read_start(&self, key: &str, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        match self.send(key, &(0..bytes_max), ExpectedObject::Any)? {
            Ok(Fetched::Range(found)) => Ok(Some(found.bytes)),
            Ok(Fetched::Replaced) => Ok(None),
            Err(failure) if failure.cause() == Cause::Missing => Ok(None),
            Err(failure) => Err(self.error(failure, "read", &self.url_of(key))),
        }
    }

    pub(super) fn error(&self, failure: RequestFailure, action: &'static str, what: &str) -> Error {
        match failure.cause() {
            Cause::Missing => Error::Remote {
                action,
                what: what.into(),
                reason: "it does not exist any more".into(),
                kind: ErrorKind::Failed,
            },
            _ => failure.into_error(action, what, RequestKind::Read),
        }
    }
}
