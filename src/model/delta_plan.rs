//! Delta planning: finds for each block of a tensor the range of a stored model that it becomes a delta to.
//!
//! 1. When a model begins, its tensors are compared with those of stored models ([`crate::model`]). Each tensor near
//!    enough to a stored one, or to an earlier one of the same file, gets that as its base.
//! 2. A new block is planned against the same range of its base. The base's record has the fingerprints of the base's
//!    blocks; a block that the repository no longer has is no base.
//! 3. A base block may be a delta itself. Whether the new delta builds on it or on a base below depends on their sizes
//!    ([`super::chain`]).
//! 4. When the model ends, its record is complete: the fingerprints of all blocks, and the model it descends from.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use lru::LruCache;

use super::base_ranges::{
    BlockRange, block_ranges, derivation_of, element_type_of, load_record, none_if_unreadable, planned, push_below,
    record_base, with_one_more,
};
use super::block_plan::{BlockPlan, PlannedDelta};
use super::chain::{ChainLink, EntrySizes};
use super::choice::TensorBase;
use super::detect::{ModelFile, TensorBlock};
use super::previous_version::{CoveredRange, PreviousVersion};
use super::slice_plan::SliceTrial;
use crate::codec::delta::Derivation;
use crate::codec::{ByteGroupLayout, ElementType};
use crate::config::{ModelConfig, ModelDelta};
use crate::error::Result;
use crate::format::Dtype;
use crate::model::{BaseChoice, BaseModel, CatalogueBlob, Families, FinishedModel, Relation, TensorRecord, choose};
use crate::repo::container::{Base, EntryNumber};
use crate::repo::recipe::ContentReference;
use crate::similar::{BaseRange, Bases};
use crate::store::Store;
use crate::types::Fingerprint;

/// Blocks of this session that are remembered by fingerprint.
const BLOCKS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 17).expect("not zero");
/// Share of the values of a plain block that its base must have: the samples of a delta's size suppose weights.
const PLAIN_EQUAL_SHARE: f64 = 0.5;
/// Bases of a block that are noted, at most.
const BASES_MAX: usize = 4;
/// Models below the base of a model in a run, at least. A long delta to a root costs at least three eighths of itself
/// more than one to the step before, and is half the root: so many of them cost what a new root does.
const RUN_MODELS: usize = 4;
/// A copy in another type takes at most so many bits of a value. Its base, as that of a pruned tensor, is the very
/// entry that it was made of: what lies below that has other values.
const COPY_BITS: f64 = 0.5;
/// The chain of a copy may be longer than that of other deltas by this.
pub(super) const COPY_DEPTH: u8 = 4;
/// Ranges of bases in a delta to a tensor or a previous version, at most.
pub(super) const OPERATIONS_MAX: usize = 16;

/// A model whose chunks are still arriving.
struct ModelInProgress {
    file: Arc<ModelFile>,
    chosen: BaseChoice,
    /// Fingerprints of each tensor's blocks so far.
    blocks: Vec<Vec<u8>>,
    /// What its blocks are stored against, if it has no base yet.
    bases: Vec<Fingerprint>,
    id: blake3::Hasher,
    /// Whether it is one of many that follow each other, once that is asked.
    is_of_run: Option<bool>,
}

/// Plans the deltas of one backup.
pub struct DeltaPlanner {
    store: Arc<dyn Store>,
    config: ModelConfig,
    /// Quantised tensors may follow from floats, and pruned ones from others.
    pub(super) derives: bool,
    /// Known models; read when the first model arrives.
    families: Option<Families>,
    /// Entry numbers of this session's blocks.
    blocks: LruCache<Fingerprint, EntryNumber>,
    sizes: EntrySizes,
    open: Option<ModelInProgress>,
    /// Previous version of the current file, which is not a model.
    previous_version: Option<PreviousVersion>,
    /// The entries that the last plan considered, before it took what is below them.
    considered: Vec<EntryNumber>,
    /// The last plan is to begin a chain.
    begins_chain: bool,
}

impl DeltaPlanner {
    /// A planner over the models that `store` holds. With `derives`, quantised tensors may follow from floats and
    /// pruned ones from others, which the repository must have a feature for.
    pub fn new(store: Arc<dyn Store>, config: &ModelConfig, derives: bool) -> Self {
        DeltaPlanner {
            store,
            config: config.clone(),
            derives: derives && config.delta == ModelDelta::Context,
            families: None,
            blocks: LruCache::new(BLOCKS_MAX),
            sizes: EntrySizes::default(),
            open: None,
            previous_version: None,
            considered: Vec::new(),
            begins_chain: false,
        }
    }

