//! `fhrd lineage`: the models of a snapshot, or of all snapshots, as family trees.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use super::Session;
use super::args::LineageArguments;
use super::exit::Exit;
use super::location;
use super::models::{self, ChosenModels};
use super::output::{
    Align, count, failed, hex_unless_utf8, note_empty, print, print_json, printable, size, write_fitting,
};
use crate::error::Result;
use crate::inspect::lineage::{FamilyMember, FoundFamilies, branches, lineage};
use crate::inspect::models::{bits, kind};

/// Prints the trees, as text, JSON or DOT.
///
/// # Errors
/// Errors of the repository, the snapshot and [`lineage`].
pub fn run(session: &Session, arguments: &LineageArguments) -> Result<Exit> {
    let repository = location::open(session)?;
    let ChosenModels { snapshots, path, exit } = models::chosen(&repository, &arguments.snapshots)?;
    let FoundFamilies { mut members, skipped } = lineage(&repository, &snapshots, &session.stop)?;
    let exit = exit.and(Exit::of_unreadable(skipped.unreadable, skipped.newer));
    if let Some(path) = &path {
        members = trees_with(members, path);
    }
    if session.options.json {
        print_json(&members.iter().map(|member| document(member, &members)).collect::<Vec<_>>())?;
    } else if arguments.dot {
        print(|out| write!(out, "{}", dot(&members, absent(arguments))).map_err(failed))?;
    } else {
        use Align::{Left, Right};
        let columns =
            [("model", Left), ("type", Left), ("kind", Left), ("bits", Right), ("stored", Right), ("path", Left)];
        let absent = absent(arguments);
        let rows = std::iter::zip(branches(&members), &members).map(|(branch, member)| row(branch, member, absent));
        let rows = with_subtotals(rows.collect(), &members);
        match members.is_empty() {
            true => note_empty(&session.options, "there are no models"),
            false => print(|out| write_fitting(out, &columns, rows))?,
        }
    }
    Ok(exit)
}

/// The trees that have a model at `path` or below it.
fn trees_with(members: Vec<FamilyMember>, path: &Path) -> Vec<FamilyMember> {
    let mut trees: Vec<Vec<FamilyMember>> = Vec::new();
    let mut starts = Vec::new();
    for (at, member) in members.into_iter().enumerate() {
        if member.depth == 0 || trees.is_empty() {
            trees.push(Vec::new());
            starts.push(at);
        }
        trees.iter_mut().rev().take(1).for_each(|tree| tree.push(member.clone()));
    }
    let is_there = |member: &FamilyMember| {
        let own = Path::new(OsStr::from_bytes(&member.path));
        member.model.is_some() && (own.starts_with(path) || member.copies.iter().any(|copy| copy.starts_with(path)))
    };
    let mut chosen: Vec<FamilyMember> = Vec::new();
    for (tree, start) in trees.into_iter().zip(starts).filter(|(tree, _)| tree.iter().any(is_there)) {
        let to = chosen.len();
        let moved = tree.into_iter().map(|mut member| {
            member.parent = member.parent.and_then(|parent| parent.checked_sub(start)).map(|parent| parent + to);
            member
        });
        chosen.extend(moved);
    }
    chosen
}

/// The rows, and behind each tree of several models a row with their sum.
fn with_subtotals(rows: Vec<Vec<String>>, members: &[FamilyMember]) -> Vec<Vec<String>> {
    let mut all = Vec::with_capacity(rows.len());
    // Models of the tree so far, their bytes and stored bytes.
    let mut tree = (0, 0u64, 0u64);
    for (at, (row, member)) in rows.into_iter().zip(members).enumerate() {
        all.push(row);
        if let Some(model) = &member.model {
            let stored = model.stored_bytes.unwrap_or(0);
            tree = (tree.0 + 1, tree.1.saturating_add(model.size), tree.2.saturating_add(stored));
        }
        let is_end = members.get(at + 1).is_none_or(|next| next.depth == 0);
        if is_end {
            let (models, bytes, stored) = std::mem::take(&mut tree);
            if models > 1 {
                let cells = [format!("= {models} models"), String::new(), String::new(), String::new()];
                all.push([cells.to_vec(), vec![size(stored), format!("of {}", size(bytes))]].concat());
            }
        }
    }
    all
}

