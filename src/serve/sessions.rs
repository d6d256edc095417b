//! Sessions of browsers: a token that was given once, and a random id in a cookie that scripts cannot read.
//!
//! Only hashes of the ids are in memory, and nothing else remembers them: a server that starts again has none.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::COOKIE;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::types::hex;

/// Purpose of the hash that names the cookie.
const COOKIE_CONTEXT: &str = "fhrd 2026-11 cookie of a server";
/// Hex digits in the name of the cookie.
const COOKIE_DIGITS: usize = 16;
/// Time after which a session ends.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// Sessions of a token, at most. The oldest one ends for a new one.
const SESSIONS_MAX: usize = 32;
/// Cookies of our name that are looked at: as many as the headers of a request have space for.
const COOKIES_MAX: usize = 1000;
/// Bytes of an id.
const ID_BYTES: usize = 32;

/// A session.
struct BrowserSession {
    /// Line of the token in its file.
    line: usize,
    ends: Instant,
}

/// The sessions of a server.
#[derive(Default)]
pub struct Sessions {
    known: Mutex<HashMap<[u8; 32], BrowserSession>>,
    /// Name of the cookie.
    cookie: OnceLock<String>,
}

fn hash(id: &str) -> [u8; 32] {
    *blake3::hash(id.as_bytes()).as_bytes()
}

impl Sessions {
    /// Gives the cookie a name that only this server has: browsers send a cookie to all servers of a host, whatever
    /// their ports are.
    pub fn name(&self, repository: &str, address: SocketAddr) {
        let digest = blake3::derive_key(COOKIE_CONTEXT, format!("{repository} {address}").as_bytes());
        let name = format!("fhrd-{}", hex(digest.get(..COOKIE_DIGITS / 2).unwrap_or_default()));
        // A server listens at one address.
        let _ = self.cookie.set(name);
    }

    fn cookie_name(&self) -> &str {
        self.cookie.get().map_or("fhrd", String::as_str)
    }

    /// Begins a session for the token of a line. Its id.
    ///
    /// # Errors
    /// [`Error::Internal`] if the system gives no random bytes.
    pub fn begin(&self, line: usize) -> Result<String> {
        let mut id = [0; ID_BYTES];
        getrandom::fill(&mut id).map_err(|error| Error::internal(format!("no random bytes: {error}")))?;
        let (id, now) = (hex(&id), Instant::now());
        let mut sessions = self.known.lock();
        sessions.retain(|_, session| session.ends > now);
        let own = |sessions: &HashMap<[u8; 32], BrowserSession>| {
            let own = sessions.iter().filter(|(_, session)| session.line == line);
            let oldest = own.clone().min_by_key(|(_, session)| session.ends).map(|(hash, _)| *hash);
            oldest.filter(|_| own.count() >= SESSIONS_MAX)
        };
        if let Some(oldest) = own(&sessions) {
            sessions.remove(&oldest);
        }
        sessions.insert(hash(&id), BrowserSession { line, ends: now + SESSION_TIME });
        Ok(id)
    }

    /// The line of the token of the session that a request has.
    pub fn find(&self, headers: &HeaderMap) -> Option<usize> {
        let (sessions, now) = (self.known.lock(), Instant::now());
        self.ids(headers)
            .find_map(|id| sessions.get(&hash(id)).filter(|session| session.ends > now))
            .map(|own| own.line)
    }

    /// Ends the session that a request has.
    pub fn end(&self, headers: &HeaderMap) {
        let mut sessions = self.known.lock();
        self.ids(headers).for_each(|id| _ = sessions.remove(&hash(id)));
    }

    /// The ids that the cookies of a request have. Others on this host can set cookies of our name, so there may be
    /// false ones.
    fn ids<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let own = self.cookie_name();
        let cookies = headers.get_all(COOKIE).iter().filter_map(|header| std::str::from_utf8(header.as_bytes()).ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let ids = pairs.filter(move |(name, id)| *name == own && id.len() == 2 * ID_BYTES).map(|(_, id)| id);
        ids.take(COOKIES_MAX)
    }

    /// The value of `Set-Cookie` that begins a session with an id, or ends all without one.
    pub fn cookie(&self, id: Option<&str>, is_secure: bool) -> String {
        let (id, seconds) = id.map_or(("", 0), |id| (id, SESSION_TIME.as_secs()));
        let (name, secure) = (self.cookie_name(), if is_secure { "; Secure" } else { "" });
        format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(id: &str) -> HeaderMap {
        [(COOKIE, format!("a=b; fhrd={id}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_is_found_until_it_ends() {
        let sessions = Sessions::default();
        let (one, other) = (sessions.begin(1).unwrap(), sessions.begin(2).unwrap());
        assert_eq!((sessions.find(&with(&one)), sessions.find(&with(&other))), (Some(1), Some(2)));
        let false_ones: Vec<String> = (0..500).map(|at| format!("fhrd={at:064x}")).collect();
        let mixed = format!("x\u{e9}=y; {}; fhrd={one}", false_ones.join("; "));
        let headers = [(COOKIE, http::HeaderValue::from_bytes(mixed.as_bytes()).unwrap())].into_iter().collect();
        assert_eq!(sessions.find(&headers), Some(1), "false cookies before the own one");
        for forged in ["", &one[1..], &format!("{one}0"), &one.to_uppercase()] {
            assert_eq!(sessions.find(&with(forged)), None, "{forged}");
        }
        sessions.end(&with(&one));
        assert_eq!((sessions.find(&with(&one)), sessions.find(&with(&other))), (None, Some(2)));
        let now = Instant::now();
        sessions.known.lock().values_mut().for_each(|session| session.ends = now);
        assert_eq!(sessions.find(&with(&other)), None);
    }

    #[test]
    fn the_sessions_of_a_token_are_bounded_and_those_of_others_stay() {
        let sessions = Sessions::default();
        let (other, first) = (sessions.begin(2).unwrap(), sessions.begin(1).unwrap());
        let last = (0..SESSIONS_MAX).map(|_| sessions.begin(1).unwrap()).last().unwrap();
        assert_eq!(sessions.known.lock().len(), SESSIONS_MAX + 1);
        let found = [&other, &first, &last].map(|id| sessions.find(&with(id)));
        assert_eq!(found, [Some(2), None, Some(1)]);
    }

    #[test]
    fn scripts_and_other_sites_never_get_the_cookie() {
        let sessions = Sessions::default();
        let text = sessions.cookie(Some("x"), true);
        assert_eq!(text, "fhrd=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure");
        assert_eq!(sessions.cookie(None, false), "fhrd=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
