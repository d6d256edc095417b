//! Azure Blob Storage. Its buckets are called containers, which fhrd uses for something else.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;

use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};

use super::location::RemoteLocation;
use super::open::{Opening, Variables, no_retries};
use crate::error::{Error, Result};
use crate::store::{Store, StoreOptions};

/// A client, and the name of its account.
type Connected<'a> = (Opening<'a>, Arc<MicrosoftAzure>, Option<String>);

/// Names that Microsoft's tools give to settings, and ours.
const VARIABLES: [(&str, AzureConfigKey); 3] = [
    ("AZURE_STORAGE_ACCOUNT", AzureConfigKey::AccountName),
    ("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey),
    ("AZURE_STORAGE_SAS_TOKEN", AzureConfigKey::SasKey),
];
/// Names of settings in a connection string.
const CONNECTION: [(&str, AzureConfigKey); 3] = [
    ("AccountName", AzureConfigKey::AccountName),
    ("AccountKey", AzureConfigKey::AccessKey),
    ("SharedAccessSignature", AzureConfigKey::SasKey),
];

/// Opens `az://` and `rest`.
pub(in crate::store) fn open_azure(rest: &OsStr, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let (opening, objects, account) = connect(rest, options)?;
    Ok(opening.finish(objects, account, None))
}

/// The client of the bucket, and the name of the account. Single variables go before the connection string.
pub(super) fn connect<'a>(rest: &OsStr, options: &'a StoreOptions) -> Result<Connected<'a>> {
    let location = RemoteLocation::parse("az", rest)?;
    let variables = Variables::of(options, "AZURE_");
    let mut opening = Opening::new("az", location, options, variables, &[]);
    let mut builder = match variables.are_own() {
        false => MicrosoftAzureBuilder::from_env(),
        true => variables.all().into_iter().fold(MicrosoftAzureBuilder::new(), |builder, (name, value)| {
            match name.to_ascii_lowercase().parse::<AzureConfigKey>() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            }
        }),
    };
    for (name, key) in VARIABLES {
        if builder.get_config_value(&key).is_none()
            && let Some(value) = variables.get(name)
        {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(text) = variables.get("AZURE_STORAGE_CONNECTION_STRING") {
        let settings = connection_settings(&text)?;
        for (name, key) in CONNECTION {
            if builder.get_config_value(&key).is_none()
                && let Some(value) = settings.get(name)
            {
                builder = builder.with_config(key, *value);
            }
        }
        opening.endpoint = opening.endpoint.or_else(|| blob_endpoint(&settings));
    }
    opening.check_endpoint()?;
    if let Some(endpoint) = &opening.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_string());
    }
    let account = builder.get_config_value(&AzureConfigKey::AccountName);
    if account.is_none() {
        let location = opening.location.url("az");
        return Err(Error::Usage(format!("cannot use {location}: set AZURE_STORAGE_ACCOUNT to the storage account")));
    }
    let objects = builder
        .with_container_name(&opening.location.bucket)
        .with_retry(no_retries())
        .with_client_options(opening.client_options())
        .with_http_connector(opening.transport())
        .build()
        .map_err(|error| opening.unusable(&error))?;
    Ok((opening, Arc::new(objects), account))
}

/// The settings of a connection string, as `AccountName=a;AccountKey=b`.
fn connection_settings(text: &str) -> Result<HashMap<&str, &str>> {
    let settings = text.split(';').filter(|setting| !setting.trim().is_empty());
    settings
        .map(|setting| {
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                Error::Usage("AZURE_STORAGE_CONNECTION_STRING is not of the form NAME=VALUE;NAME=VALUE".into())
            })?;
            Ok((name.trim(), value.trim()))
        })
        .collect()
}

/// The server of a connection string, unless it is the service's own.
fn blob_endpoint(settings: &HashMap<&str, &str>) -> Option<String> {
    if let Some(endpoint) = settings.get("BlobEndpoint") {
        return Some((*endpoint).into());
    }
    let suffix = settings.get("EndpointSuffix").filter(|suffix| **suffix != "core.windows.net")?;
    let protocol = settings.get("DefaultEndpointsProtocol").unwrap_or(&"https");
    Some(format!("{protocol}://{}.blob.{suffix}", settings.get("AccountName")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_has_the_account_the_key_and_the_server() {
        let parse = |text| connection_settings(text).expect("parses");
        let settings =
            parse("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9v==;EndpointSuffix=core.windows.net");
        assert_eq!((settings["AccountName"], settings["AccountKey"]), ("a", "Zm9v=="));
        assert_eq!(blob_endpoint(&settings), None);
        let china = parse("AccountName=a;EndpointSuffix=core.chinacloudapi.cn;");
        assert_eq!(blob_endpoint(&china).as_deref(), Some("https://a.blob.core.chinacloudapi.cn"));
        let own = parse("AccountName=a;BlobEndpoint=http://127.0.0.1:10000/a");
        assert_eq!(blob_endpoint(&own).as_deref(), Some("http://127.0.0.1:10000/a"));
        assert!(connection_settings("nonsense").is_err());
    }
}
