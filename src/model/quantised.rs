//! Quantised tensors: which stored tensor of floats one follows from, and the plans of its blocks.
//!
//! 1. A sample of a sketch is one block of a quantised tensor, and 16 neighbouring values of a float tensor. For
//!    tensors of as many values, the values of a sample are inside of the block of the same sample. Their codes given
//!    the block's scales are compared with those of the block.
//! 2. A block of the file begins and ends anywhere in a quantised block. Its base is the range with the values of the
//!    quantised blocks that are whole.
//! 3. The base is that very entry, never what is below it: that has other values.

use std::ops::Range;

use crate::codec::ElementType;
use crate::codec::delta::{BlockGrid, Derivation, Quantised};
use crate::error::Result;
use crate::format::Dtype;
use crate::kernel::elements::fp16_value;
use crate::kernel::quantise::{BlockType, ScaleSource, quantise, unpack};
use crate::similar::Bases;

use super::base_ranges::{BlockRange, block_ranges, none_if_unreadable, planned};
use super::block_plan::PlannedDelta;
use super::choice::TensorBase;
use super::delta_plan::DeltaPlanner;
use super::detect::TensorBlock;
use super::record::TensorRecord;
use super::scaled::compare_scaled;
use super::sketch::{GROUP_VALUES, Sketched, compare, groups};
use super::tensor_comparison::{Likeness, TensorComparison};

/// Samples after which a tensor that agrees in less than half of its codes is given up.
const SAMPLES_MIN: u64 = 2;
/// Share of equal codes from which on a tensor counts as the cast of the other.
const CAST_SHARE: f64 = 0.9;
/// Bits of a byte that hardly anything is stored for.
const LEAST_BITS: f64 = 0.02;
/// Bits that count as differing in a code that does not follow, of twice as many.
const MISS_BITS: u64 = 4;
/// Bits of a byte of scales, as stored.
const SCALE_BITS: f64 = 3.5;
/// Bytes of a base, and of all bases of its chain if each is as long, at most.
const CONTENT_BYTES_MAX: u64 = 32 << 20;
const CHAIN_BYTES_MAX: u64 = 64 << 20;
/// Blocks of a base, about, at most: a base of the most bytes has as many of the shortest blocks of a configuration.
/// A record that claims shorter ones must not give a chunk more operations than a container holds.
const BASE_BLOCKS_MAX: u64 = 512;
/// Ranges of a base: the blocks that it has, and the ends of two.
const BASE_OPERATIONS_MAX: usize = BASE_BLOCKS_MAX as usize + 2;

/// The type of the blocks of such a tensor, if they can be made from values.
fn block_type_of(dtype: Dtype) -> Option<BlockType> {
    match dtype {
        Dtype::Quantised(number) => BlockType::of_number(number),
        _ => None,
    }
}

/// How blocks of one type follow from elements of another; `None` if they do not.
fn quantised_from(new: Dtype, base: Dtype) -> Option<(BlockType, ElementType)> {
    let from = base.element_type();
    let is_source = matches!(from, ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32);
    block_type_of(new).filter(|_| is_source).map(|block_type| (block_type, from))
}

/// The type of the blocks of `new` if they may follow from floats of type `base`.
pub fn follows_from(new: Dtype, base: Dtype) -> Option<BlockType> {
    quantised_from(new, base).map(|found| found.0)
}

/// Whether blocks of this tensor may follow from floats.
pub(super) fn is_quantised(tensor: &TensorRecord) -> bool {
    block_type_of(tensor.dtype()).is_some()
}

/// Compares the sketches of two tensors, with `derives` also codes with the floats that they may follow from, and a
/// pruned one as what it is.
pub fn compare_any(new: Sketched<'_>, old: Sketched<'_>, derives: bool) -> Option<TensorComparison> {
    let derived = || if derives { compare_quantised(new, old).or_else(|| compare_scaled(new, old)) } else { None };
    compare(new, old, derives).or_else(derived)
}

/// The values of a sample, as FP32.
pub(super) fn widened(sample: &[u8], from: ElementType) -> impl Iterator<Item = f32> {
    sample.chunks_exact(from.width()).map(move |element| match (from, element) {
        (ElementType::Bf16, [low, high]) => f32::from_le_bytes([0, 0, *low, *high]),
        (ElementType::Fp16, [low, high]) => fp16_value(u16::from_le_bytes([*low, *high])),
        _ => element.first_chunk().map_or(0.0, |element| f32::from_le_bytes(*element)),
    })
}

