//! Models, as SubDedup sees them: for each block of a tensor the range of a stored model that it is a delta to.
//!
//! 1. When a model begins, its tensors are compared with those of stored models by their sketches
//!    ([`crate::model`]), and each that is near to one gets that as its base.
//! 2. A new block is planned against the same range of its base. Blocks are looked up by their fingerprints in the
//!    base's record; what is not there any more is no base.
//! 3. A block that is a delta itself serves as long as the chain stays within its bound; beyond that, what it is a
//!    delta to serves in its place.
//! 4. When the model ends, its record is complete: the names of all blocks, and what it descends from.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use lru::LruCache;

use super::detect::{ModelFile, TensorBlock};
use super::previous_version::{CoveredRange, PreviousVersion};
use crate::codec::delta::{Cast, Derivation};
use crate::codec::{ByteGroupLayout, ElementType};
use crate::config::{ModelConfig, ModelDelta};
use crate::error::Result;
use crate::format::Dtype;
use crate::model::{BaseChoice, CatalogueBlob, Families, ModelRecord, choose};
use crate::repo::container::{Base, EntryNumber, ExtentMap, FrameNumber, FrameReference, Operation};
use crate::repo::recipe::ContentReference;
use crate::similar::{BaseRange, Bases};
use crate::store::Store;
use crate::types::Fingerprint;

/// Blocks of this session remembered by name.
const BLOCKS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 17).expect("not zero");
/// Ranges of bases that a block may be a delta to, at most.
const OPERATIONS_MAX: usize = 16;

/// What a block is to be stored as a delta to.
#[derive(Debug)]
pub struct DeltaPlan {
    /// How.
    pub derivation: Derivation,
    /// Bytes before the first whole element_type.
    pub phase: usize,
    /// Words of the block: how it is stored if a base proves damaged.
    pub element_type: ElementType,
    /// Ranges of bases, one after another.
    pub base: Vec<(Arc<ExtentMap>, Range<u32>)>,
    /// The frames of all of them, by number.
    pub frames: Vec<(FrameNumber, FrameReference)>,
}

/// A block planned as a delta.
pub struct PlannedDelta {
    /// What ModelEncode needs.
    pub plan: DeltaPlan,
    /// The body.
    pub operations: Vec<Operation>,
    /// Names of the bases, and their entry numbers.
    pub bases: Vec<Base>,
    /// Entry numbers of the bases.
    pub entries: Vec<EntryNumber>,
    /// Depth of its chain.
    pub depth: u8,
}

/// A model whose chunks are coming.
struct OpenModel {
    file: Arc<ModelFile>,
    chosen: BaseChoice,
    /// Names of the blocks of each tensor so far.
    blocks: Vec<Vec<u8>>,
    id: blake3::Hasher,
}

/// See the module.
pub struct DeltaPlanner {
    store: Arc<dyn Store>,
    config: ModelConfig,
    /// Read when the first model comes.
    families: Option<Families>,
    /// Entry numbers of this session's blocks.
    blocks: LruCache<Fingerprint, EntryNumber>,
    open: Option<OpenModel>,
    /// The last version of a file that is no model.
    previous_version: Option<PreviousVersion>,
}

impl DeltaPlanner {
    /// Over the models that `store` holds.
    pub fn new(store: Arc<dyn Store>, config: &ModelConfig) -> Self {
        DeltaPlanner {
            store,
            config: config.clone(),
            families: None,
            blocks: LruCache::new(BLOCKS_MAX),
            open: None,
            previous_version: None,
        }
    }

    /// A model begins.
    ///
    /// # Errors
    /// Those that end the run; records that cannot be read are passed over.
    pub fn begin(&mut self, file: Arc<ModelFile>, bases: &mut Bases) -> Result<()> {
        let tensors = file.record.tensors.len();
        let chosen =
            if self.config.delta == ModelDelta::None { BaseChoice::default() } else { self.choose(&file, bases)? };
        let blocks = vec![Vec::new(); tensors];
        self.open = Some(OpenModel { file, chosen, blocks, id: blake3::Hasher::new() });
        Ok(())
    }

