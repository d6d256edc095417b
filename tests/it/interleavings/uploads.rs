//! Uploads beside prunes, and uploads that are killed: what was acknowledged is there, and no commit is half there.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fhrd::keep::prune;
use fhrd::keep::upload::xet::ReceivedXorb;
use fhrd::keep::upload::{CommitFault, CommitLines, CommitTarget, UploadStore, owner};
use fhrd::repo::Repository;
use fhrd::repo::clock::Clock;
use fhrd::repo::published::{PublishedKind, PublishedSnapshot, published};
use fhrd::repo::salts::Salts;
use fhrd::repo::snapshot;
use fhrd::store::{FaultyStore, InjectedFault, MemoryStore};
use fhrd::types::{SnapshotId, hex};
use fhrd::{Error, Result};
use serde_json::json;

use super::broken::Broken;
use super::scene::{Act, Scene, clear_cache, config, no_grace, open, read_whole, store_with};
use super::scheduler::Weather;
use super::{assert_loses, assert_safe_in};
use crate::serve::xet_client::{SentFile, SentXorb, shard};

/// What everything is uploaded for.
const NAME: &str = "me/model";
/// After this time every upload has expired, nanoseconds.
const LATER_NS: i64 = 29 * 24 * 3600 * 1_000_000_000;

fn uploads(repository: &Repository) -> Result<UploadStore> {
    let mut uploads = UploadStore::new(repository.clone(), config(), "test".into(), Arc::default())?;
    uploads.without_pauses = true;
    Ok(uploads)
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().unwrap()
}

