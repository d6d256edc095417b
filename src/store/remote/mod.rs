//! Stores of the object storage services: S3, Google Cloud Storage, Azure Blob Storage, and servers that speak their
//! protocols.
//!
//! 1. `location` parses the URL. `s3`, `gcs` and `azure` build the client of the service, with credentials from where
//!    the service's own tools take them; `open` has what they share. `transport` sends the requests.
//! 2. `adapter` is the [`Store`](super::Store). A blob is one object below the prefix of the URL.
//! 3. `requests` tries failing requests again, and ends them when the user asks to stop. `failure` says what an error
//!    means, and what the user can do.
//! 4. `bucket` reads objects that are no blobs, for backups of them.
//! 5. `locks` sends the requests of S3 Object Lock, and `thaw` those of cold storage, which the client lacks.
//!
//! A put asks the service to store only if the name is free. If it says that the name is taken, the store looks: S3
//! answers 409 also when nothing was stored, and a name may be taken by this store's own put whose answer was lost.

mod adapter;
mod aws_profile;
mod azure;
mod bucket;
mod failure;
mod gcs;
mod listing_page;
mod location;
mod locks;
mod open;
mod put;
mod requests;
mod s3;
mod thaw;
mod transport;

#[cfg(test)]
mod tests;

pub use adapter::RemoteStore;
pub(super) use azure::open_azure;
pub use bucket::{
    BucketRequests, BucketUpload, ExpectedObject, Fetched, ListedObject, ObjectPage, ObjectPut, ObjectRange,
    ObjectState, ObjectToPut, PageTokens, SourceBucket,
};
pub(super) use gcs::open_gcs;
pub(super) use s3::open_s3;
