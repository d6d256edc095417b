//! A source that changes at every moment of a backup: one file's inode number goes to another file, and files grow.
//!
//! At each moment one change is made, and then the backup goes on. Whatever a name holds in the snapshot, the name once
//! held in the source: the content with the permissions that it had there. Else the entry is marked as changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytesize::ByteSize;

use super::{BackupRequest, TreeSource, backup};
use crate::config::Config;
use crate::filesystem::observe;
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::read::Reader;
use crate::repo::snapshot;
use crate::repo::tree::{Node, NodeKind, TreeCursor};
use crate::store::MemoryStore;

/// Bytes of a file that Walk opens, and of one that Read does.
const LENGTHS: [usize; 2] = [9000, 600];

/// A source, and a directory beside it in the same file system.
struct Source {
    directory: tempfile::TempDir,
    len: usize,
}

/// What a path may hold: contents and permissions.
type Allowed = BTreeMap<PathBuf, BTreeSet<(Vec<u8>, u32)>>;

impl Source {
    fn new(len: usize) -> Self {
        let source = Source { directory: tempfile::tempdir().unwrap(), len };
        for directory in ["src/a", "src/m", "src/z", "beside"] {
            fs::create_dir_all(source.path(directory)).unwrap();
        }
        source.write("src/a/1", b'A', 0o644);
        fs::hard_link(source.path("src/a/1"), source.path("src/a/2")).unwrap();
        source.write("src/a/3", b'P', 0o644);
        source.write("src/m/1", b'M', 0o600);
        source.write("src/m/2", b'L', 0o640);
        fs::hard_link(source.path("src/m/2"), source.path("src/m/3")).unwrap();
        source
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file with one of a few times, as a source has them that was copied together.
    fn write(&self, name: &str, byte: u8, mode: u32) {
        let path = self.path(name);
        fs::write(&path, vec![byte; self.len]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }

    fn link(&self, from: &str, to: &str) {
        fs::hard_link(self.path(from), self.path(to)).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Gives the inode of `names` to a new file, which is at `beside/new` then.
    fn reuse(&self, names: &[&str], byte: u8, mode: u32) {
        fs::rename(self.path(names[0]), self.path("beside/new")).unwrap();
        names[1..].iter().for_each(|name| self.remove(name));
        self.write("beside/new", byte, mode);
    }

    fn allowed(&self, allowed: &mut Allowed) {
        for directory in ["src/a", "src/m", "src/z"] {
            for entry in fs::read_dir(self.path(directory)).unwrap() {
                let path = entry.unwrap().path();
                let holds = (fs::read(&path).unwrap(), path.metadata().unwrap().mode() & 0o7777);
                allowed.entry(path.strip_prefix(self.directory.path()).unwrap().into()).or_default().insert(holds);
            }
        }
    }
}

/// A change of the source, by name.
type Change = (&'static str, fn(&Source));

const CHANGES: [Change; 7] = [
    ("two names of a new file get the inode of two names of another", |source| {
        source.reuse(&["src/a/1", "src/a/2"], b'Z', 0o600);
        source.link("beside/new", "src/z/1");
        source.link("beside/new", "src/z/2");
        source.remove("beside/new");
    }),
    ("a new file gets the inode of two names", |source| {
        source.reuse(&["src/a/1", "src/a/2"], b'Z', 0o600);
        fs::rename(source.path("beside/new"), source.path("src/z/1")).unwrap();
    }),
    ("two names of a new file get the inode of another", |source| {
        source.reuse(&["src/a/3"], b'Z', 0o600);
        source.link("beside/new", "src/z/1");
        source.link("beside/new", "src/z/2");
        source.remove("beside/new");
    }),
    ("a new file gets the inode and the name of another", |source| {
        source.reuse(&["src/a/3"], b'Z', 0o600);
        fs::rename(source.path("beside/new"), source.path("src/a/3")).unwrap();
    }),
    ("a new file gets one of two names and the inode", |source| {
        source.reuse(&["src/m/2", "src/m/3"], b'Z', 0o600);
        source.link("beside/new", "src/m/3");
        source.link("beside/new", "src/m/2");
        source.remove("beside/new");
    }),
    ("files grow beyond several buffers", |source| {
        for name in ["src/a/1", "src/a/3", "src/m/1"] {
            let len = 60_000;
            File::options().append(true).open(source.path(name)).unwrap().write_all(&vec![b'+'; len]).unwrap();
        }
    }),
    ("deleted and created again", |source| {
        source.remove("src/a/1");
        source.remove("src/a/2");
        source.write("src/z/1", b'Z', 0o600);
        source.link("src/z/1", "src/z/2");
    }),
];

fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config.pipeline.batch_bytes = ByteSize::b(4096);
    config.model.detect_formats = false;
    config
}

fn stop() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

/// What the latest snapshot holds: files by path.
fn stored(repository: &Repository) -> BTreeMap<PathBuf, (Node, Vec<u8>)> {
    let named = snapshot::list(repository.store.as_ref()).unwrap().0.pop().unwrap();
    let reader = Reader::open(repository).unwrap();
    let (mut open, mut files) = (vec![(PathBuf::new(), named.snapshot.root)], BTreeMap::new());
    while let Some((path, content)) = open.pop() {
        let mut cursor = TreeCursor::open(content);
        while let Some(node) = reader.lend(|reader| cursor.next(reader)).unwrap() {
            let path = path.join(str::from_utf8(&node.name).unwrap());
            match node.kind {
                NodeKind::Directory => open.push((path, node.content)),
                _ => {
                    let bytes = reader.file(node.content, node.size).unwrap().head(1 << 20).unwrap();
                    assert_eq!(bytes.len() as u64, node.size, "{}", path.display());
                    files.insert(path, (node, bytes));
                }
            }
        }
    }
    files
}

/// Backs up a source that changes at its moment number `at`. Returns the number of moments.
fn backup_with(len: usize, (what, change): Change, at: usize) -> usize {
    let source = Arc::new(Source::new(len));
    let repository = Repository::init(Arc::new(MemoryStore::new()), &config().repository).unwrap();
    let mut allowed = Allowed::new();
    source.allowed(&mut allowed);
    let moments = Arc::new(AtomicUsize::new(0));
    let observed = {
        let (source, moments) = (source.clone(), moments.clone());
        observe(&source.path("src"), move || {
            if moments.fetch_add(1, Ordering::Relaxed) == at {
                change(&source);
            }
        })
    };
    let request = BackupRequest::new(TreeSource { bare: true, ..TreeSource::new(vec![source.path("src")], "test") });
    let report = backup(&repository, &config(), &request, &Progress::default(), &stop()).unwrap();
    drop(observed);
    source.allowed(&mut allowed);
    let (mut changed, none) = (0, BTreeSet::new());
    for (path, (node, bytes)) in stored(&repository) {
        let is_allowed = allowed.get(&path).unwrap_or(&none).contains(&(bytes.clone(), node.mode));
        changed += u64::from(node.changed);
        let holds = bytes.first().map(|byte| char::from(*byte));
        assert!(
            is_allowed || node.changed,
            "{what}, moment {at}: {} holds {holds:?}, mode {:o}",
            path.display(),
            node.mode
        );
    }
    assert!(report.problems >= changed, "{what}, moment {at}: a changed file is no problem");
    moments.load(Ordering::Relaxed)
}

#[test]
fn whenever_a_source_changes_a_name_gets_what_it_held_and_a_file_is_read_to_its_end() {
    for len in LENGTHS {
        for change in CHANGES {
            let moments = backup_with(len, change, usize::MAX);
            assert!(moments > 20, "{moments}");
            for at in 0..=moments {
                backup_with(len, change, at);
            }
        }
    }
}
