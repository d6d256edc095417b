//! Publish: gives a directory of a snapshot a name under which `serve` shows it.
//!
//! The new snapshot refers to the listing that the original has, so nothing is copied. As with `tag`, it counts only if
//! the original is still there once the new one is put, and no prune has announced itself: such a prune may have listed
//! the snapshots before, and what only the new one needs would go.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::keep::forget;
use crate::repo::Repository;
use crate::repo::features::{self, Feature};
use crate::repo::marks::check_writable;
use crate::repo::published::{self, Publication, PublishedKind, PublishedSnapshot, PublishedTally, PublishedTree};
use crate::repo::read::Reader;
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{self, FLAGS_RECORDED_KEY, NamedSnapshot, Snapshot};
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::repo::tree::{NodeKind, find_entry};
use crate::types::SnapshotId;

/// What is published, and as what.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    /// The snapshot that has it.
    pub original: NamedSnapshot,
    /// The directory. `None` for the root.
    pub path: Option<PathBuf>,
    /// `ORG/NAME`.
    pub name: String,
    /// The revision.
    pub revision: String,
    /// What it is.
    pub kind: PublishedKind,
    /// Delete the older snapshots of the name and revision.
    pub replace: bool,
}

/// What became of a request.
#[derive(Debug)]
pub struct PublishOutcome {
    /// The published snapshot.
    pub published: PublishedSnapshot,
    /// Whether the revision showed the same before, so that nothing was stored.
    pub is_unchanged: bool,
    /// What it shows.
    pub tally: PublishedTally,
    /// Older snapshots that were deleted.
    pub replaced: Vec<SnapshotId>,
}

/// The directory that a snapshot of its own gets.
#[derive(Debug)]
pub struct PublishedRoot {
    /// Its listing.
    pub content: Option<ContentReference>,
    /// Its path in the original.
    pub path: PathBuf,
    /// The path of what is shown in it.
    pub directory: Vec<u8>,
}

/// Publishes a directory.
///
/// # Errors
/// [`Error::Usage`] if it cannot be published, if a prune is running, or if the snapshot is not reported;
/// [`Error::NoSuchPath`]; [`Error::NoSuchSnapshot`] if it was deleted meanwhile. Nothing is changed then. Errors of the
/// store.
pub fn publish(repository: &Repository, request: &PublishRequest) -> Result<PublishOutcome> {
    let PublishRequest { original, name, revision, kind, .. } = request;
    check_writable(repository)?;
    if !features::has(repository, Feature::Derivations)? {
        let text = "older versions of fhrd would take it for a backup, and their rules would delete others for it";
        return Err(Error::Usage(format!("cannot publish before `fhrd upgrade`: {text}")));
    }
    let store = repository.store.as_ref();
    if !snapshot::is_reported(store, original)? {
        let text = "its backup still runs, or was killed just before it was complete";
        return Err(Error::Usage(format!("cannot publish snapshot {:.8}: {text}", original.id)));
    }
    let reader = Reader::open(repository)?;
    let root = published_root(&reader, original, request.path.as_deref())?;
    let directory = root.directory.clone().into();
    let publication = Publication { name: name.clone(), revision: revision.clone(), kind: *kind, directory };
    let mut extra = BTreeMap::new();
    publication.attach(&mut extra)?;
    let (before, unreadable) = names(repository)?;
    check_case(&before, &publication)?;
    let tally = PublishedTree::new(reader, Arc::default(), root.content, &publication).tally();
    let tally = tally.map_err(|error| snapshot::explain_loss(store, [&original.id], error))?;
    if tally.files == 0 {
        let what = if tally.hidden == 0 { "it is empty" } else { "it shows no file, only links that lead out of it" };
        return Err(Error::Usage(format!("{} is not published: {what}", shown(&root.path))));
    }
    let commit = publication.commit(root.content)?;
    let mut older = before;
    older.retain(|older| older.publication.is_same_name(&publication) && older.publication.revision == *revision);
    // What cannot be read may be a later one of this revision, which then must not be the last.
    if unreadable == 0 && older.last().is_some_and(|last| last.commit == commit) {
        let published = older.pop().ok_or_else(|| Error::internal("the last of some snapshots is gone"))?;
        let replaced = replace(repository, request, &older)?;
        return Ok(PublishOutcome { published, is_unchanged: true, tally, replaced });
    }
    if original.snapshot.records_flags() {
        extra.insert(FLAGS_RECORDED_KEY.into(), Vec::new().into());
    }
    let snapshot = Snapshot {
        time_ns: time_after(&older, repository.clock.now_ns()),
        host: original.snapshot.host.clone(),
        user: original.snapshot.user.clone(),
        paths: vec![Path::new("/").join(&root.path).as_os_str().as_bytes().to_vec().into()],
        root: root.content,
        tags: vec![published::TAG.into()],
        program: concat!("fhrd ", env!("CARGO_PKG_VERSION")).into(),
        statistics: BTreeMap::from([("files".into(), tally.files), ("bytes".into(), tally.bytes)]),
        extra,
        // It makes the id new. The intent has no blob, so the snapshot counts as reported.
        intent: Some(repository.salts.draw()?.to_vec()),
        ..Snapshot::default()
    };
    let id = snapshot.save(store)?;
    if let Err(error) = snapshot::check_replaced(store, &original.id) {
        snapshot::delete(store, &id)?;
        return Err(error);
    }
    let published = PublishedSnapshot { named: NamedSnapshot { id, snapshot }, publication, commit };
    let replaced = replace(repository, request, &older)?;
    Ok(PublishOutcome { published, is_unchanged: false, tally, replaced })
}

