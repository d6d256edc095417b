//! Damage of what an opened file needs costs that file only, and is named.

use std::fs;
use std::path::Path;
use std::process::Output;

use fhrd::read_at::ReadAt;
use fhrd::repo::Repository;
use fhrd::repo::read::Reader;
use fhrd::repo::rebuilt::{ContentPart, RebuiltContent};
use fhrd::repo::recipe::ContentReference;
use fhrd::types::Fingerprint;

use super::{archive, gzip};
use crate::future::writer::{Writer, node};
use crate::input::write;
use crate::program::Place;
use crate::trees::Random;

fn run(place: &Place, words: &[&str]) -> Output {
    place.command(&place.path("."), words).output().unwrap()
}

/// The container with the first chunk of a part.
fn container_of(repository: &Repository, part: ContentReference) -> String {
    let mut reader = Reader::open(repository).unwrap().chunks();
    let mut walk = fhrd::repo::read::RecipeWalk::new(part);
    let first = walk.next(&mut reader).unwrap().and_then(ContentReference::fingerprint).unwrap();
    let number = reader.entry_of(&first).unwrap();
    let (id, ..) = reader.resolver.container_index_of(number).unwrap();
    fhrd::repo::container::blob_name(&id).to_string()
}

#[test]
fn a_damaged_part_costs_its_file_only_and_is_named() {
    for is_source in [true, false] {
        let place = super::place();
        let source = place.path("source");
        write(source.join("archive.gz"), &gzip(&archive(0)));
        place.run(&["backup", "source", "--open", "always"]);
        // In containers of its own.
        let other = Random(2).bytes(100_000);
        write(source.join("other"), &other);
        place.run(&["backup", "source", "--open", "always"]);
        let repository = Repository::open_at(place.repository()).unwrap();
        let node = entry_at(&repository, Path::new("source/archive.gz"));
        let rebuilt = node.content.unwrap().rebuilt().unwrap();
        let part = if is_source { rebuilt.source } else { rebuilt.corrections.unwrap() };
        let name = container_of(&repository, part.into());
        damage(&place.repository().join(&name));
        let checked = run(&place, &["check", "--read-data"]);
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(!checked.status.success() && text.contains(&name), "{is_source}: {text}");
        let verified = run(&place, &["verify", "--sample", "100%"]);
        assert!(String::from_utf8_lossy(&verified.stdout).contains("archive.gz"), "{is_source}: {verified:?}");
        let restored = run(&place, &["restore", "latest", "--target", "back"]);
        let report: serde_json::Value = serde_json::from_slice(&restored.stdout).unwrap();
        assert_eq!((&report["damaged"], &report["problems"]), (&1.into(), &0.into()), "{is_source}: {report}");
        let base = place.path("back/source");
        assert!(fs::read(base.join("other")).unwrap() == other && !base.join("archive.gz").exists());
        let dumped = run(&place, &["dump", "latest:source/archive.gz"]);
        assert!(!dumped.status.success(), "{is_source}");
    }
}

fn entry_at(repository: &Repository, path: &Path) -> fhrd::repo::tree::Node {
    let (snapshots, _) = fhrd::repo::snapshot::list(repository.store.as_ref()).unwrap();
    let latest = snapshots.iter().max_by_key(|named| named.snapshot.time_ns).unwrap();
    let reader = Reader::open(repository).unwrap();
    reader.lend(|reader| Ok(fhrd::repo::tree::find_entry(reader, latest, path)?.1)).unwrap().unwrap()
}

