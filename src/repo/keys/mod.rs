//! The key slots of a repository, and how they change.
//!
//! 1. A slot is a blob below `keys/`. A repository is opened with *all* slots that what the user gives opens: each may
//!    have a master key that the others lack ([`slots`]).
//! 2. Whoever changes the slots claims that before, and looks whether somebody else has ([`KeyChange`]). So of two
//!    changes at the same time at least one is refused, before it has put a slot.

mod change;
mod slots;
mod verbs;

pub use change::KeyChange;
pub(super) use change::unsettled_slots;
pub use slots::{NamedSlot, Opened, PREFIX, check_slot_count, list, open, put, remove};
pub use verbs::{Rotated, add, import, passwd, remove_slot, rotate};
