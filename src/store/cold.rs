//! Cold storage: classes of storage, and what a store knows of blobs that it gives only after a request.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::kind::{BlobKind, BlobName};
use crate::error::{Error, Result};

/// Characters of a class, at most.
const CLASS_CHARS_MAX: usize = 64;
/// Characters of the key and of the value of a tag, at most.
const TAG_CHARS_MAX: usize = 128;

/// Whether a repository is cold. Whoever reads its marks through the store says so here.
#[derive(Debug, Default)]
pub struct ColdState(AtomicBool);

impl ColdState {
    /// What the marks said last.
    pub fn is_cold(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Records what the marks say.
    pub fn set(&self, is_cold: bool) {
        self.0.store(is_cold, Ordering::Relaxed);
    }
}

/// The class of storage of the blobs of a kind, such as `containers=GLACIER`. The service knows the names of classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    kind: BlobKind,
    class: String,
}

impl FromStr for StorageClass {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let kind_of = |name: &str| BlobKind::all().find(|kind| kind.directory() == name);
        let Some((kind, class)) = text.split_once('=') else {
            return Err(Error::Usage(format!("expected KIND=CLASS, such as containers=GLACIER, got `{text}`")));
        };
        let Some(kind) = kind_of(kind) else {
            let known: Vec<&str> = BlobKind::all().map(BlobKind::directory).collect();
            return Err(Error::Usage(format!("unknown kind of blob `{kind}`: expected one of {}", known.join(", "))));
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if class.is_empty() || class.len() > CLASS_CHARS_MAX || !class.bytes().all(is_plain) {
            return Err(Error::Usage(format!(
                "expected the name of a class of storage, such as GLACIER, got `{class}`"
            )));
        }
        if kind != BlobKind::Container && may_be_cold(class) {
            return Err(Error::Usage(format!(
                "{text}: only containers may be in a class that gives objects after hours; fhrd reads all else at once"
            )));
        }
        Ok(StorageClass { kind, class: class.into() })
    }
}

impl fmt::Display for StorageClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.kind, self.class)
    }
}

/// Whether the name says that a class is for archives. GLACIER_IR gives objects at once.
fn may_be_cold(class: &str) -> bool {
    let class = class.to_ascii_uppercase();
    class.contains("ARCHIVE") || class.contains("GLACIER") && class != "GLACIER_IR"
}

/// The classes that the user gives. What has none gets that of the bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageClasses(pub Vec<StorageClass>);

impl StorageClasses {
    /// The class of a blob. Of containers, only those that are put as cold have one, and their parity has it, too.
    pub fn of(&self, kind: BlobKind, is_cold: bool) -> Option<&str> {
        match kind {
            _ if is_cold => self.last(BlobKind::Container),
            BlobKind::Container => None,
            kind => self.last(kind),
        }
    }

    /// What gives data containers in a cold repository a class, if anything does.
    pub fn cold_option(&self) -> Option<String> {
        self.last(BlobKind::Container).map(|class| format!("{}={class}", BlobKind::Container))
    }

    fn last(&self, kind: BlobKind) -> Option<&str> {
        self.0.iter().rev().find(|one| one.kind == kind).map(|one| one.class.as_str())
    }
}

/// A tag of objects in a bucket, such as `fhrd=data`, by which a life-cycle rule finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectTag {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl FromStr for ObjectTag {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // What all services allow.
        let is_plain = |part: &str| {
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'/');
            (1..=TAG_CHARS_MAX).contains(&part.len()) && part.bytes().all(is_allowed)
        };
        match text.split_once('=').filter(|(key, value)| is_plain(key) && is_plain(value)) {
            Some((key, value)) => Ok(ObjectTag { key: key.into(), value: value.into() }),
            None => Err(Error::Usage(format!(
                "expected a tag KEY=VALUE of letters, digits and _-.:/, such as fhrd=data, got `{text}`"
            ))),
        }
    }
}

impl fmt::Display for ObjectTag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.key, self.value)
    }
}

/// Whether a blob can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThawState {
    /// At once.
    Readable,
    /// Later: somebody has asked for it.
    Asked,
    /// Not until somebody asks for it.
    Cold,
}

/// How a blob in cold storage is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThawRequest {
    /// Days for which it can be read then.
    pub days: u32,
    /// How fast it shall come, in the service's words, such as `Bulk`.
    pub tier: String,
}

/// Asks for blobs in cold storage.
pub trait Thawing: Sync {
    /// Whether a blob can be read.
    ///
    /// # Errors
    /// [`BlobMissing`](crate::Error::BlobMissing); errors of [`Store::get`](super::Store::get).
    fn thaw_state(&self, name: &BlobName) -> Result<ThawState>;

    /// Asks for a blob, unless it can be read or was asked for. Returns what it is then.
    ///
    /// # Errors
    /// Errors of [`Self::thaw_state`].
    fn thaw(&self, name: &BlobName, request: &ThawRequest) -> Result<ThawState>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_of_the_kind_that_is_named_and_of_containers_only_if_they_are_cold() {
        let given = ["containers=GLACIER", "snapshots=STANDARD_IA", "containers=DEEP_ARCHIVE"];
        let classes = StorageClasses(given.iter().map(|text| text.parse().unwrap()).collect());
        assert_eq!(classes.0[0].to_string(), given[0]);
        assert_eq!(classes.of(BlobKind::Container, true), Some("DEEP_ARCHIVE"), "the last one counts");
        assert_eq!(classes.of(BlobKind::Parity, true), Some("DEEP_ARCHIVE"), "as its container");
        assert_eq!(classes.of(BlobKind::Container, false), None, "a container of metadata stays hot");
        assert_eq!(classes.of(BlobKind::Parity, false), None);
        assert_eq!(classes.of(BlobKind::Snapshot, false), Some("STANDARD_IA"));
        assert_eq!(StorageClasses::default().of(BlobKind::Container, true), None);
        for hot in ["snapshots=GLACIER_IR", "index=ONEZONE_IA", "indexes=COLDLINE", "marks=Cool"] {
            hot.parse::<StorageClass>().unwrap();
        }
    }

    #[test]
    fn a_tag_has_a_key_and_a_value() {
        assert_eq!("fhrd=data".parse::<ObjectTag>().unwrap().to_string(), "fhrd=data");
        for text in ["", "fhrd", "=data", "fhrd=", "a=b=c", "a=b&c=d", "a b=c"] {
            assert!(text.parse::<ObjectTag>().unwrap_err().to_string().contains("KEY=VALUE"), "{text}");
        }
    }

    #[test]
    fn what_is_no_class_says_what_was_expected() {
        for (text, expected) in [
            ("GLACIER", "expected KIND=CLASS"),
            ("container=GLACIER", "expected one of containers, "),
            ("containers=", "the name of a class"),
            ("containers=A B", "the name of a class"),
            ("snapshots=GLACIER", "snapshots=GLACIER: only containers may be"),
            ("parity=DEEP_ARCHIVE", "only containers may be"),
            ("indexes=glacier-sc", "only containers may be"),
            ("index=Archive", "only containers may be"),
        ] {
            let error = text.parse::<StorageClass>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
