//! How the bytes of a model file are cut: blocks of tensors, and what lies between tensors.

use super::{ModelRecord, TensorBlock};
use crate::codec::ElementRows;
use crate::format::Dtype;

/// A range of a model file that is cut in one way.
pub struct ModelRegion {
    /// Its end in the file, bytes; [`u64::MAX`] behind the last tensor.
    pub end: u64,
    /// The block that it is; `None` between tensors.
    pub block: Option<TensorBlock>,
}

impl ModelRecord {
    /// The region that contains byte `offset` of the file.
    pub fn region(&self, offset: u64) -> ModelRegion {
        let at = self.tensors.partition_point(|tensor| tensor.offset + tensor.len <= offset);
        match self.tensors.get(at) {
            None => ModelRegion { end: u64::MAX, block: None },
            Some(tensor) if offset < tensor.offset => ModelRegion { end: tensor.offset, block: None },
            Some(tensor) => {
                let start = (offset - tensor.offset) / self.block_bytes * self.block_bytes;
                let end = (start + self.block_bytes).min(tensor.len) + tensor.offset;
                let dtype = tensor.dtype();
                let width = dtype.width().unwrap_or(1);
                let row = tensor.shape.last().copied().unwrap_or(0);
                let block = TensorBlock {
                    tensor: at,
                    offset: start,
                    element_type: dtype.element_type(),
                    rows: ElementRows::of_block(row, start / width as u64),
                    width,
                    is_opaque: dtype == Dtype::Other,
                };
                ModelRegion { end, block: Some(block) }
            }
        }
    }
}
