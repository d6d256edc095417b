//! Splits the files of a source among processes that know nothing of each other, by family: files that are like each
//! other fall to one share, so that each finds the bases of what it stores.
//!
//! 1. A *unit* is what falls to one share. The files of a directory are one, and everything below a directory of a
//!    hub's cache. Directories of models whose cards name each other as bases, or a common one, are one together: a
//!    family (`families.rs`). So are the steps of a training run (`steps.rs`). A directory below that of a model with a
//!    card belongs to the model.
//! 2. A family with more than twice the bytes of an even share is split by file, if the same names are in its
//!    directories: the files of one name are a unit. So the base of each is in its share, and is stored first.
//! 3. A unit falls to a share by its name, or as a driver has assigned it (`assign.rs`).
//!
//! All of it follows from the listing and the cards alone. The digest of the split says whether two processes that took
//! the listing at different times agree on every file that both have seen.

mod assign;
#[cfg(test)]
mod bounds_tests;
mod builder;
mod families;
mod steps;
#[cfg(test)]
mod tests;
mod work_split;

pub use builder::SplitBuilder;
pub use work_split::{ShareTally, UnitTally, WorkSplit, shown_unit};
