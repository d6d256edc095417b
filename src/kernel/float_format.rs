//! Formats of floats, and conversions between them by way of FP32.
//!
//! Widening is exact. Narrowing rounds to nearest, ties to even, with subnormal numbers. What is too large becomes
//! infinite, or not a number in E4M3, which has no infinity. A NaN keeps its sign. In FP8 it becomes the NaN with all
//! bits set.

use super::dispatch::dispatch;
use super::elements::{bf16, bf16_to_fp32, fp16, fp16_to_fp32, fp16_value, fp32_to_bf16, fp32_to_fp16};

/// A format of floats. FP8 is E4M3 without infinities, or E5M2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatFormat {
    /// Eight bits of exponent, seven of fraction.
    Bf16,
    /// Five bits of exponent, ten of fraction.
    Fp16,
    /// Eight bits of exponent, 23 of fraction.
    Fp32,
    /// Four bits of exponent, three of fraction.
    E4m3,
    /// Five bits of exponent, two of fraction.
    E5m2,
}

/// The largest FP32 number that rounds to a finite one of E4M3.
const E4M3_MAX: u32 = 0x43e8_0000;
/// The least FP32 number that rounds to infinity in E5M2.
const E5M2_INFINITE: u32 = 0x4770_0000;

impl FloatFormat {
    /// All formats.
    pub const ALL: [FloatFormat; 5] =
        [FloatFormat::Bf16, FloatFormat::Fp16, FloatFormat::Fp32, FloatFormat::E4m3, FloatFormat::E5m2];

    /// Bytes of an element.
    pub const fn width(self) -> usize {
        match self {
            FloatFormat::Fp32 => 4,
            FloatFormat::Bf16 | FloatFormat::Fp16 => 2,
            FloatFormat::E4m3 | FloatFormat::E5m2 => 1,
        }
    }

    /// Bits of the fraction.
    pub const fn fraction_bits(self) -> u32 {
        match self {
            FloatFormat::Bf16 => 7,
            FloatFormat::Fp16 => 10,
            FloatFormat::Fp32 => 23,
            FloatFormat::E4m3 => 3,
            FloatFormat::E5m2 => 2,
        }
    }

    /// The FP32 bits of an element, given by its bits.
    #[inline(always)]
    pub fn widened(self, element: u32) -> u32 {
        match self {
            FloatFormat::Bf16 => element << 16,
            FloatFormat::Fp16 => fp16_value(element as u16).to_bits(),
            FloatFormat::Fp32 => element,
            FloatFormat::E4m3 => e4m3_value(element as u8),
            FloatFormat::E5m2 => e5m2_value(element as u8),
        }
    }

    /// The bits of an element, given by those of an FP32 number.
    #[inline(always)]
    pub fn narrowed(self, element: u32) -> u32 {
        match self {
            FloatFormat::Bf16 => bf16(element).into(),
            FloatFormat::Fp16 => fp16(element).into(),
            FloatFormat::Fp32 => element,
            FloatFormat::E4m3 => e4m3(element).into(),
            FloatFormat::E5m2 => e5m2(element).into(),
        }
    }

    /// Converts elements to FP32, up to the shortest length.
    pub fn widen(self, elements: &[u8], out: &mut [u8]) {
        match self {
            FloatFormat::Bf16 => bf16_to_fp32(elements, out),
            FloatFormat::Fp16 => fp16_to_fp32(elements, out),
            FloatFormat::Fp32 => out.iter_mut().zip(elements).for_each(|(out, element)| *out = *element),
            FloatFormat::E4m3 => e4m3_to_fp32(elements, out),
            FloatFormat::E5m2 => e5m2_to_fp32(elements, out),
        }
    }

    /// Converts FP32 to elements, up to the shortest length.
    pub fn narrow(self, elements: &[u8], out: &mut [u8]) {
        match self {
            FloatFormat::Bf16 => fp32_to_bf16(elements, out),
            FloatFormat::Fp16 => fp32_to_fp16(elements, out),
            FloatFormat::Fp32 => out.iter_mut().zip(elements).for_each(|(out, element)| *out = *element),
            FloatFormat::E4m3 => fp32_to_e4m3(elements, out),
            FloatFormat::E5m2 => fp32_to_e5m2(elements, out),
        }
    }
}

