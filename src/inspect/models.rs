//! Models: which files of a snapshot are model files, what they descend from, and what they take.
//!
//! 1. The snapshot's tree is walked; a file is a model if the catalogue knows its content.
//! 2. The shards of one directory are put together to one model.
//! 3. Of several copies of a content the first by path is the model, the others are the same as it.
//! 4. What a model takes is the sum over its distinct chunks of their entries' shares of the stored bytes of their
//!    frames. A delta's literal bytes are its payload; what is copied costs nothing.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::dtype_names::main_dtype_name;
use super::labels::{NamedModel, labels};
use super::list::walk;
use super::model_summaries::{ModelSummaries, ModelSummary, name_at};
use crate::error::{Error, Result};
use crate::format::Dtype;
use crate::model::BaseModel;
use crate::repo::Repository;
use crate::repo::index::Listing;
use crate::repo::reader::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::stored_file::SharedReader;
use crate::repo::tree::{Node, NodeKind};
use crate::types::{Fingerprint, SnapshotId};

/// Decoded frames of listings and records kept, bytes.
const CACHE_BYTES: usize = 16 << 20;
/// Models between a model and the root of its family, at most.
pub const DEPTH_MAX: usize = 1 << 16;

/// A model: a file, or the shards that make one.
#[derive(Debug, Clone)]
pub struct ModelReport {
    /// The snapshot it was found in.
    pub snapshot: SnapshotId,
    /// Where it is in the snapshot; of several shards a pattern.
    pub path: PathBuf,
    /// Its name for people.
    pub name: String,
    /// Names of its files.
    pub ids: Vec<Fingerprint>,
    /// How many files it is.
    pub shards: usize,
    /// Format of the files.
    pub format: String,
    /// Type of most of its bytes, as its files call it.
    pub values: String,
    /// Values of all tensors.
    pub parameters: u64,
    /// Bytes of its files.
    pub size: u64,
    /// Bytes that its chunks take; none where that cannot be read.
    pub stored_bytes: Option<u64>,
    /// The model of the same content that is listed before it.
    pub same_as: Option<PathBuf>,
    /// What it descends from.
    pub base: Option<BaseModel>,
    /// What that is called, as far as it is known.
    pub base_name: Option<String>,
    /// What the model is called that its family begins with.
    pub family: String,
    /// That model; none without a content.
    root: Option<Fingerprint>,
}

/// The models found, and what else is known of them.
pub struct FoundModels {
    /// By path.
    pub models: Vec<ModelReport>,
    /// Every model that the repository has a record of.
    pub catalogue: ModelSummaries,
    /// What they were read through.
    pub reader: ChunkReader,
}

/// The models of `snapshots`; a content is listed once, where it is found first, unless there is one snapshot only.
///
/// # Errors
/// Those of reading the trees, and [`Error::Interrupted`] once `stop` is set.
pub fn models(repository: &Repository, snapshots: &[NamedSnapshot], stop: &AtomicBool) -> Result<FoundModels> {
    let listing = Arc::new(Listing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing.clone(), CACHE_BYTES);
    // Types are read through a reader of their own, which several files share.
    let labels = Rc::new(RefCell::new(ChunkReader::new(repository, listing, CACHE_BYTES)));
    let mut catalogue = ModelSummaries::load(repository.store.as_ref())?;
    let mut groups: BTreeMap<(PathBuf, usize), ShardGroup> = BTreeMap::new();
    let mut seen = HashSet::new();
    for (number, snapshot) in snapshots.iter().enumerate() {
        let mut files = Vec::new();
        walk(&mut reader, snapshot, None, &mut |path, node| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let Some(content) = node.content else { return Ok(true) };
            // Of several snapshots, directories and files that were seen are passed over.
            let is_new = snapshots.len() == 1 || seen.insert(content);
            if is_new && is_model(&catalogue, node) {
                files.push((path.to_path_buf(), content, node.size));
            }
            Ok(is_new)
        })?;
        for (path, content, size) in files {
            let Some(fingerprint) = name_of(&content) else { continue };
            let Some(known) = catalogue.with_content(&fingerprint, &mut reader)? else { continue };
            let group = groups.entry((pattern(&path).unwrap_or(path.clone()), number)).or_default();
            group.files.push(ModelShard { path, content, size, known });
        }
    }
    let mut models = Vec::with_capacity(groups.len());
    for ((path, number), group) in groups {
        if let Some(snapshot) = snapshots.get(number) {
            models.push(group.model(snapshot.id, path, &mut catalogue, (&mut reader, &labels))?);
        }
    }
    find_copies(&mut models);
    name_relatives(&mut models, &mut catalogue, &mut reader)?;
    Ok(FoundModels { models, catalogue, reader })
}

