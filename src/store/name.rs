//! Rules shared by all stores: valid names, and the errors for wrong lengths and ranges.

use super::kind::BlobKind;
use crate::error::{Error, Result};

/// Digits of a hash in the name of a blob.
pub(super) const HASH_DIGITS: usize = 64;
/// Prefix of blobs that are being written.
pub(super) const TEMPORARY_PREFIX: &str = "tmp";
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Longest component of a name, bytes.
const COMPONENT_BYTES_MAX: usize = 255;

/// Whether `component` is the name of a key slot in its directory.
pub fn is_slot_id(component: &str) -> bool {
    component.len() == HASH_DIGITS && component.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a killed `init` may have left the blob `name`.
pub(super) fn is_left_by_init(name: &str) -> bool {
    name.split_once('/').is_some_and(|(directory, id)| directory == BlobKind::Key.directory() && is_slot_id(id))
}

/// Whether `text` is a valid component of a name.
pub(super) fn is_component(text: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    (1..=COMPONENT_BYTES_MAX).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}

/// Fails unless `name` is a valid name.
pub(super) fn check_name(name: &str) -> Result<()> {
    let reserved = name.split('/').next() == Some(TEMPORARY_PREFIX);
    if name.len() <= NAME_BYTES_MAX && name.split('/').all(is_component) && !reserved {
        return Ok(());
    }
    Err(Error::Usage(format!("`{}` is not a valid blob name", name.escape_default())))
}

/// Returns `len` as a length to allocate. Fails if it exceeds `bytes_max`.
pub(super) fn check_len(name: &str, len: u64, bytes_max: u64) -> Result<usize> {
    let fits = usize::try_from(len).ok().filter(|_| len <= bytes_max);
    fits.ok_or_else(|| {
        Error::corrupt(name, bytes_max, format!("the end, at most {bytes_max} bytes"), format!("{len} bytes"))
    })
}

/// Fails unless a blob of `blob_len` bytes has `len` bytes at `offset`.
pub(super) fn check_range(name: &str, blob_len: u64, offset: u64, len: usize) -> Result<()> {
    let available = blob_len.saturating_sub(offset);
    if offset <= blob_len && len as u64 <= available {
        return Ok(());
    }
    Err(Error::corrupt(name, offset, format!("{len} bytes"), format!("{available} bytes ({blob_len} in total)")))
}

/// The error for a missing blob.
pub(super) fn missing(name: &str) -> Error {
    Error::BlobMissing { what: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_names_of_few_characters_are_valid() {
        let (long, longest) = ("a".repeat(256), ["a"; 600].join("/"));
        let names =
            ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".a", "A", "a b", "a\0", "ä", "tmp/a"];
        for name in names.into_iter().chain([long.as_str(), longest.as_str()]) {
            assert!(matches!(check_name(name), Err(Error::Usage(_))), "{name:?}");
        }
        ["a", "a/b.c", "tmp-2/a", "a/tmp", "0_-"].iter().for_each(|name| check_name(name).expect(name));
    }
}
