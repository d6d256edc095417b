//! What the clients of all services share.

use std::sync::Arc;
use std::time::Duration;

use etcetera::BaseStrategy;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::adapter::{Objects, RemoteStore};
use super::location::RemoteLocation;
use super::locks::ObjectLocks;
use super::transport::{CONNECT_TIMEOUT, Transport};
use crate::error::{Error, Result};
use crate::store::{Store, StoreOptions};

/// A store on its way.
pub(super) struct Opening<'a> {
    pub(super) scheme: &'static str,
    pub(super) location: RemoteLocation,
    pub(super) options: &'a StoreOptions,
    /// URL of the server, if it is not the service's own.
    pub(super) endpoint: Option<String>,
}

impl<'a> Opening<'a> {
    /// Begins with the server that the user names, or one of the variables that `names` lists.
    pub(super) fn new(
        scheme: &'static str,
        location: RemoteLocation,
        options: &'a StoreOptions,
        variables: Variables,
        names: &[&str],
    ) -> Self {
        let endpoint = options.endpoint.clone().or_else(|| names.iter().find_map(|name| variables.get(name)));
        Opening { scheme, location, options, endpoint }
    }

    /// Fails unless the endpoint is a URL.
    pub(super) fn check_endpoint(&self) -> Result<()> {
        match self.endpoint.as_deref() {
            Some(endpoint) if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) => {
                Err(Error::Usage(format!("the endpoint `{endpoint}` is no URL: expected https://HOST or http://HOST")))
            }
            _ => Ok(()),
        }
    }

    /// Time limits are those of [`Transport`]. Without encryption only if the endpoint's URL says so.
    pub(super) fn client_options(&self) -> ClientOptions {
        let is_plain = self.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let limit = CONNECT_TIMEOUT.min(self.options.patience.total);
        ClientOptions::new().with_connect_timeout(limit).with_allow_http(is_plain)
    }

    pub(super) fn transport(&self) -> Transport {
        let (idle, limits) = (self.options.patience.idle, self.options.limits.clone());
        Transport { idle, limits, takes_gzip: self.scheme == "gs" }
    }

    /// The error of a client that cannot be built.
    pub(super) fn unusable(&self, error: &object_store::Error) -> Error {
        Error::Usage(format!("cannot use {}: {error}", self.location.url(self.scheme)))
    }

    /// The store. `account` tells buckets of one name apart.
    pub(super) fn finish(
        self,
        objects: Arc<dyn Objects>,
        account: Option<String>,
        locks: Option<ObjectLocks>,
    ) -> Arc<dyn Store> {
        let shown = self.shown(account);
        let store = RemoteStore::new(objects, self.location.prefix, shown, self.options);
        Arc::new(store.with_locks(locks))
    }

    /// The URL, in its only spelling.
    pub(super) fn url(&self) -> String {
        self.location.url(self.scheme)
    }

    /// The URL, with the server or the account.
    pub(super) fn shown(&self, account: Option<String>) -> String {
        match self.endpoint.clone().or(account) {
            Some(at) => format!("{} at {}", self.url(), at.trim_end_matches('/')),
            None => self.url(),
        }
    }
}

/// The variables of the environment that the settings of one service come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variables {
    /// What their names begin with, before the names that the service's own tools know.
    prefix: &'static str,
    service: &'static str,
}

impl Variables {
    /// Those with the prefix of `options`, if there is any for the `service`; else those without a prefix. So the
    /// credentials of two stores are never mixed.
    pub(super) fn of(options: &StoreOptions, service: &'static str) -> Self {
        let own = Variables { prefix: options.variable_prefix, service };
        if own.all().is_empty() { Variables { prefix: "", service } } else { own }
    }

    /// Whether they have a prefix.
    pub(super) fn are_own(self) -> bool {
        !self.prefix.is_empty()
    }

    /// A variable that is not empty.
    pub(super) fn get(self, name: &str) -> Option<String> {
        std::env::var(format!("{}{name}", self.prefix)).ok().filter(|value| !value.is_empty())
    }

    /// All variables of the service that are not empty, without the prefix.
    pub(super) fn all(self) -> Vec<(String, String)> {
        let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            let name = name.to_str()?.strip_prefix(self.prefix)?.to_string();
            name.starts_with(self.service).then_some((name, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(variable).filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// The home directory of the user, if there is one.
pub(super) fn home() -> Option<std::path::PathBuf> {
    etcetera::choose_base_strategy().ok().map(|directories| directories.home_dir().to_path_buf())
}

/// The store tries again itself, because it must know what may have happened before.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}
