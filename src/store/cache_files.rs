//! Fragments of blobs in files of a local directory, which any number of processes share.
//!
//! 1. A file holds one fragment: its bytes, a checksum of each part of 64 KiB, and a checksum of these, of the name of
//!    the blob and of the place of the fragment. Every read is checked. A file that is torn, damaged or of another
//!    fragment is deleted, and the fragment counts as missing.
//! 2. A file is written under a temporary name and renamed, so others see it whole or not at all.
//! 3. Once the files exceed their bound, those that were not used for the longest time are deleted. A read notes its
//!    time in the file, at most once an hour.
//! 4. Files may be deleted at any time. Nothing here ever fails a caller: what cannot be kept is not kept.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::BlobName;
use crate::types::hex;
use crate::wire::{checksum, open_regular};

/// Bytes under one checksum.
const PART_BYTES: usize = 64 << 10;
const CHECKSUM_BYTES: usize = 16;
/// A file that was used within this time is not marked as used again.
const USE_NOTED: Duration = Duration::from_secs(3600);
/// A fragment takes at most one part in this many of the bound.
const FRAGMENT_SHARE: u64 = 4;
/// The directory is measured again once this process has written one part in this many of the bound.
const MEASURE_SHARE: u64 = 8;

/// Which fragment of a blob a file holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct FragmentName<'a> {
    /// Name of the blob.
    pub(super) blob: &'a BlobName,
    /// Which of its fragments; the same number always means the same place in the blob.
    pub(super) fragment: u64,
}

impl FragmentName<'_> {
    fn path(&self, directory: &Path) -> PathBuf {
        let name = hex(&checksum::<16>(&[self.blob.as_str().as_bytes(), b"\0", &self.fragment.to_le_bytes()]));
        let (shard, rest) = name.split_at(2);
        directory.join(shard).join(rest)
    }

    /// Checksum of all parts' checksums.
    fn seal(&self, sums: &[u8], len: u64) -> [u8; CHECKSUM_BYTES] {
        checksum(&[self.blob.as_str().as_bytes(), b"\0", &self.fragment.to_le_bytes(), &len.to_le_bytes(), sums])
    }
}

/// What this process knows of the size of the directory.
#[derive(Debug, Default)]
struct Measured {
    /// Bytes of all files when they were last counted, and what this process has added since. `None`: never counted.
    total: Option<u64>,
    /// Bytes that this process has added since.
    added: u64,
}

/// The directory.
#[derive(Debug)]
pub(super) struct CacheFiles {
    directory: PathBuf,
    bytes_max: u64,
    is_temporary: bool,
    measured: Mutex<Measured>,
}

impl Drop for CacheFiles {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

impl CacheFiles {
    /// Fragments in `directory`, which is created on demand; together about `bytes_max` bytes.
    pub(super) fn new(directory: PathBuf, bytes_max: u64) -> Self {
        CacheFiles { directory, bytes_max, is_temporary: false, measured: Mutex::default() }
    }

    /// The same, but nothing is there at the start, and nothing stays.
    pub(super) fn temporary(mut self) -> Self {
        let _ = fs::remove_dir_all(&self.directory);
        self.is_temporary = true;
        self
    }

    /// Bytes of a fragment, if there is a whole and undamaged one.
    pub(super) fn len(&self, name: FragmentName<'_>) -> Option<u64> {
        let metadata = fs::metadata(name.path(&self.directory)).ok().filter(fs::Metadata::is_file)?;
        fragment_len(metadata.len())
    }

