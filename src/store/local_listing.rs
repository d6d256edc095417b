//! Lists the blobs of a local store.
//!
//! 1. Every regular file with the name of a blob is one, but for those below `tmp`.
//! 2. A link in the place of a blob that is named by a hash, or of a directory of blobs, counts as what it refers to:
//!    somebody has moved a part of the store to another disk. Other links are foreign.
//! 3. What is there and cannot be looked at is listed, with a length of 0: it is not absent, and whoever reads it
//!    learns why it cannot be read. So is what has the name of a blob and is no file.
//! 4. What is in the place of a directory and is none is unreadable, never empty.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::ListedBlob;
use super::directories::{is_at_or_below, is_containers_part, no_directory};
use super::kind::{BlobKind, BlobName};
use super::name::{HASH_DIGITS, TEMPORARY_PREFIX, is_component};
use crate::error::{Error, Result};

/// Components of the longest name of a blob.
const COMPONENTS_MAX: usize = 3;

/// Appends the blobs below `directory`, whose name is `prefix` (empty for the root).
pub(super) fn list_directory(directory: &Path, prefix: &str, listed: &mut Vec<ListedBlob>) -> Result<()> {
    let failed = |error: std::io::Error| match is_lost_data(&error) {
        true => Error::Unreadable { what: format!("the directory {prefix}"), offset: 0, source: error },
        false => Error::io("list", directory, error),
    };
    let entries = match fs::read_dir(directory) {
        Err(error) if is_absent(&error) && !is_behind_link(directory) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(no_directory(prefix)),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let component = entry.file_name();
        let Some(component) = component.to_str().filter(|component| is_component(component)) else { continue };
        let name = if prefix.is_empty() { component.into() } else { format!("{prefix}/{component}") };
        if name == TEMPORARY_PREFIX {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        let blob = BlobName::parse(&name);
        if let Ok(blob) = &blob
            && blob.is_own()
            && !kind.is_file()
            && !kind.is_symlink()
        {
            listed.push(ListedBlob { name: blob.clone(), len: 0 });
        } else if kind.is_dir() {
            list_directory(&entry.path(), &name, listed)?;
        } else if is_containers_part(prefix, component) || (kind.is_symlink() && is_directory_of_blobs(&name)) {
            list_linked(&entry.path(), &name, listed)?;
        } else if kind.is_file() || (kind.is_symlink() && component.len() == HASH_DIGITS) {
            // A path that is too long for a name is nobody's.
            let Ok(name) = blob else { continue };
            match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_file() => listed.push(ListedBlob { name, len: metadata.len() }),
                Ok(_) if name.is_own() => listed.push(ListedBlob { name, len: 0 }),
                Ok(_) => {}
                Err(error) if is_absent(&error) && !kind.is_symlink() => {}
                // It is there, and whoever reads it learns why it cannot be read.
                Err(error) if is_lost_data(&error) || kind.is_symlink() => listed.push(ListedBlob { name, len: 0 }),
                Err(error) => return Err(Error::io("inspect", entry.path(), error)),
            }
        } else if kind.is_symlink() && prefix == BlobKind::Container.to_string() {
            list_linked(&entry.path(), &name, listed)?;
        }
    }
    Ok(())
}

/// Whether blobs of a kind are in the directory `name`, or further below it.
fn is_directory_of_blobs(name: &str) -> bool {
    BlobKind::all().any(|kind| is_at_or_below(kind.directory(), name))
}

/// Appends the blobs below what is in the place of the directory `name`. Somebody has moved it to another disk if it is
/// a link.
fn list_linked(path: &Path, name: &str, listed: &mut Vec<ListedBlob>) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => list_directory(path, name, listed),
        Ok(_) => Err(no_directory(name)),
        Err(source) => Err(Error::Unreadable { what: format!("the directory {name}"), offset: 0, source }),
    }
}

/// Whether the device lost the data, as with a bad sector or a checksum that the file system verified, or a link leads
/// nowhere.
pub(super) fn is_lost_data(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    #[cfg(target_os = "linux")]
    let lost = [Errno::IO, Errno::BADMSG, Errno::LOOP, Errno::NOENT, Errno::NOTDIR, Errno::UCLEAN, Errno::REMOTEIO];
    #[cfg(not(target_os = "linux"))]
    let lost = [Errno::IO, Errno::BADMSG, Errno::LOOP, Errno::NOENT, Errno::NOTDIR];
    errno.is_some_and(|errno| lost.contains(&errno))
}

/// Whether a link that leads nowhere is on the way to a blob, or in its place: what it refers to may be on a disk
/// that is away.
pub(super) fn is_behind_link(path: &Path) -> bool {
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    path.ancestors().take(COMPONENTS_MAX).any(|path| is_link(path) && fs::metadata(path).is_err())
}

