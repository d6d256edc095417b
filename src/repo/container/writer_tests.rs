//! A faulty entry is refused before it can spoil its container.

use super::*;
use crate::error::{Error, ErrorKind};
use crate::repo::container::{Base, FOOTER_BYTES, Operation};
use crate::types::Fingerprint;

const WHOLE: EntryFields = EntryFields {
    fingerprint: Fingerprint([1; 32]),
    raw_len: 10,
    frame: 0,
    literal_offset: 0,
    literal_len: 10,
    depth: 1,
};

fn one_frame() -> ContainerWriter {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
    let frame = StoredFrame { codec: 0, raw_len: 10, payload: Bytes::from_static(b"0123456789") };
    assert_eq!(writer.push_frame(&frame).unwrap(), 0);
    writer
}

fn copy_of(operations: Vec<Operation>) -> OperationList {
    OperationList { operations, bases: vec![Base { fingerprint: Fingerprint([9; 32]), digest: 3 }] }
}

/// Entries that a reader refuses.
fn faulty() -> Vec<(EntryFields, OperationList)> {
    let copied = EntryFields { literal_len: 0, depth: 2, ..WHOLE };
    let whole = OperationList::default;
    let copy = |base, offset, len| Operation::Copy { base, offset, len };
    vec![
        (EntryFields { raw_len: 11, ..WHOLE }, whole()),
        (EntryFields { raw_len: 9, ..WHOLE }, whole()),
        (EntryFields { raw_len: u32::MAX, literal_len: u32::MAX, ..WHOLE }, whole()),
        (EntryFields { literal_offset: 1, ..WHOLE }, whole()),
        (EntryFields { frame: 1, ..WHOLE }, whole()),
        (EntryFields { depth: 0, ..WHOLE }, whole()),
        (EntryFields { depth: 65, ..WHOLE }, whole()),
        (copied, copy_of(vec![copy(0, 5, 9)])),
        (copied, copy_of(vec![copy(0, 5, 11)])),
        (copied, copy_of(vec![copy(1, 5, 10)])),
        (copied, copy_of(vec![copy(0, u32::MAX, 10)])),
        (copied, copy_of(vec![copy(0, 5, 10), Operation::Add { len: 0 }])),
        (copied, copy_of(vec![copy(0, 5, 5), Operation::Add { len: 5 }])),
        (copied, copy_of(vec![copy(0, 5, 5), Operation::Delta { base: 0, offset: 0, len: 5 }])),
    ]
}

#[test]
fn a_faulty_entry_is_refused_and_the_container_reads_back_without_it() {
    let mut expected = one_frame();
    let sound = copy_of(vec![Operation::Copy { base: 0, offset: 5, len: 10 }]);
    let copied = EntryFields { fingerprint: Fingerprint([2; 32]), literal_len: 0, depth: 2, ..WHOLE };
    expected.push_entry(WHOLE, &OperationList::default(), &[7]).unwrap();
    expected.push_entry(copied, &sound, &[8]).unwrap();
    let expected = expected.seal().unwrap();

    let mut writer = one_frame();
    writer.push_entry(WHOLE, &OperationList::default(), &[7]).unwrap();
    for (fields, list) in faulty() {
        let error = writer.push_entry(fields, &list, &[9]).unwrap_err();
        assert!(matches!(&error, Error::Internal { .. }) && error.kind() == ErrorKind::Internal, "{fields:?}: {error}");
    }
    writer.push_entry(copied, &sound, &[8]).unwrap();
    let sealed = writer.seal().unwrap();
    assert_eq!(sealed.id(), expected.id());

    let bytes = sealed.parts.concat();
    let (rest, footer) = bytes.split_at(bytes.len() - FOOTER_BYTES);
    let footer = Footer::parse("test", bytes.len() as u64, footer).unwrap();
    let parsed = ContainerIndex::parse("test", &footer, &rest[footer.index_offset as usize..]).unwrap();
    assert_eq!(parsed, sealed.container_index);
    assert_eq!(parsed.entries.len(), 2);
}

#[test]
fn a_frame_beyond_the_limit_is_refused() {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
    let frame = StoredFrame { codec: 0, raw_len: u32::MAX, payload: Bytes::new() };
    assert!(matches!(writer.push_frame(&frame), Err(Error::Internal { .. })));
    assert!(writer.is_empty() && writer.stored_bytes() == HEADER_BYTES as u64);
}

#[test]
fn padded_lengths_are_few_and_cost_little() {
    let expected = [(0, 0), (1, 1), (2, 2), (9, 10), (100, 104), (1000, 1024), (33_554_000, 33_554_432)];
    expected.iter().for_each(|(len, padded)| assert_eq!(padded_len(*len), *padded, "{len}"));
    let mut lengths = std::collections::BTreeSet::new();
    for len in 1u64..1 << 20 {
        let padded = padded_len(len);
        assert!(padded >= len && padded * 100 <= len * 112 + 100, "{len}: {padded}");
        assert_eq!(padded_len(padded), padded);
        lengths.insert(padded);
    }
    assert!(lengths.len() < 400, "{}", lengths.len());
}

#[test]
fn a_padded_container_reads_back_and_its_padding_is_counted() {
    let containers = NewContainers::new(Salts::fixed(1), true);
    let mut writer = containers.begin(ContainerKind::Data).unwrap();
    let frame = StoredFrame { codec: 0, raw_len: 10, payload: Bytes::from_static(b"0123456789") };
    writer.push_frame(&frame).unwrap();
    writer.push_entry(WHOLE, &OperationList::default(), &[]).unwrap();
    let sealed = writer.seal().unwrap();
    let bytes = sealed.parts.concat();
    assert_eq!((bytes.len() as u64, padded_len(sealed.len)), (sealed.len, sealed.len));
    let (rest, encoded) = bytes.split_at(bytes.len() - FOOTER_BYTES);
    let footer = Footer::parse("test", sealed.len, encoded).unwrap();
    assert!(footer.padding > 0, "{footer:?}");
    let index = &rest[footer.index_offset as usize..];
    assert_eq!(ContainerIndex::parse("test", &footer, index).unwrap(), sealed.container_index);
    for padding in [0, footer.padding - 1, footer.padding + 1, u64::MAX] {
        let error = ContainerIndex::parse("test", &Footer { padding, ..footer }, index).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    }
}
