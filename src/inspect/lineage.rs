//! Lineage: the models of snapshots as the trees that their bases make.
//!
//! 1. Copies of a content are one model with several paths. A model hangs below the model that its base is a file of. A
//!    base that no snapshot asked for holds and the catalogue still knows becomes a node of its own, and so does that
//!    one's base; where a record is lost the tree begins.
//! 2. What records say is a claim: of a circle of bases the first model by path becomes a root.
//! 3. Nodes are given parents first, the way they are printed, by a stack of our own: a chain of checkpoints is as deep
//!    as it is long.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::labels::{NamedModel, labels};
use super::models::{DEPTH_MAX, FoundModels, ModelReport, models};
use crate::error::Result;
use crate::model::BaseModel;
use crate::repo::Repository;
use crate::repo::snapshot::NamedSnapshot;
use crate::types::Fingerprint;

/// A model in the tree of its family.
#[derive(Debug, Clone, Default)]
pub struct FamilyMember {
    /// What names its content; of shards the first one's.
    pub id: Option<Fingerprint>,
    /// The model; none for a base that no snapshot asked for holds.
    pub model: Option<ModelReport>,
    /// Its name.
    pub name: String,
    /// What it is called beside the others: its name, or the end of its path where others have that name.
    pub label: String,
    /// Where else its content is.
    pub copies: Vec<PathBuf>,
    /// Its path: where it is in the snapshot, or where it was when it was stored.
    pub path: Vec<u8>,
    /// What it was stored against.
    pub base: Option<BaseModel>,
    /// Place of that in the list; none for a root.
    pub parent: Option<usize>,
    /// How far below a root it is.
    pub depth: usize,
    /// Whether it is the last of its parent's children, or the last root.
    pub is_last: bool,
    /// What is wrong with its base, if anything.
    pub note: Option<&'static str>,
}

/// The families of snapshots: each member behind its parent.
///
/// # Errors
/// As for [`models`].
pub fn lineage(repository: &Repository, snapshots: &[NamedSnapshot], stop: &AtomicBool) -> Result<Vec<FamilyMember>> {
    let found = models(repository, snapshots, stop)?;
    let mut members = with_bases(found)?;
    break_circles(&mut members);
    label(&mut members);
    Ok(in_order(members))
}

/// All models and the bases that are not among them, each with its parent.
fn with_bases(found: FoundModels) -> Result<Vec<FamilyMember>> {
    let FoundModels { models, mut catalogue, mut reader } = found;
    let mut places: HashMap<Fingerprint, usize> = HashMap::new();
    let mut members: Vec<FamilyMember> = Vec::with_capacity(models.len());
    for model in models {
        // Of several copies of a model the first one is the base of others.
        let first = model.same_as.is_some().then(|| model.ids.first().and_then(|id| places.get(id))).flatten();
        if let Some(first) = first.and_then(|first| members.get_mut(*first)) {
            first.copies.push(model.path);
            continue;
        }
        for id in &model.ids {
            places.entry(*id).or_insert(members.len());
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
    while let Some(id) = members.get(at).map(|member| member.base.as_ref().map(|base| base.id)) {
        let mut parent = id.and_then(|id| places.get(&id).copied());
        let mut note = None;
        if let (Some(id), None) = (id, parent) {
            match catalogue.with_id(&id, &mut reader)? {
                Some(known) if members.len() < DEPTH_MAX => {
                    parent = Some(members.len());
                    places.insert(id, members.len());
                    let (name, path, base) = (known.name.clone(), known.path.clone(), known.base.clone());
                    members.push(FamilyMember { id: Some(id), name, path, base, ..FamilyMember::default() });
                }
                _ => note = Some("its base has no record any more"),
            }
        }
        if let Some(member) = members.get_mut(at) {
            (member.parent, member.note) = (parent.filter(|parent| *parent != at), note);
        }
        at += 1;
    }
    Ok(members)
}

/// Sets what the members are called.
fn label(members: &mut [FamilyMember]) {
    let called =
        members.iter().map(|member| NamedModel { name: &member.name, path: &member.path, id: member.id.as_ref() });
    let labels = labels(&called.collect::<Vec<_>>());
    members.iter_mut().zip(labels).for_each(|(member, label)| member.label = label);
}

/// Makes a root of one member of every circle.
fn break_circles(members: &mut [FamilyMember]) {
    // The walk that a member was passed on first.
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

/// Parents first, children by path.
fn in_order(members: Vec<FamilyMember>) -> Vec<FamilyMember> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); members.len() + 1];
    let roots = members.len();
    for (at, member) in members.iter().enumerate() {
        children[member.parent.unwrap_or(roots)].push(at);
    }
    let path = |at: &usize| members.get(*at).map(|member| member.path.clone());
    children.iter_mut().for_each(|of_one| of_one.sort_by_cached_key(path));
    // Which member, its depth, and its parent's new place.
    let mut stack: Vec<(usize, usize, Option<usize>)> = Vec::new();
    let mut push = |stack: &mut Vec<_>, parent: usize, depth: usize, place: Option<usize>| {
        stack.extend(children[parent].drain(..).rev().map(|child| (child, depth, place)));
    };
    push(&mut stack, roots, 0, None);
    let mut ordered: Vec<FamilyMember> = Vec::with_capacity(members.len());
    while let Some((at, depth, parent)) = stack.pop() {
        let Some(member) = members.get(at) else { continue };
        let is_last = stack.last().is_none_or(|next| next.2 != parent);
        ordered.push(FamilyMember { parent, depth, is_last, ..member.clone() });
        push(&mut stack, at, depth + 1, Some(ordered.len() - 1));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(path: &str, parent: Option<usize>) -> FamilyMember {
        let (path, name) = (path.as_bytes().to_vec(), path.to_string());
        FamilyMember { name, path, parent, ..FamilyMember::default() }
    }

    #[test]
    fn members_stand_behind_their_parents_by_path() {
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
    fn a_circle_is_broken_and_nobody_is_lost() {
        let mut members = vec![
            member("a", Some(2)),
            member("b", Some(0)),
            member("c", Some(1)),
            member("below", Some(2)),
            member("apart", None),
        ];
        break_circles(&mut members);
        let notes = members.iter().filter(|member| member.note.is_some()).count();
        assert_eq!(notes, 1);
        assert_eq!(in_order(members).len(), 5);
    }

    #[test]
    fn a_long_chain_is_no_recursion() {
        let chain = (0..100_000usize).map(|at| member("x", at.checked_sub(1))).collect();
        assert_eq!(in_order(chain).last().map(|member| member.depth), Some(99_999));
    }
}
