//! The crate's error type: each variant names the thing that failed and holds the expected and the actual value.

mod kind;

use std::io;
use std::path::{Path, PathBuf};

pub use kind::{ErrorKind, Neighbour};

/// Result of every fallible function of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in fhrd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operating-system call failed on a path.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The verb, as in "cannot read".
        action: &'static str,
        /// The path of the call.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The repository is on the local disk, and this process may not change it: the file system is mounted read-only,
    /// or the permissions are those of others.
    #[error("cannot {action} {}: {source}, so nothing can be changed there", path.display())]
    Unwritable {
        /// The verb, as in "cannot write".
        action: &'static str,
        /// The path of the call.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// No repository at the path.
    #[error("no repository at {location}: {reason}")]
    NoRepository {
        /// Path or URL that the user gave.
        location: String,
        /// Why it is not a repository.
        reason: String,
    },
    /// What was given does not open the repository, or it is not the one that was there before.
    #[error("cannot unlock {location}: {reason}")]
    Locked {
        /// Location of the repository.
        location: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// `init` found something at the path.
    #[error("{} already holds {what}, which stays", path.display())]
    AlreadyExists {
        /// The path.
        path: PathBuf,
        /// The kind of object found there.
        what: &'static str,
    },
    /// A snapshot is not stored again, because something of it cannot be read.
    #[error(
        "{problems} entries of snapshot {} cannot be read; it is not stored again without them",
        shortened(snapshot)
    )]
    Incomplete {
        /// Id of the snapshot that was read.
        snapshot: String,
        /// Entries that could not be read.
        problems: u64,
    },
    /// A configuration file does not parse or holds an unusable value.
    #[error("configuration {origin}: {message}")]
    Config {
        /// Name of the file, or of another source of the text.
        origin: String,
        /// The key, the expected value and the actual value.
        message: String,
    },
    /// A run's configuration contradicts a value that is fixed when the repository is created.
    #[error(
        "configuration key `{key}` is {run} but this repository was created with {repository}; the value is fixed for its lifetime"
    )]
    ConfigConflict {
        /// The key in dotted notation.
        key: &'static str,
        /// The repository's value.
        repository: String,
        /// The run's value.
        run: String,
    },
    /// A stored structure does not parse.
    #[error("{} is damaged at byte {offset}: expected {}, found {}", quoted(what), quoted(expected), quoted(got))]
    Corrupt {
        /// Name of the blob or file.
        what: String,
        /// Byte offset in it.
        offset: u64,
        /// Value that the format demands.
        expected: String,
        /// Value found.
        got: String,
    },
    /// An input file outside any repository does not parse.
    #[error("{} {location}: expected {}, found {}", path.display(), quoted(expected), quoted(got))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Position of the defect, as in "at byte 12".
        location: String,
        /// Value that the format demands.
        expected: String,
        /// Value found.
        got: String,
    },
    /// Stored bytes do not match their recorded checksum.
    #[error("{what} is damaged: checksum mismatch at byte {offset}: expected {expected}, found {got}")]
    ChecksumMismatch {
        /// Name of the blob or file.
        what: String,
        /// Byte offset of the checked range.
        offset: u64,
        /// Recorded checksum in hex.
        expected: String,
        /// Computed checksum in hex.
        got: String,
    },
    /// A newer version wrote this blob: it needs features that this version of fhrd lacks.
    #[error("{} needs a newer fhrd: unknown {}", quoted(what), quoted(unknown))]
    Unsupported {
        /// Name of the blob, or the structure in it.
        what: String,
        /// What this version does not know: a kind with a number or a name, as in `codec 9`.
        unknown: String,
    },
    /// The device of the repository cannot read bytes of a blob, as with a bad sector.
    #[error("{what} is damaged: cannot read it at byte {offset}: {source}")]
    Unreadable {
        /// Name of the blob.
        what: String,
        /// Byte offset of the failed read.
        offset: u64,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Stored bytes proved wrong, and what may give them back was not tried: the text says why. They may come back.
    #[error("{0}; {1}")]
    Untried(Box<Error>, String),
    /// The store has no blob of this name.
    #[error("{what} is missing from the repository")]
    BlobMissing {
        /// Name of the blob.
        what: String,
    },
    /// No container holds a chunk that a recipe refers to.
    #[error("chunk {fingerprint} is in no container of the repository")]
    ChunkMissing {
        /// Full fingerprint in hex.
        fingerprint: String,
    },
    /// No snapshot has this id, prefix or name.
    #[error("no snapshot matches `{id}`{hint}")]
    NoSuchSnapshot {
        /// Id as the user gave it.
        id: String,
        /// Suggestion of a similar id.
        hint: String,
    },
    /// A path is not in the snapshot.
    #[error("snapshot {} holds no `{path}`{hint}", shortened(snapshot))]
    NoSuchPath {
        /// Snapshot id.
        snapshot: String,
        /// Path as the user gave it.
        path: String,
        /// What there is instead.
        hint: String,
    },
    /// A prune may delete containers that this run relies on. Nothing is lost; the run must start again.
    #[error("a prune is deleting {count} containers that this run relies on")]
    Pruned {
        /// Number of containers.
        count: usize,
    },
    /// The caller's memory changed while a backup stored it. There is no snapshot.
    #[error("the memory of an array changed while it was stored, so it was not saved: do not write to it meanwhile")]
    MemoryChanged,
    /// What a snapshot needs cannot be read, so nothing can be deleted.
    #[error(
        "cannot tell what snapshot {} needs, so nothing was deleted: {reason}; see \"A damaged repository\" in docs/EXIT-CODES.md",
        shortened(snapshot)
    )]
    Mark {
        /// Id of the snapshot, or its store name if it cannot be read itself.
        snapshot: String,
        /// What cannot be read.
        reason: Box<Error>,
    },
    /// A stage panicked.
    #[error("stage {stage} panicked: {message}")]
    StagePanicked {
        /// Stage name.
        stage: String,
        /// Panic message.
        message: String,
    },
    /// A link closed before the end of the stream. Another stage has recorded the cause.
    #[error("stage {stage}: {neighbour}")]
    LinkClosed {
        /// The stage that noticed it.
        stage: String,
        /// The neighbour that stopped.
        neighbour: Neighbour,
    },
    /// A mark forbids everybody to write.
    #[error("the repository is read-only: {} ({mark})", quoted(reason))]
    ReadOnly {
        /// Name of the mark.
        mark: String,
        /// Why it was set.
        reason: String,
    },
    /// A mark forbids writing until a repair is complete.
    #[error("the repository is set aside for repair: {} ({mark})", quoted(reason))]
    SetAside {
        /// Name of the mark.
        mark: String,
        /// Why it was set.
        reason: String,
    },
    /// A remote store refused a request, or did not answer it.
    #[error("cannot {action} {what}: {reason}")]
    Remote {
        /// The verb, as in "cannot read".
        action: &'static str,
        /// The blob and the location of the store.
        what: String,
        /// What the server said, and what to do.
        reason: String,
        /// [`ErrorKind::ReadOnly`] if the credentials may not write.
        kind: ErrorKind,
    },
    /// The store gives a blob only some time after somebody has asked for it.
    #[error("{what} is in cold storage: `fhrd restore --thaw` asks for it and waits")]
    Cold {
        /// The blob and the location of the store.
        what: String,
    },
    /// The process was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The command line or the caller asked for something impossible.
    #[error("{0}")]
    Usage(String),
    /// fhrd broke one of its own rules.
    #[error("internal error: {what}; please report it")]
    Internal {
        /// The broken rule.
        what: String,
    },
}

