//! Evaluates a claim on the lines of a result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rule::Order;
use super::select::{field, identity, picks};
use super::{Average, Claim, Measure, OtherData, VerdictKind, noise};
use crate::data::HeldFiles;

/// A claim, the measured value, and the decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The paper.
    pub source: String,
    /// Section, figure or table of the paper.
    pub section: String,
    /// The claim in words.
    pub text: String,
    /// The value in the paper.
    pub expected: String,
    /// The rule in words.
    pub rule: String,
    /// The decision.
    pub verdict: VerdictKind,
    /// One value for all selected lines; `None` if no line has the value. For a rule about lines, the number of
    /// comparisons or series in which it holds.
    pub measured: Option<f64>,
    /// Of a time, the greatest difference that noise makes between this value and that of another run.
    pub error: Option<f64>,
    /// Smallest and largest value of the lines.
    pub range: Option<[f64; 2]>,
    /// The value of each line; none for a rule about lines.
    #[serde(default)]
    pub values: Vec<LineValue>,
    /// Number of values, comparisons or series.
    pub count: usize,
    /// How several values became one.
    pub average: Average,
    /// Unit of both values.
    pub unit: String,
    /// For a rule about lines: the series, where it does not hold, or by how much it does.
    pub detail: String,
    /// Schemes or methods that were compared, and the chunk lengths.
    pub subject: String,
    /// Names of the measured sets.
    pub sets: Vec<String>,
    /// What explains the value, and how the data differ.
    pub remark: String,
    /// The claim in a few words, for the verdicts in words.
    pub headline: Option<String>,
    /// The build that measured it, if another one writes the page.
    pub age: Option<String>,
    /// What its data are, if the manifests do not pin them all.
    #[serde(default)]
    pub data: Option<String>,
}

/// The value of one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineValue {
    /// Its set.
    pub set: String,
    /// The value.
    pub value: f64,
    /// Of a time, the greatest difference that noise makes between this value and that of another run.
    pub error: Option<f64>,
}

/// Start of the part of a remark that says how the data differ.
pub(super) const DIFFERS: &str = "what differs: ";

/// Longest list of lines in which an order does not hold.
const EXCEPTIONS_MAX: usize = 3;

impl Claim {
    /// What is wrong with the claim, if anything.
    pub fn fault(&self) -> Option<String> {
        if let Some(fault) = self.rule.fault() {
            return Some(format!("the `rule` of the claim `{}` {fault}", self.text));
        }
        let is_of_lines = self.rule.order.is_some() || self.rule.rises_with.is_some() || self.rule.falls_with.is_some();
        (is_of_lines && noise::fields(&self.figure).is_some()).then(|| {
            format!("the claim `{}` is about a time, so its `rule` needs `near`, `at_least` or `at_most`", self.text)
        })
    }

    /// Evaluates the claim on `lines`.
    pub fn judge(&self, lines: &[Value]) -> Verdict {
        let selected: Vec<&Value> = lines.iter().filter(|line| picks(&self.of, line)).collect();
        let mut verdict = self.named(&selected, lines);
        let key = self.rule.rises_with.as_ref().or(self.rule.falls_with.as_ref());
        match (self.rule.order, key) {
            (Some(order), _) => self.judge_order(order, &selected, lines, &mut verdict),
            (None, Some(key)) => self.judge_series(key, &selected, lines, &mut verdict),
            (None, None) => self.judge_value(&selected, lines, &mut verdict),
        }
        self.decide(&mut verdict);
        verdict
    }

    /// What the configuration says of the row, which goes before its value.
    fn decide(&self, verdict: &mut Verdict) {
        let decided = verdict.verdict;
        if decided == VerdictKind::NotTested {
            return;
        }
        // A row that fails could fail, whatever its configuration says.
        if let (VerdictKind::Confirmed, Some(reason)) = (decided, &self.by_construction) {
            verdict.verdict = VerdictKind::ByConstruction;
            verdict.remark = format!("{reason}; {}", verdict.remark);
        } else if let Some(OtherData { needs, nearest }) = &self.other_data {
            let start = if decided == VerdictKind::Confirmed { "within the rule; " } else { "" };
            verdict.verdict = VerdictKind::OtherData;
            verdict.remark = format!("{start}{}; {DIFFERS}it needs {needs}; nearest here: {nearest}", verdict.remark);
        }
    }

