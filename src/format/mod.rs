//! Formats: recognises model files and locates their tensors. A format is one file plus one line in [`FORMATS`].
//!
//! Recognition uses the content, never the name of a file. It changes no byte: it only affects how well a file is
//! reduced. Every claim of a file is checked before use. A file that contradicts itself is
//! [`Recognition::Defective`].

mod array;
pub mod card;
mod coreml;
mod distcp;
mod dtype;
mod flax;
mod gguf;
mod hdf5;
mod hdf5_messages;
mod legacy_torch;
mod npy;
mod onnx;
mod pickle;
mod proto;
mod read;
mod recognise;
mod safetensors;
mod tar;
mod tensor;
mod tflite;
mod torch;
mod torch_views;
mod torch_walk;
mod typed;
mod value_type;
mod zip;
mod zip_members;

#[cfg(test)]
mod array_tests;
#[cfg(test)]
mod coreml_tests;
#[cfg(test)]
mod flax_tests;
#[cfg(test)]
mod hdf5_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod legacy_torch_tests;
#[cfg(test)]
mod onnx_tests;
#[cfg(test)]
mod samples_tests;
#[cfg(test)]
mod tflite_tests;

pub use array::{Array, ArrayListing, ListedArray, list_arrays};
pub use dtype::Dtype;
pub use read::{FormatError, Window};
pub use recognise::{has_model_extension, may_be_model, recognise};
pub use tensor::{Recognised, Recognition, Tensor};
pub use value_type::ValueType;

/// Every format, the strictest first.
pub static FORMATS: &[&dyn Format] = &[
    &safetensors::Safetensors,
    &gguf::Gguf,
    &npy::Npy,
    &distcp::Distcp,
    &zip::Zip,
    &hdf5::Hdf5,
    &tflite::TfLite,
    &legacy_torch::LegacyTorch,
    &coreml::CoreMl,
    &tar::Tar,
    &onnx::Onnx,
    &flax::Flax,
];

/// Bytes at the start of a file that [`may_be_model`] needs.
pub const HEAD_BYTES: usize = 512;

/// A layout of tensors in a file.
pub trait Format: Sync {
    /// Name in reports.
    fn name(&self) -> &'static str;
    /// Usual extensions of file names, in lower case. They suggest which files to read first, and prove nothing.
    fn extensions(&self) -> &'static [&'static str];
    /// Whether a file may have this format, by its first [`HEAD_BYTES`] bytes or all bytes of a shorter file.
    /// Must be true for every file of the format, and may be true for others.
    fn matches_head(&self, head: &[u8]) -> bool;
    /// The tensors as they are stored, at offsets in `window`. `None` if the content has another format after all.
    ///
    /// # Errors
    /// [`FormatError::Defective`] if the content has this format and contradicts itself.
    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError>;
    /// Passes the arrays, with the names that people use, to `visit`. Returns the format's name, or `None` if the
    /// content has another format after all. By default, the arrays are the tensors.
    ///
    /// # Errors
    /// As for [`Format::find`]. The arrays visited so far are then void.
    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        let Some(found) = self.find(window)? else { return Ok(None) };
        for Tensor { name, dtype, shape, offset, len } in found.tensors {
            let value_type = ValueType::of(dtype);
            visit(ListedArray::Array(Array { name, value_type, shape, strides: None, offset, len }));
        }
        Ok(Some(found.format))
    }
}
