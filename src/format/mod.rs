//! Formats: which content is a model file, and where its tensors lie. A format is one file plus one line in
//! [`FORMATS`].
//!
//! Recognition goes by content, never by name, and changes no byte: it can only change how well a file is reduced.
//! Everything a file says of itself is checked before it is used; one that lies is [`Recognition::Defective`].

mod archive;
pub mod array;
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
mod torch_views;
mod torch_walk;
mod value;
mod zip;

#[cfg(test)]
mod array_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod samples_tests;

pub use archive::Archive;
pub use array::{Array, Listed, Listing};
pub use dtype::Dtype;
pub use gguf::Gguf;
pub use npy::Npy;
pub use read::{Fault, ReadAt, Window};
pub use safetensors::Safetensors;
pub use tar::Tar;
pub use tensor::{Recognised, Recognition, Tensor};
pub use value::Value;

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
    /// Hands out the arrays as people name them; the format's name, or none if the content is something else after
    /// all. Unless a format knows more, these are the tensors.
    ///
    /// # Errors
    /// As for [`Format::find`]; what was handed out is void then.
    fn list(&self, window: Window, visit: &mut dyn FnMut(Listed)) -> Result<Option<&'static str>, Fault> {
        let Some(found) = self.find(window)? else { return Ok(None) };
        for Tensor { name, dtype, shape, offset, len } in found.tensors {
            visit(Listed::Array(Array { name, value: Value::of(dtype), shape, strides: None, offset, len }));
        }
        Ok(Some(found.format))
    }
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

/// What a file is called that begins like `head` and holds tensors which are not read.
pub fn unread(head: &[u8]) -> Option<&'static str> {
    const LEGACY_TORCH: &[u8] = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19";
    let is_legacy = head.first() == Some(&0x80) && head.get(2..).is_some_and(|rest| rest.starts_with(LEGACY_TORCH));
    let is_hdf5 = head.starts_with(b"\x89HDF\r\n\x1a\n");
    is_legacy
        .then_some("a torch file from before the zip format, whose tensors are not read (torch.save writes it anew)")
        .or(is_hdf5.then_some("an HDF5 file, whose tensors are not read"))
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
