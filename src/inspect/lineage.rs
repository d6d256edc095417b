//! Lineage: the models of some snapshots as family trees, from each base to the models stored against it.
//!
//! 1. Copies of the same content are one member with several paths.
//! 2. The parent of a member is the member that contains its base. If no given snapshot has the base, its record
//!    becomes a member. If the record is lost, the member is a root.
//! 3. Records are not trusted: in a cycle of bases one member becomes a root.
//! 4. Members are returned in printing order: each after its parent, siblings by path. The walk uses an explicit stack,
//!    because a chain of checkpoints can be very deep.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::labels::{NamedModel, labels};
use super::models::{DEPTH_MAX, FoundModels, ModelReport, models};
use crate::error::Result;
use crate::model::{BaseModel, SkippedCatalogues};
use crate::repo::Repository;
use crate::repo::snapshot::NamedSnapshot;
use crate::types::Fingerprint;

/// A model in the tree of its family.
#[derive(Debug, Clone, Default)]
pub struct FamilyMember {
    /// Id of its content; of several shards, the id of the first.
    pub id: Option<Fingerprint>,
    /// The model; `None` for a base that is in no given snapshot.
    pub model: Option<ModelReport>,
    /// Name of the model.
    pub name: String,
    /// Name to show: distinct among the members.
    pub label: String,
    /// Further paths with the same content.
    pub copies: Vec<PathBuf>,
    /// Path in the snapshot, or the path in its record, as bytes.
    pub path: Vec<u8>,
    /// The model that it was stored against.
    pub base: Option<BaseModel>,
    /// Index of the parent in the list; `None` for a root.
    pub parent: Option<usize>,
    /// Number of members above it.
    pub depth: usize,
    /// Whether it is the last child of its parent, or the last root.
    pub is_last: bool,
    /// Why its base is not its parent.
    pub note: Option<&'static str>,
}

/// The families of models.
pub struct FoundFamilies {
    /// Each after its parent.
    pub members: Vec<FamilyMember>,
    /// What of the catalogue could not be read: models may be missing here.
    pub skipped: SkippedCatalogues,
}

/// The families of the models of `snapshots`.
///
/// # Errors
/// As for [`models`].
pub fn lineage(repository: &Repository, snapshots: &[NamedSnapshot], stop: &AtomicBool) -> Result<FoundFamilies> {
    let found = models(repository, snapshots, stop)?;
    let skipped = found.summaries.skipped;
    let mut members = with_bases(found)?;
    break_cycles(&mut members);
    set_labels(&mut members);
    Ok(FoundFamilies { members: in_order(members), skipped })
}

/// All models, and the bases that are not among them. Each has its parent set.
fn with_bases(found: FoundModels) -> Result<Vec<FamilyMember>> {
    let FoundModels { models, mut summaries, mut reader } = found;
    let mut indexes: HashMap<Fingerprint, usize> = HashMap::new();
    let mut members: Vec<FamilyMember> = Vec::with_capacity(models.len());
    for model in models {
        // Of several copies, the first is the base of other models.
        let first = model.same_as.is_some().then(|| model.ids.first().and_then(|id| indexes.get(id))).flatten();
        if let Some(first) = first.and_then(|first| members.get_mut(*first)) {
            first.copies.push(model.path);
            continue;
        }
        for id in &model.ids {
            indexes.entry(*id).or_insert(members.len());
        }
        members.push(FamilyMember {
            id: model.ids.first().copied(),
            name: model.name.clone(),
            path: model.path.as_os_str().as_encoded_bytes().to_vec(),
            base: model.base.clone(),
            model: Some(model),
            ..FamilyMember::default()
        });
    }
    let mut at = 0;
    // Bases of bases are found too, because the list grows meanwhile.
    while let Some(base) = members.get(at).map(|member| member.base.as_ref()) {
        let is_apart = base.is_some_and(|base| !base.relation().is_family());
        let id = base.filter(|_| !is_apart).map(|base| base.id);
        let mut parent = id.and_then(|id| indexes.get(&id).copied());
        let mut note = is_apart.then_some("its base is of another family");
        if let (Some(id), None) = (id, parent) {
            match summaries.with_id(&id, &mut reader)? {
                Some(summary) if members.len() < DEPTH_MAX => {
                    parent = Some(members.len());
                    indexes.insert(id, members.len());
                    let (name, path, base) = (summary.name.clone(), summary.path.clone(), summary.base.clone());
                    members.push(FamilyMember { id: Some(id), name, path, base, ..FamilyMember::default() });
                }
                _ => note = Some("the record of its base is lost"),
            }
        }
        if let Some(member) = members.get_mut(at) {
            (member.parent, member.note) = (parent.filter(|parent| *parent != at), note);
        }
        at += 1;
    }
    Ok(members)
}

