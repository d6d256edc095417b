//! What a blob is, and what follows from that: its directory, who may read it, how it is cached.
//!
//! A new kind is a line of [`KINDS`] and a variant of [`BlobKind`].

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use super::name::check_name;
use crate::error::{Error, Result};
use crate::types::{hex, unhex};

/// What a blob is. Data and metadata containers share a directory; their headers tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlobKind {
    /// The configuration.
    Config,
    /// Its second copy.
    ConfigCopy,
    /// A container.
    Container,
    /// A copy of the index of a container.
    HotIndex,
    /// Recovery shards of a container.
    Parity,
    /// An index segment.
    Segment,
    /// A snapshot.
    Snapshot,
    /// Copies of snapshots.
    Bundle,
    /// A catalogue of models.
    Model,
    /// A record of which containers were read.
    ReadRecord,
    /// Clues: some features of stored chunks.
    Similarity,
    /// A mark that stops writers which do not know its kind.
    RequiredMark,
    /// A mark that programs may ignore.
    OptionalMark,
    /// Any other mark, which a newer version wrote. Its directory holds those of all marks.
    Mark,
    /// What a running writer relies on, and the notes about it.
    Intent,
    /// What a running prune may delete.
    Pending,
    /// A key slot.
    Key,
    /// The second copy of a key slot.
    KeyCopy,
    /// The claim of a process that changes key slots.
    KeyChange,
    /// A blob of a newer version, or of nobody.
    Unknown,
}

/// How the cache of a remote store keeps the blobs of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheUse {
    /// Never: it is deleted or replaced, or must be asked for each time.
    Never,
    /// The whole blob, whose name is its hash.
    Whole,
    /// The whole blob. Its name is no hash of it: those who read it check it.
    Checked,
    /// What is read again and again: the header and the end, and all of a container of metadata.
    Container,
}

/// Where the blobs of a kind lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryRule {
    /// There is one, without a directory.
    Root,
    /// In a directory that every repository has from the start.
    Directory,
    /// In a directory that every encrypted repository has.
    KeyDirectory,
    /// In a directory that the first blob makes: these are hints, so one that is away counts as empty.
    LateDirectory,
}

/// A line of the table.
struct KindRow {
    kind: BlobKind,
    /// Its directory, or the whole name if there is one blob of the kind.
    directory: &'static str,
    rule: DirectoryRule,
    /// Whether it is stored in the clear in an encrypted repository, too.
    is_public: bool,
    cache: CacheUse,
}

/// What the names of parity, and of hot indexes, have behind that of the container.
const PARITY_SUFFIX: &str = ".shards";
const HOT_INDEX_SUFFIX: &str = ".index";

/// Every kind but [`BlobKind::Unknown`]. Of two directories that fit a name, the first one counts.
const KINDS: [KindRow; 19] = [
    row(BlobKind::Container, "containers", DirectoryRule::Directory, false, CacheUse::Container),
    row(BlobKind::HotIndex, "indexes", DirectoryRule::LateDirectory, false, CacheUse::Checked),
    // Not sealed: these are functions of sealed bytes, and must be of use without a block that is bad.
    row(BlobKind::Parity, "parity", DirectoryRule::LateDirectory, true, CacheUse::Never),
    row(BlobKind::Segment, "index", DirectoryRule::Directory, false, CacheUse::Whole),
    row(BlobKind::Snapshot, "snapshots", DirectoryRule::Directory, false, CacheUse::Whole),
    row(BlobKind::Bundle, "bundles", DirectoryRule::Directory, false, CacheUse::Whole),
    row(BlobKind::Model, "models", DirectoryRule::Directory, false, CacheUse::Whole),
    row(BlobKind::ReadRecord, "reads", DirectoryRule::LateDirectory, false, CacheUse::Whole),
    row(BlobKind::Similarity, "similarity", DirectoryRule::LateDirectory, false, CacheUse::Whole),
    row(BlobKind::RequiredMark, "marks/required", DirectoryRule::Directory, false, CacheUse::Whole),
    row(BlobKind::OptionalMark, "marks/optional", DirectoryRule::Directory, false, CacheUse::Whole),
    row(BlobKind::Mark, "marks", DirectoryRule::Directory, false, CacheUse::Whole),
    row(BlobKind::Intent, "intents", DirectoryRule::Directory, false, CacheUse::Never),
    row(BlobKind::Pending, "pending", DirectoryRule::Directory, false, CacheUse::Never),
    // What a program needs before it has the keys.
    row(BlobKind::Config, "config", DirectoryRule::Root, true, CacheUse::Never),
    row(BlobKind::ConfigCopy, "config-copy", DirectoryRule::Root, true, CacheUse::Never),
    row(BlobKind::Key, "keys", DirectoryRule::KeyDirectory, true, CacheUse::Never),
    row(BlobKind::KeyCopy, "key-copies", DirectoryRule::KeyDirectory, true, CacheUse::Never),
    row(BlobKind::KeyChange, "key-changes", DirectoryRule::KeyDirectory, false, CacheUse::Never),
];

