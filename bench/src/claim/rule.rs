//! The rule by which a value decides about a claim.
//!
//! - *not tested*: there is no value.
//! - *by construction*: the rule holds, and it could not fail (`by_construction`). The row counts for nothing.
//! - *other data*: the claim needs data of another kind (`other_data`), whatever the value.
//! - *too noisy*: the claim is about a time, and another run could decide otherwise (`noise.rs`).
//! - *confirmed*: the rule holds, for a mean also for more than half of what it is the mean of.
//! - *same direction, other size*: the rule does not hold, but it states a number or a range, and the effect here has
//!   its direction and at least a tenth of its size; for a mean also more than half of what it is the mean of. A bound
//!   alone states no size: it may stand for a word of the paper.
//! - *refuted*: the effect is absent or has the other direction, or a rule without a number does not hold.

use serde::{Deserialize, Serialize};

use super::Measure;

/// Values for which a claim is confirmed. All keys that are given must hold.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The number of the paper.
    pub near: Option<f64>,
    /// With `near`: the greatest difference, in the unit of the claim. Default: a quarter of the effect. With
    /// `rises_with` and `falls_with`: percent of a value by which a step may go the other way; default 0.
    pub within: Option<f64>,
    /// The least value.
    pub at_least: Option<f64>,
    /// The largest value; `inf` with `near` if every value from `at_least` on is as the claim says.
    pub at_most: Option<f64>,
    /// Every selected line has the highest or the lowest value among itself and the lines that `over` selects.
    pub order: Option<Order>,
    /// The values rise with this parameter.
    pub rises_with: Option<String>,
    /// The values fall with this parameter.
    pub falls_with: Option<String>,
}

/// Order of a line among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// All others have lower values.
    Highest,
    /// All others have higher values.
    Lowest,
}

/// Decision about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// The value is as the claim says.
    Confirmed,
    /// The effect has the direction of the claim, but not its size.
    OtherSize,
    /// The value is not as the claim says.
    Refuted,
    /// The claim needs data of another kind.
    OtherData,
    /// Another run could decide otherwise.
    TooNoisy,
    /// The rule could not fail, and holds.
    ByConstruction,
    /// There is no value.
    NotTested,
}

impl VerdictKind {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            VerdictKind::Confirmed => "confirmed",
            VerdictKind::OtherSize => "same direction, other size",
            VerdictKind::Refuted => "refuted",
            VerdictKind::OtherData => "other data",
            VerdictKind::TooNoisy => "too noisy",
            VerdictKind::ByConstruction => "by construction",
            VerdictKind::NotTested => "not tested",
        }
    }
}

/// Share of an effect by which a value may differ from the number of a paper.
const NEAR_SHARE: f64 = 0.25;

/// Share of an effect below which it counts as absent.
const ABSENT_SHARE: f64 = 0.1;

/// The value without an effect.
fn neutral(measure: Measure) -> f64 {
    match measure {
        Measure::Share => 100.0,
        Measure::Times => 1.0,
        Measure::Gain | Measure::Saving | Measure::Value | Measure::Percent => 0.0,
    }
}