    /// A trial that encodes as blocks of this run are.
    pub fn trial(&self) -> SliceTrial {
        SliceTrial::new(self.derives)
    }

    /// Begins a model and chooses its bases.
    ///
    /// # Errors
    /// Errors that end the run; unreadable records are skipped.
    pub fn begin(&mut self, file: Arc<ModelFile>, bases: &mut Bases) -> Result<()> {
        let tensors = file.record.tensors.len();
        let chosen =
            if self.config.delta == ModelDelta::None { BaseChoice::default() } else { self.choose(&file, bases)? };
        let blocks = vec![Vec::new(); tensors];
        self.open = Some(ModelInProgress {
            file,
            chosen,
            blocks,
            bases: Vec::new(),
            id: blake3::Hasher::new(),
            is_of_run: None,
        });
        Ok(())
    }

    fn choose(&mut self, file: &ModelFile, bases: &mut Bases) -> Result<BaseChoice> {
        let mut families = match self.families.take() {
            Some(families) => families,
            None => {
                let stored = CatalogueBlob::load_known(self.store.as_ref())?;
                Families::new(stored, self.derives, self.config.outline_bytes.0 as usize)
            }
        };
        let mut load = |fingerprint: &Fingerprint| load_record(fingerprint, bases);
        let candidates = families.candidates(&file.record, file.previous_version, &mut load)?;
        self.families = Some(families);
        Ok(choose(&file.record, &candidates, self.derives))
    }

    /// Notes the next chunk of the model, new or not.
    pub fn note(&mut self, fingerprint: &Fingerprint, block: Option<TensorBlock>) {
        let Some(open) = &mut self.open else { return };
        open.id.update(&fingerprint.0);
        if let Some(blocks) = block.and_then(|block| open.blocks.get_mut(block.tensor)) {
            blocks.extend_from_slice(&fingerprint.0);
        }
    }

    /// Bytes of a row of a tensor of the open model, for each way to take it as a matrix.
    pub fn row_bytes(&self, tensor: usize) -> Vec<u64> {
        let tensor = self.open.as_ref().and_then(|open| open.file.record.tensors.get(tensor));
        tensor.map_or_else(Vec::new, TensorRecord::row_bytes)
    }

    /// Notes that block `fingerprint` is stored as entry `entry`, of which `bytes` are expected.
    pub fn stored(&mut self, fingerprint: Fingerprint, entry: EntryNumber, bytes: u64) {
        self.blocks.put(fingerprint, entry);
        self.sizes.expect(entry, bytes);
    }

    /// Notes that the current block is stored against these bases.
    pub fn stored_against(&mut self, bases: &[Base]) {
        if let Some(open) = self.open.as_mut().filter(|open| open.chosen.base.is_none()) {
            open.bases.extend(bases.iter().take(BASES_MAX).map(|base| base.fingerprint));
        }
    }

    /// What a model descends from none of whose tensors is like one of another model: blocks of it are ranges of that
    /// one, or its card names it.
    fn other_base(&mut self, open: &ModelInProgress, bases: &mut Bases) -> Result<Option<BaseModel>> {
        let Some(families) = &self.families else { return Ok(None) };
        let blocks: usize = open.blocks.iter().map(|blocks| blocks.len() / 32).sum();
        let is_part = !open.bases.is_empty() && open.bases.len() * 2 >= blocks;
        let against: HashSet<Fingerprint> = open.bases.iter().copied().filter(|_| is_part).collect();
        let mut load = |fingerprint: &Fingerprint| load_record(fingerprint, bases);
        let part = families.holding(&against, &mut load)?.map(|id| (id, Relation::Part));
        let named = || families.named(&open.file.record.bases).filter(|id| !open.chosen.distant.contains(id));
        let found = part.or_else(|| Some((named()?, Relation::Named)));
        Ok(found.map(|(id, relation)| BaseModel {
            id,
            bit_distance: 0.0,
            bytes: 0,
            is_cast: false,
            relation: Some(relation.number()),
        }))
    }

