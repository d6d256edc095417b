//! Counts what a repository holds: blobs by kind, marks, entries by derivation and mode, references and keys of
//! snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use fhrd::codec::Scratch;
use fhrd::repo::container::{ContainerEntry, ContainerIndex, Operation, blob_name, decode_frame};
use fhrd::repo::features::{Feature, of};
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::repo::marks::{BadParts, Mark, MarkKind};
use fhrd::repo::read::{ChunkReader, RecipeWalk};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::tree::{NodeKind, TreeCursor};
use fhrd::repo::{Repository, snapshot};
use fhrd::store::{BlobKind, BlobName, BlobPrefix, Reading};
use fhrd::types::ContainerId;

/// How many there are of each structure, by its name.
pub type Counts = BTreeMap<String, u64>;

/// Codec of frames whose first byte says how floats lie in them.
const FLOATS: u8 = 3;
/// Bytes of a frame before its payload.
const FRAME_HEADER: usize = 32;
/// Where the header of a segment has its reader-required bits.
const SEGMENT_BITS: usize = 32;

/// Adds one of a structure.
fn add(counts: &mut Counts, name: impl Into<String>) {
    *counts.entry(name.into()).or_default() += 1;
}

/// Counts a mark, and the containers that it says are bad.
fn count_mark(kind: &MarkKind, counts: &mut Counts) {
    let name = match kind {
        MarkKind::Quarantine(_) => "quarantine",
        MarkKind::WriterFeatures(_) => "writer-features",
        MarkKind::ReadOnly => "read-only",
        MarkKind::SetAside => "set-aside",
        MarkKind::Parity(_) => "parity",
        MarkKind::Cold => "cold",
        MarkKind::Unknown(name) => name,
    };
    add(counts, format!("marks {name}"));
    let MarkKind::Quarantine(quarantine) = kind else { return };
    for (_, parts) in quarantine.containers() {
        let is_whole = matches!(parts, BadParts::Whole);
        add(counts, if is_whole { "quarantined whole containers" } else { "quarantined parts of containers" });
    }
}

fn count_blobs(repository: &Repository, counts: &mut Counts) {
    let store = repository.store.as_ref();
    for blob in store.list(BlobPrefix::All).unwrap() {
        let kind = blob.name.rsplit_once('/').map_or(blob.name.as_str(), |(directory, _)| directory);
        let kind = if blob.name.kind() == BlobKind::Container { "containers" } else { kind };
        add(counts, format!("blobs {kind}"));
        match blob.name.kind() {
            BlobKind::RequiredMark | BlobKind::OptionalMark => {
                count_mark(&Mark::load(store, &blob.name).unwrap().kind, counts);
            }
            BlobKind::Segment if store.get(&blob.name, 1 << 20).unwrap()[SEGMENT_BITS] & 1 == 1 => {
                add(counts, "segments with a short page");
            }
            _ => {}
        }
    }
    let features = of(repository).unwrap();
    Feature::ALL.iter().filter(|feature| features.have(**feature)).for_each(|feature| {
        add(counts, format!("features {}", feature.name()));
    });
}

/// The name of a way to store a chunk as a delta, by its literal bytes.
fn delta_name(literal: &[u8], raw_len: u32) -> String {
    if literal.len() == raw_len as usize {
        return "deltas that are the chunk".into();
    }
    let (derivation, payload) = (literal[0] & 15, &literal[1 + usize::from(literal[0] >> 4)..]);
    match derivation {
        1..=6 => format!("deltas of derivation {derivation} in mode {}", payload[0]),
        _ => format!("deltas of derivation {derivation}"),
    }
}

/// The stored bytes of a frame, and what they decode to.
fn frame(repository: &Repository, name: &BlobName, index: &ContainerIndex, number: u32) -> (Vec<u8>, Vec<u8>) {
    let info = &index.frames[number as usize];
    let stored = repository.store.get_range(name, info.offset, info.stored_bytes(), Reading::Once).unwrap();
    let decoded = decode_frame(name, info, &stored, &mut Scratch::default()).unwrap();
    (stored, decoded)
}

/// Counts a payload of floats by its first byte.
fn count_floats(first: u8, counts: &mut Counts) {
    match first {
        0x80.. => add(counts, "payloads of coded floats"),
        0x40.. => add(counts, "payloads of floats without zeros"),
        _ => add(counts, "payloads of floats"),
    }
}

fn count_entry(index: &ContainerIndex, entry: &ContainerEntry, frames: &[Vec<u8>], counts: &mut Counts) {
    let operations = index.operations(entry);
    add(counts, "entries");
    match operations.first() {
        None => add(counts, "entries whole"),
        Some(Operation::Delta { .. }) => {
            let literal = &frames[entry.frame as usize][entry.literal_offset as usize..][..entry.literal_len as usize];
            let name = delta_name(literal, entry.raw_len);
            if name.ends_with(" in mode 1") {
                count_floats(literal[2 + usize::from(literal[0] >> 4)], counts);
            }
            add(counts, name);
        }
        _ if operations.iter().any(|operation| matches!(operation, Operation::LiteralCopy { .. })) => {
            add(counts, "entries with literal copies");
        }
        _ => add(counts, "entries with copies"),
    }
}

fn count_container(repository: &Repository, id: &ContainerId, counts: &mut Counts) {
    let (index, name) = (read_container_index(repository.store.as_ref(), id).unwrap(), blob_name(id));
    let frames = (0..index.frames.len() as u32).map(|number| {
        let (stored, decoded) = frame(repository, &name, &index, number);
        let codec = index.frames[number as usize].codec;
        add(counts, format!("frames of codec {codec}"));
        if codec == FLOATS {
            count_floats(stored[FRAME_HEADER], counts);
        }
        decoded
    });
    let frames: Vec<Vec<u8>> = frames.collect();
    index.entries.iter().for_each(|entry| count_entry(&index, entry, &frames, counts));
}

fn count_tree(reader: &mut ChunkReader, content: Option<ContentReference>, counts: &mut Counts) {
    let mut cursor = TreeCursor::open(content);
    while let Some(node) = cursor.next(reader).unwrap() {
        add(counts, format!("nodes {:?}", node.kind).to_lowercase());
        if node.kind == NodeKind::Directory {
            count_tree(reader, node.content, counts);
            continue;
        }
        let Some(content) = node.content else { continue };
        if content.rebuilt().is_some() {
            add(counts, "references rebuilt");
            continue;
        }
        let mut walk = RecipeWalk::new(content);
        while let Some(reference) = walk.next(reader).unwrap() {
            let is_hole = matches!(reference, ContentReference::Hole { .. });
            add(counts, if is_hole { "references hole" } else { "references chunk" });
        }
    }
}

/// What the repository holds.
pub fn held(repository: &Repository) -> Counts {
    let mut counts = Counts::new();
    count_blobs(repository, &mut counts);
    let listing = Arc::new(ContainerListing::take(&repository.store).unwrap());
    assert!(listing.damaged.is_empty() && listing.orphans().is_empty());
    listing.containers.iter().for_each(|id| count_container(repository, id, &mut counts));
    let mut reader = ChunkReader::new(repository, listing);
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref()).unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    for named in snapshots {
        named.snapshot.extra.keys().for_each(|key| add(&mut counts, format!("snapshots with {key}")));
        named.snapshot.tags.iter().for_each(|tag| add(&mut counts, format!("tags {tag}")));
        count_tree(&mut reader, named.snapshot.root, &mut counts);
    }
    counts
}
