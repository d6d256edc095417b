//! Tag: replaces a snapshot by one with other tags.
//!
//! The new snapshot is put before the old one is deleted. A prune lists the snapshots blob by blob, so it could miss
//! both. So the old one is deleted only if no prune has announced itself after the new one was put: a prune that
//! announces itself later lists the new one. And the old one must still be there: if somebody has forgotten it, a prune
//! may have come and gone. Otherwise the new one is withdrawn.

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::marks::check_writable;
use crate::repo::overwritten::check_deletable;
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot};
use crate::types::SnapshotId;

/// A change of tags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagChange {
    /// Replace all tags by these.
    pub set: Option<Vec<String>>,
    /// Add these.
    pub add: Vec<String>,
    /// Remove these.
    pub remove: Vec<String>,
}

impl TagChange {
    /// The tags after the change, each once.
    fn apply(&self, tags: &[String]) -> Vec<String> {
        let mut changed: Vec<String> = Vec::new();
        for tag in self.set.as_deref().unwrap_or(tags).iter().chain(&self.add) {
            if !self.remove.contains(tag) && !changed.contains(tag) {
                changed.push(tag.clone());
            }
        }
        changed
    }
}

/// Changes the tags of a snapshot. Returns the id of the new one; none if the tags stay the same.
///
/// # Errors
/// [`Error::Usage`] if a prune is running, or the snapshot is not reported; [`Error::NoSuchSnapshot`] if it was deleted
/// meanwhile. Nothing is changed then. Errors of the store.
pub fn tag(repository: &Repository, named: &NamedSnapshot, change: &TagChange) -> Result<Option<SnapshotId>> {
    let store = repository.store.as_ref();
    let tags = change.apply(&named.snapshot.tags);
    if tags == named.snapshot.tags {
        return Ok(None);
    }
    check_writable(repository)?;
    if !snapshot::is_reported(store, named)? {
        let text = "its backup still runs, or was killed just before it was complete";
        return Err(Error::Usage(format!("cannot tag snapshot {:.8}: {text}", named.id)));
    }
    check_deletable(repository, &named.id)?;
    // A new id makes the name new, even if these tags were there before.
    let intent = Some(repository.salts.draw()?.to_vec());
    let id = Snapshot { tags, intent, ..named.snapshot.clone() }.save(store)?;
    if let Err(error) = snapshot::check_replaced(store, &named.id) {
        snapshot::delete(store, &id)?;
        return Err(error);
    }
    snapshot::delete(store, &named.id)?;
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_set_added_and_removed() {
        let list = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let change = TagChange { set: None, add: list("c a"), remove: list("b") };
        assert_eq!(change.apply(&list("a b")), list("a c"));
        let change = TagChange { set: Some(list("x y x")), ..TagChange::default() };
        assert_eq!(change.apply(&list("a b")), list("x y"));
        assert_eq!(TagChange::default().apply(&list("a b")), list("a b"));
    }
}