/// Whether the path does not exist. What leads through a file is unreadable.
pub(super) fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::error::ErrorKind;
    use crate::store::{BlobKind, BlobName, LocalStore, Reading, Store, StoreExt};

    #[test]
    fn a_directory_that_is_a_link_is_listed_with_all_others_and_never_taken_for_empty() {
        let (root, other) = (tempfile::tempdir().expect("creates"), tempfile::tempdir().expect("creates"));
        let store = LocalStore::create(root.path()).expect("creates");
        let kinds = || BlobKind::all().filter(|kind| !matches!(kind, BlobKind::Config | BlobKind::ConfigCopy));
        let names: Vec<_> = kinds().map(|kind| BlobName::hashed(kind, &[3; 32])).collect();
        names.iter().for_each(|name| assert!(store.put_if_absent(name, &[b"content"]).expect("puts")));
        let all = || store.list(crate::store::BlobPrefix::All).map(|listed| listed.len());
        let count = all().expect("lists");
        let tops: std::collections::BTreeSet<_> =
            kinds().filter_map(|kind| kind.directory().split('/').next()).collect();
        for top in tops {
            let (path, target) = (root.path().join(top), other.path().join(top));
            std::fs::rename(&path, &target).expect("moves");
            symlink(&target, &path).expect("links");
            assert_eq!(all().expect("lists"), count, "{top}");
            std::fs::rename(&target, other.path().join("away")).expect("moves");
            assert!(all().is_err(), "{top} leads nowhere");
            std::fs::remove_file(&path).expect("removes");
            std::fs::rename(other.path().join("away"), &path).expect("moves back");
        }
    }

    #[test]
    fn what_has_the_name_of_a_blob_and_is_no_file_is_unreadable() {
        let directory = tempfile::tempdir().expect("creates a directory");
        let store = LocalStore::create(directory.path()).expect("creates");
        let kinds = BlobKind::all().filter(|kind| !matches!(kind, BlobKind::Config | BlobKind::ConfigCopy));
        let names = kinds.flat_map(|kind| [BlobName::hashed(kind, &[3; 32]), BlobName::random(kind, &[4; 16])]);
        for name in names {
            let path = directory.path().join(&name);
            std::fs::create_dir_all(&path).expect("creates a directory");
            std::fs::write(path.join("inner"), b"x").expect("writes");
            let listed = store.list(name.kind().into()).expect("lists");
            assert!(listed.iter().any(|blob| blob.name == name && blob.len == 0), "{name}: {listed:?}");
            assert!(!listed.iter().any(|blob| blob.name.ends_with("inner")), "{name}: {listed:?}");
            let reads = [
                store.head(&name).map(drop),
                store.get(&name, 9).map(drop),
                store.get_range(&name, 0, 1, Reading::Once).map(drop),
            ];
            for error in reads.map(|read| read.expect_err(&name)) {
                assert!(error.is_unreadable() && !error.is_proven_damage(), "{name}: {error}");
            }
            std::fs::remove_dir_all(&path).expect("removes");
        }
    }

    #[test]
    fn what_is_behind_a_link_is_there_or_unreadable_but_never_absent() {
        let directory = tempfile::tempdir().expect("creates a directory");
        let (root, away) = (directory.path().join("store"), directory.path().join("away"));
        let name = BlobName::hashed(BlobKind::Container, &[3; 32]);
        for moved in ["containers", "containers/03", name.as_str()] {
            let store = LocalStore::create(&root).expect("creates");
            store.put_if_absent(&name, &[b"content"]).expect("puts");
            std::fs::rename(root.join(moved), &away).expect("moves");
            let reads = |store: &LocalStore| {
                (store.head(&name), store.get(&name, 100), store.get_range(&name, 0, 3, Reading::Once))
            };
            symlink(&away, root.join(moved)).expect("links");
            let listed = store.list(BlobKind::Container.into()).expect("lists");
            assert_eq!((listed.len(), listed[0].len), (1, 7), "{moved}");
            assert_eq!(store.get(&name, 100).expect("reads"), b"content");
            for target in ["nowhere", moved.rsplit('/').next().expect("a name")] {
                std::fs::remove_file(root.join(moved)).expect("removes the link");
                symlink(target, root.join(moved)).expect("links");
                let store = LocalStore::open(&root).expect("opens");
                let (head, whole, range) = reads(&store);
                let errors = [head.map(drop), whole.map(drop), range.map(drop)].map(|read| read.expect_err(moved));
                for error in errors {
                    assert!(error.kind() == ErrorKind::Damaged && !error.is_proven_damage(), "{moved}: {error}");
                }
                match store.list(BlobKind::Container.into()) {
                    Ok(listed) => assert!(moved == name.as_str() && listed[0].name == name, "{moved}: {listed:?}"),
                    Err(error) => assert!(error.is_unreadable(), "{moved}: {error}"),
                }
            }
            std::fs::remove_dir_all(&root).expect("removes");
            let _ = std::fs::remove_dir_all(&away).or_else(|_| std::fs::remove_file(&away));
        }
    }
}