    fn choose(&mut self, file: &ModelFile, bases: &mut Bases) -> Result<BaseChoice> {
        let mut families = match self.families.take() {
            Some(families) => families,
            None => Families::new(CatalogueBlob::load_all(self.store.as_ref())?),
        };
        let mut load = |fingerprint: &Fingerprint| match read_record(fingerprint, bases) {
            Ok(record) => Ok(record.map(Arc::new)),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("not comparing with a stored model: {error}");
                Ok(None)
            }
            Err(error) => Err(error),
        };
        let candidates = families.candidates(&file.record, file.previous_version, &mut load)?;
        self.families = Some(families);
        Ok(choose(&file.record, &candidates))
    }

    /// The next chunk of the model, new or not.
    pub fn note(&mut self, fingerprint: &Fingerprint, block: Option<TensorBlock>) {
        let Some(open) = &mut self.open else { return };
        open.id.update(&fingerprint.0);
        if let Some(blocks) = block.and_then(|block| open.blocks.get_mut(block.tensor)) {
            blocks.extend_from_slice(&fingerprint.0);
        }
    }

    /// TensorBlock `fingerprint` was stored as session entry `entry`.
    pub fn stored(&mut self, fingerprint: Fingerprint, entry: EntryNumber) {
        self.blocks.put(fingerprint, entry);
    }

    /// The file ends; its record, if it was a model and all of it came.
    pub fn end(&mut self, is_complete: bool) -> Option<Arc<ModelRecord>> {
        self.previous_version = None;
        let open = self.open.take().filter(|_| is_complete)?;
        let mut record = open.file.record.clone();
        record.id = Fingerprint(*open.id.finalize().as_bytes());
        record.base = open.chosen.base;
        for (tensor, blocks) in record.tensors.iter_mut().zip(open.blocks) {
            if blocks.len() as u64 != tensor.len.div_ceil(record.block_bytes) * 32 {
                return None;
            }
            tensor.blocks = blocks;
        }
        let record = Arc::new(record);
        if let Some(families) = &mut self.families {
            families.add(record.clone());
        }
        Some(record)
    }

    /// Words of the open model's tensor.
    pub fn element_type(&self, block: TensorBlock) -> ElementType {
        let tensor = self.open.as_ref().and_then(|open| open.file.record.tensors.get(block.tensor));
        tensor.map_or(ElementType::Unknown, |tensor| tensor.dtype().element_type())
    }

    /// How to store a new block as a delta; `None` where it has no base.
    ///
    /// # Errors
    /// Those that end the run; a base that cannot be read is none.
    pub fn plan(&mut self, block: Option<TensorBlock>, len: u32, bases: &mut Bases) -> Result<Option<PlannedDelta>> {
        let Some((block, open)) = block.zip(self.open.as_ref()) else { return Ok(None) };
        let Some(Some(chosen)) = open.chosen.tensors.get(block.tensor) else { return Ok(None) };
        let Some(tensor) = open.file.record.tensors.get(block.tensor) else { return Ok(None) };
        let Some(base) = chosen.model.tensors.get(chosen.tensor) else { return Ok(None) };
        let derivation = match (self.config.delta, derivation_of(tensor.dtype(), base.dtype())) {
            (_, None) | (ModelDelta::None, _) | (ModelDelta::Xor, Some(Derivation::Cast(_))) => return Ok(None),
            (ModelDelta::Xor, Some(_)) => Derivation::Xor,
            (ModelDelta::Context, Some(derivation)) => derivation,
        };
        let width = |dtype: Dtype| dtype.width().unwrap_or(1) as u64;
        let scaled = |offset: u64| offset / width(tensor.dtype()) * width(base.dtype());
        let range = scaled(block.offset)..scaled(block.offset + u64::from(len)).min(base.len);
        let (model, at, element_type) = (chosen.model.clone(), chosen.tensor, tensor.dtype().element_type());
        let parts = self.parts(&model, at, range, bases);
        none_if_damaged(parts.and_then(|parts| planned(parts, derivation, element_type, bases)))
    }

    /// The next bytes are of a file that was there before, and no model.
    pub fn begin_previous_version(&mut self, content: ContentReference) {
        self.previous_version = (self.config.delta != ModelDelta::None).then(|| PreviousVersion::new(content));
    }

    /// How to store a chunk of floats that lie like `layout` as a delta to bytes `range` of the file's last version.
    ///
    /// # Errors
    /// Those that end the run.
    pub fn plan_previous_version(
        &mut self,
        range: Range<u64>,
        layout: ByteGroupLayout,
        bases: &mut Bases,
    ) -> Result<Option<PlannedDelta>> {
        let Some(mut previous_version) = self.previous_version.take() else { return Ok(None) };
        let covered = previous_version.cover(range, bases);
        self.previous_version = Some(previous_version);
        let element_type = match layout.width() {
            2 => ElementType::Bf16,
            4 => ElementType::Fp32,
            8 => ElementType::Fp64,
            _ => ElementType::Byte,
        };
        let derivation = match self.config.delta {
            ModelDelta::Xor => Derivation::Xor,
            ModelDelta::Context | ModelDelta::None => Derivation::Context(element_type),
        };
        let mut parts = Vec::new();
        let found = covered.and_then(|covered| {
            for CoveredRange { fingerprint, offset, len } in covered.unwrap_or_default() {
                if !self.push_part(&fingerprint, offset..offset + len, bases, &mut parts)? {
                    return Ok(None);
                }
            }
            Ok((!parts.is_empty()).then_some(parts))
        });
        let mut made =
            none_if_damaged(found.and_then(|parts| planned(parts, derivation, ElementType::Unknown, bases)))?;
        made.iter_mut().for_each(|made| made.plan.phase = layout.phase());
        Ok(made)
    }

    /// The stored blocks that make a range of a tensor, none of them too deep.
    fn parts(
        &mut self,
        model: &ModelRecord,
        tensor: usize,
        range: Range<u64>,
        bases: &mut Bases,
    ) -> Result<Option<Vec<BaseRange>>> {
        let Some(record) = model.tensors.get(tensor) else { return Ok(None) };
        let (mut parts, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let index = at / model.block_bytes;
            let start = index * model.block_bytes;
            let end = (start + model.block_bytes).min(range.end);
            let Some(fingerprint) = record.block(index) else { return Ok(None) };
            let inside = (at - start) as u32..(end - start) as u32;
            if !self.push_part(&fingerprint, inside, bases, &mut parts)? {
                return Ok(None);
            }
            at = end;
        }
        Ok((!parts.is_empty()).then_some(parts))
    }

    /// Adds a range of a stored chunk; `false` if it is no base.
    fn push_part(
        &mut self,
        fingerprint: &Fingerprint,
        range: Range<u32>,
        bases: &mut Bases,
        parts: &mut Vec<BaseRange>,
    ) -> Result<bool> {
        let known = self.blocks.get(fingerprint).copied();
        let Some(entry) = known.map_or_else(|| bases.entry_of(fingerprint), |entry| Ok(Some(entry)))? else {
            return Ok(false);
        };
        self.push_shallow(BaseRange { entry, offset: range.start, len: range.end - range.start }, bases, parts)
    }

    /// Adds a part, or what it is a delta to if its chain is as long as it may be.
    fn push_shallow(&self, part: BaseRange, bases: &mut Bases, parts: &mut Vec<BaseRange>) -> Result<bool> {
        if parts.len() >= OPERATIONS_MAX {
            return Ok(false);
        }
        if bases.depth(part.entry)? <= self.config.delta_depth_max {
            parts.push(part);
            return Ok(true);
        }
        let Some(below) = bases.delta_parts(part.entry)? else { return Ok(false) };
        let (mut start, wanted) = (0u32, part.offset..part.offset + part.len);
        for BaseRange { entry, offset, len } in below {
            let (from, to) = (wanted.start.max(start), wanted.end.min(start + len));
            if from < to {
                let deeper = BaseRange { entry, offset: offset + from - start, len: to - from };
                if !self.push_shallow(deeper, bases, parts)? {
                    return Ok(false);
                }
            }
            start += len;
        }
        Ok(true)
    }
}

