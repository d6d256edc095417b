//! Elements: whole slices are combined bytewise and converted between float types.
//!
//! Conversion to a narrower type rounds to nearest, ties to even, as processors and libraries do. A NaN keeps the top
//! bits of its payload and becomes quiet.

use super::dispatch::dispatch;

#[inline(always)]
fn xor_loop(raw: &[u8], base: &[u8], out: &mut [u8]) {
    for ((out, raw), base) in out.iter_mut().zip(raw).zip(base) {
        *out = raw ^ base;
    }
}

#[inline(always)]
fn difference_loop(raw: &[u8], base: &[u8], out: &mut [u8]) {
    for ((out, raw), base) in out.iter_mut().zip(raw).zip(base) {
        *out = raw.wrapping_sub(*base);
    }
}

#[inline(always)]
fn add_loop(out: &mut [u8], base: &[u8]) {
    for (out, base) in out.iter_mut().zip(base) {
        *out = out.wrapping_add(*base);
    }
}

#[inline(always)]
fn xor_assign_loop(out: &mut [u8], base: &[u8]) {
    for (out, base) in out.iter_mut().zip(base) {
        *out ^= base;
    }
}

/// Converts the bits of an FP32 element to those of a BF16 element.
#[inline(always)]
pub fn bf16(element: u32) -> u16 {
    let rounded = element.wrapping_add(0x7fff + (element >> 16 & 1)) >> 16;
    let nan = element & 0x7fff_ffff > 0x7f80_0000;
    (if nan { element >> 16 | 0x40 } else { rounded }) as u16
}

/// Converts the bits of an FP32 element to those of an FP16 element.
#[inline(always)]
pub fn fp16(element: u32) -> u16 {
    let (sign, size) = (element >> 16 & 0x8000, element & 0x7fff_ffff);
    let normal = size.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (size >> 13 & 1)) >> 13;
    // In the sum with 0.5, the last bit has the value of the smallest half-precision number.
    let tiny = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if size < 0x3880_0000 { tiny } else { normal };
    let large = if size > 0x7f80_0000 { 0x7e00 | (size >> 13 & 0x3ff) } else { 0x7c00 };
    (sign | if size < 0x477f_f000 { finite } else { large }) as u16
}

#[inline(always)]
fn fp32_to_bf16_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.as_chunks_mut::<2>().0.iter_mut().zip(elements.as_chunks::<4>().0) {
        *out = bf16(u32::from_le_bytes(*element)).to_le_bytes();
    }
}

#[inline(always)]
fn fp32_to_bf16_truncated_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.as_chunks_mut::<2>().0.iter_mut().zip(elements.as_chunks::<4>().0) {
        *out = [element[2], element[3]];
    }
}

#[inline(always)]
fn fp32_to_fp16_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.as_chunks_mut::<2>().0.iter_mut().zip(elements.as_chunks::<4>().0) {
        *out = fp16(u32::from_le_bytes(*element)).to_le_bytes();
    }
}

#[inline(always)]
fn bf16_to_fp32_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.as_chunks_mut::<4>().0.iter_mut().zip(elements.as_chunks::<2>().0) {
        *out = [0, 0, element[0], element[1]];
    }
}

/// The value of an FP16 element, exactly.
#[inline(always)]
pub fn fp16_value(element: u16) -> f32 {
    let element = u32::from(element);
    let (sign, size) = ((element & 0x8000) << 16, element & 0x7fff);
    let normal = (size << 13) + 0x3800_0000;
    let tiny = (size as i32 as f32 * f32::from_bits(0x3380_0000)).to_bits();
    let finite = if size < 0x400 { tiny } else { normal };
    f32::from_bits(sign | if size < 0x7c00 { finite } else { size << 13 | 0x7f80_0000 })
}

#[inline(always)]
fn fp16_to_fp32_loop(elements: &[u8], out: &mut [u8]) {
    for (out, element) in out.as_chunks_mut::<4>().0.iter_mut().zip(elements.as_chunks::<2>().0) {
        *out = fp16_value(u16::from_le_bytes(*element)).to_bits().to_le_bytes();
    }
}

