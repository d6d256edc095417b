//! Rounds FP32 to the narrower float types.

/// BF16 nearest to `value`, ties to even.
pub fn brain(value: f32) -> u16 {
    let bits = value.to_bits();
    (bits.saturating_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// FP16 nearest to `value`, ties to even. Too large values become infinite.
pub fn half(value: f32) -> u16 {
    let (sign, magnitude) = ((value.to_bits() >> 16 & 0x8000) as u16, value.abs());
    if magnitude.is_nan() || magnitude >= 65_520.0 {
        return sign | if value.is_nan() { 0x7e00 } else { 0x7c00 };
    }
    // Adding a power of two rounds to FP16 if both have the same unit in the last place.
    let exponent = (magnitude.to_bits() >> 23).max(113);
    let rounder = f32::from_bits((exponent + 13) << 23);
    let units = (magnitude + rounder).to_bits().wrapping_sub(rounder.to_bits());
    sign | (((exponent - 113) << 10) + units) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_half_and_brain_floats() {
        let halves = [(1.0, 0x3c00), (-2.0, 0xc000), (65_504.0, 0x7bff), (65_520.0, 0x7c00), (0.0, 0), (-0.0, 0x8000)];
        let small = [(6.103_515_6e-5, 0x0400), (5.960_464_5e-8, 1), (2e-8, 0), (0.333_333_34, 0x3555)];
        for (value, bits) in halves.into_iter().chain(small) {
            assert_eq!(half(value), bits, "{value}");
        }
        assert_eq!(half(2049.0), 0x6800, "a tie goes to even");
        assert_eq!(half(2051.0), 0x6802, "a tie goes to even");
        assert!(half(f32::NAN) & 0x7fff > 0x7c00);
        assert_eq!((brain(1.0), brain(f32::INFINITY), brain(1.0 + 1.0 / 256.0)), (0x3f80, 0x7f80, 0x3f80));
    }
}
