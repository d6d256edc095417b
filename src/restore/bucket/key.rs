//! The keys of files, each of which only one file has.
//!
//! A node has a key if that is not its path. It must be one that is stored under this path. So two files have one key
//! only if they are `a` and `a%2F`, or the marker of `a` and `a/%2F`: of such, the second one is refused.

use std::path::Path;

use crate::repo::tree::{Node, NodeKind, ObjectFacts, ObjectPath, is_beside, path_of_key};

/// The key of the entry at `path`, behind the prefix of the target. The error says why there is none.
pub fn key_of(path: &Path, node: &Node, facts: &ObjectFacts) -> Result<String, String> {
    let text = path.to_str().ok_or("its path is not UTF-8, as a key must be")?;
    let is_directory = node.kind == NodeKind::Directory;
    let Some(key) = facts.key.clone() else {
        return Ok(if is_directory { format!("{text}/") } else { text.to_string() });
    };
    let is_own = match path_of_key(&key, u64::from(!is_directory)) {
        ObjectPath::Directory(stored) => is_directory && stored == text,
        ObjectPath::File(stored) => !is_directory && (stored == text || is_beside(text, &stored)),
        ObjectPath::Root => false,
    };
    if is_own { Ok(key) } else { Err(format!("its key `{key}` is that of another path")) }
}

/// What is left of the key of an entry below another root: a name of the key for each of `path`. `None` if it would not
/// be stored under this path.
pub fn key_below(path: &Path, node: &Node, key: &str) -> Option<String> {
    let names = if node.kind == NodeKind::Directory { key.strip_suffix('/')? } else { key };
    let above = names.split('/').count().checked_sub(path.components().count())?;
    let key = key.splitn(above + 1, '/').nth(above)?.to_string();
    let facts = ObjectFacts { key: Some(key), ..ObjectFacts::default() };
    key_of(path, node, &facts).ok()
}

/// The keys that an entry of the tree may have in common with one before it, in the order of the tree.
pub struct NearbyKeys {
    /// The open directories.
    levels: Vec<NearbyLevel>,
}

#[derive(Default)]
struct NearbyLevel {
    /// The key of the marker.
    marker: Option<String>,
    /// The files whose names are the beginning of the last one, with their keys.
    files: Vec<(Vec<u8>, String)>,
}

impl NearbyKeys {
    /// At the root.
    pub fn new() -> Self {
        NearbyKeys { levels: vec![NearbyLevel::default()] }
    }

    /// Enters a directory, which may have a marker.
    pub fn enter(&mut self, marker: Option<&str>) {
        self.levels.push(NearbyLevel { marker: marker.map(str::to_string), files: Vec::new() });
    }

    /// Leaves the last directory.
    pub fn leave(&mut self) {
        self.levels.pop();
    }

    /// Notes the key of a file. Returns whether another entry has it.
    pub fn is_taken(&mut self, name: &[u8], key: &str) -> bool {
        let Some(level) = self.levels.last_mut() else { return false };
        while level.files.pop_if(|(before, _)| !name.starts_with(before)).is_some() {}
        let is_taken = level.marker.as_deref() == Some(key) || level.files.iter().any(|(_, taken)| taken == key);
        level.files.push((name.to_vec(), key.to_string()));
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn key(path: &[u8], kind: NodeKind, key: Option<&str>) -> Result<String, String> {
        let facts = ObjectFacts { key: key.map(str::to_string), ..ObjectFacts::default() };
        key_of(Path::new(OsStr::from_bytes(path)), &Node { kind, ..Node::default() }, &facts)
    }

    #[test]
    fn a_key_is_one_that_is_stored_under_the_path() {
        let file = |path: &str, stored: &str| key(path.as_bytes(), NodeKind::File, Some(stored));
        let long = "n".repeat(300);
        let ObjectPath::File(cut) = path_of_key(&long, 1) else { panic!() };
        for (path, stored) in [("a/%2F/b", "a//b"), ("a%2F", "a"), ("d/%2F", "d/"), ("%2F", ""), (&cut, &long)] {
            assert_eq!(file(path, stored).unwrap(), stored);
        }
        for (path, stored) in [("b", "a"), ("a%2F", "b"), ("a%2F%2F", "a"), ("a/b", "a//b"), ("d", "d/")] {
            assert!(file(path, stored).unwrap_err().contains("of another path"), "{path}");
        }
        let directory = |stored| key(b"d", NodeKind::Directory, stored);
        assert_eq!((directory(None).unwrap().as_str(), directory(Some("d/")).unwrap().as_str()), ("d/", "d/"));
        assert!(directory(Some("e/")).is_err() && directory(Some("")).is_err() && directory(Some("d")).is_err());
        assert_eq!(key(b"a/b", NodeKind::File, None).unwrap(), "a/b");
        assert!(key(b"a/\xff", NodeKind::File, None).unwrap_err().contains("not UTF-8"));
    }

    #[test]
    fn below_another_root_a_key_loses_the_names_above() {
        let node = |kind| Node { kind, ..Node::default() };
        let below = |path: &str, key: &str| key_below(Path::new(path), &node(NodeKind::File), key);
        for (path, key, left) in [
            ("%2F/b", "a//b", "/b"),
            ("b", "a//b", "b"),
            ("%2F", "d/", ""),
            ("d/%2F", "c/d/", "d/"),
            ("a%2F", "c/a", "a"),
            ("%2F/%2F/x", "///x", "//x"),
        ] {
            assert_eq!(below(path, key).as_deref(), Some(left), "{path} of {key}");
        }
        for (path, key) in [("a/b/c", "b/c"), ("x", "a/y")] {
            assert_eq!(below(path, key), None, "{path} of {key}");
        }
        let marker = |path: &str, key: &str| key_below(Path::new(path), &node(NodeKind::Directory), key);
        assert_eq!(marker("d", "c/d/").as_deref(), Some("d/"));
        assert_eq!(marker("d", "c/e/"), None);
    }

    #[test]
    fn the_second_file_of_a_key_is_found() {
        let mut keys = NearbyKeys::new();
        let names = [("a", "a", false), ("a!", "a!", false), ("a%2F", "a", true), ("b%2F", "b", false)];
        for (name, key, expected) in names {
            assert_eq!(keys.is_taken(name.as_bytes(), key), expected, "{name}");
        }
        keys.enter(Some("d/"));
        assert!(!keys.is_taken(b"%2E", "d/.") && keys.is_taken(b"%2F", "d/"));
        keys.enter(None);
        assert!(!keys.is_taken(b"%2F", "d/e/"));
        keys.leave();
        keys.leave();
        assert!(!keys.is_taken(b"d", "d") && keys.levels.len() == 1);
    }
}