dispatch! {
    /// `out = raw ^ base`, up to the shortest length.
    pub fn xor(raw: &[u8], base: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => xor_loop,
    }
}
dispatch! {
    /// `out = raw - base` for each byte, wrapping, up to the shortest length.
    pub fn difference(raw: &[u8], base: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => difference_loop,
    }
}
dispatch! {
    /// `out += base` for each byte, wrapping: the inverse of [`difference`].
    pub fn add(out: &mut [u8], base: &[u8]) {
        AVX512 | AVX2 | PORTABLE => add_loop,
    }
}
dispatch! {
    /// `out ^= base`: the inverse of [`xor`].
    pub fn xor_assign(out: &mut [u8], base: &[u8]) {
        AVX512 | AVX2 | PORTABLE => xor_assign_loop,
    }
}
dispatch! {
    /// Converts FP32 to BF16.
    pub fn fp32_to_bf16(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => fp32_to_bf16_loop,
    }
}
dispatch! {
    /// Converts FP32 to BF16 by truncation.
    pub fn fp32_to_bf16_truncated(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => fp32_to_bf16_truncated_loop,
    }
}
dispatch! {
    /// Converts FP32 to FP16.
    pub fn fp32_to_fp16(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => fp32_to_fp16_loop,
    }
}
dispatch! {
    /// Converts BF16 to FP32, which is exact.
    pub fn bf16_to_fp32(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => bf16_to_fp32_loop,
    }
}
dispatch! {
    /// Converts FP16 to FP32, which is exact.
    pub fn fp16_to_fp32(elements: &[u8], out: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => fp16_to_fp32_loop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::with_each_subset;

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    /// Value of a half-precision number other than a NaN.
    fn value(half: u16) -> f64 {
        let (exponent, mantissa) = (i32::from(half >> 10 & 0x1f), f64::from(half & 0x3ff));
        let size = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 => f64::INFINITY,
            _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
        };
        if half >> 15 == 0 { size } else { -size }
    }

    fn to_fp16(element: f32) -> u16 {
        let mut out = [0; 2];
        fp32_to_fp16(&element.to_le_bytes(), &mut out);
        u16::from_le_bytes(out)
    }

    #[test]
    fn every_half_is_widened_exactly_and_round_trips() {
        with_each_subset(|_| {
            let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let (mut wide, mut scalar) = (vec![0; 4 << 16], vec![0; 4 << 16]);
            let (mut back, mut back_scalar) = (vec![0; 2 << 16], vec![0; 2 << 16]);
            fp16_to_fp32(&halves, &mut wide);
            fp16_to_fp32_loop(&halves, &mut scalar);
            assert!(wide == scalar);
            fp32_to_fp16(&wide, &mut back);
            fp32_to_fp16_loop(&wide, &mut back_scalar);
            assert!(back == back_scalar);
            for half in 0..=u16::MAX {
                let at = usize::from(half);
                let found = f32::from_le_bytes(wide.as_chunks().0[at]);
                let narrowed = u16::from_le_bytes(back.as_chunks().0[at]);
                if half & 0x7fff > 0x7c00 {
                    assert!(found.is_nan() && narrowed == half | 0x200);
                } else {
                    assert!(
                        f64::from(found) == value(half) && found.is_sign_negative() == (half >> 15 == 1),
                        "{half:#x}"
                    );
                    assert_eq!(narrowed, half);
                }
            }
            bf16_to_fp32(&halves, &mut wide);
            fp32_to_bf16(&wide, &mut back);
            fp32_to_bf16_truncated(&wide, &mut back_scalar);
            assert!(back_scalar == halves);
            let pairs = back.as_chunks::<2>().0.iter().zip(halves.as_chunks::<2>().0);
            assert!(
                pairs
                    .enumerate()
                    .all(|(at, (back, half))| back == half || (at & 0x7fff > 0x7f80 && back[0] == half[0] | 0x40))
            );
        });
    }

    #[test]
    fn fp16_rounds_to_nearest_and_ties_to_even() {
        with_each_subset(|_| {
            for half in (0..0x7bffu16).chain(0x8000..0xfbff) {
                let (low, high) = (value(half), value(half + 1));
                let middle = ((low + high) / 2.0) as f32;
                let even = half + (half & 1);
                assert_eq!(to_fp16(middle), even, "{half:#x}");
                let up = if half >> 15 == 0 { middle.next_up() } else { middle.next_down() };
                let down = if half >> 15 == 0 { middle.next_down() } else { middle.next_up() };
                assert_eq!((to_fp16(down), to_fp16(up)), (half, half + 1), "{half:#x}");
            }
            assert_eq!((to_fp16(65_519.996), to_fp16(65_520.0), to_fp16(f32::MAX)), (0x7bff, 0x7c00, 0x7c00));
            assert_eq!((to_fp16(1e-30), to_fp16(-1e-30), to_fp16(f32::NEG_INFINITY)), (0, 0x8000, 0xfc00));
        });
    }

    #[test]
    fn bf16_rounds_to_nearest_and_ties_to_even() {
        with_each_subset(|_| {
            for (element, want) in [
                (0x3f80_8000u32, 0x3f80u16),
                (0x3f80_8001, 0x3f81),
                (0x3f81_8000, 0x3f82),
                (0x3f80_7fff, 0x3f80),
                (0x7f7f_ffff, 0x7f80),
                (0xff80_0000, 0xff80),
                (0x7f80_0001, 0x7fc0),
                (0xffff_ffff, 0xffff),
                (0, 0),
                (0x8000_0001, 0x8000),
            ] {
                let mut out = [0; 2];
                fp32_to_bf16(&element.to_le_bytes(), &mut out);
                assert_eq!(u16::from_le_bytes(out), want, "{element:#x}");
            }
        });
    }

    #[test]
    fn combining_round_trips_at_every_length() {
        with_each_subset(|_| {
            for len in [0usize, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257] {
                let (raw, base) = (noise(len), noise(len + 3)[3..].to_vec());
                let (mut out, mut scalar) = (vec![0; len], vec![0; len]);
                xor(&raw, &base, &mut out);
                xor_loop(&raw, &base, &mut scalar);
                assert_eq!(out, scalar);
                assert!(out.iter().zip(raw.iter().zip(&base)).all(|(out, (raw, base))| *out == raw ^ base));
                xor_assign(&mut out, &base);
                assert_eq!(out, raw);
                difference(&raw, &base, &mut out);
                assert!(
                    out.iter().zip(raw.iter().zip(&base)).all(|(out, (raw, base))| *out == raw.wrapping_sub(*base))
                );
                add(&mut out, &base);
                assert_eq!(out, raw);
            }
        });
    }
}
