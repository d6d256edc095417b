//! What a newer version wrote is never damage: for each extension point of the format, every verb of this version
//! refuses or keeps everything, quarantines nothing, and restores the rest byte for byte.

mod needed;
pub mod writer;

use std::collections::BTreeMap;
use std::fs;

use fhrd::repo::container::Operation;
use fhrd::repo::recipe::ContentReference;
use fhrd::store::StoreExt;
use fhrd::types::hex;
use serde_json::Value;

use crate::double::named;
use crate::input::files;
use writer::{FEATURE, FUTURE, GOOD, Writer, node, run, set_container_feature, set_kind};

/// What this version must do with a repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// It cannot read a part: a check says so, and a prune refuses.
    Unsupported,
    /// As before, in the bytes of a frame: only what reads these notices, and a prune may keep them as they are.
    InBytes,
    /// As before, but nothing that snapshots need is concerned.
    UnneededUnsupported,
    /// Only a prune looks at it, and refuses.
    OfPrunes,
    /// It may ignore what it does not know.
    Ignored,
}
use Expected::{Ignored, InBytes, OfPrunes, UnneededUnsupported, Unsupported};

/// Verbs, in this order. Each sees what the ones before it have done.
const VERBS: [&str; 22] = [
    "check",
    "check --read-data",
    "ls latest",
    "snapshots",
    "find *",
    "stats",
    "stats latest",
    "stats --by-snapshot",
    "diff latest latest",
    "dump latest --output archive",
    "backup source",
    "tag latest --add seen",
    "rewrite --exclude nothing",
    "copy --dry-run --from-repo repository",
    "forget --keep-last 99 --prune --grace 0s",
    "repair index",
    "repair containers",
    "repair snapshots --forget",
    "prune --grace 0s --dry-run",
    "prune --grace 0s",
    "check --read-data",
    "check --without-key",
];

/// The blobs that a newer version wrote. Snapshots may be replaced by `tag`, and segments by a repair.
fn kept(writer: &Writer) -> BTreeMap<String, Vec<u8>> {
    let root = writer.place.repository();
    let names = files(&root).into_iter().filter(|name| !name.starts_with("index/"));
    names.map(|name| (name.clone(), fs::read(root.join(&name)).unwrap())).collect()
}

