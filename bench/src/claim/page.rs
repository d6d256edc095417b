//! Verdicts in Markdown: a page in words about the claims with a headline, and a table of all claims of each paper.

use std::collections::BTreeSet;

use super::judge::{DIFFERS, LineValue, Verdict, short};
use super::noise::rounded;
use super::{Average, VerdictKind};
use crate::page::Paper;

/// What a reader must know before the tables.
const HEAD: &str = "\
A claim is *confirmed* if the value measured here is within its rule, the column before the last but two; a mean only
if more than half of the values that it is the mean of are, too. It has the *same direction, other size* if it is not,
but the rule states the size of an effect, and the effect here has its direction and at least a tenth of its size; a
mean only if more than half of its values have, too. A bound that stands for a word of the paper states no size. Else
the claim is *refuted*. It counts as *other data*, whatever the value, if the data, the machine or the program here are
of another kind than the claim needs; the last column names both. A verdict about a time is *too noisy* if another run
could decide otherwise, by the noise of this one, or if that noise is not known. A row *by construction* could not fail,
as the last column says, and counts for nothing. A claim is *not tested* if there is no value; the last column says why.
Where a paper states a number, the rule allows a quarter of the effect that the number stands for, unless the row has a
range.
";

/// Most values that a row lists by set.
const LISTED_MAX: usize = 6;

/// A value with the digits that an error allows.
fn with_error(value: f64, error: Option<f64>) -> String {
    match error {
        Some(error) if error > 0.0 => rounded(value, error),
        _ => short(value),
    }
}

impl Verdict {
    /// The measured value with the digits that its noise allows.
    fn number(&self, value: f64) -> String {
        with_error(value, self.error)
    }

    /// An end of the range with the digits that the noise of its own line allows.
    fn end(&self, value: f64) -> String {
        with_error(value, self.values.iter().find(|of_line| of_line.value == value).and_then(|of_line| of_line.error))
    }

    /// The value of each set, if there are few and each has one; else the range.
    fn spread(&self, [least, largest]: [f64; 2]) -> String {
        let own = |of_line: &LineValue| format!("{} {}", of_line.set, with_error(of_line.value, of_line.error));
        let sets: BTreeSet<&str> = self.values.iter().map(|of_line| of_line.set.as_str()).collect();
        let are_named = sets.len() == self.values.len() && !sets.contains("");
        if are_named && (2..=LISTED_MAX).contains(&sets.len()) {
            return format!(": {}", self.values.iter().map(own).collect::<Vec<_>>().join("; "));
        }
        format!(", {} to {}", self.end(least), self.end(largest))
    }

