//! Families: the trees of a lineage, each with the sum of its models.

use crate::inspect::lineage::FamilyMember;

/// A tree of models.
#[derive(Debug, Clone, Copy)]
pub struct FamilyTree<'a> {
    /// Its members, the root first.
    pub members: &'a [FamilyMember],
    /// Members that are in a snapshot.
    pub models: usize,
    /// Values in all tensors of these.
    pub parameters: u64,
    /// Bytes of their files.
    pub size: u64,
    /// Stored bytes of their chunks. Those that several models share count for each.
    pub stored: u64,
}

impl FamilyTree<'_> {
    /// Name of its root.
    pub fn label(&self) -> &str {
        self.members.first().map_or("", |root| &root.label)
    }
}

/// The trees of `members`, those with the most stored bytes first.
pub fn families(members: &[FamilyMember]) -> Vec<FamilyTree<'_>> {
    let mut trees: Vec<FamilyTree<'_>> = Vec::new();
    for members in members.chunk_by(|_, next| next.depth > 0) {
        let mut tree = FamilyTree { members, models: 0, parameters: 0, size: 0, stored: 0 };
        for model in members.iter().filter_map(|member| member.model.as_ref()) {
            tree.models += 1;
            tree.parameters = tree.parameters.saturating_add(model.parameters);
            tree.size = tree.size.saturating_add(model.size);
            tree.stored = tree.stored.saturating_add(model.stored_bytes.unwrap_or(0));
        }
        trees.push(tree);
    }
    trees.sort_by_key(|tree| std::cmp::Reverse(tree.stored));
    trees
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_root_starts_a_tree() {
        let member = |label: &str, depth| FamilyMember { label: label.into(), depth, ..FamilyMember::default() };
        let members = [member("a", 0), member("b", 1), member("c", 2), member("d", 0), member("e", 0), member("f", 1)];
        let trees: Vec<(&str, usize)> =
            families(&members).iter().map(|tree| (tree.members[0].label.as_str(), tree.members.len())).collect();
        assert_eq!(trees, [("a", 3), ("d", 1), ("e", 2)]);
        assert!(families(&[]).is_empty());
    }
}
