//! Keys in URLs.

/// A key, or a value of a query, as it stands in a URL. The signature of S3 covers exactly this spelling.
pub(super) fn percent_encoded(text: &str, keeps_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            b'/' if keeps_slash => encoded.push('/'),
            _ => {
                let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0').to_ascii_uppercase();
                encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    encoded
}

/// Whether a URL can have the key. Clients of HTTP take `.` and `..` for directories, however they are encoded, and
/// would ask for another object.
pub(super) fn is_addressable(key: &str) -> bool {
    !key.is_empty() && key.split('/').all(|name| name != "." && name != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_encoded_as_signatures_want_it() {
        assert_eq!(percent_encoded("a//b c+%/é\u{1}~", true), "a//b%20c%2B%25/%C3%A9%01~");
        assert_eq!(percent_encoded("a/b", false), "a%2Fb");
    }

    #[test]
    fn keys_that_urls_change_are_not_addressable() {
        for key in ["a//b", "/lead", "dir/", "a/...", "..a", "100%"] {
            assert!(is_addressable(key), "{key}");
        }
        for key in ["", ".", "x/../y", "x/./y", "x/.."] {
            assert!(!is_addressable(key), "{key}");
        }
    }
}