    /// The verdict before a value is known.
    fn named(&self, selected: &[&Value], lines: &[Value]) -> Verdict {
        let with_value: Vec<&Value> = selected.iter().copied().filter(|line| self.number(line).is_some()).collect();
        Verdict {
            source: self.source.clone(),
            section: self.section.clone(),
            text: self.text.clone(),
            expected: self.expected.clone(),
            rule: self.rule.text(self.measure, &self.unit),
            verdict: VerdictKind::NotTested,
            measured: None,
            error: None,
            range: None,
            values: Vec::new(),
            count: 0,
            average: self.average,
            unit: self.unit.clone(),
            detail: String::new(),
            subject: subject(&with_value, &self.rivals(&with_value, lines)),
            sets: texts(&with_value, "set").into_iter().map(|set| with_held(set, &with_value)).collect(),
            remark: self.remark.clone(),
            headline: self.headline.clone(),
            age: None,
            data: None,
        }
    }

    fn judge_value(&self, selected: &[&Value], lines: &[Value], verdict: &mut Verdict) {
        let value = |line: &&Value| Some(LineValue { set: set_of(line), value: self.value(line, lines)?, error: None });
        verdict.values = selected.iter().filter_map(value).collect();
        let values: Vec<f64> = verdict.values.iter().map(|of_line| of_line.value).collect();
        let Some((measured, kind)) = self.decided(&values) else { return };
        let (least, largest) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(*value), b.max(*value)));
        let (count, within) = (values.len(), self.count_of(VerdictKind::Confirmed, &values));
        let directed = within + self.count_of(VerdictKind::OtherSize, &values);
        verdict.detail = match (self.rule.decide(measured, self.measure), kind) {
            (alone, decided) if alone == decided => String::new(),
            (VerdictKind::Confirmed, _) => {
                format!("only the mean is within the rule, and {within} of {count}")
            }
            _ => format!("only the mean has the direction, and {directed} of {count}"),
        };
        verdict.verdict = kind;
        verdict.measured = Some(measured);
        verdict.range = Some([least, largest]);
        verdict.count = count;
        if let Some(fields) = noise::fields(&self.figure) {
            self.judge_noise(fields, selected, lines, verdict);
        }
    }

    /// One value for `values`, and the decision about it; `None` without values. Of a mean, more than half of the
    /// values must be so, too.
    fn decided(&self, values: &[f64]) -> Option<(f64, VerdictKind)> {
        let measured = self.summary(values)?;
        let kind = self.rule.decide(measured, self.measure);
        if !matches!(self.average, Average::Mean | Average::Geometric) {
            return Some((measured, kind));
        }
        let within = self.count_of(VerdictKind::Confirmed, values);
        let directed = within + self.count_of(VerdictKind::OtherSize, values);
        let kind = match kind {
            VerdictKind::Confirmed if 2 * within > values.len() => VerdictKind::Confirmed,
            VerdictKind::Confirmed | VerdictKind::OtherSize if 2 * directed > values.len() => VerdictKind::OtherSize,
            _ => VerdictKind::Refuted,
        };
        Some((measured, kind))
    }

    /// Of how many values the rule alone decides so.
    fn count_of(&self, kind: VerdictKind, values: &[f64]) -> usize {
        values.iter().filter(|value| self.rule.decide(**value, self.measure) == kind).count()
    }

    /// Judges a time again at both ends of what another run may measure.
    fn judge_noise(&self, fields: &[&str], selected: &[&Value], lines: &[Value], verdict: &mut Verdict) {
        let noise = |line: &Value| match self.rival(line, lines) {
            Some(other) => Some(noise::of_line(fields, line)?.max(noise::of_line(fields, other)?)),
            None => noise::of_line(fields, line),
        };
        let with_value = selected.iter().copied().filter(|line| self.value(line, lines).is_some());
        let timed: Option<Vec<(&Value, f64)>> = with_value.map(|line| Some((line, noise(line)?))).collect();
        let Some(timed) = timed else { return self.too_noisy("its noise is not measured", verdict) };
        let end = |sign: i32| {
            let values =
                timed.iter().filter_map(|(line, noise)| self.value_times(line, lines, (1.0 + noise).powi(sign)));
            self.decided(&values.collect::<Vec<_>>())
        };
        let (Some((one, first)), Some((other, second))) = (end(-1), end(1)) else { return };
        for ((line, noise), own) in timed.iter().zip(&mut verdict.values) {
            let end = |sign: i32| self.value_times(line, lines, (1.0 + noise).powi(sign));
            own.error = end(-1).zip(end(1)).map(|(one, other)| (one - other).abs() / 2.0);
        }
        let is_between = |near: f64| (one.min(other)..=one.max(other)).contains(&near);
        let stated = self.rule.near.filter(|near| is_between(*near));
        let kinds = [Some(first), Some(second), stated.map(|near| self.rule.decide(near, self.measure))];
        verdict.error = Some((one - other).abs() / 2.0);
        if kinds.into_iter().flatten().any(|kind| kind != verdict.verdict) {
            self.too_noisy("another run could decide otherwise", verdict);
        }
    }

    /// A row that cannot fail does not fail by noise either.
    fn too_noisy(&self, reason: &str, verdict: &mut Verdict) {
        if self.by_construction.is_none() {
            verdict.verdict = VerdictKind::TooNoisy;
            verdict.detail = reason.into();
        }
    }

    /// Whether each selected line is the first among its rivals: lines of the same other names.
    fn judge_order(&self, order: Order, selected: &[&Value], lines: &[Value], verdict: &mut Verdict) {
        let over = self.over.clone().unwrap_or_default();
        let ignored: Vec<&str> = over.keys().chain(self.of.keys()).map(String::as_str).collect();
        let ignored: Vec<&str> = ignored.into_iter().filter(|key| over.contains_key(*key)).collect();
        let (mut count, mut first, mut lead, mut exceptions) = (0, 0, f64::INFINITY, Vec::new());
        for line in selected {
            let Some(own) = self.number(line) else { continue };
            let name = identity(line, &ignored);
            let is_rival = |other: &&Value| picks(&over, other) && identity(other, &ignored) == name && other != line;
            let rivals = lines.iter().filter(is_rival).filter_map(|other| Some((self.number(other)?, other)));
            let best = rivals.reduce(|best, other| {
                let is_better = if order == Order::Highest { other.0 > best.0 } else { other.0 < best.0 };
                if is_better { other } else { best }
            });
            let Some((value, other)) = best else { continue };
            count += 1;
            if (order == Order::Highest && own > value) || (order == Order::Lowest && own < value) {
                first += 1;
                lead = lead.min(100.0 * (own - value).abs() / value.abs());
            } else {
                let (other, value, own) = (who(other), precise(value, own), precise(own, value));
                exceptions.push(format!("{}: {other} has {value} against {own}", label(line)));
            }
        }
        let more = exceptions.len().saturating_sub(EXCEPTIONS_MAX);
        exceptions.truncate(EXCEPTIONS_MAX);
        if more > 0 {
            exceptions.push(format!("and {more} more"));
        }
        // Any difference decides, so the reader sees how large the least is.
        let leads = exceptions.is_empty() && lead.is_finite();
        verdict.detail =
            if leads { format!("by {} % of the next at least", short(lead)) } else { exceptions.join("; ") };
        self.counted(first, count, verdict);
    }

    /// Whether the values of each series of lines that differ only in `key` rise or fall with it.
    fn judge_series(&self, key: &str, selected: &[&Value], lines: &[Value], verdict: &mut Verdict) {
        let mut series: Vec<(_, String, Vec<(f64, f64)>)> = Vec::new();
        for line in selected {
            let at = field(line, key).and_then(Value::as_f64);
            let (Some(at), Some(value)) = (at, self.value(line, lines)) else { continue };
            let name = identity(line, &[key]);
            match series.iter_mut().find(|(known, ..)| *known == name) {
                Some((.., points)) => points.push((at, value)),
                None => series.push((name, set_of(line), vec![(at, value)])),
            }
        }
        series.retain(|(.., points)| points.len() > 1);
        let slack = self.rule.within.unwrap_or(0.0) / 100.0;
        let sign = if self.rule.rises_with.is_some() { 1.0 } else { -1.0 };
        let (mut held, mut texts) = (0, Vec::new());
        for (_, set, points) in &mut series {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
            let steps = values.windows(2).all(|pair| sign * (pair[1] - pair[0]) >= -slack * pair[0].abs());
            let whole = values.first().zip(values.last()).is_some_and(|(first, last)| sign * (last - first) > 0.0);
            held += usize::from(steps && whole);
            let values: Vec<String> = values.into_iter().map(short).collect();
            let start = if set.is_empty() { String::new() } else { format!("{set}: ") };
            texts.push(format!("{start}{}", values.join(", ")));
        }
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let across = key.replace('_', " ");
        let at: Vec<String> = series.first().iter().flat_map(|(.., points)| points).map(|(at, _)| short(*at)).collect();
        verdict.detail = format!("{}{unit} at {across} {}", texts.join("; "), at.join(", "));
        self.counted(held, series.len(), verdict);
    }

    fn counted(&self, held: usize, count: usize, verdict: &mut Verdict) {
        if count == 0 {
            verdict.detail.clear();
            return;
        }
        verdict.verdict = if held == count { VerdictKind::Confirmed } else { VerdictKind::Refuted };
        verdict.measured = Some(held as f64);
        verdict.count = count;
        verdict.unit = format!("of {count}");
    }

    fn number(&self, line: &Value) -> Option<f64> {
        field(line, &self.figure)?.as_f64()
    }

    /// The line of the same other names that `over` selects.
    fn rival<'a>(&self, line: &Value, lines: &'a [Value]) -> Option<&'a Value> {
        let over = self.over.as_ref()?;
        let ignored: Vec<&str> = over.keys().map(String::as_str).collect();
        let name = identity(line, &ignored);
        lines.iter().find(|other| picks(over, other) && identity(other, &ignored) == name)
    }

    /// The lines that any of `selected` is compared with.
    fn rivals<'a>(&self, selected: &[&Value], lines: &'a [Value]) -> Vec<&'a Value> {
        let Some(over) = &self.over else { return Vec::new() };
        let ignored: Vec<&str> = over.keys().map(String::as_str).collect();
        let names: Vec<_> = selected.iter().map(|line| identity(line, &ignored)).collect();
        lines.iter().filter(|line| picks(over, line) && names.contains(&identity(line, &ignored))).collect()
    }

    /// The value of a line, compared with its rival if the claim has `over`.
    fn value(&self, line: &Value, lines: &[Value]) -> Option<f64> {
        self.value_times(line, lines, 1.0)
    }

    /// The value that a line would have with `factor` times its figure.
    fn value_times(&self, line: &Value, lines: &[Value], factor: f64) -> Option<f64> {
        let figure = factor * self.number(line)?;
        if self.over.is_none() {
            return match self.measure {
                Measure::Value => Some(figure),
                Measure::Percent => Some(100.0 * figure),
                _ => None,
            };
        }
        let times = figure / self.number(self.rival(line, lines)?)?;
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

    /// One value for `values`; `None` if there are none.
    fn summary(&self, values: &[f64]) -> Option<f64> {
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
            (count > 0).then(|| sum / count as f64)
        };
        // A gain or saving as the factor that it stands for, and back.
        let factor = |value: f64| match self.measure {
            Measure::Gain => 1.0 + value / 100.0,
            Measure::Saving => 1.0 - value / 100.0,
            _ => value,
        };
        let value = |factor: f64| match self.measure {
            Measure::Gain => 100.0 * (factor - 1.0),
            Measure::Saving => 100.0 * (1.0 - factor),
            _ => factor,
        };
        match self.average {
            Average::Mean => mean(&mut values.iter().copied()),
            Average::Geometric => {
                mean(&mut values.iter().map(|value| factor(*value).max(1e-12).ln())).map(|mean| value(mean.exp()))
            }
            Average::Least => values.iter().copied().reduce(f64::min),
            Average::Largest => values.iter().copied().reduce(f64::max),
        }
    }
}

