//! Tokens of clients: what a file of them says, and whether a request has one.
//!
//! Only hashes are in memory, and a token that is presented is compared with all of them in constant time.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use subtle::ConstantTimeEq;

/// Characters of a token, at least and at most.
const TOKEN_CHARS: std::ops::RangeInclusive<usize> = 16..=512;
/// Tokens, at most.
const TOKENS_MAX: usize = 10_000;

/// The tokens of a file.
#[derive(Debug, Default)]
pub struct Tokens(Vec<Arc<TokenRule>>);

/// What a token may do.
#[derive(Debug)]
pub struct TokenRule {
    hash: [u8; 32],
    /// Whether it may write what it may read by a name.
    pub can_write: bool,
    /// Line in the file, which names the token in logs.
    pub line: usize,
    /// `ORG` of `ORG/*`, or a whole name. `None`: all names.
    scope: Option<String>,
}

impl Tokens {
    /// Reads lines of a token, `read` or `write`, and perhaps `ORG/*` or `ORG/NAME`. Empty lines and those that begin
    /// with `#` are comments.
    ///
    /// # Errors
    /// A message with the number of the line, without the token.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| !name.is_empty() && !name.contains('*');
        let mut tokens: Vec<Arc<TokenRule>> = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let mut fields = content.split_whitespace();
            let Some(token) = fields.next().filter(|token| !token.starts_with('#')) else { continue };
            let wrong = |reason: &str| Err(format!("line {line}: {reason}"));
            if !TOKEN_CHARS.contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return wrong("a token has 16 to 512 characters of ASCII");
            }
            let can_write = match fields.next() {
                Some("read") => false,
                Some("write") => true,
                _ => return wrong("expected TOKEN read or TOKEN write, and perhaps ORG/*"),
            };
            let scope = match fields.next() {
                None => None,
                Some(scope) => match scope.split_once('/') {
                    Some((organisation, "*")) if is_name(organisation) => Some(organisation.to_string()),
                    Some((organisation, name)) if is_name(organisation) && is_name(name) => Some(scope.to_string()),
                    _ => return wrong("expected ORG/* or ORG/NAME behind the right"),
                },
            };
            if fields.next().is_some() {
                return wrong("there is more than a token, its right and ORG/*");
            }
            let hash = *blake3::hash(token.as_bytes()).as_bytes();
            if tokens.iter().any(|other| other.hash == hash) {
                return wrong("the token is there twice");
            }
            if tokens.len() >= TOKENS_MAX {
                return wrong("there are more than 10,000 tokens");
            }
            tokens.push(Arc::new(TokenRule { hash, can_write, line, scope }));
        }
        if tokens.is_empty() { Err("it has no token".into()) } else { Ok(Tokens(tokens)) }
    }

    /// What the token of a line may do.
    pub fn of_line(&self, line: usize) -> Option<Arc<TokenRule>> {
        self.0.iter().find(|token| token.line == line).cloned()
    }

    /// What a token may do. `None` if nobody has it.
    pub fn find(&self, presented: &str) -> Option<Arc<TokenRule>> {
        let hash = blake3::hash(presented.as_bytes());
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.as_slice().ct_eq(hash.as_bytes())) {
                found = Some(token);
            }
        }
        found.cloned()
    }
}

impl TokenRule {
    /// Its hash.
    pub fn hash(&self) -> &[u8] {
        &self.hash
    }

    /// Whether it may read all names, and what is said of the whole repository.
    pub fn may_read_all(&self) -> bool {
        self.scope.is_none()
    }

    /// Whether it may read what has this name.
    pub fn may_read(&self, name: &str) -> bool {
        let organisation = name.split_once('/').map_or(name, |(organisation, _)| organisation);
        self.scope.as_ref().is_none_or(|scope| scope == organisation || scope == name)
    }
}

/// The token of an `Authorization` header. `None` if it is of another scheme.
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The password of an `Authorization` header with a user and a password. `None` if it is of another scheme.
pub fn password(header: &str) -> Option<String> {
    let (scheme, both) = header.split_once(' ')?;
    let both = scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(both.trim()))?.ok()?;
    let (_, password) = std::str::from_utf8(&both).ok()?.split_once(':')?;
    Some(password.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "hf_0123456789abcdef";
    const OTHER: &str = "hf_fedcba9876543210";

    #[test]
    fn a_token_reads_what_its_line_says() {
        let text = format!("# team\n\n{ONE} read\n{OTHER}  write  me/*\nhf_a_third_token_here read me/m\n");
        let tokens = Tokens::parse(&text).unwrap();
        let may = |token: &str, name: &str| tokens.find(token).map(|rule| rule.may_read(name));
        assert_eq!((may(ONE, "a/b"), may(ONE, "me/m")), (Some(true), Some(true)));
        assert_eq!(
            (may(OTHER, "me/x"), may(OTHER, "men/x"), may(OTHER, "a/me")),
            (Some(true), Some(false), Some(false))
        );
        assert_eq!(
            (may("hf_a_third_token_here", "me/m"), may("hf_a_third_token_here", "me/mm")),
            (Some(true), Some(false))
        );
        for forged in ["", "hf_", &ONE[1..], &format!("{ONE} "), &format!("{ONE}0"), &"x".repeat(100_000)] {
            assert_eq!(may(forged, "a/b"), None);
        }
        assert_eq!(tokens.find(OTHER).unwrap().line, 4);
        assert_eq!([ONE, OTHER].map(|token| tokens.find(token).unwrap().can_write), [false, true]);
    }

    #[test]
    fn a_wrong_line_is_named_without_its_token() {
        for (text, start) in [
            (String::new(), "it has no token"),
            ("# only this".into(), "it has no token"),
            ("short read".into(), "line 1: a token has"),
            ("tok\u{e9}n_0123456789abcdef read".into(), "line 1: a token has"),
            (ONE.into(), "line 1: expected TOKEN"),
            (format!("\n{ONE} admin"), "line 2: expected TOKEN"),
            (format!("{ONE} read me"), "line 1: expected ORG/*"),
            (format!("{ONE} read */*"), "line 1: expected ORG/*"),
            (format!("{ONE} read /*"), "line 1: expected ORG/*"),
            (format!("{ONE} read me/m*"), "line 1: expected ORG/*"),
            (format!("{ONE} read me/* more"), "line 1: there is more"),
            (format!("{ONE} read\n{ONE} write"), "line 2: the token is there twice"),
        ] {
            let error = Tokens::parse(&text).unwrap_err();
            assert!(error.starts_with(start) && !error.contains(ONE), "{text}: {error}");
        }
    }

    #[test]
    fn a_header_has_a_token_or_a_password() {
        assert_eq!((bearer("Bearer abc"), bearer("bearer  abc ")), (Some("abc"), Some("abc")));
        assert_eq!((bearer("Basic abc"), bearer("abc"), bearer("")), (None, None, None));
        assert_eq!(password("Basic dTphOmI=").as_deref(), Some("a:b"));
        for other in ["Bearer dTphOmI=", "Basic", "Basic ", "Basic u:a", "Basic dXNlcg==", "Basic /zo="] {
            assert_eq!(password(other), None, "{other}");
        }
    }
}
