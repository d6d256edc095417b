//! Paths of published entries as text.

use super::TreePath;

/// A path as text. All paths that are shown are UTF-8.
pub fn path_text(path: &[Vec<u8>]) -> String {
    let names: Vec<_> = path.iter().map(|name| String::from_utf8_lossy(name)).collect();
    names.join("/")
}

/// Names of a path that a client sent as text. `None` if it is not valid: no name is empty, `.` or `..`, or has a NUL.
pub fn path_names(path: &str) -> Option<TreePath> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let names: TreePath = path.split('/').map(|name| name.as_bytes().to_vec()).collect();
    let is_wrong = |name: &Vec<u8>| matches!(name.as_slice(), b"" | b"." | b"..") || name.contains(&0);
    (!names.iter().any(is_wrong)).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_clients_do_not_climb() {
        assert_eq!(path_names("a/b c/").unwrap(), [b"a".to_vec(), b"b c".to_vec()]);
        for bad in ["", "/", "/a", "a//b", "..", "a/../b", "./a", "a/.", "a\0b"] {
            assert_eq!(path_names(bad), None, "{bad}");
        }
    }
}
