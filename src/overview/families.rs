//! Models: a treemap of the families, and each family as a tree.

use maud::{Markup, html};

use super::space::HEIGHTS;
use crate::html::picture::{COLOURS_OWN, colour, for_both, name};
use crate::html::table::{counted, table};
use crate::html::treemap::{MapGroup, MapTile, treemap};
use crate::inspect::lineage::{FamilyMember, branches};
use crate::inspect::models::{bits, kind};
use crate::inspect::report::RepositoryReport;
use crate::inspect::report::families::{FamilyTree, families as families_of};
use crate::text::{count, size};

/// Families that are shown as trees, and those of them that are open at first.
const TREES_SHOWN: usize = 25;
const TREES_OPEN: usize = 4;
/// Models of a tree that are shown.
const MEMBERS_SHOWN: usize = 40;
/// Models of a family that have a tile of their own.
const TILES_SHOWN: usize = 12;

/// The section.
pub fn families(report: &RepositoryReport) -> Markup {
    let trees = families_of(&report.members);
    let models: usize = trees.iter().map(|tree| tree.models).sum();
    let more = trees.len().saturating_sub(TREES_SHOWN);
    html! {
        @if report.models_unread.is_some() {
            p.bad { "The models are not listed, because a directory that may have them cannot be read." }
        } @else if trees.is_empty() {
            p { "There are no models." }
        } @else {
            p.note {
                (counted(models as u64, "model", "models")) " of " (counted(trees.len() as u64, "family", "families")) " in all snapshots, each content once. A model stands below the \
                one that it is stored against. Chunks that several models share count for each."
            }
            figure {
                (for_both(HEIGHTS, |size| treemap("models", "Stored bytes by family and model", &groups(&trees), size)))
            }
            @for (rank, tree) in trees.iter().take(TREES_SHOWN).enumerate() { (drawn(tree, rank)) }
            @if more > 0 { p.note { (more) " smaller families are not shown." } }
        }
    }
}

fn groups(trees: &[FamilyTree<'_>]) -> Vec<MapGroup> {
    let (own, others) = trees.split_at(trees.len().min(COLOURS_OWN));
    let mut groups: Vec<MapGroup> = own.iter().enumerate().map(|(rank, tree)| group(tree, colour(rank))).collect();
    if !others.is_empty() {
        let models: usize = others.iter().map(|tree| tree.models).sum();
        let sum = |of: fn(&FamilyTree<'_>) -> u64| others.iter().map(of).fold(0, u64::saturating_add);
        let (stored, bytes) = (sum(|tree| tree.stored), sum(|tree| tree.size));
        let tile = MapTile { name: format!("{models} models"), stored, bytes, colour: colour(COLOURS_OWN) };
        groups.push(MapGroup { name: format!("{} other families", others.len()), tiles: vec![tile] });
        groups.sort_by_key(|group| std::cmp::Reverse(group.tiles.iter().map(|tile| tile.stored).sum::<u64>()));
    }
    groups
}

fn group(tree: &FamilyTree<'_>, colour: &'static str) -> MapGroup {
    let tile = |member: &FamilyMember| {
        let model = member.model.as_ref()?;
        let (name, stored) = (member.label.clone(), model.stored_bytes.unwrap_or(0));
        Some(MapTile { name, stored, bytes: model.size, colour })
    };
    let mut tiles: Vec<MapTile> = tree.members.iter().filter_map(tile).collect();
    tiles.sort_by_key(|tile| std::cmp::Reverse(tile.stored));
    if tiles.len() > TILES_SHOWN + 1 {
        let left = tiles.split_off(TILES_SHOWN);
        let sum = |of: fn(&MapTile) -> u64| left.iter().map(of).fold(0, u64::saturating_add);
        let (stored, bytes) = (sum(|tile| tile.stored), sum(|tile| tile.bytes));
        tiles.push(MapTile { name: format!("{} other models", left.len()), stored, bytes, colour });
    }
    // A model that stands alone needs no head.
    let name = if tiles.len() > 1 { tree.label().into() } else { String::new() };
    MapGroup { name, tiles }
}

/// A family as an indented table.
fn drawn(tree: &FamilyTree<'_>, rank: usize) -> Markup {
    let shown = tree.members.get(..tree.members.len().min(MEMBERS_SHOWN)).unwrap_or_default();
    let more = tree.members.len() - shown.len();
    let columns = [
        ("model", false),
        ("type", false),
        ("params", true),
        ("kind", false),
        ("bits", true),
        ("size", true),
        ("stored", true),
        ("path", false),
    ];
    let rows: Vec<Vec<Markup>> =
        branches(shown).iter().zip(shown).map(|(branch, member)| row(branch, member)).collect();
    html! {
        details open[rank < TREES_OPEN] {
            summary {
                span class={ "swatch " (colour(rank)) } {}
                strong { (name(tree.label())) } ": " (counted(tree.models as u64, "model", "models")) ", " (size(tree.stored)) " of " (size(tree.size))
            }
            (table("tree", &columns, &rows))
            @if more > 0 { p.note { (more) " more models of this family are not shown." } }
        }
    }
}

fn row(branch: &str, member: &FamilyMember) -> Vec<Markup> {
    let model = member.model.as_ref();
    let base = member.base.as_ref();
    let or_none = |text: Option<String>| html! { (text.unwrap_or_else(|| "-".into())) };
    let copies = match member.copies.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    vec![
        html! { span.branch aria-hidden="true" { (narrow(branch)) } (name(&member.label)) },
        html! { (name(model.map_or("-", |model| &model.dtype))) },
        or_none(model.map(|model| count(model.parameters))),
        or_none(base.map(|base| kind(base).into())),
        or_none(base.map(bits)),
        or_none(model.map(|model| size(model.size))),
        or_none(model.and_then(|model| model.stored_bytes).map(size)),
        html! {
            span.t {
                (name(&String::from_utf8_lossy(&member.path))) (copies)
                @if model.is_none() { " (in no snapshot)" }
                @if let Some(note) = member.note { " (" (note) ")" }
            }
        },
    ]
}

/// A branch with two characters for each generation, as chains can be long.
fn narrow(branch: &str) -> String {
    branch.replace("    ", "  ").replace("│   ", "│ ").replace("├── ", "├╴").replace("└── ", "└╴")
}
