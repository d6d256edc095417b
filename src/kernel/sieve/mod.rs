//! Sieve: a filter that keeps about one position in 256, and hashes of 32-byte windows at those.
//!
//! 1. *Filter*: a GF(2)-linear function of the last eight bytes, made by doubling: each byte and a map of the one
//!    before it, each of these pairs and a map of the one two bytes before, each of those fours and a map of the one
//!    four bytes before, combined by exclusive or. A position passes where it is a constant. (Of four bytes alone,
//!    content of few letters has so few windows, nucleotides 256, that for some keys none of them passes.)
//! 2. *Guard*: a position that follows another one within 15 bytes is dropped, so at most one in 16 is left, whatever
//!    the bytes are. The decision depends on the last 23 bytes alone: equal content gives equal positions.
//! 3. *Hash*: the 32 bytes before each position left, with two 128-bit products.
//!
//! No run of one byte passes the filter: the padding of archives and images has no positions.
//!
//! The filter has a kernel for AVX-512 with GFNI (64 positions at a time, a matrix product for each of the eight
//! bytes), one for AVX2 (32 positions, two look-ups of nibbles for each map) and a portable one (8 positions, a look-up
//! for each byte). They give the same positions; the fastest that the processor has is taken when the sieve is made.

mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Bytes before a position that its hash covers.
pub const WINDOW_BYTES: usize = 32;
/// Positions of a word of masks.
const WORD_BITS: usize = u64::BITS as usize;
/// Bytes in front of a position that the filter looks at.
const FILTER_BYTES: usize = 8;
/// Of these, those in front of a position's own byte.
const FRONT_BYTES: usize = FILTER_BYTES - 1;
/// Bytes that a word of masks depends on: those of its positions and the ones in front.
const STRIP_BYTES: usize = WORD_BITS + FRONT_BYTES;
/// Words masked at a time.
const BLOCK_WORDS: usize = 64;
/// The first position lies after the bytes that the guard looks at.
const FIRST: usize = 16;

/// The maps of the three doublings as tables, the constant folded into the last: with the fours of a position and of
/// the one four bytes before, the position passes where the former is what the last map gives for the latter.
type Maps = [[u8; 256]; 3];

/// The map of each of the eight bytes, the last one's first, the constant folded into that: a position passes where
/// their exclusive or is zero.
fn of_each_byte([pair, four, eight]: &Maps) -> [[u8; 256]; FILTER_BYTES] {
    let constant = eight[0];
    let same: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    let mut all = [same, *pair, *four, pair.map(|value| four[usize::from(value)]), same, same, same, same];
    for number in 0..4 {
        all[number + 4] = all[number].map(|value| eight[usize::from(value)] ^ constant);
    }
    all[0] = same.map(|value| value ^ constant);
    all
}
/// Bit `i` of word `n` stands for position `64 n + i` of a block.
type Words = [u64; BLOCK_WORDS];

/// A position in a chunk that its content alone determines, and the hash of the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Bytes in front of it; at least [`WINDOW_BYTES`].
    pub position: u32,
    /// Keyed hash of the [`WINDOW_BYTES`] before it.
    pub hash: u64,
}

/// How the filter is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SieveKernel {
    /// AVX-512 (F, BW) and GFNI.
    Gfni,
    /// AVX2.
    Avx2,
    /// Any processor.
    Portable,
}

impl SieveKernel {
    /// All of them, the fastest first.
    pub const ALL: [SieveKernel; 3] = [SieveKernel::Gfni, SieveKernel::Avx2, SieveKernel::Portable];
}

/// A kernel and its constants.
#[derive(Debug, Clone)]
enum Filter {
    #[cfg(target_arch = "x86_64")]
    Gfni(x86::Gfni),
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    Portable(portable::Portable),
}

impl Filter {
    /// None where the processor lacks what the kernel needs.
    fn new(kernel: SieveKernel, maps: &Maps) -> Option<Self> {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            SieveKernel::Gfni => x86::Gfni::new(maps).map(Filter::Gfni),
            #[cfg(target_arch = "x86_64")]
            SieveKernel::Avx2 => x86::Avx2::new(maps).map(Filter::Avx2),
            #[cfg(not(target_arch = "x86_64"))]
            SieveKernel::Gfni | SieveKernel::Avx2 => None,
            SieveKernel::Portable => Some(Filter::Portable(portable::Portable::new(maps))),
        }
    }

    /// Sets bit `i` where the filter passes the position after byte `i + 7` of `block`, and gives the mask of the words
    /// that are not zero.
    fn masks(&self, block: &[u8], words: &mut Words) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Filter::Gfni(filter) => filter.masks(block, words),
            #[cfg(target_arch = "x86_64")]
            Filter::Avx2(filter) => filter.masks(block, words),
            Filter::Portable(filter) => filter.masks(block, words),
        }
    }
}