/// A file without a name.
fn spooled(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// Uploads the noise of a source as an object.
pub fn upload(repository: &Repository, source: &Path) -> Result<SnapshotId> {
    let bytes = fs::read(source.join("noise")).unwrap();
    let key = (sha256(&bytes), bytes.len() as u64);
    let added = uploads(repository)
        .and_then(|uploads| uploads.add_object(&owner(PublishedKind::Model, NAME), key, spooled(&bytes)));
    clear_cache(repository);
    Ok(added?.0.id)
}

/// Uploads the noise of a source as a xorb, then a shard that has it as a file.
pub fn upload_by_xet(repository: &Repository, source: &Path) -> Result<SnapshotId> {
    let bytes = fs::read(source.join("noise")).unwrap();
    let owner = owner(PublishedKind::Model, NAME);
    let xorb = SentXorb::of(&bytes);
    let sent = shard(&[SentFile(vec![(&xorb, 0..xorb.chunks.len())])], &[&xorb]).concat();
    let add = || {
        let uploads = uploads(repository)?;
        let received = ReceivedXorb::read(xorb.hash, &spooled(&xorb.bytes()), spooled(b""))?;
        uploads.add_xorb(&owner, received)?;
        let mut checked = uploads.check_shard(&|_| true, &spooled(&sent))?;
        let spool = spooled(b"");
        let key = checked.put_together(0, &spool)?;
        let file = uploads.add_shard_file(&owner, key, spool)?;
        uploads.refer_xorbs(&owner, &checked, &[file])?;
        Ok::<_, CommitFault>(uploads.object(&owner, key)?)
    };
    let added = add().map_err(error_of);
    clear_cache(repository);
    added?.map(|(named, _)| named.id).ok_or_else(|| Error::Usage("the object has expired".into()))
}

fn error_of(fault: CommitFault) -> Error {
    match fault {
        CommitFault::Failed(error) => error,
        fault => Error::Usage(format!("{fault:?}")),
    }
}

/// Commits a source: its text within the commit, its noise as an object. The snapshot that is published.
pub fn commit(repository: &Repository, source: &Path) -> Result<SnapshotId> {
    let committed = committed(repository, source);
    clear_cache(repository);
    Ok(committed?.named.id)
}

fn committed(repository: &Repository, source: &Path) -> Result<PublishedSnapshot> {
    let [text, noise] = ["text", "noise"].map(|name| fs::read(source.join(name)).unwrap());
    let object = json!({ "path": "below/noise", "oid": hex(&sha256(&noise)), "size": noise.len() });
    let (mut lines, mut inline) = (CommitLines::default(), Vec::new());
    for line in [
        json!({ "key": "header", "value": {} }),
        json!({ "key": "file", "value": { "path": "text", "content": BASE64_STANDARD.encode(&text) } }),
        json!({ "key": "lfsFile", "value": object }),
    ] {
        inline.extend(lines.add(line.to_string().as_bytes()).unwrap());
    }
    let operations = lines.finish(Arc::new(spooled(&inline))).unwrap();
    let target = CommitTarget { kind: PublishedKind::Model, name: NAME.into(), revision: "main".into() };
    uploads(repository)?.commit(&|_| Ok(None), &target, operations).map_err(error_of)
}

/// Deletes the uploads that will have expired.
pub fn expire(repository: &Repository) -> Result<()> {
    let later = Clock::at(repository.clock.now_ns() + LATER_NS);
    let expired = uploads(&Repository { clock: later, ..repository.clone() }).and_then(|uploads| uploads.expire());
    clear_cache(repository);
    expired
}

#[test]
fn uploads_beside_a_prune_lose_nothing() {
    let scene = Scene::with_object();
    for weather in [Weather::Fair, Weather::Pages] {
        for second in [Act::Prune, Act::PatientPrune] {
            for first in [Act::Upload(1), Act::Xet(1), Act::Commit(0)] {
                assert_safe_in(weather, "an object", &scene, &scene.blobs, &[first, second]);
            }
        }
        // The object expires before, while or after it is committed.
        let acts = [Act::Commit(0), Act::ExpireAndPrune];
        assert_safe_in(weather, "an object", &scene, &scene.blobs, &acts);
    }
}

#[test]
fn uploads_beside_each_other_and_a_prune_lose_nothing() {
    let scene = Scene::with_object();
    let acts = [Act::Upload(1), Act::Commit(0), Act::PatientPrune];
    assert_safe_in(Weather::Fair, "an object", &scene, &scene.blobs, &acts);
}

#[test]
fn a_publication_must_look_whether_its_original_has_expired() {
    let scene = Scene::with_object();
    let (acts, broken) = ([Act::Commit(0), Act::ExpireAndPrune], [Broken::NoLookAtOriginal]);
    assert_loses(&scene, &acts, &broken);
}

/// What is published, after a look that everything of it is there.
fn whole(repository: &Repository, what: &str) -> Vec<PublishedSnapshot> {
    let (snapshots, damaged) = snapshot::list_reported(repository.store.as_ref()).unwrap();
    assert!(damaged.is_empty(), "{what}: {damaged:?}");
    for named in &snapshots {
        read_whole(repository, &named.id).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    published(snapshots, repository.clock.now_ns()).unwrap()
}

#[test]
fn a_commit_that_is_killed_at_any_call_is_whole_or_absent() {
    let scene = Scene::with_object();
    let source = scene.source(0);
    let (mut absent, mut there) = (0, 0);
    for number in 0.. {
        let (operation, took_effect) = (number / 2, number % 2 == 1);
        let store: Arc<MemoryStore> = store_with(&scene.blobs);
        let repository = open(store.clone(), 6);
        let faulty = Arc::new(FaultyStore::new(store.clone(), InjectedFault::PowerCut { operation, took_effect }));
        let result = committed(&Repository { store: faulty.clone(), ..repository.clone() }, &source);
        clear_cache(&repository);
        if faulty.operations() <= operation {
            result.unwrap();
            break;
        }
        let what = format!("killed at call {operation}, done: {took_effect}");
        let next = Repository { salts: Salts::fixed(7), ..repository.clone() };
        let found = whole(&next, &what);
        if found.is_empty() {
            absent += 1
        } else {
            there += 1
        }
        assert!(found.len() == 1 || result.is_err(), "{what}: it was acknowledged");
        // Then a prune that takes everybody for dead, and the client tries again.
        prune(&next, &no_grace(), &Arc::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(whole(&next, &what).len(), found.len(), "{what}");
        let again = committed(&next, &source).unwrap_or_else(|error| panic!("{what}: {error}"));
        let commits: Vec<String> = whole(&next, &what).into_iter().map(|found| found.commit).collect();
        assert_eq!(commits, [again.commit], "{what}");
        assert!(found.iter().all(|found| commits.contains(&found.commit)), "{what}");
        clear_cache(&next);
    }
    assert!(absent > 20 && there > 4, "{absent} {there}");
}

#[test]
fn an_object_that_was_acknowledged_is_there_after_a_kill_and_a_prune() {
    is_there_after_a_kill(upload);
}

#[test]
fn a_file_of_a_shard_that_was_acknowledged_is_there_after_a_kill_and_a_prune() {
    is_there_after_a_kill(upload_by_xet);
}

fn is_there_after_a_kill(upload: fn(&Repository, &Path) -> Result<SnapshotId>) {
    let scene = Scene::with_object();
    let source = scene.source(1);
    for number in 0.. {
        let (operation, took_effect) = (number / 2, number % 2 == 1);
        let store: Arc<MemoryStore> = store_with(&scene.blobs);
        let repository = open(store.clone(), 6);
        let faulty = Arc::new(FaultyStore::new(store.clone(), InjectedFault::PowerCut { operation, took_effect }));
        let result = upload(&Repository { store: faulty.clone(), ..repository.clone() }, &source);
        let what = format!("killed at call {operation}, done: {took_effect}: {result:?}");
        let next = Repository { salts: Salts::fixed(7), ..repository.clone() };
        prune(&next, &no_grace(), &Arc::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        whole(&next, &what);
        let own = || uploads(&next).unwrap().objects(&owner(PublishedKind::Model, NAME), true).unwrap();
        assert!(own().len() == 2 || result.is_err() && own().len() == 1, "{what}: {:?}", own().len());
        upload(&next, &source).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(own().len(), 2, "{what}");
        clear_cache(&next);
        if faulty.operations() <= operation {
            result.unwrap();
            assert!(operation > 15, "{operation}");
            break;
        }
    }
}
