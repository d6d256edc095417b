//! The target of a request: the names of its path, each decoded by itself, and its query.
//!
//! A name that was encoded may hold a slash. Only a revision may: no entry and no route has such a name.

/// Names of a path, at most.
const NAMES_MAX: usize = 128;
/// Parts of a query, at most. Clients ask for files by their paths in one.
const PAIRS_MAX: usize = 2048;

/// A decoded target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTarget {
    /// Names of the path. None is empty, `.` or `..`, or has a NUL.
    pub names: Vec<Vec<u8>>,
    /// Keys and values of the query.
    pub query: Vec<(String, String)>,
}

impl RequestTarget {
    /// Decodes a path and a query. `None` if it is not valid.
    pub fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let (is_root, path) = (path.is_empty(), path.strip_suffix('/').unwrap_or(path));
        let mut names = Vec::new();
        for name in path.split('/').filter(|_| !is_root) {
            let name = decoded(name, false)?;
            if matches!(name.as_slice(), b"" | b"." | b"..") || name.contains(&0) || names.len() >= NAMES_MAX {
                return None;
            }
            names.push(name);
        }
        Some(RequestTarget { names, query: query.map_or(Some(Vec::new()), pairs)? })
    }

    /// The first value of a key of the query.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    /// Whether the query says yes to `key`.
    pub fn is_set(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }
}

/// Keys and values of a query, or of a form that is sent like one. `None` if it is not valid.
pub fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let text = |part| String::from_utf8(decoded(part, true)?).ok();
        if found.len() >= PAIRS_MAX {
            return None;
        }
        found.push((text(key)?, text(value)?));
    }
    Some(found)
}

/// Decodes `%2F` and the like; a `+` is a space in queries.
fn decoded(text: &str, plus_is_space: bool) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    Some(bytes)
}

/// Encodes what is not plain in a URL. A slash stays.
pub fn encoded(text: &[u8]) -> String {
    text.iter().fold(String::with_capacity(text.len()), |mut url, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => url.push(char::from(*byte)),
            byte => url.push_str(&format!("%{byte:02X}")),
        }
        url
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Option<Vec<String>> {
        let target = RequestTarget::parse(path, None)?;
        Some(target.names.iter().map(|name| name.escape_ascii().to_string()).collect())
    }

    #[test]
    fn each_name_is_decoded_by_itself() {
        let some = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(names("/"), some(&[]));
        assert_eq!(names("/a/b%20c/"), some(&["a", "b c"]));
        assert_eq!(names("/a/refs%2Fpr%2f1/x"), some(&["a", "refs/pr/1", "x"]));
        assert_eq!(names("/a+b/%ff"), some(&["a+b", "\\xff"]));
        for bad in [
            "",
            "a",
            "//",
            "/a//b",
            "/./a",
            "/a/..",
            "/a/%2e%2e/b",
            "/%2E",
            "/a%00b",
            "/%",
            "/%4",
            "/%zz",
            "/%+1",
            "/a/%2/b",
            &"/a".repeat(129),
        ] {
            assert_eq!(names(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_query_has_text_only() {
        let target = RequestTarget::parse("/a", Some("recursive=true&x=a%26b+c&y&&expand=False")).unwrap();
        assert_eq!((target.value("x"), target.value("y"), target.value("z")), (Some("a&b c"), Some(""), None));
        assert!(target.is_set("recursive") && !target.is_set("expand"));
        assert_eq!(RequestTarget::parse("/a", Some("x=%ff")), None);
        assert_eq!(RequestTarget::parse("/a", Some("x=%ED%A0%80")), None, "half of a surrogate pair");
        assert_eq!(RequestTarget::parse("/a", Some(&"x&".repeat(3000))), None);
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all), true).unwrap(), all);
    }
}
