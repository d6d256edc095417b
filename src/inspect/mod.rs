//! What is looked at without being changed: checks, statistics, listings, models and single tensors.

pub mod check;
pub mod distance;
mod label;
pub mod lineage;
pub mod list;
pub mod model_summary;
pub mod models;
mod naming;
pub mod stats;
pub mod tensor;
pub mod trace;
