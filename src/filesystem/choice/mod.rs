//! Choice: which entries of a source are stored, by the wishes of the user.
//!
//! 1. [`Patterns`] name entries to leave out, in the pattern language of gitignore, for the whole source. Ignore files
//!    do the same for the directory that they lie in.
//! 2. A tag file excludes everything else in its directory. A limit excludes large files.
//! 3. Of a share of the work, files of other shares are left out.
//! 4. A walk may stay on the file system of each path that it was given.
//!
//! The walk, the pre-scan and the count of the progress bar ask the same [`EntryChoice`]. A [`Scope`] is what they
//! carry from a directory to its entries. An excluded directory is not entered, so nothing below it is stored.
//!
//! Work and memory are bounded: the number of bytes of all patterns is limited, and the matcher needs linear time.

mod ignore_files;
mod patterns;
mod rules;
mod share;
mod tags;

pub use patterns::{PATTERN_BYTES_MAX, Patterns, PatternsBuilder};
pub use rules::{EntryChoice, EntryFacts, Exclusion, Scope};
pub use share::ShareFilter;
pub use tags::TagFile;

#[cfg(test)]
mod tests;
