//! A program from the future: it writes what this version does not know, with right checksums.

use std::fs;

use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::repo::Repository;
use fhrd::repo::container::{
    Base, ContainerKind, ContainerWriter, EntryFields, FOOTER_BYTES, HEADER_BYTES, Operation, OperationList,
    StoredFrame, operations_digest,
};
use fhrd::repo::index::{IndexRecord, NewSegment, write_segment};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot::Snapshot;
use fhrd::repo::tree::Node;
use fhrd::store::{self, BlobKind, Durable, Store, StoreExt};
use fhrd::types::{ContainerId, Fingerprint};
use fhrd::wire::{Envelope, checksum, put_varint};

use crate::double::named;
use crate::program::{Place, finished};

/// Content of the file that every version can read.
pub const GOOD: &[u8] = b"every version can read this";
/// Content of the file that is written in a new way.
pub const FUTURE: &[u8] = b"only a newer version can read this, which is longer";
/// Where a container's header has its reader-required bits.
const CONTAINER_FEATURES_AT: usize = 12;
/// Where a segment's header has them.
const SEGMENT_FEATURES_AT: usize = 32;
/// Bytes of a segment's header, and those that its checksum covers.
const SEGMENT_HEADER_BYTES: usize = 80;
/// A feature that no version will have soon.
pub const FEATURE: u64 = 1 << 62;

/// The writer. It has one container of what is new and one of the rest.
pub struct Writer {
    pub place: Place,
    pub repository: Repository,
    containers: [(ContainerWriter, Vec<Fingerprint>); 2],
    /// Edits the container of what is new.
    pub edit: fn(&mut [u8]),
    /// Whether the segment has a feature of the future.
    pub is_new_segment: bool,
}

impl Writer {
    pub fn new(is_encrypted: bool) -> Self {
        let place = Place::new();
        fs::write(place.path("key"), [7; 40]).unwrap();
        let mut words = vec!["init"];
        if is_encrypted {
            words.push("--encrypt");
        }
        finished(run(&place, is_encrypted, &words), "init");
        let unlock = || Ok(Unlock::KeyFile(SecretBytes::new(vec![7; 40])));
        let repository = Repository::open_with(store::open(place.repository()).unwrap(), &unlock).unwrap();
        let containers = [[7; 16], [8; 16]].map(|salt| (ContainerWriter::new(ContainerKind::Data, &salt), Vec::new()));
        Writer { place, repository, containers, edit: |_| (), is_new_segment: false }
    }

    /// Adds an entry of a chunk to the container of what is new, if `is_new`, and returns its name as a base.
    pub fn entry(
        &mut self,
        is_new: bool,
        content: &[u8],
        frame: (u8, &[u8]),
        literals: u32,
        list: &OperationList,
    ) -> Base {
        let (writer, prints) = &mut self.containers[usize::from(is_new)];
        let (codec, payload) = frame;
        let raw_len = if codec == 0 { payload.len() as u32 } else { content.len() as u32 };
        let frame = writer.push_frame(&StoredFrame { codec, raw_len, payload: payload.to_vec().into() }).unwrap();
        let fingerprint = self.repository.key.fingerprint(content);
        let depth = if list.operations.is_empty() { 1 } else { 2 };
        let raw_len = content.len() as u32;
        let fields = EntryFields { fingerprint, raw_len, frame, literal_offset: 0, literal_len: literals, depth };
        writer.push_entry(fields, list, &[]).unwrap();
        prints.push(fingerprint);
        Base { fingerprint, digest: operations_digest(&list.operations, &list.bases) }
    }

    /// Adds a whole chunk.
    pub fn whole(&mut self, content: &[u8]) -> Base {
        self.entry(false, content, (0, content), content.len() as u32, &OperationList::default())
    }

    /// A reference to a whole chunk.
    pub fn chunk(&mut self, content: &[u8]) -> ContentReference {
        ContentReference::Chunk { fingerprint: self.whole(content).fingerprint, len: content.len() as u64 }
    }

