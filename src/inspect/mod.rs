//! Inspect: read a repository, or files to compare with it, without changing anything.
//!
//! | module | answers |
//! |---|---|
//! | [`check`] | Is everything in the repository readable and consistent? |
//! | [`stats`] | How many bytes, chunks and frames does a repository or a snapshot have? |
//! | [`list`] | Which entries does a snapshot have? |
//! | [`models`] | Which models does a snapshot have, and what is the stored size of each? |
//! | [`lineage`] | Which model descends from which? |
//! | [`distance`] | In how many bits do the values of two models differ? |
//! | [`tensor`] | What are the values of one tensor? Writes them to a file. |
//! | [`trace`] | Which chunks does a source tree have? Writes them as a trace. |
//! | [`model_summaries`] | What do the stored model records say? |

pub mod check;
pub mod distance;
mod dtype_names;
mod labels;
pub mod lineage;
pub mod list;
pub mod model_summaries;
pub mod models;
mod shards;
pub mod stats;
pub mod tensor;
pub mod trace;
