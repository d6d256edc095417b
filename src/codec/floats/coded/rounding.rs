//! Rounding: products of FP32, rounded to the type of a block's elements.

use crate::codec::ElementType;
use crate::kernel::elements;

/// The type that products are rounded to, to the nearest number, ties to even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Bf16,
    Fp16,
    Fp32,
}

impl Rounding {
    /// That to elements of this type; `None` if products are of no such type.
    pub(super) fn of(element_type: ElementType) -> Option<Rounding> {
        match element_type {
            ElementType::Bf16 => Some(Rounding::Bf16),
            ElementType::Fp16 => Some(Rounding::Fp16),
            ElementType::Fp32 => Some(Rounding::Fp32),
            ElementType::Fp64 | ElementType::Byte | ElementType::Unknown => None,
        }
    }

    /// Its number on disk.
    pub(super) const fn id(self) -> u8 {
        match self {
            Rounding::Bf16 => 1,
            Rounding::Fp16 => 2,
            Rounding::Fp32 => 3,
        }
    }

    pub(super) fn of_id(id: u8) -> Option<Rounding> {
        [Rounding::Bf16, Rounding::Fp16, Rounding::Fp32].into_iter().find(|rounding| rounding.id() == id)
    }

    /// Bytes of an element.
    pub(super) const fn width(self) -> usize {
        if matches!(self, Rounding::Fp32) { 4 } else { 2 }
    }

    /// How far a quotient of two elements may be from that of the products, as a share of it.
    pub(super) const fn error(self) -> f32 {
        match self {
            Rounding::Bf16 => 1.1 / 128.0,
            Rounding::Fp16 => 1.1 / 1024.0,
            Rounding::Fp32 => 1.0 / (1 << 21) as f32,
        }
    }

    /// How far an element near zero may be from the product.
    pub(super) const fn least_step(self) -> f32 {
        match self {
            Rounding::Bf16 | Rounding::Fp32 => 0.0,
            Rounding::Fp16 => 1.0 / (1 << 25) as f32,
        }
    }

    /// The least magnitude of a normal number, as of smaller ones the distance is another.
    pub(super) fn least_normal(self) -> f64 {
        match self {
            Rounding::Bf16 | Rounding::Fp32 => f64::from(f32::MIN_POSITIVE),
            Rounding::Fp16 => 1.0 / f64::from(1 << 14),
        }
    }

    /// Half the distance of neighbouring elements, as bits of an FP64 number.
    pub(super) const fn half_step(self) -> u64 {
        match self {
            Rounding::Bf16 => 1 << 44,
            Rounding::Fp16 => 1 << 41,
            Rounding::Fp32 => 1 << 28,
        }
    }

    /// Fills `wide` with elements as FP32.
    pub(super) fn widen(self, raw: &[u8], wide: &mut Vec<u8>) {
        wide.resize(raw.len() / self.width() * 4, 0);
        match self {
            Rounding::Bf16 => elements::bf16_to_fp32(raw, wide),
            Rounding::Fp16 => elements::fp16_to_fp32(raw, wide),
            Rounding::Fp32 => wide.copy_from_slice(raw),
        }
    }

    /// The products as elements; `space` holds them if they are no FP32.
    pub(super) fn round<'a>(self, products: &'a [u8], space: &'a mut Vec<u8>) -> &'a [u8] {
        if self == Rounding::Fp32 {
            return products;
        }
        space.resize(products.len() / 2, 0);
        if self == Rounding::Bf16 {
            elements::fp32_to_bf16(products, space);
        } else {
            elements::fp32_to_fp16(products, space);
        }
        space
    }
}
