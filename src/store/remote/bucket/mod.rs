//! Buckets whose objects are files of their users, not blobs: sources of backups, and targets of restores.
//!
//! 1. A key is any text. The paths of the client library hold no key with an empty name, `.` or `..` in it, and one
//!    such key fails its whole listing. So `s3_requests` lists and reads by requests of its own, and `page` reads the
//!    answers. `other_requests` goes through the library, for services whose listings it can read.
//! 2. A listing is a stream of pages. Nothing here holds more than one.
//! 3. A range is read with the ETag that the caller expects. [`Fetched::Replaced`] says that the object is another one.
//! 4. `put` writes objects, large ones in parts.

mod conditions;
mod key;
mod object;
mod opened;
mod other_requests;
mod page;
mod page_tokens;
mod put;
mod s3_requests;

pub use object::{ExpectedObject, Fetched, ListedObject, ObjectPage, ObjectRange, ObjectState};
pub use opened::{BucketRequests, SourceBucket};
pub use page_tokens::PageTokens;
pub use put::{BucketUpload, ObjectPut, ObjectToPut};
pub(super) use s3_requests::S3Requests;
