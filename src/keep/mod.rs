//! Keeping: which snapshots stay, and giving back the space that no snapshot needs.
//!
//! `forget` deletes snapshots by rules, `tag` replaces a snapshot by one with other tags, `copy` stores snapshots of
//! another repository, `rewrite` stores a snapshot again without some entries, `publish` gives a directory a snapshot
//! of its own, `upload` stores what clients send to a server. `prune` deletes the containers that nothing needs and
//! compacts those that hold little. `mark` finds what is needed, `plan` chooses containers, `compact` moves what is
//! needed out of them into `solid_frames`, and `prune` runs the protocol beside writers. `recompress` prunes in rounds
//! that compress more. `locks` makes the locks of the store last.

mod ages;
mod compact;
mod copy;
mod dead;
mod everything;
mod forget;
mod lacking;
mod live;
mod locks;
mod looks;
mod mark;
mod occupancy;
mod plan;
mod prune;
mod prune_report;
mod publish;
mod recompress;
mod rewrite;
mod run_rules;
mod solid_frames;
mod tag;
pub mod upload;
mod view;
mod withdrawn;

pub use copy::{Copier, CopyOutcome};
pub use everything::{is_everything_there, lacking_snapshots};
pub use forget::{ForgetGroup, ForgetPlan, ForgetPolicy, RetainedSnapshot, forget, plan_forget};
pub use mark::Marker;
pub use prune::{estimate_prune, prune};
#[doc(hidden)]
pub use prune_report::SkippedRule;
pub use prune_report::{PruneOptions, PruneReport};
pub use publish::{PublishOutcome, PublishRequest, PublishedRoot, publish, published_root, unpublish};
pub use recompress::recompress;
pub use rewrite::{RewriteOutcome, RewriteRequest, rewrite};
pub use run_rules::{BestRule, RunPattern};
pub use tag::{TagChange, tag};
