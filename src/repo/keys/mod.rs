//! The key slots of a repository, and how they change.
//!
//! 1. A slot is a blob below `keys/`. A repository is opened with *all* slots that what the user gives opens: each may
//!    have a master key that the others lack (`slots.rs`).
//! 2. Each slot is stored twice in new repositories (`copies.rs`). Only the names below `keys/` say which exist.
//! 3. Whoever changes the slots claims that before, and looks whether somebody else has ([`KeyChange`]). So of two
//!    changes at the same time at least one is refused, before it has put a slot.

mod change;
mod copies;
#[cfg(test)]
mod power_cut_tests;
mod slots;
mod verbs;

pub use change::KeyChange;
pub(super) use change::unconfirmed_slots;
pub(super) use copies::heal_claimed;
pub use copies::{SlotFindings, clean, heal_slots, inspect_slots};
pub use slots::{NamedSlot, OpenedSlots, check_slot_count, list, open, put, remove};
pub(super) use verbs::check_is_current;
pub use verbs::{Rotated, add, import, passwd, remove_slot, rotate};
