//! Sessions of browsers: a token that was given once, and a random id in a cookie that scripts cannot read.
//!
//! Only hashes of the ids are in memory, and nothing else remembers them: a server that starts again has none.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::COOKIE;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::types::hex;

/// Name of the cookie.
const COOKIE_NAME: &str = "fhrd-session";
/// Time after which a session ends.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// Sessions of a token, at most. The oldest one ends for a new one.
const SESSIONS_MAX: usize = 32;
/// Cookies of our name that are looked at.
const COOKIES_MAX: usize = 4;
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
pub struct Sessions(Mutex<HashMap<[u8; 32], BrowserSession>>);

fn hash(id: &str) -> [u8; 32] {
    *blake3::hash(id.as_bytes()).as_bytes()
}

impl Sessions {
    /// Begins a session for the token of a line. Its id.
    ///
    /// # Errors
    /// [`Error::Internal`] if the system gives no random bytes.
    pub fn begin(&self, line: usize) -> Result<String> {
        let mut id = [0; ID_BYTES];
        getrandom::fill(&mut id).map_err(|error| Error::internal(format!("no random bytes: {error}")))?;
        let (id, now) = (hex(&id), Instant::now());
        let mut sessions = self.0.lock();
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
        let (sessions, now) = (self.0.lock(), Instant::now());
        ids(headers).find_map(|id| sessions.get(&hash(id)).filter(|session| session.ends > now)).map(|own| own.line)
    }

    /// Ends the session that a request has.
    pub fn end(&self, headers: &HeaderMap) {
        let mut sessions = self.0.lock();
        ids(headers).for_each(|id| _ = sessions.remove(&hash(id)));
    }
}

/// The ids that the cookies of a request have.
fn ids(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, id)| id).take(COOKIES_MAX)
}

/// The value of `Set-Cookie` that begins a session with an id, or ends all without one.
pub fn cookie(id: Option<&str>, is_secure: bool) -> String {
    let (id, seconds) = id.map_or(("", 0), |id| (id, SESSION_TIME.as_secs()));
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(id: &str) -> HeaderMap {
        [(COOKIE, format!("a=b; {COOKIE_NAME}={id}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_is_found_until_it_ends() {
        let sessions = Sessions::default();
        let (one, other) = (sessions.begin(1).unwrap(), sessions.begin(2).unwrap());
        assert_eq!((sessions.find(&with(&one)), sessions.find(&with(&other))), (Some(1), Some(2)));
        for forged in ["", &one[1..], &format!("{one}0"), &one.to_uppercase()] {
            assert_eq!(sessions.find(&with(forged)), None, "{forged}");
        }
        sessions.end(&with(&one));
        assert_eq!((sessions.find(&with(&one)), sessions.find(&with(&other))), (None, Some(2)));
        let now = Instant::now();
        sessions.0.lock().values_mut().for_each(|session| session.ends = now);
        assert_eq!(sessions.find(&with(&other)), None);
    }

    #[test]
    fn the_sessions_of_a_token_are_bounded_and_those_of_others_stay() {
        let sessions = Sessions::default();
        let (other, first) = (sessions.begin(2).unwrap(), sessions.begin(1).unwrap());
        let last = (0..SESSIONS_MAX).map(|_| sessions.begin(1).unwrap()).last().unwrap();
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX + 1);
        let found = [&other, &first, &last].map(|id| sessions.find(&with(id)));
        assert_eq!(found, [Some(2), None, Some(1)]);
    }

    #[test]
    fn scripts_and_other_sites_never_get_the_cookie() {
        let text = cookie(Some("x"), true);
        assert_eq!(text, "fhrd-session=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure");
        assert_eq!(cookie(None, false), "fhrd-session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
