//! Which containers were read whole, when, and whether they proved sound: *read records* in the repository, so that
//! any machine knows what another one has proven.
//!
//! 1. Whoever reads containers whole puts a record: what it did, and a row for each container ([`save`]).
//! 2. What is known is the newest row of each container in any record ([`ReadLedger`]).
//! 3. Once there are many records, one takes in all others and leaves out the containers that are gone. It names those
//!    that it takes in, so whoever may put but not delete does not write it again and again. It is put before those are
//!    deleted. Killed in between, or beside another machine, rows are in two records, which harms nobody.
//! 4. A record is a hint about effort. One that is damaged, lost or too large only makes containers count as not read.

mod ledger;
mod record;

pub use ledger::{ContainerRead, ReadLedger, leave_out_gone, maintain, save};
pub use record::ReadRun;

#[cfg(test)]
mod tests;
