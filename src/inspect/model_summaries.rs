//! Models that the repository has records of, found by their content or by their name.
//!
//! The catalogue gives the heads; a record is read when it is asked for, and only what reports need of it is kept. Of
//! several records of one model the oldest that can be read counts: a later copy may name the model itself as its base.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::rc::Rc;

use crate::error::Result;
use crate::format::card::hub_name;
use crate::model::{BaseModel, CatalogueBlob, CatalogueEntry, ModelRecord};
use crate::repo::reader::ChunkReader;
use crate::store::Store;
use crate::types::Fingerprint;

/// File names that say nothing of the model in them, without their extensions.
const COMMON_STEMS: &[&str] =
    &["model", "pytorch_model", "diffusion_pytorch_model", "adapter_model", "consolidated", "weights", "checkpoint"];

/// What a record says, without its tensors.
#[derive(Debug, Clone)]
pub struct ModelSummary {
    /// [`ModelRecord::id`].
    pub id: Fingerprint,
    /// Its name for people.
    pub name: String,
    /// Where it was when it was stored first, as bytes.
    pub path: Vec<u8>,
    /// Format it was recognised as.
    pub format: String,
    /// Values of all tensors.
    pub parameters: u64,
    /// Bytes of tensors by the code of their type.
    pub dtypes: Vec<(u16, u64)>,
    /// What most of it was stored against, if that is another model.
    pub base: Option<BaseModel>,
}

impl ModelSummary {
    fn of(record: &ModelRecord) -> Self {
        ModelSummary {
            id: record.id,
            name: name(&record.names),
            path: record.path.clone(),
            format: record.format.clone(),
            parameters: record.parameters,
            dtypes: record.dtypes(),
            base: record.base.clone().filter(|base| base.id != record.id),
        }
    }
}

/// What a model at `path` is called.
pub fn name_at(path: &Path) -> String {
    let text = |name: Option<&OsStr>| name.map(|name| name.to_string_lossy().into_owned());
    let above = path.ancestors().skip(1).take(3);
    let hub = above.filter_map(|directory| text(directory.file_name())).find_map(|directory| hub_name(&directory));
    let directory = path.parent().and_then(Path::file_name);
    let names = [text(directory), hub, text(path.file_stem())];
    name(&names.into_iter().flatten().collect::<Vec<_>>())
}

/// The name on a hub, if there is one; else the file's, unless that is what everybody calls it: then the directory's.
fn name(names: &[String]) -> String {
    let on_hub = names.iter().find(|name| name.contains('/'));
    let own = || {
        let stem = names.last()?;
        let is_common = COMMON_STEMS.iter().any(|common| {
            let rest = stem.strip_prefix(common);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.', '_']))
        });
        if is_common { names.first() } else { Some(stem) }
    };
    on_hub.or_else(own).cloned().unwrap_or_default()
}

/// See the module.
pub struct ModelSummaries {
    heads: Vec<CatalogueEntry>,
    by_content: HashMap<Fingerprint, Vec<usize>>,
    by_id: HashMap<Fingerprint, Vec<usize>>,
    read: HashMap<Fingerprint, Option<Rc<ModelSummary>>>,
}

impl ModelSummaries {
    /// Reads the heads; catalogues that cannot be read are passed over with a warning.
    ///
    /// # Errors
    /// Those of the store.
    pub fn load(store: &dyn Store) -> Result<Self> {
        let heads = CatalogueBlob::load_all(store)?;
        let (mut by_content, mut by_id) = (HashMap::new(), HashMap::new());
        for (at, head) in heads.iter().enumerate() {
            by_id.entry(head.id).or_insert_with(Vec::new).push(at);
            if let Some(content) = head.content {
                by_content.entry(content).or_insert_with(Vec::new).push(at);
            }
        }
        Ok(ModelSummaries { heads, by_content, by_id, read: HashMap::new() })
    }

    /// Whether a content is that of a model.
    pub fn holds(&self, content: &Fingerprint) -> bool {
        self.by_content.contains_key(content)
    }

    /// The model with this content.
    ///
    /// # Errors
    /// Those of reading that are no damage; damaged records are passed over with a warning.
    pub fn with_content(
        &mut self,
        content: &Fingerprint,
        reader: &mut ChunkReader,
    ) -> Result<Option<Rc<ModelSummary>>> {
        let first = self.by_content.get(content).and_then(|found| self.heads.get(*found.first()?));
        first.map(|head| head.id).map_or(Ok(None), |id| self.with_id(&id, reader))
    }

    /// The model of this name.
    ///
    /// # Errors
    /// As for [`Self::with_content`].
    pub fn with_id(&mut self, id: &Fingerprint, reader: &mut ChunkReader) -> Result<Option<Rc<ModelSummary>>> {
        if let Some(known) = self.read.get(id) {
            return Ok(known.clone());
        }
        let mut found = None;
        for at in self.by_id.get(id).map(Vec::as_slice).unwrap_or_default() {
            let Some(head) = self.heads.get(*at) else { continue };
            match reader.read(&head.record).and_then(|bytes| ModelRecord::decode(&head.record, &bytes)) {
                Ok(record) if record.id == *id => {
                    found = Some(Rc::new(ModelSummary::of(&record)));
                    break;
                }
                Ok(_) => tracing::warn!("passing over the record {} of another model", head.record),
                Err(error) if error.is_unreadable() => {
                    tracing::warn!("passing over the record of a model: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        self.read.insert(*id, found.clone());
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_what_tells_them_apart() {
        let of = |names: &[&str]| name(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        assert_eq!(of(&["my-tune", "model"]), "my-tune");
        assert_eq!(of(&["my-tune", "model-00001-of-00002"]), "my-tune");
        assert_eq!(of(&["downloads", "tiny.Q8_0"]), "tiny.Q8_0");
        assert_eq!(of(&["tune", "org/tune", "0123abc"]), "org/tune");
        assert_eq!(of(&[]), "");
        assert_eq!(name_at(Path::new("home/tune/model-*-of-00002.safetensors")), "tune");
        assert_eq!(name_at(Path::new("hub/models--org--tune/blobs/0123abc")), "org/tune");
        assert_eq!(name_at(Path::new("tiny.Q8_0.gguf")), "tiny.Q8_0");
    }
}
