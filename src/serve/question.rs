//! A request that has passed the checks, without its body.

use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderMap, HeaderValue, Method};

use super::catalogue::FoundCommit;
use super::fault::Fault;
use super::pages::PageFrame;
use super::route::NamedPath;
use super::state::{Client, ServeState};
use super::target::RequestTarget;

/// A request, and who asks.
pub struct Question<'a> {
    /// What all requests share.
    pub state: &'a Arc<ServeState>,
    /// Who asks.
    pub client: Client,
    /// Its method.
    pub method: &'a Method,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its path and query.
    pub target: &'a RequestTarget,
    /// Scheme, host and port under which the client knows this server.
    pub origin: String,
    /// Whether this server speaks TLS itself.
    pub is_tls: bool,
    /// Its path, as the client sent it.
    pub path: &'a str,
    /// Whether a session of a browser says who asks.
    pub has_session: bool,
}

impl Question<'_> {
    /// URL of the route, absolute.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// Whether the browser speaks TLS, to this server or to a proxy before it.
    pub fn is_secure(&self) -> bool {
        let origins = self.headers.get_all(ORIGIN).iter();
        let mut origins = origins.map(HeaderValue::as_bytes).chain([self.origin.as_bytes()]);
        self.is_tls || origins.any(|origin| origin.starts_with(b"https://"))
    }

    /// Checks that the client may write what has this name.
    ///
    /// # Errors
    /// Errors of [`Client::may_write`].
    pub fn may_write(&self, name: &str) -> Result<(), Fault> {
        self.client.may_write(name)
    }

    /// What the frame of a page shows for the client.
    pub fn frame(&self) -> PageFrame {
        PageFrame { can_log_out: self.has_session, may_read_all: self.client.may_read_all() }
    }

    /// The commit that a route names.
    ///
    /// # Errors
    /// Errors of [`ServeState::find`].
    pub async fn find(&self, at: &NamedPath) -> Result<FoundCommit, Fault> {
        self.state.find(&self.client, at.kind, &at.name, &at.revision).await
    }
}
