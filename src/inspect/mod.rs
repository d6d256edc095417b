//! Inspect: read a repository, or files to compare with it, without changing anything.
//!
//! | module | answers |
//! |---|---|
//! | [`check`] | Is everything in the repository readable and consistent? |
//! | [`stats`] | How many bytes, chunks and frames does a repository have? |
//! | [`status`] | Are there new snapshots, is damage known, and what was proven by reads? |
//! | [`verify`] | Can a part of the repository be read, in turn until all was? |
//! | [`list`] | Which entries does a snapshot have? |
//! | [`find`] | Which snapshots have entries of some name, size or time? |
//! | [`diff`] | What changed from one snapshot to another? |
//! | [`dump`] | What are the bytes of a file, or of a directory as an archive? |
//! | [`usage`] | What do the files of a snapshot hold before and after reduction? |
//! | [`usage_directories`] | How much of that does each directory of a host hold? |
//! | [`estimate`] | What would a first backup of some paths store? |
//! | [`report`] | How did the repository grow, what takes its space, and is it healthy? |
//! | [`exclusive`] | What does each snapshot alone keep? |
//! | [`noop`] | Which tensors stayed the same from one step of a training run to the next? |
//! | [`models`] | Which models does a snapshot have, and what is the stored size of each? |
//! | [`lineage`] | Which model descends from which? |
//! | [`distance`] | In how many bits do the values of two models differ? |
//! | [`tensor`] | What are the values of one tensor? Writes them to a file. |
//! | [`trace`] | Which chunks does a source tree have? Writes them as a trace. |
//! | [`model_summaries`] | What do the stored model records say? |

pub mod check;
mod chunk_sample;
pub mod diff;
pub mod distance;
mod dtype_names;
pub mod dump;
pub mod estimate;
pub mod exclusive;
pub mod find;
mod labels;
pub mod lineage;
pub mod list;
pub mod model_summaries;
pub mod models;
pub mod noop;
pub mod report;
mod shards;
pub mod stats;
pub mod status;
mod tar_header;
pub mod tensor;
pub mod trace;
mod tree_pair;
pub mod usage;
pub mod usage_directories;
pub mod verify;
