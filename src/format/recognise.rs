//! Recognition: tries the formats of [`FORMATS`] in order.

use std::io;

use super::read::{FormatError, Window};
use super::tensor::Recognition;
use super::{FORMATS, Format, HEAD_BYTES};
use crate::read_at::ReadAt;

/// Recognises the first `len` bytes of `source`.
///
/// # Errors
/// Errors of `source`. Content is never an error.
pub fn recognise(source: &dyn ReadAt, len: u64) -> io::Result<Recognition> {
    recognise_as(Window::new(source, len), |_| true)
}

/// Whether a file may have a known format, by its first [`HEAD_BYTES`] bytes or all bytes of a shorter file.
pub fn may_be_model(head: &[u8]) -> bool {
    FORMATS.iter().any(|format| format.matches_head(head))
}

/// Whether files of a known format usually have this extension, in upper or lower case.
pub fn has_model_extension(extension: &str) -> bool {
    let mut known = FORMATS.iter().flat_map(|format| format.extensions());
    known.any(|known| known.eq_ignore_ascii_case(extension))
}

/// Tries the formats that `admitted` accepts.
pub(super) fn recognise_as(window: Window, admitted: impl Fn(&dyn Format) -> bool) -> io::Result<Recognition> {
    let head = window.head(HEAD_BYTES)?;
    for format in FORMATS.iter().filter(|format| admitted(**format) && format.matches_head(&head)) {
        match format.find(window) {
            Ok(Some(recognised)) => return Ok(Recognition::Model(recognised)),
            Ok(None) => {}
            Err(FormatError::Io(error)) => return Err(error),
            Err(FormatError::Defective(reason)) => return Ok(Recognition::Defective { format: format.name(), reason }),
        }
    }
    Ok(Recognition::Opaque)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_known_in_any_case() {
        assert!(
            ["safetensors", "GGUF", "npy", "npz", "pt", "Bin", "onnx", "h5"]
                .iter()
                .all(|known| has_model_extension(known))
        );
        assert!(!has_model_extension("tar") && !has_model_extension("") && !has_model_extension("txt"));
    }
}
