//! The source and target file systems: capture and apply metadata, walk a source tree, read files with their holes,
//! and write a tree without ever leaving its root.

mod apply;
mod attributes;
mod capture;
mod choice;
mod chosen_times;
mod copied_link;
mod descent;
mod event;
mod flags;
mod links;
mod location;
mod moments;
mod new_file;
mod notes;
mod plan;
mod prescan;
#[cfg(target_os = "linux")]
mod project;
mod removal;
mod source;
mod stale;
mod target;
mod target_directory;
mod walk;

pub use attributes::has_attributes;
pub use capture::Capturer;
pub use choice::{
    EntryChoice, EntryFacts, Exclusion, PATTERN_BYTES_MAX, Patterns, PatternsBuilder, Scope, ShareFilter, TagFile,
};
pub use copied_link::is_link_refusal;
pub use descent::Descent;
pub use event::Event;
pub use location::FileLocation;
#[cfg(test)]
pub(crate) use moments::observe;
pub use new_file::{FileToken, NewFile};
pub use notes::TargetNotes;
pub use plan::{WalkPlan, absolute_path, last_names};
pub use prescan::{is_hub_blob, prescan, suggests_model};
pub use removal::Remover;
pub use source::{FileRange, FileRanges, SourceFile, next_data};
pub use target::{Target, TargetOptions};
pub use target_directory::{Completeness, TargetDirectory, TargetName, damaged_name};
pub use walk::Walker;
