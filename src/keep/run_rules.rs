//! Rules about training runs: which runs they are about, and which steps stay because of a metric.

use std::collections::HashSet;
use std::str::FromStr;

use globset::{Glob, GlobMatcher};

use crate::repo::checkpoint::{BestMode, RunStep, ranked};
use crate::types::SnapshotId;

/// A pattern of names of runs. `*` stands for any characters.
#[derive(Debug, Clone)]
pub struct RunPattern(GlobMatcher);

impl RunPattern {
    /// Whether a run of this name is meant.
    pub fn matches(&self, run: &str) -> bool {
        self.0.is_match(run)
    }
}

impl FromStr for RunPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.is_empty() {
            true => Err("expected a pattern of names of runs, such as `tune*`".into()),
            false => Glob::new(text).map(|glob| RunPattern(glob.compile_matcher())).map_err(|error| error.to_string()),
        }
    }
}

/// Keeps the best steps of each run by a metric: `METRIC:min`, `METRIC:max`, each with `:N` for more than one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BestRule {
    /// Name of the metric.
    pub metric: String,
    /// Which value is best.
    pub mode: BestMode,
    /// Steps that stay, at least 1.
    pub count: usize,
}

impl FromStr for BestRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected METRIC:min, METRIC:max or METRIC:min:N, such as val_loss:min:3: `{text}`");
        let mut parts = text.split(':');
        let metric = parts.next().filter(|metric| !metric.is_empty()).ok_or_else(expected)?.to_string();
        let mode = match parts.next() {
            Some("min") => BestMode::Min,
            Some("max") => BestMode::Max,
            _ => return Err(expected()),
        };
        let count = parts.next().map_or(Some(1), |count| count.parse().ok().filter(|count| *count > 0));
        match (count, parts.next()) {
            (Some(count), None) => Ok(BestRule { metric, mode, count }),
            _ => Err(expected()),
        }
    }
}

/// What the rules say about the steps of a run.
#[derive(Debug, Default)]
pub(super) struct StepVerdicts {
    /// The last steps.
    pub(super) last: HashSet<SnapshotId>,
    /// The best steps.
    pub(super) best: HashSet<SnapshotId>,
    /// Whether no step has a number for the metric of a rule, so that nobody knows which ones are best.
    pub(super) is_unranked: bool,
}

impl StepVerdicts {
    /// Judges `steps`, which ascend and are not from the future.
    pub(super) fn new(steps: &[RunStep], last: u32, rules: &[BestRule]) -> Self {
        let id = |step: &RunStep| step.named.id;
        let mut verdicts = StepVerdicts {
            last: steps.iter().rev().take(usize::try_from(last).unwrap_or(usize::MAX)).map(id).collect(),
            ..StepVerdicts::default()
        };
        for rule in rules {
            let ranked = ranked(steps, &rule.metric, rule.mode);
            verdicts.is_unranked |= ranked.is_empty();
            verdicts.best.extend(ranked.into_iter().take(rule.count).map(id));
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_a_metric_a_mode_and_a_number_of_steps() {
        let rule = |metric: &str, mode, count| Ok(BestRule { metric: metric.into(), mode, count });
        assert_eq!("loss:min".parse(), rule("loss", BestMode::Min, 1));
        assert_eq!("eval/acc:max:12".parse(), rule("eval/acc", BestMode::Max, 12));
        for text in [
            "",
            "loss",
            "loss:",
            ":min",
            "loss:mean",
            "loss:min:",
            "loss:min:0",
            "loss:min:-1",
            "loss:min:3:4",
            "loss:Min",
            "min:3",
        ] {
            assert!(text.parse::<BestRule>().unwrap_err().contains("METRIC:min"), "{text}");
        }
    }

    #[test]
    fn a_pattern_of_runs_is_a_glob_of_the_whole_name() {
        let matches = |pattern: &str, run: &str| pattern.parse::<RunPattern>().unwrap().matches(run);
        assert!(matches("*", "a/b c") && matches("tune*", "tune/7") && matches("a?", "ab") && matches("{a,b}", "b"));
        assert!(!matches("tune", "tune-7") && !matches("tune*", "old-tune") && !matches("Tune", "tune"));
        assert!("".parse::<RunPattern>().is_err() && "[".parse::<RunPattern>().is_err());
    }
}
