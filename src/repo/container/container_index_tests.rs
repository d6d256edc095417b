//! Container indexes round trip, and hostile bytes yield errors.

use proptest::prelude::*;

use super::*;
use crate::repo::container::layout::{Footer, HEADER_BYTES};

fn footer_for(builder: &ContainerIndexBuilder, bytes: &[u8]) -> Footer {
    let frames = builder.frames();
    let end = frames.last().map_or(HEADER_BYTES as u64, |frame| frame.offset + frame.stored_bytes() as u64);
    let mut checksum = [0u8; 16];
    checksum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    Footer {
        index_offset: end,
        padding: 0,
        index_len: bytes.len() as u64,
        entries: builder.entries().len() as u32,
        frames: frames.len() as u32,
        index_checksum: checksum,
    }
}

fn builder(shapes: &[EntryShape]) -> ContainerIndexBuilder {
    let mut builder = ContainerIndexBuilder::default();
    let mut offset = HEADER_BYTES as u64;
    for (number, (seed, literal, copies, features)) in shapes.iter().enumerate() {
        let literal_len = u32::from(*literal);
        let info = FrameInfo { offset, stored_len: literal_len / 2, raw_len: literal_len, codec: 1 };
        offset += info.stored_bytes() as u64;
        let frame = builder.push_frame(info).unwrap();
        let mut list = OperationList::default();
        // One entry in four is a delta.
        let is_delta = number % 4 == 3 && !copies.is_empty();
        for (base, at, len) in copies {
            let base = Base { fingerprint: Fingerprint([*base; 32]), digest: u64::from(*base) };
            let slot = list.bases.len() as u32;
            list.bases.push(base);
            let (offset, len) = (u32::from(*at), u32::from(*len) + 1);
            list.operations.push(if is_delta {
                Operation::Delta { base: slot, offset, len }
            } else if at % 2 == 0 {
                Operation::Copy { base: slot, offset, len }
            } else {
                Operation::LiteralCopy { base: slot, offset, len }
            });
        }
        if !is_delta && !list.operations.is_empty() && literal_len > 0 {
            list.operations.push(Operation::Add { len: literal_len });
        }
        let copied: u32 = copies.iter().map(|copy| u32::from(copy.2) + 1).sum();
        let fields = EntryFields {
            fingerprint: Fingerprint([*seed; 32]),
            raw_len: literal_len + copied,
            frame,
            literal_offset: 0,
            literal_len,
            depth: 1 + (number % 5) as u8,
        };
        let features: Vec<u64> = features.iter().map(|feature| feature >> 8).collect();
        builder.push_entry(fields, &list, &features).unwrap();
    }
    builder
}

/// Seed of the fingerprint, literal bytes, copies (base, offset, length - 1), features.
type EntryShape = (u8, u16, Vec<(u8, u16, u16)>, Vec<u64>);
type IndexShape = Vec<EntryShape>;

fn index_shapes() -> impl Strategy<Value = IndexShape> {
    let copies = prop::collection::vec((any::<u8>(), any::<u16>(), any::<u16>()), 0..6);
    let features = prop::collection::vec(any::<u64>(), 0..9);
    prop::collection::vec((any::<u8>(), any::<u16>(), copies, features), 0..40)
}

proptest! {
    #[test]
    fn container_indexes_round_trip(shapes in index_shapes()) {
        let builder = builder(&shapes);
        let bytes = builder.encode().expect("encodes");
        let footer = footer_for(&builder, &bytes);
        let parsed = ContainerIndex::parse("test", &footer, &bytes).expect("parses");
        let direct = builder.finish();
        prop_assert_eq!(&parsed, &direct);
        let names: Vec<Fingerprint> = direct.entries.iter().map(|entry| entry.fingerprint).collect();
        prop_assert_eq!(ContainerIndex::parse_fingerprints("test", &footer, &bytes).expect("parses"), names);
        for entry in &direct.entries {
            let base = Base { fingerprint: entry.fingerprint, digest: direct.digest(entry) };
            let found = parsed.find_encoding(&base).expect("finds an entry by its name");
            prop_assert_eq!(parsed.entries[found as usize].fingerprint, entry.fingerprint);
            prop_assert!(parsed.find(&entry.fingerprint).is_some());
        }
    }

    #[test]
    fn hostile_bytes_yield_errors(shapes in index_shapes(), at in any::<prop::sample::Index>(), byte: u8) {
        let builder = builder(&shapes);
        let mut bytes = builder.encode().expect("encodes");
        let position = at.index(bytes.len());
        bytes[position] = byte;
        // The checksum matches the damage, so the parser itself must find it.
        let footer = footer_for(&builder, &bytes);
        let names = ContainerIndex::parse_fingerprints("test", &footer, &bytes);
        if let Ok(parsed) = ContainerIndex::parse("test", &footer, &bytes) {
            prop_assert!(names.is_ok_and(|names| names.len() == parsed.entries.len()));
            for entry in &parsed.entries {
                let operations = parsed.operations(entry);
                // A changed byte may name an operation of a newer version, which this one refuses to apply.
                if parsed.check_known(entry).is_err() {
                    let is_unknown = |operation: &Operation| operation.check_known().is_err();
                    prop_assert!(operations.iter().any(is_unknown));
                    continue;
                }
                let total: u64 = operations.iter().map(|operation| u64::from(operation.len())).sum();
                let is_delta = |operation: &Operation| matches!(operation, Operation::Delta { .. });
                let makes_chunk = total == u64::from(entry.raw_len) && !operations.iter().any(is_delta);
                prop_assert!(operations.is_empty() || makes_chunk || operations.iter().all(is_delta));
            }
        }
    }
}

#[test]
fn fingerprints_with_one_prefix_are_distinguished() {
    let named = |last: u8| {
        let mut bytes = [5; 32];
        bytes[31] = last;
        Fingerprint(bytes)
    };
    let mut builder = ContainerIndexBuilder::default();
    let frame = builder.push_frame(FrameInfo { offset: 48, stored_len: 9, raw_len: 9, codec: 0 }).unwrap();
    // Of equal fingerprints the first one is found.
    for last in [9, 2, 7, 2] {
        let (fingerprint, raw_len) = (named(last), 1);
        let fields = EntryFields { fingerprint, raw_len, frame, literal_offset: 0, literal_len: 1, depth: 1 };
        builder.push_entry(fields, &OperationList::default(), &[]).unwrap();
    }
    let container_index = builder.finish();
    let found = |last| container_index.find(&named(last));
    assert_eq!([9, 2, 7, 1, 8, 10].map(found), [Some(0), Some(1), Some(2), None, None, None]);
    let encoding = |last, digest| container_index.find_encoding(&Base { fingerprint: named(last), digest });
    assert_eq!((encoding(7, 0), encoding(2, 0), encoding(8, 0), encoding(7, 1)), (Some(2), Some(1), None, None));
}