    /// Ends the file. Returns its record if it is a model and all its chunks have arrived.
    ///
    /// # Errors
    /// Errors that end the run.
    pub fn end(&mut self, is_complete: bool, bases: &mut Bases) -> Result<Option<FinishedModel>> {
        self.previous_version = None;
        let Some(mut open) = self.open.take().filter(|_| is_complete) else { return Ok(None) };
        if open.chosen.base.is_none() {
            open.chosen.base = self.other_base(&open, bases)?;
        }
        let mut record = open.file.record.clone();
        record.id = Fingerprint(*open.id.finalize().as_bytes());
        record.base = open.chosen.base.filter(|base| base.id != record.id);
        for (tensor, blocks) in record.tensors.iter_mut().zip(open.blocks) {
            if blocks.len() as u64 != tensor.len.div_ceil(record.block_bytes) * 32 {
                return Ok(None);
            }
            tensor.blocks = blocks;
        }
        let record = Arc::new(record);
        let mut like = None;
        if let Some(families) = &mut self.families {
            families.add(record.clone());
            let base = record.base.as_ref().filter(|_| self.config.delta_depth_max > 1);
            let stored = base.and_then(|base| families.record_of(&base.id));
            like = stored.map_or(Ok(None), |stored| record_base(&stored, bases))?;
        }
        Ok(Some(FinishedModel { record, like }))
    }

    /// Plans a new block. The base of a plain block must have most of its values.
    ///
    /// # Errors
    /// Errors that end the run; an unreadable base is no base.
    pub fn plan(&mut self, block: TensorBlock, len: u32, is_plain: bool, bases: &mut Bases) -> Result<BlockPlan> {
        (self.considered, self.begins_chain) = (Vec::new(), false);
        let Some(open) = self.open.as_ref() else { return Ok(BlockPlan::Unplanned) };
        let Some(Some(chosen)) = open.chosen.tensors.get(block.tensor) else { return Ok(BlockPlan::Unplanned) };
        if is_plain && chosen.equal_share < PLAIN_EQUAL_SHARE {
            return Ok(BlockPlan::Unplanned);
        }
        let Some(tensor) = open.file.record.tensors.get(block.tensor) else { return Ok(BlockPlan::Unplanned) };
        if chosen.second.is_some() && self.config.delta == ModelDelta::Context {
            let (dtype, chosen) = (tensor.dtype(), chosen.clone());
            match self.plan_blend(dtype, &chosen, (block.offset, len), bases)? {
                BlockPlan::Unplanned => {}
                plan => return Ok(plan),
            }
        }
        let planned = self.plan_near(block, len, bases)?;
        let begins_chain = planned.is_none() && self.begins_chain && self.is_of_run(bases)?;
        Ok(if begins_chain { BlockPlan::Alone } else { BlockPlan::of(planned) })
    }

    /// Whether the open model is one of many that follow each other. Only then has what long deltas cost already paid
    /// for a block that is stored alone, and others will probably build on that.
    fn is_of_run(&mut self, bases: &mut Bases) -> Result<bool> {
        let (Some(open), Some(families)) = (&mut self.open, &self.families) else { return Ok(false) };
        if open.is_of_run.is_none() {
            let mut load = |fingerprint: &Fingerprint| load_record(fingerprint, bases);
            let base = open.chosen.base.as_ref();
            open.is_of_run = Some(base.map_or(Ok(false), |base| families.descends(&base.id, RUN_MODELS, &mut load))?);
        }
        Ok(open.is_of_run == Some(true))
    }

