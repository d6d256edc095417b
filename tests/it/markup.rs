//! Pages as a strict reader takes them.

/// Elements that have no end.
const VOID: [&str; 5] = ["meta", "br", "link", "img", "input"];

/// Checks that every element ends where its parent expects it, and returns the names of all elements.
pub fn elements(page: &str) -> Vec<String> {
    let (mut open, mut all, mut rest): (Vec<String>, Vec<String>, &str) = (Vec::new(), Vec::new(), page);
    rest = rest.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>') || open.last().is_some_and(|name| name == "style"), "a bare > in {text:?}");
        let end = at + rest[at..].find('>').unwrap();
        let inside = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "after {open:?}");
            continue;
        }
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{inside:?}");
        assert_eq!(attributes.matches('"').count() % 2, 0, "{inside:?}");
        assert!(inside.matches(" class=\"").count() <= 1, "a browser ignores the second one: {inside:?}");
        all.push(name.to_string());
        if !VOID.contains(&name) {
            open.push(name.to_string());
        }
    }
    assert!(open.is_empty(), "{open:?} have no end");
    all
}
