//! What is known of commits: their manifests, and the digests of their files.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::manifest::{MANIFEST_BYTES_MAX, ManifestDocument, ManifestFile, of_commit};
use crate::error::Result;
use crate::memory::ByteLru;
use crate::repo::published::{PublishedItem, path_text};
use crate::serve::catalogue::FoundCommit;
use crate::serve::fault::Fault;
use crate::serve::parts::blocking;
use crate::serve::state::{Client, ServeState};
use crate::serve::turns::Turns;

/// Memory for what is known, bytes.
const MEMORY_MAX: usize = 32 << 20;
/// Manifests that are made at the same time, and those of one token: each takes up to 16 MB.
const BUILDS: usize = 4;
const BUILDS_OF_TOKEN: usize = 3;
/// Time that somebody waits for a turn.
const BUILD_WAIT: Duration = Duration::from_secs(60);
/// Entries of a tree that are looked at together.
const PAGE_ENTRIES: usize = 1000;

/// What is known of a commit.
pub struct KnownCommit {
    /// Its manifest.
    pub document: ManifestDocument,
    /// Its files, in the order of the manifest.
    pub files: Vec<ManifestFile>,
}

/// See the module.
pub struct KnownManifests {
    commits: Mutex<ByteLru<String, Arc<KnownCommit>>>,
    turns: Turns,
}

impl Default for KnownManifests {
    fn default() -> Self {
        let turns = Turns::new(BUILDS, BUILDS_OF_TOKEN, BUILD_WAIT);
        KnownManifests { commits: Mutex::new(ByteLru::new(MEMORY_MAX)), turns }
    }
}

impl KnownCommit {
    /// The file with a digest.
    pub fn file(&self, sha256: &[u8; 32]) -> Option<&ManifestFile> {
        self.files.iter().find(|file| file.sha256 == *sha256)
    }

    fn bytes(&self) -> usize {
        let paths: usize = self.files.iter().map(|file| file.path.len() + size_of::<ManifestFile>()).sum();
        self.document.bytes.len() + paths
    }
}

impl KnownManifests {
    fn get(&self, commit: &str) -> Option<Arc<KnownCommit>> {
        self.commits.lock().get(&commit.to_string())
    }

    /// What there is to know of a commit. Reads the files whose hashes nobody knows.
    ///
    /// # Errors
    /// [`Fault::Refused`] for more files than a manifest can list, [`Fault::Busy`], and errors of reading.
    pub async fn of(
        &self,
        state: &ServeState,
        client: &Client,
        found: &FoundCommit,
    ) -> Result<Arc<KnownCommit>, Fault> {
        let commit = &found.published.commit;
        if let Some(known) = self.get(commit) {
            return Ok(known);
        }
        let _turn = self.turns.take(client).await?;
        // Another client may have waited for the same.
        if let Some(known) = self.get(commit) {
            return Ok(known);
        }
        let files = files_of(state, found).await?;
        let document = of_commit(found.published.publication.kind, commit, &files)?;
        if document.bytes.len() > MANIFEST_BYTES_MAX {
            return Err(too_many());
        }
        let known = Arc::new(KnownCommit { document, files });
        self.commits.lock().put(commit.clone(), known.clone(), known.bytes());
        Ok(known)
    }
}

/// The files of a commit with their hashes. That there are too many of them is known before one is read.
async fn files_of(state: &ServeState, found: &FoundCommit) -> Result<Vec<ManifestFile>, Fault> {
    let (mut named, mut len, mut after) = (Vec::new(), 0, None);
    loop {
        let tree = found.tree.clone();
        let page = blocking(move || tree.page(&[], after.as_deref(), true, PAGE_ENTRIES)).await?;
        let page = page.ok_or(Fault::NoRevision)?;
        for (path, item) in &page.items {
            let PublishedItem::File(file) = item else { continue };
            let path = path_text(path);
            len += ManifestFile::manifest_bytes(&path);
            if len > MANIFEST_BYTES_MAX {
                return Err(too_many());
            }
            named.push((path, *file));
        }
        after = page.items.last().filter(|_| page.has_more).map(|(last, _)| last.clone());
        if after.is_none() {
            break;
        }
    }
    let mut files = Vec::with_capacity(named.len());
    for (path, file) in named {
        let sha256 = state.hashes.sha256(&found.tree, &file).await?;
        files.push(ManifestFile { sha256, path, file });
    }
    let hashes = state.hashes.clone();
    blocking(move || {
        hashes.write();
        Ok(())
    })
    .await?;
    Ok(files)
}

fn too_many() -> Fault {
    Fault::Refused("a manifest of so many files would be longer than 4 MiB, which clients of registries refuse".into())
}
