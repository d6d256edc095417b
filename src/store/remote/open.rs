//! The clients of the services, built from the URL, the options and the environment.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::adapter::{Objects, RemoteStore};
use super::location::RemoteLocation;
use crate::error::{Error, Result};
use crate::store::{Store, StoreOptions};

/// The time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens `s3://` and `rest`.
pub(in crate::store) fn open_s3(rest: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let location = RemoteLocation::parse("s3", rest)?;
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&location.bucket)
        .with_disable_bulk_delete(true)
        .with_retry(no_retries())
        .with_client_options(client_options(options));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
    }
    let objects = builder.build().map_err(|error| unusable(&location.url("s3"), &error))?;
    Ok(opened("s3", location, Arc::new(objects), options))
}

/// Opens `gs://` and `rest`.
pub(in crate::store) fn open_gcs(rest: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let location = RemoteLocation::parse("gs", rest)?;
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&location.bucket)
        .with_retry(no_retries())
        .with_client_options(client_options(options));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let objects = builder.build().map_err(|error| unusable(&location.url("gs"), &error))?;
    Ok(opened("gs", location, Arc::new(objects), options))
}

/// Opens `az://` and `rest`.
pub(in crate::store) fn open_azure(rest: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let location = RemoteLocation::parse("az", rest)?;
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(&location.bucket)
        .with_retry(no_retries())
        .with_client_options(client_options(options));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    let objects = builder.build().map_err(|error| unusable(&location.url("az"), &error))?;
    Ok(opened("az", location, Arc::new(objects), options))
}

fn opened(scheme: &str, location: RemoteLocation, objects: Arc<dyn Objects>, options: &StoreOptions) -> Arc<dyn Store> {
    let mut shown = location.url(scheme);
    if let Some(endpoint) = &options.endpoint {
        shown = format!("{shown} at {}", endpoint.trim_end_matches('/'));
    }
    Arc::new(RemoteStore::new(objects, location.prefix, shown, options.patience.clone()))
}

/// The store tries again itself, because it must know what may have happened before.
fn no_retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

fn client_options(options: &StoreOptions) -> ClientOptions {
    let is_plain = options.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT_TIMEOUT).with_allow_http(is_plain)
}

fn unusable(location: &str, error: &object_store::Error) -> Error {
    Error::Usage(format!("cannot use {location}: {error}"))
}
