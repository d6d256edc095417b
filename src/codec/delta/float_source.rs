//! The floats of a base that quantised values follow from, as FP32.

use crate::codec::ElementType;
use crate::kernel::elements as kernel;

/// The type of a base's elements, and the one that they are rounded to before anything is made of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FloatSource {
    from: ElementType,
    /// `from` if they are not rounded.
    rounded: ElementType,
}

/// Number of a type on disk.
const fn number(element_type: ElementType) -> u8 {
    match element_type {
        ElementType::Bf16 => 1,
        ElementType::Fp16 => 2,
        _ => 3,
    }
}

impl FloatSource {
    /// Elements of a type (BF16, FP16 or FP32) as they are.
    pub(super) const fn of(from: ElementType) -> FloatSource {
        FloatSource { from, rounded: from }
    }

    /// Elements of a type as they are, then rounded to each narrower one.
    pub(super) fn all(from: ElementType) -> impl Iterator<Item = FloatSource> {
        let narrow = [ElementType::Bf16, ElementType::Fp16].into_iter().filter(move |rounded| *rounded != from);
        std::iter::once(from).chain(narrow).map(move |rounded| FloatSource { from, rounded })
    }

    /// Bits 0 to 3 of a payload's second byte.
    pub(super) const fn flags(self) -> u8 {
        let rounded = if number(self.rounded) == number(self.from) { 0 } else { number(self.rounded) };
        number(self.from) | rounded << 2
    }

    /// What these bits of `flags` say; `None` for those that no version defines.
    pub(super) fn of_flags(flags: u8) -> Option<FloatSource> {
        let from = match flags & 3 {
            1 => ElementType::Bf16,
            2 => ElementType::Fp16,
            3 => ElementType::Fp32,
            _ => return None,
        };
        let rounded = match flags >> 2 & 3 {
            0 => from,
            1 => ElementType::Bf16,
            2 => ElementType::Fp16,
            _ => return None,
        };
        Some(FloatSource { from, rounded })
    }

    /// Type of the base's elements.
    pub(super) const fn element_type(self) -> ElementType {
        self.from
    }

    /// Bytes of an element.
    pub(super) const fn width(self) -> usize {
        self.from.width()
    }

    /// The elements of `base` as FP32, rounded if they are to be. They are in `wide`, unless they are FP32.
    pub(super) fn widened<'a>(self, base: &'a [u8], wide: &'a mut Vec<u8>, narrow: &mut Vec<u8>) -> &'a [u8] {
        if self == FloatSource::of(ElementType::Fp32) {
            return base;
        }
        let elements = base.len() / self.width();
        wide.resize(elements * 4, 0);
        match self.from {
            ElementType::Bf16 => kernel::bf16_to_fp32(base, wide),
            ElementType::Fp16 => kernel::fp16_to_fp32(base, wide),
            _ => {}
        }
        if self.rounded != self.from {
            narrow.resize(elements * 2, 0);
            let values = if self.from == ElementType::Fp32 { base } else { &wide[..] };
            if self.rounded == ElementType::Bf16 {
                kernel::fp32_to_bf16(values, narrow);
                kernel::bf16_to_fp32(narrow, wide);
            } else {
                kernel::fp32_to_fp16(values, narrow);
                kernel::fp16_to_fp32(narrow, wide);
            }
        }
        wide
    }
}
