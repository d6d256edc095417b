//! A scheduler that runs actors one at a time and changes the actor only between their store calls, and a depth-first
//! search over its choices.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::SystemTime;

use fhrd::repo::snapshot::Snapshot;
use fhrd::store::{BlobMetadata, ListedBlob, MemoryStore, Store};
use fhrd::types::SnapshotId;
use fhrd::{Error, Result};

/// A rule of the protocol that an actor breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Nothing.
    None,
    /// A backup does not put its intent.
    NoIntent,
    /// A backup does not look at pending entries.
    NoPendingLook,
    /// A backup does not list the containers again before its commit.
    StaleContainersOfBackup,
    /// A backup does not look whether its intent is still there.
    NoRecheck,
    /// A prune does not put its pending entry.
    NoPendingEntry,
    /// A prune does not withdraw beside another one.
    NoWithdrawal,
    /// A prune ignores intents.
    NoIntentsRead,
    /// A prune decides by snapshots that it listed before the intents.
    StaleSnapshots,
    /// A prune decides by containers that it listed before it put its entry.
    StaleContainersOfPrune,
}

/// Prefixes whose calls are yield points. Other blobs never change, or only help to find containers.
const SHARED: [&str; 4] = ["intents", "pending", "containers", "snapshots"];

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
        let mut state = self.state();
        let history = state.histories[actor];
        state.histories[actor] = blake3::hash([history.as_bytes(), what.as_bytes()].concat().as_slice());
    }

    pub fn finish(&self, actor: usize) {
        let mut state = self.state();
        state.finished.insert(actor);
        self.changed.notify_all();
    }

    /// The actors that can go on, once all others wait or have finished.
    fn enabled(&self, actors: usize) -> Vec<usize> {
        let mut state = self.state();
        while state.turn.is_some() || state.waiting.len() + state.finished.len() < actors {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting.iter().copied().collect()
    }

    fn give(&self, actor: usize) {
        self.state().turn = Some(actor);
        self.changed.notify_all();
    }

    fn abort(&self) {
        self.state().is_aborted = true;
        self.changed.notify_all();
    }

    fn histories(&self) -> Vec<blake3::Hash> {
        self.state().histories.clone()
    }
}

/// What a name stands for in every run: names of snapshots depend on the time.
fn stable_name(store: &dyn Store, name: &str) -> String {
    let id = name.strip_prefix("snapshots/").and_then(SnapshotId::parse);
    let snapshot = id.and_then(|id| Snapshot::load(store, &id).ok());
    snapshot.map_or(name.into(), |snapshot| format!("snapshot {:?} {:?}", snapshot.intent, snapshot.root))
}

/// The store as one actor sees it.
pub struct ActorStore {
    pub inner: Arc<MemoryStore>,
    pub scheduler: Arc<Scheduler>,
    pub actor: usize,
    pub run: String,
    pub broken: Broken,
    /// What the first listing of a prefix gave, for broken rules.
    pub first_lists: Mutex<Vec<(String, Vec<ListedBlob>)>>,
}

impl ActorStore {
    fn step<T>(&self, name: &str, call: impl FnOnce() -> Result<T>, show: impl FnOnce(&T) -> String) -> Result<T> {
        if !is_shared(name) {
            return call();
        }
        self.scheduler.wait(self.actor)?;
        let result = call();
        let shown = result.as_ref().map_or_else(|error| format!("{:?}", error.kind()), show);
        self.scheduler.saw(self.actor, &format!("{} {shown}", stable_name(self.inner.as_ref(), name)));
        result
    }

