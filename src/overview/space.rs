//! What takes the space: treemaps by host and directory and by kind of file, with tables of the same numbers.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::html::picture::{COLOURS_OWN, colour, for_both, legend, name};
use crate::html::table::table;
use crate::html::treemap::{MapGroup, MapTile, treemap};
use crate::inspect::report::RepositoryReport;
use crate::inspect::usage::TreeUsage;
use crate::inspect::usage_directories::DirectoryUsage;
use crate::repo::naming::shown_path;
use crate::text::size;

/// Heights of the treemaps: for screens and for telephones.
pub const HEIGHTS: [f64; 2] = [420.0, 420.0];
/// Directories of a host in a treemap, without those that are taken together.
const DIRECTORIES_SHOWN: usize = 16;
/// Rows of a table, without the one of what is left over.
const ROWS_SHOWN: usize = 60;

/// A row of a table, and what has an area.
#[derive(Debug, Clone, Default)]
struct SpaceRow {
    names: Vec<String>,
    files: u64,
    bytes: u64,
    distinct: u64,
    stored: u64,
}

/// The section.
pub fn space(report: &RepositoryReport) -> Markup {
    let tree = &report.usage.tree;
    let estimate = if tree.sampled_one_in > 1 { " Sizes are estimates from a sample of the chunks." } else { "" };
    html! {
        (shares(tree))
        h3 { "By host and directory" }
        p.note {
            "Areas are stored bytes. What several directories hold counts once: for the first by host and time. \
            Indexes and metadata are not in them." (estimate)
        }
        (by_directory(&report.usage.directories))
        h3 { "By kind of file" }
        (by_kind(tree))
    }
}

/// What became of the content: a bar and its meaning.
fn shares(tree: &TreeUsage) -> Markup {
    let duplicates = tree.bytes.saturating_sub(tree.distinct_bytes);
    let reduced = tree.distinct_bytes.saturating_sub(tree.stored_bytes);
    let parts = [
        ("c1", "stored", tree.stored_bytes),
        ("c2", "saved by deltas, copies and compression", reduced),
        ("c3", "saved as duplicates", duplicates),
    ];
    let share = |bytes: u64| 100.0 * bytes as f64 / (tree.bytes.max(1)) as f64;
    let names: Vec<(&str, String)> = parts
        .iter()
        .map(|(class, what, bytes)| (*class, format!("{} {what} ({:.1} %)", size(*bytes), share(*bytes))))
        .collect();
    html! {
        p { "Of " strong { (size(tree.bytes)) } " content:" }
        svg.share viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" {
            @for (at, (class, _, bytes)) in parts.iter().enumerate() {
                @let before = parts.iter().take(at).fold(0.0, |sum, (_, _, bytes)| sum + share(*bytes));
                rect class={ "part " (class) } x=(format!("{before:.4}")) width=(format!("{:.4}", share(*bytes))) height="1" {}
            }
        }
        (legend(&names))
    }
}

/// Directories of each host.
fn by_directory(directories: &[DirectoryUsage]) -> Markup {
    let mut hosts: BTreeMap<&str, Vec<&DirectoryUsage>> = BTreeMap::new();
    directories.iter().for_each(|directory| hosts.entry(&directory.host).or_default().push(directory));
    let sum = |all: &[&DirectoryUsage]| all.iter().map(|one| one.stored_bytes).fold(0, u64::saturating_add);
    let mut hosts: Vec<(&str, Vec<&DirectoryUsage>)> = hosts.into_iter().collect();
    hosts.sort_by_key(|(_, all)| std::cmp::Reverse(sum(all)));
    let own = hosts.len().min(COLOURS_OWN);
    let (shown, others) = hosts.split_at(own);
    let tile = |row: SpaceRow, colour| MapTile {
        name: row.names.last().cloned().unwrap_or_default(),
        stored: row.stored,
        bytes: row.bytes,
        colour,
    };
    let mut groups: Vec<MapGroup> = Vec::new();
    for (rank, (host, all)) in shown.iter().enumerate() {
        let rows = largest(all.iter().map(|one| row_of(one)).collect(), DIRECTORIES_SHOWN, "directories");
        let tiles = rows.into_iter().map(|row| tile(row, colour(rank))).collect();
        groups.push(MapGroup { name: host_name(host), tiles });
    }
    let left: Vec<SpaceRow> = others.iter().flat_map(|(_, all)| all.iter().map(|one| row_of(one))).collect();
    if !left.is_empty() {
        let name = format!("{} other hosts", others.len());
        groups.push(MapGroup { name, tiles: vec![tile(summed(&left, "all directories".into()), colour(COLOURS_OWN))] });
    }
    let rows = largest(directories.iter().map(row_of).collect(), ROWS_SHOWN, "directories");
    let names: Vec<(&str, String)> =
        groups.iter().filter_map(|group| Some((group.tiles.first()?.colour, group.name.clone()))).collect();
    html! {
        (legend(&names))
        (drawn("hosts", "Stored bytes by host and directory", &groups, &["host", "directory"], &rows))
    }
}

