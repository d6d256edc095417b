//! Selects lines of a result by their names.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A field of a line, or else the parameter of that name.
pub fn field<'a>(line: &'a Value, path: &str) -> Option<&'a Value> {
    let within = |value: &'a Value| path.split('.').try_fold(value, |value, part| value.get(part));
    within(line).or_else(|| line.get("parameters").and_then(within))
}

/// Whether every name of `filter` has the wanted value, or one of a list.
pub(super) fn picks(filter: &BTreeMap<String, toml::Value>, line: &Value) -> bool {
    filter.iter().all(|(key, wanted)| field(line, key).is_some_and(|value| is_wanted(value, wanted)))
}

fn is_wanted(value: &Value, wanted: &toml::Value) -> bool {
    match wanted {
        toml::Value::String(text) => value.as_str() == Some(text),
        toml::Value::Array(several) => several.iter().any(|one| is_wanted(value, one)),
        toml::Value::Integer(number) => value.as_f64() == Some(*number as f64),
        toml::Value::Float(number) => value.as_f64() == Some(*number),
        _ => false,
    }
}

/// Names that identify a line, without the fields `ignored`.
pub(super) fn identity(line: &Value, ignored: &[&str]) -> Map<String, Value> {
    let mut named = Map::new();
    let mut keep = |key: &String, value: &Value| {
        if !ignored.contains(&key.as_str()) {
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
