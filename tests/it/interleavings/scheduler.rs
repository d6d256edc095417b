//! A scheduler that runs actors one at a time and changes the actor only between their store calls.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::SystemTime;

use super::broken::Broken;
use crate::double::{Double, double_store, named};
use fhrd::repo::claims::ContainerClaim;
use fhrd::repo::snapshot::Snapshot;
use fhrd::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, MemoryStore, PutOptions, Reading, Store,
    StoreExt,
};
use fhrd::types::SnapshotId;
use fhrd::{Error, Result};

/// How the store behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Calls take effect at once, and lists are atomic.
    Fair,
    /// A list has two pages, between which others go on.
    Pages,
    /// A DELETE of a container takes effect at once, and once more at any later time.
    RepeatedDeletes,
    /// Others go on before each read of a container, not only before a list.
    SlowReads,
    /// A blob that is written back takes two calls: one that looks whether it is there, and one that writes.
    BlindOverwrites,
}

/// Prefixes whose calls are yield points. Other blobs never change, or only help to find containers.
const SHARED: [&str; 6] = ["intents", "pending", "containers", "snapshots", "parity", "indexes"];

fn is_shared(name: &str) -> bool {
    SHARED.iter().any(|prefix| name.split('/').next() == Some(prefix))
}

#[derive(Default)]
struct State {
    /// Actors that wait for their turn.
    waiting: BTreeSet<usize>,
    finished: BTreeSet<usize>,
    turn: Option<usize>,
    is_aborted: bool,
    /// Digest of everything that an actor has seen.
    histories: Vec<blake3::Hash>,
    /// Names whose DELETE will take effect once more.
    late_deletes: BTreeSet<String>,
    /// Containers that somebody has deleted.
    deleted: BTreeSet<String>,
}

/// Gives turns.
#[derive(Default)]
pub struct Scheduler {
    state: Mutex<State>,
    changed: Condvar,
}

