//! Data sets of measurements: files as they lie, members of archives, mixtures, and data made from a seed.
//!
//! What has to be made is made once, in a directory named by its description, and kept for the next run: two runs then
//! read the same inodes with the same times.

mod files;
mod generate;
mod image;
mod mix;
mod model;
mod random;
pub mod rounding;
mod set;
mod text;

pub use files::{expand, files_below};
pub use generate::Generate;
pub use random::Random;
pub use set::{Set, SetSource};