/// Marks models that have the content of one before them.
fn find_copies(models: &mut [ModelReport]) {
    let mut first: HashMap<Vec<Fingerprint>, PathBuf> = HashMap::new();
    for model in models {
        model.same_as = first.get(&model.ids).cloned();
        first.entry(model.ids.clone()).or_insert_with(|| model.path.clone());
    }
}

/// Sets what bases and roots are called: by their place in the list if they are there, else as their records say.
fn name_relatives(models: &mut [ModelReport], catalogue: &mut ModelSummaries, reader: &mut ChunkReader) -> Result<()> {
    let mut places: HashMap<Fingerprint, usize> = HashMap::new();
    // Name, path and id.
    let mut called: Vec<(String, Vec<u8>, Option<Fingerprint>)> = Vec::new();
    for model in models.iter().filter(|model| model.same_as.is_none()) {
        for id in &model.ids {
            places.entry(*id).or_insert(called.len());
        }
        let path = model.path.as_os_str().as_encoded_bytes().to_vec();
        called.push((model.name.clone(), path, model.ids.first().copied()));
    }
    for id in models.iter().flat_map(|model| model.base.as_ref().map(|base| base.id).into_iter().chain(model.root)) {
        if let Entry::Vacant(place) = places.entry(id)
            && let Some(known) = catalogue.with_id(&id, reader)?
        {
            place.insert(called.len());
            called.push((known.name.clone(), known.path.clone(), Some(id)));
        }
    }
    let all: Vec<NamedModel> =
        called.iter().map(|(name, path, id)| NamedModel { name, path, id: id.as_ref() }).collect();
    let labels = labels(&all);
    let label = |id: Fingerprint| labels.get(*places.get(&id)?).cloned();
    for model in models {
        model.base_name = model.base.as_ref().and_then(|base| label(base.id));
        model.family = model.root.and_then(label).unwrap_or_else(|| model.name.clone());
    }
    Ok(())
}

/// Whether the catalogue knows the file's content.
pub fn is_model(catalogue: &ModelSummaries, node: &Node) -> bool {
    node.kind == NodeKind::File && node.content.as_ref().and_then(name_of).is_some_and(|name| catalogue.holds(&name))
}

/// The fingerprint that names a content.
fn name_of(content: &ContentReference) -> Option<Fingerprint> {
    match content {
        ContentReference::Chunk { fingerprint, .. } | ContentReference::Recipe { fingerprint, .. } => {
            Some(*fingerprint)
        }
        ContentReference::Hole { .. } => None,
    }
}

/// The path of a shard, `*` for its number: `x-00001-of-00004.y` is one of `x-*-of-00004.y`.
fn pattern(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes();
    let is_number = |bytes: &[u8]| bytes.len() >= 5 && bytes.iter().all(u8::is_ascii_digit);
    let at = name.windows(4).position(|window| window == b"-of-")?;
    let (front, back) = (name.get(..at)?, name.get(at + 4..)?);
    let dash = front.iter().rposition(|byte| *byte == b'-')?;
    let total = back.split(|byte| *byte == b'.').next()?;
    if !is_number(front.get(dash + 1..)?) || !is_number(total) || total.len() == back.len() {
        return None;
    }
    let name = [front.get(..=dash)?, b"*-of-", back].concat();
    Some(path.with_file_name(OsStr::from_bytes(&name)))
}

/// A model file of a snapshot.
struct ModelShard {
    path: PathBuf,
    content: ContentReference,
    size: u64,
    known: Rc<ModelSummary>,
}

/// The files of one model.
#[derive(Default)]
struct ShardGroup {
    files: Vec<ModelShard>,
}

impl ShardGroup {
    fn model(
        self,
        snapshot: SnapshotId,
        pattern: PathBuf,
        catalogue: &mut ModelSummaries,
        (reader, labels): (&mut ChunkReader, &SharedReader),
    ) -> Result<ModelReport> {
        let known = || self.files.iter().map(|file| &file.known);
        let mut dtypes: BTreeMap<u16, u64> = BTreeMap::new();
        known().flat_map(|known| &known.dtypes).for_each(|(code, bytes)| *dtypes.entry(*code).or_default() += bytes);
        let most = dtypes.into_iter().max_by_key(|total| total.1).and_then(|most| Dtype::from_code(most.0));
        let ids: Vec<Fingerprint> = known().map(|known| known.id).collect();
        let base = common_base(known().filter_map(|known| known.base.as_ref()));
        let own = known().next();
        let path = match self.files.as_slice() {
            [only] => only.path.clone(),
            _ => pattern,
        };
        let name = name_at(&path);
        let contents: Vec<_> = self.files.iter().map(|file| (file.path.as_path(), file.content, file.size)).collect();
        let root = root(&ids, base.as_ref(), catalogue, reader)?;
        let stored_bytes = match stored_bytes(self.files.iter().map(|file| file.content), reader) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("cannot tell what {} takes: {error}", path.display());
                None
            }
            Err(error) => return Err(error),
        };
        Ok(ModelReport {
            snapshot,
            path,
            shards: self.files.len(),
            format: own.map(|known| known.format.clone()).unwrap_or_default(),
            values: main_dtype_name(labels, &contents, most.unwrap_or(Dtype::Other))?.into_owned(),
            parameters: known().map(|known| known.parameters).fold(0, u64::saturating_add),
            size: self.files.iter().map(|file| file.size).sum(),
            stored_bytes,
            name,
            ids,
            same_as: None,
            base,
            base_name: None,
            family: String::new(),
            root,
        })
    }
}

