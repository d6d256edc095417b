//! The lines of a commit, as clients of the Hub send them: JSON, one change a line, behind a header.
//!
//! Nothing in them is trusted. Memory is bounded by the length of a line and by the paths.

use std::fs::File;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::fault::CommitFault;
use super::objects::sha256_of;
use super::operations::{CommitChange, CommitContent, CommitOperations};
use crate::repo::published::{FILES_MAX, path_names, path_text};

/// Length up to which files come within a commit, bytes.
pub const INLINE_MAX: u64 = 1 << 20;
/// Bytes of a line: a file as base64, and its path.
pub const LINE_BYTES_MAX: usize = 2 << 20;
/// Bytes of all files within a commit.
const INLINE_BYTES_MAX: u64 = 8 << 30;
/// Bytes of all paths of a commit, and of one.
const PATHS_BYTES_MAX: usize = 16 << 20;
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 255;
/// Directories above a file, at most.
const DEPTH_MAX: usize = 60;

/// A line of a commit.
#[derive(Deserialize)]
#[serde(tag = "key", content = "value", rename_all = "camelCase")]
enum CommitLine {
    #[serde(rename_all = "camelCase")]
    Header {
        #[serde(default)]
        parent_commit: Option<String>,
    },
    File {
        path: String,
        content: String,
        #[serde(default)]
        encoding: Option<String>,
    },
    LfsFile {
        path: String,
        oid: String,
        /// A copy of what the name has comes without it.
        #[serde(default)]
        size: Option<u64>,
        #[serde(default)]
        algo: Option<String>,
    },
    DeletedFile {
        path: String,
    },
    #[serde(rename = "deletedFolder")]
    DeletedDirectory {
        path: String,
    },
}

/// The lines of a commit that were read so far.
#[derive(Debug, Default)]
pub struct CommitLines {
    parent: Option<String>,
    changes: Vec<CommitChange>,
    lines: u64,
    /// Bytes of files within it, and of its paths.
    inline_len: u64,
    paths_len: usize,
}

impl CommitLines {
    /// Takes in a line. Returns the bytes of a file within it, which the caller appends to the file with all of these.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] and [`CommitFault::TooLong`].
    pub fn add(&mut self, line: &[u8]) -> Result<Vec<u8>, CommitFault> {
        if line.len() > LINE_BYTES_MAX {
            return Err(CommitFault::TooLong);
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(Vec::new());
        }
        self.lines += 1;
        let mut inline = Vec::new();
        let change = match (self.lines, parsed(line)?) {
            (1, CommitLine::Header { parent_commit }) => {
                self.parent = parent_commit;
                return Ok(inline);
            }
            (1, _) | (_, CommitLine::Header { .. }) => return Err(refused("a commit has one header, first")),
            (_, CommitLine::File { path, content, encoding }) => {
                inline = inline_bytes(&content, encoding.as_deref())?;
                let (start, len) = (self.inline_len, inline.len() as u64);
                self.inline_len += len;
                if self.inline_len > INLINE_BYTES_MAX {
                    return Err(CommitFault::TooLong);
                }
                CommitChange::Put(path_of(&path)?, CommitContent::Inline(start, len))
            }
            (_, CommitLine::LfsFile { path, oid, size, algo }) => {
                let sha256 = sha256_of(&oid).filter(|_| algo.is_none_or(|algorithm| algorithm == "sha256"));
                let sha256 = sha256.ok_or_else(|| refused(format!("`{oid}` is no SHA-256")))?;
                CommitChange::Put(path_of(&path)?, CommitContent::Object((sha256, size)))
            }
            (_, CommitLine::DeletedFile { path }) => CommitChange::Delete(path_of(&path)?),
            (_, CommitLine::DeletedDirectory { path }) => CommitChange::DeleteDirectory(path_of(&path)?),
        };
        self.paths_len += change.path().len();
        if self.paths_len > PATHS_BYTES_MAX || self.changes.len() >= FILES_MAX {
            return Err(CommitFault::TooLong);
        }
        self.changes.push(change);
        Ok(inline)
    }

    /// The commit, once all lines were read. `inline` has the bytes of its files, one after another.
    ///
    /// # Errors
    /// [`CommitFault::Refused`] if it changes nothing.
    pub fn finish(self, inline: Arc<File>) -> Result<CommitOperations, CommitFault> {
        if self.changes.is_empty() {
            return Err(refused("the commit changes nothing"));
        }
        Ok(CommitOperations { parent: self.parent, inline, changes: self.changes })
    }
}

fn refused(reason: impl Into<String>) -> CommitFault {
    CommitFault::Refused(reason.into())
}

fn parsed(line: &[u8]) -> Result<CommitLine, CommitFault> {
    serde_json::from_slice(line).map_err(|error| refused(format!("the JSON is not valid: {error}")))
}

fn path_of(path: &str) -> Result<String, CommitFault> {
    let names = path_names(path).filter(|names| path.len() <= PATH_BYTES_MAX && names.len() <= DEPTH_MAX);
    let names = names.filter(|names| !names.iter().any(|name| name.len() > NAME_BYTES_MAX));
    let names = names.filter(|names| !names.first().is_some_and(|first| first.eq_ignore_ascii_case(b".git")));
    let names = names.ok_or_else(|| refused(format!("`{path}` is no path of a file")))?;
    Ok(path_text(&names))
}

fn inline_bytes(content: &str, encoding: Option<&str>) -> Result<Vec<u8>, CommitFault> {
    if encoding.is_some_and(|encoding| encoding != "base64") {
        return Err(refused("files within a commit are in base64"));
    }
    let bytes = BASE64_STANDARD.decode(content).map_err(|error| refused(format!("no base64: {error}")))?;
    if bytes.len() as u64 > INLINE_MAX { Err(CommitFault::TooLong) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_contents_are_checked() {
        assert_eq!(path_of("a/b c").unwrap(), "a/b c");
        let (deep, long) = ("a/".repeat(61) + "b", "x".repeat(256));
        for bad in ["", "/a", "a/../b", "..", "./a", "a//b", "a\0", ".git/config", ".GIT/x", &deep, &long] {
            assert!(path_of(bad).is_err(), "{bad}");
        }
        assert_eq!(inline_bytes("aGk=", Some("base64")).unwrap(), b"hi");
        for (content, encoding) in [("aGk", None), ("@", None), ("hi", Some("utf-8"))] {
            assert!(inline_bytes(content, encoding).is_err(), "{content}");
        }
        for bad in ["{}", "[]", r#"{"key":"file","value":{}}"#, r#"{"key":"none","value":{"path":"a"}}"#, "nothing"] {
            assert!(parsed(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_within_a_commit_stand_one_after_another() {
        let mut lines = CommitLines::default();
        let mut add = |text: &str| lines.add(text.as_bytes()).unwrap();
        assert_eq!(add(r#"{"key":"header","value":{"parentCommit":"p"}}"#), b"");
        assert_eq!(add(" \r"), b"");
        assert_eq!(add(r#"{"key":"file","value":{"path":"a","content":"aGk="}}"#), b"hi");
        assert_eq!(add(r#"{"key":"file","value":{"path":"b","content":"aG8h"}}"#), b"ho!");
        let commit = lines.finish(Arc::new(tempfile::tempfile().unwrap())).unwrap();
        let mut files = super::super::CommitFiles::new();
        assert_eq!(commit.parent.as_deref(), Some("p"));
        commit.apply(&mut files).unwrap();
        assert_eq!(files["a"], CommitContent::Inline(0, 2));
        assert_eq!(files["b"], CommitContent::Inline(2, 3));
    }
}
