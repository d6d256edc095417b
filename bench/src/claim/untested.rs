//! Claims that cannot be measured here, each with the reason.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{Average, Claim, Verdict, VerdictKind};
use crate::measurement::{Measurement, Outline};
use crate::report::{Grid, Report};
use crate::table::{flush, write_line};

/// A claim that is not measured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Untested {
    /// The paper.
    pub source: String,
    /// Section, figure or table of the paper.
    #[serde(default)]
    pub section: String,
    /// The claim in words.
    pub text: String,
    /// The value in the paper, in its words.
    pub expected: String,
    /// Why it cannot be measured here.
    pub reason: String,
}

/// `kind = "untested"`: a list of such claims.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UntestedBench {
    /// `"untested"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// The claims.
    pub untested: Vec<Untested>,
}

fn title() -> String {
    "Claims that are not measured".into()
}

impl Untested {
    /// The row of the page.
    pub fn verdict(&self) -> Verdict {
        Verdict {
            source: self.source.clone(),
            section: self.section.clone(),
            text: self.text.clone(),
            expected: self.expected.clone(),
            rule: String::new(),
            verdict: VerdictKind::NotTested,
            measured: None,
            error: None,
            range: None,
            values: Vec::new(),
            count: 0,
            average: Average::Mean,
            unit: String::new(),
            detail: String::new(),
            subject: String::new(),
            sets: Vec::new(),
            remark: self.reason.clone(),
            headline: None,
            age: None,
            data: None,
        }
    }
}

impl UntestedBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys, and a claim without a reason.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let bench: UntestedBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        match bench.untested.iter().find(|claim| claim.reason.trim().is_empty()) {
            Some(claim) => Err(wrong(format!("the claim `{}` has no reason", claim.text))),
            None => Ok(bench),
        }
    }
}

impl Measurement for UntestedBench {
    fn claims(&self) -> &[Claim] {
        &[]
    }

    fn outline(&self) -> Outline {
        Outline::of("not measured:", self.untested.iter().map(|claim| &claim.text), Vec::new())
    }

    /// Prints the claims.
    fn run(&self, _stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        let row = |claim: &Untested| {
            vec![claim.source.clone(), claim.section.clone(), claim.text.clone(), claim.reason.clone()]
        };
        write_line(out, "paper", "not measured", &[""; 0])?;
        self.untested.iter().try_for_each(|claim| write_line(out, &claim.source, &claim.text, &[""; 0]))?;
        flush(out)?;
        let columns = ["paper", "section", "claim", "why it is not measured"].map(str::to_string).to_vec();
        let rows = self.untested.iter().map(row).collect();
        let grids = vec![Grid { title: String::new(), columns, rows }];
        Ok(Report { title: self.title.clone(), grids, ..Report::default() })
    }

    fn judge(&self, _lines: &[Value]) -> Vec<Verdict> {
        self.untested.iter().map(Untested::verdict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_a_reason_and_is_not_tested() {
        let text = |reason: &str| {
            format!(
                "kind = \"untested\"\n[[untested]]\nsource = \"A\"\nsection = \"5\"\ntext = \"it is fast\"\n\
                expected = \"9\"\nreason = \"{reason}\"\n"
            )
        };
        let error = UntestedBench::parse(&text(" "), "x.toml").unwrap_err().to_string();
        assert!(error.contains("x.toml") && error.contains("it is fast"), "{error}");
        let bench = UntestedBench::parse(&text("no such data"), "x.toml").unwrap();
        let verdict = bench.untested[0].verdict();
        assert_eq!((verdict.verdict, verdict.remark.as_str()), (VerdictKind::NotTested, "no such data"));
        assert_eq!(bench.run(&Arc::default(), &mut Vec::new()).unwrap().grids[0].rows[0][3], "no such data");
    }
}
