//! Google Cloud Storage.

use std::ffi::OsStr;
use std::sync::Arc;

use object_store::gcp::GoogleCloudStorageBuilder;

use super::location::RemoteLocation;
use super::open::{Opening, no_retries, variable};
use crate::error::Result;
use crate::store::{Store, StoreOptions};

/// The variable in which Google's libraries look for an emulator. Its requests are not signed.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

/// Opens `gs://` and `rest`.
pub(in crate::store) fn open_gcs(rest: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let location = RemoteLocation::parse("gs", rest)?;
    let mut opening = Opening::new("gs", location, options, &[]);
    let mut builder = GoogleCloudStorageBuilder::from_env();
    if opening.endpoint.is_none()
        && let Some(host) = variable(EMULATOR)
    {
        opening.endpoint = Some(if host.contains("://") { host } else { format!("http://{host}") });
        builder = builder.with_skip_signature(true);
    }
    opening.check_endpoint()?;
    if let Some(endpoint) = &opening.endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    let objects = builder
        .with_bucket_name(&opening.location.bucket)
        .with_retry(no_retries())
        .with_client_options(opening.client_options())
        .with_http_connector(opening.transport())
        .build()
        .map_err(|error| opening.unusable(&error))?;
    Ok(opening.finish(Arc::new(objects), None, None))
}
