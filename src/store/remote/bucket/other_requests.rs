//! Requests to services whose listings the client library can read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, GetRange, ObjectMeta, ObjectStore};

use super::object::{ExpectedObject, Fetched, ListedObject, ObjectPage, ObjectRange, ObjectState, unquoted};
use crate::store::remote::failure::{Cause, RequestFailure};

/// The client of a service.
pub(in crate::store::remote) trait ListedObjects: ObjectStore + PaginatedListStore {}

impl<T: ObjectStore + PaginatedListStore> ListedObjects for T {}

/// Sends requests to one bucket.
pub struct OtherRequests(pub(in crate::store::remote) Arc<dyn ListedObjects>);

impl fmt::Debug for OtherRequests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl OtherRequests {
    /// The page of `token`, or the first one, of the keys that begin with `prefix`.
    pub(super) async fn page(&self, prefix: &str, token: Option<&str>) -> Result<ObjectPage, RequestFailure> {
        let options = PaginatedListOptions { page_token: token.map(Into::into), ..PaginatedListOptions::default() };
        let found = self.0.list_paginated(Some(prefix).filter(|prefix| !prefix.is_empty()), options).await?;
        let objects = found.result.objects.into_iter().map(|meta| ListedObject {
            key: meta.location.to_string(),
            size: meta.size,
            etag: meta.e_tag.as_deref().and_then(unquoted),
            modified: moment(&meta),
        });
        Ok(ObjectPage { objects: objects.collect(), next: found.page_token })
    }

    /// A range of the object `key`, which must be the `expected` one.
    pub(super) async fn fetch(
        &self,
        key: &str,
        range: &Range<u64>,
        expected: ExpectedObject<'_>,
    ) -> Result<Fetched, RequestFailure> {
        let path = Path::parse(key).map_err(|error| RequestFailure::new(Cause::Other, error.to_string()))?;
        let etag = expected.same().and_then(|same| same.etag.as_ref());
        let options = GetOptions {
            if_match: etag.map(|etag| format!("\"{etag}\"")),
            range: (range.end > range.start).then(|| GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let answer = match self.0.get_opts(&path, options).await {
            Err(object_store::Error::Precondition { .. }) => return Ok(Fetched::Replaced),
            answer => answer.map_err(RequestFailure::from),
        };
        let is_no_range = answer.as_ref().is_err_and(|failure| failure.cause() == Cause::Range);
        let (answer, may_be_empty) = match expected {
            // No range of an empty object exists.
            ExpectedObject::SameOrNewer(_) if is_no_range => {
                (self.0.get_opts(&path, GetOptions::default()).await?, true)
            }
            ExpectedObject::Same(_) if is_no_range => return Ok(Fetched::Replaced),
            _ => (answer?, false),
        };
        let state = state(&answer.meta, &answer.attributes);
        if !expected.is_met_by(&state)? || (may_be_empty && state.size > 0) {
            return Ok(Fetched::Replaced);
        }
        let parts = answer.into_stream().map_err(RequestFailure::from);
        Ok(Fetched::Range(ObjectRange::collected(parts, range, state).await?))
    }
}

fn moment(meta: &ObjectMeta) -> Option<jiff::Timestamp> {
    jiff::Timestamp::try_from(std::time::SystemTime::from(meta.last_modified)).ok()
}

fn state(meta: &ObjectMeta, attributes: &Attributes) -> ObjectState {
    let noted = attributes.iter().filter_map(|(attribute, value)| match attribute {
        Attribute::Metadata(name) => Some((name.to_string(), value.to_string())),
        _ => None,
    });
    let mut metadata: Vec<(String, String)> = noted.collect();
    metadata.sort();
    ObjectState {
        size: meta.size,
        etag: meta.e_tag.as_deref().and_then(unquoted),
        version: meta.version.clone(),
        modified: moment(meta),
        content_type: attributes.get(&Attribute::ContentType).map(|value| value.to_string()),
        metadata,
    }
}