    /// The measured value with its unit, how it was averaged, and what it was averaged of if the lines differ.
    pub fn measured_text(&self) -> String {
        let number = |value: f64| self.number(value);
        let average = match self.average {
            Average::Mean => "mean",
            Average::Geometric => "geometric mean",
            Average::Least => "least",
            Average::Largest => "largest",
        };
        let value = match (self.measured, self.range) {
            (Some(value), Some(range)) if self.end(range[0]) != self.end(range[1]) => {
                let value = format!("{} {}", number(value), self.unit);
                format!("{} ({average} of {}{})", value.trim_end(), self.count, self.spread(range))
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
        [self.subject.clone(), self.sets.join(", "), self.data.clone().unwrap_or_default()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// What a reader must know before the verdicts in words.
const PROSE_HEAD: &str = "\
A claim is *confirmed* if the value measured here is within its rule. It has the *same direction, other size* if it is
not, but the effect is there; else it is *refuted*. Of a mean, more than half of the values must be so, too. It counts
as *other data* if the data, the machine or the program here are of another kind than the claim needs, and as *too
noisy* if another run could decide otherwise about a time. The table counts every claim that could fail. The lists name
the headline claims alone.
";

/// Clauses of a remark that the verdicts in words have at most. The table of every claim has them all.
const REASON_CLAUSES: usize = 2;

/// The kinds of verdicts that count, in the order in which pages name them.
const KINDS: [VerdictKind; 6] = [
    VerdictKind::Confirmed,
    VerdictKind::OtherSize,
    VerdictKind::Refuted,
    VerdictKind::OtherData,
    VerdictKind::TooNoisy,
    VerdictKind::NotTested,
];

/// The verdicts in words: counts of all claims, and of each paper what it claims and its claims with a headline.
pub fn prose(papers: &[Paper], verdicts: &[Verdict]) -> String {
    let names = KINDS.map(VerdictKind::name).join(" | ");
    let mut out = format!("{PROSE_HEAD}\n| paper | claims | {names} |\n|---|---|{}\n", "---|".repeat(KINDS.len()));
    let sources = sources(verdicts);
    for source in &sources {
        let counts = counts(&of_source(source, verdicts)).map(|(_, count)| count);
        let cells: Vec<String> = counts.iter().map(usize::to_string).collect();
        out += &format!("| {source} | {} | {} |\n", counts.iter().sum::<usize>(), cells.join(" | "));
    }
    let idle = verdicts.iter().filter(|verdict| verdict.verdict == VerdictKind::ByConstruction).count();
    if idle > 0 {
        out += &format!("\nRows that could not fail, by construction: {idle}. They are not counted above.\n");
    }
    for source in &sources {
        let headlines: Vec<&Verdict> =
            of_source(source, verdicts).into_iter().filter(|verdict| verdict.headline.is_some()).collect();
        let about = papers.iter().find(|paper| paper.source == *source).map(|paper| paper.about.trim());
        if headlines.is_empty() && about.is_none() {
            continue;
        }
        out += &format!("\n## {source}\n");
        if let Some(about) = about {
            out += &format!("\n{about}\n");
        }
        for (paper, picture) in papers.iter().filter_map(|paper| Some((paper, paper.picture.as_ref()?))) {
            if paper.source == *source {
                out += &format!("\n![{} ({})]({})\n", picture.title, picture.unit, paper.picture_name());
            }
        }
        for kind in KINDS {
            let items = headlines.iter().filter(|verdict| verdict.verdict == kind);
            let items: String = items.map(|verdict| format!("- {}\n", sentence(verdict))).collect();
            if !items.is_empty() {
                out += &format!("\n{}:\n\n{items}", capital(kind.name()));
            }
        }
    }
    out
}

/// A claim with its value here and in the paper. One that is not confirmed has the reason.
fn sentence(verdict: &Verdict) -> String {
    let headline = capital(verdict.headline.as_deref().unwrap_or_default());
    let values = format!("{headline}: {} (paper: {}).", brief(verdict), verdict.expected);
    match verdict.verdict {
        VerdictKind::Confirmed => return values,
        VerdictKind::TooNoisy => return format!("{values} {}.", capital(&verdict.detail)),
        _ => {}
    }
    format!("{values} {}.", capital(&reason(&verdict.remark)))
}

/// The part of a remark that says most: how the data differ, or else its first clauses.
fn reason(remark: &str) -> String {
    match remark.split_once(DIFFERS) {
        Some((_, difference)) => difference.into(),
        None => remark.split("; ").take(REASON_CLAUSES).collect::<Vec<_>>().join("; "),
    }
}

/// The text with a capital at its start.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The papers in order of first mention.
fn sources(verdicts: &[Verdict]) -> Vec<&str> {
    let mut sources: Vec<&str> = Vec::new();
    for verdict in verdicts {
        if !sources.contains(&verdict.source.as_str()) {
            sources.push(&verdict.source);
        }
    }
    sources
}

fn of_source<'a>(source: &str, verdicts: &'a [Verdict]) -> Vec<&'a Verdict> {
    verdicts.iter().filter(|verdict| verdict.source == source).collect()
}

/// How many of the verdicts are of each kind that counts.
fn counts(verdicts: &[&Verdict]) -> [(VerdictKind, usize); KINDS.len()] {
    KINDS.map(|kind| (kind, verdicts.iter().filter(|verdict| verdict.verdict == kind).count()))
}

/// The value without its range.
fn brief(verdict: &Verdict) -> String {
    match (verdict.measured, verdict.range) {
        (Some(value), Some(_)) => format!("here {} {}", verdict.number(value), verdict.unit).trim_end().to_string(),
        (Some(value), None) => format!("here in {} {}", short(value), verdict.unit),
        (None, _) => "not measured".into(),
    }
}

/// The tables, one for each paper in order of first mention, and a line with the number of each decision.
pub fn tables(verdicts: &[Verdict]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut out = format!("{HEAD}\n");
    for source in sources(verdicts) {
        let of_source = of_source(source, verdicts);
        let kinds = counts(&of_source).map(|(kind, count)| format!("{count} {}", kind.name()));
        let counted = counts(&of_source).iter().map(|(_, count)| count).sum::<usize>();
        let idle = match of_source.len() - counted {
            0 => String::new(),
            idle => format!("; {idle} by construction, which count for nothing"),
        };
        out += &format!("## {source}\n\n{counted} rows: {}{idle}.\n\n", kinds.join(", "));
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
    use crate::page::PaperPicture;

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
    fn few_values_are_listed_by_set_with_the_error_of_each() {
        let value = |set: &str, value: f64, error: f64| LineValue { set: set.into(), value, error: Some(error) };
        let text = |values: Vec<LineValue>| {
            let noisy = verdict("One", VerdictKind::Confirmed, None);
            let range = Some([20.0, 14450.0]);
            Verdict { measured: Some(7235.0), error: Some(76.0), range, values, count: 2, ..noisy }.measured_text()
        };
        let two = vec![value("models", 20.0, 0.4), value("code", 14450.0, 150.0)];
        assert_eq!(text(two.clone()), "7240 ± 80 % (mean of 2: models 20.0 ± 0.4; code 14500 ± 200)");
        let one_set = two.into_iter().map(|of_line| LineValue { set: "code".into(), ..of_line }).collect();
        assert_eq!(text(one_set), "7240 ± 80 % (mean of 2, 20.0 ± 0.4 to 14500 ± 200)", "each end has its own error");
        assert_eq!(text(Vec::new()), "7240 ± 80 % (mean of 2, 20 to 14450)");
    }

    #[test]
    fn each_paper_has_a_table_with_its_counts() {
        let verdicts = [
            verdict("One", VerdictKind::Confirmed, None),
            verdict("Two", VerdictKind::Refuted, None),
            Verdict { age: Some("older".into()), ..verdict("One", VerdictKind::OtherData, None) },
            verdict("One", VerdictKind::ByConstruction, None),
        ];
        let text = tables(&verdicts);
        assert_eq!(text.matches("\n## ").count(), 2, "{text}");
        let counts = "2 rows: 1 confirmed, 0 same direction, other size, 0 refuted, 1 other data, 0 too noisy, \
            0 not tested; 1 by construction, which count for nothing.";
        assert!(text.contains(counts), "{text}");
        let row = "| 5.2 | a\\|b | 2 % | 3 % (mean of 2, 1 to 5) | 1 to 2 % | confirmed | a against b; code \
            | other data |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| other data (older) |"), "{text}");
    }

    #[test]
    fn the_words_count_all_claims_and_explain_those_with_a_headline() {
        let with_remark = |remark: &str, verdict: Verdict| Verdict { remark: remark.into(), ..verdict };
        let verdicts = [
            verdict("One", VerdictKind::Confirmed, Some("it is small")),
            verdict("One", VerdictKind::Confirmed, None),
            with_remark("a guess; more; much more", verdict("Two", VerdictKind::Refuted, Some("it is fast"))),
            with_remark("a; what differs: disks", verdict("Two", VerdictKind::OtherData, Some("it is near"))),
            verdict("Two", VerdictKind::OtherSize, Some("it grows")),
            verdict("Two", VerdictKind::ByConstruction, Some("it is what it is")),
            Verdict {
                error: Some(2.0),
                detail: "another run could decide otherwise".into(),
                ..verdict("Two", VerdictKind::TooNoisy, Some("it sleeps"))
            },
            verdict("Three", VerdictKind::NotTested, None),
        ];
        let picture =
            PaperPicture { file: "a.toml".into(), figure: "ratio".into(), title: "Speed".into(), unit: "km/h".into() };
        let about = "*A title*. It claims speed.".into();
        let paper = Paper { source: "Two".into(), about, picture: Some(picture) };
        let text = prose(&[paper], &verdicts);
        let head = "| paper | claims | confirmed | same direction, other size | refuted | other data | too noisy | \
            not tested |\n";
        let rows = ["| One | 2 | 2 | 0 | 0 | 0 | 0 | 0 |\n", "| Two | 4 | 0 | 1 | 1 | 1 | 1 | 0 |\n"];
        for row in [head, rows[0], rows[1], "| Three | 1 | 0 | 0 | 0 | 0 | 0 | 1 |\n"] {
            assert!(text.contains(row), "{text}");
        }
        assert!(text.contains("by construction: 1. They are not counted") && !text.contains("what it is"), "{text}");
        assert!(text.contains("## One\n\nConfirmed:\n\n- It is small: here 3 % (paper: 2 %).\n"), "{text}");
        let two = "## Two\n\n*A title*. It claims speed.\n\n![Speed (km/h)](claims-two.svg)\n\nSame direction, other size:\n\n\
            - It grows: here 3 % (paper: 2 %). Other data.\n\nRefuted:\n\n\
            - It is fast: here 3 % (paper: 2 %). A guess; more.\n\n\
            Other data:\n\n- It is near: here 3 % (paper: 2 %). Disks.\n";
        assert!(text.contains(two), "{text}");
        let noisy = "Too noisy:\n\n- It sleeps: here 3 ± 2 % (paper: 2 %). Another run could decide otherwise.\n";
        assert!(text.contains(noisy), "{text}");
        assert!(!text.contains("## Three"), "nothing to say: {text}");
    }
}
