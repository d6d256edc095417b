//! Objects of a bucket, stored as files: List walks them, Fetch reads them.
//!
//! 1. `listing` takes the listing of the bucket, page by page, and sorts it by stored paths on disk (`sort`), because
//!    the order of keys is not that of a tree. `path_of_key` says under which path a key is stored.
//! 2. List (`list`, `steps`, `large`) compares the objects with the parents and sends what is to be read. An object
//!    that fits into one request is read by Fetch in one piece. The content of a larger one is sent before its entry,
//!    like that of a hoisted model: if the object is replaced meanwhile, what came of it is dropped, and it is sent
//!    again.
//! 3. `examine` opens a larger object and recognises models, through `content`, several at once. `cards` has the cards
//!    beside them. New models are sent first of all, bases before their descendants.
//! 4. Fetch (`fetch`) reads ranges, several at once, each pinned to the ETag of its object. So no stored file has bytes
//!    of two objects.
//! 5. `choice` says what is stored at all. Of a share of the work, `split` says what falls to it: by the listing, or by
//!    a list that a driver has written (`list_file`).

mod cards;
mod choice;
mod content;
mod entry;
mod examine;
mod fetch;
mod kind;
mod large;
mod list;
mod list_file;
mod listing;
mod message;
mod placed;
mod sort;
mod split;
mod steps;

pub use kind::{BucketSource, split_bucket};
pub use split::SplitBucket;
