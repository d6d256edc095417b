//! What fails, as clients of registries know it.

use http::HeaderName;
use http::header::WWW_AUTHENTICATE;
use serde_json::json;

use crate::serve::answer::{self, HttpAnswer};
use crate::serve::fault::Fault;

/// Header that says that a server is a registry.
pub const VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");
/// Its value.
pub const VERSION_VALUE: &str = "registry/2.0";
/// How to say who asks: the password is a token, and the name of the user is none of our business.
const LOGIN: &str = "Basic realm=\"fhrd\"";

/// The answer to a request to a registry that fails.
pub fn registry_fault(fault: Fault) -> HttpAnswer {
    let code = match &fault {
        Fault::NoToken | Fault::WrongToken => "UNAUTHORIZED",
        Fault::NotAllowed | Fault::Forbidden(_) | Fault::ForeignHost | Fault::ForeignOrigin => "DENIED",
        Fault::NoName => "NAME_UNKNOWN",
        Fault::NoRevision => "MANIFEST_UNKNOWN",
        Fault::NoBlob | Fault::NoEntry(_) => "BLOB_UNKNOWN",
        Fault::Busy => "TOOMANYREQUESTS",
        Fault::NoMethod(_) | Fault::NoRoute | Fault::Refused(_) => "UNSUPPORTED",
        _ => "UNKNOWN",
    };
    let message = match &fault {
        Fault::NoRevision => "there is no such tag or manifest".into(),
        fault => fault.message(),
    };
    let needs_token = matches!(fault, Fault::NoToken | Fault::WrongToken);
    let document = json!({ "errors": [{ "code": code, "message": message }] }).to_string();
    let mut answer = HttpAnswer::from(fault).map(|_| answer::whole(document));
    answer::set(&mut answer, VERSION, VERSION_VALUE);
    if needs_token {
        answer::set(&mut answer, WWW_AUTHENTICATE, LOGIN);
    }
    answer
}
