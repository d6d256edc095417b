//! Documents beside what docs/JSON.md says of them.

use serde_json::Value;

pub const JSON_PAGE: &str = include_str!("../../../docs/JSON.md");

/// Rows of the first table after `start`, without its head: the cells of each.
pub fn table<'a>(page: &'a str, start: &str) -> Vec<Vec<&'a str>> {
    let rest = page.split_once(start).unwrap_or_else(|| panic!("no section `{start}`")).1;
    let lines = rest.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &'a str| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
    lines.skip(2).map(cells).collect()
}

/// Checks a value against a type of docs/JSON.md, and its keys against the tables there.
pub fn check(value: &Value, expected: &str, path: &str) -> Result<(), String> {
    let mut reasons = Vec::new();
    for alternative in expected.split(" or ") {
        match check_one(value, alternative.trim(), path) {
            Ok(()) => return Ok(()),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}

fn check_one(value: &Value, expected: &str, path: &str) -> Result<(), String> {
    let wrong = || Err(format!("{path}: expected {expected}, found {value}"));
    if let Some(item) = expected.strip_prefix("array of ") {
        let Value::Array(items) = value else { return wrong() };
        return items.iter().enumerate().try_for_each(|(at, value)| check(value, item, &format!("{path}[{at}]")));
    }
    if let Some(item) = expected.strip_prefix("map of ") {
        let Value::Object(items) = value else { return wrong() };
        return items.iter().try_for_each(|(key, value)| check(value, item, &format!("{path}.{key}")));
    }
    let is_right = match expected {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        sections => return check_object(value, sections, path),
    };
    if is_right { Ok(()) } else { wrong() }
}

fn check_object(value: &Value, link: &str, path: &str) -> Result<(), String> {
    let name = |link: &str| link.trim_matches('[').split(']').next().unwrap_or_default().to_string();
    let section = link.split(" with ").map(name).collect::<Vec<_>>().join(" and ");
    let Value::Object(object) = value else { return Err(format!("{path}: expected {section}, found {value}")) };
    let rows: Vec<Vec<&str>> =
        section.split(" and ").flat_map(|name| table(JSON_PAGE, &format!("\n## {name}\n"))).collect();
    for row in &rows {
        let [key, of, _] = row[..] else { panic!("{section}: {row:?}") };
        let (of, optional) = of.strip_suffix(" (optional)").map_or((of, false), |of| (of, true));
        match object.get(key) {
            Some(value) => check(value, of, &format!("{path}.{key}"))?,
            None if optional => {}
            None => return Err(format!("{path}: the key `{key}` of {section} is missing")),
        }
    }
    match object.keys().find(|key| rows.iter().all(|row| row[0] != key.as_str())) {
        Some(key) => Err(format!("{path}: docs/JSON.md has no `{key}` in {section}")),
        None => Ok(()),
    }
}

#[test]
fn the_check_of_documents_finds_what_is_missing_wrong_or_unknown() {
    let fine = serde_json::json!({"error": "x", "exit_code": 1});
    assert_eq!(check(&fine, "[error](#error)", "e"), Ok(()));
    assert_eq!(check(&serde_json::json!([fine, fine]), "array of [error](#error)", "e"), Ok(()));
    assert_eq!(check(&Value::Null, "[error](#error) or null", "e"), Ok(()));
    for wrong in [
        serde_json::json!({"error": "x"}),
        serde_json::json!({"error": "x", "exit_code": "1"}),
        serde_json::json!({"error": "x", "exit_code": 1, "more": 1}),
        serde_json::json!([]),
    ] {
        assert!(check(&wrong, "[error](#error)", "e").is_err(), "{wrong}");
    }
}