const fn row(
    kind: BlobKind,
    directory: &'static str,
    rule: DirectoryRule,
    is_public: bool,
    cache: CacheUse,
) -> KindRow {
    KindRow { kind, directory, rule, is_public, cache }
}

/// The directories that every repository has once [`Store::make_directories`](super::Store::make_directories) was
/// called, each after its parent. Those of keys are only in an encrypted one.
pub(super) fn lasting_directories(is_encrypted: bool) -> impl Iterator<Item = &'static str> {
    let lasts = move |row: &&KindRow| {
        row.rule == DirectoryRule::Directory || is_encrypted && row.rule == DirectoryRule::KeyDirectory
    };
    // The one of all marks comes behind those in it.
    KINDS.iter().rev().filter(lasts).map(|row| row.directory)
}

impl BlobKind {
    /// Every kind whose directory this version knows.
    pub fn all() -> impl Iterator<Item = BlobKind> {
        KINDS.iter().map(|row| row.kind)
    }

    fn row(self) -> Option<&'static KindRow> {
        KINDS.iter().find(|row| row.kind == self)
    }

    /// Its directory in the store, or the whole name if there is one blob of the kind. Empty for
    /// [`BlobKind::Unknown`].
    pub fn directory(self) -> &'static str {
        self.row().map_or("", |row| row.directory)
    }

    /// Whether such a blob is stored as it is, also in an encrypted repository.
    pub fn is_public(self) -> bool {
        self.row().is_some_and(|row| row.is_public)
    }

    pub(super) fn cache_use(self) -> CacheUse {
        self.row().map_or(CacheUse::Never, |row| row.cache)
    }

    /// The kind of the blob of this name.
    fn of(name: &str) -> BlobKind {
        let fits = |row: &&KindRow| match name.strip_prefix(row.directory) {
            Some("") => row.rule == DirectoryRule::Root,
            Some(rest) => rest.starts_with('/') && row.rule != DirectoryRule::Root,
            None => false,
        };
        KINDS.iter().find(fits).map_or(BlobKind::Unknown, |row| row.kind)
    }
}

impl fmt::Display for BlobKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.directory())
    }
}

/// The name of a blob: relative, like `containers/ab/abcdef`. Its components consist of `a`-`z`, `0`-`9`, `.`, `-` and
/// `_` and do not start with a dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobName {
    // The text comes first, so that names are ordered by it.
    text: Arc<str>,
    kind: BlobKind,
}

impl BlobName {
    /// The name `text`.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not valid.
    pub fn parse(text: &str) -> Result<Self> {
        check_name(text)?;
        Ok(BlobName { kind: BlobKind::of(text), text: text.into() })
    }

    /// The only blob of its kind.
    pub fn only(kind: BlobKind) -> Self {
        BlobName { text: kind.directory().into(), kind }
    }

