//! Models: which files of a snapshot are models, what they descend from, and the stored size of each.
//!
//! 1. Walk the trees of the snapshots. A file is a model if the catalogue has its content.
//! 2. Group the shards of one directory into one model (`shards`).
//! 3. If several models have the same content, the first by path is the model, and the others are its copies.
//! 4. Look up the names of bases and of family roots.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::labels::{NamedModel, labels};
use super::list::{Visit, walk_finding};
use super::model_summaries::ModelSummaries;
use super::shards::{ModelReaders, ModelShard, ShardGroup, pattern};
use crate::error::{Error, Result};
use crate::model::BaseModel;
use crate::repo::Repository;
use crate::repo::read::{ChunkReader, Reader};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::tree::{Node, NodeKind};
use crate::types::{Fingerprint, SnapshotId};

/// Maximum number of models from a model to the root of its family.
pub const DEPTH_MAX: usize = 1 << 16;

/// A model: one file, or several shards.
#[derive(Debug, Clone)]
pub struct ModelReport {
    /// Snapshot that has the model.
    pub snapshot: SnapshotId,
    /// Path in the snapshot; of several shards, their pattern.
    pub path: PathBuf,
    /// Name to show.
    pub name: String,
    /// Id of each shard.
    pub ids: Vec<Fingerprint>,
    /// Number of files.
    pub shards: usize,
    /// Name of the file format.
    pub format: String,
    /// Name of the type that has the most bytes, as the files give it.
    pub dtype: String,
    /// Number of values in all tensors.
    pub parameters: u64,
    /// Bytes of all files.
    pub size: u64,
    /// Stored bytes of its chunks; `None` if damage prevents counting them.
    pub stored_bytes: Option<u64>,
    /// Path of the model listed before with the same content.
    pub same_as: Option<PathBuf>,
    /// The model that it descends from.
    pub base: Option<BaseModel>,
    /// Name of the base, if it is known.
    pub base_name: Option<String>,
    /// Name of the root of its family.
    pub family: String,
    /// Id of that root; `None` for a model without shards.
    pub(super) root: Option<Fingerprint>,
}

/// The models of some snapshots, and the readers to look further.
pub struct FoundModels {
    /// Sorted by path.
    pub models: Vec<ModelReport>,
    /// All models that the catalogue lists.
    pub summaries: ModelSummaries,
    /// Reads records and listings.
    pub reader: ChunkReader,
}

/// The models of `snapshots`. With several snapshots, each content is listed once, for the first snapshot that has it.
///
/// # Errors
/// Fails if a tree cannot be read, and with [`Error::Interrupted`] once `stop` is set.
pub fn models(repository: &Repository, snapshots: &[NamedSnapshot], stop: &AtomicBool) -> Result<FoundModels> {
    let files = Reader::open(repository)?;
    let mut readers = ModelReaders { metadata: files.chunks(), files };
    let mut summaries = ModelSummaries::load(repository.store.as_ref())?;
    let mut groups: BTreeMap<(PathBuf, usize), ShardGroup> = BTreeMap::new();
    let mut seen = HashSet::new();
    for (number, snapshot) in snapshots.iter().enumerate() {
        let mut files = Vec::new();
        walk_finding(&mut readers.metadata, snapshot, None, &mut |path, node| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let Some(content) = node.content else { return Ok(Visit::Other) };
            // With several snapshots, a directory or file seen before is skipped.
            let is_new = snapshots.len() == 1 || seen.insert(content);
            if is_new && is_model(&summaries, node) {
                files.push((path.to_path_buf(), content, node.size));
                return Ok(Visit::Found);
            }
            Ok(if is_new { Visit::Other } else { Visit::Skip })
        })?;
        for (path, content, size) in files {
            let Some(fingerprint) = content.fingerprint() else { continue };
            let Some(summary) = summaries.with_content(&fingerprint, &mut readers.metadata)? else { continue };
            let group = groups.entry((pattern(&path).unwrap_or(path.clone()), number)).or_default();
            group.shards.push(ModelShard { path, content, size, summary });
        }
    }
    let mut models = Vec::with_capacity(groups.len());
    for ((path, number), group) in groups {
        if let Some(snapshot) = snapshots.get(number) {
            models.push(group.report(snapshot.id, path, &mut summaries, &mut readers)?);
        }
    }
    find_copies(&mut models);
    name_relatives(&mut models, &mut summaries, &mut readers.metadata)?;
    Ok(FoundModels { models, summaries, reader: readers.metadata })
}