/// The filter and the hash, keyed.
#[derive(Debug, Clone)]
pub struct Sieve {
    filter: Filter,
    keys: [u64; 4],
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A bit matrix times a byte; row `i` gives bit `i`.
fn apply(rows: u64, byte: u8) -> u8 {
    (0..8).fold(0, |result, bit| {
        let row = (rows >> (8 * bit)) as u8;
        result | (((row & byte).count_ones() & 1) as u8) << bit
    })
}

/// The map of every byte by an invertible random matrix.
fn random_map(state: &mut u64) -> [u8; 256] {
    loop {
        let rows = next_random(state);
        let map: [u8; 256] = std::array::from_fn(|byte| apply(rows, byte as u8));
        let mut seen = [false; 256];
        map.iter().for_each(|value| seen[usize::from(*value)] = true);
        if seen.iter().all(|seen| *seen) {
            return map;
        }
    }
}

/// Maps and keys for `seed`, such that no run of one byte passes the filter.
fn draw(seed: u64) -> (Box<Maps>, [u64; 4]) {
    let mut state = seed;
    loop {
        let mut maps: Box<Maps> = Box::new(std::array::from_fn(|_| random_map(&mut state)));
        let constant = next_random(&mut state) as u8;
        maps[2].iter_mut().for_each(|value| *value ^= constant);
        let keys = std::array::from_fn(|_| next_random(&mut state) | 1);
        let bytes = of_each_byte(&maps);
        let run = |byte: usize| bytes.iter().fold(0, |all, map| all ^ map[byte]);
        if (0..256).all(|byte| run(byte) != 0) {
            return (maps, keys);
        }
    }
}

impl Sieve {
    /// A sieve keyed by `seed`, with the fastest kernel that this processor has.
    pub fn new(seed: u64) -> Self {
        let (maps, keys) = draw(seed);
        let filter = SieveKernel::ALL.iter().find_map(|kernel| Filter::new(*kernel, &maps));
        Sieve { filter: filter.unwrap_or_else(|| Filter::Portable(portable::Portable::new(&maps))), keys }
    }

    /// The same with this kernel; none where the processor lacks it.
    pub fn with_kernel(seed: u64, kernel: SieveKernel) -> Option<Self> {
        let (maps, keys) = draw(seed);
        Some(Sieve { filter: Filter::new(kernel, &maps)?, keys })
    }

    fn hash(&self, window: &[u8; WINDOW_BYTES]) -> u64 {
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|word| {
            let bytes = window.as_chunks::<8>().0.get(word).copied().unwrap_or_default();
            u64::from_le_bytes(bytes)
        });
        let [a, b, c, d] = self.keys;
        let product = u128::from(first ^ a) * u128::from(second ^ b);
        let other = u128::from(third ^ c) * u128::from(fourth ^ d);
        let mixed = product.wrapping_add(other.rotate_left(64));
        let folded = u128::from((mixed >> 64) as u64 ^ a) * u128::from(mixed as u64 ^ d);
        (folded >> 64) as u64 ^ folded as u64
    }

    /// Shows `visit` the anchors of `bytes` in order, until it answers `false`.
    pub fn scan(&self, bytes: &[u8], mut visit: impl FnMut(Anchor) -> bool) {
        let mut words = [0; BLOCK_WORDS];
        let mut before = 0;
        let mut at = FIRST;
        while at < bytes.len() {
            let end = bytes.len().min(at + WORD_BITS * BLOCK_WORDS);
            let mut occupied = self.filter.masks(bytes.get(at - FRONT_BYTES..end).unwrap_or_default(), &mut words);
            while occupied != 0 {
                let number = occupied.trailing_zeros() as usize;
                occupied &= occupied - 1;
                let mut left = guarded(words[number], number.checked_sub(1).map_or(before, |number| words[number]));
                while left != 0 {
                    let position = at + WORD_BITS * number + left.trailing_zeros() as usize + 1;
                    left &= left - 1;
                    let front = bytes.get(..position).unwrap_or_default();
                    let Some(window) = front.last_chunk::<WINDOW_BYTES>() else { continue };
                    if !visit(Anchor { position: position as u32, hash: self.hash(window) }) {
                        return;
                    }
                }
            }
            before = words[BLOCK_WORDS - 1];
            at = end;
        }
    }

    /// All anchors of a chunk.
    pub fn anchors(&self, bytes: &[u8]) -> Vec<Anchor> {
        let mut anchors = Vec::with_capacity(bytes.len() / 240 + 1);
        self.scan(bytes, |anchor| {
            anchors.push(anchor);
            true
        });
        anchors
    }
}

/// `word` without the bits that follow another within 15 places, `before` being the word in front.
fn guarded(word: u64, before: u64) -> u64 {
    let both = u128::from(word) << 64 | u128::from(before);
    let mut smeared = both << 1;
    smeared |= smeared << 1;
    smeared |= smeared << 2;
    smeared |= smeared << 4;
    smeared |= smeared << 7;
    word & !((smeared >> 64) as u64)
}

/// Has `word` compute each word of masks from the bytes it depends on, the last filled up with zeros; gives the mask of
/// the words that are not zero.
#[inline(always)]
fn each_word(block: &[u8], words: &mut Words, mut word: impl FnMut(&[u8; STRIP_BYTES]) -> u64) -> u64 {
    let mut occupied = 0;
    for (number, slot) in words.iter_mut().enumerate() {
        let rest = block.get(WORD_BITS * number..).unwrap_or_default();
        *slot = match rest.first_chunk() {
            Some(strip) => word(strip),
            None if rest.len() < FILTER_BYTES => 0,
            None => {
                let mut strip = [0; STRIP_BYTES];
                strip[..rest.len()].copy_from_slice(rest);
                word(&strip) & !(u64::MAX << (rest.len() - FRONT_BYTES))
            }
        };
        occupied |= u64::from(*slot != 0) << number;
    }
    occupied
}
