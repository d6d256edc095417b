//! Lists in pages of 100, with search and sorting by the query: `?q=WORDS&sort=-size&page=2`.

use std::cmp::Ordering;

use maud::{Markup, html};

use super::layout::{sent, url_part};
use crate::html::table::{ColumnHead, counted, headed_table};
use crate::serve::target::RequestTarget;
use crate::text::printable;

/// Rows of a page.
const PAGE_ROWS: usize = 100;
/// Rows among which nobody needs to search.
const FEW_ROWS: usize = 10;
/// Characters of a search that count.
const SEARCH_CHARS_MAX: usize = 200;

/// A column of a list.
pub struct ListColumn<T> {
    /// Its name in the query.
    pub key: &'static str,
    /// Its head.
    title: &'static str,
    /// Whether its cells are numbers.
    is_number: bool,
    /// Whether it is sorted from the largest on at first.
    is_largest_first: bool,
    /// The order of its cells.
    order: fn(&T, &T) -> Ordering,
}

impl<T> ListColumn<T> {
    /// A column of words.
    pub const fn text(key: &'static str, title: &'static str, order: fn(&T, &T) -> Ordering) -> Self {
        ListColumn { key, title, is_number: false, is_largest_first: false, order }
    }

    /// A column of numbers.
    pub const fn number(key: &'static str, title: &'static str, order: fn(&T, &T) -> Ordering) -> Self {
        ListColumn { key, title, is_number: true, is_largest_first: true, order }
    }

    /// A column of times.
    pub const fn time(key: &'static str, title: &'static str, order: fn(&T, &T) -> Ordering) -> Self {
        ListColumn { key, title, is_number: false, is_largest_first: true, order }
    }
}

/// What a request wants to see of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    search: String,
    /// Key of a column.
    sort: String,
    is_descending: bool,
    /// From 1.
    page: usize,
}

/// The rows of a page.
#[derive(Debug)]
pub struct ChosenRows<T> {
    rows: Vec<T>,
    /// Rows before those.
    before: usize,
    /// Rows that match the search, and all.
    matching: usize,
    total: usize,
    page: usize,
}

impl ListQuery {
    /// What the query of a request says. Without an order in it, that of `default`.
    pub fn of(target: &RequestTarget, default: &str) -> Self {
        let search: String = target.value("q").unwrap_or_default().trim().chars().take(SEARCH_CHARS_MAX).collect();
        let sort = target.value("sort").unwrap_or(default);
        let (is_descending, sort) = sort.strip_prefix('-').map_or((false, sort), |sort| (true, sort));
        let page = target.value("page").and_then(|page| page.parse().ok()).unwrap_or(1);
        let sort = sort.chars().filter(char::is_ascii_lowercase).take(SEARCH_CHARS_MAX).collect();
        // It comes back in the form.
        ListQuery { search: printable(&search), sort, is_descending, page }
    }

    /// The rows that it wants: those whose `text` has all of its words, in its order. If it names no column, in that of
    /// the first one.
    pub fn choose<T>(&self, mut rows: Vec<T>, columns: &[ListColumn<T>], text: impl Fn(&T) -> String) -> ChosenRows<T> {
        let total = rows.len();
        let search = self.search.to_lowercase();
        let wanted: Vec<&str> = search.split_whitespace().collect();
        if !wanted.is_empty() {
            rows.retain(|row| {
                let text = text(row).to_lowercase();
                wanted.iter().all(|part| text.contains(part))
            });
        }
        if let Some(column) = self.column(columns).or(columns.first()) {
            rows.sort_by(|one, other| {
                let order = (column.order)(one, other);
                if self.is_descending { order.reverse() } else { order }
            });
        }
        let matching = rows.len();
        let page = self.page.clamp(1, matching.div_ceil(PAGE_ROWS).max(1));
        let before = (page - 1) * PAGE_ROWS;
        let rows = rows.into_iter().skip(before).take(PAGE_ROWS).collect();
        ChosenRows { rows, before, matching, total, page }
    }

