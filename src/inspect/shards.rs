//! Shards: the files of one model, reported together.
//!
//! 1. Files of one directory whose names differ only in the shard number have one pattern.
//! 2. The base of a model is the base of most of its bytes.
//! 3. The stored size of a model is the sum over its distinct chunks. A chunk counts as the part of its frame's stored
//!    bytes that its literal bytes are of the frame. A delta's payload is literal, and copied bytes are free.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::model_summaries::{ModelSummaries, ModelSummary, name_at};
use super::models::{DEPTH_MAX, ModelReport};
use crate::error::{Error, Result};
use crate::format::{Dtype, ListedArray, list_arrays};
use crate::model::{BaseModel, Relation};
use crate::read_at::unwrapped;
use crate::repo::container::blob_name;
use crate::repo::read::{ChunkReader, Reader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::types::{Fingerprint, SnapshotId};

/// What a report of models reads through.
pub(super) struct ModelReaders {
    /// Listings, recipes and records.
    pub metadata: ChunkReader,
    /// Model files.
    pub files: Reader,
}

/// A model file of a snapshot.
pub(super) struct ModelShard {
    pub path: PathBuf,
    pub content: ContentReference,
    pub size: u64,
    pub summary: Rc<ModelSummary>,
}

/// The files of one model.
#[derive(Default)]
pub(super) struct ShardGroup {
    pub shards: Vec<ModelShard>,
}

/// The pattern of a shard's path, with `*` for the number: `x-00001-of-00004.y` gives `x-*-of-00004.y`.
pub(super) fn pattern(path: &Path) -> Option<PathBuf> {
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

impl ShardGroup {
    /// The report of the model, without the names of its relatives.
    pub(super) fn report(
        self,
        snapshot: SnapshotId,
        pattern: PathBuf,
        summaries: &mut ModelSummaries,
        readers: &mut ModelReaders,
    ) -> Result<ModelReport> {
        let own = || self.shards.iter().map(|shard| &shard.summary);
        let mut dtypes: BTreeMap<u16, u64> = BTreeMap::new();
        own().flat_map(|summary| &summary.dtypes).for_each(|(code, bytes)| *dtypes.entry(*code).or_default() += bytes);
        let most = dtypes.into_iter().max_by_key(|total| total.1).and_then(|most| Dtype::from_code(most.0));
        let ids: Vec<Fingerprint> = own().map(|summary| summary.id).collect();
        let base = common_base(own().filter_map(|summary| summary.base.as_ref()));
        let path = match self.shards.as_slice() {
            [only] => only.path.clone(),
            _ => pattern,
        };
        let root = root(&ids, base.as_ref(), summaries, &mut readers.metadata)?;
        let references = self.shards.iter().map(|shard| shard.content);
        let stored_bytes = match stored_bytes(references, &mut readers.metadata) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("cannot compute the stored size of {}: {error}", path.display());
                None
            }
            Err(error) => return Err(error),
        };
        Ok(ModelReport {
            snapshot,
            name: name_at(&path),
            path,
            shards: self.shards.len(),
            format: own().next().map(|summary| summary.format.clone()).unwrap_or_default(),
            dtype: self.dtype_name(most.unwrap_or(Dtype::Other), &readers.files)?.into_owned(),
            parameters: own().map(|summary| summary.parameters).fold(0, u64::saturating_add),
            size: self.shards.iter().map(|shard| shard.size).sum(),
            stored_bytes,
            ids,
            same_as: None,
            base,
            base_name: None,
            family: String::new(),
            root,
        })
    }

    /// The name that the files give to `dtype`; of several names, the one of most bytes. Damaged files are skipped.
    fn dtype_name(&self, dtype: Dtype, reader: &Reader) -> Result<Cow<'static, str>> {
        let is_ambiguous = matches!(dtype, Dtype::Int64 | Dtype::Int32 | Dtype::Int16 | Dtype::Int8 | Dtype::Float8);
        let mut totals: BTreeMap<Cow<'static, str>, u64> = BTreeMap::new();
        let mut add = |name, bytes| {
            let total: &mut u64 = totals.entry(name).or_default();
            *total = total.saturating_add(bytes);
        };
        for shard in self.shards.iter().filter(|_| is_ambiguous) {
            match shard.dtype_names(dtype, reader) {
                Ok(names) => names.into_iter().for_each(|(name, bytes)| add(name, bytes)),
                Err(error) if error.is_unreadable() => {
                    tracing::warn!("cannot read the tensor types of {}: {error}", shard.path.display());
                }
                Err(error) => return Err(error),
            }
        }
        let most = totals.into_iter().max_by_key(|total| total.1);
        Ok(most.map_or(Cow::Borrowed(dtype.name()), |most| most.0))
    }
}