impl Rule {
    /// What is wrong with the rule, if anything.
    pub fn fault(&self) -> Option<&'static str> {
        let of_value = self.near.is_some() || self.at_least.is_some() || self.at_most.is_some();
        let of_lines = [self.order.is_some(), self.rises_with.is_some(), self.falls_with.is_some()];
        if self.order.is_some() && self.within.is_some() {
            return Some("has `within` with `order`: a line that is ahead is ahead by any difference");
        }
        match (of_value, of_lines.iter().filter(|is_given| **is_given).count()) {
            (true, 0) | (false, 1) => None,
            _ => Some("needs `near`, `at_least` or `at_most`, or else one of `order`, `rises_with` and `falls_with`"),
        }
    }

    /// The values near the number of the paper.
    fn bounds(&self, measure: Measure) -> [Option<f64>; 2] {
        let Some(near) = self.near else { return [self.at_least, self.at_most] };
        let within = self.within.unwrap_or(NEAR_SHARE * (near - neutral(measure)).abs());
        [Some(self.at_least.unwrap_or(near - within)), Some(self.at_most.unwrap_or(near + within))]
    }

    /// The decision about `value`.
    pub(super) fn decide(&self, value: f64, measure: Measure) -> VerdictKind {
        let [least, most] = self.bounds(measure);
        // Both numbers may come from decimal fractions.
        let slack = 1e-9 * value.abs().max(1.0);
        if least.is_none_or(|least| value >= least - slack) && most.is_none_or(|most| value <= most + slack) {
            return VerdictKind::Confirmed;
        }
        let stated = match (self.near, least, most) {
            (Some(near), ..) => near,
            (None, Some(least), Some(most)) => value.clamp(least, most),
            _ => return VerdictKind::Refuted,
        };
        let effect = |value: f64| value - neutral(measure);
        // A range around the value without an effect states that there is none.
        let states_effect =
            least.is_none_or(|least| effect(least) >= 0.0) || most.is_none_or(|most| effect(most) <= 0.0);
        let is_there = effect(stated) != 0.0 && effect(value) / effect(stated) >= ABSENT_SHARE;
        if states_effect && is_there { VerdictKind::OtherSize } else { VerdictKind::Refuted }
    }

    /// The rule in words.
    pub(super) fn text(&self, measure: Measure, unit: &str) -> String {
        let number = |value: f64| {
            let text = if value.abs() < 2.0 { format!("{value:.4}") } else { format!("{value:.2}") };
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        };
        let order = |order: &Order| match order {
            Order::Highest => "the highest in every comparison".to_string(),
            Order::Lowest => "the lowest in every comparison".to_string(),
        };
        let of_order = self.order.as_ref().map(order);
        let rises = self.rises_with.as_ref().map(|key| format!("rises with {}", key.replace('_', " ")));
        let falls = self.falls_with.as_ref().map(|key| format!("falls with {}", key.replace('_', " ")));
        if let Some(text) = of_order.or(rises).or(falls) {
            return text;
        }
        let text = match self.bounds(measure).map(|bound| bound.filter(|bound| bound.is_finite())) {
            [Some(least), Some(most)] => format!("{} to {} {unit}", number(least), number(most)),
            [Some(least), None] => format!("at least {} {unit}", number(least)),
            [None, Some(most)] => format!("at most {} {unit}", number(most)),
            [None, None] => String::new(),
        };
        text.trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_number_of_a_paper_allows_a_quarter_of_its_effect() {
        use VerdictKind::{Confirmed, OtherSize, Refuted};
        let gain = rule("near = 20.0");
        let decide = |value| gain.decide(value, Measure::Gain);
        assert_eq!(
            [decide(15.0), decide(25.0), decide(14.9), decide(80.0)],
            [Confirmed, Confirmed, OtherSize, OtherSize]
        );
        assert_eq!([decide(2.1), decide(1.9), decide(-1.0), decide(0.0)], [OtherSize, Refuted, Refuted, Refuted]);
        assert_eq!(decide(7000.0), OtherSize, "a larger effect has the direction, too");
        assert_eq!(rule("at_least = 1.005").text(Measure::Times, "times"), "at least 1.005 times");
        let share = rule("near = 15");
        let decide = |value| share.decide(value, Measure::Share);
        assert_eq!([decide(36.0), decide(60.0), decide(105.0)], [Confirmed, OtherSize, Refuted]);
        assert_eq!(share.text(Measure::Share, "%"), "-6.25 to 36.25 %");
        assert_eq!(rule("near = 93.5\nwithin = 2").text(Measure::Percent, "%"), "91.5 to 95.5 %");
    }

    #[test]
    fn a_bound_is_confirmed_or_refuted() {
        let bound = rule("at_least = 95");
        let decide = |value| bound.decide(value, Measure::Share);
        assert_eq!([decide(95.0), decide(94.0)], [VerdictKind::Confirmed, VerdictKind::Refuted]);
        assert_eq!(bound.text(Measure::Share, "%"), "at least 95 %");
        let between = rule("at_least = 5\nat_most = 10");
        assert_eq!(between.text(Measure::Gain, "%"), "5 to 10 %");
        assert_eq!(
            [11.0, 1.0, 0.4, -7.0].map(|value| between.decide(value, Measure::Gain)),
            [VerdictKind::OtherSize, VerdictKind::OtherSize, VerdictKind::Refuted, VerdictKind::Refuted]
        );
        let from = rule("near = 8.9\nat_least = 8.9\nat_most = inf");
        assert_eq!(
            [800.0, 8.8, 0.8].map(|value| from.decide(value, Measure::Gain)),
            [VerdictKind::Confirmed, VerdictKind::OtherSize, VerdictKind::Refuted],
            "the number beside the bound states a size"
        );
        assert_eq!(from.text(Measure::Gain, "%"), "at least 8.9 %");
        let same = rule("near = 100\nwithin = 2");
        assert_eq!(same.decide(96.0, Measure::Share), VerdictKind::Refuted, "no difference has no direction");
        let around = rule("at_least = 80\nat_most = 125");
        assert_eq!(around.decide(70.0, Measure::Share), VerdictKind::Refuted);
    }

    #[test]
    fn a_rule_is_about_a_value_or_about_lines() {
        for (text, is_fault) in [
            ("near = 1", false),
            ("order = \"highest\"", false),
            ("falls_with = \"share\"\nwithin = 1", false),
            ("", true),
            ("within = 1", true),
            ("near = 1\norder = \"lowest\"", true),
            ("rises_with = \"a\"\nfalls_with = \"b\"", true),
            ("order = \"lowest\"\nwithin = 1", true),
        ] {
            assert_eq!(rule(text).fault().is_some(), is_fault, "{text}");
        }
        assert_eq!(rule("falls_with = \"chunk_bytes\"").text(Measure::Value, ""), "falls with chunk bytes");
    }
}
