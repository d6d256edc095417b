//! Files: `/ORG/NAME/resolve/REVISION/PATH`, whole or a range, or only a look at them.

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use http::{Method, StatusCode};

use super::answer::{self, COMMIT, HttpAnswer};
use super::catalogue::FoundCommit;
use super::fault::Fault;
use super::hashes::{LARGE_FROM, content_etag};
use super::parts::{blocking, frames};
use super::ranges::RangeChoice;
use super::state::ServeState;
use super::target::encoded;
use crate::repo::published::{PublishedFile, PublishedItem, PublishedTree, TreePath};

const LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");
const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");

/// Answers a request for a file.
///
/// # Errors
/// [`Fault::NoEntry`], [`Fault::NoRange`], and those of reading.
pub async fn file(
    state: &ServeState,
    found: FoundCommit,
    path: TreePath,
    method: &Method,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Fault> {
    let commit = found.published.commit;
    let (tree, wanted) = (found.tree.clone(), path.clone());
    let Some(PublishedItem::File(file)) = blocking(move || tree.find(&wanted)).await? else {
        return Err(Fault::NoEntry(commit));
    };
    let etag = state.hashes.etag(&found.tree, &file).await?;
    let etags = [etag, content_etag(&file)?];
    let mut answer = content(&found.tree, &file, &etags, method, headers)?;
    answer::set(&mut answer, COMMIT, &commit);
    // They would be of the body that is not sent, and a cache would believe them.
    if file.len >= LARGE_FROM && answer.status() != StatusCode::NOT_MODIFIED {
        answer::set(&mut answer, LINKED_ETAG, &format!("\"{}\"", etags[0]));
        answer::set(&mut answer, LINKED_SIZE, &file.len.to_string());
    }
    let name = encoded(path.last().map(Vec::as_slice).unwrap_or_default());
    answer::set(&mut answer, CONTENT_DISPOSITION, &format!("attachment; filename*=UTF-8''{name}"));
    Ok(answer)
}

/// Answers a request for the bytes of a file: all, a range, or a look. The first of its ETags is told, and all count.
///
/// # Errors
/// [`Fault::NoRange`]; errors of opening the file.
pub fn content(
    tree: &PublishedTree,
    file: &PublishedFile,
    etags: &[String],
    method: &Method,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Fault> {
    if headers.get(IF_NONE_MATCH).is_some_and(|header| is_named(header.as_bytes(), etags)) {
        let mut answer = answer::text(StatusCode::NOT_MODIFIED, "");
        describe(&mut answer, etags);
        answer.headers_mut().remove(CONTENT_TYPE);
        return Ok(answer);
    }
    let is_same = headers.get(IF_RANGE).is_none_or(|header| is_named(header.as_bytes(), etags));
    let range = headers.get(RANGE).filter(|_| is_same && method == Method::GET);
    // Several headers are as bad as several ranges.
    let is_one = headers.get_all(RANGE).iter().count() <= 1;
    let (status, from, to) = match RangeChoice::of(range.map(|range| range.as_bytes()), file.len) {
        RangeChoice::Part(from, to) if is_one => (StatusCode::PARTIAL_CONTENT, from, to),
        RangeChoice::Whole if is_one || method == Method::HEAD => (StatusCode::OK, 0, file.len),
        _ => return Err(Fault::NoRange(file.len)),
    };
    let body = match *method {
        // A look reads nothing.
        Method::HEAD => answer::whole(""),
        _ => answer::streamed(frames(tree.open(file)?, from, to)),
    };
    let mut answer = answer::with_type(status, "application/octet-stream", body);
    answer.headers_mut().insert(CONTENT_LENGTH, (to - from).into());
    if status == StatusCode::PARTIAL_CONTENT {
        answer::set(&mut answer, CONTENT_RANGE, &format!("bytes {from}-{}/{}", to.saturating_sub(1), file.len));
    }
    describe(&mut answer, etags);
    Ok(answer)
}

/// Whether a header with one or more ETags has one of `names`.
fn is_named(header: &[u8], names: &[String]) -> bool {
    let Ok(header) = std::str::from_utf8(header) else { return false };
    let mut given = header.split(',').map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"'));
    given.any(|tag| tag == "*" || names.iter().any(|name| name == tag))
}

/// Sets what clients want to know of a file, and what keeps a browser from running it.
fn describe(answer: &mut HttpAnswer, etags: &[String]) {
    let etag = etags.first().map(String::as_str).unwrap_or_default();
    answer::set(answer, ETAG, &format!("\"{etag}\""));
    answer::set(answer, ACCEPT_RANGES, "bytes");
    answer::set(answer, CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox");
    // What a proxy keeps must not reach those who may not read it.
    answer::set(answer, CACHE_CONTROL, "private, no-cache");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_found_in_a_list() {
        let names = ["abc".to_string(), "fhrd-1".to_string()];
        for yes in ["\"abc\"", "abc", "W/\"abc\"", "\"x\", \"fhrd-1\"", "*"] {
            assert!(is_named(yes.as_bytes(), &names), "{yes}");
        }
        for no in ["", "\"ab\"", "\"abcd\"", "Wed, 21 Oct 2015 07:28:00 GMT", "\"x\",\"y\""] {
            assert!(!is_named(no.as_bytes(), &names), "{no}");
        }
        assert!(!is_named(b"\xff", &names));
    }
}
