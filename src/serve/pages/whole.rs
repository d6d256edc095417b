//! Pages of the whole repository: its snapshots, from memory, and what `fhrd report` says of it.

use http::StatusCode;
use http::header::REFRESH;
use maud::{Markup, html};

use super::layout::page;
use super::list::{ListColumn, ListQuery};
use crate::html::picture::name;
use crate::inspect::report::RepositoryReport;
use crate::inspect::report::growth::{GrowthBytes, growth as growth_of};
use crate::overview::{families, growth, head, runs, space};
use crate::repo::checkpoint::Checkpoint;
use crate::repo::snapshot::{NamedSnapshot, short_id};
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::catalogue::PublishedNames;
use crate::serve::fault::Fault;
use crate::serve::parts::blocking;
use crate::serve::question::Question;
use crate::serve::route::OverviewPage;
use crate::text::{size, split_ns, time_local};

/// Seconds after which a browser asks again for what is being read.
const AGAIN_AFTER: &str = "5";

/// A snapshot in the list.
struct SnapshotRow<'a> {
    named: &'a NamedSnapshot,
    added: GrowthBytes,
    paths: String,
    /// Run and step, and tags.
    labels: String,
}

impl<'a> SnapshotRow<'a> {
    fn of(named: &'a NamedSnapshot) -> Self {
        let snapshot = &named.snapshot;
        let paths: Vec<_> = snapshot.paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
        let step = Checkpoint::of(snapshot).map(|checkpoint| format!("{}@{}", checkpoint.run, checkpoint.step));
        let labels: Vec<String> = step.into_iter().chain(snapshot.tags.iter().cloned()).collect();
        SnapshotRow { named, added: GrowthBytes::of(named), paths: paths.join(" "), labels: labels.join(" ") }
    }
}

fn columns<'a>() -> [ListColumn<SnapshotRow<'a>>; 8] {
    [
        ListColumn::time("time", "time", |a, b| a.named.snapshot.time_ns.cmp(&b.named.snapshot.time_ns)),
        ListColumn::text("id", "snapshot", |a, b| a.named.id.cmp(&b.named.id)),
        ListColumn::text("host", "host", |a, b| a.named.snapshot.host.cmp(&b.named.snapshot.host)),
        ListColumn::text("paths", "paths", |a, b| a.paths.cmp(&b.paths)),
        ListColumn::text("labels", "run and tags", |a, b| a.labels.cmp(&b.labels)),
        ListColumn::number("content", "content", |a, b| a.added.bytes.cmp(&b.added.bytes)),
        ListColumn::number("added", "added", |a, b| a.added.stored.cmp(&b.added.stored)),
        ListColumn::number("problems", "problems", |a, b| {
            a.named.snapshot.problems().cmp(&b.named.snapshot.problems())
        }),
    ]
}

/// The snapshots of backups, with what each added.
///
/// # Errors
/// [`Fault::NotAllowed`]; errors of listing the snapshots.
pub async fn snapshots(question: &Question<'_>) -> Result<HttpAnswer, Fault> {
    allowed(question)?;
    let (catalogue, query) = (question.state.catalogue.clone(), ListQuery::of(question.target, "-time"));
    let content = blocking(move || {
        let found = catalogue.names()?;
        Ok(listed(&found, &query))
    });
    let content = content.await?;
    Ok(page(question.frame(), StatusCode::OK, "Snapshots", &[], &content))
}

fn listed(found: &PublishedNames, query: &ListQuery) -> Markup {
    let rows: Vec<SnapshotRow<'_>> = found.backups.iter().map(SnapshotRow::of).collect();
    let text =
        |row: &SnapshotRow<'_>| format!("{} {} {} {}", row.named.id, row.named.snapshot.host, row.paths, row.labels);
    let chosen = query.choose(rows, &columns(), text);
    let cells = |row: &SnapshotRow<'_>| {
        let snapshot = &row.named.snapshot;
        vec![
            html! { span.t { (time_local(split_ns(snapshot.time_ns).0)) } },
            html! { code { (short_id(row.named)) } },
            name(&snapshot.host),
            name(&row.paths),
            name(&row.labels),
            html! { (size(row.added.bytes)) },
            html! { strong { (size(row.added.stored)) } },
            html! { @match snapshot.problems() { 0 => "-", problems => span.bad { (problems) } } },
        ]
    };
    html! {
        @if found.unreadable > 0 { p.bad { (found.unreadable) " snapshots cannot be read." } }
        p.note { "What is published is not among them. Added is what the backup stored, by its own count." }
        (query.drawn(&chosen, &columns(), ("snapshot", "snapshots"), cells))
    }
}

/// A page of what is read in the background.
///
/// # Errors
/// [`Fault::NotAllowed`].
pub async fn overview(question: &Question<'_>, wanted: OverviewPage) -> Result<HttpAnswer, Fault> {
    allowed(question)?;
    let (title, frame) = (wanted.title(), question.frame());
    let catalogue = question.state.catalogue.clone();
    let names = blocking(move || catalogue.names()).await?;
    let known = question.state.overview.get(&question.state.catalogue, names).await;
    let is_stale = known.has_failed || !question.state.catalogue.known().is_ready;
    let Some(report) = known.report else {
        let content = html! {
            @if is_stale {
                p.bad role="alert" { "The repository cannot be read. The log of the server says why; this page asks again by itself." }
            } @else {
                p role="status" { "The repository is being read. That can take minutes; this page asks again by itself." }
            }
        };
        let mut answer = page(frame, StatusCode::OK, title, &[], &content);
        answer::set(&mut answer, REFRESH, AGAIN_AFTER);
        return Ok(answer);
    };
    let drawn = blocking(move || Ok(drawn(&report, wanted))).await?;
    let content = html! {
        @if is_stale {
            p.bad role="alert" { "The last read of the repository failed, so this is old. The log of the server says why." }
        }
        (drawn)
    };
    Ok(page(frame, StatusCode::OK, title, &[], &content))
}

/// Snapshots are more than what is published.
fn allowed(question: &Question<'_>) -> Result<(), Fault> {
    if question.client.may_read_all() { Ok(()) } else { Err(Fault::NotAllowed) }
}

fn drawn(report: &RepositoryReport, wanted: OverviewPage) -> Markup {
    let points = growth_of(&report.snapshots);
    html! {
        p.note { "As of " (time_local(split_ns(report.status.now_ns).0)) "." }
        (head::alerts(report))
        @match wanted {
            OverviewPage::Health => {
                (head::cards(report))
                h2 { "Health" } (head::health(report))
                h2 { "Last backups" } (head::sources(report))
            },
            OverviewPage::Space => {
                h2 { "Where the space goes" } (space::space(report))
                h2 { "Growth" } (growth::growth(report, &points))
                h2 { "Largest changes" } (growth::largest_changes(&points))
            },
            OverviewPage::Families => (families::families(report)),
            OverviewPage::Runs => (runs::runs(report)),
        }
    }
}