    /// Adds the chunk of [`FUTURE`] in a frame of this codec.
    pub fn coded(&mut self, codec: u8, payload: &[u8]) -> ContentReference {
        let base = self.entry(true, FUTURE, (codec, payload), FUTURE.len() as u32, &OperationList::default());
        ContentReference::Chunk { fingerprint: base.fingerprint, len: FUTURE.len() as u64 }
    }

    /// Adds it as a delta with these literal bytes.
    pub fn delta(&mut self, literals: &[u8]) -> ContentReference {
        let base = self.whole(FUTURE.repeat(2).as_slice());
        let operation = Operation::Delta { base: 0, offset: 0, len: FUTURE.len() as u32 };
        let list = OperationList { operations: vec![operation], bases: vec![base] };
        let base = self.entry(true, FUTURE, (0, literals), literals.len() as u32, &list);
        ContentReference::Chunk { fingerprint: base.fingerprint, len: FUTURE.len() as u64 }
    }

    /// Adds it as a copy, or with an added end, whose only operation then gets the kind `kind`.
    pub fn operation(&mut self, kind: u8) -> ContentReference {
        let base = self.whole(FUTURE);
        let len = FUTURE.len() as u32;
        let list = match kind < 128 {
            true => OperationList { operations: vec![Operation::Copy { base: 0, offset: 0, len }], bases: vec![base] },
            false => OperationList { operations: vec![Operation::Add { len }], bases: Vec::new() },
        };
        let literals = if kind < 128 { 0 } else { len };
        // A second encoding of a chunk would do as well, so the content is another one.
        let content: Vec<u8> = FUTURE.iter().rev().copied().collect();
        let base = self.entry(true, &content, (0, FUTURE), literals, &list);
        ContentReference::Chunk { fingerprint: base.fingerprint, len: len.into() }
    }

    /// A listing of raw nodes, which must ascend by name.
    pub fn listing(&mut self, nodes: &[Vec<u8>]) -> ContentReference {
        let mut listing = Vec::new();
        for node in nodes {
            put_varint(&mut listing, node.len() as u64);
            listing.extend_from_slice(node);
        }
        self.chunk(&listing)
    }

    /// Puts a blob of this type and payload below `prefix`.
    pub fn put(
        &self,
        magic: &[u8; 8],
        reader_features: u64,
        payload: &[u8],
        name_of: fn(&[u8; 32]) -> String,
    ) -> String {
        let blob = Envelope { reader_features, ..Envelope::new(*magic) }.seal(payload);
        // The hash of what is kept is known once it is kept.
        let store = &self.repository.store;
        let directory = name_of(&[0; 32]).rsplit_once('/').unwrap().0.to_string();
        match BlobKind::all().find(|kind| kind.directory() == directory) {
            Some(kind) if name_of(&[0; 32]).len() > directory.len() + 64 => {
                store.put_hashed(kind, &[&blob]).unwrap().into()
            }
            _ => {
                let name = name_of(blake3::hash(&blob).as_bytes());
                store.put_if_absent(&named(&name), &[&blob]).unwrap();
                name
            }
        }
    }

    /// Puts the containers and a segment of them.
    pub fn put_containers(&mut self) {
        let store = self.repository.store.clone();
        let (mut names, mut records) = (Vec::new(), Vec::new());
        let empty = || (ContainerWriter::new(ContainerKind::Data, &[9; 16]), Vec::new());
        for (number, (writer, prints)) in
            std::mem::replace(&mut self.containers, [empty(), empty()]).into_iter().enumerate()
        {
            if writer.is_empty() {
                continue;
            }
            let mut bytes = writer.seal().unwrap().parts.concat();
            if number == 1 {
                (self.edit)(&mut bytes);
                sign(&mut bytes);
            }
            let container = names.len() as u32;
            names.push(ContainerId(store.put_hashed(BlobKind::Container, &[&bytes]).unwrap().hash().unwrap()));
            records.extend((0..).zip(prints).map(|(entry, fingerprint)| IndexRecord { fingerprint, container, entry }));
        }
        let name = write_segment(store.as_ref(), NewSegment::padded([7; 16]), &names, &[], records).unwrap();
        if self.is_new_segment {
            let mut bytes = store.get(&name, 1 << 20).unwrap();
            bytes[SEGMENT_FEATURES_AT..][..8].copy_from_slice(&FEATURE.to_le_bytes());
            let recorded = checksum::<16>(&[&bytes[..SEGMENT_HEADER_BYTES - 16]]);
            bytes[SEGMENT_HEADER_BYTES - 16..SEGMENT_HEADER_BYTES].copy_from_slice(&recorded);
            store.delete(&name, Durable::OnReturn).unwrap();
            store.put_hashed(BlobKind::Segment, &[&bytes]).unwrap();
        }
    }

