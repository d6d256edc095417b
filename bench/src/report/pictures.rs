//! Plots of lines: bars by set. If a parameter has several numbers, curves over that parameter for each set.

use serde_json::Value;

use super::plot::{Plot, Scale, Scales};
use crate::claim::field;

/// Fields that name a line besides its set and parameters. The first one present counts.
const NAMES: [&str; 3] = ["scheme", "method", "name"];
/// An axis whose largest number exceeds the smallest by more than this factor is logarithmic.
const WIDE: f64 = 7.0;

/// Plots of fields, each a field of a line (`a.b` is `b` in `a`) with its title and unit. A field that no line has is
/// not drawn.
pub fn pictures(lines: &[Value], values: &[(&str, &str, &str)]) -> Vec<Plot> {
    let lines = &varying(lines)[..];
    let axis = axis(lines);
    let picture = |(key, title, unit): &(&str, &str, &str)| -> Vec<Plot> {
        let with: Vec<&Value> = lines.iter().filter(|line| number(line, key).is_some()).collect();
        match &axis {
            _ if with.is_empty() => Vec::new(),
            None => vec![bars(&with, key, title, unit)],
            Some(axis) => each(&with, set).iter().map(|name| over(&with, name, axis, (key, title, unit))).collect(),
        }
    };
    values.iter().flat_map(picture).collect()
}