    fn seen_first(&self, prefix: &str, listed: Vec<ListedBlob>) -> Vec<ListedBlob> {
        let is_stale = match prefix {
            "containers" => {
                matches!(self.broken, Broken::StaleContainersOfBackup | Broken::StaleContainersOfPrune)
            }
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

    fn drops(&self, name: &str) -> bool {
        self.broken == Broken::NoIntent && name.starts_with("intents/")
            || self.broken == Broken::NoPendingEntry && name.starts_with("pending/")
    }
}

impl Store for ActorStore {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        if self.drops(name) {
            return Ok(true);
        }
        let put = || self.inner.put_if_absent(name, parts);
        let result = self.step(name, put, |new| format!("put {new}"));
        if result.is_ok() && name.starts_with("containers/") {
            let len = parts.iter().map(|part| part.len() as u64).sum();
            let mut first = self.first_lists.lock().unwrap();
            first
                .iter_mut()
                .filter(|(prefix, _)| prefix == "containers")
                .for_each(|(_, listed)| listed.push(ListedBlob { name: name.into(), len }));
        }
        result
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.inner.get_range(name, offset, len)
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        if name.starts_with("containers/") {
            // Every container is old.
            let old = |head| BlobMetadata { modified: SystemTime::UNIX_EPOCH, ..head };
            return self.inner.head(name).map(|head| head.map(old));
        }
        if self.broken == Broken::NoRecheck && name.starts_with("intents/") {
            return Ok(Some(BlobMetadata { len: 0, modified: SystemTime::now() }));
        }
        self.step(name, || self.inner.head(name), |head| format!("head {}", head.is_some()))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        let listed = self.step(
            prefix,
            || self.inner.list(prefix),
            |listed| {
                let mut names: Vec<String> =
                    listed.iter().map(|blob| stable_name(self.inner.as_ref(), &blob.name)).collect();
                names.sort();
                names.join(" ")
            },
        )?;
        match (prefix, self.broken) {
            ("pending", Broken::NoPendingLook) | ("intents", Broken::NoIntentsRead) => Ok(Vec::new()),
            // Its own entry only: the first list is empty, and later ones have what it put.
            ("pending", Broken::NoWithdrawal) => Ok(Vec::new()),
            _ => Ok(self.seen_first(prefix, listed)),
        }
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.step(name, || self.inner.delete(name), |()| "deleted".into())
    }

    fn location(&self) -> String {
        format!("memory-{}-{}", self.run, self.actor)
    }

    fn local_path(&self) -> Option<&Path> {
        None
    }
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Explored {
    pub runs: usize,
    pub states: usize,
    /// Whether nothing was left when the search ended.
    pub is_complete: bool,
    /// The choices of the first run that lost something, and what.
    pub loss: Option<(Vec<usize>, String)>,
}

/// One run: starts the actors, which end by calling [`Scheduler::finish`]; gives the check of the end.
pub type Start<'a> = dyn Fn(&Arc<Scheduler>) -> Box<dyn FnOnce() -> std::result::Result<(), String>> + 'a;

/// Runs every order of the actors' store calls, depth-first, up to `runs_max` runs. A state that was seen before, in
/// which every actor has seen the same, is not searched again.
pub fn explore(store_of: &dyn Fn() -> Arc<MemoryStore>, actors: usize, runs_max: usize, start: &Start<'_>) -> Explored {
    let mut explored = Explored::default();
    let mut seen: HashSet<(blake3::Hash, usize)> = HashSet::new();
    let mut work: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(prefix) = work.pop() {
        if explored.runs == runs_max {
            return explored;
        }
        explored.runs += 1;
        let scheduler = Scheduler::new(actors);
        let check = start(&scheduler);
        let store = store_of();
        let (mut choices, mut last, mut is_known) = (Vec::new(), usize::MAX, false);
        loop {
            let enabled = scheduler.enabled(actors);
            let Some(default) = enabled.iter().copied().find(|actor| *actor == last).or(enabled.first().copied())
            else {
                break;
            };
            let mut choice = default;
            if let Some(planned) = prefix.get(choices.len()) {
                assert!(enabled.contains(planned), "a run is not repeatable: {choices:?} {enabled:?}");
                choice = *planned;
            } else {
                let key = state_of(store.as_ref(), &scheduler);
                for other in enabled.iter().filter(|other| **other != default) {
                    if seen.insert((key, *other)) {
                        work.push(choices.iter().copied().chain([*other]).collect());
                    }
                }
                if !seen.insert((key, default)) {
                    is_known = true;
                    scheduler.abort();
                    break;
                }
            }
            choices.push(choice);
            last = choice;
            scheduler.give(choice);
        }
        let checked = check();
        if let (false, Err(loss)) = (is_known, checked) {
            explored.loss = Some((choices, loss));
            return explored;
        }
        explored.states = seen.len();
    }
    explored.is_complete = true;
    explored
}

fn state_of(store: &MemoryStore, scheduler: &Scheduler) -> blake3::Hash {
    let mut names: Vec<String> = store.list("").unwrap().iter().map(|blob| stable_name(store, &blob.name)).collect();
    names.sort();
    let mut hasher = blake3::Hasher::new();
    names.iter().for_each(|name| _ = hasher.update(name.as_bytes()).update(b"\n"));
    scheduler.histories().iter().for_each(|history| _ = hasher.update(history.as_bytes()));
    hasher.finalize()
}
