//! The source and target file systems: capture and apply metadata, walk a source tree, read files with their holes,
//! and write a tree without ever leaving its root.

mod apply;
mod capture;
mod choice;
mod event;
mod plan;
mod prescan;
mod source;
mod target;
mod target_directory;
mod walk;

pub use capture::Capturer;
pub use choice::{EntryChoice, EntryFacts, Exclusion, PATTERN_BYTES_MAX, Patterns, PatternsBuilder, Scope, TagFile};
pub use event::Event;
pub use plan::{WalkPlan, last_names};
pub use prescan::prescan;
pub use source::{FileRange, FileRanges, SourceFile};
pub use target::{Descent, Target};
pub use target_directory::{Completeness, NewFile, TargetDirectory, TargetName};
pub use walk::Walker;
