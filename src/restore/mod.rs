//! Restore: writes the tree of a snapshot into a directory, in eight stages.
//!
//! The first links carry `PlannedBatch`es, all others `RestoreJob`s of about 1 MiB. Each stage fills in or uses one
//! part of them.
//!
//! | # | stage | takes | gives |
//! |---|---|---|---|
//! | 1 | `plan` | the snapshot's tree | batches: files to create, chunks to find, complete entries |
//! | 2 | `locate` (parallel) | batches | the same, with created files and the frames of each chunk |
//! | 3 | `order` | batches with frames | jobs: frames to load, chunks to write, complete files, frames to evict |
//! | 4 | `fetch` (parallel) | jobs with frames to load | the same, with the stored bytes of these frames |
//! | 5 | `decode` (parallel) | jobs with stored frames | the same, with checked and decoded frames |
//! | 6 | `gather` | jobs with decoded frames | the same, with every frame that their chunks need |
//! | 7 | `write` (parallel) | jobs with chunks and frames | the same, after their chunks are checked and written |
//! | 8 | `finish` | jobs with complete files | files with their names; hard links |
//!
//! `run` connects the stages. Order decides which frames stay in memory (`window`, `item_order`, `frame_cache`), and
//! Gather holds them. Existing entries of the target stay unless the request says otherwise (`existing`, and `delete`
//! at the end). Damaged data costs the ranges of files that need it (`lost`); all else is restored. A file that is not
//! whole never has its own name.
//!
//! `bucket` writes objects instead of files, without these stages.

mod assembled;
mod base;
mod bucket;
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
mod locate;
mod lost;
mod message;
mod needed;
mod order;
mod plan;
mod request;
mod rescue;
mod restore_file;
mod run;
mod verify;
mod window;
mod write;

pub use bucket::{BucketRestoreReport, restore_into_bucket};
pub use chosen_tree::Selection;
pub use existing::Overwrite;
pub use lost::DamagedFile;
pub use needed::{NeededContainer, NeededContainers, needed_containers};
pub use request::RestoreRequest;
pub use run::{RestoreReport, restore};
pub use verify::compare_with;
