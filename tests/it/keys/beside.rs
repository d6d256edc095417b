//! Two changes of keys beside each other, with others who write meanwhile: whatever the order of the store calls, and
//! wherever one of them is killed, no key is lost that has encrypted something, and nobody takes data for damage.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fhrd::Result;
use fhrd::error::ErrorKind;
use fhrd::store::{BlobKind, MemoryStore, Store, StoreExt};

use super::scene::{Blobs, Gated, P, Q, USERS, Verb, killed, open, store_with, two_slots};
use crate::double::named;

/// Changes of P and changes of Q that are tried beside each other.
const OF_P: [Verb; 4] = [Verb::Rotate, Verb::Add(3), Verb::Passwd(4), Verb::Remove(Q)];
const OF_Q: [(Verb, u8); 5] =
    [(Verb::Rotate, Q), (Verb::Add(5), Q), (Verb::Passwd(6), Q), (Verb::Remove(P), Q), (Verb::Rotate, P)];

/// Everybody who can open the repository writes something.
fn write_notes(store: &Arc<MemoryStore>, when: &str) {
    for user in USERS {
        if let Ok(repository) = open(store.clone(), user) {
            repository.store.put_if_absent(&named(&format!("notes/{user}-{when}")), &[b"note"]).unwrap();
        }
    }
}

/// Who opens the repository, and what each of them can read of all notes.
fn readers(store: &Arc<MemoryStore>) -> BTreeMap<u8, Vec<Result<Vec<u8>>>> {
    let notes: Vec<String> = crate::double::names_in(store.as_ref(), "notes");
    let opened = USERS.into_iter().filter_map(|user| Some((user, open(store.clone(), user).ok()?)));
    opened
        .map(|(user, repository)| (user, notes.iter().map(|name| repository.store.get(&named(name), 100)).collect()))
        .collect()
}

/// Nothing is damage for anybody, and somebody reads everything; everybody does, unless a change was killed.
fn assert_nothing_is_lost(store: &Arc<MemoryStore>, was_killed: bool, what: &str) {
    let readers = readers(store);
    for (user, notes) in &readers {
        for error in notes.iter().filter_map(|note| note.as_ref().err()) {
            assert_eq!(error.kind(), ErrorKind::Locked, "{what}: user {user}: {error}");
            assert!(was_killed, "{what}: user {user}: {error}");
        }
    }
    let reads_all = |notes: &Vec<Result<Vec<u8>>>| notes.iter().all(Result::is_ok);
    assert!(readers.values().any(reads_all), "{what}: nobody reads everything: {readers:?}");
    // One master key for each generation.
    let rings: Vec<_> = readers.keys().map(|user| open(store.clone(), *user).unwrap().encryption.unwrap()).collect();
    for generation in 1..6 {
        let mut keys: Vec<_> = rings.iter().flat_map(|ring| ring.keyring.masters(generation)).collect();
        keys.dedup_by(|a, b| a == b);
        assert!(keys.len() <= 1, "{what}: {} keys of generation {generation}", keys.len());
    }
}

pub struct Outcome {
    pub store: Arc<MemoryStore>,
    pub results: [Result<()>; 2],
    pub calls: [u64; 2],
}

type Second = Arc<Mutex<Option<JoinHandle<(Result<()>, u64)>>>>;

/// Runs `a`; before its call `at`, `b` runs until its call `until`. There it is killed, or waits until `a` has ended.
pub fn beside(blobs: &Blobs, a: (Verb, u8), b: (Verb, u8), at: u64, until: u64, kills: bool) -> Outcome {
    let store = store_with(blobs);
    let (paused, is_paused): (Sender<()>, Receiver<()>) = mpsc::channel();
    let (resume, is_resumed): (Sender<()>, Receiver<()>) = mpsc::channel();
    let channels = Mutex::new(Some((paused, is_resumed, is_paused)));
    let second: Second = Arc::default();
    let (shared, seconds) = (store.clone(), second.clone());
    let first = Gated::new(
        &store,
        Box::new(move |call| {
            if call != at {
                return Ok(());
            }
            let (paused, is_resumed, is_paused) = channels.lock().unwrap().take().unwrap();
            let (is_resumed, paused) = (Mutex::new(is_resumed), Mutex::new(Some(paused)));
            let gated = Gated::new(
                &shared,
                Box::new(move |call| {
                    if kills && call >= until {
                        return Err(killed());
                    }
                    if call == until {
                        drop(paused.lock().unwrap().take());
                        let _ = is_resumed.lock().unwrap().recv();
                    }
                    Ok(())
                }),
            );
            let handle = std::thread::spawn(move || {
                let result = b.0.run(gated.clone(), b.1);
                (result, gated.calls())
            });
            *seconds.lock().unwrap() = Some(handle);
            if kills {
                let handle = seconds.lock().unwrap().take().unwrap();
                let ended = handle.join().unwrap();
                *seconds.lock().unwrap() = Some(std::thread::spawn(move || ended));
            } else {
                // It waits, or has ended and dropped its store.
                let _ = is_paused.recv();
            }
            write_notes(&shared, "between");
            Ok(())
        }),
    );
    let result = a.0.run(first.clone(), a.1);
    write_notes(&store, "after-first");
    drop(resume);
    let handle = second.lock().unwrap().take();
    let (second_result, second_calls) = handle.map_or((Ok(()), 0), |handle| handle.join().unwrap());
    write_notes(&store, "after-both");
    let outcome = Outcome { store, results: [result, second_result], calls: [first.calls(), second_calls] };
    drop(first);
    outcome
}

