//! Codes of the nearest numbers. Written without branches, so that the compiler takes several values at a time.

use super::book::NORMAL_FLOAT;

/// In the sum with this number, the low bits have the nearest integer.
const INTEGER_BITS: f32 = 12_582_912.0;

/// The nearest integer from −128 to 127, as its code.
#[inline(always)]
pub(super) fn integer(quotient: f32) -> u8 {
    let least = if quotient > -128.0 { quotient } else { -128.0 };
    let bounded = if least < 127.0 { least } else { 127.0 };
    (bounded + INTEGER_BITS).to_bits() as u8 ^ 0x80
}

/// The nearest integer from −127 to 127, as its code; that of negative zero if it is zero and the quotient negative.
#[inline(always)]
pub(super) fn signed_integer(quotient: f32) -> u8 {
    let code = integer(if quotient > -127.0 { quotient } else { -127.0 });
    if code == 128 && quotient.is_sign_negative() { 0 } else { code }
}

/// The code of the nearest number of NormalFloat.
#[inline(always)]
pub(super) fn normal_float(quotient: f32) -> u8 {
    let mut code = 0u32;
    for pair in NORMAL_FLOAT.windows(2) {
        code += u32::from(quotient > (pair[0] + pair[1]) / 2.0);
    }
    // As a float, or the compiler would narrow the result of each comparison to a byte.
    (code as i32 as f32 + INTEGER_BITS).to_bits() as u8
}

/// The code of the nearest eight-bit float, at most 448.
#[inline(always)]
pub(super) fn fp8(quotient: f32) -> u8 {
    let sign = (quotient.to_bits() >> 31) as u8;
    let magnitude = quotient.abs();
    let bounded = if magnitude < 448.0 { magnitude } else { 448.0 };
    let bits = bounded.to_bits();
    let normal = (bits.wrapping_add(0x7_ffff + (bits >> 20 & 1)) >> 20).wrapping_sub(120 << 3) as u8;
    let tiny = (bounded * 512.0 + INTEGER_BITS).to_bits() as u8;
    (if bounded < 0.015_625 { tiny } else { normal }) | sign << 7
}
