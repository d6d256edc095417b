//! The tables of a report in Markdown, each below the line that says where its values come from.

use super::write::ReportDocument;
use super::{Grid, Report};

/// The tables of a report. docs/MEASUREMENTS.md takes its own from here.
pub fn markdown(report: &Report, document: &ReportDocument) -> String {
    let origin = document.origin(&format!("fhrd bench {}", document.config.path));
    let tables = report.grids.iter().map(|grid| format!("\n## {}\n\n{origin}\n\n{}", grid.title, table(grid)));
    format!("# {}\n{}", report.title, tables.collect::<String>())
}

fn table(grid: &Grid) -> String {
    let cell = |text: &String| text.replace('|', "\\|").replace('\n', " ");
    let row = |cells: &[String]| {
        let padding = grid.columns.len().saturating_sub(cells.len());
        let cells: Vec<String> = cells.iter().map(cell).chain(vec![String::new(); padding]).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let line = format!("|{}\n", "---|".repeat(grid.columns.len()));
    let rows: String = grid.rows.iter().map(|cells| row(cells)).collect();
    format!("{}{line}{rows}", row(&grid.columns))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_table_names_its_command_and_commit() {
        let text = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect::<Vec<_>>();
        let grid = Grid {
            title: "sizes".into(),
            columns: text(&["set", "MB"]),
            rows: vec![text(&["a|b", "1"]), text(&["c"])],
        };
        let report = Report { title: "T".into(), grids: vec![grid], ..Report::default() };
        let document = ReportDocument::new(&report, Vec::new(), (Path::new("x/y.toml"), ""), ("today".into(), 1.0));
        let text = markdown(&report, &document);
        assert!(text.starts_with("# T\n\n## sizes\n\n`fhrd bench x/y.toml` · commit "), "{text}");
        assert!(text.ends_with(" · today\n\n| set | MB |\n|---|---|\n| a\\|b | 1 |\n| c |  |\n"), "{text}");
    }
}
