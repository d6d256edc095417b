//! Trees of files: pseudo-random content, and what a tree looks like, to compare it with another.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A small generator of pseudo-random numbers (splitmix64): the same on every machine.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// `len` bytes that no codec makes smaller.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(len).collect()
    }

    /// About `len` bytes of lines of words.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 16] = [
            "chunk",
            "store",
            "let",
            "frame",
            "of",
            "the",
            "return",
            "index",
            "0x40",
            "node",
            "if",
            "container",
            "and",
            "self",
            "length",
            "a",
        ];
        let mut text = Vec::with_capacity(len + 16);
        while text.len() < len {
            let word = WORDS[self.below(16) as usize];
            text.extend_from_slice(word.as_bytes());
            text.push(if self.below(9) == 0 { b'\n' } else { b' ' });
        }
        text
    }

    /// `count` 32-bit floats like the weights of a model.
    pub fn floats(&mut self, count: usize) -> Vec<u8> {
        let mut one = || (self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        (0..count).flat_map(|_| ((one() + one() + one()) * 0.05).to_le_bytes()).collect()
    }
}

/// What one entry looks like; what a kind does not have is empty or zero.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Looks {
    pub kind: String,
    pub mode: u32,
    pub mtime_seconds: i64,
    pub mtime_nanoseconds: i64,
    /// Bytes of a regular file.
    pub size: u64,
    /// BLAKE3 of its content, hex.
    pub blake3: String,
    /// Target of a symbolic link, escaped.
    pub target: String,
    /// Names of a file that has several.
    pub links: u64,
}

fn looks(path: &Path) -> Looks {
    let metadata = fs::symlink_metadata(path).unwrap();
    let kind = metadata.file_type();
    let (is_file, is_link) = (kind.is_file(), kind.is_symlink());
    let name = match () {
        () if is_file => "file",
        () if is_link => "symlink",
        () if kind.is_dir() => "directory",
        () if kind.is_fifo() => "fifo",
        () => "other",
    };
    let content = is_file.then(|| fs::read(path).unwrap());
    let target = is_link.then(|| fs::read_link(path).unwrap());
    Looks {
        kind: name.into(),
        // The mode of a link means nothing.
        mode: if is_link { 0 } else { metadata.mode() & 0o7777 },
        mtime_seconds: metadata.mtime(),
        mtime_nanoseconds: metadata.mtime_nsec(),
        size: content.as_ref().map_or(0, |content| content.len() as u64),
        blake3: content.map_or_else(String::new, |content| blake3::hash(&content).to_hex().to_string()),
        target: target.map_or_else(String::new, |target| target.as_os_str().as_bytes().escape_ascii().to_string()),
        links: if is_file { metadata.nlink() } else { 0 },
    }
}

/// Everything below `root` by its escaped path, and `root` itself as the empty path.
pub fn describe(root: &Path) -> BTreeMap<String, Looks> {
    let mut all = BTreeMap::from([(String::new(), looks(root))]);
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
            let looks = looks(&path);
            if looks.kind == "directory" {
                directories.push(path);
            }
            all.insert(name, looks);
        }
    }
    all
}

/// Fails with the first few entries that differ.
pub fn assert_same(want: &BTreeMap<String, Looks>, got: &BTreeMap<String, Looks>, what: &str) {
    let names: std::collections::BTreeSet<&String> = want.keys().chain(got.keys()).collect();
    let different: Vec<_> = names.into_iter().filter(|name| want.get(*name) != got.get(*name)).collect();
    let shown: Vec<_> = different.iter().take(3).map(|name| (name, want.get(*name), got.get(*name))).collect();
    assert!(different.is_empty(), "{what}: {} entries differ, first (name, want, got): {shown:#?}", different.len());
}
