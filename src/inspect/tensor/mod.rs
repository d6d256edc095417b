//! Tensor: writes one tensor of a snapshot into a file of its own, without restoring the model.
//!
//! 1. Search the models of the snapshot for the name (`search`): first the files of the catalogue, then every file that
//!    begins like a model. Only one file may have the tensor.
//! 2. Write the values after a header of their own (`file`), in the order of their indices (`gather`). Only the chunks
//!    of the list of tensors and of the values are read, each checked against its fingerprint.
//! 3. The file has a temporary name until it is complete.

mod extract;
mod file;
mod gather;
mod search;
mod similar_names;

pub use extract::{TensorReport, TensorRequest, default_output, tensor};
