//! Groups of snapshots that agree in host, paths or tags.

use std::collections::BTreeMap;

use crate::repo::snapshot::NamedSnapshot;

/// What the snapshots of a group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupField {
    /// The host.
    Host,
    /// The paths.
    Paths,
    /// The tags, in any order.
    Tags,
}

/// The common values of a group. `None` where they may differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupValues {
    /// Host.
    pub host: Option<String>,
    /// Paths, ascending.
    pub paths: Option<Vec<Vec<u8>>>,
    /// Tags, ascending.
    pub tags: Option<Vec<String>>,
}

impl GroupValues {
    /// The values of a snapshot for `keys`.
    pub fn of(named: &NamedSnapshot, keys: &[GroupField]) -> Self {
        let mut values = GroupValues::default();
        for key in keys {
            match key {
                GroupField::Host => values.host = Some(named.snapshot.host.clone()),
                GroupField::Paths => {
                    values.paths = Some(named.snapshot.paths.iter().map(|path| path.to_vec()).collect());
                }
                GroupField::Tags => {
                    let mut tags = named.snapshot.tags.clone();
                    tags.sort();
                    tags.dedup();
                    values.tags = Some(tags);
                }
            }
        }
        values
    }
}

/// Groups snapshots, by ascending values. The snapshots of a group keep their order.
pub fn grouped(snapshots: Vec<NamedSnapshot>, keys: &[GroupField]) -> Vec<(GroupValues, Vec<NamedSnapshot>)> {
    let mut groups: BTreeMap<GroupValues, Vec<NamedSnapshot>> = BTreeMap::new();
    for named in snapshots {
        groups.entry(GroupValues::of(&named, keys)).or_default().push(named);
    }
    groups.into_iter().collect()
}