fn read_record(fingerprint: &Fingerprint, bases: &mut Bases) -> Result<Option<ModelRecord>> {
    let bytes = bases.read_metadata(fingerprint)?;
    bytes.map(|bytes| ModelRecord::decode(fingerprint, &bytes)).transpose()
}

fn derivation_of(new: Dtype, base: Dtype) -> Option<Derivation> {
    match (new.element_type(), base.element_type()) {
        (to, from) if to != from => Cast::between(from, to).map(Derivation::Cast),
        (ElementType::Byte | ElementType::Unknown, _) => (new == base).then_some(Derivation::Bytes),
        (element_type, _) => Some(Derivation::Context(element_type)),
    }
}

/// A base that is damaged or gone is none.
fn none_if_damaged(made: Result<Option<PlannedDelta>>) -> Result<Option<PlannedDelta>> {
    match made {
        Err(error) if error.is_unreadable() => {
            tracing::warn!("storing a block without its base: {error}");
            Ok(None)
        }
        made => made,
    }
}

fn planned(
    parts: Option<Vec<BaseRange>>,
    derivation: Derivation,
    element_type: ElementType,
    bases: &mut Bases,
) -> Result<Option<PlannedDelta>> {
    let Some(parts) = parts else { return Ok(None) };
    let plan = DeltaPlan { derivation, phase: 0, element_type, base: Vec::new(), frames: Vec::new() };
    let mut planned = PlannedDelta { plan, operations: Vec::new(), bases: Vec::new(), entries: Vec::new(), depth: 0 };
    for part in parts {
        let extent_map = bases.extent_map(part.entry)?;
        for number in extent_map.frames() {
            if !planned.plan.frames.iter().any(|frame| frame.0 == *number) {
                let Some(source) = bases.frame_reference(*number)? else { return Ok(None) };
                planned.plan.frames.push((*number, source));
            }
        }
        planned.depth = planned.depth.max(bases.depth(part.entry)? + 1);
        let base = match planned.entries.iter().position(|entry| *entry == part.entry) {
            Some(at) => at,
            None => {
                planned.bases.push(bases.name(part.entry)?);
                planned.entries.push(part.entry);
                planned.entries.len() - 1
            }
        };
        planned.operations.push(Operation::Delta { base: base as u32, offset: part.offset, len: part.len });
        planned.plan.base.push((extent_map, part.offset..part.offset + part.len));
    }
    Ok(Some(planned))
}
