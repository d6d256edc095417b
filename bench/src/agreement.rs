//! Compares two runs of one comparison: sizes must be equal, and speeds equal within the noise.
//!
//! Lines are matched by set, scheme, parameters and chunk length. Ratios must be the same number. Speeds per
//! normalised second may differ by the greater noise of the two runs, up or down.

use std::fmt;

use fhrd::error::{Error, Result};
use serde_json::Value;

/// Fields that identify a line.
const NAMES: [&str; 4] = ["set", "scheme", "parameters", "chunk_bytes"];
/// Fields of speeds, each with the field of its noise.
const SPEEDS: [(&str, &str); 2] =
    [("backup_mb_per_normalised_s", "backup_noise"), ("restore_mb_per_normalised_s", "restore_noise")];

/// Differences between two runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Agreement {
    /// Number of ratios compared.
    pub ratios: usize,
    /// Ratios that differ, one message each.
    pub other_ratios: Vec<String>,
    /// Number of speeds compared.
    pub speeds: usize,
    /// Speeds that differ by more than the noise, one message each.
    pub other_speeds: Vec<String>,
    /// Lines that only one run has.
    pub unmatched: Vec<String>,
}

impl Agreement {
    /// Compares `lines`, those of this run, with `document`, the `result.json` of a previous run at the path `origin`.
    ///
    /// # Errors
    /// [`Error::Usage`] if `document` is not the result of a comparison, or if no line can be compared.
    pub fn of(lines: &[Value], document: &str, origin: &str) -> Result<Self> {
        let wrong = |what: String| Error::Usage(format!("{origin} is not the result of a comparison: {what}"));
        let document: Value = serde_json::from_str(document).map_err(|error| wrong(error.to_string()))?;
        let Some(previous) = document.get("lines").and_then(Value::as_array) else {
            return Err(wrong("there is no list `lines`".into()));
        };
        let mut agreement = Agreement::default();
        for line in lines {
            match previous.iter().find(|other| is_same(line, other)) {
                Some(other) => agreement.add(line, other),
                None => agreement.unmatched.push(name(line)),
            }
        }
        let is_new = |other: &&Value| !lines.iter().any(|line| is_same(line, other));
        agreement.unmatched.extend(previous.iter().filter(is_new).map(name));
        match agreement.ratios {
            0 => Err(wrong("no line of both runs has a `ratio`".into())),
            _ => Ok(agreement),
        }
    }

    fn add(&mut self, line: &Value, other: &Value) {
        let (now, then) = (number(line, "ratio"), number(other, "ratio"));
        self.ratios += usize::from(now.is_some() || then.is_some());
        if now != then {
            self.other_ratios.push(format!("{}: ratio {}, was {}", name(line), text(now), text(then)));
        }
        for (speed, noise) in SPEEDS {
            let (Some(now), Some(then)) = (number(line, speed), number(other, speed)) else { continue };
            // A single round has no noise to compare with.
            let Some(noise) = number(line, noise).into_iter().chain(number(other, noise)).reduce(f64::max) else {
                continue;
            };
            self.speeds += 1;
            let factor = now / then;
            if !(1.0 / (1.0 + noise)..=1.0 + noise).contains(&factor) {
                let (what, change, noise) = (speed.split('_').next().unwrap_or_default(), factor - 1.0, 100.0 * noise);
                let change = 100.0 * change;
                self.other_speeds.push(format!("{}: {what} {change:+.0} %, the noise is {noise:.0} %", name(line)));
            }
        }
    }

    /// Whether all ratios are equal.
    pub fn has_same_ratios(&self) -> bool {
        self.other_ratios.is_empty()
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ratios, speeds) = (self.ratios - self.other_ratios.len(), self.speeds - self.other_speeds.len());
        writeln!(f, "ratios    {ratios} of {} are equal", self.ratios)?;
        writeln!(f, "speeds    {speeds} of {} agree within the noise", self.speeds)?;
        self.other_ratios.iter().chain(&self.other_speeds).try_for_each(|line| writeln!(f, "  {line}"))?;
        self.unmatched.iter().try_for_each(|line| writeln!(f, "  {line}: only in one run"))
    }
}

fn is_same(line: &Value, other: &Value) -> bool {
    NAMES.iter().all(|name| line.get(name) == other.get(name))
}

fn name(line: &Value) -> String {
    let text_of = |key| line.get(key).and_then(Value::as_str).unwrap_or_default();
    let parameters =
        line.get("parameters").filter(|parameters| parameters.as_object().is_some_and(|of| !of.is_empty()));
    let parameters = parameters.map_or_else(String::new, |parameters| format!(" {parameters}"));
    format!("{}, {}{parameters}", text_of("set"), text_of("scheme"))
}

fn number(line: &Value, key: &str) -> Option<f64> {
    line.get(key)?.as_f64()
}

fn text(value: Option<f64>) -> String {
    value.map_or_else(|| "none".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(scheme: &str, ratio: f64, speed: f64) -> Value {
        json!({"set": "code", "scheme": scheme, "parameters": {}, "chunk_bytes": 1024, "ratio": ratio,
            "backup_mb_per_normalised_s": speed, "backup_noise": 0.25, "restore_mb_per_normalised_s": null})
    }

    fn against(now: &[Value], then: &[Value]) -> Agreement {
        Agreement::of(now, &json!({"lines": then}).to_string(), "x.json").unwrap()
    }

    #[test]
    fn speeds_that_differ_by_more_than_the_noise_are_reported() {
        let agreement =
            against(&[line("a", 2.0, 124.0), line("b", 3.0, 81.0)], &[line("a", 2.0, 100.0), line("b", 3.0, 100.0)]);
        assert_eq!((agreement.ratios, agreement.speeds, agreement.has_same_ratios()), (2, 2, true));
        assert!(agreement.other_speeds.is_empty(), "{agreement}");
        let agreement =
            against(&[line("a", 2.0, 126.0), line("b", 3.5, 79.0)], &[line("a", 2.0, 100.0), line("b", 3.0, 100.0)]);
        assert!(!agreement.has_same_ratios());
        let printed = agreement.to_string();
        for part in [
            "1 of 2 are equal",
            "0 of 2 agree",
            "code, a: backup +26 %, the noise is 25 %",
            "code, b: ratio 3.5, was 3",
        ] {
            assert!(printed.contains(part), "{printed}");
        }
    }

    #[test]
    fn lines_of_only_one_run_and_failed_lines_are_reported() {
        let agreement =
            against(&[line("a", 2.0, 1.0), line("new", 2.0, 1.0)], &[line("a", 2.0, 1.0), line("old", 1.0, 1.0)]);
        assert_eq!(agreement.unmatched, ["code, new", "code, old"]);
        let mut failed = line("a", 2.0, 1.0);
        failed["ratio"] = Value::Null;
        assert_eq!(against(&[failed], &[line("a", 2.0, 1.0)]).other_ratios, ["code, a: ratio none, was 2"]);
    }

    #[test]
    fn a_file_that_is_not_a_result_is_refused() {
        let message =
            |document: &str| Agreement::of(&[line("a", 2.0, 1.0)], document, "x.json").unwrap_err().to_string();
        for (document, part) in
            [("{", "x.json"), ("{}", "no list `lines`"), ("{\"lines\": [1, {}]}", "no line of both")]
        {
            assert!(message(document).contains(part), "{}", message(document));
        }
    }
}
