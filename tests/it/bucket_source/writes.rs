//! How the server of sources takes objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::Method;
use hyper::http::request::Parts;
use md5::{Digest, Md5};

use super::server::{Answer, ObjectFault, SourceObject, State, plain, refusal};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes an object, or a part of an upload.
pub fn write(state: &State, request: &Parts, key: &str, query: &BTreeMap<String, String>, body: Bytes) -> Answer {
    let header = |name: &str| request.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_string();
    let (mut objects, mut uploads) = (state.objects.lock().unwrap(), state.uploads.lock().unwrap());
    if objects.get(key).is_some_and(|object| object.fault == ObjectFault::Locked) {
        return refusal(403, "AccessDenied");
    }
    let noted = [header("content-type"), header("x-amz-meta-owner")];
    let made =
        |bytes: Bytes, etag: String, noted| SourceObject { bytes, etag, fault: ObjectFault::None, gets: 0, noted };
    let etag_answer = |etag: &str| {
        let mut answer = plain(200, "");
        answer.headers_mut().insert("etag", format!("\"{etag}\"").parse().unwrap());
        answer
    };
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
            let (_, parts) = uploads.remove(id).unwrap();
            let digests: Vec<u8> = parts.values().flat_map(|part| Md5::digest(part).to_vec()).collect();
            let etag = format!("{}-{}", hex(&Md5::digest(&digests)), parts.len());
            let noted = objects.remove(&format!("{key} in parts")).unwrap().noted;
            let whole: Vec<u8> = parts.into_values().flatten().collect();
            objects.insert(key.into(), made(whole.into(), etag.clone(), noted));
            plain(
                200,
                format!(
                    "<CompleteMultipartUploadResult><ETag>&quot;{etag}&quot;</ETag></CompleteMultipartUploadResult>"
                ),
            )
        }
        (&Method::DELETE, Some(id)) => {
            uploads.remove(id).unwrap();
            objects.remove(&format!("{key} in parts"));
            plain(204, "")
        }
        (&Method::PUT, None) => {
            let etag = hex(&Md5::digest(&body));
            objects.insert(key.into(), made(body, etag.clone(), noted));
            etag_answer(&etag)
        }
        other => panic!("{other:?}"),
    }
}
