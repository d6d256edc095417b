//! Objects: large files that clients upload one by one, before the commit that names them.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use super::UploadStore;
use crate::backup::{MemoryContent, MemoryFile};
use crate::error::{Error, Result};
use crate::repo::index::{ChunkPresence, ContainerListing};
use crate::repo::published::{PublishedFile, PublishedKind};
use crate::repo::read::{ChunkReader, Reader, is_whole};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_listing;
use crate::repo::tree::TreeCursor;
use crate::repo::upload::StoredUpload;
use crate::types::{hex, unhex};

/// An object that expires sooner is uploaded again, nanoseconds.
const REST_NS: i64 = 24 * 3600 * 1_000_000_000;
/// Name of the file in the snapshot of an object.
const OBJECT_NAME: &str = "object";

/// The SHA-256 and the length of an object.
pub type ObjectKey = ([u8; 32], u64);

/// What an upload is for, as its snapshot records it.
pub fn owner(kind: PublishedKind, name: &str) -> String {
    format!("{} {name}", kind.name())
}

/// The SHA-256 of its hex digits.
pub fn sha256_of(digits: &str) -> Option<[u8; 32]> {
    unhex(digits).filter(|bytes| hex(bytes) == digits)
}

/// The file of an object. `None` if its snapshot is damaged: it can be uploaded again.
///
/// # Errors
/// Errors of reading after which nobody knows.
pub(super) fn file_of(reader: &mut ChunkReader, named: &NamedSnapshot) -> Result<Option<PublishedFile>> {
    match TreeCursor::open(named.snapshot.root).next(reader) {
        Ok(node) => Ok(node.map(|node| PublishedFile { content: node.content, len: node.size })),
        Err(error) if error.is_unreadable() => {
            tracing::warn!("an upload, snapshot {:.8}, is damaged: {error}", named.id);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl UploadStore {
    /// The snapshots of objects that were uploaded for a name, with their SHA-256. One that is to expire soon does not
    /// count for `lasting` ones.
    ///
    /// # Errors
    /// Errors of listing the store.
    pub fn objects(&self, owner: &str, lasting: bool) -> Result<Vec<([u8; 32], NamedSnapshot)>> {
        let now_ns = self.repository.clock.now_ns();
        let after_ns = if lasting { now_ns.saturating_add(REST_NS) } else { now_ns };
        let snapshots = snapshot_listing::list(&self.repository)?.snapshots;
        let own = snapshots.into_iter().filter_map(|named| {
            let upload = StoredUpload::of(&named.snapshot)?;
            let is_own = upload.name == owner && upload.expires_ns > after_ns;
            Some((<[u8; 32]>::try_from(upload.sha256.as_slice()).ok().filter(|_| is_own)?, named))
        });
        Ok(own.collect())
    }

    /// The `wanted` lasting objects that are there, whole, with their snapshots and files.
    ///
    /// # Errors
    /// Errors of reading after which nobody knows.
    pub fn present(&self, owner: &str, wanted: &[ObjectKey]) -> Result<Vec<(ObjectKey, NamedSnapshot, PublishedFile)>> {
        let wanted: BTreeSet<ObjectKey> = wanted.iter().copied().collect();
        let mut found = self.objects(owner, true)?;
        found.retain(|(sha256, _)| wanted.range((*sha256, 0)..=(*sha256, u64::MAX)).next().is_some());
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let listing = Arc::new(ContainerListing::take(&self.repository.store)?);
        let mut reader = ChunkReader::new(&self.repository, listing.clone());
        let mut presence = ChunkPresence::new(self.repository.store.clone(), listing, Arc::default());
        let mut present = Vec::new();
        for (sha256, named) in found {
            if let Some(file) = file_of(&mut reader, &named)?
                && wanted.contains(&(sha256, file.len))
                && file.content.map_or(Ok(true), |content| is_whole(content, &mut reader, &mut presence))?
            {
                present.push(((sha256, file.len), named, file));
            }
        }
        Ok(present)
    }

    /// The snapshot of a lasting object, and its file, if it is there, whole.
    ///
    /// # Errors
    /// Errors of [`Self::present`].
    pub fn object(&self, owner: &str, key: ObjectKey) -> Result<Option<(NamedSnapshot, PublishedFile)>> {
        Ok(self.present(owner, &[key])?.pop().map(|(_, named, file)| (named, file)))
    }

    /// Stores an object, whose hash and length the caller has checked, unless it is there. Whatever is returned stays
    /// until it expires.
    ///
    /// # Errors
    /// Errors of storing.
    pub fn add_object(
        &self,
        owner: &str,
        (sha256, len): ObjectKey,
        file: File,
    ) -> Result<(NamedSnapshot, PublishedFile)> {
        if let Some(found) = self.object(owner, (sha256, len))? {
            return Ok(found);
        }
        let content = MemoryContent::Range { file: Arc::new(file), start: 0, len };
        let sha256 = sha256.to_vec().into();
        let upload = StoredUpload { expires_ns: self.expiry_ns(), name: owner.into(), sha256, xorbs: None };
        let named = self.store(vec![MemoryFile { path: OBJECT_NAME.into(), content }], upload)?;
        let stored = file_of(&mut Reader::open(&self.repository)?.chunks(), &named)?;
        let stored = stored.ok_or_else(|| Error::corrupt("snapshot of an upload", 0, "a file", "none"))?;
        Ok((named, stored))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;

    use super::*;
    use crate::backup::{BackupRequest, MemorySource, backup};
    use crate::config::Config;
    use crate::metrics::Progress;
    use crate::repo::Repository;
    use crate::repo::recipe::ContentReference;
    use crate::store::{BlobKind, Durable, MemoryStore};
    use crate::types::Fingerprint;

    /// What takes uploads for a repository that has nothing, and the directory of its cache.
    fn uploads() -> (UploadStore, tempfile::TempDir) {
        let (directory, config) = (tempfile::tempdir().unwrap(), Config::default());
        let mut repository = Repository::init(Arc::new(MemoryStore::default()), &config.repository).unwrap();
        repository.cache_directory = Some(directory.path().join("cache").into());
        (UploadStore::new(repository, config, "host".into(), Arc::default()).unwrap(), directory)
    }

    fn stored(uploads: &UploadStore, expires_ns: i64) -> NamedSnapshot {
        let content = MemoryContent::Parts(vec![Bytes::from(expires_ns.to_string())]);
        let (name, sha256) = ("model a/b".into(), vec![7; 32].into());
        let upload = StoredUpload { expires_ns, name, sha256, xorbs: None };
        uploads.store(vec![MemoryFile { path: OBJECT_NAME.into(), content }], upload).unwrap()
    }

    #[test]
    fn an_upload_is_there_until_it_expires() {
        let (uploads, _directory) = uploads();
        let now_ns = uploads.repository.clock.now_ns();
        let expired = stored(&uploads, now_ns - 1);
        let (soon, later) = (stored(&uploads, now_ns + REST_NS / 2), stored(&uploads, now_ns + 2 * REST_NS));
        let ids = |lasting| {
            let found = uploads.objects("model a/b", lasting).unwrap();
            found.into_iter().map(|(_, named)| named.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(true), [later.id]);
        let mut current = ids(false);
        current.sort();
        let mut expected = [soon.id, later.id];
        expected.sort();
        assert_eq!(current, expected);
        assert!(uploads.objects("model a/c", false).unwrap().is_empty(), "it counts for its name");
        let all = || snapshot_listing::list(&uploads.repository).unwrap().snapshots;
        assert!(all().iter().any(|named| named.id == expired.id));
        assert!(all().iter().all(|named| named.snapshot.is_published()), "nobody takes it for a backup");
        uploads.expire().unwrap();
        assert_eq!((all().len(), all().iter().any(|named| named.id == expired.id)), (2, false));
    }

    #[test]
    fn an_object_that_is_damaged_can_be_uploaded_again() {
        let (uploads, _directory) = uploads();
        let key = ([7; 32], i64::MAX.to_string().len() as u64);
        let object = || uploads.object("model a/b", key).unwrap();
        let store = &uploads.repository.store;
        for kinds in [&[0][..], &[0, 1]] {
            let own = stored(&uploads, i64::MAX);
            assert_eq!(object().map(|(named, _)| named.id), Some(own.id));
            assert!(uploads.object("model a/b", (key.0, key.1 + 1)).unwrap().is_none());
            // The content is lost, then the listing, too.
            for container in store.list(BlobKind::Container.into()).unwrap() {
                let kind = store.get(&container.name, 1 << 20).unwrap()[10];
                if kinds.contains(&kind) {
                    store.delete(&container.name, Durable::OnReturn).unwrap();
                }
            }
            assert!(object().is_none(), "{kinds:?}");
        }
    }

    #[test]
    fn what_is_stored_is_referred_to_and_not_read() {
        let (uploads, _directory) = uploads();
        let first = stored(&uploads, i64::MAX);
        let reader = Reader::open(&uploads.repository).unwrap();
        let file = file_of(&mut reader.chunks(), &first).unwrap().unwrap();
        let mut spool = tempfile::tempfile().unwrap();
        spool.write_all(b"0123456789").unwrap();
        let range = MemoryContent::Range { file: Arc::new(spool), start: 2, len: 3 };
        let files = [("a", MemoryContent::Stored(file.content.unwrap())), ("b/c", range)];
        let files = files.map(|(path, content)| MemoryFile { path: path.into(), content });
        let (name, sha256) = ("model a/b".into(), Vec::new().into());
        let upload = StoredUpload { expires_ns: i64::MAX, name, sha256, xorbs: None };
        let commit = uploads.store(files.to_vec(), upload.clone()).unwrap();
        let mut cursor = TreeCursor::open(commit.snapshot.root);
        let reader = Reader::open(&uploads.repository).unwrap();
        let mut chunks = reader.chunks();
        let node = cursor.next(&mut chunks).unwrap().unwrap();
        assert_eq!((node.content, node.size, node.mtime.seconds), (file.content, file.len, 0));
        let below =
            TreeCursor::open(cursor.next(&mut chunks).unwrap().unwrap().content).next(&mut chunks).unwrap().unwrap();
        assert_eq!(reader.file(below.content, 3).unwrap().head(9).unwrap(), b"234");
        let lost = ContentReference::Chunk { fingerprint: Fingerprint([9; 32]), len: 5 };
        let lost = MemoryFile { path: "a".into(), content: MemoryContent::Stored(lost) };
        let source = MemorySource { files: vec![lost], ..Default::default() };
        let request = BackupRequest { without_pauses: true, ..BackupRequest::new(source) };
        let (progress, go_on) = (Progress::default(), Arc::default());
        let error = backup(&uploads.repository, &uploads.config, &request, &progress, &go_on);
        assert!(error.unwrap_err().to_string().contains("content of a is missing"));
    }
}
