//! Google Cloud Storage.

use std::ffi::OsStr;
use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};

use super::location::RemoteLocation;
use super::open::{Opening, Variables, no_retries};
use crate::error::{Error, Result};
use crate::store::{Store, StoreOptions};

/// The variable in which Google's libraries look for an emulator. Its requests are not signed.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

/// Opens `gs://` and `rest`.
pub(in crate::store) fn open_gcs(rest: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let (opening, objects) = connect(rest, options)?;
    if let Some(tag) = &options.data_tag {
        let text =
            format!("--data-tag {tag}: {} has no tags of objects: say --storage-class containers=CLASS", opening.url());
        return Err(Error::Usage(text));
    }
    Ok(opening.finish(objects, None, None))
}

/// The client of the bucket.
pub(super) fn connect<'a>(rest: &OsStr, options: &'a StoreOptions) -> Result<(Opening<'a>, Arc<GoogleCloudStorage>)> {
    let location = RemoteLocation::parse("gs", rest)?;
    let variables = Variables::of(options, "GOOGLE_");
    let mut opening = Opening::new("gs", location, options, variables, &[]);
    let mut builder = match variables.are_own() {
        false => GoogleCloudStorageBuilder::from_env(),
        true => variables.all().into_iter().fold(GoogleCloudStorageBuilder::new(), |builder, (name, value)| match name
            .to_ascii_lowercase()
            .parse::<GoogleConfigKey>()
        {
            Ok(key) => builder.with_config(key, value),
            Err(_) => builder,
        }),
    };
    if opening.endpoint.is_none()
        && let Some(host) = variables.get(EMULATOR)
    {
        opening.endpoint = Some(if host.contains("://") { host } else { format!("http://{host}") });
        // Without any, writes look for credentials, although nothing is signed.
        let nothing = StaticCredentialProvider::new(GcpCredential { bearer: String::new() });
        builder = builder.with_skip_signature(true).with_credentials(Arc::new(nothing));
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
    Ok((opening, Arc::new(objects)))
}
