//! The page: one HTML document without scripts, fonts and network access.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::picture::name;
use super::{families, growth, head, runs, space};
use crate::cli::output::{split_ns, time_local};
use crate::inspect::report::RepositoryReport;
use crate::inspect::report::growth::growth as growth_of;

/// Look of the page: colours and their order are variables of it.
const STYLE: &str = include_str!("style.css");

/// The page of the repository at `location`.
pub fn page(report: &RepositoryReport, location: &str) -> String {
    let points = growth_of(&report.snapshots);
    let time = time_local(split_ns(report.status.now_ns).0);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { "Backup report: " (crate::cli::output::printable(location)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Backup report" }
                    p.note { (name(location)) br; "As of " (time) ", local time" }
                }
                main {
                    (head::alerts(report))
                    (head::cards(report))
                    (section("Health", &head::health(report)))
                    (section("Last backups", &head::sources(report)))
                    (section("Where the space goes", &space::space(report)))
                    (section("Growth", &growth::growth(report, &points)))
                    (section("Largest changes", &growth::largest_changes(&points)))
                    (section("Models", &families::families(report)))
                    (section("Training runs", &runs::runs(report)))
                }
                footer { "Written by fhrd " (env!("CARGO_PKG_VERSION")) "." }
            }
        }
    };
    page.into_string()
}

fn section(title: &str, content: &Markup) -> Markup {
    html! { section { h2 { (title) } (content) } }
}

/// A table in a box of its own, which scrolls if it is too wide. Numbers stand on the right.
pub fn table(class: &str, columns: &[(&str, bool)], rows: &[Vec<Markup>]) -> Markup {
    let align = |at: usize| columns.get(at).filter(|(_, is_number)| *is_number).map(|_| "n");
    html! {
        div.scroll tabindex="0" {
            table class=[Some(class).filter(|class| !class.is_empty())] {
                thead {
                    tr { @for (at, (title, _)) in columns.iter().enumerate() { th scope="col" class=[align(at)] { (title) } } }
                }
                tbody {
                    @for row in rows {
                        tr { @for (at, cell) in row.iter().enumerate() { td class=[align(at)] { (cell) } } }
                    }
                }
            }
        }
    }
}

/// A number of things.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A cell of text that is no name from data.
pub fn text(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}
