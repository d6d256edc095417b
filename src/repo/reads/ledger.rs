//! What all read records together say, and keeping their number small.

use std::collections::{HashMap, HashSet};

use super::record::{Prefix, ReadRecord, ReadRun, Row, prefix};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::clock::is_future;
use crate::repo::container::parse_name;
use crate::repo::marks::{Quarantine, check_writable};
use crate::store::{BlobKind, BlobName, Durable, Store};
use crate::types::ContainerId;

/// Records beside each other from which on one takes in the others.
const RECORDS_MAX: usize = 16;
/// Bytes of all records that are read, at most. They bound memory.
const READ_BYTES_MAX: u64 = 256 << 20;
const NS_PER_MINUTE: i64 = 60 * 1_000_000_000;

/// The last read of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerRead {
    /// When it ended, nanoseconds since 1970, rounded down to a minute.
    pub time_ns: i64,
    /// Whether every byte was as it should be.
    pub is_sound: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ReadLedger {
    rows: HashMap<Prefix, (u32, bool)>,
    /// What commands have read, oldest first.
    pub runs: Vec<ReadRun>,
    /// Records that cannot be read, with the reason.
    pub unreadable: Vec<(BlobName, Error)>,
    /// Readable records that no other one has taken in.
    current: Vec<BlobName>,
    /// Records that another one has taken in.
    taken: Vec<BlobName>,
}

impl ReadLedger {
    /// Reads all records. Rows and runs from the future count for nothing: they would hide for years what is not read.
    ///
    /// # Errors
    /// Errors of listing the store.
    pub fn load(store: &dyn Store, now_ns: i64) -> Result<ReadLedger> {
        let (mut ledger, mut taken, mut bytes) = (ReadLedger::default(), HashSet::new(), 0);
        let listed = match store.list(BlobKind::ReadRecord.into()) {
            Err(error @ Error::Unreadable { .. }) => {
                tracing::warn!("the records of what was read are not used: {error}");
                Vec::new()
            }
            listed => listed?,
        };
        for blob in listed {
            bytes = u64::saturating_add(bytes, blob.len);
            if bytes > READ_BYTES_MAX {
                tracing::warn!("some records of what was read are not used: they have more than 256 MiB");
                break;
            }
            match ReadRecord::load(store, &blob.name) {
                Ok(record) => {
                    taken.extend(record.taken.iter().copied());
                    ledger.current.push(blob.name);
                    ledger.take_in(record, now_ns);
                }
                // Another one has taken it in.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if error.is_unreadable() => ledger.unreadable.push((blob.name, error)),
                Err(error) => return Err(error),
            }
        }
        let is_taken = |name: &BlobName| name.hash().is_some_and(|hash| taken.contains(&hash));
        (ledger.taken, ledger.current) = ledger.current.into_iter().partition(is_taken);
        ledger.runs.sort_unstable();
        ledger.runs.dedup();
        Ok(ledger)
    }

    fn take_in(&mut self, record: ReadRecord, now_ns: i64) {
        for row in record.rows.into_iter().filter(|row| !is_future(time_ns(row.minutes), now_ns)) {
            let last = self.rows.entry(row.prefix).or_insert((row.minutes, row.is_sound));
            // Of the same minute, damage counts.
            if (row.minutes, !row.is_sound) > (last.0, !last.1) {
                *last = (row.minutes, row.is_sound);
            }
        }
        self.runs.extend(record.runs.into_iter().filter(|run| !is_future(run.time_ns, now_ns)));
    }

    /// The last time that a container was read whole. `None` if none is known.
    pub fn last_read(&self, id: &ContainerId) -> Option<ContainerRead> {
        let (minutes, is_sound) = self.rows.get(&prefix(id))?;
        Some(ContainerRead { time_ns: time_ns(*minutes), is_sound: *is_sound })
    }

