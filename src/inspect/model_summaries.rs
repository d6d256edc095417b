//! Summaries of the stored model records, found by content or by id.
//!
//! The catalogue is read at once, a record only when it is needed. If a model has several records, the oldest readable
//! one counts: a later copy may name the model itself as its base.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::format::card::hub_name;
use crate::model::{BaseModel, CatalogueBlob, CatalogueEntry, ModelRecord, SkippedCatalogues};
use crate::repo::index::is_anything_bad;
use crate::repo::read::ChunkReader;
use crate::store::Store;
use crate::types::Fingerprint;

/// File stems that do not identify a model.
const COMMON_STEMS: &[&str] =
    &["model", "pytorch_model", "diffusion_pytorch_model", "adapter_model", "consolidated", "weights", "checkpoint"];

/// A model record without its tensors.
#[derive(Debug, Clone)]
pub struct ModelSummary {
    /// [`ModelRecord::id`].
    pub id: Fingerprint,
    /// Name to show.
    pub name: String,
    /// Path of the first stored file with this content, as bytes.
    pub path: Vec<u8>,
    /// Name of the file format.
    pub format: String,
    /// Number of values in all tensors.
    pub parameters: u64,
    /// Bytes of tensors by the code of their type.
    pub dtypes: Vec<(u16, u64)>,
    /// The model that most of it was stored against; `None` if that is the model itself.
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

/// Name of a model at `path`.
pub fn name_at(path: &Path) -> String {
    let text = |name: Option<&OsStr>| name.map(|name| name.to_string_lossy().into_owned());
    let above = path.ancestors().skip(1).take(3);
    let hub = above.filter_map(|directory| text(directory.file_name())).find_map(|directory| hub_name(&directory));
    let directory = path.parent().and_then(Path::file_name);
    let names = [text(directory), hub, text(path.file_stem())];
    name(&names.into_iter().flatten().collect::<Vec<_>>())
}

/// Chooses from the names of the directory, the hub repository and the file, in this order. The hub repository wins.
/// Otherwise it is the file, unless its stem is common to many models: then it is the directory.
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

/// All models that the catalogue lists.
pub struct ModelSummaries {
    entries: Vec<CatalogueEntry>,
    by_content: HashMap<Fingerprint, Vec<usize>>,
    by_id: HashMap<Fingerprint, Vec<usize>>,
    cached: HashMap<Fingerprint, Option<Rc<ModelSummary>>>,
    /// What of the catalogue could not be read: models may be missing here.
    pub skipped: SkippedCatalogues,
    /// Whether a record that nobody finds may be lost. `None`: nobody has asked.
    may_be_lost: Option<bool>,
}

impl ModelSummaries {
    /// Reads the catalogue. Unreadable blobs are skipped with a warning.
    ///
    /// # Errors
    /// Fails if the store cannot be listed.
    pub fn load(store: &dyn Store) -> Result<Self> {
        let (entries, skipped) = CatalogueBlob::load_readable(store)?;
        let (mut by_content, mut by_id) = (HashMap::new(), HashMap::new());
        for (at, entry) in entries.iter().enumerate() {
            by_id.entry(entry.id).or_insert_with(Vec::new).push(at);
            if let Some(content) = entry.content {
                by_content.entry(content).or_insert_with(Vec::new).push(at);
            }
        }
        Ok(ModelSummaries { entries, by_content, by_id, cached: HashMap::new(), skipped, may_be_lost: None })
    }

    /// Whether a content is a model of the catalogue.
    pub fn holds(&self, content: &Fingerprint) -> bool {
        self.by_content.contains_key(content)
    }

    /// The model with this content.
    ///
    /// # Errors
    /// Fails if its record cannot be read for a reason other than damage. A damaged record is skipped with a warning.
    pub fn with_content(
        &mut self,
        content: &Fingerprint,
        reader: &mut ChunkReader,
    ) -> Result<Option<Rc<ModelSummary>>> {
        let first = self.by_content.get(content).and_then(|found| self.entries.get(*found.first()?));
        first.map(|entry| entry.id).map_or(Ok(None), |id| self.with_id(&id, reader))
    }

    /// The model with this id.
    ///
    /// # Errors
    /// As for [`Self::with_content`].
    pub fn with_id(&mut self, id: &Fingerprint, reader: &mut ChunkReader) -> Result<Option<Rc<ModelSummary>>> {
        if let Some(summary) = self.cached.get(id) {
            return Ok(summary.clone());
        }
        let mut found = None;
        for at in self.by_id.get(id).into_iter().flatten() {
            let Some(entry) = self.entries.get(*at) else { continue };
            match reader.read(&entry.record).and_then(|bytes| ModelRecord::decode(&entry.record, &bytes)) {
                Ok(record) if record.id == *id => {
                    found = Some(Rc::new(ModelSummary::of(&record)));
                    break;
                }
                Ok(_) => tracing::warn!("skipping the model record {}: it is of another model", entry.record),
                Err(error) if error.is_unreadable() => {
                    // A prune deletes records of models that no snapshot needs, and leaves the catalogue.
                    let is_gone = matches!(&error, Error::ChunkMissing { fingerprint }
                        if *fingerprint == entry.record.to_string());
                    if is_gone && self.may_be_lost.is_none() {
                        self.may_be_lost = Some(is_anything_bad(reader.resolver.locator.listing())?);
                    }
                    if !is_gone || self.may_be_lost == Some(true) {
                        tracing::warn!("skipping a model record: {error}");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.cached.insert(*id, found.clone());
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_identifies_the_model() {
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
