//! The head of the page: what cannot be shown, the main numbers, health, and the last backup of each source.

use maud::{Markup, html};

use super::texts::{
    damage_text, describe, describe_gone, duration, is_damaged, pending_text, proof_text, row, run_text,
};
use crate::html::picture::name;
use crate::html::table::{counted, table, text};
use crate::inspect::report::RepositoryReport;
use crate::inspect::status::RepositoryStatus;
use crate::text::{printable, ratio, size};

/// Sources that are listed.
const SOURCES_SHOWN: usize = 100;
/// Snapshots that are named as unreadable.
const UNREADABLE_SHOWN: usize = 50;

/// What the page lacks, and why.
pub fn alerts(report: &RepositoryReport) -> Markup {
    let unreadable = &report.status.unreadable_snapshots;
    let mut others = Vec::new();
    if report.status.bytes_without_snapshots > 0 {
        others.push(format!("Warning: {}.", describe(report.status.bytes_without_snapshots)));
    }
    if report.status.snapshots_gone > 0 {
        others.push(format!("Warning: {}.", describe_gone(report.status.snapshots_gone)));
    }
    if let Some(error) = &report.models_unread {
        others.push(format!("The models are not listed: {error}"));
    }
    if report.usage.tree.unreadable > 0 {
        let count = report.usage.tree.unreadable;
        others.push(format!(
            "{count} files and directories of snapshots cannot be read. What they hold is not in the sums."
        ));
    }
    if report.stats.containers_damaged > 0 {
        let count = report.stats.containers_damaged;
        others.push(format!("{count} containers have an unreadable index. `fhrd check` reports the damage."));
    }
    html! {
        @if !unreadable.is_empty() || !others.is_empty() {
            div.alert role="alert" {
                strong { "This report is not complete." }
                ul {
                    @for (id, error) in unreadable.iter().take(UNREADABLE_SHOWN) {
                        li { "Snapshot " (name(id)) " cannot be read: " (name(&error.to_string())) }
                    }
                    @if let Some(more) = unreadable.len().checked_sub(UNREADABLE_SHOWN).filter(|more| *more > 0) {
                        li { (more) " more snapshots cannot be read." }
                    }
                    @for text in &others { li { (name(text)) } }
                }
            }
        }
    }
}

/// The main numbers.
pub fn cards(report: &RepositoryReport) -> Markup {
    let (tree, stored) = (&report.usage.tree, report.stats.stored_bytes.total);
    let saved = match tree.bytes {
        0 => 0.0,
        bytes => bytes.saturating_sub(stored) as f64 * 100.0 / bytes as f64,
    };
    let card = |title: &str, value: String, below: String| {
        html! { div { dt { (title) } dd { (value) small { (below) } } } }
    };
    let ages = report.status.sources.iter().map(|source| source.age_seconds(report.status.now_ns));
    let (newest, oldest) = (ages.clone().min(), ages.max());
    let newest = newest.map_or_else(|| "never".into(), |age| format!("{} ago", duration(age)));
    let oldest = match report.status.sources.len() {
        0 | 1 => String::new(),
        count => format!("the oldest of {count} sources {}", oldest.map(duration).unwrap_or_default()),
    };
    let (hosts, containers) = (report.usage.hosts.len() as u64, report.stats.containers);
    html! {
        dl.cards {
            (card("Content", size(tree.bytes), format!("in {} of all snapshots", counted(tree.files, "file", "files"))))
            (card("Stored", size(stored), format!("in {}", counted(containers, "container", "containers"))))
            (card("Ratio", format!("{} : 1", ratio(tree.bytes, stored)), format!("{saved:.1} % saved")))
            (card("Snapshots", report.snapshots.len().to_string(), format!("of {}", counted(hosts, "host", "hosts"))))
            (card("Last backup", newest, oldest))
            (card("Added in 30 days", size(report.status.space.added_30_days),
                format!("{} in 7 days", size(report.status.space.added_7_days))))
        }
    }
}

/// What is known of damage and of reads that proved the data.
pub fn health(report: &RepositoryReport) -> Markup {
    let status = &report.status;
    let RepositoryStatus { now_ns, last_check, last_verify, proof, space, pending, .. } = status;
    let facts = [
        ("Checked", run_text(last_check.as_ref(), *now_ns)),
        ("Verified", run_text(last_verify.as_ref(), *now_ns)),
        ("Proven by reads", proof_text(proof, space.bytes_containers, *now_ns)),
        ("Pending", pending_text(pending)),
    ];
    html! {
        dl.facts {
            dt { "Damage" }
            dd {
                @if !is_damaged(status) {
                    span.good { "✓ None is known" }
                } @else {
                    span.bad { "✗ Damage is known" } ": " (damage_text(status))
                }
            }
            @for (title, fact) in &facts { dt { (title) } dd { (printable(fact)) } }
            @if status.unreported > 0 {
                dt { "Running" }
                dd { (status.unreported) " backups run, or were killed before they were complete" }
            }
        }
    }
}

/// The last snapshot of each host and its paths.
pub fn sources(report: &RepositoryReport) -> Markup {
    let status = &report.status;
    let columns = [
        ("host", false),
        ("paths", false),
        ("snapshot", false),
        ("time", false),
        ("age", true),
        ("snapshots", true),
        ("state", false),
    ];
    let cells = |source| {
        let cells = row(source, status, None).into_iter().enumerate();
        cells
            .map(|(at, cell)| {
                if at < 2 {
                    name(&cell)
                } else {
                    html! { span.t { (cell) } }
                }
            })
            .collect()
    };
    let rows: Vec<Vec<Markup>> = status.sources.iter().take(SOURCES_SHOWN).map(cells).collect();
    let more = status.sources.len().saturating_sub(SOURCES_SHOWN);
    html! {
        @if rows.is_empty() { p { (text("There are no snapshots yet.")) } } @else { (table("", &columns, &rows)) }
        @if more > 0 { p.note { (more) " more are not shown." } }
    }
}
