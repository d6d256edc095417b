//! How the server of sources takes objects.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use hyper::Method;
use hyper::http::request::Parts;
use md5::{Digest, Md5};

use super::server::{Answer, ObjectFault, SourceObject, State, long_ago, plain, refusal};

/// What somebody else does meanwhile.
pub type Happening = Box<dyn FnOnce(&State) + Send>;

/// What goes wrong with writes. Each is off at first.
#[derive(Default)]
pub struct WriteFaults {
    /// The answer to every object that is put.
    pub refusal: Option<(u16, &'static str)>,
    /// Conditions are refused, because the server does not know them.
    pub no_conditions: bool,
    /// Conditions of these requests are ignored, as `PUT`.
    pub ignored: &'static [Method],
    /// So many conditional requests get a conflict first.
    pub conflicts: usize,
    /// What happens just before a request, as `PUT key`, is looked at.
    pub before: Option<(&'static str, Happening)>,
    /// What becomes of the next requests that complete an upload.
    pub completions: Vec<Completion>,
}

/// What becomes of a request that completes an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// It is done, and nobody hears of it.
    Lost,
    /// The status is sent before it fails.
    FailsLate,
    /// The answer is the form of a proxy.
    Form,
}

impl WriteFaults {
    /// The refusal of a request, which may have a condition.
    fn refused(&mut self, method: &Method, condition: &str, is_taken: bool) -> Option<Answer> {
        if let (&Method::PUT, Some((status, said))) = (method, self.refusal) {
            return Some(refusal(status, said));
        }
        if condition.is_empty() || self.ignored.contains(method) {
            return None;
        }
        assert_eq!(condition, "*");
        if self.no_conditions {
            return Some(refusal(501, "NotImplemented"));
        }
        if let Some(left) = self.conflicts.checked_sub(1) {
            self.conflicts = left;
            return Some(refusal(409, "ConditionalRequestConflict"));
        }
        is_taken.then(|| refusal(412, "PreconditionFailed"))
    }

    /// What becomes of a request to complete an upload, and the answer if it does nothing.
    fn completion(&mut self) -> (Option<Completion>, Option<Answer>) {
        let completion = self.completions.pop();
        let answer = match completion {
            Some(Completion::FailsLate) => {
                Some(plain(200, "<Error><Code>InternalError</Code><ETag>&quot;1&quot;</ETag></Error>"))
            }
            Some(Completion::Form) => Some(plain(200, "<html><ETag>1</ETag></html>")),
            Some(Completion::Lost) | None => None,
        };
        (completion, answer)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn etag_answer(etag: &str) -> Answer {
    let mut answer = plain(200, "");
    answer.headers_mut().insert("etag", format!("\"{etag}\"").parse().unwrap());
    answer
}

fn made(bytes: Bytes, etag: String, noted: [String; 2]) -> SourceObject {
    SourceObject { bytes, etag, fault: ObjectFault::None, gets: 0, old: None, noted, modified: long_ago() }
}

/// The refusal of a request that does not say how long its body is, or whose object has no checksum: what S3 answers,
/// the second in buckets with retention.
fn unsaid(request: &Parts, body: &Bytes) -> Option<Answer> {
    let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    if request.method == Method::DELETE {
        return None;
    }
    if header("content-length") != Some(body.len().to_string().as_str()) {
        return Some(refusal(411, "MissingContentLength"));
    }
    match header("content-md5") {
        None if request.method == Method::PUT => Some(refusal(400, "InvalidRequest")),
        Some(said) if said != BASE64_STANDARD.encode(Md5::digest(body)) => Some(refusal(400, "BadDigest")),
        _ => None,
    }
}

/// Takes an object, or a part of an upload.
pub fn write(state: &State, request: &Parts, key: &str, query: &BTreeMap<String, String>, body: Bytes) -> Answer {
    let header = |name: &str| request.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_string();
    if let Some(answer) = unsaid(request, &body) {
        return answer;
    }
    let mut faults = state.writes.lock().unwrap();
    let (mut objects, mut uploads) = (state.objects.lock().unwrap(), state.uploads.lock().unwrap());
    if objects.get(key).is_some_and(|object| object.fault == ObjectFault::Locked) {
        return refusal(403, "AccessDenied");
    }
    let is_taken = objects.contains_key(key);
    if let Some(answer) = faults.refused(&request.method, &header("if-none-match"), is_taken) {
        return answer;
    }
    let noted = [header("content-type"), header("x-amz-meta-owner")];
    match (&request.method, query.get("uploadId")) {
        (&Method::POST, None) => {
            let id = format!("upload-{}", uploads.len());
            uploads.insert(id.clone(), (key.into(), BTreeMap::new()));
            objects.insert(format!("{key} in parts"), made(Bytes::new(), String::new(), noted));
            plain(
                200,
                format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"),
            )
        }
        (&Method::PUT, Some(id)) => {
            let (_, parts) = uploads.get_mut(id).unwrap();
            // A part that is refused ends the upload.
            if body.starts_with(b"REFUSED PART") {
                return refusal(400, "InvalidRequest");
            }
            let etag = hex(&Md5::digest(&body));
            parts.insert(query["partNumber"].parse().unwrap(), body);
            etag_answer(&etag)
        }
        (&Method::POST, Some(id)) => {
            let (completion, answer) = faults.completion();
            if let Some(answer) = answer {
                return answer;
            }
            let Some((_, parts)) = uploads.remove(id) else { return refusal(404, "NoSuchUpload") };
            let digests: Vec<u8> = parts.values().flat_map(|part| Md5::digest(part).to_vec()).collect();
            let etag = format!("{}-{}", hex(&Md5::digest(&digests)), parts.len());
            let noted = objects.remove(&format!("{key} in parts")).unwrap().noted;
            let whole: Vec<u8> = parts.into_values().flatten().collect();
            objects.insert(key.into(), made(whole.into(), etag.clone(), noted));
            if completion.is_some() {
                return plain(500, "");
            }
            plain(
                200,
                format!(
                    "<CompleteMultipartUploadResult><ETag>&quot;{etag}&quot;</ETag></CompleteMultipartUploadResult>"
                ),
            )
        }
        (&Method::DELETE, Some(id)) => {
            objects.remove(&format!("{key} in parts"));
            if uploads.remove(id).is_some() { plain(204, "") } else { refusal(404, "NoSuchUpload") }
        }
        (&Method::PUT, None) => {
            let etag = hex(&Md5::digest(&body));
            objects.insert(key.into(), made(body, etag.clone(), noted));
            etag_answer(&etag)
        }
        other => panic!("{other:?}"),
    }
}