fn assert_kept(name: &str, writer: &Writer, is_encrypted: bool, expected: Expected) {
    let place = &writer.place;
    fs::create_dir(place.path("source")).unwrap();
    fs::write(place.path("source/good"), GOOD).unwrap();
    let before = kept(writer);
    for verb in VERBS {
        let words: Vec<&str> = verb.split(' ').collect();
        let output = run(place, is_encrypted, &words);
        let (code, errors) = (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(matches!(code, Some(0 | 1 | 3)), "{name}, {verb}: {code:?}: {errors}");
        let after = kept(writer);
        for (blob, bytes) in &before {
            let is_same = after.get(blob) == Some(bytes) || is_tagged(blob, &before, &after);
            assert!(is_same, "{name}, {verb}: {blob} is gone: {errors}");
        }
        let marks: Vec<&String> =
            after.keys().filter(|blob| blob.starts_with("marks/") && !before.contains_key(*blob)).collect();
        assert!(marks.is_empty(), "{name}, {verb}: {marks:?}");
        if verb.starts_with("check") && !verb.contains("without") {
            let report: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{name}, {verb}: {errors}"));
            assert_eq!(report["defect_count"], 0, "{name}, {verb}: {report}");
            let is_newer = report["newer_count"] != 0;
            assert_eq!(code, Some(i32::from(is_newer)), "{name}, {verb}: {report}");
            let can_notice = expected != InBytes || verb.contains("read-data");
            assert_eq!(is_newer, !matches!(expected, Ignored | OfPrunes) && can_notice, "{name}, {verb}: {report}");
        }
        if verb == "prune --grace 0s" {
            assert!(code == Some(1) || !matches!(expected, Unsupported | OfPrunes), "{name}, {verb}: {errors}");
            assert!(
                code == Some(0) || matches!(expected, Unsupported | OfPrunes | InBytes),
                "{name}, {verb}: {errors}"
            );
            assert!(expected != Unsupported || errors.contains("newer fhrd"), "{name}, {verb}: {errors}");
        }
    }
    let output = run(place, is_encrypted, &["restore", "latest", "--host", "future", "--target", "back"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        fs::read(place.path("back/good")).ok().as_deref(),
        Some(GOOD),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Whether a snapshot has made place for one with more tags.
fn is_tagged(blob: &str, before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) -> bool {
    let count = |blobs: &BTreeMap<String, Vec<u8>>| blobs.keys().filter(|name| name.starts_with("snapshots/")).count();
    blob.starts_with("snapshots/") && count(after) >= count(before)
}

/// A snapshot of `good` and a file `future` with this content.
fn of_content(name: &str, is_encrypted: bool, expected: Expected, make: impl FnOnce(&mut Writer) -> ContentReference) {
    let mut writer = Writer::new(is_encrypted);
    let (content, good) = (make(&mut writer), writer.chunk(GOOD));
    let size = content.content_len() as usize;
    let nodes = [node("future", size, Some(content), 0, &[]), node("good", GOOD.len(), Some(good), 0, &[])];
    let root = writer.listing(&nodes);
    writer.put_containers();
    writer.put_snapshot(root, 1);
    assert_kept(name, &writer, is_encrypted, expected);
}

/// A snapshot of `good` and a raw node.
fn of_node(name: &str, expected: Expected, make: impl FnOnce(&mut Writer) -> Vec<u8>) {
    let mut writer = Writer::new(false);
    let (future, good) = (make(&mut writer), writer.chunk(GOOD));
    let root = writer.listing(&[future, node("good", GOOD.len(), Some(good), 0, &[])]);
    writer.put_containers();
    writer.put_snapshot(root, 1);
    assert_kept(name, &writer, false, expected);
}

/// A snapshot of `good`, and whatever `put` stores beside it.
fn beside(name: &str, is_encrypted: bool, expected: Expected, put: impl FnOnce(&mut Writer, ContentReference)) {
    let mut writer = Writer::new(is_encrypted);
    let good = writer.chunk(GOOD);
    let root = writer.listing(&[node("good", GOOD.len(), Some(good), 0, &[])]);
    put(&mut writer, root);
    writer.put_containers();
    writer.put_snapshot(root, 1);
    assert_kept(name, &writer, is_encrypted, expected);
}

#[test]
fn operations_of_unknown_kinds_cost_their_entries() {
    for (kind, edit) in
        [(9, (|bytes: &mut [u8]| set_kind(bytes, 9)) as fn(&mut [u8])), (200, |bytes: &mut [u8]| set_kind(bytes, 200))]
    {
        of_content(&format!("operation {kind}"), kind == 9, Unsupported, |writer| {
            writer.edit = edit;
            writer.operation(kind)
        });
    }
    assert_eq!(Operation::Unknown { kind: 9, base: None, len: 3 }.len(), 3);
}

#[test]
fn derivations_and_modes_of_deltas_cost_their_chunks() {
    // The first byte has the derivation and the phase, the next one the mode.
    let payloads: [(&str, &[u8]); 5] = [
        ("derivation 14", &[14, 0, 0]),
        ("a long derivation", &[15, 0xac, 0x02, 0]),
        ("mode", &[5, 99, 1]),
        ("conversion", &[7, 9, 0]),
        ("plane mode", &[5, 1, 0x05, 9, 9]),
    ];
    for (name, literals) in payloads {
        of_content(name, false, InBytes, |writer| writer.delta(literals));
    }
}

#[test]
fn codecs_and_modes_of_planes_cost_their_frames() {
    for (name, codec, payload) in
        [("codec", 99, &b"?"[..]), ("plane mode", 3, &[0x01, 9, 9]), ("layout", 3, &[0xc1, 0])]
    {
        of_content(name, codec == 99, InBytes, |writer| writer.coded(codec, payload));
    }
}

#[test]
fn features_of_containers_and_segments_cost_these() {
    for is_encrypted in [false, true] {
        of_content("feature of a container", is_encrypted, Unsupported, |writer| {
            writer.edit = set_container_feature;
            writer.coded(0, FUTURE)
        });
    }
    of_content("kind of container", false, Unsupported, |writer| {
        writer.edit = |bytes| bytes[10] = 7;
        writer.coded(0, FUTURE)
    });
    beside("feature of a segment", false, UnneededUnsupported, |writer, _| writer.is_new_segment = true);
}

#[test]
fn recipes_of_newer_versions_cost_their_files() {
    let recipe = |bytes: Vec<u8>| {
        move |writer: &mut Writer| {
            let fingerprint = writer.whole(&bytes).fingerprint;
            ContentReference::Recipe { level: 1, fingerprint, len: 9 }
        }
    };
    of_content("version of a recipe", false, Unsupported, recipe(b"R\x02anything".to_vec()));
    // Variant 4, or another transform, with a text and a length, then a hole.
    let unknown: [&[u8]; 2] = [&[0x83, 0x04, 0x61, b'x', 0x05], &[0x84, 0x03, 0x02, 0x61, b'x', 0x05]];
    for (name, unknown) in ["variant in a recipe", "transform in a recipe"].into_iter().zip(unknown) {
        let references = [&b"R\x01\x82"[..], unknown, &[0x82, 0x02, 0x04]].concat();
        of_content(name, name.starts_with('v'), Unsupported, recipe(references));
    }
}

#[test]
fn nodes_of_newer_versions_cost_their_entries() {
    of_node("kind of entry", Unsupported, |_| node("future", 0, None, 9, &[]));
    of_node("required key", Unsupported, |_| node("future", 0, None, 0, &[(200, &[0x01])]));
    of_node("variant of a reference", Unsupported, |_| {
        node("future", 9, None, 0, &[(18, &[0x83, 0x04, 0x61, b'x', 0x09])])
    });
    of_node("transform of content", Unsupported, |_| {
        node("future", 9, None, 0, &[(18, &[0x84, 0x03, 0x02, 0x61, b'x', 0x09])])
    });
    of_node("optional key", Ignored, |_| node("future", 0, None, 0, &[(100, &[0x82, 0x01, 0x61, b'x'])]));
}

#[test]
fn snapshots_of_newer_versions_cost_themselves() {
    let name_of = |hash: &[u8; 32]| format!("snapshots/{}", hex(hash));
    let payload = |keys: &[u8], more: &[u8]| {
        let count = 0xa8 + u8::from(!keys.is_empty()) + u8::from(!more.is_empty());
        let head = [count, 0x00, 0x02, 0x01, 0x61, b'h', 0x02, 0x60, 0x03, 0x80];
        [&head[..], keys, &[0x06, 0x80, 0x07, 0x60, 0x08, 0xa0, 0x09, 0xa0], more].concat()
    };
    let variants = payload(&[0x04, 0x83, 0x04, 0x61, b'x', 0x09], &[]);
    let required = payload(&[], &[0x18, 200, 0x01]);
    for (name, features, payload) in [
        ("feature of a snapshot", FEATURE, &b"anything"[..]),
        ("variant in a snapshot", 0, &variants),
        ("required key of a snapshot", 0, &required),
    ] {
        beside(name, features != 0, Unsupported, |writer, _| _ = writer.put(b"FHRDSNAP", features, payload, name_of));
    }
}

#[test]
fn other_blobs_of_newer_versions_stay() {
    type NameOf = fn(&[u8; 32]) -> String;
    let blobs: [(&[u8; 8], NameOf, Expected); 5] = [
        (b"FHRDSIML", |hash| format!("similarity/{}", hex(hash)), Ignored),
        (b"FHRDBNDL", |hash| format!("bundles/{}", hex(hash)), Ignored),
        (b"FHRDMODL", |hash| format!("models/{}", hex(hash)), UnneededUnsupported),
        (b"FHRDMARK", |hash| format!("marks/optional/{}", hex(hash)), UnneededUnsupported),
        (b"FHRDCLAM", |hash| format!("pending/{}", &hex(hash)[..32]), OfPrunes),
    ];
    for (magic, name_of, expected) in blobs {
        let name = String::from_utf8_lossy(magic).into_owned();
        beside(&name, magic == b"FHRDMARK", expected, |writer, _| _ = writer.put(magic, FEATURE, b"?", name_of));
    }
    let unknown_mark = [0xa4, 0x00, 0x65, b'n', b'o', b'v', b'e', b'l', 0x01, 0x00, 0x02, 0x60, 0x03, 0x40];
    beside("kind of optional mark", false, Ignored, |writer, _| {
        writer.put(b"FHRDMARK", 0, &unknown_mark, |hash| format!("marks/optional/{}", hex(hash)));
    });
    beside("unknown directories", true, Ignored, |writer, _| {
        for name in ["parity/00", "hot/index", "similarity/00", "anything/else"] {
            writer.repository.store.put_if_absent(&named(name), &[b"of a newer version"]).unwrap();
        }
    });
}
