//! Names for the model directories of backups, without records of them in the repository.
//!
//! 1. Of each host and its paths, the last backup counts, or the last of each share of it. A directory that has a model
//!    of the catalogue has the name `HOST/PATH`, with dots for slashes. A model in a cache of the Hub has the name that
//!    it has there.
//! 2. The root of such a name is the directory itself, so links lead to nothing else. Of a cache of the Hub it is the
//!    directory of the model, as for `fhrd publish`.
//! 3. Each backup is walked once. A name that is published is left out. While a backup, or a model in it, cannot be
//!    read, names that are not found are unavailable, not absent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::inspect::models::model_directories;
use crate::keep::{PublishedRoot, published_root};
use crate::repo::Repository;
use crate::repo::published::{
    COMMIT_DIGITS, DEFAULT_REVISION, Publication, PublishedItem, PublishedKind, PublishedSnapshot, PublishedTree,
    name_defect,
};
use crate::repo::read::Reader;
use crate::repo::share_record::last_of_source;
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::types::SnapshotId;

/// Names of one backup, at most.
const NAMES_MAX: usize = 10_000;
/// Digits of a commit of the Hub in the revision of one that is not the main one.
const DIGITS_SHOWN: usize = 12;
/// Bytes of a host and of a path in a name, without the digits of one that is longer. Clients refuse longer names.
const HOST_BYTES_MAX: usize = 30;
const PATH_BYTES_MAX: usize = 46;
/// First letters of the directory of a model in a cache of the Hub.
const CACHED: &str = "models--";

/// Time after which a backup that could not be read is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// What was found in a backup.
#[derive(Clone)]
struct BackupNames {
    found: Arc<Vec<PublishedSnapshot>>,
    /// Whether all of it could be read.
    is_whole: bool,
    tried: Instant,
}

/// What was found in the last backups.
#[derive(Default)]
pub struct UnrecordedNames(Mutex<HashMap<SnapshotId, BackupNames>>);

impl UnrecordedNames {
    /// The names of the last one of `backups` of each host and its paths, without those in `recorded`, and how many of
    /// these backups cannot be read as a whole. Blocks.
    pub fn find(
        &self,
        repository: &Repository,
        backups: &[NamedSnapshot],
        recorded: &[PublishedSnapshot],
    ) -> (Vec<PublishedSnapshot>, usize) {
        let now_ns = repository.clock.now_ns();
        let mut sources: BTreeMap<_, Vec<&NamedSnapshot>> = BTreeMap::new();
        for named in backups.iter().filter(|named| !named.snapshot.is_future(now_ns)) {
            sources.entry((&named.snapshot.host, &named.snapshot.paths)).or_default().push(named);
        }
        let mut last: Vec<&NamedSnapshot> = sources.into_values().flat_map(|all| last_of_source(&all)).collect();
        last.sort_by_key(|named| named.snapshot.time_ns);
        self.0.lock().retain(|id, _| last.iter().any(|named| named.id == *id));
        let (mut all, mut unreadable) = (Vec::new(), 0);
        for named in last {
            let own = self.of_backup(repository, named);
            all.extend(own.found.iter().cloned());
            unreadable += usize::from(!own.is_whole);
        }
        let recorded: BTreeSet<String> =
            recorded.iter().map(|found| found.publication.name.to_ascii_lowercase()).collect();
        all.retain(|found| !recorded.contains(&found.publication.name.to_ascii_lowercase()));
        (all, unreadable)
    }

    /// The names of a backup. What cannot be read is logged.
    fn of_backup(&self, repository: &Repository, named: &NamedSnapshot) -> BackupNames {
        let known = self.0.lock().get(&named.id).cloned();
        if let Some(known) = known.filter(|known| known.is_whole || known.tried.elapsed() < RETRY) {
            return known;
        }
        let (found, is_whole) = found_in(repository, named).unwrap_or_else(|error| {
            tracing::error!("no models of snapshot {:.8} are shown: {error}", named.id);
            (Vec::new(), false)
        });
        let own = BackupNames { found: Arc::new(found), is_whole, tried: Instant::now() };
        self.0.lock().insert(named.id, own.clone());
        own
    }
}

