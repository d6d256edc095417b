//! Models: recognises model files, finds the stored model that a new one descends from, and plans deltas to it.
//!
//! 1. [`model_file`] recognises a model file as it is read and describes it by a [`ModelRecord`]: its tensors, the
//!    fingerprints of their blocks, and a sketch of each tensor (`detect.rs`, `record.rs`). A sketch holds a few values
//!    at positions that depend on the tensor's size only (`sketch.rs`).
//! 2. [`storing_order`] orders the models of one backup: bases before their descendants (`order.rs`).
//! 3. Records are stored as chunks. The catalogue, blobs under `models/`, lists them with the smallest hashes of their
//!    tensors' shapes. So models of one architecture are found without reading records (`catalogue.rs`).
//! 4. [`Families`] finds the stored models nearest to a new one by their outlines, small parts of their sketches
//!    (`family.rs`, `outline.rs`).
//! 5. [`choose`] compares them tensor by tensor. It estimates the size of a delta from the sketches alone and gives
//!    each tensor the base with the shortest delta (`choice.rs`). Whether two models are of one family is decided in
//!    `relation.rs`. Tensors may also be casts of others in their file (`own.rs`).
//! 6. [`DeltaPlanner`] finds the stored blocks of a base and plans each new block as a delta to them (`delta_plan.rs`),
//!    or to what lies below them if that makes reads cheaper (`chain.rs`).
//!    Float chunks of other files become deltas to the file's previous version (`previous_version.rs`). Both
//!    also become deltas to ranges that were found by their content (`slice_plan.rs`). Quantised tensors follow from
//!    floats that are stored (`quantised.rs`).
//! 7. [`WorkSplit`] splits the files of a source among processes, by family (`split/`).
//!
//! All of this is a hint: a lost record costs compression ratio, never data.

mod base_ranges;
mod blend;
mod block_plan;
mod catalogue;
mod chain;
mod choice;
mod delta_plan;
mod detect;
mod evidence;
mod family;
#[cfg(test)]
mod family_tests;
mod order;
mod outline;
mod own;
mod previous_version;
mod quantised;
mod record;
mod region;
mod relation;
mod scaled;
mod sketch;
mod slice_plan;
mod split;
mod tensor_comparison;

pub use base_ranges::element_type_of;
pub use block_plan::{BlockPlan, DeltaPlan, PlannedDelta};
pub use catalogue::{BLOB_ENTRIES_MAX, CatalogueBlob, CatalogueEntry, PREFIX, SkippedCatalogues};
pub use choice::{BaseChoice, ModelComparison, TensorBase, TensorLookup, choose, compare_models};
pub use delta_plan::DeltaPlanner;
pub use detect::{
    CARD, CARD_BYTES_MAX, CONFIGURATIONS, DefectReporting, MODEL_BYTES_MIN, ModelContent, ModelFile, TOKENIZER,
    TensorBlock, may_be_model, model_content, model_file, names,
};
pub use family::{Families, RecordLoader};
pub use order::{CANDIDATES_MAX, HOISTED_BYTES_MAX, HoistCandidate, storing_order};
pub use quantised::{compare_any, compare_blocks, follows_from, quantised_comparison};
pub use record::{BaseModel, FinishedModel, ModelRecord, RECORD_BYTES_MAX, TensorRecord};
pub use region::ModelRegion;
pub use relation::{ModelLikeness, Relation, THRESHOLD};
pub use sketch::{Sketched, compare, sample, sampled, standalone_bits};
pub use slice_plan::{SliceTrial, WeightType};
pub use split::{ShareTally, SplitBuilder, UnitTally, WorkSplit, shown_unit};
pub use tensor_comparison::{Likeness, TensorComparer, TensorComparison, float_formats};