impl Scheduler {
    pub fn new(actors: usize) -> Arc<Self> {
        let scheduler = Scheduler::default();
        scheduler.state().histories = vec![blake3::hash(b""); actors];
        Arc::new(scheduler)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits for the turn of `actor`.
    fn wait(&self, actor: usize) -> Result<()> {
        let mut state = self.state();
        state.waiting.insert(actor);
        self.changed.notify_all();
        while state.turn != Some(actor) && !state.is_aborted {
            state = self.changed.wait(state).unwrap();
        }
        if state.is_aborted {
            return Err(Error::Interrupted);
        }
        state.turn = None;
        state.waiting.remove(&actor);
        Ok(())
    }

    fn saw(&self, actor: usize, what: &str) {
        self.saw_after(actor, None, what);
    }

    /// The actor has seen `what`, and of all before that only `base` matters for what it will do.
    fn saw_after(&self, actor: usize, base: Option<blake3::Hash>, what: &str) -> blake3::Hash {
        let mut state = self.state();
        let history = base.unwrap_or(state.histories[actor]);
        let history = blake3::hash([history.as_bytes(), what.as_bytes()].concat().as_slice());
        state.histories[actor] = history;
        history
    }

    /// The actor ends. What it has seen matters no more, only its `result`.
    pub fn finish(&self, actor: usize, result: &str) {
        let mut state = self.state();
        state.finished.insert(actor);
        state.histories[actor] = blake3::hash(format!("finished: {result}").as_bytes());
        self.changed.notify_all();
    }

    /// The actors that can go on, once all others wait or have finished.
    pub fn enabled(&self, actors: usize) -> Vec<usize> {
        let mut state = self.state();
        while state.turn.is_some() || state.waiting.len() + state.finished.len() < actors {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting.iter().copied().collect()
    }

    pub fn give(&self, actor: usize) {
        self.state().turn = Some(actor);
        self.changed.notify_all();
    }

    pub fn abort(&self) {
        self.state().is_aborted = true;
        self.changed.notify_all();
    }

    fn delete_late(&self, name: &str) {
        self.state().late_deletes.insert(name.into());
    }

    pub fn late_deletes(&self) -> Vec<String> {
        self.state().late_deletes.iter().cloned().collect()
    }

    /// Lets the late DELETE of `name` take effect.
    pub fn land(&self, store: &MemoryStore, name: &str) {
        store.delete(&named(name), Durable::OnReturn).unwrap();
        self.state().late_deletes.remove(name);
    }

    /// The containers that were deleted at some time.
    pub fn deleted(&self) -> BTreeSet<String> {
        self.state().deleted.clone()
    }

    pub fn histories(&self) -> Vec<blake3::Hash> {
        self.state().histories.clone()
    }
}

/// What a name stands for in every run: names of snapshots, and the bytes of claims, depend on the time.
pub fn stable_name(store: &dyn Store, name: &str) -> String {
    if name.starts_with("intents/") || name.starts_with("pending/") {
        let claimed = ContainerClaim::load(store, &named(name)).ok().map(|claim| claim.containers);
        return format!("{name} {claimed:?}");
    }
    // Parity of a snapshot has the name of it.
    let hash = name.strip_prefix("parity/").and_then(|name| name.split('.').next());
    let id = name.strip_prefix("snapshots/").or(hash).and_then(SnapshotId::parse);
    let snapshot = id.and_then(|id| Snapshot::load(store, &id).ok());
    snapshot.map_or(name.into(), |snapshot| format!("snapshot {:?} {:?}", snapshot.intent, snapshot.root))
}

/// What of an actor's past matters for what it will do. States that differ in nothing else are the same.
#[derive(Debug, Default)]
pub struct Memory {
    /// Lists of the pending entries so far, and the last one: attempts of a prune, and what it finishes.
    pending_lists: usize,
    last_pending: String,
    /// Of a backup between its intent and its end: what it has written. Of what its looks list, it remembers nothing
    /// after its next write: a look that fails and one that passes are followed by different writes.
    written: Option<blake3::Hash>,
}

/// The containers before a sweep.
#[derive(Debug, Default)]
pub struct OldListing {
    has_begun: bool,
    containers: Vec<ListedBlob>,
}

/// The store as one actor sees it.
pub struct ActorStore {
    pub inner: Arc<MemoryStore>,
    pub scheduler: Arc<Scheduler>,
    pub actor: usize,
    pub run: String,
    pub broken: Broken,
    pub weather: Weather,
    /// Prefixes in which others put or delete something. To read elsewhere gives the same at any time, so it is no point
    /// at which others go on.
    pub foreign: BTreeSet<&'static str>,
    /// The container that was read last.
    pub last_read: Mutex<Option<String>>,
    pub memory: Mutex<Memory>,
    /// What the first listing of a prefix gave, for broken rules.
    pub first_lists: Mutex<Vec<(String, Vec<ListedBlob>)>>,
    /// What a sweep by an old listing has listed.
    pub sweep: Mutex<OldListing>,
    /// The entries and snapshots that this actor has put.
    pub own: Mutex<BTreeSet<String>>,
}

impl ActorStore {
    /// A read of blobs that actors share.
    fn look<T>(&self, name: &str, call: impl FnOnce() -> Result<T>, show: impl FnOnce(&T) -> String) -> Result<T> {
        self.step(name, false, call, show)
    }

    fn step<T>(
        &self,
        name: &str,
        is_write: bool,
        call: impl FnOnce() -> Result<T>,
        show: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        if !is_shared(name) {
            return call();
        }
        if is_write || self.foreign.contains(name.split('/').next().unwrap_or_default()) {
            self.scheduler.wait(self.actor)?;
        }
        let result = call();
        let shown = result.as_ref().map_or_else(|error| format!("{:?}", error.kind()), show);
        self.remember(name, is_write, &format!("{} {shown}", stable_name(self.inner.as_ref(), name)));
        result
    }

    fn remember(&self, name: &str, is_write: bool, what: &str) {
        let mut memory = self.memory.lock().unwrap();
        let (scheduler, actor) = (&self.scheduler, self.actor);
        if !is_write {
            scheduler.saw(actor, what);
            if name == "pending" {
                memory.pending_lists += 1;
                memory.last_pending = what.into();
            }
        } else if what.ends_with("put true") && name.starts_with("pending/") {
            // What a prune has read before it announces its candidates, it reads again.
            let Memory { pending_lists, last_pending, .. } = &*memory;
            let start = blake3::hash(format!("{pending_lists} {last_pending}").as_bytes());
            scheduler.saw_after(actor, Some(start), what);
        } else if name.starts_with("intents/") && what.ends_with("put true") {
            memory.written = Some(scheduler.saw_after(actor, memory.written, what));
        } else if memory.written.is_some() {
            let written = scheduler.saw_after(actor, memory.written, what);
            memory.written = Some(written).filter(|_| !name.starts_with("intents/"));
        } else {
            scheduler.saw(actor, what);
        }
    }

    fn seen_first(&self, prefix: &str, listed: Vec<ListedBlob>) -> Vec<ListedBlob> {
        let is_stale = match prefix {
            "containers" => self.broken == Broken::StaleContainersOfBackup || self.looks_no_more(),
            "snapshots" => self.broken == Broken::StaleSnapshots,
            _ => false,
        };
        let mut first = self.first_lists.lock().unwrap();
        if let Some((_, known)) = first.iter().find(|(known, _)| is_stale && known == prefix) {
            // What this actor stored since then is there, too, and what it deleted is not.
            return known.clone();
        }
        first.push((prefix.into(), listed.clone()));
        listed
    }

    /// A read of a container.
    fn read<T>(&self, name: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let is_new = self.last_read.lock().unwrap().replace(name.into()).is_none_or(|last| last != name);
        if self.weather == Weather::SlowReads && name.starts_with("containers/") && is_new {
            return self.look(name, call, |_| "read".into());
        }
        call()
    }

    /// Whether a backup that breaks the rule to look after its commit has committed.
    fn looks_no_more(&self) -> bool {
        let has_committed = || self.own.lock().unwrap().iter().any(|name| name.starts_with("snapshots/"));
        matches!(self.broken, Broken::NoRecheck | Broken::NoIntent) && has_committed()
    }

    fn drops(&self, name: &str) -> bool {
        self.broken == Broken::NoIntent && name.starts_with("intents/")
            || self.broken == Broken::NoPendingEntry && name.starts_with("pending/")
            || self.broken == Broken::NoEntryOfFinisher
                && name.starts_with("pending/")
                && !self.inner.list(BlobKind::Pending.into()).unwrap().is_empty()
    }

    /// A sweep begins with a list of parity. If its rule is broken, containers are those of the list before.
    fn note_sweep(&self, directory: &str, listed: &mut Vec<ListedBlob>) {
        if self.broken != Broken::SweepByOldListing {
            return;
        }
        let mut sweep = self.sweep.lock().unwrap();
        match directory {
            "parity" => sweep.has_begun = true,
            "containers" if sweep.has_begun => *listed = sweep.containers.clone(),
            "containers" => sweep.containers = listed.clone(),
            _ => {}
        }
    }

    /// Whether a sweep by an old listing knows this container. `None` if there is no such sweep.
    fn swept_by(&self, name: &BlobName) -> Option<bool> {
        let sweep = self.sweep.lock().unwrap();
        sweep.has_begun.then(|| sweep.containers.iter().any(|listed| listed.name == *name))
    }

    /// One page of a list: the names of which the first byte of a hash is in `bytes`. What the hash is made of is the
    /// same in each run, which names are not: those of snapshots depend on the time.
    fn page(&self, prefix: BlobPrefix, bytes: std::ops::RangeInclusive<u8>) -> Result<Vec<ListedBlob>> {
        let is_in = |blob: &ListedBlob| {
            let stable = stable_name(self.inner.as_ref(), &blob.name);
            bytes.contains(&blake3::hash(stable.as_bytes()).as_bytes()[0])
        };
        let list = || Ok(self.inner.list(prefix)?.into_iter().filter(is_in).collect());
        self.look(&prefix.directory(), list, |listed: &Vec<ListedBlob>| {
            let names = listed.iter().map(|blob| stable_name(self.inner.as_ref(), &blob.name));
            let mut names: Vec<String> = names.collect();
            names.sort();
            names.join(" ")
        })
    }
}

double_store!(ActorStore);

impl Double for ActorStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        if self.drops(name) {
            return Ok(true);
        }
        let put = || self.inner.put_if_absent(name, parts);
        let result = self.step(name, true, put, |new| format!("put {new}"));
        if name.starts_with("pending/") || name.starts_with("snapshots/") {
            self.own.lock().unwrap().insert(name.into());
        }
        if result.is_ok() && name.starts_with("containers/") {
            let len = parts.iter().map(|part| part.len() as u64).sum();
            let mut first = self.first_lists.lock().unwrap();
            first
                .iter_mut()
                .filter(|(prefix, _)| prefix == "containers")
                .for_each(|(_, listed)| listed.push(ListedBlob { name: name.clone(), len }));
        }
        result
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]]) -> Result<()> {
        let write = || self.inner.overwrite(name, parts, PutOptions::default());
        self.step(name, true, write, |()| "overwritten".into())
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        if self.weather == Weather::BlindOverwrites {
            let is_there = || Ok(self.inner.head(name)?.is_some());
            let is_there = self.look(name, is_there, |is_there| format!("there {is_there}"))?;
            return if is_there { Double::overwrite(self, name, parts).map(|()| true) } else { Ok(false) };
        }
        let write = || self.inner.overwrite_if_present(name, parts, PutOptions::default());
        self.step(name, true, write, |is_there| format!("overwritten {is_there}"))
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.read(name, || self.inner.get(name, bytes_max))
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.read(name, || self.inner.get_range(name, offset, len, Reading::Once))
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        if name.starts_with("containers/") {
            if self.swept_by(name) == Some(false) {
                return Ok(None);
            }
            // Every container is old.
            let old = |head| BlobMetadata { modified: SystemTime::UNIX_EPOCH, ..head };
            return self.read(name, || self.inner.head(name)).map(|head| head.map(old));
        }
        if matches!(self.broken, Broken::NoRecheck | Broken::NoIntent) && name.starts_with("intents/") {
            return Ok(Some(BlobMetadata { len: 0, modified: SystemTime::now() }));
        }
        if self.broken == Broken::NoLookAtOriginal && name.starts_with("snapshots/") {
            return Ok(Some(BlobMetadata { len: 0, modified: SystemTime::now() }));
        }
        self.look(name, || self.inner.head(name), |head| format!("head {}", head.is_some()))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        let (mut listed, directory) = (Vec::new(), prefix.directory());
        let middle = if self.weather == Weather::Pages && is_shared(&directory) { 128 } else { 0 };
        if middle > 0 {
            listed.extend(self.page(prefix, 0..=middle - 1)?);
        }
        listed.extend(if is_shared(&directory) {
            self.page(prefix, middle..=u8::MAX)?
        } else {
            self.inner.list(prefix)?
        });
        self.note_sweep(&directory, &mut listed);
        match (directory.as_str(), self.broken) {
            ("pending", Broken::NoPendingLook) | ("intents", Broken::NoIntentsRead) => Ok(Vec::new()),
            ("pending", _) if self.looks_no_more() => Ok(Vec::new()),
            ("pending", Broken::NoWithdrawal) => {
                let own = self.own.lock().unwrap();
                listed.retain(|blob| own.contains(blob.name.as_str()));
                Ok(listed)
            }
            _ => Ok(self.seen_first(&directory, listed)),
        }
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.step(name, true, || self.inner.delete(name, Durable::OnReturn), |()| "deleted".into())?;
        if name.starts_with("containers/") {
            self.scheduler.state().deleted.insert(name.to_string());
        }
        if self.weather == Weather::RepeatedDeletes && name.starts_with("containers/") {
            self.scheduler.delete_late(name);
        }
        Ok(())
    }

    fn location(&self) -> String {
        format!("memory-{}-{}", self.run, self.actor)
    }

    fn local_path(&self) -> Option<std::path::PathBuf> {
        None
    }
}