    /// Plans a new block as a delta to the tensor that is nearest to its own.
    fn plan_near(&mut self, block: TensorBlock, len: u32, bases: &mut Bases) -> Result<Option<PlannedDelta>> {
        let Some(open) = self.open.as_ref() else { return Ok(None) };
        let Some(Some(chosen)) = open.chosen.tensors.get(block.tensor) else { return Ok(None) };
        let Some(tensor) = open.file.record.tensors.get(block.tensor) else { return Ok(None) };
        let stored = chosen.model.as_deref();
        let Some(base) = stored.unwrap_or(&open.file.record).tensors.get(chosen.tensor) else { return Ok(None) };
        if self.derives && matches!(tensor.dtype(), Dtype::Quantised(_)) && base.dtype().is_float() {
            let (dtype, chosen) = (tensor.dtype(), chosen.clone());
            return self.plan_quantised(dtype, &chosen, block, len, bases);
        }
        if self.is_scaled(tensor, base) {
            let (values, chosen) = ((tensor.dtype(), tensor.len), chosen.clone());
            return self.plan_scaled(values, &chosen, block, len, bases);
        }
        let derivation = match (self.config.delta, derivation_of(tensor.dtype(), base.dtype(), self.derives)) {
            (_, None) | (ModelDelta::None, _) => return Ok(None),
            (ModelDelta::Xor, Some(Derivation::Cast(_) | Derivation::Converted(_))) => return Ok(None),
            (ModelDelta::Xor, Some(_)) => Derivation::Xor,
            (ModelDelta::Context, Some(Derivation::Bytes)) => self.blocks_of(tensor.dtype(), block.offset),
            (ModelDelta::Context, Some(derivation)) => derivation,
        };
        let width = |dtype: Dtype| dtype.width().unwrap_or(1) as u64;
        let scaled = |offset: u64| offset / width(tensor.dtype()) * width(base.dtype());
        let range = scaled(block.offset)..scaled(block.offset + u64::from(len)).min(base.len);
        let may_have_moved = tensor.len / width(tensor.dtype()) != base.len / width(base.dtype());
        let element_type = tensor.dtype().element_type();
        // Equal samples say that the delta is short, not that nothing is known of it.
        let mut expected = (chosen.delta_bits * f64::from(len) / 8.0 / width(tensor.dtype()) as f64).max(1.0) as u64;
        let (blocks, block_bytes) = match stored {
            Some(model) => (base.blocks.as_slice(), model.block_bytes),
            None => (open.blocks.get(chosen.tensor).map_or(&[][..], Vec::as_slice), open.file.record.block_bytes),
        };
        let parts: Vec<_> = block_ranges(blocks, block_bytes, range).collect();
        let is_same_width = width(tensor.dtype()) == width(base.dtype());
        let is_root = matches!(derivation, Derivation::Converted(_)) && is_same_width;
        let is_context = matches!(derivation, Derivation::Context(_));
        let is_cast = matches!(derivation, Derivation::Cast(_) | Derivation::Converted(_));
        if is_cast && chosen.delta_bits <= COPY_BITS || chosen.is_pruned && is_context {
            let made = self.entries_of(&parts, OPERATIONS_MAX, bases).and_then(|ranges| {
                let ranges = if is_root { ranges.and_then(with_one_more) } else { ranges };
                planned(ranges, derivation, element_type, expected, bases)
            });
            if let Some(made) = none_if_unreadable(made)?.filter(|made| made.depth <= self.copy_depth_max()) {
                return Ok(Some(PlannedDelta { may_have_moved, ..made }));
            }
        }
        let ranges = self.ranges(parts, &mut expected, bases);
        let ranges = ranges.map(|ranges| if is_root { ranges.and_then(with_one_more) } else { ranges });
        let made = ranges.and_then(|ranges| planned(ranges, derivation, element_type, expected, bases));
        let made = none_if_unreadable(made)?;
        Ok(made.map(|made| PlannedDelta { may_have_moved, ..made }))
    }

