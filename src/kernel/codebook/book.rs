//! The codebooks, and the numbers of their codes.

use std::sync::LazyLock;

use super::nearest;

/// Which number a code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codebook {
    /// The code less 128.
    Integers,
    /// As before, but 0 stands for negative zero: integers that were rounded as floats.
    SignedIntegers,
    /// The 16 numbers of NormalFloat; codes from 16 on are 0.
    NormalFloat,
    /// An eight-bit float with an exponent of four bits.
    Fp8E4M3,
}

/// The numbers of NormalFloat.
pub(super) const NORMAL_FLOAT: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

impl Codebook {
    /// Every codebook.
    pub const ALL: [Codebook; 4] =
        [Codebook::Integers, Codebook::NormalFloat, Codebook::Fp8E4M3, Codebook::SignedIntegers];

    /// The number of a code.
    #[inline(always)]
    pub fn number(self, code: u8) -> f32 {
        match self {
            Codebook::Integers => f32::from(code) - 128.0,
            Codebook::SignedIntegers if code == 0 => -0.0,
            Codebook::SignedIntegers => f32::from(code) - 128.0,
            Codebook::NormalFloat => NORMAL_FLOAT.get(usize::from(code)).copied().unwrap_or(0.0),
            Codebook::Fp8E4M3 => {
                let (sign, exponent, fraction) = (code >> 7, u32::from(code >> 3 & 15), u32::from(code & 7));
                let magnitude = match (exponent, fraction) {
                    (15, 7) => f32::NAN,
                    (0, _) => fraction as f32 / 512.0,
                    _ => f32::from_bits((exponent + 120) << 23 | fraction << 20),
                };
                if sign == 1 { -magnitude } else { magnitude }
            }
        }
    }

    /// The numbers of all codes.
    pub fn numbers(self) -> &'static [f32; 256] {
        static TABLES: LazyLock<[[f32; 256]; 4]> =
            LazyLock::new(|| Codebook::ALL.map(|book| std::array::from_fn(|code| book.number(code as u8))));
        let at = Codebook::ALL.iter().position(|book| *book == self);
        &TABLES[at.unwrap_or(0)]
    }

    /// The code of the number nearest to a value divided by a scale.
    #[inline(always)]
    pub fn nearest(self, quotient: f32) -> u8 {
        match self {
            Codebook::Integers => nearest::integer(quotient),
            Codebook::SignedIntegers => nearest::signed_integer(quotient),
            Codebook::NormalFloat => nearest::normal_float(quotient),
            Codebook::Fp8E4M3 => nearest::fp8(quotient),
        }
    }
}
