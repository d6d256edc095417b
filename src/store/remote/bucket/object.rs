//! What is known of an object, and its bytes.

use std::ops::Range;
use std::pin::pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use jiff::Timestamp;

use crate::store::remote::failure::{Cause, RequestFailure};

/// An object as a listing names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key, whole.
    pub key: String,
    /// Its length, bytes.
    pub size: u64,
    /// Its ETag without quotes.
    pub etag: Option<String>,
    /// When it was put.
    pub modified: Option<Timestamp>,
}

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// Its objects, in the order of the service.
    pub objects: Vec<ListedObject>,
    /// What asks for the next page; `None` at the end.
    pub next: Option<String>,
}

/// An object as an answer with its bytes describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectState {
    /// Its length, bytes.
    pub size: u64,
    /// Its ETag without quotes.
    pub etag: Option<String>,
    /// Its version, if the bucket keeps them.
    pub version: Option<String>,
    /// When it was put.
    pub modified: Option<Timestamp>,
    /// Type of its content.
    pub content_type: Option<String>,
    /// What its user has noted, by name in ascending order.
    pub metadata: Vec<(String, String)>,
}

/// A range of an object.
#[derive(Debug)]
pub struct ObjectRange {
    /// All bytes that were asked for, as far as the object has them.
    pub bytes: Vec<u8>,
    /// The object that they are of.
    pub state: ObjectState,
}

/// What the request for a range has brought.
#[derive(Debug)]
pub enum Fetched {
    /// The range.
    Range(ObjectRange),
    /// The object is not the one that was expected.
    Replaced,
}

impl ListedObject {
    /// What a range of this object must be of.
    pub fn expected(&self) -> ObjectState {
        ObjectState { size: self.size, etag: self.etag.clone(), modified: self.modified, ..ObjectState::default() }
    }
}

impl ObjectState {
    /// Whether an answer is about the same object as this one. What one of the two does not know does not count.
    pub(super) fn is_met_by(&self, found: &ObjectState) -> bool {
        let agree = |one: &Option<String>, other: &Option<String>| {
            one.as_ref().zip(other.as_ref()).is_none_or(|(one, other)| one == other)
        };
        let has_tags = self.etag.is_some() && found.etag.is_some();
        // A listing knows the time more exactly than an answer.
        let seconds = |state: &ObjectState| state.modified.map(Timestamp::as_second);
        let same_time = seconds(self).zip(seconds(found)).is_none_or(|(one, other)| one == other);
        self.size == found.size && agree(&self.etag, &found.etag) && (has_tags || same_time)
    }
}

/// An ETag as it is compared and stored: without quotes.
pub(super) fn unquoted(etag: &str) -> String {
    let etag = etag.trim();
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"').to_string()
}

/// The bytes of an answer. More than `len_max` are a failure.
pub(super) async fn collected(
    parts: impl Stream<Item = Result<Bytes, RequestFailure>>,
    len_max: u64,
) -> Result<Vec<u8>, RequestFailure> {
    let (mut bytes, mut parts) = (Vec::new(), pin!(parts));
    while let Some(part) = parts.next().await {
        let part = part?;
        if (bytes.len() + part.len()) as u64 > len_max {
            let text = format!("more than the {len_max} bytes asked for came");
            return Err(RequestFailure::new(Cause::Transient, text));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

impl ObjectRange {
    /// The bytes of an answer to a request for `range` of an object, which must be all that the object has there.
    pub(super) async fn collected(
        parts: impl Stream<Item = Result<Bytes, RequestFailure>>,
        range: &Range<u64>,
        state: ObjectState,
    ) -> Result<Self, RequestFailure> {
        let wanted = range.end.min(state.size).saturating_sub(range.start);
        let bytes = collected(parts, wanted).await?;
        if (bytes.len() as u64) < wanted {
            let text = format!("only {} of {wanted} bytes came", bytes.len());
            return Err(RequestFailure::new(Cause::Transient, text));
        }
        Ok(ObjectRange { bytes, state })
    }
}