/// The model directories of a backup under their names, and whether all of them could be read.
fn found_in(repository: &Repository, named: &NamedSnapshot) -> Result<(Vec<PublishedSnapshot>, bool)> {
    let reader = Reader::open(repository)?;
    // At the end of the server, reads of the repository fail.
    let directories = model_directories(repository, named, &AtomicBool::new(false))?;
    let (mut found, mut is_whole) = (Vec::new(), true);
    for directory in directories {
        match found_at(&reader, named, &directory) {
            Ok(shown) => found.extend(shown),
            Err(error) => {
                tracing::error!("{} of snapshot {:.8} is not shown: {error}", directory.display(), named.id);
                is_whole = false;
            }
        }
        if found.len() >= NAMES_MAX {
            tracing::warn!("of the models of snapshot {:.8}, only {NAMES_MAX} are shown", named.id);
            break;
        }
    }
    Ok((found, is_whole))
}

/// A model directory of a backup under its names.
fn found_at(reader: &Reader, named: &NamedSnapshot, directory: &Path) -> Result<Vec<PublishedSnapshot>> {
    let shown = match cached_model(directory) {
        Some((model, name)) => cached_revisions(reader, named, model, &name)?,
        None => {
            let name = path_name(&named.snapshot.host, &directory.to_string_lossy());
            vec![(name, DEFAULT_REVISION.into(), published_root(reader, named, Some(directory))?)]
        }
    };
    let shown = shown.into_iter().map(|(name, revision, root)| shown_as(reader, named, name, revision, root));
    shown.filter_map(Result::transpose).collect()
}

