//! The rule by which a value decides about a claim.
//!
//! - *confirmed*: the rule holds, for a mean also for more than half of what it is the mean of.
//! - *other data*: it does not hold, but the paper states a number (`near`), and the effect here has the same
//!   direction and between a tenth and ten times the size; or only the mean is within the rule; or the claim says that
//!   its data or its setting are of another kind (`other_data`), whatever the value.
//! - *refuted*: none of these.
//! - *not tested*: there is no value.

use serde::{Deserialize, Serialize};

use super::Measure;

/// Values for which a claim is confirmed. All keys that are given must hold.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The number of the paper.
    pub near: Option<f64>,
    /// With `near`: the greatest difference, in the unit of the claim. Default: a quarter of the effect. With
    /// `rises_with` and `falls_with`: percent of a value by which a step may go the other way; default 0. With `order`:
    /// percent of the next value by which a line must be ahead; default: any difference.
    pub within: Option<f64>,
    /// The least value.
    pub at_least: Option<f64>,
    /// The largest value.
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
    /// The value is not as the claim says.
    Refuted,
    /// The effect is there with another size, or the data cannot decide.
    OtherData,
    /// There is no value.
    NotTested,
}

impl VerdictKind {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            VerdictKind::Confirmed => "confirmed",
            VerdictKind::Refuted => "refuted",
            VerdictKind::OtherData => "other data",
            VerdictKind::NotTested => "not tested",
        }
    }
}

/// Share of an effect by which a value may differ from the number of a paper.
const NEAR_SHARE: f64 = 0.25;

/// Share of an effect below which it counts as absent.
const ABSENT_SHARE: f64 = 0.1;
/// Multiple of an effect above which it is another one.
const OTHER_MULTIPLE: f64 = 10.0;

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
        let effect = |value: f64| value - neutral(measure);
        match self.near {
            Some(near) if (ABSENT_SHARE..=OTHER_MULTIPLE).contains(&(effect(value) / effect(near))) => {
                VerdictKind::OtherData
            }
            _ => VerdictKind::Refuted,
        }
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
        let margin =
            self.within.map_or(String::new(), |within| format!(", by {} % of the next at least", number(within)));
        let of_order = self.order.as_ref().map(|kind| format!("{}{margin}", order(kind)));
        let rises = self.rises_with.as_ref().map(|key| format!("rises with {}", key.replace('_', " ")));
        let falls = self.falls_with.as_ref().map(|key| format!("falls with {}", key.replace('_', " ")));
        if let Some(text) = of_order.or(rises).or(falls) {
            return text;
        }
        let text = match self.bounds(measure) {
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
        use VerdictKind::{Confirmed, OtherData, Refuted};
        let gain = rule("near = 20.0");
        let decide = |value| gain.decide(value, Measure::Gain);
        assert_eq!(
            [decide(15.0), decide(25.0), decide(14.9), decide(80.0)],
            [Confirmed, Confirmed, OtherData, OtherData]
        );
        assert_eq!([decide(2.1), decide(1.9), decide(-1.0), decide(0.0)], [OtherData, Refuted, Refuted, Refuted]);
        assert_eq!([decide(199.0), decide(201.0)], [OtherData, Refuted]);
        assert_eq!(rule("at_least = 1.005").text(Measure::Times, "times"), "at least 1.005 times");
        let share = rule("near = 15");
        let decide = |value| share.decide(value, Measure::Share);
        assert_eq!([decide(36.0), decide(60.0), decide(105.0)], [Confirmed, OtherData, Refuted]);
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
        assert_eq!(between.decide(11.0, Measure::Gain), VerdictKind::Refuted);
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
        ] {
            assert_eq!(rule(text).fault().is_some(), is_fault, "{text}");
        }
        assert_eq!(rule("falls_with = \"chunk_bytes\"").text(Measure::Value, ""), "falls with chunk bytes");
    }
}
