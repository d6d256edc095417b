//! Names and revisions that the clients of the Hub accept.

use super::publication::COMMIT_DIGITS;

/// The revision that a client asks for if its user names none.
pub const DEFAULT_REVISION: &str = "main";
/// Longest name, bytes. Clients refuse longer ones.
const NAME_BYTES_MAX: usize = 96;
/// Longest revision, bytes.
const REVISION_BYTES_MAX: usize = 255;
/// First parts of names that are first parts of other routes, too.
const RESERVED: [&str; 8] = ["api", "datasets", "spaces", "kernels", "buckets", "models", "v2", "healthz"];

/// Says why a text is no `ORG/NAME`, if it is none.
pub fn name_defect(name: &str) -> Option<String> {
    let wrong = |reason: &str| Some(format!("`{}` is no name to publish: {reason}", name.escape_debug()));
    let Some((organisation, own)) = name.split_once('/') else { return wrong("expected ORG/NAME") };
    if name.len() > NAME_BYTES_MAX {
        return wrong("it has more than 96 bytes");
    }
    for part in [organisation, own] {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if part.is_empty() || !part.chars().all(is_plain) {
            return wrong("both parts have letters of ASCII, digits, `-`, `_` and `.` only");
        }
        if part.starts_with(['-', '.']) || part.ends_with(['-', '.']) || part.contains("--") || part.contains("..") {
            return wrong("no part begins or ends with `-` or `.`, or has two of them in a row");
        }
    }
    if own.ends_with(".git") {
        return wrong("it ends with `.git`");
    }
    if RESERVED.iter().any(|reserved| organisation.eq_ignore_ascii_case(reserved)) {
        return wrong("its first part has another meaning in URLs");
    }
    None
}

/// Says why a text is no name of a revision, if it is none.
pub fn revision_defect(revision: &str) -> Option<String> {
    let wrong = |reason: &str| Some(format!("`{}` is no revision: {reason}", revision.escape_debug()));
    if !(1..=REVISION_BYTES_MAX).contains(&revision.len()) {
        return wrong("it has 1 to 255 bytes");
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+');
    if !revision.chars().all(is_plain) {
        return wrong("it has letters of ASCII, digits, and `-`, `_`, `.`, `/` and `+` only");
    }
    if revision.split('/').any(|part| part.is_empty() || part.starts_with('.')) || revision.contains("..") {
        return wrong("a part is empty or begins with `.`, or it has two in a row");
    }
    if revision.len() == COMMIT_DIGITS && revision.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return wrong("40 hex digits name a commit");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_clients_accept() {
        for good in ["a/b", "Org-1/My_model.v2", "o/step-400"] {
            assert_eq!(name_defect(good), None, "{good}");
        }
        let long = format!("a/{}", "b".repeat(95));
        for bad in [
            "",
            "a",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a b/c",
            "a/b\0",
            "a/ü",
            "../b",
            "a/..",
            "a/.b",
            "-a/b",
            "a/b-",
            "a/b--c",
            "a/b..c",
            "a/b.git",
            "api/b",
            "Datasets/b",
            "v2/b",
            "a/b%2Fc",
            &long,
        ] {
            assert!(name_defect(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn revisions_are_no_commits_and_no_paths_that_climb() {
        for good in ["main", "v1.0", "step-400", "refs/pr/1", &"a".repeat(39)] {
            assert_eq!(revision_defect(good), None, "{good}");
        }
        for bad in
            ["", "a b", "a//b", "/a", "a/", "..", "a/../b", ".a", "a@b", "a\n", &"a".repeat(40), &"x".repeat(256)]
        {
            assert!(revision_defect(bad).is_some(), "{bad}");
        }
    }
}
