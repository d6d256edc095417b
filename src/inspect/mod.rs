//! What is looked at without being changed: checks, statistics, listings, models and single tensors.

pub mod check;
pub mod distance;
mod dtype_names;
mod labels;
pub mod lineage;
pub mod list;
pub mod model_summaries;
pub mod models;
pub mod stats;
pub mod tensor;
pub mod trace;