/// The FP32 bits of an E4M3 element.
#[inline(always)]
fn e4m3_value(element: u8) -> u32 {
    let (sign, size) = (u32::from(element & 0x80) << 24, u32::from(element & 0x7f));
    // A number of the fraction's last bit, 2^-9, is exact.
    let tiny = (size as i32 as f32 * f32::from_bits(0x3b00_0000)).to_bits();
    let finite = if size < 8 { tiny } else { (size << 20) + 0x3c00_0000 };
    sign | if size < 0x7f { finite } else { 0x7ff0_0000 }
}

/// The FP32 bits of an E5M2 element.
#[inline(always)]
fn e5m2_value(element: u8) -> u32 {
    // It is the upper byte of an FP16 element.
    fp16_value(u16::from(element) << 8).to_bits()
}

/// Converts the bits of an FP32 element to those of an E4M3 element.
#[inline(always)]
fn e4m3(element: u32) -> u8 {
    let (sign, size) = (element >> 24 & 0x80, element & 0x7fff_ffff);
    let normal = size.wrapping_sub(0x3c00_0000).wrapping_add(0x7_ffff + (size >> 20 & 1)) >> 20;
    // In the sum with 2^14, the last bit has the value of the smallest number.
    let tiny = (f32::from_bits(size) + 16384.0).to_bits().wrapping_sub(0x4680_0000);
    let finite = if size < 0x3c80_0000 { tiny } else { normal };
    (sign | if size <= E4M3_MAX { finite } else { 0x7f }) as u8
}

/// Converts the bits of an FP32 element to those of an E5M2 element.
#[inline(always)]
fn e5m2(element: u32) -> u8 {
    let (sign, size) = (element >> 24 & 0x80, element & 0x7fff_ffff);
    let normal = size.wrapping_sub(0x3800_0000).wrapping_add(0xf_ffff + (size >> 21 & 1)) >> 21;
    // In the sum with 2^7, the last bit has the value of the smallest number.
    let tiny = (f32::from_bits(size) + 128.0).to_bits().wrapping_sub(0x4300_0000);
    let finite = if size < 0x3880_0000 { tiny } else { normal };
    let large = if size > 0x7f80_0000 { 0x7f } else { 0x7c };
    (sign | if size < E5M2_INFINITE { finite } else { large }) as u8
}

#[inline(always)]
fn e4m3_to_fp32_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.as_chunks_mut::<4>().0.iter_mut().zip(elements) {
        *out = e4m3_value(*element).to_le_bytes();
    }
}

#[inline(always)]
fn e5m2_to_fp32_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.as_chunks_mut::<4>().0.iter_mut().zip(elements) {
        *out = e5m2_value(*element).to_le_bytes();
    }
}

#[inline(always)]
fn fp32_to_e4m3_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.iter_mut().zip(elements.as_chunks::<4>().0) {
        *out = e4m3(u32::from_le_bytes(*element));
    }
}

#[inline(always)]
fn fp32_to_e5m2_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.iter_mut().zip(elements.as_chunks::<4>().0) {
        *out = e5m2(u32::from_le_bytes(*element));
    }
}

