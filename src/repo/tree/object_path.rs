//! The path under which an object is stored.
//!
//! 1. The slashes of a key separate names, as those of a path. A name that no directory can have is replaced: an empty
//!    one by `%2F`, `.` by `%2E`, `..` by `%2E%2E`, and a NUL in one by `%00`. The node has the key.
//!    One longer than file systems allow is cut, and gets `%` and a hash.
//! 2. An empty object whose key ends with a slash marks a directory.
//! 3. Where both `a` and `a/b` are objects, `a` is stored as `a%2F`.

use std::borrow::Cow;

/// Bytes of a name, at most: 255 with [`BESIDE`] behind it.
const NAME_BYTES_MAX: usize = 252;
/// Digits of the hash of a name that was cut.
const HASH_DIGITS: usize = 16;

/// What is appended to the name of an object that has others below it.
pub const BESIDE: &str = "%2F";

/// The path of an object in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPath {
    /// A file of this path.
    File(String),
    /// A directory of this path.
    Directory(String),
    /// The root.
    Root,
}

/// Whether `path` is that of an object which has others below the path that is its own, `stored`.
pub fn is_beside(path: &str, stored: &str) -> bool {
    path.strip_suffix(BESIDE) == Some(stored)
}

/// The path of the object whose key is `rest` behind the prefix of the source.
pub fn path_of_key(rest: &str, size: u64) -> ObjectPath {
    match rest.strip_suffix('/') {
        _ if rest.is_empty() && size == 0 => ObjectPath::Root,
        Some(directory) if size == 0 => ObjectPath::Directory(path_of(directory)),
        _ => ObjectPath::File(path_of(rest)),
    }
}

fn path_of(key: &str) -> String {
    let names: Vec<Cow<'_, str>> = key.split('/').map(safe_name).collect();
    names.join("/")
}

fn safe_name(name: &str) -> Cow<'_, str> {
    match name {
        "" => "%2F".into(),
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        _ if name.len() > NAME_BYTES_MAX => shortened(&name.replace('\0', "%00")).into(),
        _ if name.contains('\0') => safe_name(&name.replace('\0', "%00")).into_owned().into(),
        _ => name.into(),
    }
}

/// The beginning of a name, and a hash of all of it.
fn shortened(name: &str) -> String {
    let end = NAME_BYTES_MAX - '%'.len_utf8() - HASH_DIGITS;
    let hash = blake3::hash(name.as_bytes()).to_hex();
    let end = (0..=end).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    format!("{}%{:.HASH_DIGITS$}", name.get(..end).unwrap_or_default(), hash.as_str())
}

/// A path with bytes by whose order paths are in the order of a tree: a directory, then what is in it, then the names
/// behind it. No stored path has a NUL.
pub fn in_tree_order(path: &str) -> Vec<u8> {
    path.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rest: &str) -> String {
        match path_of_key(rest, 1) {
            ObjectPath::File(path) => path,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_that_no_directory_can_have_are_replaced() {
        assert_eq!(file("a/b c%.x"), "a/b c%.x");
        assert_eq!(file("a//b"), "a/%2F/b");
        assert_eq!(file("/lead"), "%2F/lead");
        assert_eq!(file("x/../y/./z"), "x/%2E%2E/y/%2E/z");
        assert_eq!(file("n\0l"), "n%00l");
        assert_eq!(file(".../..a"), ".../..a");
    }

    #[test]
    fn a_name_that_no_file_system_has_is_cut_and_stays_one_of_its_own() {
        let (fits, long) = ("n".repeat(252), "n".repeat(1000));
        assert_eq!(file(&format!("d/{fits}")), format!("d/{fits}"));
        let cut = file(&format!("d/{long}/x"));
        let name = cut.split('/').nth(1).unwrap();
        assert!(name.len() == 252 && name.starts_with(&"n".repeat(235)) && cut.ends_with("/x"), "{cut}");
        assert_ne!(file(&long), file(&("n".repeat(999) + "m")));
        // Where a character would be cut in two, it is left out.
        let wide = file(&"\u{20ac}".repeat(100));
        assert!(wide.len() <= 252 && wide.starts_with(&"\u{20ac}".repeat(78)), "{wide}");
        assert!(file(&("\0".repeat(200))).len() <= 252);
    }

    #[test]
    fn an_empty_object_with_a_slash_at_its_end_is_a_directory() {
        assert_eq!(path_of_key("dir/", 0), ObjectPath::Directory("dir".into()));
        assert_eq!(path_of_key("dir/", 5), ObjectPath::File("dir/%2F".into()));
        assert_eq!(path_of_key("", 0), ObjectPath::Root);
        assert_eq!(path_of_key("", 5), ObjectPath::File("%2F".into()));
        assert_eq!(path_of_key("a//", 0), ObjectPath::Directory("a/%2F".into()));
    }

    #[test]
    fn the_order_is_that_of_a_tree() {
        let mut paths = ["a0", "a/b", "a-b", "a", "a/b/c", "a/b-"];
        paths.sort_by_key(|path| in_tree_order(path));
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b-", "a-b", "a0"]);
    }
}
