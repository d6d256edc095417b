//! Tables and sentences of pages.

use maud::{Markup, html};

/// The head of a column.
#[derive(Debug, Clone)]
pub struct ColumnHead {
    /// What it says.
    pub title: Markup,
    /// Whether its cells are numbers, which stand on the right.
    pub is_number: bool,
    /// The order of its cells, as `aria-sort` names it, if the rows are sorted by it.
    pub order: Option<&'static str>,
}

/// A table in a box of its own, which scrolls if it is too wide. Numbers stand on the right.
pub fn table(class: &str, columns: &[(&str, bool)], rows: &[Vec<Markup>]) -> Markup {
    let head =
        |(title, is_number): &(&str, bool)| ColumnHead { title: html! { (title) }, is_number: *is_number, order: None };
    headed_table(class, &columns.iter().map(head).collect::<Vec<_>>(), rows)
}

/// The same with heads that are more than a text.
pub fn headed_table(class: &str, columns: &[ColumnHead], rows: &[Vec<Markup>]) -> Markup {
    let align = |at: usize| columns.get(at).filter(|head| head.is_number).map(|_| "n");
    html! {
        div.scroll tabindex="0" {
            table class=[Some(class).filter(|class| !class.is_empty())] {
                thead {
                    tr {
                        @for (at, ColumnHead { title, order, .. }) in columns.iter().enumerate() {
                            th scope="col" class=[align(at)] aria-sort=[order] { (title) }
                        }
                    }
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