/// A directory under a name, if it has files that can be shown.
fn shown_as(
    reader: &Reader,
    named: &NamedSnapshot,
    name: String,
    revision: String,
    root: PublishedRoot,
) -> Result<Option<PublishedSnapshot>> {
    if let Some(defect) = name_defect(&name) {
        tracing::warn!("{} is not shown: {defect}", root.path.display());
        return Ok(None);
    }
    let directory = root.directory.into();
    let publication = Publication { name, revision, kind: PublishedKind::Model, directory };
    let tally = PublishedTree::new(reader.clone(), Arc::default(), root.content, &publication).tally();
    let tally = match tally {
        Ok(tally) if tally.files > 0 => tally,
        Ok(_) => return Ok(None),
        // It has more than a name can show.
        Err(error @ Error::Usage(_)) => {
            tracing::warn!("{} is not shown: {error}", root.path.display());
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let commit = publication.commit(root.content)?;
    let snapshot = Snapshot {
        time_ns: named.snapshot.time_ns,
        host: named.snapshot.host.clone(),
        root: root.content,
        statistics: BTreeMap::from([("files".into(), tally.files), ("bytes".into(), tally.bytes)]),
        ..Snapshot::default()
    };
    Ok(Some(PublishedSnapshot { named: NamedSnapshot { id: named.id, snapshot }, publication, commit }))
}

/// The directory of a model in a cache of the Hub and its name, if `directory` has the files of one.
fn cached_model(directory: &Path) -> Option<(&Path, String)> {
    let model = directory.parent().filter(|_| directory.ends_with("blobs"))?;
    let (organisation, name) = model.file_name()?.to_str()?.strip_prefix(CACHED)?.split_once("--")?;
    Some((model, format!("{organisation}/{name}")))
}

/// The revisions of a model in a cache of the Hub. The main one comes last.
fn cached_revisions(
    reader: &Reader,
    named: &NamedSnapshot,
    model: &Path,
    name: &str,
) -> Result<Vec<(String, String, PublishedRoot)>> {
    let whole = published_root(reader, named, Some(model))?;
    let directory = Vec::new().into();
    let all = Publication { name: name.into(), revision: String::new(), kind: PublishedKind::Model, directory };
    let tree = PublishedTree::new(reader.clone(), Arc::default(), whole.content, &all);
    let main = match tree.find(&[b"refs".to_vec(), DEFAULT_REVISION.into()])? {
        Some(PublishedItem::File(file)) => tree.open(&file)?.head(COMMIT_DIGITS)?,
        _ => Vec::new(),
    };
    let page = tree.page(&[b"snapshots".to_vec()], None, false, NAMES_MAX)?.unwrap_or_default();
    let mut revisions: Vec<Vec<u8>> = page.items.into_iter().filter_map(|(mut path, _)| path.pop()).collect();
    revisions.sort_by_key(|revision| *revision == main);
    let count = revisions.len();
    let named_so = revisions.into_iter().enumerate().map(|(at, revision)| {
        let digits = String::from_utf8_lossy(revision.get(..DIGITS_SHOWN).unwrap_or(&revision));
        let label =
            if at + 1 == count { DEFAULT_REVISION.into() } else { format!("at-{}", part(&digits, DIGITS_SHOWN)) };
        let path = model.join("snapshots").join(std::ffi::OsStr::from_bytes(&revision));
        Ok((name.to_string(), label, published_root(reader, named, Some(&path))?))
    });
    named_so.collect()
}

/// The name of a directory of a host.
fn path_name(host: &str, directory: &str) -> String {
    format!("{}/{}", part(host, HOST_BYTES_MAX), part(directory, PATH_BYTES_MAX))
}

/// A text as a part of a name: what cannot be in one becomes a dash, and slashes become dots. One that is too long
/// loses its beginning.
fn part(text: &str, bytes_max: usize) -> String {
    let mut part = String::with_capacity(text.len());
    for letter in text.chars() {
        let letter = match letter {
            '/' => '.',
            letter if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.') => letter,
            _ => '-',
        };
        // Two in a row, and `.-`, are not allowed or say nothing.
        if !(matches!(letter, '.' | '-') && part.ends_with(['.', '-'])) {
            part.push(letter);
        }
    }
    let start = part.len().saturating_sub(bytes_max);
    let short = part.get(start..).unwrap_or_default().trim_matches(['.', '-']);
    let short = short.strip_suffix(".git").unwrap_or(short);
    if start == 0 { short.into() } else { format!("{short}-{}", digest(text)) }
}

/// Some hex digits that tell long texts apart.
fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().as_str().chars().take(8).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn every_path_becomes_a_name_that_clients_accept() {
        for (path, expected) in [
            ("home/me/models/tune", "home.me.models.tune"),
            ("/home/.cache//x--y/", "home.cache.x-y"),
            ("my model (1)", "my-model-1"),
            ("\u{fc}ber/a.git", "ber.a"),
        ] {
            assert_eq!(part(path, PATH_BYTES_MAX), expected, "{path}");
        }
        let long = |start: &str| format!("{start}/{}", "b".repeat(90));
        assert_ne!(path_name("h", &long("a")), path_name("h", &long("c")), "long ones stay apart");
        for host in ["host-1.example.org", &"h".repeat(300), "-"] {
            let name = path_name(host, &long("a"));
            assert_eq!(name_defect(&name).is_none(), host != "-", "{name}");
        }
    }

    #[test]
    fn a_model_in_a_cache_of_the_hub_keeps_its_name() {
        let of = |path: &str| cached_model(Path::new(path)).map(|(model, name)| (PathBuf::from(model), name));
        let model = PathBuf::from("hub/models--org--my--name");
        assert_eq!(of("hub/models--org--my--name/blobs"), Some((model, "org/my--name".into())));
        assert_eq!(of("hub/models--name/blobs"), None);
        assert_eq!(of("hub/blobs"), None);
        assert_eq!(of("hub/models--org--name"), None);
    }
}
