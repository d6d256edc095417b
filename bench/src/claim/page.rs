//! Verdicts as a page in Markdown: a first paragraph that says which headline claims hold, and a table for each paper.

use super::judge::{Verdict, short};
use super::{Average, VerdictKind};

/// What a reader must know before the tables.
const HEAD: &str = "\
A claim is *confirmed* if the value measured here is within its rule, the column before the last but two; a mean only
if more than half of the values that it is the mean of are, too. It is *refuted* if it is not. It counts as *other data*
if the paper states a number and the effect here has the same direction but another size, between a tenth and ten times
of it; if only the mean is within the rule; or, whatever the value, if the row says that the data or the setting here
are of another kind than the claim needs. It is *not tested* if there is no value; the last column says why. Where a
paper states a number, the rule allows a quarter of the effect that the number stands for, unless the row has a range.
";

impl Verdict {
    /// The measured value with its unit, how it was averaged, and the range if the lines differ.
    pub fn measured_text(&self) -> String {
        let number = |value: f64| if value.abs() < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
        let average = match self.average {
            Average::Mean => "mean",
            Average::Geometric => "geometric mean",
            Average::Least => "least",
            Average::Largest => "largest",
        };
        let value = match (self.measured, self.range) {
            (Some(value), Some([least, largest])) if number(least) != number(largest) => {
                let (value, unit, count) = (number(value), &self.unit, self.count);
                format!("{value} {unit} ({average} of {count}, {} to {})", number(least), number(largest))
            }
            (Some(value), Some(_)) => format!("{} {}", number(value), self.unit).trim_end().into(),
            (Some(value), None) => format!("in {} {}", short(value), self.unit),
            (None, _) => "not measured".into(),
        };
        if self.detail.is_empty() { value } else { format!("{value}: {}", self.detail) }
    }

    /// The decision, and the build that measured it if it is another one.
    fn verdict_text(&self) -> String {
        let name = self.verdict.name();
        let age = self.age.as_ref().filter(|_| self.verdict != VerdictKind::NotTested);
        age.map_or_else(|| name.to_string(), |age| format!("{name} ({age})"))
    }

    /// What was compared, and on which sets.
    pub fn measured_on(&self) -> String {
        [self.subject.clone(), self.sets.join(", ")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// The first paragraph: which of the claims with a headline hold, which do not, and why.
pub fn lead(verdicts: &[Verdict]) -> String {
    let of = |kind: VerdictKind| {
        verdicts.iter().filter(move |verdict| verdict.verdict == kind && verdict.headline.is_some())
    };
    let name = |verdict: &Verdict| {
        let headline = verdict.headline.as_deref().unwrap_or_default();
        format!("{}: {headline} ({}; paper: {})", verdict.source, brief(verdict), verdict.expected)
    };
    let with_reason = |verdict: &Verdict| format!("{}: {}", name(verdict), verdict.remark);
    let list = |texts: Vec<String>| texts.iter().map(|text| format!("- {text}\n")).collect::<String>();
    let mut out = String::new();
    let parts = [
        (VerdictKind::Confirmed, "Of the headline claims, these hold on these data:", false),
        (VerdictKind::Refuted, "These do not hold:", true),
        (
            VerdictKind::OtherData,
            "These have another size, or were measured on other data or in another setting:",
            true,
        ),
        (VerdictKind::NotTested, "These could not be tested:", true),
    ];
    for (kind, title, has_reason) in parts {
        let texts: Vec<String> =
            of(kind).map(|verdict| if has_reason { with_reason(verdict) } else { name(verdict) }).collect();
        if !texts.is_empty() {
            out += &format!("{title}\n\n{}\n", list(texts));
        }
    }
    out
}

/// The value without its range.
fn brief(verdict: &Verdict) -> String {
    match (verdict.measured, verdict.range) {
        (Some(value), Some(_)) => format!("here {} {}", short(value), verdict.unit).trim_end().to_string(),
        (Some(value), None) => format!("here in {} {}", short(value), verdict.unit),
        (None, _) => "not measured".into(),
    }
}

/// The tables, one for each paper in order of first mention, and a line with the number of each decision.
pub fn tables(verdicts: &[Verdict]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut sources: Vec<&str> = Vec::new();
    for verdict in verdicts {
        if !sources.contains(&verdict.source.as_str()) {
            sources.push(&verdict.source);
        }
    }
    let mut out = format!("{HEAD}\n");
    for source in sources {
        let of_source: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.source == source).collect();
        let count = |kind: VerdictKind| {
            let number = of_source.iter().filter(|verdict| verdict.verdict == kind).count();
            format!("{number} {}", kind.name())
        };
        let kinds =
            [VerdictKind::Confirmed, VerdictKind::Refuted, VerdictKind::OtherData, VerdictKind::NotTested].map(count);
        out += &format!("## {source}\n\n{} rows: {}.\n\n", of_source.len(), kinds.join(", "));
        out += "| where | claim | in the paper | here | confirmed if | verdict | measured on | what explains it |\n";
        out += "|---|---|---|---|---|---|---|---|\n";
        for verdict in of_source {
            let cells = [
                &verdict.section,
                &verdict.text,
                &verdict.expected,
                &verdict.measured_text(),
                &verdict.rule,
                &verdict.verdict_text(),
                &verdict.measured_on(),
                &verdict.remark,
            ];
            let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
            out.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Untested;
    use super::*;

    fn verdict(source: &str, kind: VerdictKind, headline: Option<&str>) -> Verdict {
        let untested = Untested {
            source: source.into(),
            section: "5.2".into(),
            text: "a|b".into(),
            expected: "2 %".into(),
            reason: "other data".into(),
        };
        Verdict {
            verdict: kind,
            measured: Some(3.0),
            range: Some([1.0, 5.0]),
            count: 2,
            unit: "%".into(),
            rule: "1 to 2 %".into(),
            sets: vec!["code".into()],
            subject: "a against b".into(),
            headline: headline.map(str::to_string),
            ..untested.verdict()
        }
    }

    #[test]
    fn each_paper_has_a_table_with_its_counts() {
        let verdicts = [
            verdict("One", VerdictKind::Confirmed, None),
            verdict("Two", VerdictKind::Refuted, None),
            Verdict { age: Some("older".into()), ..verdict("One", VerdictKind::OtherData, None) },
        ];
        let text = tables(&verdicts);
        assert_eq!(text.matches("\n## ").count(), 2, "{text}");
        assert!(text.contains("2 rows: 1 confirmed, 0 refuted, 1 other data, 0 not tested."), "{text}");
        let row = "| 5.2 | a\\|b | 2 % | 3.00 % (mean of 2, 1.00 to 5.00) | 1 to 2 % | confirmed | a against b; code \
            | other data |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| other data (older) |"), "{text}");
    }

    #[test]
    fn the_lead_names_headlines_by_their_decision() {
        let verdicts = [
            verdict("One", VerdictKind::Confirmed, Some("it is small")),
            verdict("One", VerdictKind::Confirmed, None),
            verdict("Two", VerdictKind::Refuted, Some("it is fast")),
        ];
        let text = lead(&verdicts);
        let (hold, fail) = text.split_once("These do not hold:").unwrap();
        assert!(hold.contains("- One: it is small (here 3 %; paper: 2 %)\n"), "{text}");
        assert!(fail.contains("- Two: it is fast (here 3 %; paper: 2 %): other data\n"), "{text}");
        assert!(!text.contains("could not be tested"), "{text}");
    }
}
