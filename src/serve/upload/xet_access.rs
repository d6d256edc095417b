//! Who may send xorbs and shards: a client asks for a token with its own one, for one name and an hour.
//!
//! The token is signed, with a key that only this process has, so nothing is remembered.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use serde_json::json;
use subtle::ConstantTimeEq;

use super::UploadReceiver;
use crate::keep::upload::owner;
use crate::repo::published::PublishedKind;
use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;
use crate::serve::question::Question;
use crate::serve::state::Client;
use crate::serve::tokens::bearer;
use crate::types::hex;

/// Time for which a token counts, seconds.
const TOKEN_SECONDS: i64 = 3600;
/// What the tokens begin with.
const PREFIX: &str = "xet_";

/// What a token lets a client do.
pub struct XetAccess {
    /// The client that asked for it.
    pub client: Client,
    /// What is uploaded, as snapshots of uploads record it.
    pub owner: String,
}

impl XetAccess {
    /// Whether it may use what was uploaded for another name.
    pub fn may_use(&self, owner: &str) -> bool {
        owner.split_once(' ').is_some_and(|(_, name)| self.client.may_write(name).is_ok())
    }
}

impl UploadReceiver {
    /// A token for what has an owner, which counts until a time, seconds since 1970.
    fn xet_token(&self, owner: &str, line: usize, expires: i64) -> String {
        let what = BASE64_URL_SAFE_NO_PAD.encode(format!("{expires} {line} {owner}"));
        format!("{PREFIX}{what}.{}", self.xet_signature(&what))
    }

    fn xet_signature(&self, what: &str) -> String {
        // URLs of objects are signed with the same key, and never begin like this.
        hex(blake3::keyed_hash(&self.key, format!("{PREFIX}{what}").as_bytes()).as_bytes())
    }

    /// The owner and the line of the client's token, if `token` counts.
    fn parsed_xet_token(&self, token: &str) -> Option<(String, usize)> {
        let (what, signature) = token.strip_prefix(PREFIX)?.split_once('.')?;
        if !bool::from(self.xet_signature(what).as_bytes().ct_eq(signature.as_bytes())) {
            return None;
        }
        let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(what).ok()?).ok()?;
        let mut fields = text.splitn(3, ' ');
        let (expires, line) = (fields.next()?.parse::<i64>().ok()?, fields.next()?.parse().ok()?);
        let owner = fields.next()?.to_string();
        (self.now_seconds() <= expires).then_some((owner, line))
    }

    /// What the token of a request lets it do.
    ///
    /// # Errors
    /// [`Fault::NoToken`] and [`Fault::WrongToken`], also for one that has expired: the client asks for another one.
    pub(super) fn xet_access(&self, question: &Question<'_>) -> Result<XetAccess, Fault> {
        let presented = question.headers.get(AUTHORIZATION).ok_or(Fault::NoToken)?;
        let presented = presented.to_str().ok().and_then(bearer).ok_or(Fault::WrongToken)?;
        let (owner, line) = self.parsed_xet_token(presented).ok_or(Fault::WrongToken)?;
        let client = question.state.client_of_line(line);
        let access = XetAccess { client, owner };
        if access.may_use(&access.owner) { Ok(access) } else { Err(Fault::WrongToken) }
    }
}

/// Gives a client a token for a name, and the URL where it counts.
///
/// # Errors
/// [`Fault::NoName`] and [`Fault::Forbidden`] if the client may not write there.
pub fn xet_token(
    question: &Question<'_>,
    uploads: &Arc<UploadReceiver>,
    (kind, name): (PublishedKind, &str),
) -> Result<HttpAnswer, Fault> {
    question.may_write(name)?;
    let expires = uploads.now_seconds().saturating_add(TOKEN_SECONDS);
    let token = uploads.xet_token(&owner(kind, name), question.client.line(), expires);
    // Clients remember by this URL which xorbs they have sent. What counts for one repository and token does not for
    // another one.
    let space = [uploads.store.repository.id.as_bytes(), question.client.identity()].concat();
    let space = blake3::hash(&space).to_hex();
    let url = format!("{}/api/xet/{}", question.origin, space.get(..16).unwrap_or_default());
    let mut answer = answer::document(&json!({ "accessToken": token, "exp": expires, "casUrl": url }));
    let end = expires.to_string();
    for (name, value) in [("x-xet-cas-url", &url), ("x-xet-access-token", &token), ("x-xet-token-expiration", &end)] {
        answer::set(&mut answer, http::HeaderName::from_static(name), value);
    }
    Ok(answer)
}
