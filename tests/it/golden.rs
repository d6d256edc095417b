//! The bytes of small structures, frozen: whoever changes one of these changes the format.
//!
//! Nothing here depends on what zstd makes of its input: what is asserted byte for byte is stored raw, and zstd data
//! is only decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fhrd::Error;
use fhrd::codec::{ByteGroupLayout, Codec, Planes, Scratch};
use fhrd::repo::ColdStore;
use fhrd::repo::container::{
    Base, ContainerIndex, ContainerKind, ContainerWriter, EntryFields, FOOTER_BYTES, Footer, Operation, OperationList,
    SealedContainer, StoredFrame, decode_frame, operations_digest, parse_header,
};
use fhrd::repo::index::{IndexRecord, IndexSegment, NewSegment, read_container_index, write_segment};
use fhrd::repo::rebuilt::{ContentPart, OPENED};
use fhrd::repo::recipe::{ContentReference, RecipeBuilder, decode_recipe};
use fhrd::repo::snapshot::Snapshot;
use fhrd::store::{BlobName, Durable, MemoryStore, Store, StoreExt};
use fhrd::types::{ContainerId, Fingerprint, RepositoryKey, hex};
use fhrd::wire::Envelope;

use crate::double::named;
use crate::trees::Random;

fn fingerprint(seed: u64) -> Fingerprint {
    Fingerprint(Random(seed).bytes(32).try_into().unwrap())
}

