//! Model cards: what the files beside a model say of its bases and its family. These files are the card (`README.md`),
//! `config.json`, `adapter_config.json` and `tokenizer.json`. Their claims only propose bases; nothing relies on them.

use serde::Deserialize;
use serde_json::Value;

/// Bytes of a card that are parsed.
const CARD_BYTES_MAX: usize = 64 << 10;
/// Bytes of a configuration that are parsed.
const CONFIG_BYTES_MAX: usize = 1 << 20;
/// Longest name of a model.
const NAME_BYTES_MAX: usize = 1024;
/// Most names of a card.
const NAMES_MAX: usize = 64;

/// The lines around front matter.
const FRONT_MATTER: &str = "---";

/// What a hub puts before the name of a base among the tags of a model, and before that name the relation.
const BASE_TAG: &str = "base_model:";
const RELATIONS: [&str; 4] = ["finetune:", "adapter:", "merge:", "quantized:"];

/// The values of `base_model` in a card's front matter, then the bases that its tags name.
pub fn base_models(readme: &[u8]) -> Vec<String> {
    let text = text(readme);
    let mut bases = values_of(&text, "base_model");
    for tag in values_of(&text, "tags") {
        let Some(named) = tag.strip_prefix(BASE_TAG) else { continue };
        let name = RELATIONS.iter().find_map(|relation| named.strip_prefix(relation)).unwrap_or(named).trim();
        if !name.is_empty() && !bases.iter().any(|base| base == name) {
            bases.push(name.into());
        }
    }
    bases
}

/// Whether a card begins with front matter, which only those of models and data sets have.
pub fn has_front_matter(readme: &[u8]) -> bool {
    text(readme).lines().next().is_some_and(|line| line.trim_end() == FRONT_MATTER)
}

/// The data sets that a card names.
pub fn datasets(readme: &[u8]) -> Vec<String> {
    values_of(&text(readme), "datasets")
}

/// The tags of a card that name no base.
pub fn tags(readme: &[u8]) -> Vec<String> {
    let tags = values_of(&text(readme), "tags");
    tags.into_iter().filter(|tag| !tag.starts_with(BASE_TAG)).collect()
}

/// The architecture in a `config.json`: its classes, its type, and the numbers that fix the shapes of its tensors.
/// `None` without any of them.
pub fn config_architecture(json: &[u8]) -> Option<String> {
    const KEYS: [&str; 9] = [
        "architectures",
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
        "rope_theta",
    ];
    let config: serde_json::Map<String, Value> =
        serde_json::from_slice(json.get(..CONFIG_BYTES_MAX).unwrap_or(json)).ok()?;
    let given = KEYS.iter().filter_map(|key| Some(format!("{key}={}", config.get(*key)?)));
    let architecture = given.collect::<Vec<String>>().join(" ");
    (!architecture.is_empty() && architecture.len() <= NAME_BYTES_MAX).then_some(architecture)
}

/// The base model that a `config.json` or `adapter_config.json` names.
pub fn config_base_model(json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct BaseModelFields {
        base_model_name_or_path: Option<Value>,
        _name_or_path: Option<Value>,
    }
    let config: BaseModelFields = serde_json::from_slice(json.get(..CONFIG_BYTES_MAX).unwrap_or(json)).ok()?;
    let named = |value: Option<Value>| value.as_ref().and_then(Value::as_str).and_then(unquoted);
    named(config.base_model_name_or_path).or_else(|| named(config._name_or_path))
}

/// The hub name of a model by its directory in the hub's cache: `models--org--name` is `org/name`.
pub fn hub_name(directory: &str) -> Option<String> {
    directory.strip_prefix("models--").map(|name| name.replace("--", "/"))
}

/// The parsed part of a card.
fn text(readme: &[u8]) -> String {
    let start = readme.strip_prefix(b"\xef\xbb\xbf").unwrap_or(readme);
    String::from_utf8_lossy(start.get(..CARD_BYTES_MAX).unwrap_or(start)).into_owned()
}

/// The values of a top-level key in the YAML front matter, which two lines of three dashes enclose. The values are one
/// scalar, a list in brackets, or a list with one dash per line.
fn values_of(text: &str, key: &str) -> Vec<String> {
    let mut lines = text.lines().map(str::trim_end);
    if lines.next() != Some(FRONT_MATTER) {
        return Vec::new();
    }
    let mut matter = lines.take_while(|line| !matches!(*line, FRONT_MATTER | "..."));
    let on_key =
        |line: &str| line.strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix(':')).map(str::to_owned);
    let Some(first) = matter.find_map(on_key) else { return Vec::new() };
    let first = uncommented(first.trim()).to_string();
    if let Some(list) = first.strip_prefix('[') {
        let mut list = list.to_string();
        let mut has_end = list.contains(']');
        while !has_end {
            let Some(line) = matter.next() else { break };
            let line = uncommented(line);
            has_end = line.contains(']');
            list.push_str(line);
        }
        let items = list.split(']').next().unwrap_or_default();
        return items.split(',').filter_map(unquoted).take(NAMES_MAX).collect();
    }
    if !first.is_empty() && !first.starts_with(['|', '>']) {
        return unquoted(&first).into_iter().collect();
    }
    let is_continued = |line: &&str| line.is_empty() || line.starts_with([' ', '-', '#']);
    let items = matter.take_while(is_continued).filter_map(|line| {
        let line = uncommented(line.trim());
        unquoted(line.strip_prefix('-').unwrap_or(line))
    });
    items.take(NAMES_MAX).collect()
}