/// Whether the codes of a quantised tensor are those of the floats; `None` if fewer than half of them are.
fn compare_quantised(new: Sketched<'_>, old: Sketched<'_>) -> Option<TensorComparison> {
    let (block_type, from) = quantised_from(new.dtype, old.dtype)?;
    let (values, bytes) = (block_type.values() as u64, block_type.bytes() as u64);
    if new.len / bytes * values != old.len / from.width() as u64 {
        return None;
    }
    let (mut compared, mut equal) = (0u64, 0u64);
    let mut block_values = [0; 4 * 256];
    for (at, block) in groups(new) {
        let sample = groups(old).find(|(group, _)| group * GROUP_VALUES / values == at);
        let Some((group, sample)) = sample else { continue };
        let first = (group * GROUP_VALUES % values) as usize;
        block_values.fill(0);
        let space = block_values.as_chunks_mut::<4>().0.iter_mut().skip(first);
        space.zip(widened(sample, from)).for_each(|(space, value)| *space = value.to_le_bytes());
        let mut made = block.to_vec();
        quantise(block_type, ScaleSource::Given, &block_values, &mut made);
        let (made, codes) = (unpack(block_type, &made), unpack(block_type, block));
        let pairs = made.iter().zip(&codes).skip(first).take(GROUP_VALUES as usize);
        equal += pairs.filter(|(made, code)| made == code).count() as u64;
        compared += GROUP_VALUES;
        if compared >= SAMPLES_MIN * GROUP_VALUES && equal * 2 < compared {
            return None;
        }
    }
    if compared == 0 || equal * 2 < compared {
        return None;
    }
    Some(quantised_comparison(block_type, compared, equal))
}

/// The comparison of quantised blocks with floats, of which `equal` of `compared` codes follow.
pub fn quantised_comparison(block_type: BlockType, compared: u64, equal: u64) -> TensorComparison {
    let (values, bytes) = (block_type.values() as u64, block_type.bytes() as u64);
    let is_computed = block_type.sources().contains(&ScaleSource::Computed);
    let scales = if is_computed { 0.0 } else { block_type.scale_bytes().count() as f64 * SCALE_BITS };
    let found = codes_comparison(compared, equal, values as f64 / bytes as f64);
    TensorComparison { delta_bits: found.delta_bits + scales / bytes as f64, ..found }
}

/// The comparison of codes with floats, of which `equal` of `compared` follow. A value of the tensor has so many codes.
pub(super) fn codes_comparison(compared: u64, equal: u64, of_value: f64) -> TensorComparison {
    let missed = (compared - equal) as f64 / compared.max(1) as f64;
    let entropy = |part: f64| if part > 0.0 { -part * part.log2() } else { 0.0 };
    let code_bits = entropy(missed) + entropy(1.0 - missed) + 2.0 * missed;
    // Half of the codes are the bound between families, which is a quarter of the bits.
    let differing = (compared - equal) * MISS_BITS;
    let likeness = Likeness {
        bits: 2 * MISS_BITS as u32,
        is_float: false,
        differing,
        nonzero: compared,
        nonzero_differing: differing,
        pruned: 0,
    };
    TensorComparison {
        values: compared,
        bit_distance: missed,
        delta_bits: LEAST_BITS + code_bits * of_value,
        is_cast: missed <= 1.0 - CAST_SHARE,
        equal_share: 1.0 - missed,
        likeness,
    }
}

/// Compares whole quantised blocks with floats of the same values: the number of codes, of those that follow from the
/// floats, and the blocks as they would follow. `None` if blocks of this type follow from no such floats.
pub fn compare_blocks(new: Dtype, blocks: &[u8], old: Dtype, floats: &[u8]) -> Option<(u64, u64, Vec<u8>)> {
    let (block_type, from) = quantised_from(new, old)?;
    let wide: Vec<u8> = widened(floats, from).flat_map(f32::to_le_bytes).collect();
    let mut made = blocks.to_vec();
    quantise(block_type, ScaleSource::Given, &wide, &mut made);
    let (mut compared, mut equal) = (0, 0);
    for (block, made) in blocks.chunks_exact(block_type.bytes()).zip(made.chunks_exact(block_type.bytes())) {
        let (codes, made) = (unpack(block_type, block), unpack(block_type, made));
        let pairs = codes.iter().zip(&made).take(block_type.values());
        equal += pairs.filter(|(code, made)| code == made).count() as u64;
        compared += block_type.values() as u64;
    }
    Some((compared, equal, made))
}