/// The different texts of a field.
fn texts(lines: &[&Value], key: &str) -> Vec<String> {
    let mut all = Vec::new();
    for text in lines.iter().filter_map(|line| line.get(key)?.as_str()) {
        if !text.is_empty() && !all.iter().any(|known| known == text) {
            all.push(text.to_string());
        }
    }
    all
}

/// The name of a set with what each of its mixtures holds.
fn with_held(set: String, lines: &[&Value]) -> String {
    let mut all: Vec<String> = Vec::new();
    for held in lines.iter().filter(|line| set_of(line) == set).filter_map(|line| line.get("held")) {
        let Ok(HeldFiles { versions, relatives, percent }) = HeldFiles::deserialize(held) else { continue };
        let count = |number: usize, name: &str| format!("{number} {name}{}", if number == 1 { "" } else { "s" });
        let text = format!("{percent} %: {} and {}", count(versions, "version"), count(relatives, "relative"));
        if !all.contains(&text) {
            all.push(text);
        }
    }
    if all.is_empty() { set } else { format!("{set} ({})", all.join("; ")) }
}

/// Scheme or method of a line.
fn who(line: &Value) -> String {
    let name = ["scheme", "method", "name"].into_iter().find_map(|key| line.get(key)?.as_str());
    name.unwrap_or("another").to_string()
}