/// Deletes those of `snapshots` that are published under a name, with one revision or all. Returns them.
///
/// # Errors
/// [`Error::Usage`] if there are none. Errors of the store.
pub fn unpublish(
    repository: &Repository,
    snapshots: Vec<NamedSnapshot>,
    name: &str,
    kind: PublishedKind,
    revision: Option<&str>,
) -> Result<Vec<PublishedSnapshot>> {
    let mut found = published::published(snapshots, repository.clock.now_ns())?;
    found.retain(|found| {
        let Publication { name: own, kind: own_kind, revision: own_revision, .. } = &found.publication;
        own == name && *own_kind == kind && revision.is_none_or(|revision| own_revision == revision)
    });
    if found.is_empty() {
        let revision = revision.map(|revision| format!(" with the revision `{revision}`")).unwrap_or_default();
        return Err(Error::Usage(format!("no {} `{name}`{revision} is published", kind.name())));
    }
    forget(repository, &found.iter().map(|found| found.named.id).collect::<Vec<_>>())?;
    Ok(found)
}

/// The published snapshots, the last one of each revision behind the others, and how many snapshots cannot be read.
/// Those are logged.
///
/// # Errors
/// Errors of listing the store.
fn names(repository: &Repository) -> Result<(Vec<PublishedSnapshot>, usize)> {
    let SnapshotListing { snapshots, damaged, .. } = snapshot_listing::list(repository)?;
    damaged.iter().for_each(|(name, error)| tracing::warn!("skipping {name}: {error}"));
    Ok((published::published(snapshots, repository.clock.now_ns())?, damaged.len()))
}

/// The time of a publication that replaces the last one of `older`. The last one by time counts, and the clock of the
/// machine that published that may be some minutes ahead.
fn time_after(older: &[PublishedSnapshot], now_ns: i64) -> i64 {
    let last = older.last().map(|last| &last.named.snapshot).filter(|last| !last.is_future(now_ns));
    last.map_or(now_ns, |last| now_ns.max(last.time_ns.saturating_add(1)))
}

fn replace(repository: &Repository, request: &PublishRequest, older: &[PublishedSnapshot]) -> Result<Vec<SnapshotId>> {
    let replaced: Vec<SnapshotId> = older.iter().filter(|_| request.replace).map(|older| older.named.id).collect();
    if !replaced.is_empty() {
        forget(repository, &replaced)?;
    }
    Ok(replaced)
}

