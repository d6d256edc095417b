//! Looks at an object before it is read in ranges: which object it is now, and whether it is a model.

use std::path::Path;
use std::sync::Arc;

use super::cards::ObjectCards;
use super::content::{BLOCK_BYTES, ObjectContent};
use super::message::ObjectFailure;
use super::placed::PlacedObject;
use crate::config::ModelConfig;
use crate::error::{Error, ErrorKind};
use crate::model::{DefectReporting, ModelContent, ModelFile, model_content, names};
use crate::read_at::ReadAt;
use crate::store::{ExpectedObject, Fetched, ObjectState, SourceBucket};
use crate::types::Fingerprint;

/// What models are recognised with.
pub struct ModelSearch {
    /// Where the objects are.
    pub bucket: Arc<SourceBucket>,
    /// The cards beside them.
    pub cards: ObjectCards,
    /// How models are recognised.
    pub config: ModelConfig,
}

/// An object that was looked at.
#[derive(Debug, Clone)]
pub struct ExaminedObject {
    /// What all its ranges must be of.
    pub state: ObjectState,
    /// Its record, if it is a model.
    pub model: Option<Arc<ModelFile>>,
}

impl ModelSearch {
    /// Looks at an object, which must be the one of the listing if it `is_listed`.
    pub fn examine(
        &self,
        placed: &PlacedObject,
        is_listed: bool,
        previous_version: Option<Fingerprint>,
        reporting: DefectReporting,
    ) -> Result<ExaminedObject, ObjectFailure> {
        let (bucket, key) = (&*self.bucket, placed.object.key.as_str());
        let listed = placed.object.expected();
        let (wanted, end) = match is_listed {
            true => (ExpectedObject::Same(&listed), BLOCK_BYTES.min(placed.object.size)),
            false => (ExpectedObject::SameOrNewer(&listed), BLOCK_BYTES),
        };
        let start = match bucket.fetch(key, 0..end, wanted).map_err(ObjectFailure::Error)? {
            Fetched::Range(start) => start,
            Fetched::Replaced => return Err(ObjectFailure::Replaced),
        };
        if start.state.etag.is_none() && start.state.size > start.bytes.len() as u64 {
            let reason = "the server gives no ETag, so nothing says whether its ranges are of one object".into();
            let (action, what, kind) = ("read", bucket.url_of(key), ErrorKind::Failed);
            return Err(ObjectFailure::Error(Error::Remote { action, what, reason, kind }));
        }
        let content = ObjectContent::new(bucket, key, start.state.clone(), start.bytes);
        let model = self.model(placed, &content, start.state.size, previous_version, reporting);
        match model {
            Ok(model) => Ok(ExaminedObject { state: start.state, model }),
            Err(error) => Err(content.failure().unwrap_or(ObjectFailure::Error(error))),
        }
    }

    /// Recognises the content of an object as a model.
    ///
    /// # Errors
    /// Errors of reading it.
    pub fn model(
        &self,
        placed: &PlacedObject,
        bytes: &dyn ReadAt,
        len: u64,
        previous_version: Option<Fingerprint>,
        reporting: DefectReporting,
    ) -> crate::error::Result<Option<Arc<ModelFile>>> {
        let path = Path::new(self.bucket.url()).join(&placed.path);
        let names = || names(&path, &|card: &Path| self.cards.read(card));
        let content = ModelContent { bytes, len, path: &path, has_holes: &|| false, names: &names };
        model_content(&content, &self.config, previous_version, reporting)
    }

    /// The error of an object that was not read whole.
    ///
    /// # Errors
    /// The same where the run is to stop, since no other object can be read.
    pub fn problem(&self, placed: &PlacedObject, failure: ObjectFailure) -> Result<Error, Error> {
        match failure {
            ObjectFailure::Error(error) if error.kind() == ErrorKind::Interrupted => Err(Error::Interrupted),
            ObjectFailure::Error(error) if self.bucket.is_lost() => Err(error),
            ObjectFailure::Error(error) => Ok(error),
            ObjectFailure::Replaced => {
                let changed = std::io::Error::other("it was replaced while it was read, again and again");
                Ok(Error::io("read consistently", self.bucket.url_of(&placed.object.key), changed))
            }
        }
    }
}
