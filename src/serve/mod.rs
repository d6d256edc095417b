//! Serve: what is published, over HTTP, as the clients of the Hub ask for it.
//!
//! 1. `server` takes connections within bounds, `router` checks for whom a request is and who asks, and answers it by
//!    its `route`.
//! 2. `catalogue` knows the names. `names`, `listing` and `file` answer for one name, for a tree and for a file.
//!    `oci` answers for the same names as a registry does.
//! 3. `pages` are for people, who log in with a token and get one of the `sessions`. What takes long to find is found
//!    in the background: `models` of names, and an `overview` of the repository. Names may be `unrecorded`.
//! 4. The engine blocks, so it works on a bounded number of threads (`parts`). A file is read part by part, when its
//!    connection has space for one.
//! 5. Nothing is written into the repository but `upload`s, if they are switched on. `hashes` are remembered in the
//!    local cache.
//!
//! Requests are routed by their raw paths, so that an encoded slash in a name stays one.

mod access_log;
mod answer;
mod catalogue;
mod fault;
mod file;
mod hashes;
mod hosts;
mod listing;
mod metrics;
mod models;
mod names;
mod oci;
mod overview;
mod pages;
mod parts;
mod question;
mod ranges;
mod route;
mod router;
mod server;
mod sessions;
mod state;
mod target;
mod timed_stream;
mod tls;
mod tokens;
mod turns;
mod unrecorded;
mod upload;

use std::sync::Arc;

use catalogue::Catalogue;
use hashes::Hashes;
use metrics::ServeMetrics;
use oci::KnownManifests;
use sessions::Sessions;
use turns::Turns;
use unrecorded::UnrecordedNames;

use crate::error::Result;
use crate::repo::Repository;
use crate::repo::index::HashDatabase;
use crate::repo::paths::{cache_directory, create_private};

pub use hosts::HostRules;
pub use server::{Listening, serve};
pub use state::{ServeLimits, ServeState};
pub use tls::tls;
pub use tokens::Tokens;
pub use upload::UploadReceiver;

/// Files whose tensors are listed at the same time, and directories.
const TENSOR_TURNS: usize = 2;
const DIRECTORY_TURNS: usize = 4;

/// What a server of `repository` needs, which takes `uploads`, if any. With `publish_all` it shows every directory with
/// a model. Lists the snapshots.
///
/// # Errors
/// Errors of listing the snapshots.
pub fn state(
    repository: Repository,
    tokens: Option<Tokens>,
    hosts: HostRules,
    limits: ServeLimits,
    uploads: Option<UploadReceiver>,
    publish_all: bool,
) -> Result<Arc<ServeState>> {
    let directory = cache_directory(&repository).and_then(|path| create_private(&path).map(|()| path));
    let directory = directory.inspect_err(|error| tracing::warn!("hashes are not remembered: {error}")).ok();
    let database =
        directory.and_then(|path| HashDatabase::open(&path, &repository.id, repository.cache_key().as_ref()));
    let catalogue = Arc::new(Catalogue::new(repository, limits.refresh, publish_all.then(UnrecordedNames::default)));
    catalogue.names()?;
    // What was read is known from the first scrape on.
    catalogue.refresh();
    let hashes = Arc::new(Hashes::new(database));
    Ok(Arc::new(ServeState {
        catalogue,
        hashes,
        tokens,
        hosts,
        limits,
        metrics: ServeMetrics::default(),
        sessions: Sessions::default(),
        overview: Arc::default(),
        models: Arc::default(),
        manifests: KnownManifests::default(),
        uploads: uploads.map(Arc::new),
        tensors: Turns::of_pages(TENSOR_TURNS),
        directories: Turns::of_pages(DIRECTORY_TURNS),
    }))
}

impl ServeState {
    /// Number of published snapshots. A revision may have several.
    ///
    /// # Errors
    /// Errors of listing the snapshots.
    pub fn published(&self) -> Result<usize> {
        Ok(self.catalogue.names()?.snapshots.len())
    }
}