fn set_labels(members: &mut [FamilyMember]) {
    let named =
        members.iter().map(|member| NamedModel { name: member.name.clone(), path: member.path.clone(), id: member.id });
    let labels = labels(&named.collect::<Vec<_>>());
    members.iter_mut().zip(labels).for_each(|(member, label)| member.label = label);
}

/// Makes one member of every cycle a root.
fn break_cycles(members: &mut [FamilyMember]) {
    // For each member the walk that visited it first, named by its start.
    let mut walks: Vec<usize> = vec![usize::MAX; members.len()];
    for start in 0..members.len() {
        let mut next = Some(start);
        while let Some(at) = next {
            match walks.get_mut(at) {
                Some(walk) if *walk == usize::MAX => *walk = start,
                Some(walk) if *walk == start => {
                    if let Some(member) = members.get_mut(at) {
                        (member.parent, member.note) = (None, Some("its base descends from it"));
                    }
                    break;
                }
                _ => break,
            }
            next = members.get(at).and_then(|member| member.parent);
        }
    }
}

/// A member that waits to be placed after its parent.
struct PendingMember {
    /// Index in the unordered list.
    at: usize,
    depth: usize,
    /// Index of the parent in the ordered list.
    parent: Option<usize>,
}

/// Orders the members: parents first, siblings by path.
fn in_order(members: Vec<FamilyMember>) -> Vec<FamilyMember> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); members.len() + 1];
    let roots = members.len();
    for (at, member) in members.iter().enumerate() {
        children[member.parent.unwrap_or(roots)].push(at);
    }
    let path = |at: &usize| members.get(*at).map(|member| member.path.clone());
    children.iter_mut().for_each(|siblings| siblings.sort_by_cached_key(path));
    let mut stack: Vec<PendingMember> = Vec::new();
    let mut push = |stack: &mut Vec<_>, of: usize, depth: usize, parent: Option<usize>| {
        stack.extend(children[of].drain(..).rev().map(|at| PendingMember { at, depth, parent }));
    };
    push(&mut stack, roots, 0, None);
    let mut ordered: Vec<FamilyMember> = Vec::with_capacity(members.len());
    while let Some(PendingMember { at, depth, parent }) = stack.pop() {
        let Some(member) = members.get(at) else { continue };
        let is_last = stack.last().is_none_or(|next| next.parent != parent);
        ordered.push(FamilyMember { parent, depth, is_last, ..member.clone() });
        push(&mut stack, at, depth + 1, Some(ordered.len() - 1));
    }
    ordered
}

/// The branch that is drawn before each name.
pub fn branches(members: &[FamilyMember]) -> Vec<String> {
    // For each member from the root to the current one: whether it is the last child of its parent.
    let mut is_last: Vec<bool> = Vec::new();
    let branch = |member: &FamilyMember| {
        is_last.truncate(member.depth);
        is_last.push(member.is_last);
        let [_, above @ .., own] = is_last.as_slice() else { return String::new() };
        let mut branch: String = above.iter().map(|is_last| if *is_last { "    " } else { "│   " }).collect();
        branch.push_str(if *own { "└── " } else { "├── " });
        branch
    };
    members.iter().map(branch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(path: &str, parent: Option<usize>) -> FamilyMember {
        let (path, name) = (path.as_bytes().to_vec(), path.to_string());
        FamilyMember { name, path, parent, ..FamilyMember::default() }
    }

    #[test]
    fn members_follow_their_parents_and_siblings_are_sorted_by_path() {
        let members = vec![member("c", Some(2)), member("b", Some(2)), member("a", None), member("d", Some(1))];
        let ordered = in_order(members);
        let lines: Vec<(&str, usize, bool, Option<usize>)> =
            ordered.iter().map(|member| (&*member.name, member.depth, member.is_last, member.parent)).collect();
        assert_eq!(
            lines,
            [("a", 0, true, None), ("b", 1, false, Some(0)), ("d", 2, true, Some(1)), ("c", 1, true, Some(0))]
        );
    }

    #[test]
    fn a_cycle_is_broken_and_every_member_remains() {
        let mut members = vec![
            member("a", Some(2)),
            member("b", Some(0)),
            member("c", Some(1)),
            member("below", Some(2)),
            member("apart", None),
        ];
        break_cycles(&mut members);
        let notes = members.iter().filter(|member| member.note.is_some()).count();
        assert_eq!(notes, 1);
        assert_eq!(in_order(members).len(), 5);
    }

    #[test]
    fn a_long_chain_does_not_overflow_the_stack() {
        let chain = (0..100_000usize).map(|at| member("x", at.checked_sub(1))).collect();
        assert_eq!(in_order(chain).last().map(|member| member.depth), Some(99_999));
    }
}
