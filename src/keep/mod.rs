//! Keeping: which snapshots stay, and giving back the space that no snapshot needs.
//!
//! `forget` deletes snapshots by rules, `tag` replaces a snapshot by one with other tags. `prune` deletes the
//! containers that nothing needs and compacts those that hold little. `mark` finds what is needed, `plan` chooses
//! containers, `compact` moves what is needed out of them, and `prune` runs the protocol beside writers.

mod compact;
mod forget;
mod live;
mod mark;
mod plan;
mod prune;
mod tag;

pub use forget::{ForgetGroup, ForgetPolicy, GroupBy, RetainedSnapshot, forget, plan_forget};
pub use prune::{PruneOptions, PruneReport, prune};
pub use tag::{TagChange, tag};