/// Some clients ask in lower case, so two names must differ by more.
fn check_case(before: &[PublishedSnapshot], new: &Publication) -> Result<()> {
    let names = before.iter().map(|before| &before.publication).filter(|before| before.kind == new.kind);
    match names.map(|before| &before.name).find(|name| **name != new.name && name.eq_ignore_ascii_case(&new.name)) {
        None => Ok(()),
        Some(name) => {
            Err(Error::Usage(format!("`{name}` is published, which differs from `{}` by case only", new.name)))
        }
    }
}

/// What is published of a snapshot, by the path of a directory. Of a revision in a cache of the Hub, it is the model of
/// the cache, because the files of a revision are links to its `blobs`.
///
/// # Errors
/// [`Error::Usage`] if there is no directory; [`Error::NoSuchPath`]; errors of reading.
pub fn published_root(reader: &Reader, original: &NamedSnapshot, path: Option<&Path>) -> Result<PublishedRoot> {
    let Some(path) = path else {
        // Another name of what is published shows the same.
        let directory = Publication::of(&original.snapshot).map(|own| own.directory.to_vec()).unwrap_or_default();
        return Ok(PublishedRoot { content: original.snapshot.root, path: PathBuf::new(), directory });
    };
    let mut chunks = reader.chunks();
    let mut directory_at = |path: &Path| {
        let (found, node) = find_entry(&mut chunks, original, path)?;
        let node = node.map(|node| (node.kind == NodeKind::Directory, node.content, node.partial));
        Ok((found, node.unwrap_or((true, original.snapshot.root, false))))
    };
    let (found, (is_directory, content, is_partial)) = directory_at(path)?;
    if !is_directory {
        return Err(Error::Usage(format!("{} is no directory, so it is not published", shown(&found))));
    }
    if is_partial {
        tracing::warn!("{} may lack entries, because its backup left some out", shown(&found));
    }
    let whole = PublishedRoot { content, path: found.clone(), directory: Vec::new() };
    let (Some(revision), Some(snapshots)) = (found.file_name(), found.parent()) else { return Ok(whole) };
    let (Some(true), Some(model)) = (snapshots.file_name().map(|name| name == "snapshots"), snapshots.parent()) else {
        return Ok(whole);
    };
    match directory_at(&model.join("blobs")) {
        Ok((_, (true, _, _))) => {
            let directory = [b"snapshots/", revision.as_bytes()].concat();
            let (path, (_, content, _)) = directory_at(model)?;
            Ok(PublishedRoot { content, path, directory })
        }
        Ok(_) | Err(Error::NoSuchPath { .. }) => Ok(whole),
        Err(error) => Err(error),
    }
}

fn shown(path: &Path) -> String {
    let path = if path.as_os_str().is_empty() { OsStr::new("/") } else { path.as_os_str() };
    path.to_string_lossy().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_is_later_than_the_one_before_whatever_the_clock_says() {
        let tolerance = crate::repo::clock::TOLERANCE_NS;
        let at = |time_ns| PublishedSnapshot {
            named: NamedSnapshot { id: SnapshotId([0; 32]), snapshot: Snapshot { time_ns, ..Snapshot::default() } },
            publication: Publication {
                name: "a/b".into(),
                revision: "main".into(),
                kind: PublishedKind::Model,
                directory: Vec::new().into(),
            },
            commit: String::new(),
        };
        assert_eq!(time_after(&[], 1_000), 1_000);
        assert_eq!(time_after(&[at(5)], 1_000), 1_000);
        assert_eq!(time_after(&[at(5), at(1_000)], 1_000), 1_001);
        assert_eq!(time_after(&[at(1_000 + tolerance)], 1_000), 1_001 + tolerance);
        assert_eq!(time_after(&[at(1_001 + tolerance)], 1_000), 1_000, "one from the future counts for nothing");
    }
}
