//! How stores are reached, beyond their location.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::cold::{ObjectTag, StorageClasses};
use super::rate::RateLimits;

/// What a user can say about the way to a store. The defaults suit every store that needs nothing special.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// Use SFTP servers that cannot put a file only if its name is free, or cannot sync files.
    pub unsafe_sftp: bool,
    /// Shell command that takes the place of `ssh`, with options.
    pub ssh_command: Option<OsString>,
    /// URL of the server in place of the service's own, for servers that speak its protocol. `http://` only if it says
    /// so.
    pub endpoint: Option<String>,
    /// Access key of S3 in place of that of the environment, for programs that have one.
    pub access_key: Option<AccessKey>,
    /// What stands before the names of variables with credentials and settings, if there are any with it. Empty for
    /// those that the service's own tools know.
    pub variable_prefix: &'static str,
    /// Classes of storage of new objects in a bucket.
    pub classes: StorageClasses,
    /// Tag of data containers in a cold repository, for life-cycle rules of a bucket.
    pub data_tag: Option<ObjectTag>,
    /// How long failing requests to remote stores are tried again.
    pub patience: Patience,
    /// Limits of what goes over the network. Stores that share them stay below them together.
    pub limits: RateLimits,
    /// Once it is set, reads of remote stores fail, also while they wait for an answer or for the next try.
    pub stop: Arc<AtomicBool>,
}

/// A key that signs requests.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// Its public id.
    pub id: String,
    /// The key itself.
    pub secret: String,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AccessKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How often, and for how long, a request that fails is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patience {
    /// Tries before the server has answered any request: it may not exist.
    pub first_tries: u32,
    /// Tries of later requests.
    pub tries: u32,
    /// The wait before the second try. Each later one is twice as long, up to `wait_max`; a random part of up to a half
    /// is left out.
    pub wait: Duration,
    /// The longest wait between two tries.
    pub wait_max: Duration,
    /// No try begins later than this after the first one.
    pub total: Duration,
    /// A request fails if no byte has moved for so long.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            first_tries: 4,
            tries: 12,
            wait: Duration::from_millis(250),
            wait_max: Duration::from_secs(30),
            total: Duration::from_secs(300),
            idle: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// Tries again as often as `total` allows. One try that hangs may take as long again.
    pub fn within(total: Duration) -> Self {
        let usual = Patience::default();
        Patience { first_tries: u32::MAX, tries: u32::MAX, idle: usual.idle.min(total), total, ..usual }
    }
}