/// The directories of a snapshot that have a model, ascending.
///
/// # Errors
/// Fails if a tree cannot be read, and with [`Error::Interrupted`] once `stop` is set.
pub fn model_directories(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    stop: &AtomicBool,
) -> Result<BTreeSet<PathBuf>> {
    let mut metadata = Reader::open(repository)?.chunks();
    let summaries = ModelSummaries::load(repository.store.as_ref())?;
    let mut directories = BTreeSet::new();
    walk_finding(&mut metadata, snapshot, None, &mut |path, node| {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if !is_model(&summaries, node) {
            return Ok(Visit::Other);
        }
        directories.insert(path.parent().unwrap_or(path).to_path_buf());
        Ok(Visit::Found)
    })?;
    Ok(directories)
}

/// How a model is stored against its base.
pub fn kind(base: &BaseModel) -> &'static str {
    base.relation().name()
}

/// The bit distance from a base, for people; `-` if no values were compared.
pub fn bits(base: &BaseModel) -> String {
    if base.relation().has_distance() { format!("{:.2}", base.bit_distance) } else { "-".into() }
}

/// Sets `same_as` of each model that has the content of a model before it.
fn find_copies(models: &mut [ModelReport]) {
    let mut first: HashMap<Vec<Fingerprint>, PathBuf> = HashMap::new();
    for model in models {
        model.same_as = first.get(&model.ids).cloned();
        first.entry(model.ids.clone()).or_insert_with(|| model.path.clone());
    }
}

/// Sets the names of bases and roots: from the list if it has them, otherwise from their records.
fn name_relatives(models: &mut [ModelReport], summaries: &mut ModelSummaries, reader: &mut ChunkReader) -> Result<()> {
    let mut indexes: HashMap<Fingerprint, usize> = HashMap::new();
    let mut named: Vec<NamedModel> = Vec::new();
    for model in models.iter().filter(|model| model.same_as.is_none()) {
        for id in &model.ids {
            indexes.entry(*id).or_insert(named.len());
        }
        let path = model.path.as_os_str().as_encoded_bytes().to_vec();
        named.push(NamedModel { name: model.name.clone(), path, id: model.ids.first().copied() });
    }
    for id in models.iter().flat_map(|model| model.base.as_ref().map(|base| base.id).into_iter().chain(model.root)) {
        if let Entry::Vacant(vacant) = indexes.entry(id)
            && let Some(summary) = summaries.with_id(&id, reader)?
        {
            vacant.insert(named.len());
            named.push(NamedModel { name: summary.name.clone(), path: summary.path.clone(), id: Some(id) });
        }
    }
    let labels = labels(&named);
    let label = |id: Fingerprint| labels.get(*indexes.get(&id)?).cloned();
    for model in models {
        model.base_name = model.base.as_ref().and_then(|base| label(base.id));
        model.family = model.root.and_then(label).unwrap_or_else(|| model.name.clone());
    }
    Ok(())
}

/// Whether a node is a file whose content is in the catalogue.
pub fn is_model(summaries: &ModelSummaries, node: &Node) -> bool {
    let fingerprint = node.content.filter(|_| node.kind == NodeKind::File).and_then(ContentReference::fingerprint);
    fingerprint.is_some_and(|fingerprint| summaries.holds(&fingerprint))
}