/// Calls `judge` with each schedule of each pair of changes.
fn each_schedule(kills: bool, judge: impl Fn(&Outcome, &str)) {
    let mut schedules = 0;
    for a in OF_P {
        for b in OF_Q {
            for at in 0.. {
                let whole = beside(two_slots(), (a, P), b, at, u64::MAX, false);
                if whole.calls[0] <= at {
                    assert!(at > 8, "{a:?} makes {at} calls");
                    break;
                }
                judge(&whole, &format!("{a:?} beside {b:?} at {at}"));
                // All of them if the environment asks for that; otherwise each pair of calls of some change is tried.
                let stride = if std::env::var_os("FHRD_INTERLEAVINGS").is_some() { 1 } else { 3 };
                for until in (at % stride..whole.calls[1]).step_by(stride as usize) {
                    let outcome = beside(two_slots(), (a, P), b, at, until, kills);
                    judge(&outcome, &format!("{a:?} beside {b:?} at {at}, until {until}"));
                    schedules += 1;
                }
            }
        }
    }
    eprintln!("{schedules} schedules");
}

#[test]
fn two_changes_of_the_keys_at_the_same_time_lose_nothing() {
    each_schedule(false, |outcome, what| {
        assert_nothing_is_lost(&outcome.store, false, what);
        assert!(outcome.store.list(BlobKind::KeyChange.into()).unwrap().is_empty(), "{what}: a claim stays");
        for error in outcome.results.iter().filter_map(|result| result.as_ref().err()) {
            assert!(matches!(error.kind(), ErrorKind::Failed | ErrorKind::Locked), "{what}: {error}");
        }
    });
}

#[test]
fn a_change_of_the_keys_that_is_killed_beside_another_one_loses_nothing() {
    each_schedule(true, |outcome, what| assert_nothing_is_lost(&outcome.store, true, what));
}

#[test]
fn after_a_killed_change_everybody_may_try_again_and_nothing_is_lost() {
    for a in OF_P {
        for at in 0.. {
            let store = store_with(two_slots());
            let gated = Gated::new(&store, Box::new(move |call| if call >= at { Err(killed()) } else { Ok(()) }));
            let done = a.run(gated.clone(), P);
            if gated.calls() <= at {
                done.unwrap();
                break;
            }
            write_notes(&store, "after-the-kill");
            let blobs = super::scene::blobs_of(&store);
            for b in OF_Q {
                for is_later in [false, true] {
                    let store = store_with(&blobs);
                    let old = blobs.keys().filter(|_| is_later).cloned().collect();
                    let gate = Box::new(|_| Ok(()));
                    let later = Arc::new(Gated { inner: store.clone(), gate, calls: Default::default(), old });
                    let result = b.0.run(later.clone(), b.1);
                    write_notes(&store, "after-the-second");
                    let what = format!("{a:?} killed at {at}, then {b:?}, an hour later: {is_later}: {result:?}");
                    assert_nothing_is_lost(&store, true, &what);
                    // Whoever opens the new slot need not wait.
                    let claims = store.list(BlobKind::KeyChange.into()).unwrap();
                    assert!(is_later || claims.len() <= 1, "{what}: {claims:?}");
                    if b == (Verb::Rotate, P) && is_later {
                        assert!(open(store.clone(), P).is_err() || result.is_ok(), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_change_of_a_password_removes_every_slot_that_the_old_one_opens() {
    let store = store_with(two_slots());
    Verb::Add(P).run(store.clone(), Q).unwrap();
    assert_eq!(store.list(BlobKind::Key.into()).unwrap().len(), 3);
    Verb::Passwd(4).run(store.clone(), P).unwrap();
    assert!(open(store.clone(), P).is_err());
    assert!(open(store.clone(), 4).is_ok() && open(store.clone(), Q).is_ok());
}

#[test]
fn slots_with_different_keys_are_opened_together() {
    let store = store_with(two_slots());
    let before: Vec<(String, Vec<u8>)> = super::scene::blobs_of(&store).into_iter().collect();
    let old: Vec<_> = before.iter().filter(|(name, _)| name.starts_with("keys/")).collect();
    // Two programs that do not see each other: each has the slots as they were, and makes a key of generation 2.
    let other = store_with(two_slots());
    for store in [&store, &other] {
        Verb::Rotate.run(store.clone(), P).unwrap();
        open(store.clone(), P).unwrap().store.put_if_absent(&named("notes/a"), &[b"note"]).unwrap();
    }
    for (name, bytes) in super::scene::blobs_of(&other) {
        let name = name.replace("notes/a", "notes/b");
        store.put_if_absent(&named(&name), &[&bytes]).unwrap();
    }
    let slots = store.list(BlobKind::Key.into()).unwrap().len();
    assert_eq!(slots, 2, "one of each");
    let read = |store: &Arc<MemoryStore>| {
        let repository = open(store.clone(), P).unwrap();
        ["notes/a", "notes/b"].map(|name| repository.store.get(&named(name), 100).unwrap())
    };
    assert_eq!(read(&store), [b"note", b"note"]);
    // An old slot that comes back, or stays, does not hide the new key, and the next rotation keeps all keys.
    for (name, bytes) in old {
        store.put_if_absent(&named(name), &[bytes]).unwrap();
    }
    assert_eq!(open(store.clone(), P).unwrap().encryption.unwrap().keyring.latest().unwrap().generation, 2);
    Verb::Rotate.run(store.clone(), P).unwrap();
    assert_eq!(store.list(BlobKind::Key.into()).unwrap().len(), 1);
    assert_eq!(read(&store), [b"note", b"note"]);
    assert_eq!(open(store.clone(), P).unwrap().encryption.unwrap().keyring.latest().unwrap().generation, 3);
    assert!(open(store, Q).is_err());
}