    /// The blob of a kind that is named by the BLAKE3 of what the store keeps.
    pub fn hashed(kind: BlobKind, hash: &[u8; 32]) -> Self {
        Self::within(kind, &hex(hash))
    }

    /// The parity of the container whose name ends with `container`. It is no hash of what is kept, and does not look
    /// like one to programs that compare hashes and do not know parity.
    pub fn parity_of(container: &[u8; 32]) -> Self {
        Self::within(BlobKind::Parity, &format!("{}{PARITY_SUFFIX}", hex(container)))
    }

    /// The hash of the container whose parity this is.
    pub fn protected(&self) -> Option<[u8; 32]> {
        (self.kind == BlobKind::Parity).then(|| unhex(self.last().strip_suffix(PARITY_SUFFIX)?)).flatten()
    }

    /// The hot index of the container whose name ends with `container`.
    pub fn hot_index_of(container: &[u8; 32]) -> Self {
        Self::within(BlobKind::HotIndex, &format!("{}{HOT_INDEX_SUFFIX}", hex(container)))
    }

    /// The hash of the container whose hot index this is.
    pub fn indexed(&self) -> Option<[u8; 32]> {
        (self.kind == BlobKind::HotIndex).then(|| unhex(self.last().strip_suffix(HOT_INDEX_SUFFIX)?)).flatten()
    }

    /// The blob of a kind that has a random name.
    pub fn random(kind: BlobKind, salt: &[u8; 16]) -> Self {
        Self::within(kind, &hex(salt))
    }

    /// The blob of a kind with this last component, which must be valid.
    fn within(kind: BlobKind, last: &str) -> Self {
        let directory = kind.directory();
        let text = match kind {
            BlobKind::Container => format!("{directory}/{}/{last}", last.get(..2).unwrap_or(last)),
            _ => format!("{directory}/{last}"),
        };
        BlobName { text: text.into(), kind }
    }

    /// What the blob is.
    pub fn kind(&self) -> BlobKind {
        self.kind
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The last component.
    pub fn last(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or_default()
    }

    /// The hash that the name ends with, if it does.
    pub fn hash(&self) -> Option<[u8; 32]> {
        unhex(self.last())
    }

    /// Whether nobody else gives such a name: it is of a known kind and ends with a hash or a random number. Whatever
    /// has it counts as that blob, also a directory.
    pub(super) fn is_own(&self) -> bool {
        let last = self.last();
        let is_number = [32, 64].contains(&last.len()) && last.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.kind != BlobKind::Unknown && is_number
    }

    /// The name with `suffix` behind it, which must be valid there.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        BlobName { text: format!("{}{suffix}", self.text).into(), kind: self.kind }
    }
}

impl Deref for BlobName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for BlobName {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl AsRef<Path> for BlobName {
    fn as_ref(&self) -> &Path {
        Path::new(&*self.text)
    }
}

// The text decides, as for `str`: a name can be looked up as text.
impl Hash for BlobName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Borrow<str> for BlobName {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for BlobName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl From<&BlobName> for String {
    fn from(name: &BlobName) -> String {
        name.to_string()
    }
}

impl From<BlobName> for String {
    fn from(name: BlobName) -> String {
        name.to_string()
    }
}

impl From<BlobName> for Arc<str> {
    fn from(name: BlobName) -> Arc<str> {
        name.text
    }
}

impl PartialEq<BlobName> for String {
    fn eq(&self, other: &BlobName) -> bool {
        **self == *other.text
    }
}

impl PartialEq<str> for BlobName {
    fn eq(&self, other: &str) -> bool {
        *self.text == *other
    }
}

impl PartialEq<&str> for BlobName {
    fn eq(&self, other: &&str) -> bool {
        *self.text == **other
    }
}

/// Which blobs a listing covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlobPrefix {
    /// Every blob, also those of kinds that this version does not know.
    All,
    /// The blobs in the directory of a kind.
    Kind(BlobKind),
    /// The containers whose names begin with this byte.
    Containers(u8),
}

impl From<BlobKind> for BlobPrefix {
    fn from(kind: BlobKind) -> Self {
        BlobPrefix::Kind(kind)
    }
}

impl BlobPrefix {
    /// The directory as text. Empty for all blobs.
    pub fn directory(self) -> String {
        match self {
            BlobPrefix::All => String::new(),
            BlobPrefix::Kind(kind) => kind.directory().into(),
            BlobPrefix::Containers(first) => format!("{}/{first:02x}", BlobKind::Container),
        }
    }

