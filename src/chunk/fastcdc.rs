//! `fastcdc`: FastCDC (Xia et al., USENIX ATC 2016; the crate's 2020 variant), with a keyed table.

use fastcdc::v2020::{AVERAGE_MIN, FastCDC, Normalization, get_gear_with_seed, select_masks};

use super::Chunker;
use crate::config::RepositoryConfig;
use crate::kernel::sieve::Anchor;

/// FastCDC's normalisation. Chunks of varied length suit sub-block deduplication: their sub-blocks vary, too.
const NORMALIZATION: Normalization = Normalization::Level1;

pub(super) struct FastCdc {
    min: usize,
    avg: usize,
    max: usize,
    seed: u64,
}

/// A seed, derived from `seed`, under which no run of one repeated byte is a cut. Such runs (the padding of archives
/// and images) would otherwise be cut at the smallest length, and with them everything else.
fn quiet_seed(mut seed: u64, avg: usize) -> u64 {
    let (strict, lax) = select_masks(avg, NORMALIZATION);
    loop {
        let (gear, _) = get_gear_with_seed(seed);
        // The gear hash of a long run of one byte is the sum of its table value shifted by 0 to 63: its negative.
        let cuts = |value: &u64| value.wrapping_neg() & strict == 0 || value.wrapping_neg() & lax == 0;
        if !gear.iter().any(cuts) {
            return seed;
        }
        seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    }
}

impl FastCdc {
    pub(super) fn new(config: &RepositoryConfig, seed: u64) -> Self {
        // FastCDC skips the smallest length first, so its own parameter is half of the average that comes out.
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