/// Compares bytes with hex digits in which white space does not count.
pub fn assert_bytes(got: &[u8], want: &str, what: &str) {
    assert_eq!(hex(got), want.split_whitespace().collect::<String>(), "{what}");
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_envelope() {
    let blob = Envelope::new(*b"FHRDTEST").seal(b"abc");
    assert_bytes(
        &blob,
        "4648524454455354 0100 0000000000000000 0000000000000000 0300000000000000 616263
         e079b6d92191e4273f50223fd6d506d4b6784dd5ce4a047b1f4cb2972b34fbfd",
        "envelope",
    );
}

#[test]
fn fingerprints_and_seeds() {
    let key = RepositoryKey([7; 32]);
    assert_bytes(
        &key.fingerprint(b"abc").0,
        "b1495225f01fa8cd09e410d288d09b68c1cc9fb2414686c0d3ac13fc905497d9",
        "fingerprint",
    );
    assert_eq!(key.seed("chunker"), 0xb46593298da55867);
}

fn body() -> OperationList {
    OperationList {
        operations: vec![
            Operation::Copy { base: 0, offset: 100, len: 50 },
            Operation::Add { len: 4 },
            Operation::LiteralCopy { base: 1, offset: 7, len: 300 },
        ],
        bases: vec![
            Base { fingerprint: fingerprint(1), digest: 0 },
            Base { fingerprint: fingerprint(2), digest: 0x0102_0304_0506_0708 },
        ],
    }
}

#[test]
fn a_reference_of_rebuilt_content() {
    let source = ContentPart { level: 2, fingerprint: Fingerprint([0xab; 32]), len: 300 };
    let corrections = Some(ContentPart { level: 0, fingerprint: Fingerprint([0xef; 32]), len: 7 });
    let reference =
        ContentReference::Rebuilt { transform: OPENED, source, corrections, hash: Fingerprint([0xcd; 32]), len: 5 };
    let bytes = minicbor::to_vec(reference).unwrap();
    assert_bytes(
        &bytes,
        "86 03 01
         84 01 02 5820 abababababababababababababababababababababababababababababababab 19012c
         83 00 5820 efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef 07
         5820 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd 05",
        "rebuilt content",
    );
    assert_eq!(minicbor::decode::<ContentReference>(&bytes).unwrap(), reference);
}

#[test]
fn a_body_digest() {
    let body = body();
    assert_eq!(operations_digest(&body.operations, &body.bases), 0xf8cd7984b89835e7);
    assert_eq!(operations_digest(&[], &[]), 0);
}

/// A container with a whole chunk and one with operations.
fn container() -> SealedContainer {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
    let frame = StoredFrame { codec: 0, raw_len: 12, payload: Bytes::from_static(b"hello, world") };
    assert_eq!(writer.push_frame(&frame).unwrap(), 0);
    let whole =
        EntryFields { fingerprint: fingerprint(3), raw_len: 8, frame: 0, literal_offset: 0, literal_len: 8, depth: 1 };
    writer.push_entry(whole, &OperationList::default(), &[0x0005_1122_3344_5566]).unwrap();
    let copied =
        EntryFields { fingerprint: fingerprint(4), raw_len: 354, literal_offset: 8, literal_len: 4, depth: 2, ..whole };
    writer.push_entry(copied, &body(), &[]).unwrap();
    writer.seal().unwrap()
}

#[test]
fn a_container() {
    let sealed = container();
    let bytes = sealed.parts.concat();
    assert_bytes(
        &bytes,
        "
         46485244434f4e5401000000000000000000000000000000000000000000000007070707070707070707070707070707
         5c0194b62306c13df1d70e4afccf8880000000000c0000000c000000000000004633a328fadbf87330c863579a573262
         68656c6c6f2c20776f726c6401000303000c0c0100515102c15c0289ec2d0a9167ec8e65a18debbe5e5532fbeea293f8
         0bc942ee9086c1710000000000000000ce56971cde355897421efc0b1046c8bf2f537eddbfbc7b9864f6e7ff7a82f2c3
         080706050403020101004040ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9ccfc9ab66fb64a712ca8a33e2
         72e3736e30b0984b6ac674e45f847b8efc19efdb9ef8f3260cebe47d0100101008e20200de0200000000010200030100
         010007070566554433221101000e0e030100023204ac020002c8019d026c00000000000000d100000000000000020000
         0001000000513e86195b15777d14a7ad627d253c06000000000000000015898212f1cc914a46485244464f4f54",
        "container",
    );
    assert_eq!(sealed.id().0, *blake3::hash(&bytes).as_bytes());
    assert_eq!(sealed.blob_name().as_str(), format!("containers/{}/{}", &sealed.id().to_string()[..2], sealed.id()));
    assert_eq!(parse_header("x", &bytes[..64]).unwrap(), ContainerKind::Data);

    let footer = Footer::parse("x", bytes.len() as u64, &bytes[bytes.len() - FOOTER_BYTES..]).unwrap();
    let range = footer.index_offset as usize..bytes.len() - FOOTER_BYTES;
    let container_index = ContainerIndex::parse("x", &footer, &bytes[range]).unwrap();
    assert_eq!(container_index, sealed.container_index);
    let info = container_index.frames[0];
    let stored = &bytes[info.offset as usize..][..info.stored_bytes()];
    assert_eq!(decode_frame("x", &info, stored, &mut Scratch::default()).unwrap(), b"hello, world");
    let entry = container_index.entries[1];
    assert_eq!(
        (container_index.operations(&entry), container_index.digest(&entry)),
        (&body().operations[..], 0xf8cd7984b89835e7)
    );
    assert_eq!(container_index.features(&container_index.entries[0]), [0x0005_1122_3344_5566]);
}

#[test]
fn a_hot_index() {
    let store = Arc::new(MemoryStore::new());
    let cold = ColdStore::new(store.clone());
    cold.cold_state().unwrap().set(true);
    let id = container().store(&cold).unwrap();
    let name = BlobName::hot_index_of(&id.0);
    assert_eq!(name.as_str(), format!("indexes/{id}.index"));
    assert_bytes(
        &store.get(&name, 1 << 10).unwrap(),
        "
         46485244434f4e5401000000000000000000000000000000000000000000000007070707070707070707070707070707
         5c0194b62306c13df1d70e4afccf888001000303000c0c0100515102c15c0289ec2d0a9167ec8e65a18debbe5e5532fb
         eea293f80bc942ee9086c1710000000000000000ce56971cde355897421efc0b1046c8bf2f537eddbfbc7b9864f6e7ff
         7a82f2c3080706050403020101004040ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9ccfc9ab66fb64a712
         ca8a33e272e3736e30b0984b6ac674e45f847b8efc19efdb9ef8f3260cebe47d0100101008e20200de02000000000102
         00030100010007070566554433221101000e0e030100023204ac020002c8019d026c00000000000000d1000000000000
         000200000001000000513e86195b15777d14a7ad627d253c06000000000000000015898212f1cc914a46485244464f4f
         54bb40fd48c88301530f24c91693a277f3b6d426ed7bcc69bf5c4985969bece84e5e2f572a77be01fa2c5818ec13cddc
         33",
        "hot index",
    );
}

#[test]
fn a_container_with_an_unknown_feature_is_refused() {
    let sealed = ContainerWriter::new(ContainerKind::Data, &[7; 16]).seal().unwrap();
    let mut bytes = sealed.parts.concat();
    let store = MemoryStore::new();
    store.put_if_absent(&sealed.blob_name(), &[&bytes]).unwrap();
    read_container_index(&store, &sealed.id()).unwrap();
    bytes[12] = 4;
    let checksum = blake3::hash(&bytes[..48]);
    bytes[48..64].copy_from_slice(&checksum.as_bytes()[..16]);
    store.delete(&sealed.blob_name(), Durable::OnReturn).unwrap();
    store.put_if_absent(&sealed.blob_name(), &[&bytes]).unwrap();
    assert!(matches!(
        read_container_index(&store, &sealed.id()),
        Err(Error::Unsupported { unknown, .. }) if unknown == "feature bits 0x4"
    ));
}

#[test]
fn an_index_segment() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let containers = [5, 6].map(|seed| ContainerId(fingerprint(seed).0));
    let record = |seed, container, entry| IndexRecord { fingerprint: fingerprint(seed), container, entry };
    let records = vec![record(3, 0, 0), record(4, 1, 258), record(3, 1, 7)];
    let name = write_segment(store.as_ref(), NewSegment::padded([7; 16]), &containers, &[], records).unwrap();
    let bytes = store.get(&name, 1 << 20).unwrap();
    assert_eq!(bytes.len(), 80 + 2 * 32 + 16 + 4096);
    assert_bytes(
        &bytes[..80 + 80 + 3 * 40],
        "
         464852445345474d01000000020000000000000000000000030000000000000000000000000000000000000000000000
         07070707070707070707070707070707281b02084e13d05b0835ee223d38b0575ac389a30c3b0363f83697934d3197c0
         47c16b10f0d3923b45b905dac24e6e1900e0efadd9a564bd99df5139b29d4172462faa72037d6c0e90dad0ed1298041b
         d84df5b2c2b904fce133ad4d7995bd95ca8a33e272e3736e30b0984b6ac674e45f847b8efc19efdb9ef8f3260cebe47d
         0100000002010000ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9ccfc9ab66fb64a7120000000000000000
         ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9ccfc9ab66fb64a7120100000007000000",
        "segment",
    );
    assert!(bytes[80 + 80 + 3 * 40..][..4096 - 120 - 16].iter().all(|byte| *byte == 0));
    assert_eq!(name.as_str(), format!("index/{}", blake3::hash(&bytes)));
    let segment = IndexSegment::open(store, &name).unwrap();
    assert_eq!(segment.find(&fingerprint(4)).unwrap(), [(containers[1], 258)]);
    assert_eq!(segment.find(&fingerprint(3)).unwrap(), [(containers[0], 0), (containers[1], 7)]);
}

