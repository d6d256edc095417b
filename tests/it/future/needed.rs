//! Entries of a newer version, and others that copy from them: what a snapshot needs of them stops a prune each time,
//! and what it does not need stops none.

use fhrd::repo::container::{Base, Operation, OperationList, operations_digest};
use fhrd::repo::recipe::ContentReference;

use serde_json::Value;

use super::writer::{FUTURE, GOOD, Writer, node, run, set_kind};
use super::{Expected, assert_kept};

/// Kind of the operation.
const KIND: u8 = 9;

fn reversed() -> Vec<u8> {
    FUTURE.iter().rev().copied().collect()
}

/// Adds the entry of [`reversed`] that only a newer version can read. Returns its content, and its name as a base.
fn unknown(writer: &mut Writer) -> (ContentReference, Base) {
    writer.edit = |bytes| set_kind(bytes, KIND);
    let len = FUTURE.len() as u32;
    let content = writer.operation(KIND);
    let source = writer.repository.key.fingerprint(FUTURE);
    let bases = [Base { fingerprint: source, digest: 0 }];
    let digest = operations_digest(&[Operation::Unknown { kind: KIND, base: Some((0, 0)), len }], &bases);
    (content, Base { fingerprint: content.fingerprint().unwrap(), digest })
}

/// Adds the chunk of a range of [`reversed`], copied from `base`.
fn copied(writer: &mut Writer, base: Base, offset: usize, len: usize) -> ContentReference {
    let operation = Operation::Copy { base: 0, offset: offset as u32, len: len as u32 };
    let list = OperationList { operations: vec![operation], bases: vec![base] };
    let fingerprint = writer.entry(false, &reversed()[offset..][..len], (0, b"unused"), 0, &list).fingerprint;
    ContentReference::Chunk { fingerprint, len: len as u64 }
}

#[test]
fn a_prune_refuses_for_each_snapshot_that_needs_what_a_newer_version_wrote() {
    let (mut writer, half) = (Writer::new(false), FUTURE.len() / 2);
    let (_, base) = unknown(&mut writer);
    // Another entry serves in place of the first copy, and none in place of the second one.
    let first = copied(&mut writer, base, 0, half);
    writer.whole(&reversed()[..half]);
    let second = copied(&mut writer, base, half, 10);
    let good = writer.chunk(GOOD);
    // The walk takes the last one first.
    let root = writer.listing(&[
        node("future", 10, Some(second), 0, &[]),
        node("good", GOOD.len(), Some(good), 0, &[]),
        node("healed", half, Some(first), 0, &[]),
    ]);
    writer.put_containers();
    writer.put_snapshot(root, 1);
    assert_kept("bases of a newer version", &writer, false, Expected::Unsupported);
}

#[test]
fn a_prune_leaves_behind_what_a_newer_version_wrote_and_another_entry_gives() {
    let mut writer = Writer::new(false);
    let (content, _) = unknown(&mut writer);
    // The other one comes after it, and the container has more than that.
    writer.entry(true, &reversed(), (0, &reversed()), FUTURE.len() as u32, &OperationList::default());
    writer.coded(0, &[5; 4000]);
    let root = writer.listing(&[node("healed", FUTURE.len(), Some(content), 0, &[])]);
    writer.put_containers();
    writer.put_snapshot(root, 1);
    let output = run(&writer.place, false, &["prune", "--grace", "0s"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["containers_deleted"].as_u64().unwrap() > 0, "{report}");
    let output = run(&writer.place, false, &["restore", "latest", "--host", "future", "--target", "back"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(writer.place.path("back/healed")).unwrap(), reversed());
}