/// The lines without parameters whose value is the same in all lines that have them.
fn varying(lines: &[Value]) -> Vec<Value> {
    let parameters = |line: &'_ Value| line.get("parameters").and_then(Value::as_object).cloned().unwrap_or_default();
    let all: Vec<_> = lines.iter().map(parameters).collect();
    let varies = |key: &String| {
        let mut values = all.iter().filter_map(|parameters| parameters.get(key));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let mut lines = lines.to_vec();
    for line in &mut lines {
        if let Some(parameters) = line.get_mut("parameters").and_then(Value::as_object_mut) {
            parameters.retain(|key, _| varies(key));
        }
    }
    lines
}

fn number(line: &Value, key: &str) -> Option<f64> {
    field(line, key)?.as_f64()
}

fn set(line: &Value) -> String {
    line.get("set").and_then(Value::as_str).unwrap_or_default().into()
}

/// The first parameter with several numbers. The chunk length comes last.
fn axis(lines: &[Value]) -> Option<String> {
    let parameters =
        lines.iter().filter_map(|line| line.get("parameters")?.as_object()).flat_map(|map| map.keys().cloned());
    let mut keys: Vec<String> = parameters.collect();
    keys.sort();
    keys.dedup();
    keys.push("chunk_bytes".into());
    keys.into_iter().find(|key| {
        let mut values: Vec<f64> = lines.iter().filter_map(|line| number(line, key)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values.len() > 1 && (key != "chunk_bytes" || shared_by_schemes(lines, values.len()))
    })
}

/// Whether chunk lengths are swept, not just different between schemes.
fn shared_by_schemes(lines: &[Value], lengths: usize) -> bool {
    let mut names: Vec<String> = lines.iter().map(|line| name(line, "chunk_bytes")).collect();
    names.sort();
    names.dedup();
    let mut sets: Vec<String> = lines.iter().map(set).collect();
    sets.sort();
    sets.dedup();
    lines.len() >= names.len() * lengths * sets.len()
}

/// Scheme and parameters without the axis.
fn name(line: &Value, axis: &str) -> String {
    let first = NAMES.iter().find_map(|key| line.get(*key)?.as_str()).unwrap_or_default();
    let parameters = line.get("parameters").and_then(Value::as_object).into_iter().flatten();
    let others = parameters
        .filter(|(key, _)| *key != axis)
        .map(|(key, value)| format!(" {key} {}", value.as_str().map_or_else(|| value.to_string(), str::to_string)));
    std::iter::once(first.to_string()).chain(others).collect()
}

/// The distinct results of `of`, in order of first occurrence.
fn each(lines: &[&Value], of: impl Fn(&Value) -> String) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in lines.iter().map(|line| of(line)) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn bars(lines: &[&Value], key: &str, title: &str, unit: &str) -> Plot {
    let (groups, names) = (each(lines, set), each(lines, |line| name(line, "")));
    let value = |of_name: &str, group: &String| {
        let line = lines.iter().find(|line| name(line, "") == of_name && set(line) == *group);
        line.and_then(|line| number(line, key))
    };
    let series = |of_name: String| {
        let values = groups.iter().map(|group| value(&of_name, group)).collect();
        (of_name, values)
    };
    let series = names.into_iter().map(series).collect();
    Plot::Bars { title: title.into(), unit: unit.into(), groups: groups.clone(), series }
}

fn over(lines: &[&Value], of_set: &str, axis: &str, (key, title, unit): (&str, &str, &str)) -> Plot {
    let lines: Vec<&Value> = lines.iter().copied().filter(|line| set(line) == of_set).collect();
    let points = |of_name: String| {
        let of_it = lines.iter().filter(|line| name(line, axis) == of_name);
        let mut points: Vec<(f64, f64)> =
            of_it.filter_map(|line| Some((number(line, axis)?, number(line, key)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (of_name, points)
    };
    let series: Vec<(String, Vec<(f64, f64)>)> =
        each(&lines, |line| name(line, axis)).into_iter().map(points).collect();
    let xs = || series.iter().flat_map(|(_, points)| points).map(|(x, _)| *x);
    let (least, largest) = (xs().fold(f64::MAX, f64::min), xs().fold(0.0, f64::max));
    let across = if least > 0.0 && largest / least > WIDE { Scale::Logarithmic } else { Scale::Plain };
    Plot::Lines {
        title: if of_set.is_empty() { title.into() } else { format!("{of_set}: {title}") },
        across: axis.replace('_', " "),
        unit: unit.into(),
        scales: Scales { across, logarithmic: false },
        series,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RATIO: [(&str, &str, &str); 2] = [("ratio", "Ratio", "times"), ("speed", "Speed", "MB/s")];

    #[test]
    fn schemes_without_numeric_parameters_are_bars_by_set() {
        let line = |set, scheme, ratio| json!({"set": set, "scheme": scheme, "chunk_bytes": ratio, "ratio": ratio});
        let lines = [line("code", "a", 1.0), line("code", "b", 2.0), line("images", "b", 3.0), json!({"set": "tar"})];
        let plots = pictures(&lines, &RATIO);
        let [Plot::Bars { title, groups, series, .. }] = plots.as_slice() else { panic!("{plots:?}") };
        assert_eq!((title.as_str(), groups.join(" ")), ("Ratio", "code images".to_string()));
        let expected = [("a".to_string(), vec![Some(1.0), None]), ("b".to_string(), vec![Some(2.0), Some(3.0)])];
        assert_eq!(*series, expected);
    }

    #[test]
    fn a_parameter_with_one_value_is_not_part_of_a_name() {
        let lines = [
            json!({"set": "mix", "scheme": "a", "parameters": {"share": 50.0}, "ratio": 2.0}),
            json!({"set": "code", "scheme": "a", "parameters": {}, "ratio": 3.0}),
        ];
        let plots = pictures(&lines, &RATIO);
        let [Plot::Bars { series, .. }] = plots.as_slice() else { panic!("{plots:?}") };
        assert_eq!(*series, [("a".to_string(), vec![Some(2.0), Some(3.0)])]);
    }

    #[test]
    fn a_swept_number_is_the_axis() {
        let line = |set, scheme, bytes: u64, level: u64| json!({"set": set, "scheme": scheme, "chunk_bytes": bytes, "parameters": {"level": level}, "ratio": level});
        let lines = [line("x", "a", 16, 9), line("x", "a", 16, 1), line("x", "b", 16, 1), line("y", "a", 16, 2)];
        let plots = pictures(&lines, &RATIO);
        let [Plot::Lines { title, across, scales, series, .. }, Plot::Lines { .. }] = plots.as_slice() else {
            panic!("{plots:?}")
        };
        assert_eq!((title.as_str(), across.as_str(), scales.across), ("x: Ratio", "level", Scale::Logarithmic));
        assert_eq!(*series, [("a".into(), vec![(1.0, 1.0), (9.0, 9.0)]), ("b".into(), vec![(1.0, 1.0)])]);
        let sized = [line("x", "a", 16, 1), line("x", "a", 64, 1), line("x", "b", 16, 1), line("x", "b", 64, 1)];
        let plots = pictures(&sized, &RATIO);
        assert!(matches!(&plots[..], [Plot::Lines { across, .. }] if across == "chunk bytes"), "{plots:?}");
    }
}
