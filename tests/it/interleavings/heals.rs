//! Heals beside backups and prunes: nothing is lost, and nothing comes back that a prune has deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use fhrd::keep::prune;
use fhrd::repo::Repository;
use fhrd::repo::cold;
use fhrd::repo::container::parse_name;
use fhrd::repo::heal::{HealReport, Healable, heal};
use fhrd::repo::marks::Marks;
use fhrd::repo::parity;
use fhrd::store::{BlobKind, BlobName, MemoryStore, Store};
use fhrd::types::{ContainerId, SnapshotId};

use super::broken::Broken;
use super::scene::{Act, Blobs, Scene, Search, clear_cache, no_grace, open, read_whole, store_with};
use super::scheduler::{Scheduler, Weather};
use super::search::is_bad;
use super::{assert_loses, assert_safe_in, assert_search_loses};

/// What the actors of a run have left.
pub struct Left {
    pub store: Arc<MemoryStore>,
    pub scheduler: Arc<Scheduler>,
    pub has_parity: bool,
    pub is_cold: bool,
    pub damaged: Blobs,
}

impl Left {
    /// Fails unless every container has what belongs to it, and a heal has done no harm.
    pub fn check(&self, wanted: &[SnapshotId]) -> Result<(), String> {
        let store = self.store.as_ref();
        if self.is_cold && self.damaged.is_empty() {
            assert_indexed(store)?;
        }
        if self.has_parity {
            assert_protected(store)?;
        }
        if self.damaged.is_empty() {
            return Ok(());
        }
        let names: Vec<BlobName> = containers(store).collect();
        let is_other = |name: &&BlobName| {
            let bytes = store.get(name, 1 << 30).unwrap();
            is_bad(store, name) && self.damaged.get(name.as_str()) != Some(&bytes)
        };
        if let Some(name) = names.iter().find(is_other) {
            return Err(format!("{name} has bytes that it never had"));
        }
        let deleted = self.scheduler.deleted();
        if let Some(name) = names.iter().find(|name| deleted.contains(name.as_str())) {
            return Err(format!("{name} has come back"));
        }
        self.prune_on(wanted)
    }

    /// A later prune takes what belongs to nothing, and nothing else.
    fn prune_on(&self, wanted: &[SnapshotId]) -> Result<(), String> {
        let repository = open(self.store.clone(), 77);
        prune(&repository, &no_grace(), &Arc::default()).map_err(|error| format!("the next prune: {error}"))?;
        clear_cache(&repository);
        for id in wanted {
            read_whole(&repository, id).map_err(|error| format!("snapshot {id} after the next prune: {error}"))?;
        }
        let store = self.store.as_ref();
        let ids: BTreeSet<[u8; 32]> = containers(store).filter_map(|name| name.hash()).collect();
        let indexed = cold::indexed(store).unwrap().into_keys();
        if let Some(id) = indexed.map(|id| id.0).find(|id| !ids.contains(id)) {
            return Err(format!("the hot index of {} stays", ContainerId(id)));
        }
        let kinds = [BlobKind::Segment, BlobKind::Snapshot, BlobKind::RequiredMark, BlobKind::OptionalMark];
        let short = kinds.into_iter().flat_map(|kind| store.list(kind.into()).unwrap());
        let all: BTreeSet<[u8; 32]> = short.filter_map(|blob| blob.name.hash()).chain(ids).collect();
        let protected = parity::protected(store).unwrap().into_keys();
        let stray = protected.into_iter().find(|hash| !all.contains(hash));
        stray.map_or(Ok(()), |hash| Err(format!("the parity of {} stays", ContainerId(hash))))
    }
}

fn containers(store: &dyn Store) -> impl Iterator<Item = BlobName> {
    store.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name)
}

/// Fails unless every container has parity.
fn assert_protected(store: &dyn Store) -> Result<(), String> {
    let protected = parity::protected(store).unwrap();
    let mut ids = containers(store).filter_map(|name| parse_name(&name));
    ids.find(|id| !protected.contains_key(&id.0)).map_or(Ok(()), |id| Err(format!("{id} has no parity")))
}

/// Fails unless every container has a hot index.
fn assert_indexed(store: &dyn Store) -> Result<(), String> {
    let indexed = cold::indexed(store).unwrap();
    let mut ids = containers(store).filter_map(|name| parse_name(&name));
    ids.find(|id| !indexed.contains_key(id)).map_or(Ok(()), |id| Err(format!("{id} has no hot index")))
}