    /// Whether it is that of a kind of which there is one blob, without a directory. Nothing is below it.
    pub(super) fn is_blob(self) -> bool {
        matches!(self, BlobPrefix::Kind(kind) if kind.row().is_some_and(|row| row.rule == DirectoryRule::Root))
    }

    /// Whether a listing covers the blob.
    pub fn covers(self, name: &BlobName) -> bool {
        let directory = self.directory();
        directory.is_empty() || name.strip_prefix(directory.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for BlobPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.directory())
    }
}

/// The name `text`, which must be valid.
#[cfg(test)]
pub(crate) fn named(text: &str) -> BlobName {
    BlobName::parse(text).expect(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_kind_has_one_line_and_its_names_are_of_it() {
        for kind in BlobKind::all() {
            assert_eq!(KINDS.iter().filter(|row| row.kind == kind).count(), 1, "{kind:?}");
            let name = match kind {
                BlobKind::Config | BlobKind::ConfigCopy => BlobName::only(kind),
                BlobKind::Parity => BlobName::parity_of(&[0xab; 32]),
                BlobKind::HotIndex => BlobName::hot_index_of(&[0xab; 32]),
                _ => BlobName::hashed(kind, &[0xab; 32]),
            };
            assert_eq!(BlobName::parse(&name).unwrap(), name, "{kind:?}");
            assert_eq!(name.kind(), kind);
            assert!(BlobPrefix::All.covers(&name));
            let is_fixed = name.as_str() == kind.directory();
            let is_hash = !is_fixed && ![BlobKind::Parity, BlobKind::HotIndex].contains(&kind);
            assert_eq!((BlobPrefix::Kind(kind).covers(&name), name.hash().is_some()), (!is_fixed, is_hash));
            assert_eq!(name.protected(), (kind == BlobKind::Parity).then_some([0xab; 32]), "{kind:?}");
            assert_eq!(name.indexed(), (kind == BlobKind::HotIndex).then_some([0xab; 32]), "{kind:?}");
        }
        let container = BlobName::hashed(BlobKind::Container, &[0xab; 32]);
        assert!(container.starts_with("containers/ab/abab"), "{container}");
        assert!(BlobPrefix::Containers(0xab).covers(&container) && !BlobPrefix::Containers(0xac).covers(&container));
        assert_eq!(BlobName::random(BlobKind::Intent, &[1; 16]), format!("intents/{}", "01".repeat(16)).as_str());
    }

    #[test]
    fn a_name_is_found_as_text() {
        let names: HashSet<BlobName> = [named("snapshots/ab"), named("config")].into();
        assert!(names.contains("snapshots/ab") && names.contains("config") && !names.contains("snapshots"));
    }

    #[test]
    fn what_is_not_in_a_known_directory_is_unknown_and_sealed() {
        for text in ["config/x", "config-copy-2", "containers", "containers-2/x", "keys", "keys-2/ab", "hot/00", "a"] {
            let name = BlobName::parse(text).unwrap();
            assert_eq!((name.kind(), name.kind().is_public()), (BlobKind::Unknown, false), "{text}");
        }
        let public: Vec<&str> = BlobKind::all().filter(|kind| kind.is_public()).map(BlobKind::directory).collect();
        assert_eq!(public, ["parity", "config", "config-copy", "keys", "key-copies"]);
        assert_eq!(BlobName::parse("marks/later/00").unwrap().kind(), BlobKind::Mark);
        assert_eq!(BlobName::parse("marks/optional/00").unwrap().kind(), BlobKind::OptionalMark);
    }
}