#[test]
fn an_index_segment_with_a_short_page() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let containers = [5, 6].map(|seed| ContainerId(fingerprint(seed).0));
    let record = |seed, container, entry| IndexRecord { fingerprint: fingerprint(seed), container, entry };
    let records = vec![record(3, 0, 0), record(4, 1, 258), record(3, 1, 7)];
    let new = NewSegment { salt: [7; 16], shortens_page: true };
    let name = write_segment(store.as_ref(), new, &containers, &[], records).unwrap();
    let bytes = store.get(&name, 1 << 20).unwrap();
    assert_eq!(bytes.len(), 80 + 2 * 32 + 16 + 3 * 40 + 16);
    assert_bytes(
        &bytes,
        "
         464852445345474d01000000020000000000000000000000030000000000000001000000000000000000000000000000
         0707070707070707070707070707070702a89a069e8ae424e0c32ae1052e74685ac389a30c3b0363f83697934d3197c0
         47c16b10f0d3923b45b905dac24e6e1900e0efadd9a564bd99df5139b29d4172462faa72037d6c0e90dad0ed1298041b
         d84df5b2c2b904fce133ad4d7995bd95ca8a33e272e3736e30b0984b6ac674e45f847b8efc19efdb9ef8f3260cebe47d
         0100000002010000ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9ccfc9ab66fb64a7120000000000000000
         ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9ccfc9ab66fb64a712010000000700000047d90af4c4a67af1
         c5d4b69e64134617",
        "segment with a short page",
    );
    let segment = IndexSegment::open(store, &name).unwrap();
    assert_eq!(segment.find(&fingerprint(4)).unwrap(), [(containers[1], 258)]);
    assert_eq!(segment.find(&fingerprint(3)).unwrap(), [(containers[0], 0), (containers[1], 7)]);
}

