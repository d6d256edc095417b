//! A depth-first search over the choices of the scheduler.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fhrd::store::{BlobKind, BlobName, BlobPrefix, MemoryStore, Store};

use super::scheduler::{Scheduler, stable_name};

/// The result of a search.
#[derive(Debug, Default)]
pub struct Explored {
    pub runs: usize,
    pub states: usize,
    /// Switches of the last run away from an actor that could have gone on. All runs with fewer were done.
    pub switches: usize,
    /// Whether nothing was left when the search ended.
    pub is_complete: bool,
    /// The choices of the first run that lost something, and what.
    pub loss: Option<(Vec<usize>, String)>,
}

/// One run: starts the actors, which end by calling [`Scheduler::finish`]; gives the check of the end.
pub type Start<'a> = dyn Fn(&Arc<Scheduler>) -> Box<dyn FnOnce() -> std::result::Result<(), String>> + 'a;

/// Runs every order of the actors' store calls, depth-first, up to `runs_max` runs, those with few switches first. A state that was
/// seen before, in which every actor that goes on has seen the same, is not searched again. Late DELETEs count as further actors.
/// All runs begin with steps of the actors in `begin`.
pub fn explore(
    store_of: &dyn Fn() -> Arc<MemoryStore>,
    actors: usize,
    begin: &[usize],
    runs_max: usize,
    start: &Start<'_>,
) -> Explored {
    let mut explored = Explored::default();
    let mut seen: HashSet<(blake3::Hash, usize)> = HashSet::new();
    // By the number of switches away from an actor that could have gone on.
    let mut work: BTreeMap<usize, Vec<Vec<usize>>> = BTreeMap::from([(0, vec![begin.to_vec()])]);
    while let Some(mut same) = work.first_entry() {
        let switches = *same.key();
        let Some(prefix) = same.get_mut().pop() else {
            same.remove();
            continue;
        };
        if explored.runs == runs_max {
            return explored;
        }
        explored.runs += 1;
        explored.switches = switches;
        let scheduler = Scheduler::new(actors);
        let check = start(&scheduler);
        let store = store_of();
        let (mut choices, mut last, mut is_known) = (Vec::new(), usize::MAX, false);
        loop {
            let mut enabled = scheduler.enabled(actors);
            let late = scheduler.late_deletes();
            enabled.extend(actors..actors + late.len());
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
                        let choices = choices.iter().copied().chain([*other]).collect();
                        work.entry(switches + 1).or_default().push(choices);
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
            match choice.checked_sub(actors).and_then(|number| late.get(number)) {
                Some(name) => scheduler.land(store.as_ref(), name),
                None => scheduler.give(choice),
            }
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

/// Whether a container has other bytes than its name says.
pub fn is_bad(store: &dyn Store, name: &BlobName) -> bool {
    let hash = name.hash().filter(|_| name.kind() == BlobKind::Container);
    hash.is_some_and(|hash| store.get(name, 1 << 30).is_ok_and(|bytes| *blake3::hash(&bytes).as_bytes() != hash))
}

fn state_of(store: &MemoryStore, scheduler: &Scheduler) -> blake3::Hash {
    let listed = store.list(BlobPrefix::All).unwrap();
    let mut names: Vec<String> = listed.iter().map(|blob| stable_name(store, &blob.name)).collect();
    // What is healed has the same name.
    names.extend(listed.iter().filter(|blob| is_bad(store, &blob.name)).map(|blob| format!("bad {}", blob.name)));
    names.sort();
    let mut hasher = blake3::Hasher::new();
    names.iter().for_each(|name| _ = hasher.update(name.as_bytes()).update(b"\n"));
    scheduler.histories().iter().for_each(|history| _ = hasher.update(history.as_bytes()));
    scheduler.late_deletes().iter().for_each(|name| _ = hasher.update(name.as_bytes()).update(b"\n"));
    hasher.finalize()
}
