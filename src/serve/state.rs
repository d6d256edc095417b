//! What all requests share.

use std::sync::Arc;
use std::time::Duration;

use super::catalogue::{Catalogue, FoundCommit};
use super::fault::Fault;
use super::hashes::Hashes;
use super::hosts::HostRules;
use super::metrics::ServeMetrics;
use super::models::KnownModels;
use super::oci::KnownManifests;
use super::overview::Overview;
use super::parts::blocking;
use super::sessions::Sessions;
use super::tokens::{TokenRule, Tokens};
use super::turns::Turns;
use super::upload::UploadReceiver;
use crate::repo::published::PublishedKind;

/// Bounds of a server. All are of one connection, unless they say otherwise.
#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Connections at the same time. More wait until one ends.
    pub connections: usize,
    /// Time for the headers of a request, and between two requests.
    pub header: Duration,
    /// Time for the body of a request.
    pub body: Duration,
    /// Time in which a client must take some bytes of an answer.
    pub write: Duration,
    /// Time that answers have once the server shall stop.
    pub stop: Duration,
    /// Time after which the names are looked up again.
    pub refresh: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        ServeLimits {
            connections: 128,
            header: Duration::from_secs(20),
            body: Duration::from_secs(30),
            write: Duration::from_secs(60),
            stop: Duration::from_secs(10),
            refresh: Duration::from_secs(5),
        }
    }
}

/// What all requests share.
pub struct ServeState {
    /// What is published.
    pub catalogue: Arc<Catalogue>,
    /// Hashes of files.
    pub hashes: Arc<Hashes>,
    /// Tokens. `None`: everybody may read.
    pub tokens: Option<Tokens>,
    /// Names of this server.
    pub hosts: HostRules,
    /// Bounds.
    pub limits: ServeLimits,
    /// What is counted.
    pub metrics: ServeMetrics,
    /// Sessions of browsers.
    pub sessions: Sessions,
    /// What pages say of the whole repository.
    pub overview: Arc<Overview>,
    /// What is known of the models of names.
    pub models: Arc<KnownModels>,
    /// What is known of manifests.
    pub manifests: KnownManifests,
    /// What takes uploads, if the server does.
    pub uploads: Option<Arc<UploadReceiver>>,
    /// Turns of who lists tensors, which takes memory.
    pub tensors: Turns,
    /// Turns of who lists a directory.
    pub directories: Turns,
}

/// Who asks.
#[derive(Clone)]
pub enum Client {
    /// Nobody needs a token.
    Anybody,
    /// The owner of a token.
    Holder(Arc<TokenRule>),
}

impl Client {
    /// Whether they may read everything, also what is not published under a name.
    pub fn may_read_all(&self) -> bool {
        match self {
            Client::Anybody => true,
            Client::Holder(token) => token.may_read_all(),
        }
    }

    /// The line of their token. 0 for anybody.
    pub fn line(&self) -> usize {
        match self {
            Client::Anybody => 0,
            Client::Holder(token) => token.line,
        }
    }

    /// What tells their token from others, without giving it away. Nothing for anybody.
    pub fn identity(&self) -> &[u8] {
        match self {
            Client::Anybody => &[],
            Client::Holder(token) => token.hash(),
        }
    }

    /// Checks that they may write what has this name. A name that they may not read looks absent.
    ///
    /// # Errors
    /// [`Fault::NoName`], [`Fault::Forbidden`].
    pub fn may_write(&self, name: &str) -> Result<(), Fault> {
        match self {
            Client::Anybody => Ok(()),
            Client::Holder(token) if !token.may_read(name) => Err(Fault::NoName),
            Client::Holder(token) if token.can_write => Ok(()),
            Client::Holder(_) => Err(Fault::Forbidden("a token that may write is needed")),
        }
    }

    /// Whether they may read what has this name.
    pub fn may_read(&self, name: &str) -> bool {
        match self {
            Client::Anybody => true,
            Client::Holder(token) => token.may_read(name),
        }
    }
}

impl ServeState {
    /// The owner of the token of a line. Anybody, if there is none.
    pub(super) fn client_of_line(&self, line: usize) -> Client {
        let token = self.tokens.as_ref().and_then(|tokens| tokens.of_line(line));
        token.map_or(Client::Anybody, Client::Holder)
    }

    /// The commit that a client asks for.
    ///
    /// # Errors
    /// [`Fault::NoName`] for a name that they may not read; errors of [`Catalogue::find`].
    pub(super) async fn find(
        &self,
        client: &Client,
        kind: PublishedKind,
        name: &str,
        revision: &str,
    ) -> Result<FoundCommit, Fault> {
        // What damage hides is said only to who may read it: others would learn which names exist.
        if !client.may_read(name) {
            return Err(Fault::NoName);
        }
        let (catalogue, name, revision) = (self.catalogue.clone(), name.to_string(), revision.to_string());
        blocking(move || Ok(catalogue.find(kind, &name, &revision))).await?
    }
}
