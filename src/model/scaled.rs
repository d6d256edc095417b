//! Scaled tensors: which stored tensor of floats codes of FP8, INT8, INT4 and NF4 follow from, and the plans of their
//! blocks.
//!
//! 1. Types of such tensors say little: bytes are codes of eight bits or two of four, and 32-bit integers eight of
//!    four. The number of values of the float tensor decides. Samples of both are at the same values, and all codes of
//!    a sample have one scale, so fitted codes tell whether the tensor follows.
//! 2. The base of a block is the range with its values, of that very entry: what is below it has other values.

use crate::codec::ElementType;
use crate::codec::delta::{CodePacking, Derivation, Scaled, following};
use crate::error::Result;
use crate::format::Dtype;
use crate::similar::Bases;

use super::base_ranges::block_ranges;
use super::block_plan::PlannedDelta;
use super::choice::TensorBase;
use super::delta_plan::DeltaPlanner;
use super::detect::TensorBlock;
use super::quantised::{codes_comparison, widened};
use super::record::TensorRecord;
use super::sketch::{GROUP_VALUES, Sketched, compare, groups};
use super::tensor_comparison::TensorComparison;

/// Bytes of a base, at most.
const CONTENT_BYTES_MAX: u64 = 8 << 20;
/// Ends of names of packed codes, and what the float tensor's name has instead.
const NAME_ENDS: [(&str, &str); 3] = [("weight_packed", "weight"), ("qweight", "weight"), ("_quantized", "")];

/// Codes of a byte and the type of the floats, if `new` may be codes of `old`.
fn scaled_from(new: (Dtype, u64), old: (Dtype, u64)) -> Option<(u8, ElementType)> {
    let from = old.0.element_type();
    let is_source = matches!(from, ElementType::Bf16 | ElementType::Fp16 | ElementType::Fp32);
    let per_byte = [1u8, 2]
        .into_iter()
        .find(|per_byte| new.1.checked_mul(u64::from(*per_byte)) == Some(old.1 / from.width() as u64))?;
    let is_known = match new.0 {
        Dtype::Float8 => per_byte == 1,
        Dtype::Int8 => true,
        Dtype::Int32 => per_byte == 2,
        _ => false,
    };
    (is_source && is_known && new.1 > 0).then_some((per_byte, from))
}

/// Whether values of this tensor may be codes of floats.
pub(super) fn may_be_codes(tensor: &TensorRecord) -> bool {
    matches!(tensor.dtype(), Dtype::Float8 | Dtype::Int8 | Dtype::Int32)
}

/// The name that the floats of packed codes may have, if another one.
pub(super) fn name_of_floats(name: &str) -> Option<String> {
    let found = NAME_ENDS.iter().find_map(|(end, floats)| Some((name.strip_suffix(end)?, floats)));
    found.map(|(stem, floats)| format!("{stem}{floats}"))
}

/// The shape of the floats, if two codes are in a byte: the last dimension is longer.
pub(super) fn unpacked_shape(tensor: &TensorRecord) -> Option<Vec<u64>> {
    let width = match tensor.dtype() {
        Dtype::Int8 => 1,
        Dtype::Int32 => 4,
        _ => return None,
    };
    let mut shape = tensor.shape.clone();
    let last = shape.last_mut().filter(|last| **last > 1)?;
    *last = last.checked_mul(2 * width)?;
    Some(shape)
}

/// Whether the values of a tensor are codes of floats; `None` if fewer than half of them are.
pub(super) fn compare_scaled(new: Sketched<'_>, old: Sketched<'_>) -> Option<TensorComparison> {
    let (per_byte, from) = scaled_from((new.dtype, new.len), (old.dtype, old.len))?;
    let per_byte = u64::from(per_byte);
    let width = new.dtype.width().unwrap_or(1) as u64;
    let of_group = GROUP_VALUES * width * per_byte;
    let pairs = groups(new).filter_map(|(at, sample)| {
        let (group, floats) = groups(old).find(|(group, _)| group * GROUP_VALUES / of_group == at)?;
        let first = (group * GROUP_VALUES % of_group / per_byte) as usize;
        let codes = sample.get(first..first + (GROUP_VALUES / per_byte) as usize)?;
        Some((codes, widened(floats, from).flat_map(f32::to_le_bytes).collect::<Vec<u8>>()))
    });
    let pairs: Vec<_> = pairs.collect();
    let telling = |packing| {
        pairs.iter().fold([0, 0], |[telling, same], (codes, floats)| {
            let [more, equal] = following(packing, floats, codes);
            [telling + more, same + equal]
        })
    };
    let found = CodePacking::all(8 / per_byte as usize).map(telling);
    // The first of equals.
    let [telling, same] = found.reduce(|best, one| if one[1] > best[1] { one } else { best })?;
    (same > 0 && same * 2 >= telling).then(|| codes_comparison(telling, same, (per_byte * width) as f64))
}

