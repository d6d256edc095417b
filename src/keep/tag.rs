//! Tag: replaces a snapshot by one with other tags.
//!
//! The new snapshot is put before the old one is deleted. A prune lists the snapshots blob by blob, so it could miss
//! both. So the old one is deleted only if no prune has announced itself after the new one was put: a prune that
//! announces itself later lists the new one. Otherwise the new one is withdrawn.

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::claims::ClaimKind;
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
/// [`Error::Usage`] if a prune is running; nothing is changed then. Those of the store.
pub fn tag(repository: &Repository, named: &NamedSnapshot, change: &TagChange) -> Result<Option<SnapshotId>> {
    repository.check_writable()?;
    let store = repository.store.as_ref();
    let tags = change.apply(&named.snapshot.tags);
    if tags == named.snapshot.tags {
        return Ok(None);
    }
    // A new id makes the name new, even if these tags were there before.
    let intent = Some(repository.salts.draw()?.to_vec());
    let id = Snapshot { tags, intent, ..named.snapshot.clone() }.save(store)?;
    if !store.list(ClaimKind::Pending.prefix())?.is_empty() {
        snapshot::delete(store, &id)?;
        return Err(Error::Usage("a prune is running, or was killed; run `prune` or try again later".into()));
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
