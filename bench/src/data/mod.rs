//! Data sets of measurements: existing files, members of archives, mixtures, and generated data.
//!
//! What is written is written once, to a directory named by a digest of its description, and stays for the next run.
//! Two runs then read the same inodes with the same times.

mod files;
mod generate;
mod image;
mod mix;
mod model;
mod random;
mod read;
pub mod rounding;
mod set;
mod sweep;
mod text;
mod trees;

pub use files::{expand, files_below, lack};
pub use generate::Generate;
pub use mix::HeldFiles;
pub use random::Random;
pub use read::{DataFile, DataHashes, paths_read};
pub use set::{Set, SetSource, set_with};
