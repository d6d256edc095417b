//! What a directory is published as, and its commit.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

use super::name::{name_defect, revision_defect};
use crate::error::{Error, Result};
use crate::repo::clock::future_first;
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::types::hex;

/// Key in the open map of a snapshot.
pub const KEY: &str = "published";
/// Tag of published snapshots.
pub const TAG: &str = "published";
/// Hex digits of a commit.
pub const COMMIT_DIGITS: usize = 40;
/// Purpose of the hash that is a commit.
const COMMIT_CONTEXT: &str = "fhrd 2026-11 commit of a publication";

/// What a published directory is to the clients of the Hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum PublishedKind {
    /// A model.
    #[n(0)]
    Model,
    /// A dataset.
    #[n(1)]
    Dataset,
}

impl PublishedKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PublishedKind::Model => "model",
            PublishedKind::Dataset => "dataset",
        }
    }
}

/// What a directory is published as: a CBOR map with integer keys.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Publication {
    /// `ORG/NAME`.
    #[n(0)]
    pub name: String,
    /// Name of the revision, such as `main`.
    #[n(1)]
    pub revision: String,
    /// What it is.
    #[n(2)]
    pub kind: PublishedKind,
    /// Path of what is shown, from the root of the snapshot. Links may lead to the rest. Empty for all of it.
    #[n(3)]
    pub directory: ByteVec,
}

impl Publication {
    /// Describes what makes it invalid, if anything. Invalid ones are neither written nor read.
    pub fn defect(&self) -> Option<String> {
        name_defect(&self.name).or_else(|| revision_defect(&self.revision))
    }

    /// Whether both are of one kind and have one name.
    pub fn is_same_name(&self, other: &Publication) -> bool {
        (self.kind, &self.name) == (other.kind, &other.name)
    }

    /// Adds it to the open map of a snapshot.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is invalid.
    pub fn attach(&self, extra: &mut BTreeMap<String, ByteVec>) -> Result<()> {
        if let Some(defect) = self.defect() {
            return Err(Error::Usage(defect));
        }
        let bytes = minicbor::to_vec(self);
        let bytes = bytes.map_err(|error| Error::internal(format!("cannot store a name: {error}")))?;
        extra.insert(KEY.into(), bytes.into());
        Ok(())
    }

    /// What a snapshot is published as. `None` also if only a newer version can read it.
    pub fn of(snapshot: &Snapshot) -> Option<Publication> {
        let publication: Publication = minicbor::decode(snapshot.extra.get(KEY)?).ok()?;
        publication.defect().is_none().then_some(publication)
    }

    /// The commit of this publication of a root: 40 hex digits. It depends on nothing but the name and the stored
    /// directory.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn commit(&self, root: Option<ContentReference>) -> Result<String> {
        let what = minicbor::to_vec((&self.name, self.kind, &self.directory, root));
        let what = what.map_err(|error| Error::internal(format!("cannot name a commit: {error}")))?;
        let digest = blake3::derive_key(COMMIT_CONTEXT, &what);
        Ok(hex(digest.get(..COMMIT_DIGITS / 2).unwrap_or_default()))
    }
}

impl Snapshot {
    /// Whether it is published, also if only a newer version can say as what.
    pub fn is_published(&self) -> bool {
        self.extra.contains_key(KEY)
    }
}

/// A published snapshot.
#[derive(Debug, Clone)]
pub struct PublishedSnapshot {
    /// The snapshot.
    pub named: NamedSnapshot,
    /// What it is published as.
    pub publication: Publication,
    /// Its commit.
    pub commit: String,
}

/// The published ones of some snapshots, which are sorted by time. It is `now_ns`. Those from the future come first, so
/// the last one of a name and revision counts.
///
/// # Errors
/// [`Error::Internal`].
pub fn published(snapshots: Vec<NamedSnapshot>, now_ns: i64) -> Result<Vec<PublishedSnapshot>> {
    let mut found = Vec::new();
    for named in future_first(snapshots, |named| named.snapshot.is_future(now_ns)) {
        let Some(publication) = Publication::of(&named.snapshot) else { continue };
        let commit = publication.commit(named.snapshot.root)?;
        found.push(PublishedSnapshot { named, publication, commit });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Fingerprint, SnapshotId};

    fn publication(name: &str, revision: &str) -> Publication {
        let directory = Vec::new().into();
        Publication { name: name.into(), revision: revision.into(), kind: PublishedKind::Model, directory }
    }

    fn snapshot(time_ns: i64, publication: &Publication) -> NamedSnapshot {
        let mut snapshot = Snapshot { time_ns, ..Snapshot::default() };
        publication.attach(&mut snapshot.extra).unwrap();
        NamedSnapshot { id: SnapshotId([time_ns as u8; 32]), snapshot }
    }

    #[test]
    fn the_encoding_never_changes() {
        let mut extra = BTreeMap::new();
        publication("a/b", "main").attach(&mut extra).unwrap();
        assert_eq!(hex(&extra[KEY]), "a40063612f6201646d61696e02000340");
    }

    #[test]
    fn a_commit_depends_on_name_and_content_and_not_on_the_revision() {
        let root = |byte| Some(ContentReference::Chunk { fingerprint: Fingerprint([byte; 32]), len: 5 });
        let (one, other) = (publication("a/b", "main"), publication("a/c", "main"));
        let commit = one.commit(root(1)).unwrap();
        assert_eq!((commit.len(), &commit), (40, &publication("a/b", "v1").commit(root(1)).unwrap()));
        let dataset = Publication { kind: PublishedKind::Dataset, ..one.clone() };
        let below = Publication { directory: b"x".to_vec().into(), ..one.clone() };
        for (publication, root) in
            [(&one, root(2)), (&one, None), (&other, root(1)), (&dataset, root(1)), (&below, root(1))]
        {
            assert_ne!(publication.commit(root).unwrap(), commit);
        }
    }

    #[test]
    fn the_last_one_of_the_present_comes_last_and_foreign_bytes_are_ignored() {
        let main = publication("a/b", "main");
        let future = crate::repo::clock::TOLERANCE_NS + 1_001;
        let mut foreign = snapshot(3, &main);
        foreign.snapshot.extra.insert(KEY.into(), b"\xff".to_vec().into());
        assert!(foreign.snapshot.is_published());
        let snapshots = vec![snapshot(1, &main), snapshot(2, &main), foreign, snapshot(future, &main)];
        let times: Vec<i64> =
            published(snapshots, 1_000).unwrap().iter().map(|found| found.named.snapshot.time_ns).collect();
        assert_eq!(times, [future, 1, 2]);
    }

    #[test]
    fn invalid_names_are_refused() {
        assert!(publication("a", "main").attach(&mut BTreeMap::new()).is_err());
        assert!(publication("a/b", "x y").attach(&mut BTreeMap::new()).is_err());
    }
}