impl ModelShard {
    /// The names that the file gives to `dtype`, each with the bytes of its tensors.
    fn dtype_names(&self, dtype: Dtype, reader: &Reader) -> Result<BTreeMap<Cow<'static, str>, u64>> {
        let file = reader.file(Some(self.content), self.size)?;
        let mut names: BTreeMap<Cow<'static, str>, u64> = BTreeMap::new();
        let listed = list_arrays(&file, self.size, &mut |listed| {
            if let ListedArray::Array(array) = listed
                && array.value_type.dtype == dtype
            {
                let total = names.entry(array.value_type.name).or_default();
                *total = total.saturating_add(array.len);
            }
        });
        listed.map_err(|error| unwrapped(error, &self.path))?;
        Ok(names)
    }
}

/// The base of most bytes. Its distance is the mean over all shards that have a base.
fn common_base<'a>(bases: impl Iterator<Item = &'a BaseModel> + Clone) -> Option<BaseModel> {
    let most = bases.clone().max_by_key(|base| base.bytes)?;
    // Each shard has a base shard with an id of its own, so the ids are not compared.
    let (mut bytes, mut distance) = (0u64, 0.0);
    let mut relations: Vec<(Relation, u64)> = Vec::new();
    for base in bases {
        bytes = bytes.saturating_add(base.bytes);
        distance += base.bit_distance * base.bytes as f64;
        match relations.iter_mut().find(|known| known.0 == base.relation()) {
            Some(known) => known.1 = known.1.saturating_add(base.bytes),
            None => relations.push((base.relation(), base.bytes)),
        }
    }
    let bit_distance = if bytes == 0 { most.bit_distance } else { distance / bytes as f64 };
    // The relation of most bytes, the first of equals.
    let relation = relations.iter().rev().max_by_key(|known| known.1).map_or(most.relation(), |known| known.0);
    let is_cast = relation == Relation::Cast;
    Some(BaseModel { id: most.id, bit_distance, bytes, is_cast, relation: Some(relation.number()) })
}

/// Follows the bases to the root of the family. A base of another family is not followed. A lost record ends the walk.
fn root(
    ids: &[Fingerprint],
    base: Option<&BaseModel>,
    summaries: &mut ModelSummaries,
    reader: &mut ChunkReader,
) -> Result<Option<Fingerprint>> {
    let mut visited: HashSet<Fingerprint> = ids.iter().copied().collect();
    let above = |base: &BaseModel| base.relation().is_family().then_some(base.id);
    let (mut root, mut next) = (ids.first().copied(), base.and_then(above));
    while let Some(id) = next
        && visited.len() < DEPTH_MAX
        && visited.insert(id)
        && let Some(summary) = summaries.with_id(&id, reader)?
    {
        root = Some(id);
        next = summary.base.as_ref().and_then(above);
    }
    Ok(root)
}

/// Stored bytes of the distinct chunks of some files, by their content references.
fn stored_bytes(references: impl Iterator<Item = ContentReference>, reader: &mut ChunkReader) -> Result<u64> {
    let (mut seen, mut sum) = (HashSet::new(), 0.0f64);
    for content in references {
        let mut walk = RecipeWalk::of_stored(content);
        while let Some(reference) = walk.next(reader)? {
            if let ContentReference::Chunk { fingerprint, .. } = reference
                && seen.insert(fingerprint)
            {
                sum += chunk_stored_bytes(&fingerprint, reader)?;
            }
        }
    }
    Ok(sum.round() as u64)
}

/// A chunk's part of its frame's stored bytes, in proportion to its literal bytes.
pub(super) fn chunk_stored_bytes(fingerprint: &Fingerprint, reader: &mut ChunkReader) -> Result<f64> {
    let located = reader.resolver.locator.locate(fingerprint)?;
    let located = located.ok_or_else(|| Error::ChunkMissing { fingerprint: fingerprint.to_string() })?;
    let container_index = &located.container_index;
    let entry = container_index.entries.get(located.entry as usize);
    if entry.is_some_and(|entry| entry.literal_len == 0) {
        // A chunk that is all copied has no frame.
        return Ok(0.0);
    }
    let frame = entry.and_then(|entry| container_index.frames.get(entry.frame as usize));
    let Some((entry, frame)) = entry.zip(frame) else {
        let expected = format!("an entry and a frame of chunk {fingerprint}");
        return Err(Error::corrupt(blob_name(&located.container), 0, expected, "none"));
    };
    if frame.raw_len == 0 {
        return Ok(0.0);
    }
    Ok(frame.stored_bytes() as f64 * (f64::from(entry.literal_len) / f64::from(frame.raw_len)))
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
    fn the_base_of_shards_is_that_of_most_bytes_at_their_mean_distance() {
        let base = |id: u8, bytes: u64, bit_distance: f64, is_cast| BaseModel {
            id: Fingerprint([id; 32]),
            bytes,
            bit_distance,
            is_cast,
            relation: None,
        };
        let bases = [base(1, 10, 1.0, true), base(2, 30, 2.0, false)];
        let near = Some(Relation::Near.number());
        assert_eq!(common_base(bases.iter()), Some(BaseModel { relation: near, ..base(2, 40, 1.75, false) }));
        assert_eq!(common_base([].iter()), None);
    }
}