impl DeltaPlanner {
    /// Whether the values of a tensor with this sketch are codes of the other one's, and not their casts.
    pub(super) fn is_scaled(&self, new: &TensorRecord, base: &TensorRecord) -> bool {
        let lengths = ((new.dtype(), new.len), (base.dtype(), base.len));
        self.derives
            && scaled_from(lengths.0, lengths.1).is_some()
            && compare(new.sketched(), base.sketched(), true).is_none()
    }

    /// Plans a block of codes that follow from the floats of its base. `None` if it does not, or if the base is too
    /// dear to read.
    pub(super) fn plan_scaled(
        &mut self,
        tensor: (Dtype, u64),
        chosen: &TensorBase,
        block: TensorBlock,
        len: u32,
        bases: &mut Bases,
    ) -> Result<Option<PlannedDelta>> {
        let Some((base, blocks, block_bytes)) = self.base_tensor(chosen) else { return Ok(None) };
        let Some((per_byte, from)) = scaled_from(tensor, (base.dtype(), base.len)) else { return Ok(None) };
        let width = from.width() as u64;
        let [position, end] = [block.offset, block.offset + u64::from(len)].map(|at| at * u64::from(per_byte));
        let (range, columns) = (position * width..end * width, base.shape.last().copied().unwrap_or(1));
        let content = range.end - range.start;
        let scaled = Scaled { from, per_byte, columns, values: base.len / width, position };
        if content > CONTENT_BYTES_MAX || range.end > base.len {
            return Ok(None);
        }
        let element_width = tensor.0.width().unwrap_or(1) as f64;
        let expected = ((chosen.delta_bits * f64::from(len) / 8.0 / element_width) as u64).max(1);
        let parts: Vec<_> = block_ranges(blocks, block_bytes, range).collect();
        self.plan_codes(Derivation::Scaled(scaled), &parts, (content, expected), bases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Tensor;
    use crate::kernel::scaled::{QuotientRounding, scaled_codes};
    use crate::model::{compare_any, sample};

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
    fn a_tensor_of_codes_is_known_by_its_floats_whatever_its_type_and_packing() {
        let value = |at: u32| ((at.wrapping_mul(2_654_435_761) >> 12) as f32 / 1_048_576.0 - 0.5) * 0.1;
        let values: Vec<u8> = (0..128 * 150).flat_map(|at| value(at).to_le_bytes()).collect();
        let others: Vec<u8> = (5..128 * 150 + 5).flat_map(|at| value(at).to_le_bytes()).collect();
        for packing in [8, 4].into_iter().flat_map(CodePacking::all) {
            let mut codes = vec![0; values.len() / 4];
            let divisor = packing.code.value(if packing.code.bits() == 4 { 15 } else { 0x7b }).abs();
            for (codes, values) in codes.chunks_mut(128).zip(values.chunks(512)) {
                scaled_codes(packing.code, QuotientRounding::Fp32, values, 0.05 / divisor, codes);
            }
            let mut bytes = Vec::new();
            packing.pack(&codes, &mut bytes);
            let dtypes: &[Dtype] =
                if packing.per_byte() == 1 { &[Dtype::Float8, Dtype::Int8] } else { &[Dtype::Int8, Dtype::Int32] };
            for dtype in dtypes {
                let found = compared((&bytes, *dtype), (&values, Dtype::Float32), true).unwrap();
                assert!(found.equal_share > 0.95 && found.is_cast && found.delta_bits < 1.2, "{packing:?} {found:?}");
                assert_eq!(compared((&bytes, *dtype), (&values, Dtype::Float32), false), None);
                assert_eq!(compared((&bytes, *dtype), (&values[..values.len() - 4], Dtype::Float32), true), None);
                assert_eq!(compared((&bytes, *dtype), (&others, Dtype::Float32), true), None, "{packing:?}");
            }
        }
    }
}
