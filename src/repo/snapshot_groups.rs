//! Groups of snapshots that agree in host, paths or tags, and in the share of the work that they are.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::config::WorkShare;
use crate::repo::share_record::ShareRecord;
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

/// What the snapshots of a group have in common: a list such as `host,paths`. Without a field there is one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupBy(pub Vec<GroupField>);

impl FromStr for GroupBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields = text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| match name {
            "host" | "hosts" => Ok(GroupField::Host),
            "path" | "paths" => Ok(GroupField::Paths),
            "tag" | "tags" => Ok(GroupField::Tags),
            other => Err(format!("expected host, paths or tags with commas between them, found `{other}`")),
        });
        fields.collect::<Result<_, _>>().map(GroupBy)
    }
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
    /// The share of the work that each of them is, if they are shares. Shares of one job are no versions of each other.
    pub share: Option<WorkShare>,
}

impl GroupValues {
    /// The values of a snapshot for `keys`.
    fn of(named: &NamedSnapshot, keys: &[GroupField]) -> Self {
        let share = ShareRecord::of(&named.snapshot).and_then(|record| record.share());
        let mut values = GroupValues { share, ..GroupValues::default() };
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

    /// Its paths, for people.
    pub fn shown_paths(&self) -> Option<Vec<String>> {
        Some(self.paths.as_ref()?.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect())
    }

    /// Names the group, for people. The text may have control characters.
    pub fn title(&self) -> String {
        let host = self.host.as_ref().map(|host| format!("host {host}"));
        let paths = self.shown_paths().map(|paths| format!("paths {}", paths.join(" ")));
        let tags = self.tags.as_ref().map(|tags| format!("tags {}", tags.join(",")));
        let share = self.share.map(|share| format!("share {share}"));
        [host, paths, tags, share].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Groups snapshots, by ascending values. The snapshots of a group keep their order.
pub fn grouped(snapshots: Vec<NamedSnapshot>, by: &GroupBy) -> Vec<(GroupValues, Vec<NamedSnapshot>)> {
    let mut groups: BTreeMap<GroupValues, Vec<NamedSnapshot>> = BTreeMap::new();
    for named in snapshots {
        groups.entry(GroupValues::of(&named, &by.0)).or_default().push(named);
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_one_grammar() {
        use GroupField::{Host, Paths, Tags};
        assert_eq!("host,paths".parse(), Ok(GroupBy(vec![Host, Paths])));
        assert_eq!("tag, path".parse(), Ok(GroupBy(vec![Tags, Paths])));
        assert_eq!("".parse(), Ok(GroupBy::default()));
        assert!("host,year".parse::<GroupBy>().unwrap_err().contains("`year`"));
    }
}
