//! Checks that the answer to a request for a page of a listing is one, and all of it.
//!
//! The client library takes any XML for a page without objects, also the error of a server or the form of a proxy. What
//! was not listed would then count as absent.

use quick_xml::Reader;
use quick_xml::events::Event;
use reqwest::Method;

/// The root of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRoot(&'static str);

/// S3, and Google Cloud Storage in the same words.
const OF_S3: PageRoot = PageRoot("ListBucketResult");
const OF_AZURE: PageRoot = PageRoot("EnumerationResults");

impl PageRoot {
    /// The root of the page that a request asks for. `None` if it asks for something else.
    pub(super) fn of(method: &Method, query: Option<&str>) -> Option<Self> {
        let asks = |pair: &str| query.unwrap_or_default().split('&').any(|own| own == pair);
        match *method {
            Method::GET if asks("list-type=2") => Some(OF_S3),
            Method::GET if asks("comp=list") => Some(OF_AZURE),
            _ => None,
        }
    }

    /// What is wrong with a page. A server may leave out how many objects there are and whether more follow.
    pub(super) fn defect(self, page: &[u8]) -> Option<String> {
        self.check(page).err()
    }

    fn check(self, page: &[u8]) -> Result<(), String> {
        let mut reader = Reader::from_reader(page);
        let (mut open, mut roots, mut entries) = (Vec::<Vec<u8>>::new(), 0, 0u64);
        let (mut key_count, mut is_truncated, mut has_token) = (None, false, false);
        loop {
            let event = reader.read_event().map_err(|error| format!("the server's listing cannot be read: {error}"))?;
            let name = match &event {
                Event::Start(element) | Event::Empty(element) => Some(element.local_name().as_ref().to_vec()),
                _ => None,
            };
            if let Some(name) = &name {
                match open.len() {
                    0 if name != self.0.as_bytes() => {
                        let got = String::from_utf8_lossy(name).into_owned();
                        return Err(format!("the server answers `{got}` where a listing, `{}`, was asked for", self.0));
                    }
                    0 => roots += 1,
                    1 if name == b"Contents" || name == b"CommonPrefixes" => entries += 1,
                    _ => {}
                }
            }
            match event {
                Event::Start(_) => open.extend(name),
                Event::End(_) => _ = open.pop(),
                Event::Text(text) if open.len() == 2 => {
                    let text = text.trim_ascii();
                    match open.last().map(Vec::as_slice) {
                        Some(b"KeyCount") => key_count = str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
                        Some(b"IsTruncated") => is_truncated = text == b"true",
                        Some(b"NextContinuationToken") => has_token = !text.is_empty(),
                        _ => {}
                    }
                }
                Event::Eof => break,
                _ => {}
            }
        }
        if roots != 1 || !open.is_empty() {
            return Err("the server's listing is cut short, or has a second one behind it".into());
        }
        if is_truncated && !has_token {
            return Err("the server's listing does not say how it goes on".into());
        }
        match key_count.filter(|count: &u64| *count > entries) {
            Some(count) => Err(format!("the server lists {entries} objects, and says that they are {count}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(inner: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://x/\"><Name>b</Name>{inner}</ListBucketResult>\n"
        )
    }

    #[test]
    fn only_requests_for_listings_have_a_page() {
        assert_eq!(PageRoot::of(&Method::GET, Some("prefix=a&list-type=2")), Some(OF_S3));
        assert_eq!(PageRoot::of(&Method::GET, Some("restype=container&comp=list")), Some(OF_AZURE));
        assert_eq!(PageRoot::of(&Method::PUT, Some("list-type=2")), None);
        assert_eq!(PageRoot::of(&Method::GET, Some("prefix=list-type%3D2")), None);
        assert_eq!(PageRoot::of(&Method::GET, None), None);
    }

    #[test]
    fn whole_pages_are_good() {
        let entry = "<Contents><Key>a</Key><Size>7</Size></Contents>";
        for inner in [
            String::new(),
            "<IsTruncated>false</IsTruncated><KeyCount>0</KeyCount>".into(),
            format!(
                "{entry}{entry}<KeyCount>2</KeyCount><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
            ),
            format!("{entry}<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes><KeyCount>2</KeyCount>"),
            // Names in an entry say nothing of the page.
            "<Contents><Key>a</Key><KeyCount>9</KeyCount><IsTruncated>true</IsTruncated></Contents>".into(),
        ] {
            assert_eq!(OF_S3.defect(page(&inner).as_bytes()), None, "{inner}");
        }
        assert_eq!(OF_AZURE.defect(b"<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>"), None);
        assert_eq!(OF_S3.defect(b"<ListBucketResult/>"), None);
    }

    #[test]
    fn what_is_no_whole_page_is_no_listing_without_objects() {
        let good = page("<Contents><Key>a</Key></Contents><KeyCount>1</KeyCount>");
        let truncated = page("<IsTruncated>true</IsTruncated>");
        let fewer = page("<KeyCount>1000</KeyCount><Contents><Key>a</Key></Contents>");
        for wrong in [
            "",
            "<Error><Code>InternalError</Code></Error>",
            "<html><body>Log in</body></html>",
            "<x/>",
            "plain",
            &good[..good.len() - 9],
            &good.repeat(2),
            &format!("{good}<x/>"),
            &truncated,
            &fewer,
            "<ListBucketResult><Name>b</Nam></ListBucketResult>",
            "<EnumerationResults/>",
        ] {
            assert!(OF_S3.defect(wrong.as_bytes()).is_some(), "{wrong}");
        }
    }
}
