//! The catalogue of models survives a cut, and so do the records that it names.

use super::*;
use crate::model::CatalogueBlob;
use crate::repo::index::ContainerListing;
use crate::repo::read::ChunkReader;

/// The models of the catalogue, by id.
pub(super) fn catalogued(repository: &Repository) -> BTreeSet<Fingerprint> {
    CatalogueBlob::load_all(repository.store.as_ref()).unwrap().into_iter().map(|entry| entry.id).collect()
}

/// What was reported is in the catalogue, and what is there can be read.
pub(super) fn assert_models(repository: &Repository, before: &Reported, what: &str) {
    let store = repository.store.as_ref();
    for listed in store.list(BlobKind::Model.into()).unwrap() {
        CatalogueBlob::load(store, &listed.name).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    let known = catalogued(repository);
    let gone: Vec<_> = before.models.difference(&known).collect();
    assert!(gone.is_empty(), "{what}: {gone:?} are in no catalogue");
    let mut reader = ChunkReader::new(repository, Arc::new(ContainerListing::take(&repository.store).unwrap()));
    for entry in CatalogueBlob::load_all(store).unwrap() {
        let read = reader.read(&entry.record).map(drop);
        read.unwrap_or_else(|error| panic!("{what}: the record of a model: {error}"));
    }
}

/// A model in the format of safetensors whose values depend on `number`.
fn model(number: u8) -> Vec<u8> {
    let mut header = r#"{"w":{"dtype":"F32","shape":[40000],"data_offsets":[0,160000]}}"#.to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let values = (0..40_000u32).map(|at| 0x3d00_0000 + at.wrapping_mul(2_654_435_761 + u32::from(number)) % 0x40_0000);
    let content: Vec<u8> = values.flat_map(u32::to_le_bytes).collect();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &content].concat()
}

#[test]
fn models_that_were_reported_are_in_the_catalogue_after_a_cut() {
    let mut scene = Scene::new(false);
    let version = |number| BTreeMap::from([("model.safetensors", model(number)), ("text", vec![number; 5000])]);
    (0..3).for_each(|number| _ = scene.back_up(&version(number)));
    assert_eq!(scene.reported.models.len(), 3);
    let last = scene.back_up(&BTreeMap::from([("text", vec![9; 5000]), ("model.safetensors", model(2))]));
    scene.forget(last);
    repair_index(&scene.repository, &Arc::default()).unwrap();
    scene.report("repair index");
    let tried = scene.try_all();
    assert!(tried > 20, "{tried}");
    let directory = scene.root().join("models");
    let is_sync = |entry: &Entry| matches!(entry, Entry::Synced(path) if *path == directory);
    assert!(finds_fault(&scene, |entry| Some(entry.clone()).filter(|entry| !is_sync(entry))));
}
