//! The lines of a commit: what it adds to the files of a name, and takes away.
//!
//! Files that come within it go into a file on disk, so memory is bounded by the length of a line and by the paths.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::announce::{INLINE_MAX, parsed};
use super::body::ReceivedBody;
use super::objects::sha256_of;
use crate::error::{Error, Result as EngineResult};
use crate::repo::published::{FILES_MAX, PublishedFile};
use crate::serve::fault::Fault;
use crate::serve::listing::{path_text, split};
use crate::serve::parts::blocking;

/// Bytes of a line: a file as base64, and its path.
const LINE_BYTES_MAX: usize = 2 << 20;
/// Bytes of all files within a commit.
const INLINE_BYTES_MAX: u64 = 8 << 30;
/// Bytes of all paths of a commit, and of one.
const PATHS_BYTES_MAX: usize = 16 << 20;
const PATH_BYTES_MAX: usize = 4096;
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

/// Where the bytes of a file of a commit are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitContent {
    /// In the repository.
    Stored(PublishedFile),
    /// In the file on disk: offset and length.
    Inline(u64, u64),
    /// In an object that was uploaded, or a file of the name: its SHA-256, and its length if the commit says it.
    Object(WantedObject),
}

/// The SHA-256 of an object, and its length if that is known.
pub type WantedObject = ([u8; 32], Option<u64>);

/// A change of the files of a name.
#[derive(Debug, PartialEq, Eq)]
enum CommitChange {
    Put(String, CommitContent),
    Delete(String),
    DeleteDirectory(String),
}

/// A commit as a client sent it.
pub struct CommitOperations {
    /// The commit that it builds on, if it says so.
    pub parent: Option<String>,
    /// The bytes of files that came within it.
    pub inline: Arc<File>,
    operations: Vec<CommitChange>,
}

/// The files of a name, by their paths.
pub type CommitFiles = BTreeMap<String, CommitContent>;

fn path_of(path: &str) -> Result<String, Fault> {
    let names = split(path).filter(|names| path.len() <= PATH_BYTES_MAX && names.len() <= DEPTH_MAX);
    let names = names.filter(|names| !names.iter().any(|name| name.len() > 255));
    let names = names.filter(|names| !names.first().is_some_and(|first| first.eq_ignore_ascii_case(b".git")));
    let names = names.ok_or_else(|| Fault::Refused(format!("`{path}` is no path of a file")))?;
    Ok(path_text(&names))
}

/// Reads the lines of a commit. Files within it go into `file`.
///
/// # Errors
/// [`Fault::Refused`] and [`Fault::TooLong`], and those of the body.
pub async fn received(body: &mut ReceivedBody, file: File) -> Result<CommitOperations, Fault> {
    let (mut file, mut len, mut paths) = (file, 0u64, 0);
    let (mut parent, mut operations, mut lines) = (None, Vec::new(), 0u64);
    while let Some(line) = body.line(LINE_BYTES_MAX).await? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        lines += 1;
        let operation = match (lines, parsed::<CommitLine>(&line)?) {
            (1, CommitLine::Header { parent_commit }) => {
                parent = parent_commit;
                continue;
            }
            (1, _) | (_, CommitLine::Header { .. }) => {
                return Err(Fault::Refused("a commit has one header, first".into()));
            }
            (_, CommitLine::File { path, content, encoding }) => {
                let bytes = inline_bytes(&content, encoding.as_deref())?;
                let (start, count) = (len, bytes.len() as u64);
                len += count;
                if len > INLINE_BYTES_MAX {
                    return Err(Fault::TooLong);
                }
                file = blocking(move || written(file, &bytes)).await?;
                CommitChange::Put(path_of(&path)?, CommitContent::Inline(start, count))
            }
            (_, CommitLine::LfsFile { path, oid, size, algo }) => {
                let sha256 = sha256_of(&oid).filter(|_| algo.is_none_or(|algorithm| algorithm == "sha256"));
                let sha256 = sha256.ok_or_else(|| Fault::Refused(format!("`{oid}` is no SHA-256")))?;
                CommitChange::Put(path_of(&path)?, CommitContent::Object((sha256, size)))
            }
            (_, CommitLine::DeletedFile { path }) => CommitChange::Delete(path_of(&path)?),
            (_, CommitLine::DeletedDirectory { path }) => CommitChange::DeleteDirectory(path_of(&path)?),
        };
        let (CommitChange::Put(path, _) | CommitChange::Delete(path) | CommitChange::DeleteDirectory(path)) =
            &operation;
        paths += path.len();
        if paths > PATHS_BYTES_MAX || operations.len() >= FILES_MAX {
            return Err(Fault::TooLong);
        }
        operations.push(operation);
    }
    if operations.is_empty() {
        return Err(Fault::Refused("the commit changes nothing".into()));
    }
    Ok(CommitOperations { parent, inline: Arc::new(file), operations })
}