/// Characters of data that an error text quotes, at most.
const QUOTED_CHARS_MAX: usize = 200;

/// The start of a text from data, for an error text. Control characters and changes of direction are escaped.
pub fn quoted(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == QUOTED_CHARS_MAX {
            shown.push_str("...");
            break;
        }
        if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

fn shortened(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

fn duplicate(source: &io::Error) -> io::Error {
    source
        .raw_os_error()
        .map_or_else(|| io::Error::new(source.kind(), source.to_string()), io::Error::from_raw_os_error)
}

impl Error {
    /// Wraps an I/O error with the verb and the path.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Error::Io { action, path: path.as_ref().to_path_buf(), source: source.into() }
    }

    /// Wraps the error of a call that changes a repository on the local disk: an [`Error::Unwritable`], if this process
    /// may not do that.
    pub fn unwritten(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.as_ref().to_path_buf(), source.into());
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Error::Unwritable { action, path, source }
            }
            _ => Error::Io { action, path, source },
        }
    }

    /// An [`Error::Unreadable`]: the blob `name` is there, but a listing lacks it, so the listing is not complete.
    pub fn unlisted(name: impl Into<String>) -> Self {
        let source = io::Error::other("it is there, but a listing of its directory lacks it");
        Error::Unreadable { what: name.into(), offset: 0, source }
    }

    /// An [`Error::Corrupt`]: a stored structure does not parse.
    pub fn corrupt(what: impl Into<String>, offset: u64, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Error::Corrupt { what: what.into(), offset, expected: expected.into(), got: got.into() }
    }

    /// A blob whose feature bits `unknown` this program does not know.
    pub fn unknown_features(what: impl Into<String>, unknown: u64) -> Self {
        Error::Unsupported { what: what.into(), unknown: format!("feature bits {unknown:#x}") }
    }

    /// A structure that a newer version wrote; `unknown` as in `codec 9`.
    pub fn unsupported(what: impl Into<String>, unknown: impl Into<String>) -> Self {
        Error::Unsupported { what: what.into(), unknown: unknown.into() }
    }

    /// A copy of an error about stored data, to report it for each thing that needs the data.
    #[must_use]
    pub fn duplicate(&self) -> Error {
        match self {
            Error::ChecksumMismatch { what, offset, expected, got } => Error::ChecksumMismatch {
                what: what.clone(),
                offset: *offset,
                expected: expected.clone(),
                got: got.clone(),
            },
            Error::Unreadable { what, offset, source } => {
                Error::Unreadable { what: what.clone(), offset: *offset, source: duplicate(source) }
            }
            Error::Untried(damage, reason) => Error::Untried(Box::new(damage.duplicate()), reason.clone()),
            Error::Io { action, path, source } => Error::Io { action, path: path.clone(), source: duplicate(source) },
            Error::Unwritable { action, path, source } => {
                Error::Unwritable { action, path: path.clone(), source: duplicate(source) }
            }
            Error::Corrupt { what, offset, expected, got } => Error::corrupt(what, *offset, expected, got),
            Error::Unsupported { what, unknown } => Error::unsupported(what, unknown),
            Error::BlobMissing { what } => Error::BlobMissing { what: what.clone() },
            Error::ChunkMissing { fingerprint } => Error::ChunkMissing { fingerprint: fingerprint.clone() },
            Error::Locked { location, reason } => Error::Locked { location: location.clone(), reason: reason.clone() },
            Error::ReadOnly { mark, reason } => Error::ReadOnly { mark: mark.clone(), reason: reason.clone() },
            Error::SetAside { mark, reason } => Error::SetAside { mark: mark.clone(), reason: reason.clone() },
            Error::Cold { what } => Error::Cold { what: what.clone() },
            Error::Remote { action, what, reason, kind } => {
                Error::Remote { action, what: what.clone(), reason: reason.clone(), kind: *kind }
            }
            other => Error::corrupt("a frame", 0, "a readable frame", other.to_string()),
        }
    }

    /// Whether the store refused because the credentials may not do this, such as to delete.
    pub fn is_refused(&self) -> bool {
        match self {
            Error::Io { source, .. } | Error::Unwritable { source, .. } => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            Error::Remote { kind, .. } => *kind == ErrorKind::ReadOnly,
            _ => false,
        }
    }

    /// Whether a remote store could not be reached, so that the same may succeed later.
    pub fn is_unreachable(&self) -> bool {
        use io::ErrorKind as Kind;
        match self {
            Error::Remote { kind, .. } => *kind == ErrorKind::Unreachable,
            Error::Mark { reason, .. } => reason.is_unreachable(),
            Error::Io { source, .. } => {
                let lost =
                    [Kind::ConnectionAborted, Kind::ConnectionRefused, Kind::ConnectionReset, Kind::NotConnected];
                lost.contains(&source.kind())
            }
            _ => false,
        }
    }

    /// Whether the disk that is written to is full or read-only, so that any further write fails as well.
    pub fn is_full_disk(&self) -> bool {
        use rustix::io::Errno;
        let (Error::Io { source, .. } | Error::Unwritable { source, .. }) = self else { return false };
        let errno = source.raw_os_error().map(Errno::from_raw_os_error);
        errno.is_some_and(|errno| [Errno::NOSPC, Errno::DQUOT, Errno::ROFS].contains(&errno))
    }

    /// Whether stored data cannot be read while the run can go on without it: damaged, missing or too new.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Damaged | ErrorKind::NotFound | ErrorKind::Unsupported)
    }

    /// Whether stored data cannot be read now while a writer can go on without it: unreadable, or in cold storage.
    pub fn is_unavailable(&self) -> bool {
        self.is_unreadable() || self.kind() == ErrorKind::Cold
    }

    /// Whether a newer version wrote what cannot be read.
    pub fn is_newer(&self) -> bool {
        self.kind() == ErrorKind::Unsupported
    }

    /// Whether nothing else is worth reading either: the process is to stop, or its key is older than the repository.
    /// Such an error says nothing about the blob, and must not be taken for damage.
    pub fn stops_reading(&self) -> bool {
        matches!(self.kind(), ErrorKind::Interrupted | ErrorKind::Locked)
    }

    /// Whether the bytes of a blob that is there proved wrong.
    pub fn is_bad_blob(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::ChecksumMismatch { .. })
    }

    /// Whether the bytes of a blob that is there are wrong as they are read now, its parity tried or not.
    pub fn is_wrong_blob(&self) -> bool {
        matches!(self, Error::Untried(damage, _) if damage.is_bad_blob()) || self.is_bad_blob()
    }

    /// Whether stored bytes proved wrong or missing. What was not given, or whose parity was not tried, may come back.
    pub fn is_proven_damage(&self) -> bool {
        self.is_bad_blob() || matches!(self, Error::BlobMissing { .. } | Error::ChunkMissing { .. })
    }

    /// An [`Error::Internal`]: fhrd broke one of its own rules.
    pub fn internal(what: impl Into<String>) -> Self {
        Error::Internal { what: what.into() }
    }

    /// How the caller can react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoRepository { .. } => ErrorKind::NoRepository,
            Error::Corrupt { .. }
            | Error::ChecksumMismatch { .. }
            | Error::Unreadable { .. }
            | Error::Untried(..)
            | Error::ChunkMissing { .. } => ErrorKind::Damaged,
            Error::BlobMissing { .. } => ErrorKind::NotFound,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Interrupted => ErrorKind::Interrupted,
            Error::Mark { reason, .. } => reason.kind(),
            Error::ReadOnly { .. } | Error::Unwritable { .. } => ErrorKind::ReadOnly,
            Error::Remote { kind, .. } => *kind,
            Error::Cold { .. } => ErrorKind::Cold,
            Error::Locked { .. } => ErrorKind::Locked,
            Error::Internal { .. } | Error::StagePanicked { .. } => ErrorKind::Internal,
            _ => ErrorKind::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_errors_quote_is_short_and_steers_no_terminal() {
        assert_eq!(quoted("a name, ä"), "a name, ä");
        assert_eq!(quoted("a\n\u{1b}[2J\u{202e}"), "a\\n\\u{1b}[2J\\u{202e}");
        assert_eq!(quoted(&"x".repeat(QUOTED_CHARS_MAX)).len(), QUOTED_CHARS_MAX);
        let long = "\u{1b}".repeat(60_000);
        assert!(quoted(&long).ends_with("...") && quoted(&long).len() < 8 * QUOTED_CHARS_MAX);
        let path = PathBuf::from("list");
        for error in [
            Error::corrupt(&long, 0, &long, &long),
            Error::unsupported(&long, &long),
            Error::Malformed { path, location: "at byte 1".into(), expected: long.clone(), got: long.clone() },
            Error::ReadOnly { mark: "marks/x".into(), reason: long.clone() },
        ] {
            let text = error.to_string();
            assert!(text.len() < 30 * QUOTED_CHARS_MAX && !text.contains('\u{1b}'), "{} bytes", text.len());
        }
    }
}
