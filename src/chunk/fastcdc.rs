//! `fastcdc`: FastCDC (Xia et al., USENIX ATC 2016; the crate's 2020 variant), with a keyed table.

use fastcdc::v2020::{AVERAGE_MIN, FastCDC, Normalization, get_gear_with_seed, select_masks};

use super::Chunker;
use crate::config::RepositoryConfig;
use crate::kernel::sieve::Anchor;

/// FastCDC's normalisation, weak: sub-block deduplication finds more where chunk lengths vary.
const NORMALIZATION: Normalization = Normalization::Level1;

pub(super) struct FastCdc {
    min: usize,
    avg: usize,
    max: usize,
    seed: u64,
}

/// Derives a seed from `seed` under which no run of one repeated byte ends a chunk.
///
/// Archives and images are padded with such runs. A seed that ends chunks in them gives chunks of the smallest length.
fn quiet_seed(mut seed: u64, avg: usize) -> u64 {
    let (strict, lax) = select_masks(avg, NORMALIZATION);
    loop {
        let (gear, _) = get_gear_with_seed(seed);
        // After 64 equal bytes the gear hash is the table value times 2^64 - 1: the negative of the table value.
        let ends_chunk = |value: &u64| value.wrapping_neg() & strict == 0 || value.wrapping_neg() & lax == 0;
        if !gear.iter().any(ends_chunk) {
            return seed;
        }
        seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    }
}

impl FastCdc {
    pub(super) fn new(config: &RepositoryConfig, seed: u64) -> Self {
        // FastCDC skips the smallest length first, so chunks average twice the average that it is given.
        let avg = (config.chunk_bytes_avg.0 as usize / 2).max(AVERAGE_MIN);
        FastCdc {
            min: config.chunk_bytes_min.0 as usize,
            avg,
            max: config.chunk_bytes_max.0 as usize,
            seed: quiet_seed(seed, avg),
        }
    }
}

impl Chunker for FastCdc {
    fn cut(&self, bytes: &[u8], _: &mut Vec<Anchor>) -> usize {
        if bytes.len() <= self.min {
            return bytes.len();
        }
        let cdc = FastCDC::with_level_and_seed(bytes, self.min, self.avg, self.max, NORMALIZATION, self.seed);
        let (_, end) = cdc.cut(0, bytes.len());
        end.clamp(1, bytes.len())
    }
}
