//! Lineage: which stored model a new one descends from.
//!
//! 1. A model file is described by a record: its tensors, the names of their blocks, and a sketch of each tensor, a few
//!    values at places that depend on the tensor's size alone.
//! 2. Records are chunks; a blob under `models/` lists those that a backup made, each with the smallest hashes of its
//!    tensors' shapes, so that models of one architecture are found without reading records.
//! 3. Of these the ones nearest to a new model are found by outlines, a part of each one's sketches.
//! 4. They are compared with it tensor by tensor, sketch against sketch: what a delta would take is estimated without
//!    reading a stored byte, and each tensor gets the base that promises most.
//!
//! All of this is a hint: a lost record costs ratio only.

mod catalogue;
mod choice;
pub mod delta_plan;
pub mod detect;
mod family;
#[cfg(test)]
mod family_tests;
pub mod order;
mod outline;
mod previous_version;
mod record;
mod sketch;

pub use catalogue::{BLOB_ENTRIES_MAX, CatalogueBlob, CatalogueEntry, PREFIX};
pub use choice::{BaseChoice, ModelComparison, TensorBase, TensorLookup, choose, compare_models};
pub use family::{Families, RecordLoader};
pub use record::{BaseModel, ModelRecord, RECORD_BYTES_MAX, TensorRecord};
pub use sketch::{SketchComparison, Sketched, compare, sample, standalone_bits};