fn set_of(line: &Value) -> String {
    line.get("set").and_then(Value::as_str).unwrap_or_default().to_string()
}

/// Set and parameters of a line.
fn label(line: &Value) -> String {
    let parameters = line.get("parameters").and_then(Value::as_object).into_iter().flatten();
    let parameter = |(key, value): (&String, &Value)| {
        let value = value.as_f64().map_or_else(|| value.as_str().unwrap_or_default().to_string(), short);
        format!(" {key} {value}")
    };
    let chunk = line.get("chunk_bytes").and_then(Value::as_u64).map(|bytes| format!(", {} KiB", bytes >> 10));
    [set_of(line)].into_iter().chain(parameters.map(parameter)).chain(chunk).collect()
}

/// Schemes and chunk lengths of the lines and of those that they are compared with.
fn subject(selected: &[&Value], rivals: &[&Value]) -> String {
    let names = |lines: &[&Value]| {
        let mut names: BTreeMap<usize, String> = BTreeMap::new();
        for (number, name) in lines.iter().map(|line| who(line)).enumerate() {
            if !names.values().any(|known| *known == name) && name != "another" {
                names.insert(number, name);
            }
        }
        names.into_values().collect::<Vec<_>>().join(", ")
    };
    let (own, others) = (names(selected), names(rivals));
    let mut lengths: Vec<u64> = selected.iter().filter_map(|line| line.get("chunk_bytes")?.as_u64()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let lengths: Vec<String> = lengths.iter().map(|bytes| (bytes >> 10).to_string()).collect();
    let lengths = if lengths.is_empty() { String::new() } else { format!("chunks of {} KiB", lengths.join(", ")) };
    let compared = if others.is_empty() || others == own { own } else { format!("{own} against {others}") };
    [compared, lengths].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A small number with two significant digits, `0.0005` without trailing zeros.
fn digits(value: f64) -> String {
    let decimals = (1.0 - value.abs().log10().floor()).clamp(2.0, 9.0) as usize;
    format!("{value:.decimals$}").trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A number with as many digits as tell it from `other`.
fn precise(value: f64, other: f64) -> String {
    if value == other || short(value) != short(other) { short(value) } else { format!("{value:.6}") }
}

/// A number with three digits at most; whole numbers are counts and lengths, and stay.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 && value.abs() < 1e6 => format!("{value:.0}"),
        size if size < 0.1 => digits(value),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        size => {
            let step = 10f64.powf((size.log10().floor() - 2.0).max(0.0));
            format!("{:.0}", (value / step).round() * step)
        }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
