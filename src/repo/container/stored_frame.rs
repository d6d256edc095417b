//! Reads frames and headers of stored containers. Bytes that prove wrong are read again from another copy, which parity
//! may give.

use crate::codec::Scratch;
use crate::error::Result;
use crate::store::{BlobName, Reading, Store, again, read_again};

use super::frame::{FrameInfo, decode_frame};
use super::layout::{ContainerKind, HEADER_BYTES, parse_header};

/// Checks and decodes a frame of the container `name`, whose stored bytes were read as `stored`.
///
/// # Errors
/// The error of `stored`; errors of [`decode_frame`] and of the store.
pub fn read_frame(
    store: &dyn Store,
    name: &BlobName,
    info: &FrameInfo,
    stored: Result<&[u8]>,
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    stored.and_then(|stored| decode_frame(name, info, stored, scratch)).or_else(|error| {
        again(store, name, error, || {
            let stored = store.get_range(name, info.offset, info.stored_bytes(), Reading::Once)?;
            decode_frame(name, info, &stored, scratch)
        })
    })
}

/// Reads what the container `name` holds.
///
/// # Errors
/// Errors of [`parse_header`] and of the store.
pub fn read_kind(store: &dyn Store, name: &BlobName, reading: Reading) -> Result<ContainerKind> {
    read_again(store, name, || parse_header(name, &store.get_range(name, 0, HEADER_BYTES, reading)?))
}
