//! The page: one HTML document without scripts, fonts and network access.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::cli::output::{printable, split_ns, time_local};
use crate::html::STYLE;
use crate::html::picture::name;
use crate::inspect::report::RepositoryReport;
use crate::inspect::report::growth::growth as growth_of;
use crate::overview::{families, growth, head, runs, space};

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
                title { "Backup report: " (printable(location)) }
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
