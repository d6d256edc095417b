//! What a server has accepted of an upload: a snapshot that expires.
//!
//! It has the tag [`TAG`], its own key in the open map, and an empty value of the key of publications. So no version of
//! fhrd takes it for a backup: it is never `latest` and never a parent, rules of `forget` leave it alone, and `prune`
//! keeps what it has. Who takes uploads deletes it once its time is over.

use std::collections::BTreeMap;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::published;
use super::snapshot::Snapshot;
use crate::error::{Error, Result};

/// Key in the open map of a snapshot.
pub const KEY: &str = "upload";
/// Tag of such snapshots.
pub const TAG: &str = "upload";

/// An upload: a CBOR map with integer keys.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StoredUpload {
    /// When it may be deleted, nanoseconds since 1970.
    #[n(0)]
    pub expires_ns: i64,
    /// For which name it was uploaded. A commit of another name cannot use it.
    #[n(1)]
    pub name: String,
    /// SHA-256 of the only file. Empty for xorbs, and for the files of a commit that is on its way to its publication.
    #[n(2)]
    pub sha256: ByteVec,
    /// Hashes of xorbs, one after another: chunks that a client sends before it says of which files they are.
    #[n(3)]
    pub xorbs: Option<ByteVec>,
}

impl StoredUpload {
    /// Adds it to the open map of a snapshot.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn attach(&self, extra: &mut BTreeMap<String, ByteVec>) -> Result<()> {
        let bytes = minicbor::to_vec(self);
        let bytes = bytes.map_err(|error| Error::internal(format!("cannot store an upload: {error}")))?;
        extra.insert(KEY.into(), bytes.into());
        extra.insert(published::KEY.into(), Vec::new().into());
        Ok(())
    }

    /// What a snapshot has of an upload, if it is one.
    pub fn of(snapshot: &Snapshot) -> Option<StoredUpload> {
        minicbor::decode(snapshot.extra.get(KEY)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::published::Publication;
    use crate::types::hex;

    #[test]
    fn the_encoding_never_changes_and_nobody_takes_it_for_a_backup_or_a_name() {
        let upload = StoredUpload { expires_ns: 5, name: "model a/b".into(), sha256: vec![7; 2].into(), xorbs: None };
        let xorb = StoredUpload { sha256: Vec::new().into(), xorbs: Some(vec![8; 2].into()), ..upload.clone() };
        let mut snapshot = Snapshot::default();
        for (own, expected) in
            [(xorb, "a4000501696d6f64656c20612f62024003420808"), (upload, "a3000501696d6f64656c20612f6202420707")]
        {
            own.attach(&mut snapshot.extra).unwrap();
            assert_eq!(hex(&snapshot.extra[KEY]), expected);
            assert_eq!(StoredUpload::of(&snapshot), Some(own));
        }
        assert!(snapshot.is_published() && Publication::of(&snapshot).is_none());
        assert_eq!(StoredUpload::of(&Snapshot::default()), None);
    }
}