    fn column<'a, T>(&self, columns: &'a [ListColumn<T>]) -> Option<&'a ListColumn<T>> {
        columns.iter().find(|column| column.key == self.sort)
    }

    /// A link to the same list in another order or on another page.
    fn link(&self, sort: &str, page: usize) -> String {
        let search = if self.search.is_empty() { String::new() } else { format!("q={}&", url_part(&self.search)) };
        format!("?{search}sort={}&page={page}", url_part(sort))
    }

    /// The order as the query has it.
    fn sort_text(&self) -> String {
        format!("{}{}", if self.is_descending { "-" } else { "" }, self.sort)
    }

    fn head<T>(&self, column: &ListColumn<T>) -> ColumnHead {
        let is_own = self.sort == column.key;
        let goes_down = if is_own { !self.is_descending } else { column.is_largest_first };
        let sort = format!("{}{}", if goes_down { "-" } else { "" }, column.key);
        let order = is_own.then_some(if self.is_descending { "descending" } else { "ascending" });
        let arrow = if self.is_descending { "▼" } else { "▲" };
        let title = html! {
            a href=(self.link(&sort, 1)) { (column.title) }
            @if is_own { span aria-hidden="true" { " " (arrow) } }
        };
        ColumnHead { title, is_number: column.is_number, order }
    }

    /// The form for a search, the rows as a table, and links to the other pages. Rows are called `one` and `many`.
    pub fn drawn<T>(
        &self,
        chosen: &ChosenRows<T>,
        columns: &[ListColumn<T>],
        (one, many): (&str, &str),
        cells: impl Fn(&T) -> Vec<Markup>,
    ) -> Markup {
        let heads: Vec<ColumnHead> = columns.iter().map(|column| self.head(column)).collect();
        let rows: Vec<Vec<Markup>> = chosen.rows.iter().map(cells).collect();
        let ChosenRows { before, matching, total, page, .. } = chosen;
        let (sort, last) = (self.sort_text(), matching.div_ceil(PAGE_ROWS).max(1));
        let fields = html! {
            label for="q" { "Search" }
            input #q type="search" name="q" value=(self.search) maxlength=(SEARCH_CHARS_MAX);
            input type="hidden" name="sort" value=(sort);
            button type="submit" { "Search" }
        };
        html! {
            @if *total > FEW_ROWS || !self.search.is_empty() {
                (sent("get", None, Some("search"), &fields))
            }
            p.note {
                @if *matching == 0 {
                    "No " (one) " matches, of " (counted(*total as u64, one, many)) "."
                } @else {
                    (before + 1) "–" (before + rows.len()) " of " (counted(*matching as u64, one, many))
                    @if matching < total { " that match, of " (total) } "."
                }
                @if !self.search.is_empty() { " " a href="?" { "Show all" } }
            }
            @if !rows.is_empty() { (headed_table("", &heads, &rows)) }
            @if last > 1 {
                nav.pager aria-label="Pages" {
                    @if *page > 1 { a rel="prev" href=(self.link(&sort, page - 1)) { "← Previous" } }
                    span { "Page " (page) " of " (last) }
                    @if *page < last { a rel="next" href=(self.link(&sort, page + 1)) { "Next →" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [ListColumn<(String, u64)>; 2] = [
        ListColumn::text("name", "name", |one, other| one.0.cmp(&other.0)),
        ListColumn::number("size", "size", |one, other| one.1.cmp(&other.1)),
    ];

    fn query(query: &str) -> ListQuery {
        ListQuery::of(&RequestTarget::parse("/", Some(query)).unwrap(), "name")
    }

    fn chosen(text: &str) -> ChosenRows<(String, u64)> {
        let rows = (0..250).map(|at| (format!("Model-{at:03}"), at * 7 % 250)).collect();
        query(text).choose(rows, &COLUMNS, |row| row.0.clone())
    }

    #[test]
    fn pages_follow_each_other_and_end_at_the_last() {
        for (text, first, count, page) in [
            ("", "Model-000", 100, 1),
            ("page=2", "Model-100", 100, 2),
            ("page=3", "Model-200", 50, 3),
            ("page=99", "Model-200", 50, 3),
            ("page=0", "Model-000", 100, 1),
            ("page=-1", "Model-000", 100, 1),
            ("page=18446744073709551615", "Model-200", 50, 3),
            ("sort=-name", "Model-249", 100, 1),
            ("sort=size", "Model-000", 100, 1),
            ("sort=-size", "Model-107", 100, 1),
            ("sort=none", "Model-000", 100, 1),
            ("q=MODEL+24", "Model-024", 13, 1),
        ] {
            let found = chosen(text);
            assert_eq!((found.rows[0].0.as_str(), found.rows.len(), found.page), (first, count, page), "{text}");
        }
        let none = chosen("q=nothing");
        assert_eq!((none.rows.len(), none.matching, none.total, none.page), (0, 0, 250, 1));
    }

    #[test]
    fn what_was_asked_for_is_escaped_and_stays_in_links() {
        let query = query("q=%22%3E%3Cscript%3E+1&sort=-size&page=1");
        let rows = (0..250).map(|at| (format!("\"><script> 1 {at}"), at)).collect();
        let chosen = query.choose(rows, &COLUMNS, |row| row.0.clone());
        let text = query.drawn(&chosen, &COLUMNS, ("a", "b"), |row| vec![html! { (row.0) }, html! { (row.1) }]);
        let text = text.into_string();
        assert!(!text.contains("<script"), "{text}");
        let next = "?q=%22%3E%3Cscript%3E%201&amp;sort=-size&amp;page=2";
        assert!(text.contains(&format!("href=\"{next}\"")), "{text}");
        assert!(text.contains("aria-sort=\"descending\"") && text.contains("sort=size&amp;page=1"), "{text}");
    }
}
