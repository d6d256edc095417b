//! A claim of a paper about a value, and the value measured here.
//!
//! 1. `of` selects lines of the result by their names: text fields, `chunk_bytes` and parameters.
//! 2. With `over`, each selected line is compared with a line that `over` selects. All names that `over` does not
//!    mention must be equal.
//! 3. The mean over the selected lines is shown beside the value of the paper.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A claim, as the configuration of a measurement states it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Author and place of the claim.
    pub source: String,
    /// The claim in words.
    pub text: String,
    /// The value in the paper.
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
    /// Unit printed after the value.
    #[serde(default = "percent")]
    pub unit: String,
    /// Reason for the difference, one sentence.
    pub remark: String,
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

/// A claim and the measured value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Author and place of the claim.
    pub source: String,
    /// The claim in words.
    pub text: String,
    /// The value in the paper.
    pub expected: String,
    /// Mean of the selected lines; `None` if no line has the value.
    pub measured: Option<f64>,
    /// Smallest and largest value of the lines.
    pub range: Option<[f64; 2]>,
    /// Unit of both values.
    pub unit: String,
    /// Names of the measured sets.
    pub sets: Vec<String>,
    /// Reason for the difference.
    pub remark: String,
}

impl Claim {
    /// Evaluates the claim on `lines`.
    pub fn judge(&self, lines: &[Value]) -> Verdict {
        let mut values = Vec::new();
        let mut sets = Vec::new();
        for line in lines.iter().filter(|line| picks(&self.of, line)) {
            let Some(value) = self.value(line, lines) else { continue };
            values.push(value);
            let set = line.get("set").and_then(Value::as_str).unwrap_or_default().to_string();
            if !set.is_empty() && !sets.contains(&set) {
                sets.push(set);
            }
        }
        let (least, largest) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(*value), b.max(*value)));
        let any = !values.is_empty();
        Verdict {
            source: self.source.clone(),
            text: self.text.clone(),
            expected: self.expected.clone(),
            measured: any.then(|| values.iter().sum::<f64>() / values.len() as f64),
            range: any.then_some([least, largest]),
            unit: self.unit.clone(),
            sets,
            remark: self.remark.clone(),
        }
    }

    fn value(&self, line: &Value, lines: &[Value]) -> Option<f64> {
        let figure = field(line, &self.figure)?.as_f64()?;
        let Some(over) = &self.over else {
            return match self.measure {
                Measure::Value => Some(figure),
                Measure::Percent => Some(100.0 * figure),
                _ => None,
            };
        };
        let ignored: Vec<&String> = over.keys().collect();
        let name = identity(line, &ignored);
        let other = lines.iter().find(|other| picks(over, other) && identity(other, &ignored) == name)?;
        let other = field(other, &self.figure)?.as_f64()?;
        let times = figure / other;
        let value = match self.measure {
            Measure::Gain => (times - 1.0) * 100.0,
            Measure::Saving => (1.0 - times) * 100.0,
            Measure::Share => times * 100.0,
            Measure::Times => times,
            Measure::Value => figure,
            Measure::Percent => 100.0 * figure,
        };
        value.is_finite().then_some(value)
    }
}

/// A field of a line, or else the parameter of that name.
pub(super) fn field<'a>(line: &'a Value, path: &str) -> Option<&'a Value> {
    let within = |value: &'a Value| path.split('.').try_fold(value, |value, part| value.get(part));
    within(line).or_else(|| line.get("parameters").and_then(within))
}

fn picks(filter: &BTreeMap<String, toml::Value>, line: &Value) -> bool {
    filter.iter().all(|(key, wanted)| {
        field(line, key).is_some_and(|value| match wanted {
            toml::Value::String(text) => value.as_str() == Some(text),
            toml::Value::Array(texts) => texts.iter().any(|text| text.as_str() == value.as_str()),
            toml::Value::Integer(number) => value.as_f64() == Some(*number as f64),
            toml::Value::Float(number) => value.as_f64() == Some(*number),
            _ => false,
        })
    })
}