dispatch! {
    /// Converts E4M3 to FP32, which is exact.
    fn e4m3_to_fp32(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => e4m3_to_fp32_loop,
    }
}
dispatch! {
    /// Converts E5M2 to FP32, which is exact.
    fn e5m2_to_fp32(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => e5m2_to_fp32_loop,
    }
}
dispatch! {
    /// Converts FP32 to E4M3.
    fn fp32_to_e4m3(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => fp32_to_e4m3_loop,
    }
}
dispatch! {
    /// Converts FP32 to E5M2.
    fn fp32_to_e5m2(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => fp32_to_e5m2_loop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::with_each_subset;

    /// Value of the bits of an 8-bit float that is finite, by the definition of its format.
    fn value(format: FloatFormat, element: u8) -> Option<f64> {
        let (fraction_bits, bias) = if format == FloatFormat::E4m3 { (3, 7) } else { (2, 15) };
        let (exponent, fraction) = (i32::from(element & 0x7f) >> fraction_bits, element & ((1 << fraction_bits) - 1));
        let is_special = if fraction_bits == 3 { element & 0x7f == 0x7f } else { exponent == 31 };
        let part = f64::from(fraction) / f64::from(1 << fraction_bits);
        let size = if exponent == 0 { part * 2f64.powi(1 - bias) } else { (1.0 + part) * 2f64.powi(exponent - bias) };
        (!is_special).then_some(if element >> 7 == 0 { size } else { -size })
    }

    fn narrowed(format: FloatFormat, value: f32) -> u8 {
        let mut out = [0];
        format.narrow(&value.to_le_bytes(), &mut out);
        assert_eq!(u32::from(out[0]), format.narrowed(value.to_bits()));
        out[0]
    }

    #[test]
    fn every_8_bit_float_is_widened_exactly_and_round_trips() {
        with_each_subset(|_| {
            for format in [FloatFormat::E4m3, FloatFormat::E5m2] {
                for element in 0..=u8::MAX {
                    let mut wide = [0; 4];
                    format.widen(&[element], &mut wide);
                    let wide = f32::from_le_bytes(wide);
                    assert_eq!(format.widened(element.into()), wide.to_bits());
                    assert_eq!(wide.is_sign_negative(), element >> 7 == 1);
                    match value(format, element) {
                        Some(value) => assert_eq!((f64::from(wide), narrowed(format, wide)), (value, element)),
                        None if wide.is_nan() => assert_eq!(narrowed(format, wide), element | 0x7f),
                        None => assert!(wide.is_infinite() && narrowed(format, wide) == element, "{element:#x}"),
                    }
                }
            }
        });
    }

    #[test]
    fn narrowing_rounds_to_nearest_and_ties_to_even() {
        with_each_subset(|_| {
            for (format, last) in [(FloatFormat::E4m3, 0x7eu8), (FloatFormat::E5m2, 0x7b)] {
                for element in (0..last).chain(0x80..0x80 | last) {
                    let (low, high) = (value(format, element).unwrap(), value(format, element + 1).unwrap());
                    let middle = ((low + high) / 2.0) as f32;
                    let even = element + (element & 1);
                    assert_eq!(narrowed(format, middle), even, "{format:?} {element:#x}");
                    let up = if element >> 7 == 0 { middle.next_up() } else { middle.next_down() };
                    let down = if element >> 7 == 0 { middle.next_down() } else { middle.next_up() };
                    assert_eq!((narrowed(format, down), narrowed(format, up)), (element, element + 1), "{element:#x}");
                }
            }
            let e4m3 = [448.0, 464.0, 464.00003, -1e9, f32::INFINITY, f32::NAN, 1e-4, -1e-30, 1e-41];
            let expected = [0x7e, 0x7e, 0x7f, 0xff, 0x7f, 0x7f, 0, 0x80, 0];
            assert_eq!(e4m3.map(|value| narrowed(FloatFormat::E4m3, value)), expected);
            let e5m2 = [57344.0, 61439.996, 61440.0, -1e9, f32::NEG_INFINITY, f32::NAN, 1e-6, -1e-30];
            let expected = [0x7b, 0x7b, 0x7c, 0xfc, 0xfc, 0x7f, 0, 0x80];
            assert_eq!(e5m2.map(|value| narrowed(FloatFormat::E5m2, value)), expected);
        });
    }

    #[test]
    fn whole_slices_are_converted_as_single_elements_are() {
        let wide: Vec<u8> = (0..4 * 1031u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        with_each_subset(|_| {
            for format in FloatFormat::ALL {
                let mut narrow = vec![0; 1031 * format.width()];
                format.narrow(&wide, &mut narrow);
                let mut back = vec![0; wide.len()];
                format.widen(&narrow, &mut back);
                let narrow = narrow.chunks(format.width());
                for ((wide, narrow), back) in wide.chunks(4).zip(narrow).zip(back.chunks(4)) {
                    let of = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
                    assert_eq!(format.narrowed(of(wide)), of(narrow), "{format:?}");
                    assert_eq!(format.widened(of(narrow)), of(back), "{format:?}");
                }
            }
        });
    }
}
