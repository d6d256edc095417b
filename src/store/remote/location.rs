//! The URL of a remote store: a bucket and a prefix in it.

use std::ffi::OsStr;

use object_store::path::Path;

use crate::error::{Error, Result};

/// Where the blobs of a store are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteLocation {
    /// Name of the bucket, or of Azure's container.
    pub(super) bucket: String,
    /// Prefix of every blob's name, without slashes around it. May be empty.
    pub(super) prefix: Path,
}

impl RemoteLocation {
    /// Parses the text after `://`. `scheme` is what stands before it.
    pub(super) fn parse(scheme: &str, rest: &OsStr) -> Result<Self> {
        let invalid = |why: &str| {
            let shown = rest.to_string_lossy();
            Error::Usage(format!(
                "{scheme}://{shown} is not a valid location: {why}; expected {scheme}://BUCKET/PREFIX"
            ))
        };
        let text = rest.to_str().ok_or_else(|| invalid("it is not UTF-8"))?;
        let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'$');
        if bucket.is_empty() {
            return Err(invalid("it names no bucket"));
        }
        if let Some(at) = bucket.find(['@', ':']) {
            let what = bucket.get(at..=at).unwrap_or_default();
            return Err(invalid(&format!(
                "a bucket's name has no `{what}`. Credentials come from the environment, the server from --endpoint"
            )));
        }
        if !bucket.bytes().all(allowed) {
            return Err(invalid(&format!("`{bucket}` is no name of a bucket")));
        }
        let prefix = Path::parse(prefix.trim_matches('/')).map_err(|error| invalid(&error.to_string()))?;
        Ok(RemoteLocation { bucket: bucket.into(), prefix })
    }

    /// The URL again, in its only spelling.
    pub(super) fn url(&self, scheme: &str) -> String {
        let slash = if self.prefix.as_ref().is_empty() { "" } else { "/" };
        format!("{scheme}://{}{slash}{}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RemoteLocation> {
        RemoteLocation::parse("s3", OsStr::new(text))
    }

    #[test]
    fn a_location_is_a_bucket_and_a_prefix() {
        for (text, bucket, prefix, url) in [
            ("b", "b", "", "s3://b"),
            ("b/", "b", "", "s3://b"),
            ("my.bucket-1/a", "my.bucket-1", "a", "s3://my.bucket-1/a"),
            ("b/a/b c/", "b", "a/b c", "s3://b/a/b c"),
            ("b//a", "b", "a", "s3://b/a"),
        ] {
            let location = parse(text).expect(text);
            assert_eq!((location.bucket.as_str(), location.prefix.as_ref()), (bucket, prefix), "{text}");
            assert_eq!(location.url("s3"), url);
        }
    }

    #[test]
    fn what_is_no_location_is_refused_with_what_was_expected() {
        for text in ["", "/", "/a", "b/a//c", "b/../c", "b/./c", "a b/c", "key:secret@b/a", "host:9000/b"] {
            let message = parse(text).expect_err(text).to_string();
            assert!(message.contains("expected s3://BUCKET/PREFIX"), "{message}");
        }
        assert!(parse("key:secret@b/a").expect_err("credentials").to_string().contains("--endpoint"));
    }
}