    /// Reads `len` bytes from byte `offset` of a fragment on. `None` if it is missing, shorter or damaged.
    pub(super) fn read(&self, name: FragmentName<'_>, offset: u64, len: usize) -> Option<Vec<u8>> {
        let path = name.path(&self.directory);
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!("{}: {error}", path.display());
                }
                return None;
            }
        };
        match read_checked(&file, name, offset, len) {
            Ok(found) => {
                note_use(&file);
                found
            }
            Err(error) => {
                tracing::debug!("{} is damaged and read again from the store: {error}", path.display());
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Keeps a fragment, in place of an older one.
    pub(super) fn write(&self, name: FragmentName<'_>, parts: &[&[u8]]) {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if len > self.bytes_max / FRAGMENT_SHARE {
            return;
        }
        self.make_space(len);
        if let Err(error) = self.try_write(name, parts, len) {
            tracing::debug!("{} does not keep {}: {error}", self.directory.display(), name.blob);
        }
    }

    /// Deletes a fragment. Returns whether there was one.
    pub(super) fn remove(&self, name: FragmentName<'_>) -> bool {
        fs::remove_file(name.path(&self.directory)).is_ok()
    }

    fn try_write(&self, name: FragmentName<'_>, parts: &[&[u8]], len: u64) -> io::Result<()> {
        let path = name.path(&self.directory);
        let directory = path.parent().unwrap_or(&self.directory);
        create_private(directory)?;
        let mut file = tempfile::Builder::new().prefix(".").tempfile_in(directory)?;
        let (mut sums, mut hasher, mut space) = (Vec::new(), blake3::Hasher::new(), PART_BYTES);
        let sum = |hasher: &blake3::Hasher, sums: &mut Vec<u8>| {
            sums.extend(hasher.finalize().as_bytes().iter().take(CHECKSUM_BYTES));
        };
        for part in parts {
            file.write_all(part)?;
            let mut rest = *part;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(space));
                hasher.update(now);
                (rest, space) = (later, space - now.len());
                if space == 0 {
                    sum(&hasher, &mut sums);
                    hasher.reset();
                    space = PART_BYTES;
                }
            }
        }
        if space < PART_BYTES {
            sum(&hasher, &mut sums);
        }
        file.write_all(&sums)?;
        file.write_all(&name.seal(&sums, len))?;
        file.persist(path)?;
        Ok(())
    }

    /// Deletes files if `len` more bytes exceed the bound.
    fn make_space(&self, len: u64) {
        let mut measured = self.measured.lock();
        let is_known = measured.added <= self.bytes_max / MEASURE_SHARE;
        if let Some(total) = measured.total.filter(|total| is_known && total + len <= self.bytes_max) {
            *measured = Measured { total: Some(total + len), added: measured.added + len };
            return;
        }
        let mut files = self.files();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total + len > self.bytes_max {
            files.sort();
            // A little more than needed, so that not each write deletes.
            let target = self.bytes_max - self.bytes_max / MEASURE_SHARE;
            for (_, bytes, path) in files {
                if total + len <= target {
                    break;
                }
                if fs::remove_file(&path).is_ok() {
                    total = total.saturating_sub(bytes);
                }
            }
        }
        *measured = Measured { total: Some(total + len), added: len };
    }

    /// All files with the time of their last use and their bytes.
    fn files(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
        let shards = entries(&self.directory).map(|shard| shard.path());
        let files = shards.flat_map(|shard| entries(&shard).collect::<Vec<_>>());
        let known = files.filter_map(|file| {
            let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, metadata.len(), file.path()))
        });
        known.collect()
    }
}

/// Bytes of the fragment in a file of `file_len` bytes.
fn fragment_len(file_len: u64) -> Option<u64> {
    let (part, sum) = (PART_BYTES as u64, CHECKSUM_BYTES as u64);
    let body = file_len.checked_sub(sum)?;
    let parts = body.div_ceil(part + sum);
    body.checked_sub(parts * sum).filter(|len| len.div_ceil(part) == parts)
}

/// Reads a range with the checksums of its parts. `Ok(None)`: the fragment ends before that.
fn read_checked(file: &File, name: FragmentName<'_>, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    let fragment_len = fragment_len(file.metadata()?.len()).ok_or_else(|| damaged("no file of this length"))?;
    let part = PART_BYTES as u64;
    let mut sums = vec![0; fragment_len.div_ceil(part) as usize * CHECKSUM_BYTES];
    let mut seal = [0; CHECKSUM_BYTES];
    file.read_exact_at(&mut sums, fragment_len)?;
    file.read_exact_at(&mut seal, fragment_len + sums.len() as u64)?;
    if name.seal(&sums, fragment_len) != seal {
        return Err(damaged("wrong checksum"));
    }
    let Some(end) = offset.checked_add(len as u64).filter(|end| *end <= fragment_len) else { return Ok(None) };
    let (first, last) = (offset / part, end.div_ceil(part));
    let start = first * part;
    let mut bytes = vec![0; ((last * part).min(fragment_len) - start.min(fragment_len)) as usize];
    file.read_exact_at(&mut bytes, start)?;
    let recorded = sums.chunks(CHECKSUM_BYTES).skip(first as usize);
    for (bytes, recorded) in bytes.chunks(PART_BYTES).zip(recorded) {
        if checksum::<CHECKSUM_BYTES>(&[bytes]) != *recorded {
            return Err(damaged("wrong checksum of a part"));
        }
    }
    let skipped = (offset - start) as usize;
    bytes.truncate(skipped + len);
    bytes.drain(..skipped);
    Ok(Some(bytes))
}