    /// Puts a snapshot with this root.
    pub fn put_snapshot(&self, root: ContentReference, time_ns: i64) {
        let snapshot = Snapshot { time_ns, host: "future".into(), root: Some(root), ..Snapshot::default() };
        snapshot.save(self.repository.store.as_ref()).unwrap();
    }
}

/// Runs the program in a place.
pub fn run(place: &Place, is_encrypted: bool, words: &[&str]) -> std::process::Output {
    let mut command = place.command(&place.path("."), words);
    command.env("XDG_STATE_HOME", place.path("state")).env_remove("FHRD_PASSWORD").env_remove("FHRD_KEY_FILE");
    if is_encrypted {
        command.env("FHRD_KEY_FILE", place.path("key")).env("FHRD_FROM_KEY_FILE", place.path("key"));
    }
    command.output().unwrap()
}

/// Makes the checksums of a container right.
fn sign(bytes: &mut [u8]) {
    let recorded = checksum::<16>(&[&bytes[..HEADER_BYTES - 16]]);
    bytes[HEADER_BYTES - 16..HEADER_BYTES].copy_from_slice(&recorded);
    let footer = bytes.len() - FOOTER_BYTES;
    let start = u64::from_le_bytes(bytes[footer..footer + 8].try_into().unwrap()) as usize;
    let recorded = checksum::<16>(&[&bytes[start..footer]]);
    bytes[footer + 24..footer + 40].copy_from_slice(&recorded);
    let recorded = checksum::<8>(&[&bytes[footer..footer + 48]]);
    bytes[footer + 48..footer + 56].copy_from_slice(&recorded);
}

/// Gives the only operation of a container another kind. The operations are the last section of its index: number of
/// parts, codec, two lengths, number of operations, then the kinds.
pub fn set_kind(bytes: &mut [u8], kind: u8) {
    let end = bytes.len() - FOOTER_BYTES;
    let len = (2..20).find(|len| bytes[end - len - 4..end - len] == [1, 0, *len as u8, *len as u8]).unwrap();
    bytes[end - len + 1] = kind;
}

/// Sets a reader-required feature, or the kind, of a container.
pub fn set_container_feature(bytes: &mut [u8]) {
    bytes[CONTAINER_FEATURES_AT..][..8].copy_from_slice(&FEATURE.to_le_bytes());
}

/// A node of a file as it is stored, with further keys and values.
pub fn node(name: &str, size: usize, content: Option<ContentReference>, kind: u8, further: &[(u64, &[u8])]) -> Vec<u8> {
    let node = Node { name: name.into(), mode: 0o644, size: size as u64, content, ..Node::default() };
    let mut bytes = minicbor::to_vec(&node).unwrap();
    // The map has few keys, so its header is one byte; the kind follows the name.
    let at = 1 + 2 + name.len();
    assert_eq!(bytes[at..at + 2], [1, 0]);
    bytes[at + 1] = kind;
    bytes[0] += further.len() as u8;
    for (key, value) in further {
        let mut encoder = minicbor::Encoder::new(Vec::new());
        encoder.u64(*key).unwrap();
        bytes.extend(encoder.into_writer());
        bytes.extend_from_slice(value);
    }
    bytes
}
