//! The types of blocks: their sizes, where a block has its scales, and how it is made.

/// A type of quantised blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "GGML's names")]
pub enum BlockType {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

/// Where the scales of blocks come from, and how codes are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaleSource {
    /// They are in the blocks.
    Given,
    /// They follow from the values.
    Computed,
    /// As before, but product and sum of a code are rounded once, as a processor with fused operations does.
    Fused,
}

impl BlockType {
    /// Every type.
    pub const ALL: [BlockType; 10] = {
        use BlockType::*;
        [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K]
    };

    /// GGML's number, which is also the one on disk.
    pub const fn number(self) -> u8 {
        match self {
            BlockType::Q4_0 => 2,
            BlockType::Q4_1 => 3,
            BlockType::Q5_0 => 6,
            BlockType::Q5_1 => 7,
            BlockType::Q8_0 => 8,
            BlockType::Q2K => 10,
            BlockType::Q3K => 11,
            BlockType::Q4K => 12,
            BlockType::Q5K => 13,
            BlockType::Q6K => 14,
        }
    }

    /// The type with this number.
    pub fn of_number(number: u8) -> Option<BlockType> {
        Self::ALL.into_iter().find(|block_type| block_type.number() == number)
    }

    /// Values of a block, bytes of a block, bits of a code, and the bytes of a block that are scales, as two ranges.
    const fn layout(self) -> (usize, usize, u32, [[usize; 2]; 2]) {
        match self {
            BlockType::Q4_0 => (32, 18, 4, [[0, 2], [2, 2]]),
            BlockType::Q4_1 => (32, 20, 4, [[0, 4], [4, 4]]),
            BlockType::Q5_0 => (32, 22, 5, [[0, 2], [2, 2]]),
            BlockType::Q5_1 => (32, 24, 5, [[0, 4], [4, 4]]),
            BlockType::Q8_0 => (32, 34, 8, [[0, 2], [2, 2]]),
            BlockType::Q2K => (256, 84, 2, [[0, 16], [80, 84]]),
            BlockType::Q3K => (256, 110, 3, [[96, 110], [110, 110]]),
            BlockType::Q4K => (256, 144, 4, [[0, 16], [16, 16]]),
            BlockType::Q5K => (256, 176, 5, [[0, 16], [16, 16]]),
            BlockType::Q6K => (256, 210, 6, [[192, 210], [210, 210]]),
        }
    }

    /// Values of a block.
    pub const fn values(self) -> usize {
        self.layout().0
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        self.layout().1
    }

    /// Bits of a code.
    pub const fn code_bits(self) -> u32 {
        self.layout().2
    }

    /// The positions in a block of the bytes that are scales, ascending.
    pub fn scale_bytes(self) -> impl Iterator<Item = usize> {
        self.layout().3.into_iter().flat_map(|[from, to]| from..to)
    }

    /// The ranges of the bytes of a block that are codes, ascending.
    pub fn code_ranges(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let (_, size, _, [[first, from], [second, last]]) = self.layout();
        [0..first, from..second, last..size].into_iter().filter(|range| !range.is_empty())
    }

    /// Positions of the FP16 numbers among the scales of a block.
    pub fn halves(self) -> impl Iterator<Item = usize> {
        self.row_layout().0.iter().copied()
    }

    /// The ranges of the bytes of a block that are scales, but no FP16 numbers.
    pub fn packed_scales(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let halves = self.row_layout().0;
        let without_halves = move |[mut from, mut to]: [usize; 2]| {
            while from < to && halves.contains(&from) {
                from += 2;
            }
            while from < to && halves.contains(&(to - 2)) {
                to -= 2;
            }
            from..to
        };
        self.layout().3.into_iter().map(without_halves).filter(|range| !range.is_empty())
    }

    /// Positions of the FP16 numbers in a block, and how many integers of its scales and of its least values follow.
    pub(super) const fn row_layout(self) -> (&'static [usize], [usize; 2]) {
        match self {
            BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => (&[0], [0, 0]),
            BlockType::Q4_1 | BlockType::Q5_1 => (&[0, 2], [0, 0]),
            BlockType::Q2K => (&[80, 82], [16, 16]),
            BlockType::Q3K => (&[108], [16, 0]),
            BlockType::Q4K | BlockType::Q5K => (&[0, 2], [8, 8]),
            BlockType::Q6K => (&[208], [16, 0]),
        }
    }

    /// Bytes of a row of differences of scales.
    pub const fn row_bytes(self) -> usize {
        let (halves, [scales, least]) = self.row_layout();
        2 * halves.len() + scales + least
    }

    /// The ranges of a row whose bytes are alike.
    pub fn row_parts(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let (halves, [scales, least]) = self.row_layout();
        let halves = 2 * halves.len();
        let integers = [halves..halves + scales, halves + scales..halves + scales + least];
        (0..halves).map(|at| at..at + 1).chain(integers).filter(|range| !range.is_empty())
    }

    /// The ways in which blocks of this type are made.
    pub const fn sources(self) -> &'static [ScaleSource] {
        match self {
            BlockType::Q4_0 | BlockType::Q5_0 => &[ScaleSource::Computed, ScaleSource::Fused, ScaleSource::Given],
            BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q8_0 => &[ScaleSource::Computed, ScaleSource::Given],
            _ => &[ScaleSource::Given],
        }
    }
}