fn inline_bytes(content: &str, encoding: Option<&str>) -> Result<Vec<u8>, Fault> {
    if encoding.is_some_and(|encoding| encoding != "base64") {
        return Err(Fault::Refused("files within a commit are in base64".into()));
    }
    let bytes = BASE64_STANDARD.decode(content).map_err(|error| Fault::Refused(format!("no base64: {error}")))?;
    if bytes.len() as u64 > INLINE_MAX { Err(Fault::TooLong) } else { Ok(bytes) }
}

fn written(mut file: File, bytes: &[u8]) -> EngineResult<File> {
    file.write_all(bytes).map_err(|error| Error::io("write", "a file of an upload", error))?;
    Ok(file)
}

impl CommitOperations {
    /// Does all operations, one after another, on the files of a name.
    ///
    /// # Errors
    /// [`Fault::Refused`] if nothing is left, or a path is a file and a directory.
    pub fn apply(self, files: &mut CommitFiles) -> Result<(), Fault> {
        for operation in self.operations {
            match operation {
                CommitChange::Put(path, content) => _ = files.insert(path, content),
                // A commit may come again after an answer was lost, so what is gone may be deleted.
                CommitChange::Delete(path) => _ = files.remove(&path),
                CommitChange::DeleteDirectory(path) => {
                    let prefix = format!("{path}/");
                    let below = files.range(prefix.clone()..).map(|(own, _)| own);
                    let gone: Vec<String> = below.take_while(|own| own.starts_with(&prefix)).cloned().collect();
                    gone.iter().for_each(|own| _ = files.remove(own));
                }
            }
        }
        if files.is_empty() {
            return Err(Fault::Refused("the commit leaves no file".into()));
        }
        if files.len() > FILES_MAX {
            return Err(Fault::TooLong);
        }
        let is_file = |path: &Path| path.to_str().is_some_and(|path| files.contains_key(path));
        match files.keys().find(|path| Path::new(path).ancestors().skip(1).any(is_file)) {
            None => Ok(()),
            Some(path) => Err(Fault::Refused(format!("a directory of `{path}` is a file, too"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(operations: Vec<CommitChange>) -> CommitOperations {
        CommitOperations { parent: None, inline: Arc::new(tempfile::tempfile().unwrap()), operations }
    }

    fn put(path: &str) -> CommitChange {
        CommitChange::Put(path.into(), CommitContent::Inline(0, 1))
    }

    #[test]
    fn operations_follow_each_other_and_leave_a_tree() {
        let mut files: CommitFiles =
            ["a", "b/c", "b/d/e", "bb"].map(|path| (path.into(), CommitContent::Inline(9, 9))).into();
        let (gone, below) = (CommitChange::Delete("none".into()), CommitChange::DeleteDirectory("b".into()));
        operations(vec![below, gone, put("b/x"), CommitChange::Delete("a".into()), put("bb")])
            .apply(&mut files)
            .unwrap();
        let left: Vec<(&str, &CommitContent)> = files.iter().map(|(path, own)| (path.as_str(), own)).collect();
        assert_eq!(left, [("b/x", &CommitContent::Inline(0, 1)), ("bb", &CommitContent::Inline(0, 1))]);
        for wrong in [
            vec![CommitChange::DeleteDirectory("b".into()), CommitChange::Delete("bb".into())],
            vec![put("bb/c")],
            vec![put("b")],
        ] {
            let refused = operations(wrong).apply(&mut files.clone());
            assert!(matches!(refused, Err(Fault::Refused(_))), "{refused:?}");
        }
    }

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
            assert!(parsed::<CommitLine>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
