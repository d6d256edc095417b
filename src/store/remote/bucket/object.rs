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

/// Of which object bytes may be.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedObject<'a> {
    /// Of this one.
    Same(&'a ObjectState),
    /// Of this one, or of one that has replaced it.
    SameOrNewer(&'a ObjectState),
    /// Of whichever has the key.
    Any,
}

impl ExpectedObject<'_> {
    /// The one that it must be.
    pub(super) fn same(&self) -> Option<&ObjectState> {
        match self {
            ExpectedObject::Same(state) => Some(state),
            ExpectedObject::SameOrNewer(_) | ExpectedObject::Any => None,
        }
    }

    /// Whether an answer with `found` is about what is expected. It is not if the object was replaced. An answer that
    /// contradicts what is known is about nothing.
    pub(super) fn is_met_by(&self, found: &ObjectState) -> Result<bool, RequestFailure> {
        let (known, may_be_newer) = match self {
            ExpectedObject::Same(known) => (known, false),
            ExpectedObject::SameOrNewer(known) => (known, true),
            ExpectedObject::Any => return Ok(true),
        };
        let wrong = |text: String| Err(RequestFailure::new(Cause::Transient, text));
        let is_same = match (&known.etag, &found.etag) {
            (Some(_), None) => return wrong("the server's answer has no ETag, but its listing has one".into()),
            (Some(known_etag), Some(etag)) if known_etag == etag => {
                if known.size != found.size {
                    return wrong(format!("the server says {} bytes of what has {}", found.size, known.size));
                }
                known.version.as_ref().zip(found.version.as_ref()).is_none_or(|(one, other)| one == other)
            }
            (Some(_), Some(_)) => false,
            (None, _) => {
                // A listing knows the time more exactly than an answer.
                let seconds = |state: &ObjectState| state.modified.map(Timestamp::as_second);
                let same_time = seconds(known).zip(seconds(found)).is_none_or(|(one, other)| one == other);
                known.size == found.size && same_time
            }
        };
        Ok(is_same || may_be_newer)
    }
}

/// Bytes of an ETag, at most. S3's have 32 digits and a number.
const ETAG_BYTES_MAX: usize = 1024;

/// An ETag as it is compared and stored: without quotes. `None` if it says nothing.
pub(super) fn unquoted(etag: &str) -> Option<String> {
    let etag = etag.trim();
    let etag = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    (1..=ETAG_BYTES_MAX).contains(&etag.len()).then(|| etag.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn state(etag: Option<&str>, size: u64, second: i64) -> ObjectState {
        let modified = Timestamp::from_second(second).ok();
        ObjectState { size, etag: etag.map(Into::into), modified, ..ObjectState::default() }
    }

    #[test]
    fn an_answer_that_contradicts_the_listing_is_about_nothing() {
        let known = state(Some("e"), 5, 1);
        for wanted in [ExpectedObject::Same(&known), ExpectedObject::SameOrNewer(&known)] {
            assert!(wanted.is_met_by(&state(None, 5, 1)).is_err(), "no ETag");
            assert!(wanted.is_met_by(&state(Some("e"), 4, 1)).is_err(), "the same ETag, another size");
            assert!(wanted.is_met_by(&state(Some("e"), 5, 9)).unwrap(), "the ETag counts, not the time");
        }
        let versioned = |version: &str| ObjectState { version: Some(version.into()), ..known.clone() };
        let (one, other) = (versioned("1"), versioned("2"));
        assert!(ExpectedObject::Same(&known).is_met_by(&one).unwrap());
        assert!(!ExpectedObject::Same(&one).is_met_by(&other).unwrap());
    }

    #[test]
    fn a_replaced_object_is_met_only_where_a_newer_one_may_come() {
        let newer = state(Some("f"), 9, 2);
        for known in [state(Some("e"), 5, 1), state(None, 5, 1)] {
            assert!(!ExpectedObject::Same(&known).is_met_by(&newer).unwrap());
            assert!(ExpectedObject::SameOrNewer(&known).is_met_by(&newer).unwrap());
            assert!(ExpectedObject::Any.is_met_by(&newer).unwrap());
        }
        let untagged = state(None, 5, 1);
        assert!(ExpectedObject::Same(&untagged).is_met_by(&state(None, 5, 1)).unwrap());
        assert!(!ExpectedObject::Same(&untagged).is_met_by(&state(None, 5, 2)).unwrap());
    }
}