/// The base that most bytes of all shards have, at the mean distance of the shards that have it.
fn common_base<'a>(bases: impl Iterator<Item = &'a BaseModel> + Clone) -> Option<BaseModel> {
    let most = bases.clone().max_by_key(|base| base.bytes)?;
    // Shards are stored against shards, each of its own name.
    let (mut bytes, mut cast_bytes, mut distance) = (0u64, 0u64, 0.0);
    for base in bases {
        bytes = bytes.saturating_add(base.bytes);
        cast_bytes = cast_bytes.saturating_add(if base.is_cast { base.bytes } else { 0 });
        distance += base.bit_distance * base.bytes as f64;
    }
    let bit_distance = if bytes == 0 { most.bit_distance } else { distance / bytes as f64 };
    Some(BaseModel { id: most.id, bit_distance, bytes, is_cast: cast_bytes > bytes / 2 })
}

/// Follows the bases to the first model of the family. One whose record is lost ends the way.
fn root(
    ids: &[Fingerprint],
    base: Option<&BaseModel>,
    catalogue: &mut ModelSummaries,
    reader: &mut ChunkReader,
) -> Result<Option<Fingerprint>> {
    let mut passed: HashSet<Fingerprint> = ids.iter().copied().collect();
    let (mut root, mut next) = (ids.first().copied(), base.map(|base| base.id));
    while let Some(id) = next
        && passed.len() < DEPTH_MAX
        && passed.insert(id)
        && let Some(known) = catalogue.with_id(&id, reader)?
    {
        root = Some(id);
        next = known.base.as_ref().map(|base| base.id);
    }
    Ok(root)
}

/// What the distinct chunks of some contents take.
fn stored_bytes(contents: impl Iterator<Item = ContentReference>, reader: &mut ChunkReader) -> Result<u64> {
    let (mut seen, mut sum) = (HashSet::new(), 0.0f64);
    for content in contents {
        let mut walk = RecipeWalk::new(content);
        while let Some(reference) = walk.next(reader)? {
            if let ContentReference::Chunk { fingerprint, .. } = reference
                && seen.insert(fingerprint)
            {
                sum += share(&fingerprint, reader)?;
            }
        }
    }
    Ok(sum.round() as u64)
}

/// The part of its frame's stored bytes that a chunk's literal bytes take.
fn share(fingerprint: &Fingerprint, reader: &mut ChunkReader) -> Result<f64> {
    let located = reader.resolver.locator.locate(fingerprint)?;
    let located = located.ok_or_else(|| Error::ChunkMissing { fingerprint: fingerprint.to_string() })?;
    let container_index = &located.container_index;
    let entry = container_index.entries.get(located.entry as usize);
    let frame = entry.and_then(|entry| container_index.frames.get(entry.frame as usize));
    Ok(match entry.zip(frame) {
        Some((entry, frame)) if frame.raw_len > 0 => {
            frame.stored_bytes() as f64 * (f64::from(entry.literal_len) / f64::from(frame.raw_len))
        }
        _ => 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_one_directory_have_one_pattern() {
        let of = |path: &str| pattern(Path::new(path)).map(|path| path.to_str().unwrap().to_string());
        assert_eq!(of("a/x-00001-of-00004.safetensors").as_deref(), Some("a/x-*-of-00004.safetensors"));
        assert_eq!(of("a/x-00004-of-00004.safetensors").as_deref(), Some("a/x-*-of-00004.safetensors"));
        assert_eq!(of("a/x.f16-00002-of-00003.gguf").as_deref(), Some("a/x.f16-*-of-00003.gguf"));
        for other in ["a/x-1-of-4.safetensors", "a/model.safetensors", "a/x-of-y.z", "a/x-00001-of-00004", "-of-"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn shards_have_the_base_of_most_bytes_at_their_mean_distance() {
        let base = |id: u8, bytes: u64, bit_distance: f64, is_cast| BaseModel {
            id: Fingerprint([id; 32]),
            bytes,
            bit_distance,
            is_cast,
        };
        let bases = [base(1, 10, 1.0, true), base(2, 30, 2.0, false)];
        assert_eq!(common_base(bases.iter()), Some(base(2, 40, 1.75, false)));
        assert_eq!(common_base([].iter()), None);
    }
}