/// Flips a bit of the first frame.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[64 + 40] ^= 4;
    let mut permissions = fs::metadata(path).unwrap().permissions();
    #[expect(clippy::permissions_set_readonly_false, reason = "the test's own file")]
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn content_that_does_not_come_back_is_damage() {
    let place = super::place();
    write(place.path("source/archive.gz"), &gzip(&archive(0)));
    place.run(&["backup", "source", "--open", "always"]);
    let repository = Repository::open_at(place.repository()).unwrap();
    let node = entry_at(&repository, Path::new("source/archive.gz"));
    let good = node.content.unwrap().rebuilt().unwrap();
    let all = |content: RebuiltContent| {
        let RebuiltContent { transform, source, corrections, hash, len } = content;
        let reference = ContentReference::Rebuilt { transform, source, corrections, hash, len };
        Reader::open(&repository).unwrap().content(reference).copy((0, u64::MAX), &mut |_| Ok(()))
    };
    all(good).unwrap();
    let wrong = ContentPart { fingerprint: Fingerprint([1; 32]), ..good.source };
    for (what, content) in [
        ("hash", RebuiltContent { hash: Fingerprint([1; 32]), ..good }),
        ("longer", RebuiltContent { len: good.len + 1, ..good }),
        ("shorter", RebuiltContent { len: good.len - 1, ..good }),
        ("no corrections", RebuiltContent { corrections: None, ..good }),
        ("corrections", RebuiltContent { corrections: Some(good.source), ..good }),
        ("source", RebuiltContent { source: good.corrections.unwrap(), ..good }),
        ("lost source", RebuiltContent { source: wrong, ..good }),
    ] {
        let error = all(content).expect_err(what);
        assert!(error.is_unreadable() && !error.is_newer(), "{what}: {error}");
    }
}

/// Two files whose plain content is all of them, and the one `wrong` has a hash that it does not give.
fn with_a_wrong_hash() -> (Writer, Vec<u8>) {
    let mut writer = Writer::new(false);
    let bytes = Random(3).bytes(300_000);
    let stored = writer.whole(&bytes);
    let len = bytes.len() as u64;
    let source = ContentPart { level: 0, fingerprint: stored.fingerprint, len };
    let content = |hash| ContentReference::Rebuilt { transform: 1, source, corrections: None, hash, len };
    let nodes = [("right", stored.fingerprint), ("wrong", Fingerprint([1; 32]))]
        .map(|(name, hash)| node(name, bytes.len(), Some(content(hash)), 0, &[]));
    let root = writer.listing(&nodes);
    writer.put_containers();
    writer.put_snapshot(root, 1);
    (writer, bytes)
}

#[test]
fn a_hash_that_is_not_of_the_rebuilt_bytes_costs_its_file_wherever_it_is_read() {
    let (writer, bytes) = with_a_wrong_hash();
    let place = &writer.place;
    let restored = run(place, &["restore", "latest", "--target", "back"]);
    let (report, errors) = (String::from_utf8_lossy(&restored.stdout), String::from_utf8_lossy(&restored.stderr));
    let counts: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(counts["damaged"], 1, "{report}");
    assert!(errors.contains("wrong") && !errors.contains("right"), "{errors}");
    assert!(fs::read(place.path("back/right")).unwrap() == bytes && !place.path("back/wrong").exists());
    // The hash is of all bytes: none of them is passed on as good.
    assert_eq!(fs::read(place.path("back/wrong.damaged")).unwrap(), vec![0; bytes.len()]);
    for (name, is_good) in [("right", true), ("wrong", false)] {
        let dumped = run(place, &["dump", &format!("latest:{name}")]);
        assert_eq!(dumped.status.success(), is_good, "{dumped:?}");
        assert!(!is_good || dumped.stdout == bytes);
        let node = entry_at(&writer.repository, Path::new(name));
        let file = Reader::open(&writer.repository).unwrap().file(node.content, node.size).unwrap();
        let mut space = [0; 100];
        assert_eq!(file.read_at(bytes.len() as u64 - 100, &mut space).is_ok(), is_good, "{name}");
    }
    let verified = String::from_utf8_lossy(&run(place, &["verify", "--sample", "100%"]).stdout).into_owned();
    assert!(verified.contains("wrong") && !verified.contains("right"), "{verified}");
    // Under another key the hash is another one, but only of bytes that the stored one fits.
    let target = Place::with_repository();
    target.run(&["upgrade"]);
    let from = place.repository();
    let copied = run(&target, &["copy", "--from-repo", from.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&copied.stderr);
    assert!(!copied.status.success() && errors.contains("wrong"), "{errors}");
    target.run(&["check", "--read-data"]);
    let restored = run(&target, &["restore", "latest", "--host", "future", "--target", "back"]);
    assert!(fs::read(target.path("back/right")).unwrap() == bytes, "{restored:?}");
    assert!(!target.path("back/wrong").exists());
}