#[test]
fn a_recipe() {
    let mut builder = RecipeBuilder::default();
    let mut stored = Vec::new();
    let mut store = |bytes: Vec<u8>| {
        stored.push(bytes);
        Ok(fingerprint(9))
    };
    let references = [
        ContentReference::Chunk { fingerprint: fingerprint(3), len: 65_536 },
        ContentReference::Hole { len: 1 << 20 },
        ContentReference::Hole { len: 1 },
        ContentReference::Chunk { fingerprint: fingerprint(4), len: 5 },
    ];
    references.into_iter().for_each(|reference| builder.push(reference, &mut store).unwrap());
    let content = builder.finish(&mut store).unwrap().unwrap();
    let len = 65_536 + (1 << 20) + 1 + 5;
    assert_eq!(content, ContentReference::Recipe { level: 1, fingerprint: fingerprint(9), len });
    assert_eq!(stored.len(), 1);
    assert_bytes(
        &stored[0],
        "
         52018383005820ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9ccfc9ab66fb64a7121a0001000082021a00
         10000183005820ca8a33e272e3736e30b0984b6ac674e45f847b8efc19efdb9ef8f3260cebe47d05",
        "recipe",
    );
    assert_eq!(decode_recipe(&fingerprint(9), 1, len, &stored[0]).unwrap().len(), 3);
}

#[test]
fn recipes_end_where_a_fingerprint_says() {
    let mut builder = RecipeBuilder::default();
    let mut lens = Vec::new();
    let mut store = |bytes: Vec<u8>| {
        lens.push(bytes.len());
        Ok(fingerprint(1 << 40 | lens.len() as u64))
    };
    for seed in 0..6000 {
        builder.push(ContentReference::Chunk { fingerprint: fingerprint(seed), len: 1 }, &mut store).unwrap();
    }
    let content = builder.finish(&mut store).unwrap();
    assert!(matches!(content, Some(ContentReference::Recipe { level: 2, len: 6000, .. })), "{content:?}");
    assert_eq!(
        lens,
        [262, 21058, 38855, 14916, 19874, 558, 23537, 5998, 13954, 7552, 2742, 11734, 1003, 31344, 28347, 336, 633]
    );
}

#[test]
fn a_snapshot() {
    let store = MemoryStore::new();
    let snapshot = Snapshot {
        time_ns: 1_600_000_000_123_456_789,
        host: "host".into(),
        user: "user".into(),
        paths: vec![b"/a\xff".to_vec().into()],
        root: Some(ContentReference::Hole { len: 3 }),
        parent: None,
        tags: vec!["tag".into()],
        program: "fhrd 0".into(),
        statistics: BTreeMap::from([("files".into(), 2)]),
        unknown: Default::default(),
        extra: BTreeMap::new(),
        root_node: None,
        intent: Some(vec![7; 16]),
    };
    let id = snapshot.save(&store).unwrap();
    let blob = store.get(&named(&format!("snapshots/{id}")), 1 << 20).unwrap();
    assert_bytes(
        &blob,
        "
         46485244534e41500100000000000000000000000000000000004c00000000000000aa001b16345785dffbcd15016468
         6f73740264757365720381432f61ff04820203068163746167076666687264203008a16566696c65730209a00b500707
         0707070707070707070707070707acffc8ebc348fab83688757c0c27a163b625a9bd5b0bae25a14709fcba3c7148",
        "snapshot",
    );
    assert_eq!(Snapshot::load(&store, &id).unwrap(), snapshot);
}

#[test]
fn a_planes_payload() {
    let raw: Vec<u8> = (0..11).collect();
    let mut payload = Vec::new();
    let stored = ByteGroupLayout::new(4, 0).unwrap();
    Planes.encode_layout(stored, &raw, 1, &mut Scratch::default(), &mut payload).unwrap();
    assert_bytes(&payload, "04 00 0004 0105 0206 0307 08090a", "planes, nothing compressed");

    // Words of 2 bytes whose high byte is 0x3f, and one byte after the last word. The zstd frame is made by hand: one
    // segment of 40 bytes, one block that repeats a byte.
    let raw: Vec<u8> = (0..40u8).flat_map(|low| [low, 0x3f]).chain([0x99]).collect();
    let golden = unhex(
        "02 02 0a000000
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627
         28b52ffd 20 28 430100 3f 99",
    );
    let mut decoded = Vec::new();
    Planes.decode(&golden, raw.len(), &mut Scratch::default(), &mut decoded).unwrap();
    assert_eq!(decoded, raw);
    payload.clear();
    Planes
        .encode_layout(ByteGroupLayout::new(2, 0b10).unwrap(), &raw, 1, &mut Scratch::default(), &mut payload)
        .unwrap();
    let compressed_len = u32::from_le_bytes(payload[2..6].try_into().unwrap()) as usize;
    assert_eq!(payload[..2], [2, 0b10]);
    assert_eq!(payload[6..46], (0..40u8).collect::<Vec<_>>());
    assert_eq!((payload.len(), payload.last()), (46 + compressed_len + 1, Some(&0x99)));
}