/// How these bytes of a quantised tensor follow from the floats of a base, and the bytes of the base that they follow
/// from. `None` if they do not, or if these are too many, or in too many blocks.
fn float_range(
    new: Dtype,
    bytes: Range<u64>,
    (base, base_len): (Dtype, u64),
    base_block_bytes: u64,
) -> Option<(Quantised, Range<u64>)> {
    let (block_type, from) = quantised_from(new, base)?;
    let (block_bytes, value_bytes) = (block_type.bytes() as u64, (block_type.values() * from.width()) as u64);
    let (first, end) = (bytes.start.div_ceil(block_bytes), bytes.end / block_bytes);
    let head = (first * block_bytes - bytes.start) as u8;
    let range = first * value_bytes..end * value_bytes;
    let most = CONTENT_BYTES_MAX.min(base_block_bytes.saturating_mul(BASE_BLOCKS_MAX));
    let fits = first < end && range.end <= base_len && range.end - range.start <= most;
    fits.then_some((Quantised { block_type, from, head }, range))
}

impl DeltaPlanner {
    /// How a block that begins `offset` bytes after the first of its tensor derives from bytes of the same type.
    pub(super) fn blocks_of(&self, dtype: Dtype, offset: u64) -> Derivation {
        let Some(block_type) = block_type_of(dtype).filter(|_| self.derives) else { return Derivation::Bytes };
        let bytes = block_type.bytes() as u64;
        Derivation::Blocks(BlockGrid { block_type, head: ((bytes - offset % bytes) % bytes) as u8 })
    }

    /// Plans a block of a quantised tensor that follows from the floats of its base. `None` if it does not, or if the
    /// base is too dear to read.
    pub(super) fn plan_quantised(
        &mut self,
        dtype: Dtype,
        chosen: &TensorBase,
        block: TensorBlock,
        len: u32,
        bases: &mut Bases,
    ) -> Result<Option<PlannedDelta>> {
        // A quantised tensor has no base in its own file.
        let Some(model) = &chosen.model else { return Ok(None) };
        let Some(base) = model.tensors.get(chosen.tensor) else { return Ok(None) };
        let bytes = block.offset..block.offset + u64::from(len);
        let found = float_range(dtype, bytes, (base.dtype(), base.len), model.block_bytes);
        let Some((quantised, range)) = found else { return Ok(None) };
        let content = range.end - range.start;
        let expected = ((chosen.delta_bits * f64::from(len) / 8.0) as u64).max(1);
        let parts: Vec<_> = block_ranges(&base.blocks, model.block_bytes, range).collect();
        self.plan_codes(Derivation::Quantised(quantised), &parts, (content, expected), bases)
    }

