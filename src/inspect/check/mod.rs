//! Check: proves that a repository is readable. It continues after each defect and reports all of them.
//!
//! 1. Both copies of the configuration parse. Every snapshot and every blob of the model catalogue loads.
//! 2. Every index segment opens, its pages verify, and its records refer to entries with their fingerprints
//!    (`segments`).
//! 3. Every container has a sound header, footer and container index, and each entry resolves to bytes within frames
//!    (`containers`). Of those that `read_data` chooses every byte is read: they match their names, frames decode,
//!    and chunks match their fingerprints.
//! 4. The listings and recipes of every snapshot decode, and their chunks are in listed containers (`trees`). A chunk
//!    with a sound entry is not lost, whatever happened to other entries of it.
//! 5. Damage that a mark lists and that no snapshot needs is mentioned only (`damaged_containers`), and so are
//!    containers that are gone while every snapshot is whole. Until then, marks go on listing them (`marked`).
//! 6. What is missing at first is looked for again in a new listing (`missing`), and so is a snapshot with defects:
//!    others may have moved or forgotten it. If something has vanished meanwhile, the whole check begins again.
//!
//! A container that is damaged and that parity gives back is sound, with a note (`parity`). Parity that is damaged
//! itself is noted, too.
//!
//! A check of chosen snapshots walks their trees first, down to frames, and then checks the containers that these need.
//! If one of them is damaged, the walk is repeated: it may now need others.
//!
//! Snapshots are listed before segments, and segments before containers, which is the reverse of the writing order. So
//! the data of a concurrent backup is either complete or not needed. A container that no segment lists belongs to an
//! interrupted or a running backup. It must be sound, but its bases may still be missing. So may those
//! of a container in a pending entry, which a prune deletes.

mod chosen;
mod cold;
mod containers;
mod damaged_containers;
mod defect_log;
mod entry_sums;
mod hints;
mod marked;
mod missing;
mod parity;
mod read_data;
mod run;
mod segments;
mod stored;
#[cfg(test)]
mod tests;
mod trees;

pub use chosen::check_containers;
pub use cold::HotIndexCounts;
pub(in crate::inspect) use defect_log::damage;
pub use read_data::ReadData;
pub use run::{CheckReport, check, check_snapshots};
pub use stored::{StoredReport, check_stored};
