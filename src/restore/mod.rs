//! Restore: writes the tree of a snapshot into a directory, in six stages.
//!
//! Every link carries `RestoreJob`s of about 1 MiB. Each stage fills in or uses one part of a job.
//!
//! | # | stage | takes | gives |
//! |---|---|---|---|
//! | 1 | `plan` | the snapshot's tree | jobs: frames to load, chunks to write, complete files, frames to evict |
//! | 2 | `fetch` (parallel) | jobs with frames to load | the same, with the stored bytes of these frames |
//! | 3 | `decode` (parallel) | jobs with stored frames | the same, with checked and decoded frames |
//! | 4 | `gather` | jobs with decoded frames | the same, with every frame that their chunks need |
//! | 5 | `write` (parallel) | jobs with chunks and frames | the same, after their chunks are checked and written |
//! | 6 | `finish` | jobs with complete files | files with their metadata and names; hard links |
//!
//! `run` connects the stages. Plan decides which frames stay in memory (`item_order`, `frame_cache`), and Gather holds
//! them. Existing entries of the target stay unless the request says otherwise (`existing`, and `delete` at the end).
//! Damaged data costs the ranges of files that need it (`lost`); all else is restored. A file that is not whole never
//! has its own name.

mod assembled;
mod base;
mod chosen_tree;
mod comparison;
mod decode;
mod delete;
mod existing;
mod fetch;
mod file_plan;
mod finish;
mod frame_cache;
mod gather;
mod inodes;
mod item_order;
mod lost;
mod message;
mod plan;
mod request;
mod run;
mod verify;
mod window;
mod write;

pub use chosen_tree::Selection;
pub use existing::Overwrite;
pub use lost::DamagedFile;
pub use request::RestoreRequest;
pub use run::{RestoreReport, restore};
