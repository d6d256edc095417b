//! Types of stored values. Signed, unsigned and boolean values of one width share a type, because only the width and
//! the exponent affect storage.

use crate::codec::ElementType;

/// Type of a tensor's stored values, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dtype {
    /// 64-bit IEEE float.
    Float64,
    /// 32-bit IEEE float.
    Float32,
    /// 16-bit IEEE float.
    Float16,
    /// bfloat16: the upper half of a 32-bit IEEE float.
    Bfloat16,
    /// Any 8-bit float.
    Float8,
    /// 64-bit integers.
    Int64,
    /// 32-bit integers.
    Int32,
    /// 16-bit integers.
    Int16,
    /// 8-bit integers and booleans.
    Int8,
    /// Blocks of quantised values, with the number of their GGML type.
    Quantised(u8),
    /// Any other type, also big-endian values.
    Other,
}

use Dtype::{Bfloat16, Float8, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Other, Quantised};

/// Types with a fixed width: code, name, bytes of a value.
const PLAIN: &[(Dtype, u16, &str, usize)] = &[
    (Float64, 1, "F64", 8),
    (Float32, 2, "F32", 4),
    (Float16, 3, "F16", 2),
    (Bfloat16, 4, "BF16", 2),
    (Float8, 5, "F8", 1),
    (Int64, 6, "I64", 8),
    (Int32, 7, "I32", 4),
    (Int16, 8, "I16", 2),
    (Int8, 9, "I8", 1),
];

/// GGML's block types: number, name, values of a block, bytes of a block.
const BLOCKS: &[(u8, &str, u64, u64)] = &[
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (29, "IQ1_M", 256, 56),
    (31, "Q4_0_4_4", 32, 18),
    (32, "Q4_0_4_8", 32, 18),
    (33, "Q4_0_8_8", 32, 18),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
];

/// The code of a block type is this plus its GGML number.
const QUANTISED_CODE: u16 = 0x100;

impl Dtype {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        let plain = PLAIN.iter().find(|row| row.0 == self).map(|row| row.2);
        plain.or_else(|| self.row().map(|row| row.1)).unwrap_or("other")
    }
    /// Inverse of [`Dtype::name`]. `None` for `other`.
    pub fn named(name: &str) -> Option<Dtype> {
        let plain = PLAIN.iter().find(|row| row.2 == name).map(|row| row.0);
        plain.or_else(|| BLOCKS.iter().find(|row| row.1 == name).map(|row| Quantised(row.0)))
    }
    /// Bytes of one value. `None` for blocks and other types.
    pub fn width(self) -> Option<usize> {
        PLAIN.iter().find(|row| row.0 == self).map(|row| row.3)
    }
    /// Whether values are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Float64 | Float32 | Float16 | Bfloat16 | Float8)
    }
    /// Element type of the codecs: floats as they are, every other type as unknown.
    pub fn element_type(self) -> ElementType {
        match self {
            Bfloat16 => ElementType::Bf16,
            Float16 => ElementType::Fp16,
            Float32 => ElementType::Fp32,
            Float64 => ElementType::Fp64,
            Float8 => ElementType::Byte,
            Int64 | Int32 | Int16 | Int8 | Quantised(_) | Other => ElementType::Unknown,
        }
    }
    /// Number of the type on disk. It never changes.
    pub fn code(self) -> u16 {
        match self {
            Quantised(number) => QUANTISED_CODE + u16::from(number),
            _ => PLAIN.iter().find(|row| row.0 == self).map_or(0, |row| row.1),
        }
    }
    /// Inverse of [`Dtype::code`].
    pub fn from_code(code: u16) -> Option<Dtype> {
        if code == 0 {
            return Some(Other);
        }
        let plain = PLAIN.iter().find(|row| row.1 == code).map(|row| row.0);
        let block = || BLOCKS.iter().find(|row| QUANTISED_CODE + u16::from(row.0) == code).map(|row| Quantised(row.0));
        plain.or_else(block)
    }
    /// Values of a block and bytes of a block. `None` if the type is not quantised.
    pub fn block(self) -> Option<(u64, u64)> {
        self.row().map(|row| (row.2, row.3))
    }

    /// The type with this number in GGML.
    pub(super) fn from_ggml(number: u32) -> Dtype {
        match number {
            0 => Float32,
            1 => Float16,
            24 => Int8,
            25 => Int16,
            26 => Int32,
            27 => Int64,
            28 => Float64,
            30 => Bfloat16,
            _ => BLOCKS.iter().find(|row| u32::from(row.0) == number).map_or(Other, |row| Quantised(row.0)),
        }
    }

    fn row(self) -> Option<&'static (u8, &'static str, u64, u64)> {
        let Quantised(number) = self else { return None };
        BLOCKS.iter().find(|row| row.0 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_unique_and_codes_round_trip() {
        let plain = PLAIN.iter().map(|row| row.0);
        let all: Vec<Dtype> = plain.chain(BLOCKS.iter().map(|row| Quantised(row.0))).chain([Other]).collect();
        for dtype in &all {
            assert_eq!(Dtype::from_code(dtype.code()), Some(*dtype));
        }
        let names: std::collections::HashSet<&str> = all.iter().map(|dtype| dtype.name()).collect();
        assert_eq!(names.len(), all.len());
        let known = (0..=u16::MAX).filter(|code| Dtype::from_code(*code).is_some());
        assert_eq!(known.count(), all.len());
        assert_eq!((Bfloat16.code(), Quantised(8).code(), Other.code()), (4, 0x108, 0));
    }

    #[test]
    fn types_have_a_width_or_a_block_size() {
        assert_eq!(
            (Float64.width(), Bfloat16.width(), Quantised(2).width(), Other.width()),
            (Some(8), Some(2), None, None)
        );
        assert_eq!(
            (Quantised(8).block(), Quantised(14).block(), Float32.block()),
            (Some((32, 34)), Some((256, 210)), None)
        );
        assert!(Float8.is_float() && !Int16.is_float() && !Quantised(8).is_float());
        assert_eq!((Dtype::from_ggml(30), Dtype::from_ggml(39), Dtype::from_ggml(4)), (Bfloat16, Quantised(39), Other));
    }
}
