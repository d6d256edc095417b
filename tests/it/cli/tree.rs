//! A tree with one of everything, and a description of a tree that two can be compared by.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Bytes of a sparse file.
const SPARSE_BYTES: u64 = 8 << 20;

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| step().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Makes the tree: text, noise, empty file and directory, links, a pipe, a file with holes, odd names, modes and times.
pub fn plant(root: &Path) {
    std::fs::create_dir_all(root.join("deep/er/est")).unwrap();
    std::fs::create_dir(root.join("empty directory")).unwrap();
    let text: String = (0..20_000).map(|line| format!("line {line} of the text\n")).collect();
    std::fs::write(root.join("text"), &text).unwrap();
    std::fs::write(root.join("deep/text with a change"), text.replace("line 7777 ", "row 7777 ")).unwrap();
    std::fs::write(root.join("deep/er/noise"), noise(1, 3_000_001)).unwrap();
    std::fs::write(root.join("deep/er/est/one byte"), b"1").unwrap();
    std::fs::write(root.join("empty"), b"").unwrap();
    std::fs::write(root.join("ünïcode\nand a line end"), b"x").unwrap();
    let floats = (0..300_000u32).map(|i| (i as f32 * 0.7).sin() * 0.01);
    std::fs::write(root.join("floats"), floats.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    std::fs::hard_link(root.join("deep/er/noise"), root.join("another name")).unwrap();
    symlink("deep/er", root.join("link")).unwrap();
    symlink("nowhere", root.join("deep/dangling")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(SPARSE_BYTES).unwrap();
    sparse.write_all_at(b"in the middle", SPARSE_BYTES / 2).unwrap();
    #[cfg(not(target_vendor = "apple"))]
    {
        use std::os::unix::ffi::OsStringExt;

        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let name = OsString::from_vec(b"not utf-8 \xff\xfe".to_vec());
        std::fs::write(root.join(name), b"y").unwrap();
        mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    }
    for (name, mode) in [("text", 0o600), ("floats", 0o4755), ("empty", 0o444), ("deep/er", 0o1777)] {
        std::fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    }
    let times = [("empty", 0, 1), ("text", 1_234_567_890, 123_456_789), ("deep/er", 1 << 32, 999_999_999), ("", 9, 9)];
    for (name, seconds, nanoseconds) in times {
        let time = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        File::open(root.join(name)).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    }
}

/// What is compared of an entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Description {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
    names: u64,
    /// The first path of the same inode.
    same_as: PathBuf,
    has_holes: bool,
    link_target: Option<PathBuf>,
    /// Hash of a file's bytes.
    content: Option<blake3::Hash>,
}

/// Describes everything below `root` and the root itself (as the empty path).
pub fn describe(root: &Path) -> BTreeMap<PathBuf, Description> {
    let mut paths = vec![PathBuf::new()];
    let mut inodes: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut found = BTreeMap::new();
    let mut at = 0;
    while let Some(path) = paths.get(at).cloned() {
        at += 1;
        let place = root.join(&path);
        let metadata = place.symlink_metadata().unwrap();
        if metadata.is_dir() {
            let mut names: Vec<OsString> =
                std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            paths.extend(names.into_iter().map(|name| path.join(name)));
        }
        let (is_file, is_directory) = (metadata.is_file(), metadata.is_dir());
        let description = Description {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            size: if is_directory { 0 } else { metadata.len() },
            names: if is_directory { 0 } else { metadata.nlink() },
            same_as: inodes.entry(metadata.ino()).or_insert_with(|| path.clone()).clone(),
            has_holes: is_file && metadata.blocks() * 512 + (1 << 20) < metadata.len(),
            link_target: metadata.is_symlink().then(|| std::fs::read_link(&place).unwrap()),
            content: is_file.then(|| blake3::hash(&std::fs::read(&place).unwrap())),
        };
        found.insert(path, description);
    }
    found
}
