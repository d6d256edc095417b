//! Uploads: what clients of the Hub send, stored by the ordinary pipeline.
//!
//! 1. `announce` says what a client shall send how, `batch` where. `objects` takes large files, each at a signed URL,
//!    `multipart` the largest ones in parts. `xet` takes what newer clients send, who ask for a token of `xet_access`
//!    first. `commit` reads a commit line by line.
//! 2. A body goes into a file without a name, so memory is bounded, and what is cut short or false stores nothing.
//! 3. What is acknowledged is a snapshot ([`crate::keep::upload`]). One is stored at a time.

mod announce;
mod batch;
mod body;
mod commit;
mod multipart;
mod objects;
mod xet;
mod xet_access;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use multipart::PartialObjects;
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::parts::blocking;
use super::turns::Turns;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::keep::upload::{SPOOLED, UploadStore};
use crate::repo::Repository;
use crate::repo::paths::{cache_directory, create_private};

pub use announce::{create, preupload, valid_card};
pub use batch::{READ_ONLY, batch, object_fault};
pub use commit::commit;
pub use multipart::{part, whole};
pub use objects::{SignedObject, object, verified};
pub use xet::{shard, xorb};
pub use xet_access::xet_token;

/// Bodies that are received at the same time, and those of one token.
const BODIES: usize = 8;
const BODIES_OF_TOKEN: usize = 4;
/// Shards whose files are stored at the same time, and those of one token: each takes up to 150 MB.
const SHARDS: usize = 2;
const SHARDS_OF_TOKEN: usize = 1;
/// Time between two looks for what has expired, beside those of commits, seconds.
const EXPIRE_SECONDS: i64 = 3600;
/// Time that somebody waits for the turn of a body, or of a shard.
const BODY_WAIT: Duration = Duration::from_secs(60);

/// What a server needs to take uploads.
pub struct UploadReceiver {
    store: UploadStore,
    /// Directory of the files that bodies go into.
    spool: PathBuf,
    /// Signs URLs.
    key: [u8; 32],
    /// Turns of bodies, and of shards.
    bodies: Turns,
    shards: Turns,
    partial: PartialObjects,
    /// When it was last looked for what has expired, seconds since 1970.
    expired_at: AtomicI64,
    /// Held by who stores.
    storing: Arc<Semaphore>,
}

impl UploadReceiver {
    /// Readies a repository for uploads, whose snapshots are of `host`. Runs end once `stop` is set.
    ///
    /// # Errors
    /// Errors of [`UploadStore::new`], and of the cache directory.
    pub fn new(repository: Repository, config: Config, host: String, stop: Arc<AtomicBool>) -> Result<Self> {
        let store = UploadStore::new(repository, config, host, stop)?;
        let spool = cache_directory(&store.repository)?.join("uploads");
        create_private(&spool)?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| Error::internal(format!("no random bytes: {error}")))?;
        store.expire()?;
        let bodies = Turns::new(BODIES, BODIES_OF_TOKEN, BODY_WAIT);
        let shards = Turns::new(SHARDS, SHARDS_OF_TOKEN, BODY_WAIT);
        let (partial, storing) = (PartialObjects::default(), Arc::new(Semaphore::new(1)));
        let expired_at = AtomicI64::new(store.repository.clock.now_ns().div_euclid(1_000_000_000));
        Ok(UploadReceiver { store, spool, key, bodies, shards, partial, expired_at, storing })
    }

    /// Deletes what has expired, if nobody has looked for an hour.
    fn expire_at_times(&self) {
        let now = self.now_seconds();
        if now.saturating_sub(self.expired_at.load(Ordering::Relaxed)) < EXPIRE_SECONDS {
            return;
        }
        self.expired_at.store(now, Ordering::Relaxed);
        self.store.expire().unwrap_or_else(|error| tracing::warn!("old uploads stay: {error}"));
    }

    /// A file for a body. It has no name, so it ends with this process.
    fn spool(&self) -> Result<File> {
        tempfile::tempfile_in(&self.spool).map_err(|error| Error::io("create", SPOOLED, error))
    }

    /// Does `work` once nobody else stores. Nobody else does meanwhile, also if the client leaves.
    async fn storing<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let turn = self.storing.clone().acquire_owned().await;
        let turn = turn.map_err(|error| Error::internal(error.to_string()))?;
        let own = self.clone();
        let stored = blocking(move || {
            let _turn = turn;
            work(&own)
        });
        Ok(stored.await?)
    }
}
