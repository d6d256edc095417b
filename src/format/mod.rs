//! Formats: which content is a model file, and where its tensors lie. A format is one file plus one line in
//! [`FORMATS`].
//!
//! Recognition goes by content, never by name, and changes no byte: it can only change how well a file is reduced.
//! Everything a file says of itself is checked before it is used; one that lies is [`Recognition::Defective`].

mod archive;
pub mod card;
mod dtype;
mod gguf;
mod npy;
mod pickle;
mod read;
mod safetensors;
mod tar;
mod tensor;
mod torch;
mod zip;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod samples_tests;

pub use archive::Archive;
pub use dtype::Dtype;
pub use gguf::Gguf;
pub use npy::Npy;
pub use read::{Fault, ReadAt, Window};
pub use safetensors::Safetensors;
pub use tar::Tar;
pub use tensor::{Recognised, Recognition, Tensor};

/// Bytes at the beginning of a file that [`may_be_model`] needs.
pub const HEAD_BYTES: usize = 512;

/// A layout of tensors in a file.
pub trait Format: Sync {
    /// Name in reports.
    fn name(&self) -> &'static str;
    /// Whether the first [`HEAD_BYTES`] bytes (or all of a shorter file) of `len` might be its beginning. May be
    /// wrong in one direction only.
    fn may_be(&self, head: &[u8], len: u64) -> bool;
    /// The tensors, at offsets in `window`; none if the content is something else after all.
    ///
    /// # Errors
    /// [`Fault::Defective`] if it is this format and contradicts itself.
    fn find(&self, window: Window) -> Result<Option<Recognised>, Fault>;
}

/// Every format, the strictest first.
pub static FORMATS: &[&dyn Format] = &[&Safetensors, &Gguf, &Npy, &Archive, &Tar];

/// Looks at the first `len` bytes of `source`.
///
/// # Errors
/// Those of `source`; content is never an error.
pub fn recognise(source: &dyn ReadAt, len: u64) -> std::io::Result<Recognition> {
    look(Window::new(source, len), |_| true)
}

/// Whether the first [`HEAD_BYTES`] bytes of a file of `len` bytes might begin a known format.
pub fn may_be_model(head: &[u8], len: u64) -> bool {
    FORMATS.iter().any(|format| format.may_be(head, len))
}

/// Tries those formats that `admitted` lets through.
fn look(window: Window, admitted: impl Fn(&dyn Format) -> bool) -> std::io::Result<Recognition> {
    let head = window.head(HEAD_BYTES)?;
    for format in FORMATS.iter().filter(|format| admitted(**format) && format.may_be(&head, window.len())) {
        match format.find(window) {
            Ok(Some(recognised)) => return Ok(Recognition::Model(recognised)),
            Ok(None) => {}
            Err(Fault::Io(error)) => return Err(error),
            Err(Fault::Defective(reason)) => return Ok(Recognition::Defective { format: format.name(), reason }),
        }
    }
    Ok(Recognition::Opaque)
}