/// Remark on a base that was not found.
fn absent(arguments: &LineageArguments) -> &'static str {
    if arguments.snapshots.all { "in no snapshot" } else { "not in this snapshot" }
}

/// A member as JSON. `parent` is an index into the list.
pub(super) fn document(member: &FamilyMember, members: &[FamilyMember]) -> Value {
    let model = member.model.as_ref();
    let base_name = || Some(&*members.get(member.parent?)?.label);
    json!({
        "name": member.name,
        "label": member.label,
        "path": String::from_utf8_lossy(&member.path),
        "path_hex": hex_unless_utf8(&member.path),
        "copies": member.copies.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "in_snapshot": model.is_some(),
        "parent": member.parent,
        "depth": member.depth,
        "base": models::base(member.base.as_ref(), base_name()),
        "note": member.note,
        "model": model.map(models::ModelDocument::new),
    })
}

fn row(branch: String, member: &FamilyMember, absent: &str) -> Vec<String> {
    let model = member.model.as_ref();
    let base = member.base.as_ref();
    let absent = if model.is_none() { format!(" ({absent})") } else { String::new() };
    let own = String::from_utf8_lossy(&member.path);
    let paths: Vec<_> = std::iter::once(own).chain(member.copies.iter().map(|path| path.to_string_lossy())).collect();
    let note = member.note.map(|note| format!(" ({note})")).unwrap_or_default();
    vec![
        format!("{branch}{}", printable(&member.label)),
        model.map_or("-", |model| &model.dtype).into(),
        base.map_or("-", kind).into(),
        base.map_or_else(|| "-".into(), bits),
        model.and_then(|model| model.stored_bytes).map_or_else(|| "-".into(), size),
        format!("{}{absent}{note}", printable(&paths.join(", "))),
    ]
}

/// The graph in the DOT language. Arrows point from a base to the model that is stored against it.
fn dot(members: &[FamilyMember], absent: &str) -> String {
    let mut text = String::from("digraph lineage {\n  rankdir=LR;\n  node [shape=box];\n");
    for (number, member) in members.iter().enumerate() {
        let (about, style) = match &member.model {
            Some(model) => {
                let stored = model.stored_bytes.map(|bytes| format!("\n{} stored", size(bytes))).unwrap_or_default();
                (format!("{}, {}{stored}", model.dtype, count(model.parameters)), "")
            }
            None => (absent.into(), ", style=dashed"),
        };
        let label = format!("{}\n{about}", printable(&member.label));
        text.push_str(&format!("  m{number} [label={}{style}];\n", quoted(&label)));
        if let (Some(parent), Some(base)) = (member.parent, &member.base) {
            let label = quoted(&format!("{} {}", kind(base), bits(base)));
            text.push_str(&format!("  m{parent} -> m{number} [label={label}];\n"));
        }
    }
    text + "}\n"
}

/// A string of the DOT language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, parent: Option<usize>, depth: usize, is_last: bool) -> FamilyMember {
        FamilyMember { label: name.into(), parent, depth, is_last, ..FamilyMember::default() }
    }

    #[test]
    fn branches_connect_members_with_their_parents() {
        let members = [
            member("a", None, 0, false),
            member("b", Some(0), 1, false),
            member("c", Some(1), 2, true),
            member("d", Some(0), 1, true),
            member("e", Some(3), 2, true),
            member("f", None, 0, true),
        ];
        assert_eq!(branches(&members), ["", "├── ", "│   └── ", "└── ", "    └── ", ""]);
    }

    #[test]
    fn names_cannot_leave_their_string() {
        let members = [member("a\"]; evil [label=\"\\", None, 0, true), member("b\n}", None, 0, true)];
        let graph = dot(&members, "not in this snapshot");
        assert!(
            graph.contains(r#"m0 [label="a\"]; evil [label=\"\\\nnot in this snapshot", style=dashed];"#),
            "{graph}"
        );
        assert!(graph.contains(r#"m1 [label="b?}\nnot"#), "{graph}");
    }
}