/// Notes the time of a use, so that the file is deleted after those that were not used.
fn note_use(file: &File) {
    let used = file.metadata().and_then(|metadata| metadata.modified());
    let is_noted = used.is_ok_and(|used| used.elapsed().is_ok_and(|since| since < USE_NOTED));
    if !is_noted {
        let _ = file.set_modified(SystemTime::now());
    }
}

fn create_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    static BLOB: std::sync::LazyLock<BlobName> = std::sync::LazyLock::new(|| crate::store::named("index/ab"));

    fn fragment_name() -> FragmentName<'static> {
        FragmentName { blob: &BLOB, fragment: 3 }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    fn files(bytes_max: u64) -> (tempfile::TempDir, CacheFiles) {
        let directory = tempfile::tempdir().expect("creates a directory");
        let files = CacheFiles::new(directory.path().join("new"), bytes_max);
        (directory, files)
    }

    #[test]
    fn every_range_of_a_fragment_is_read_as_it_was_written() {
        let (_directory, files) = files(1 << 30);
        for len in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 7] {
            let whole = bytes(len);
            let (head, tail) = whole.split_at(len / 3);
            files.write(fragment_name(), &[head, tail]);
            assert_eq!(files.len(fragment_name()), Some(len as u64));
            for (start, end) in [(0, len), (len / 2, len), (len / 3, len / 2), (len, len), (0, len.min(1))] {
                assert_eq!(
                    files.read(fragment_name(), start as u64, end - start).expect("reads"),
                    whole[start..end],
                    "{len}"
                );
            }
            assert_eq!(files.read(fragment_name(), 1, len), None, "beyond the end");
            assert_eq!(files.read(FragmentName { fragment: 4, ..fragment_name() }, 0, 0), None);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_lost_byte_makes_the_fragment_missing() {
        let (_directory, files) = files(1 << 30);
        let whole = bytes(PART_BYTES + 50);
        files.write(fragment_name(), &[&whole]);
        let path = fragment_name().path(&files.directory);
        let intact = fs::read(&path).expect("reads");
        let check = |damaged: &[u8], what: &str| {
            fs::write(&path, damaged).expect("writes");
            assert_eq!(files.read(fragment_name(), 0, whole.len()), None, "{what}");
            assert!(!path.exists(), "{what}: the damaged file stays");
        };
        for at in (0..intact.len()).step_by(911).chain(intact.len() - 60..intact.len()) {
            let mut damaged = intact.clone();
            damaged[at] ^= 4;
            check(&damaged, &format!("byte {at}"));
        }
        for len in [0, 1, 15, 16, 40, intact.len() / 2, intact.len() - 1] {
            check(&intact[..len], &format!("cut at {len}"));
        }
        check(&[&intact[..], b"x"].concat(), "longer");
        // A fragment under the name of another one.
        let other = FragmentName { blob: &crate::store::named("index/cd"), ..fragment_name() };
        fs::create_dir_all(other.path(&files.directory).parent().expect("has one")).expect("creates");
        fs::write(other.path(&files.directory), &intact).expect("writes");
        assert_eq!(files.read(other, 0, 10), None);
    }

    #[test]
    fn the_fragments_used_last_stay_within_the_bound() {
        let (_directory, files) = files(100_000);
        let fragment = |fragment: u64| FragmentName { fragment, ..fragment_name() };
        let content = bytes(8_000);
        for number in 0..40 {
            files.write(fragment(number), &[&content]);
            // Times differ although the test is fast; the first fragment is used all the time.
            let file = File::open(fragment(number).path(&files.directory)).expect("opens");
            file.set_modified(SystemTime::now() - Duration::from_secs(10_000 - 60 * number)).expect("sets");
            assert!(files.read(fragment(0), 0, 8_000).is_some(), "evicted after {number}");
            let total: u64 = files.files().iter().map(|(_, bytes, _)| bytes).sum();
            assert!(total <= 100_000, "{total} bytes");
        }
        assert!(files.read(fragment(39), 0, 1).is_some() && files.read(fragment(1), 0, 1).is_none());
        files.write(fragment(50), &[&bytes(30_000)]);
        assert_eq!(files.len(fragment(50)), None, "larger than a share");
    }
}