/// Names that identify a line, without the fields `ignored`.
fn identity(line: &Value, ignored: &[&String]) -> Map<String, Value> {
    let mut named = Map::new();
    let mut keep = |key: &String, value: &Value| {
        if !ignored.contains(&key) {
            named.insert(key.clone(), value.clone());
        }
    };
    for (key, value) in line.as_object().into_iter().flatten() {
        match value {
            Value::Object(parameters) if key == "parameters" => {
                parameters.iter().for_each(|(key, value)| keep(key, value))
            }
            Value::String(_) => keep(key, value),
            Value::Number(_) if key == "chunk_bytes" => keep(key, value),
            _ => {}
        }
    }
    named
}

impl Verdict {
    /// The measured value with its unit, and the range if the lines differ.
    pub fn measured_text(&self) -> String {
        let number = |value: f64| if value.abs() < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
        match (self.measured, self.range) {
            (Some(mean), Some([least, largest])) if number(least) != number(largest) => {
                format!("{} {} ({} to {})", number(mean), self.unit, number(least), number(largest))
            }
            (Some(mean), _) => format!("{} {}", number(mean), self.unit).trim_end().into(),
            (None, _) => "not measured".into(),
        }
    }
}

/// The claims as a table in Markdown.
pub fn markdown(verdicts: &[Verdict]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut out = String::from(
        "| source | claim | in the paper | here | measured on | why they differ |\n|---|---|---|---|---|---|\n",
    );
    for verdict in verdicts {
        let cells = [
            &verdict.source,
            &verdict.text,
            &verdict.expected,
            &verdict.measured_text(),
            &verdict.sets.join("; "),
            &verdict.remark,
        ];
        let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(text: &str) -> Claim {
        let head =
            "source = \"A paper, figure 1\"\ntext = \"smaller\"\nexpected = \"21.7 %\"\nremark = \"other data\"\n";
        toml::from_str(&format!("{head}{text}")).unwrap()
    }

    fn lines() -> Vec<Value> {
        let line = |set: &str, scheme: &str, level: u64, ratio: f64| {
            json!({"set": set, "scheme": scheme, "chunk_bytes": 65536, "parameters": {"level": level}, "ratio": ratio,
                "deep": {"er": 2.0 * ratio}})
        };
        vec![
            line("code", "base", 1, 2.0),
            line("code", "fhrd", 1, 3.0),
            line("code", "base", 3, 4.0),
            line("code", "fhrd", 3, 5.0),
            line("images", "base", 3, 2.0),
            line("images", "fhrd", 3, 2.0),
            json!({"set": "tar", "scheme": "fhrd", "failure": "it broke"}),
        ]
    }

    #[test]
    fn a_line_is_compared_with_the_line_of_the_same_other_names() {
        let text = "figure = \"ratio\"\nof = { scheme = \"fhrd\" }\nover = { scheme = \"base\" }\n";
        let verdict = claim(text).judge(&lines());
        assert_eq!((verdict.measured, verdict.range), (Some(25.0), Some([0.0, 50.0])));
        assert_eq!(
            (verdict.sets.join(" "), verdict.measured_text()),
            ("code images".into(), "25.0 % (0.00 to 50.0)".into())
        );
        let of_one =
            text.replace("of = { scheme = \"fhrd\" }", "of = { scheme = \"fhrd\", set = \"code\", level = 3 }");
        let over = of_one.replace("over = {", "measure = \"times\"\nunit = \"\"\nover = { level = 1,");
        assert_eq!(
            claim(&of_one).judge(&lines()).measured,
            Some(25.0),
            "the level must be equal because `over` does not name it"
        );
        assert_eq!(claim(&over).judge(&lines()).measured_text(), "2.50");
    }

    #[test]
    fn a_plain_value_is_not_compared_and_a_missing_one_is_not_measured() {
        let text =
            "figure = \"deep.er\"\nmeasure = \"value\"\nunit = \"MB/s\"\nof = { scheme = [\"fhrd\"], level = 1 }\n";
        assert_eq!(claim(text).judge(&lines()).measured_text(), "6.00 MB/s");
        let verdict = claim(&text.replace("deep.er", "speed")).judge(&lines());
        assert_eq!(verdict.measured_text(), "not measured");
        let table = markdown(&[verdict]);
        assert!(
            table.ends_with("| A paper, figure 1 | smaller | 21.7 % | not measured |  | other data |\n"),
            "{table}"
        );
    }
}