/// Heals what has other bytes than its name says, and writes the hot indexes that are missing: what a check finds,
/// without its other reads.
pub fn heal_found(repository: &Repository) -> fhrd::Result<HealReport> {
    Marks::read(repository.store.as_ref())?;
    let (store, is_cold) = (repository.store.as_ref(), cold::is_cold(repository));
    let indexed = if is_cold { cold::indexed(store)? } else { Default::default() };
    let mut found = Healable::default();
    for blob in store.list(BlobKind::Container.into())? {
        let id = parse_name(&blob.name).unwrap();
        if is_bad(repository.parity.as_ref(), &blob.name) {
            match is_cold {
                true => _ = found.containers.insert(id),
                false => _ = repository.parity.other_copy(&blob.name),
            }
        } else if is_cold && !indexed.contains_key(&id) {
            found.hot_indexes.insert(id);
        }
    }
    heal(repository, &found)
}

impl Scene {
    /// The same with a flipped byte in each container: in a frame if there is parity, else in the footer. In a cold
    /// repository, every third hot index is missing, and its container is sound.
    fn damaged(mut self) -> Self {
        let names: Vec<String> = self.blobs.keys().filter(|name| name.starts_with("containers/")).cloned().collect();
        for (number, name) in names.into_iter().enumerate() {
            if self.is_cold && number % 3 == 2 {
                let hash = crate::double::named(&name).hash().unwrap();
                self.blobs.remove(BlobName::hot_index_of(&hash).as_str()).unwrap();
                continue;
            }
            let bytes = self.blobs.get_mut(&name).unwrap();
            let at = if self.has_parity { bytes.len() / 2 } else { bytes.len() - 1 };
            bytes[at] ^= 1;
            self.damaged.insert(name, bytes.clone());
        }
        self
    }
}

fn scenes(retained: &[usize]) -> [(&'static str, Scene); 2] {
    [("parity", Scene::with_parity(retained).damaged()), ("cold", Scene::cold(retained).damaged())]
}

#[test]
fn a_heal_alone_writes_everything_back() {
    for (what, scene) in scenes(&[0, 1]) {
        let store = store_with(&scene.blobs);
        let repository = open(store.clone(), 3);
        let healed = heal_found(&repository).unwrap();
        assert_eq!((healed.containers, healed.left.len()), (scene.damaged.len() as u64, 0), "{what}: {healed:?}");
        assert!(scene.damaged.len() > 2 && containers(store.as_ref()).all(|name| !is_bad(&store, &name)), "{what}");
        assert_eq!(healed.hot_indexes > 0, scene.is_cold, "{what}");
    }
}

#[test]
fn a_heal_beside_a_backup_loses_nothing() {
    for (what, scene) in scenes(&[0]) {
        for version in [1, 2] {
            assert_safe_in(Weather::Fair, what, &scene, &scene.blobs, &[Act::Backup(version), Act::Heal]);
        }
    }
}

#[test]
fn a_heal_beside_a_prune_loses_nothing_and_brings_nothing_back() {
    for retained in [vec![], vec![1]] {
        for (what, scene) in scenes(&retained) {
            for second in [Act::Prune, Act::PatientPrune] {
                assert_safe_in(Weather::Fair, what, &scene, &scene.blobs, &[Act::Heal, second]);
            }
            // Of a prune that takes it for dead, only a store with conditions keeps a heal from what is deleted.
            let acts = [Act::Heal, Act::PatientPrune];
            assert_safe_in(Weather::BlindOverwrites, what, &scene, &scene.blobs, &acts);
        }
    }
}

#[test]
fn a_heal_beside_a_backup_and_a_prune_loses_nothing() {
    for (what, scene) in scenes(&[]) {
        for third in [Act::Prune, Act::PatientPrune] {
            assert_safe_in(Weather::Fair, what, &scene, &scene.blobs, &[Act::Backup(1), Act::Heal, third]);
        }
    }
}

#[test]
fn two_heals_lose_nothing() {
    for (what, scene) in scenes(&[1]) {
        assert_safe_in(Weather::Fair, what, &scene, &scene.blobs, &[Act::Heal, Act::Heal]);
    }
}

#[test]
fn a_heal_needs_its_intent() {
    for (_, scene) in scenes(&[]) {
        let (acts, broken, weather) = ([Act::Heal, Act::PatientPrune], [Broken::NoIntent], Weather::BlindOverwrites);
        assert_search_loses(&Search {
            scene: &scene,
            blobs: &scene.blobs,
            acts: &acts,
            broken: &broken,
            weather,
            begin: &[],
        });
    }
}

#[test]
fn a_sweep_must_list_parity_before_containers() {
    let scene = Scene::with_parity(&[1]);
    assert_loses(&scene, &[Act::Backup(2), Act::PatientPrune], &[Broken::None, Broken::SweepByOldListing]);
}