    /// The tensor that a chosen base is, the fingerprints of its blocks, and the bytes of a block.
    pub(super) fn base_tensor<'a>(&'a self, chosen: &'a TensorBase) -> Option<(&'a TensorRecord, &'a [u8], u64)> {
        let open = self.open.as_ref()?;
        let record = chosen.model.as_deref().unwrap_or(&open.file.record);
        let tensor = record.tensors.get(chosen.tensor)?;
        let blocks = match &chosen.model {
            Some(_) => &tensor.blocks,
            None => open.blocks.get(chosen.tensor)?,
        };
        Some((tensor, blocks, record.block_bytes))
    }

    /// The ranges of these very blocks, whatever lies below them; `None` if one is not stored, or if they are more
    /// than `ranges_max`.
    pub(super) fn entries_of(
        &mut self,
        parts: &[Option<BlockRange>],
        ranges_max: usize,
        bases: &mut Bases,
    ) -> Result<Option<Vec<BaseRange>>> {
        let mut ranges = Vec::with_capacity(parts.len());
        for part in parts {
            let Some((fingerprint, inside)) = part else { return Ok(None) };
            let Some(entry) = self.entry_of(fingerprint, bases)? else { return Ok(None) };
            ranges.push(BaseRange { entry, offset: inside.start, len: inside.end - inside.start });
        }
        Ok((!ranges.is_empty() && ranges.len() <= ranges_max).then_some(ranges))
    }

    /// Begins a file that is not a model and has a previous version.
    pub fn begin_previous_version(&mut self, content: ContentReference) {
        self.previous_version = (self.config.delta != ModelDelta::None).then(|| PreviousVersion::new(content));
    }

    /// Plans a float chunk of this layout as a delta to bytes `range` of the file's previous version.
    ///
    /// # Errors
    /// Errors that end the run.
    pub fn plan_previous_version(
        &mut self,
        range: Range<u64>,
        layout: ByteGroupLayout,
        bases: &mut Bases,
    ) -> Result<Option<PlannedDelta>> {
        self.considered.clear();
        let Some(mut previous_version) = self.previous_version.take() else { return Ok(None) };
        let covered = previous_version.cover(range, bases);
        self.previous_version = Some(previous_version);
        let element_type = element_type_of(layout);
        let derivation = match self.config.delta {
            ModelDelta::Xor => Derivation::Xor,
            ModelDelta::Context | ModelDelta::None => Derivation::Context(element_type),
        };
        let (mut ranges, mut expected) = (Vec::new(), 0);
        let found = covered.and_then(|covered| {
            for CoveredRange { fingerprint, offset, len } in covered.unwrap_or_default() {
                if !self.push_range(&fingerprint, offset..offset + len, &mut expected, bases, &mut ranges)? {
                    return Ok(None);
                }
            }
            Ok((!ranges.is_empty()).then_some(ranges))
        });
        let mut made = none_if_unreadable(
            found.and_then(|ranges| planned(ranges, derivation, ElementType::Unknown, expected, bases)),
        )?;
        made.iter_mut().for_each(|made| made.plan.phase = layout.phase());
        Ok(made)
    }

    /// The stored ranges that make up a range of a tensor, given by its blocks; `None` if one of them is no base.
    fn ranges(
        &mut self,
        parts: Vec<Option<BlockRange>>,
        expected: &mut u64,
        bases: &mut Bases,
    ) -> Result<Option<Vec<BaseRange>>> {
        let mut ranges = Vec::new();
        for part in parts {
            let Some((fingerprint, inside)) = part else { return Ok(None) };
            if !self.push_range(&fingerprint, inside, expected, bases, &mut ranges)? {
                return Ok(None);
            }
        }
        Ok((!ranges.is_empty()).then_some(ranges))
    }

    /// Appends a range of a stored chunk, or of what a delta to it should build on, and changes the expected bytes of
    /// the delta. `false` if there is no base.
    fn push_range(
        &mut self,
        fingerprint: &Fingerprint,
        range: Range<u32>,
        expected: &mut u64,
        bases: &mut Bases,
        ranges: &mut Vec<BaseRange>,
    ) -> Result<bool> {
        let Some(entry) = self.entry_of(fingerprint, bases)? else { return Ok(false) };
        let range = BaseRange { entry, offset: range.start, len: range.end - range.start };
        match self.link(entry, *expected, bases)? {
            ChainLink::Below(down, bytes) => {
                *expected = (*expected).max(bytes);
                push_below(range, down, OPERATIONS_MAX, bases, ranges)
            }
            ChainLink::Root => {
                self.begins_chain = true;
                Ok(false)
            }
        }
    }

    /// The entry of a stored block, which is now considered as a base.
    pub(super) fn entry_of(&mut self, fingerprint: &Fingerprint, bases: &mut Bases) -> Result<Option<EntryNumber>> {
        let known = self.blocks.get(fingerprint).copied();
        let entry = known.map_or_else(|| bases.entries.entry_of(fingerprint), |entry| Ok(Some(entry)))?;
        self.considered.extend(entry);
        Ok(entry)
    }

    /// What a delta of `expected` bytes to `entry` should build on.
    pub(super) fn link(&mut self, entry: EntryNumber, expected: u64, bases: &mut Bases) -> Result<ChainLink> {
        Ok(self.sizes.chain(entry, bases)?.link(expected, self.config.delta_depth_max))
    }

    /// Whether the last plan considered `entry` as a base, and took it or what is below it, or nothing.
    pub fn has_considered(&self, entry: EntryNumber) -> bool {
        self.considered.contains(&entry)
    }

    /// Which deltas are made.
    pub(super) fn delta(&self) -> ModelDelta {
        self.config.delta
    }

    /// Longest chain of a copy, a pruned tensor or a blend.
    pub(super) fn copy_depth_max(&self) -> u8 {
        self.config.delta_depth_max.saturating_add(COPY_DEPTH)
    }

    /// Longest chain of deltas.
    pub(super) fn depth_max(&self) -> u8 {
        self.config.delta_depth_max
    }
}
