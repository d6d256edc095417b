//! Compares a restored tree with its source: names, types, link targets and every byte of content.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use fhrd::error::{Error, Result};

/// Bytes of each of the two buffers.
const BUFFER_BYTES: usize = 1 << 20;

/// Fails unless `restored` has the content of `source`. Of the metadata, only types are compared.
///
/// # Errors
/// [`Error::Usage`] with the first difference; [`Error::Io`] for entries that cannot be read.
pub fn compare(source: &Path, restored: &Path) -> Result<()> {
    let mut buffers = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let mut open = vec![(source.to_path_buf(), restored.to_path_buf())];
    while let Some((source, restored)) = open.pop() {
        let differs = |what: &str| Err(Error::Usage(format!("{} was restored with {what}", source.display())));
        let (left, right) = (file_type(&source)?, file_type(&restored)?);
        if left != right {
            return differs("another type");
        }
        if left.is_dir() {
            let (names, restored_names) = (names(&source)?, names(&restored)?);
            if names != restored_names {
                return differs("other entries");
            }
            open.extend(names.iter().map(|name| (source.join(name), restored.join(name))));
        } else if left.is_symlink() {
            if target(&source)? != target(&restored)? {
                return differs("another target");
            }
        } else if left.is_file()
            && let Some(offset) = difference(&source, &restored, &mut buffers)?
        {
            return differs(&format!("other content at byte {offset}"));
        }
    }
    Ok(())
}

fn file_type(path: &Path) -> Result<std::fs::FileType> {
    let metadata = std::fs::symlink_metadata(path).map_err(|error| Error::io("look at", path, error))?;
    Ok(metadata.file_type())
}

fn target(path: &Path) -> Result<PathBuf> {
    std::fs::read_link(path).map_err(|error| Error::io("read", path, error))
}

/// Names in a directory, sorted.
fn names(directory: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = std::fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<std::io::Result<_>>());
    let mut names: Vec<_> = entries.map_err(|error| Error::io("list", directory, error))?;
    names.sort();
    Ok(names)
}

/// Offset of the first byte that differs.
fn difference(left: &Path, right: &Path, (ours, theirs): &mut (Vec<u8>, Vec<u8>)) -> Result<Option<u64>> {
    let open = |path: &Path| File::open(path).map_err(|error| Error::io("read", path, error));
    let (mut left_file, mut right_file) = (open(left)?, open(right)?);
    let mut offset = 0;
    loop {
        let (a, b) = (fill(&mut left_file, left, ours)?, fill(&mut right_file, right, theirs)?);
        if a != b {
            let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
            return Ok(Some(offset + same as u64));
        }
        if a.is_empty() {
            return Ok(None);
        }
        offset += a.len() as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn fill<'a>(file: &mut File, path: &Path, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", path, error)),
        }
    }
    Ok(buffer.get(..len).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(directory: &Path, last: &[u8]) {
        std::fs::create_dir_all(directory.join("inner")).unwrap();
        std::fs::write(directory.join("inner/long"), [vec![7; 3 * BUFFER_BYTES / 2], last.to_vec()].concat()).unwrap();
        std::os::unix::fs::symlink("inner/long", directory.join("link")).unwrap();
    }

    fn pair(last: &[u8]) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (left, right) = (directory.path().join("left"), directory.path().join("right"));
        tree(&left, b"ab");
        tree(&right, last);
        (directory, left, right)
    }

    #[test]
    fn equal_trees_are_equal() {
        let (_directory, left, right) = pair(b"ab");
        compare(&left, &right).unwrap();
    }

    #[test]
    fn differences_of_content_entries_types_and_targets_are_found() {
        let message = |left: &Path, right: &Path| compare(left, right).unwrap_err().to_string();
        for last in [b"ax".as_slice(), b"a", b"abc"] {
            let (_directory, left, right) = pair(last);
            let at = 3 * BUFFER_BYTES / 2 + if last.len() > 2 { 2 } else { 1 };
            let text = message(&left, &right);
            assert!(text.contains("inner/long") && text.contains(&format!("content at byte {at}")), "{text}");
        }
        let (_directory, left, right) = pair(b"ab");
        std::fs::write(right.join("more"), "").unwrap();
        assert!(message(&left, &right).contains("other entries"));
        std::fs::remove_file(right.join("more")).unwrap();
        std::fs::remove_file(right.join("link")).unwrap();
        std::os::unix::fs::symlink("inner", right.join("link")).unwrap();
        assert!(message(&left, &right).contains("another target"));
        std::fs::remove_file(right.join("link")).unwrap();
        std::fs::create_dir(right.join("link")).unwrap();
        assert!(message(&left, &right).contains("another type"));
    }
}
