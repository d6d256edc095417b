//! A claim of a paper about a value, and the value measured here.
//!
//! 1. `of` selects lines of the result by their names: text fields, `chunk_bytes` and parameters.
//! 2. With `over`, each selected line is compared with a line that `over` selects. All names that `over` does not
//!    mention must be equal.
//! 3. `average` makes one value of them, and the `rule` of the claim decides about it (`rule.rs`).
//!
//! A claim that cannot be measured is an [`Untested`], with the reason. docs/BENCH.md describes every key.

mod judge;
mod noise;
mod page;
mod rule;
mod select;
mod untested;

pub use judge::{LineValue, Verdict};
pub use page::{prose, tables};
pub use rule::{Rule, VerdictKind};
pub use select::field;
pub use untested::{Untested, UntestedBench};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A claim, as the configuration of a measurement states it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The paper. The page has a table for each.
    pub source: String,
    /// Section, figure or table of the paper.
    #[serde(default)]
    pub section: String,
    /// The claim in words.
    pub text: String,
    /// The value in the paper, in its words.
    pub expected: String,
    /// Field of a line to read; `a.b` is the field `b` of `a`.
    pub figure: String,
    /// Lines to select.
    pub of: BTreeMap<String, toml::Value>,
    /// Lines to compare them with.
    pub over: Option<BTreeMap<String, toml::Value>>,
    /// How a value is compared.
    #[serde(default)]
    pub measure: Measure,
    /// How the values of several lines become one.
    #[serde(default)]
    pub average: Average,
    /// Values for which the claim is confirmed.
    pub rule: Rule,
    /// The data, machine or program that the claim needs, if that here is of another kind and cannot decide.
    pub other_data: Option<OtherData>,
    /// Why the row cannot fail, if it cannot. It counts for nothing.
    pub by_construction: Option<String>,
    /// Unit printed after the value.
    #[serde(default = "percent")]
    pub unit: String,
    /// What explains the value: tested, or called a guess.
    pub remark: String,
    /// The claim in a few words, if the verdicts in words shall name it.
    pub headline: Option<String>,
}

/// Data, or a machine or program, of another kind than a claim needs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherData {
    /// What the claim needs.
    pub needs: String,
    /// The nearest that could be had.
    pub nearest: String,
}

fn percent() -> String {
    "%".into()
}

/// How a value is compared with the value of the other line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// By how many percent it is greater.
    #[default]
    Gain,
    /// By how many percent it is smaller.
    Saving,
    /// Percent of the other value.
    Share,
    /// Multiple of the other value.
    Times,
    /// The value itself.
    Value,
    /// The value itself, a fraction, in percent.
    Percent,
}

/// How the values of several lines become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Average {
    /// The arithmetic mean.
    #[default]
    Mean,
    /// The geometric mean; of gains and savings, that of the factors.
    Geometric,
    /// The smallest value, for claims about every line.
    Least,
    /// The largest value.
    Largest,
}