fn host_name(host: &str) -> String {
    if host.is_empty() { "(other)".into() } else { host.into() }
}

fn row_of(directory: &DirectoryUsage) -> SpaceRow {
    let DirectoryUsage { host, path, is_stem, files, bytes, distinct_bytes, stored_bytes } = directory;
    let path = match (host.is_empty() && path.as_os_str().is_empty(), is_stem) {
        (true, _) => "(further directories)".into(),
        (false, true) => format!("{} (files)", shown_path(path)),
        (false, false) => shown_path(path),
    };
    SpaceRow {
        names: vec![host_name(host), path],
        files: *files,
        bytes: *bytes,
        distinct: *distinct_bytes,
        stored: *stored_bytes,
    }
}

fn by_kind(tree: &TreeUsage) -> Markup {
    let row = |(kind, usage): (&String, &crate::inspect::usage::KindUsage)| SpaceRow {
        names: vec![kind.clone()],
        files: usage.files,
        bytes: usage.bytes,
        distinct: usage.distinct_bytes,
        stored: usage.stored_bytes,
    };
    let all: Vec<SpaceRow> = tree.kinds.iter().map(row).collect();
    let tiles = largest(all.clone(), DIRECTORIES_SHOWN, "kinds").into_iter().enumerate();
    let tiles = tiles.map(|(rank, row)| MapTile {
        name: row.names.concat(),
        stored: row.stored,
        bytes: row.bytes,
        colour: colour(rank),
    });
    let groups = [MapGroup { name: String::new(), tiles: tiles.collect() }];
    drawn("kinds", "Stored bytes by kind of file", &groups, &["kind"], &largest(all, ROWS_SHOWN, "kinds"))
}

/// The rows with the most stored bytes, and one with the sum of all others.
fn largest(mut rows: Vec<SpaceRow>, count: usize, what: &str) -> Vec<SpaceRow> {
    rows.sort_by_key(|row| std::cmp::Reverse((row.stored, row.bytes)));
    // A single other one is shown under its name.
    if rows.len() <= count + 1 {
        return rows;
    }
    let left = rows.split_off(count);
    rows.push(summed(&left, format!("{} other {what}", left.len())));
    rows
}

/// The sum of several rows, called `name` in its last column.
fn summed(rows: &[SpaceRow], name: String) -> SpaceRow {
    let mut sum = SpaceRow::default();
    for row in rows {
        sum.files = sum.files.saturating_add(row.files);
        sum.bytes = sum.bytes.saturating_add(row.bytes);
        sum.distinct = sum.distinct.saturating_add(row.distinct);
        sum.stored = sum.stored.saturating_add(row.stored);
    }
    let columns = rows.first().map_or(1, |row| row.names.len());
    sum.names = vec![String::new(); columns.saturating_sub(1)];
    sum.names.push(name);
    sum
}

fn drawn(id: &str, title: &str, groups: &[MapGroup], names: &[&str], rows: &[SpaceRow]) -> Markup {
    let columns: Vec<(&str, bool)> = names
        .iter()
        .map(|name| (*name, false))
        .chain(["files", "content", "unique", "stored"].map(|name| (name, true)))
        .collect();
    let cells = |row: &SpaceRow| {
        let names = row.names.iter().map(|text| name(text));
        let sizes = [row.files.to_string(), size(row.bytes), size(row.distinct), size(row.stored)];
        names.chain(sizes.into_iter().map(|cell| html! { (cell) })).collect()
    };
    let rows: Vec<Vec<Markup>> = rows.iter().map(cells).collect();
    html! {
        @if groups.iter().flat_map(|group| &group.tiles).all(|tile| tile.stored == 0) {
            p { "Nothing is stored yet." }
        } @else {
            figure { (for_both(HEIGHTS, |size| treemap(id, title, groups, size))) }
        }
        details {
            summary { "The same numbers as a table" }
            (table("", &columns, &rows))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rows_become_one() {
        let row = |stored| SpaceRow { names: vec!["h".into(), format!("d{stored}")], stored, ..SpaceRow::default() };
        let rows = largest((1..=5).map(row).collect(), 2, "directories");
        let shown: Vec<(&str, u64)> = rows.iter().map(|row| (row.names[1].as_str(), row.stored)).collect();
        assert_eq!(shown, [("d5", 5), ("d4", 4), ("3 other directories", 6)]);
        assert_eq!(largest((1..=3).map(row).collect(), 2, "directories").len(), 3);
    }
}