    /// The containers among `containers` that were damaged when they were read last, although `marked` does not list
    /// them: the marks are lost.
    pub fn unmarked<'a>(
        &self,
        containers: impl IntoIterator<Item = &'a ContainerId>,
        marked: &Quarantine,
    ) -> Vec<ContainerId> {
        let is_damaged = |id: &ContainerId| self.last_read(id).is_some_and(|read| !read.is_sound);
        containers.into_iter().filter(|id| is_damaged(id) && marked.of(id).is_none()).copied().collect()
    }

    /// Whether a record is worth writing that has all of this and only `containers`.
    fn is_due(&self, containers: &HashSet<ContainerId>) -> bool {
        let gone = if containers.is_empty() { 0 } else { self.rows.len().saturating_sub(containers.len()) };
        self.current.len() > RECORDS_MAX || (!self.current.is_empty() && gone > containers.len())
    }
}

fn time_ns(minutes: u32) -> i64 {
    i64::from(minutes) * NS_PER_MINUTE
}

/// Stores what `run` has read: the containers, and whether each proved sound. `containers` are all that there are, or
/// none if somebody could not list all. The run gets the time of now and the name of this machine.
///
/// # Errors
/// Errors of [`check_writable`], and those of the store.
pub fn save(
    repository: &Repository,
    run: ReadRun,
    read: &[(ContainerId, bool)],
    containers: &HashSet<ContainerId>,
) -> Result<()> {
    check_writable(repository)?;
    let now_ns = repository.clock.now_ns();
    let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let minutes = u32::try_from(now_ns.div_euclid(NS_PER_MINUTE)).unwrap_or(0);
    let rows = read.iter().map(|(id, is_sound)| Row { prefix: prefix(id), minutes, is_sound: *is_sound }).collect();
    let runs = vec![ReadRun { time_ns: now_ns, host, ..run }];
    ReadRecord { runs, rows, taken: Vec::new() }.put(repository.store.as_ref())?;
    if let Err(error) = maintain(repository, containers) {
        tracing::debug!("records of what was read stay as they are: {error}");
    }
    Ok(())
}

/// Writes one record in place of many, without the containers that are not in `containers`, and deletes those that were
/// taken in or are damaged. May be killed at any call, and may run beside others. If `containers` has none, no row is
/// left out: a repository without any container is more likely one that could not be listed.
///
/// # Errors
/// Errors of the store.
pub fn maintain(repository: &Repository, containers: &HashSet<ContainerId>) -> Result<()> {
    let (store, now_ns) = (repository.store.as_ref(), repository.clock.now_ns());
    let mut ledger = ReadLedger::load(store, now_ns)?;
    let mut obsolete = std::mem::take(&mut ledger.taken);
    if ledger.is_due(containers) {
        let known: HashSet<Prefix> = containers.iter().map(prefix).collect();
        let rows = ledger.rows.iter().filter(|(prefix, _)| known.is_empty() || known.contains(*prefix));
        let rows =
            rows.map(|(prefix, (minutes, is_sound))| Row { prefix: *prefix, minutes: *minutes, is_sound: *is_sound });
        obsolete.append(&mut ledger.current);
        let taken = obsolete.iter().filter_map(BlobName::hash).collect();
        let own = ReadRecord { runs: ledger.runs.clone(), rows: rows.collect(), taken }.put(store)?;
        obsolete.retain(|name| *name != own);
    }
    let damaged = ledger.unreadable.into_iter().filter(|(_, error)| error.is_proven_damage());
    obsolete.extend(damaged.map(|(name, _)| name));
    obsolete.iter().try_for_each(|name| store.delete(name, Durable::OnReturn))
}

/// Keeps the records small after a prune, as [`maintain`] does. A failure is only logged: nothing depends on it.
pub fn leave_out_gone(repository: &Repository) {
    let store = repository.store.as_ref();
    let done = store.list(BlobKind::ReadRecord.into()).and_then(|records| {
        if records.is_empty() {
            return Ok(());
        }
        let listed = store.list(BlobKind::Container.into())?;
        maintain(repository, &listed.iter().filter_map(|blob| parse_name(&blob.name)).collect())
    });
    if let Err(error) = done {
        tracing::debug!("records of what was read stay as they are: {error}");
    }
}
