//! The pages of a listing that S3 sends. That they are whole pages has been checked where they came in.

use serde::Deserialize;

use super::object::{ListedObject, ObjectPage, unquoted};
use crate::store::remote::failure::{Cause, RequestFailure};
use crate::store::scheme::percent_decoded;

/// The answer to a request for a page.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListBucketResult {
    #[serde(rename = "Contents", default)]
    objects: Vec<ListedElement>,
    #[serde(default)]
    next_continuation_token: Option<String>,
    /// `url` if keys are percent-encoded.
    #[serde(default)]
    encoding_type: Option<String>,
}

/// An object of the answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedElement {
    key: String,
    #[serde(default)]
    last_modified: Option<String>,
    #[serde(rename = "ETag", default)]
    etag: Option<String>,
    size: u64,
}

/// Reads a page. One that is cut or wrong is a failure that passes.
pub(super) fn parse_page(text: &str) -> Result<ObjectPage, RequestFailure> {
    let transient = |what: String| RequestFailure::new(Cause::Transient, what);
    let answer: ListBucketResult = quick_xml::de::from_str(text)
        .map_err(|error| transient(format!("the server's listing cannot be read: {error}")))?;
    let is_encoded = answer.encoding_type.as_deref() == Some("url");
    let object = |found: ListedElement| {
        let key = if is_encoded { decoded(&found.key) } else { Some(found.key.clone()) };
        let key = key.ok_or_else(|| transient(format!("the server lists `{}`, which is no key", found.key)))?;
        let modified = found.last_modified.and_then(|text| text.parse().ok());
        Ok(ListedObject { key, size: found.size, etag: found.etag.as_deref().and_then(unquoted), modified })
    };
    let objects = answer.objects.into_iter().map(object).collect::<Result<_, RequestFailure>>()?;
    // Whatever else the page says: where there is a token, more may follow.
    let next = answer.next_continuation_token.filter(|token| !token.is_empty());
    Ok(ObjectPage { objects, next })
}

/// A key that is encoded like a value of a form.
fn decoded(text: &str) -> Option<String> {
    String::from_utf8(percent_decoded(text.replace('+', "%20").as_bytes())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(entries: &str, rest: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://x/\"><Name>b</Name>{entries}{rest}</ListBucketResult>"
        )
    }

    fn entry(key: &str) -> String {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified><ETag>&quot;abc&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    }

    #[test]
    fn keys_are_decoded_only_if_the_server_says_that_they_are_encoded() {
        let encoded =
            page(&entry("a%2F%2Fb+c%2Bd"), "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>");
        let found = parse_page(&encoded).unwrap();
        assert_eq!((found.objects[0].key.as_str(), found.next), ("a//b c+d", None));
        assert_eq!(found.objects[0].etag.as_deref(), Some("abc"));
        assert_eq!(found.objects[0].modified.unwrap().as_millisecond() % 1000, 678);
        let plain = page(&entry("a+b%20 &amp;"), "<IsTruncated>false</IsTruncated>");
        assert_eq!(parse_page(&plain).unwrap().objects[0].key, "a+b%20 &");
    }

    #[test]
    fn a_page_with_a_token_is_not_the_last_one() {
        for before in ["<IsTruncated>true</IsTruncated>", "<IsTruncated>false</IsTruncated>", ""] {
            let whole = page(&entry("a"), &format!("{before}<NextContinuationToken>t</NextContinuationToken>"));
            assert_eq!(parse_page(&whole).unwrap().next.as_deref(), Some("t"));
            assert!(parse_page(&whole[..whole.len() / 2]).is_err());
        }
        assert_eq!(parse_page(&page("", "<NextContinuationToken/>")).unwrap(), ObjectPage::default());
    }

    #[test]
    fn an_etag_that_says_nothing_is_none() {
        for etag in ["", "&quot;&quot;", "W/&quot;&quot;", &"e".repeat(2000)] {
            let text = page(&format!("<Contents><Key>a</Key><ETag>{etag}</ETag><Size>7</Size></Contents>"), "");
            assert_eq!(parse_page(&text).unwrap().objects[0].etag, None, "{etag}");
        }
    }
}
