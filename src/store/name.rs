//! Rules that every store shares: which names are allowed, and how a bad length or range is reported.

use crate::error::{Error, Result};

/// Folder for blobs that are being written.
pub(super) const TEMPORARY_DIRECTORY: &str = "tmp";
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Longest component of a name, bytes.
const COMPONENT_BYTES_MAX: usize = 255;

/// `true` for a component that a name may have.
pub(super) fn is_component(text: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    (1..=COMPONENT_BYTES_MAX).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}

/// Fails unless `name` is the name of a blob or directory.
pub(super) fn check_name(name: &str) -> Result<()> {
    let reserved = name.split('/').next() == Some(TEMPORARY_DIRECTORY);
    if name.len() <= NAME_BYTES_MAX && name.split('/').all(is_component) && !reserved {
        return Ok(());
    }
    Err(Error::Usage(format!("`{}` cannot be the name of a blob", name.escape_default())))
}

/// Fails unless `directory` is empty or a name.
pub(super) fn check_directory(directory: &str) -> Result<()> {
    if directory.is_empty() { Ok(()) } else { check_name(directory) }
}

/// `len` as a length to allocate, if it is within `bytes_max`.
pub(super) fn check_len(name: &str, len: u64, bytes_max: u64) -> Result<usize> {
    let fits = usize::try_from(len).ok().filter(|_| len <= bytes_max);
    fits.ok_or_else(|| {
        Error::corrupt(name, bytes_max, format!("the end, at most {bytes_max} bytes"), format!("{len} bytes"))
    })
}

/// Fails unless a blob of `blob_len` bytes has `len` bytes at `offset`.
pub(super) fn check_range(name: &str, blob_len: u64, offset: u64, len: usize) -> Result<()> {
    let there = blob_len.saturating_sub(offset);
    if offset <= blob_len && len as u64 <= there {
        return Ok(());
    }
    Err(Error::corrupt(name, offset, format!("{len} bytes"), format!("{there} bytes (it has {blob_len} in all)")))
}

/// The error of a blob that is not there.
pub(super) fn missing(name: &str) -> Error {
    Error::BlobMissing { what: name.into() }
}
