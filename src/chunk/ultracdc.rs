//! `ultracdc`: UltraCDC (Zhou, Wang, Xia, Zhang, IPCCC 2022).
//!
//! 1. From the smallest length on, an 8-byte window slides byte by byte. Its Hamming distance to `0xaa` × 8 is updated
//!    with the bytes that enter and leave. A chunk ends where distance and mask share no bit: the mask is `0x2f` up to
//!    the average length (distance 16) and `0x2c` beyond it (16 to 19).
//! 2. Eight bytes that equal the previous eight are skipped. After 64 such windows in a row the chunk ends.
//!
//! Sources: the paper's abstract and an implementation of its pseudocode (PlakarKorp/go-cdc-chunkers,
//! `chunkers/ultracdc`). The paper's limits are 2, 10 and 64 KiB. The paper does not cover three cases:
//!
//! - Other averages. Its masks give boundaries about 38 KB apart up to the average and 1.3 KB beyond it. One less in
//!   distance is about three times as rare. So the distance gets 1 added before masking for each factor of three
//!   between the paper's 8 KiB and the configured span from the smallest to the average length. The paper's limits give
//!   the paper's boundaries.
//! - Lengths that are not multiples of 8. The lax mask starts at the first 8-byte step at or beyond the average.
//! - The end of a file. Bytes after the last whole step belong to the last chunk.
//!
//! There is no key: whoever has the same content can recognise it by its chunk lengths.

use super::Chunker;
use crate::config::RepositoryConfig;
use crate::kernel::sieve::Anchor;

const WINDOW_BYTES: usize = 8;
const PATTERN: u8 = 0xaa;
/// Mask up to the average length.
const STRICT: i32 = 0x2f;
/// Mask beyond the average length.
const LAX: i32 = 0x2c;
/// Equal windows in a row that end a chunk.
const EQUAL_MAX: usize = 64;
/// Bytes between the paper's smallest and average lengths.
const PAPER_SPAN_BYTES: u64 = 8 << 10;

pub(super) struct UltraCdc {
    min: usize,
    avg: usize,
    max: usize,
    /// Added to each distance before masking.
    shift: i32,
    /// Hamming distance of each byte value to [`PATTERN`].
    distances: [i32; 256],
}

/// Exponent of the power of 3 nearest to `span` / [`PAPER_SPAN_BYTES`], limited to -4..=12.
fn shift(span: u64) -> i32 {
    let (mut shift, mut near, mut far) = (0, span.max(1), PAPER_SPAN_BYTES);
    // While the ratio exceeds the square root of 3.
    while near * near > 3 * far * far && shift < 12 {
        (shift, far) = (shift + 1, far * 3);
    }
    while far * far > 3 * near * near && shift > -4 {
        (shift, near) = (shift - 1, near * 3);
    }
    shift
}

impl UltraCdc {
    pub(super) fn new(config: &RepositoryConfig) -> Self {
        let span = config.chunk_bytes_avg.0.saturating_sub(config.chunk_bytes_min.0);
        UltraCdc { shift: shift(span), ..Self::with_papers_masks(config) }
    }

    /// The paper's masks at any length.
    pub(super) fn with_papers_masks(config: &RepositoryConfig) -> Self {
        UltraCdc {
            min: config.chunk_bytes_min.0 as usize,
            avg: config.chunk_bytes_avg.0 as usize,
            max: config.chunk_bytes_max.0 as usize,
            shift: 0,
            distances: std::array::from_fn(|byte| (byte as u8 ^ PATTERN).count_ones() as i32),
        }
    }

    fn distance(&self, byte: u8) -> i32 {
        self.distances[usize::from(byte)]
    }
}

impl Chunker for UltraCdc {
    fn cut(&self, bytes: &[u8], _: &mut Vec<Anchor>) -> usize {
        let limit = bytes.len().min(self.max);
        let (windows, _) = bytes.get(self.min..limit).unwrap_or_default().as_chunks::<WINDOW_BYTES>();
        let Some((mut previous, windows)) = windows.split_first() else { return limit };
        let mut distance = self.shift + previous.iter().map(|byte| self.distance(*byte)).sum::<i32>();
        let mut equal = 0;
        let mut at = self.min;
        for window in windows {
            at += WINDOW_BYTES;
            if window == previous {
                equal += 1;
                if equal == EQUAL_MAX {
                    return at + WINDOW_BYTES;
                }
                continue;
            }
            equal = 0;
            let mask = if at < self.avg { STRICT } else { LAX };
            for (offset, (leaves, enters)) in previous.iter().zip(window).enumerate() {
                if distance & mask == 0 {
                    return at + offset;
                }
                distance += self.distance(*enters) - self.distance(*leaves);
            }
            previous = window;
        }
        limit
    }
}