/// A line without its comment.
fn uncommented(line: &str) -> &str {
    if line.starts_with('#') {
        return "";
    }
    line.split(" #").next().unwrap_or_default().trim_end()
}

/// A scalar without surrounding spaces and quotes. `None` if it is empty, null or too long.
fn unquoted(scalar: &str) -> Option<String> {
    let scalar = scalar.trim();
    let bare = ['"', '\''].iter().find_map(|quote| scalar.strip_prefix(*quote)?.strip_suffix(*quote));
    let bare = bare.unwrap_or(scalar).trim();
    let is_unusable = bare.is_empty() || matches!(bare, "null" | "~" | "None") || bare.len() > NAME_BYTES_MAX;
    (!is_unusable).then(|| bare.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_models_are_found_in_every_notation() {
        let bases =
            |matter: &str| base_models(format!("---\nlicense: mit\n{matter}\ntags:\n- x\n---\n# A\n").as_bytes());
        assert_eq!(bases("base_model: a/b"), ["a/b"]);
        assert_eq!(bases("base_model: \"a/b\"  # said so"), ["a/b"]);
        assert_eq!(bases("base_model: [a/b, 'c/d']"), ["a/b", "c/d"]);
        assert_eq!(bases("base_model: [a/b,\n  c/d\n]"), ["a/b", "c/d"]);
        assert_eq!(bases("base_model: [a/b, # see [1]\n  c/d]"), ["a/b", "c/d"]);
        assert_eq!(bases("base_model:\n- a/b\n- c/d"), ["a/b", "c/d"]);
        assert_eq!(bases("base_model:\n  - 'a/b'\n\n  # why\n  - c/d"), ["a/b", "c/d"]);
        assert_eq!(bases("base_model:\n  a/b"), ["a/b"]);
        assert_eq!(bases("base_model:"), [""; 0]);
        assert_eq!(bases("base_model: null"), [""; 0]);
        assert_eq!(bases("base_model_relation: adapter"), [""; 0]);
        assert_eq!(bases("model-index:\n  base_model: nested"), [""; 0]);
    }

    #[test]
    fn cards_without_front_matter_and_other_bytes_name_no_base() {
        assert!(
            base_models(b"# A\nbase_model: a/b\n").is_empty()
                && base_models(b"").is_empty()
                && base_models(&[0xff; 100]).is_empty()
        );
        assert_eq!(base_models(b"\xef\xbb\xbf---\r\nbase_model: a/b\r\n---\r\n"), ["a/b"]);
        assert_eq!(base_models(b"---\nbase_model: [a/b"), ["a/b"]);
        let long = ["---\n".to_string(), "x: y\n".repeat(20_000), "base_model: a/b\n---\n".to_string()].concat();
        assert!(base_models(long.as_bytes()).is_empty());
    }

    #[test]
    fn configurations_name_a_base() {
        assert_eq!(config_base_model(br#"{"_name_or_path": "a/b", "x": [1]}"#).as_deref(), Some("a/b"));
        let both = br#"{"_name_or_path": "a/b", "base_model_name_or_path": "c/d"}"#;
        assert_eq!(config_base_model(both).as_deref(), Some("c/d"));
        for nothing in [&b"{}"[..], b"", b"[", br#"{"_name_or_path": ""}"#, br#"{"_name_or_path": 7}"#] {
            assert_eq!(config_base_model(nothing), None);
        }
    }

    #[test]
    fn tags_name_bases_and_other_fields_the_family() {
        let card = b"---\ntags:\n- chat\n- base_model:a/b\n- base_model:finetune:a/b\n- base_model:adapter:c/d\n\
            datasets: [x/y, z]\n---\n";
        assert_eq!(base_models(card), ["a/b", "c/d"]);
        assert_eq!((tags(card), datasets(card)), (vec!["chat".to_string()], vec!["x/y".to_string(), "z".to_string()]));
        assert_eq!(base_models(b"---\nbase_model: a/b\ntags: [\"base_model:a/b\", \"base_model:\"]\n---\n"), ["a/b"]);
        let architecture = |json: &str| config_architecture(json.as_bytes());
        let tuned = architecture(r#"{"vocab_size": 9, "architectures": ["B"], "_name_or_path": "x"}"#);
        assert_eq!(tuned.as_deref(), Some(r#"architectures=["B"] vocab_size=9"#));
        assert_eq!(architecture(r#"{"architectures": ["B"], "vocab_size": 9}"#), tuned);
        assert_ne!(architecture(r#"{"architectures": ["B"], "vocab_size": 8}"#), tuned);
        for nothing in ["", "[]", "{}", r#"{"torch_dtype": "x"}"#] {
            assert_eq!(architecture(nothing), None);
        }
    }
}
