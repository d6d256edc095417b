//! A builder of repositories whose checksums are right and whose content is not what fhrd writes.

use bytes::Bytes;
use fhrd::codec::Scratch;
use fhrd::repo::container::{
    Base, ContainerKind, ContainerWriter, EntryFields, Operation, OperationList, StoredFrame, operations_digest,
};
use fhrd::repo::index::{IndexRecord, NewSegment, write_segment};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot::Snapshot;
use fhrd::repo::tree::Node;
use fhrd::store::StoreExt;
use fhrd::types::{Fingerprint, RepositoryKey};

use crate::input::TestRepository;

/// Builds a repository of one container with arbitrary entries, one segment and one snapshot of the files `bad` and
/// `good`.
pub(crate) struct HostileRepository {
    pub(crate) repository: TestRepository,
    pub(crate) key: RepositoryKey,
    pub(crate) writer: ContainerWriter,
    pub(crate) fingerprints: Vec<Fingerprint>,
}

impl HostileRepository {
    pub(crate) fn new() -> Self {
        let repository = TestRepository::new();
        let key = repository.open().key;
        HostileRepository {
            repository,
            key,
            writer: ContainerWriter::new(ContainerKind::Data, &[7; 16]),
            fingerprints: Vec::new(),
        }
    }

    pub(crate) fn frame(&mut self, bytes: &[u8]) -> u32 {
        let mut payload = Vec::new();
        Scratch::default().compress(bytes, 1, &mut payload).unwrap();
        let raw_len = bytes.len() as u32;
        let frame = match payload.len() < bytes.len() {
            true => StoredFrame { codec: 1, raw_len, payload: payload.into() },
            false => StoredFrame { codec: 0, raw_len, payload: Bytes::copy_from_slice(bytes) },
        };
        self.writer.push_frame(&frame).unwrap()
    }

    /// Adds an entry of a chunk and returns its name as a base.
    pub(crate) fn entry(&mut self, content: &[u8], literals: &[u8], depth: u8, list: OperationList) -> Base {
        let frame = if literals.is_empty() { 0 } else { self.frame(literals) };
        let fingerprint = self.key.fingerprint(content);
        let (raw_len, literal_len) = (content.len() as u32, literals.len() as u32);
        let fields = EntryFields { fingerprint, raw_len, frame, literal_offset: 0, literal_len, depth };
        self.writer.push_entry(fields, &list, &[]).unwrap();
        self.fingerprints.push(fingerprint);
        Base { fingerprint, digest: operations_digest(&list.operations, &list.bases) }
    }

    /// Adds a whole chunk.
    pub(crate) fn whole(&mut self, content: &[u8]) -> Base {
        self.entry(content, content, 1, OperationList::default())
    }

    /// Adds a chunk of zeros that is a delta to the first bytes of `bases`.
    pub(crate) fn delta(&mut self, len: usize, depth: u8, bases: &[(Base, u32)]) -> Base {
        let operations = (0..).zip(bases).map(|(base, (_, len))| Operation::Delta { base, offset: 0, len: *len });
        let list = OperationList { operations: operations.collect(), bases: bases.iter().map(|base| base.0).collect() };
        // Derivation 5 without a phase, mode 0: the chunk is the beginning of the base.
        self.entry(&vec![0; len], &[5, 0], depth, list)
    }

    /// Adds a recipe and returns a reference to it.
    pub(crate) fn recipe(&mut self, level: u8, references: &[ContentReference]) -> ContentReference {
        let mut bytes = vec![b'R', 1];
        minicbor::encode(references, &mut bytes).unwrap();
        let fingerprint = self.whole(&bytes).fingerprint;
        let len = references.iter().map(ContentReference::content_len).sum();
        ContentReference::Recipe { level, fingerprint, len }
    }

    /// Adds a listing of `nodes` and returns a reference to it.
    pub(crate) fn listing(&mut self, nodes: &[Node]) -> ContentReference {
        let mut listing = Vec::new();
        nodes.iter().for_each(|node| node.append_to(&mut listing).unwrap());
        ContentReference::Chunk { fingerprint: self.whole(&listing).fingerprint, len: listing.len() as u64 }
    }

    /// A recipe of at least 2^60 bytes, in which each recipe lists the one below 64 times.
    pub(crate) fn repeated_recipe(&mut self) -> ContentReference {
        let fingerprint = self.whole(b"x").fingerprint;
        let mut reference = ContentReference::Chunk { fingerprint, len: 1 };
        for level in 1..=10 {
            reference = self.recipe(level, &[reference; 64]);
        }
        reference
    }

    /// Stores the container, a segment of it, and a snapshot in which `bad` has this content and size.
    pub(crate) fn finish(mut self, content: Option<ContentReference>, size: u64) -> (TestRepository, String) {
        let good = self.whole(b"good");
        let good = ContentReference::Chunk { fingerprint: good.fingerprint, len: 4 };
        let node =
            |name: &str, size, content| Node { name: name.into(), mode: 0o644, size, content, ..Node::default() };
        let root = self.listing(&[node("bad", size, content), node("good", 4, Some(good))]);
        self.finish_with(root, Vec::new(), 1)
    }

    /// Stores the container, a segment of it, and a snapshot of `paths` at a time with this root.
    pub(crate) fn finish_with(
        self,
        root: ContentReference,
        paths: Vec<Vec<u8>>,
        time_ns: i64,
    ) -> (TestRepository, String) {
        let store = self.repository.open().store;
        let sealed = self.writer.seal().unwrap();
        let parts: Vec<&[u8]> = sealed.parts.iter().map(AsRef::as_ref).collect();
        store.put_if_absent(&sealed.blob_name(), &parts).unwrap();
        let records = (0..).zip(&self.fingerprints);
        let records = records.map(|(entry, print)| IndexRecord { fingerprint: *print, container: 0, entry });
        write_segment(store.as_ref(), NewSegment::padded([7; 16]), &[sealed.id()], &[], records.collect()).unwrap();
        let snapshot = Snapshot {
            time_ns,
            host: "test".into(),
            paths: paths.into_iter().map(Into::into).collect(),
            root: Some(root),
            ..Snapshot::default()
        };
        snapshot.save(store.as_ref()).unwrap();
        (self.repository, sealed.blob_name().into())
    }
}
