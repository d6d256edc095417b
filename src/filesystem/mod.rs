//! The source and the target file system: metadata in both directions, walking a source tree, reading files with
//! their holes, and writing a tree without ever leaving its root.

mod apply;
mod capture;
mod event;
mod plan;
mod prescan;
mod source;
mod target;
mod walk;

pub use capture::Capturer;
pub use event::Event;
pub use plan::{WalkPlan, last_names};
pub use prescan::prescan;
pub use source::{FileRange, FileRanges, SourceFile};
pub use target::{Descent, Target};
pub use walk::Walker;