    /// Plans a block of codes that follow from these parts of a base, which have `content` bytes. `None` if one of them
    /// is not stored, or if they are too dear to read.
    pub(super) fn plan_codes(
        &mut self,
        derivation: Derivation,
        parts: &[Option<BlockRange>],
        (content, expected): (u64, u64),
        bases: &mut Bases,
    ) -> Result<Option<PlannedDelta>> {
        let ranges = self.entries_of(parts, BASE_OPERATIONS_MAX, bases);
        let made = ranges.and_then(|ranges| planned(ranges, derivation, ElementType::Unknown, expected, bases));
        let depth_max = self.copy_depth_max();
        let is_cheap =
            |made: &PlannedDelta| made.depth <= depth_max && content * u64::from(made.depth) <= CHAIN_BYTES_MAX;
        Ok(none_if_unreadable(made)?.filter(is_cheap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Tensor;
    use crate::kernel::elements;
    use crate::model::sample;

    /// The bytes of a tensor as a sketch shows them.
    fn sketch(bytes: &[u8], dtype: Dtype) -> Vec<u8> {
        let tensor = Tensor { name: "w".into(), dtype, shape: vec![1], offset: 0, len: bytes.len() as u64 };
        sample(&bytes, &tensor, 9).unwrap()
    }

    fn compared(new: (&[u8], Dtype), old: (&[u8], Dtype), derives: bool) -> Option<TensorComparison> {
        let (one, other) = (sketch(new.0, new.1), sketch(old.0, old.1));
        let new = Sketched { dtype: new.1, len: new.0.len() as u64, sketch: &one };
        compare_any(new, Sketched { dtype: old.1, len: old.0.len() as u64, sketch: &other }, derives)
    }

    #[test]
    fn a_base_has_the_values_of_whole_blocks_and_neither_too_many_bytes_nor_too_many_blocks() {
        let found = |blocks: u64, rest: u64, base_block_bytes: u64| {
            float_range(Dtype::Quantised(8), 40..34 * blocks + rest, (Dtype::Float32, 33 << 20), base_block_bytes)
        };
        let quantised = Quantised { block_type: BlockType::Q8_0, from: ElementType::Fp32, head: 28 };
        assert_eq!(found(3, 8, 1 << 19), Some((quantised, 2 * 128..3 * 128)));
        assert_eq!(found(2, 33, 1 << 19), None, "no block is whole");
        let most = (32 << 20) / 128 + 2;
        assert_eq!(found(most, 0, 64 << 10), Some((quantised, 2 * 128..(32 << 20) + 2 * 128)));
        assert_eq!(found(most + 1, 0, 64 << 10), None, "too many bytes");
        assert_eq!(found((1 << 13) + 2, 0, 2048).map(|found| found.1.end), Some((1 << 20) + 2 * 128));
        assert_eq!(found((1 << 13) + 2, 0, 2047), None, "too many blocks");
        let short = float_range(Dtype::Quantised(8), 0..68, (Dtype::Float16, 127), 1 << 19);
        assert_eq!(short, None, "beyond the end of the base");
    }

    #[test]
    fn a_quantised_tensor_is_known_by_the_floats_it_follows_from() {
        let value = |at: u32| ((at.wrapping_mul(2_654_435_761) >> 12) as f32 / 1_048_576.0 - 0.5) * 0.1;
        let values: Vec<u8> = (0..256 * 77).flat_map(|at| value(at).to_le_bytes()).collect();
        let others: Vec<u8> = (5..256 * 77 + 5).flat_map(|at| value(at).to_le_bytes()).collect();
        let mut halves = vec![0; values.len() / 2];
        elements::fp32_to_fp16(&values, &mut halves);
        for block_type in BlockType::ALL {
            let blocks = values.len() / 4 / block_type.values();
            let mut bytes = vec![0; blocks * block_type.bytes()];
            // Scales that give these values different codes, whatever a search would choose.
            for block in bytes.chunks_mut(block_type.bytes()) {
                block_type.scale_bytes().for_each(|at| block[at] = 0x27);
                block_type.scale_bytes().last().into_iter().for_each(|at| block[at] = 0x11);
                if matches!(block_type, BlockType::Q4K | BlockType::Q5K) {
                    block[..4].copy_from_slice(&[0, 8, 0, 8]);
                }
            }
            quantise(block_type, block_type.sources()[0], &values, &mut bytes);
            let new = (bytes.as_slice(), Dtype::Quantised(block_type.number()));
            for (old, dtype) in [(&values, Dtype::Float32), (&halves, Dtype::Float16)] {
                let found = compared(new, (old, dtype), true).unwrap();
                assert!(found.equal_share > 0.9 && found.is_cast, "{block_type:?}: {found:?}");
                let share = block_type.scale_bytes().count() as f64 / block_type.bytes() as f64;
                assert!(found.delta_bits < 8.0 * share + 0.8, "{block_type:?}: {found:?}");
                assert_eq!(compared(new, (old, dtype), false), None);
                assert_eq!(compared(new, (&old[..old.len() - 64], dtype), true), None, "of another length");
            }
            // The other scales above give most values the same codes.
            if block_type.values() == 32 {
                assert_eq!(compared(new, (&others, Dtype::Float32), true), None, "{block_type:?}");
            }
        }
    }
}
