//! Objects in cold storage (S3 Glacier and what others call so): whether they can be read, and requests for them.
//!
//! S3 shows the class of an object and the state of its last request in headers that the client does not give back. So
//! these requests are sent as those of locks are.

use object_store::path::Path;
use object_store::signer::Method;

use super::RemoteStore;
use super::failure::{Cause, RequestFailure};
use super::locks::ObjectLocks;
use super::requests::RequestKind;
use crate::error::{Error, Result};
use crate::store::{BlobName, ThawRequest, ThawState, Thawing};

/// Classes whose objects can be read at once. The server says none of the usual class. All others may be cold.
const READABLE_CLASSES: [&str; 8] = [
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "GLACIER_IR",
    "REDUCED_REDUNDANCY",
    "INTELLIGENT_TIERING",
    "EXPRESS_ONEZONE",
    "ONEZONE",
];

impl ObjectLocks {
    async fn thaw_state(&self, object: &Path) -> Result<ThawState, RequestFailure> {
        let answer = self.send(Method::HEAD, object, None, None).await?;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        Ok(state_of(header("x-amz-storage-class"), header("x-amz-restore")))
    }

    async fn thaw(&self, object: &Path, request: &ThawRequest) -> Result<ThawState, RequestFailure> {
        match self.thaw_state(object).await? {
            ThawState::Cold => {}
            state => return Ok(state),
        }
        let ThawRequest { days, tier } = request;
        let xml = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        let body = format!(
            "<RestoreRequest {xml}><Days>{days}</Days><GlacierJobParameters><Tier>{tier}</Tier></GlacierJobParameters>\
             </RestoreRequest>"
        );
        match self.send(Method::POST, object, Some("restore"), Some(body)).await {
            // 202 that it was asked for, 200 that it is there. A later look tells.
            Ok(_) => Ok(ThawState::Asked),
            // Somebody else has just asked.
            Err(failure) if failure.cause() == Cause::Taken => Ok(ThawState::Asked),
            // Objects of this class are not asked for.
            Err(failure) if failure.cause() == Cause::Cold => Ok(ThawState::Readable),
            Err(failure) => Err(failure),
        }
    }
}

/// What the headers say. One that was thawed says until when.
fn state_of(class: Option<&str>, restore: Option<&str>) -> ThawState {
    match (class, restore) {
        (_, Some(restore)) if restore.contains("ongoing-request=\"true\"") => ThawState::Asked,
        (_, Some(restore)) if restore.contains("ongoing-request=\"false\"") => ThawState::Readable,
        (Some(class), _) if !READABLE_CLASSES.contains(&class) => ThawState::Cold,
        _ => ThawState::Readable,
    }
}

impl RemoteStore {
    fn thaws(&self) -> Result<&ObjectLocks> {
        self.locks.as_ref().ok_or_else(|| Error::internal("a store without requests for cold storage was asked"))
    }
}

impl Thawing for RemoteStore {
    fn thaw_state(&self, name: &BlobName) -> Result<ThawState> {
        let (thaws, object) = (self.thaws()?, self.object(name));
        self.read("inspect", name, async || thaws.thaw_state(&object).await)
    }

    fn thaw(&self, name: &BlobName, request: &ThawRequest) -> Result<ThawState> {
        let (thaws, object) = (self.thaws()?, self.object(name));
        let asked = self.requests.run(RequestKind::Write, async || thaws.thaw(&object, request).await)?;
        asked.map_err(|failure| self.error(failure, "thaw", name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_say_whether_an_object_can_be_read() {
        let (running, done) = ("ongoing-request=\"true\"", "ongoing-request=\"false\", expiry-date=\"Fri, 1 Jan\"");
        for (class, restore, expected) in [
            (None, None, ThawState::Readable),
            (Some("STANDARD_IA"), None, ThawState::Readable),
            (Some("GLACIER_IR"), None, ThawState::Readable),
            (Some("GLACIER"), None, ThawState::Cold),
            (Some("glacier-sc"), None, ThawState::Cold),
            (Some("DEEP_ARCHIVE"), Some(running), ThawState::Asked),
            (Some("DEEP_ARCHIVE"), Some(done), ThawState::Readable),
        ] {
            assert_eq!(state_of(class, restore), expected, "{class:?}, {restore:?}");
        }
    }
}
