//! S3, and the many servers that speak its protocol.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::ClientOptions;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum, resolve_bucket_region};
use object_store::client::HttpConnector;

use super::aws_profile::AwsProfile;
use super::bucket::S3Requests;
use super::failure::{Cause, RequestFailure};
use super::location::RemoteLocation;
use super::locks::ObjectLocks;
use super::open::{Opening, Variables, home, no_retries};
use super::requests::{RequestKind, Requests};
use crate::error::{Error, Result};
use crate::store::{Store, StoreOptions};

/// The time to ask S3 for the region of a bucket.
const REGION_TIMEOUT: Duration = Duration::from_secs(10);
/// The region of servers that have none.
const REGION_OF_OTHERS: &str = "us-east-1";

/// Opens `s3://` and `rest`.
pub(in crate::store) fn open_s3(rest: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let (opening, S3Requests { objects, client, .. }) = connect(rest, options)?;
    let locks = ObjectLocks::new(objects.clone(), client);
    Ok(opening.finish(objects, None, Some(locks)))
}

/// The client of the bucket. The environment goes before the profile, the profile before the role of the machine.
pub(super) fn connect<'a>(rest: &OsStr, options: &'a StoreOptions) -> Result<(Opening<'a>, S3Requests)> {
    let location = RemoteLocation::parse("s3", rest)?;
    let variables = Variables::of(options, "AWS_");
    let mut opening = Opening::new("s3", location, options, variables, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
    let profile = match options.access_key {
        Some(_) => AwsProfile::default(),
        None => AwsProfile::load(home().as_deref(), |name| variables.get(name), &options.stop)?,
    };
    opening.endpoint = opening.endpoint.or_else(|| profile.setting("endpoint_url").map(Into::into));
    opening.check_endpoint()?;
    let settings = variables
        .all()
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>().ok()?, value)));
    let mut builder = settings.fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value));
    if let Some(key) = &options.access_key {
        builder = builder.with_access_key_id(&key.id).with_secret_access_key(&key.secret);
    } else if builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_none()
        && let Some(keys) = profile.keys(&options.stop)?
    {
        builder = builder.with_access_key_id(keys.access_key_id).with_secret_access_key(keys.secret_access_key);
        if let Some(token) = keys.session_token {
            builder = builder.with_token(token);
        }
    }
    if builder.get_config_value(&AmazonS3ConfigKey::Region).is_none() {
        let region = match (profile.setting("region"), &opening.endpoint) {
            (Some(region), _) => region.to_string(),
            (None, Some(_)) => REGION_OF_OTHERS.into(),
            (None, None) => find_region(&opening)?,
        };
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &opening.endpoint {
        let is_virtual = builder.get_config_value(&AmazonS3ConfigKey::VirtualHostedStyleRequest);
        let is_virtual = is_virtual.is_some_and(|value| value == "true");
        let endpoint = if is_virtual { with_bucket(endpoint, &opening.location.bucket) } else { endpoint.clone() };
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    if builder.get_config_value(&AmazonS3ConfigKey::Checksum).is_none() {
        // Signatures need this hash anyway. A bucket that locks new objects refuses puts without a checksum.
        builder = builder.with_checksum_algorithm(Checksum::SHA256);
    }
    let is_said = |key| builder.get_config_value(&key).is_some_and(|value| value == "true");
    let is_signed = !is_said(AmazonS3ConfigKey::SkipSignature);
    let payer = builder.get_config_value(&AmazonS3ConfigKey::RequestPayer);
    let requester_pays = payer.is_some_and(|value| ["true", "requester"].contains(&value.to_lowercase().as_str()));
    let region = builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_default();
    let base = base_url(&builder, &opening.location.bucket, &region);
    let objects = Arc::new(
        builder
            .with_bucket_name(&opening.location.bucket)
            .with_disable_bulk_delete(true)
            .with_retry(no_retries())
            .with_client_options(opening.client_options())
            .with_http_connector(opening.transport())
            .build()
            .map_err(|error| opening.unusable(&error))?,
    );
    let client = opening.transport().connect(&opening.client_options()).map_err(|error| opening.unusable(&error))?;
    Ok((opening, S3Requests { objects, client, base, region, is_signed, requester_pays }))
}

/// The URL of the bucket, as the client has it.
fn base_url(builder: &AmazonS3Builder, bucket: &str, region: &str) -> String {
    let value = |key| builder.get_config_value(&key);
    let is_virtual = value(AmazonS3ConfigKey::VirtualHostedStyleRequest).is_some_and(|value| value == "true");
    let endpoint = value(AmazonS3ConfigKey::S3Endpoint).or_else(|| value(AmazonS3ConfigKey::Endpoint));
    match endpoint.as_deref().map(|endpoint| endpoint.trim_end_matches('/')) {
        Some(endpoint) if is_virtual => endpoint.into(),
        Some(endpoint) => format!("{endpoint}/{bucket}"),
        None if is_virtual => format!("https://{bucket}.s3.{region}.amazonaws.com"),
        None => format!("https://s3.{region}.amazonaws.com/{bucket}"),
    }
}

/// The endpoint of a bucket on a server whose buckets are host names.
fn with_bucket(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) if !host.starts_with(&format!("{bucket}.")) => format!("{scheme}://{bucket}.{host}"),
        _ => endpoint.into(),
    }
}

/// Asks S3 for the region of the bucket.
fn find_region(opening: &Opening<'_>) -> Result<String> {
    let options = ClientOptions::new().with_timeout(REGION_TIMEOUT).with_connect_timeout(REGION_TIMEOUT);
    let bucket = &opening.location.bucket;
    let found = Requests::new(opening.options).run(RequestKind::Read, async || {
        resolve_bucket_region(bucket, &options).await.map_err(|error| match error.to_string() {
            text if text.contains("not found") => RequestFailure::new(Cause::NoBucket, text),
            text if text.contains("Failed to parse") => RequestFailure::new(Cause::Other, text),
            _ => RequestFailure::new(Cause::Unreachable, "no answer from s3.amazonaws.com"),
        })
    })?;
    found.map_err(|failure| {
        let location = opening.location.url("s3");
        match failure.cause() {
            Cause::NoBucket => Error::NoRepository { location, reason: "S3 has no bucket of this name".into() },
            Cause::Stopped => Error::Interrupted,
            _ => Error::Usage(format!(
                "cannot find the region of {location}: {failure}. Set AWS_REGION, or give the server with --endpoint"
            )),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_becomes_a_host_name_once() {
        assert_eq!(with_bucket("https://s3.example:9000/", "b"), "https://b.s3.example:9000/");
        assert_eq!(with_bucket("https://b.s3.example", "b"), "https://b.s3.example");
    }
}
