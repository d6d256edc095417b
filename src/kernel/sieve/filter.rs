//! The sieve: its maps, the choice of the kernel, the guard, and the hash of a window.

use crate::kernel::cpu_features::CpuFeatures;
use crate::kernel::dispatch::dispatch;

/// Bytes before a position that its hash covers.
pub const WINDOW_BYTES: usize = 32;
/// Positions of a mask.
pub(super) const MASK_BITS: usize = u64::BITS as usize;
/// Bytes before a position that the filter depends on.
pub(super) const FILTER_BYTES: usize = 8;
/// Filter bytes before the last one.
pub(super) const FRONT_BYTES: usize = FILTER_BYTES - 1;
/// Bytes that a mask depends on: those of its positions, and the filter bytes before them.
pub(super) const STRIP_BYTES: usize = MASK_BITS + FRONT_BYTES;
/// Masks computed at a time.
pub(super) const BLOCK_MASKS: usize = 64;
/// Bytes before the first position that is examined: those that the guard depends on.
pub(super) const FIRST: usize = 16;

/// The maps of the three doublings. The last one includes the constant: a position passes if its four equals the last
/// map of the four four bytes before.
pub(super) type Maps = [[u8; 256]; 3];

/// The map of each of the eight bytes, that of the last byte first. It includes the constant: a position passes if the
/// XOR of the eight results is zero.
pub(super) fn of_each_byte([pair, four, eight]: &Maps) -> [[u8; 256]; FILTER_BYTES] {
    let constant = eight[0];
    let same: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    let mut all = [same, *pair, *four, pair.map(|value| four[usize::from(value)]), same, same, same, same];
    for number in 0..4 {
        all[number + 4] = all[number].map(|value| eight[usize::from(value)] ^ constant);
    }
    all[0] = same.map(|value| value ^ constant);
    all
}
/// Bit `i` of mask `n` is position `64 n + i` of a block.
pub(super) type BlockMasks = [u64; BLOCK_MASKS];

/// A position in a chunk that depends only on the content, and the hash of the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Bytes of the chunk before it; at least [`WINDOW_BYTES`].
    pub position: u32,
    /// Keyed hash of the [`WINDOW_BYTES`] before it.
    pub hash: u64,
}

/// The maps in the forms that the loops of the filter use.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only GFNI multiplies by matrices"))]
#[derive(Debug, Clone)]
pub(super) struct FilterConstants {
    /// The features that the loops may use.
    features: CpuFeatures,
    /// The bit matrix of the map of each byte, that of the last byte first.
    pub(super) matrices: [i64; FILTER_BYTES],
    /// A position passes if the XOR of the products with these matrices is this.
    pub(super) passes: u8,
    /// For each map of a doubling, the results of the low and of the high nibbles. Those of the low ones have the
    /// constant.
    pub(super) halves: [[[u8; 16]; 2]; 3],
    /// The maps of every byte, that for its own position in the lowest byte.
    pub(super) entries: [u64; 256],
}

impl FilterConstants {
    fn new(maps: &Maps, features: CpuFeatures) -> Self {
        let bytes = of_each_byte(maps);
        let halves = |map: &[u8; 256]| {
            let high = std::array::from_fn(|nibble| map[nibble << 4] ^ map[0]);
            [std::array::from_fn(|nibble| map[nibble]), high]
        };
        FilterConstants {
            features,
            matrices: bytes.each_ref().map(matrix),
            passes: bytes.iter().fold(0, |all, map| all ^ map[0]),
            halves: maps.each_ref().map(halves),
            entries: std::array::from_fn(|byte| u64::from_le_bytes(bytes.each_ref().map(|map| map[byte]))),
        }
    }
}

/// The matrix of a map, as GFNI takes it. Row `i`, which gives bit `i`, is byte `7 - i`.
pub(super) fn matrix(map: &[u8; 256]) -> i64 {
    let column = |bit: usize| map[1 << bit] ^ map[0];
    let row = |i: usize| (0..8).fold(0u8, |row, bit| row | (column(bit) >> i & 1) << bit);
    i64::from_le_bytes(std::array::from_fn(|byte| row(7 - byte)))
}

dispatch! {
    in constants.features;
    /// Sets bit `i` of `masks` if the position after byte `i + 7` of `block` passes. Bit `n` of the result says whether
    /// mask `n` is not zero.
    fn fill_masks(constants: &FilterConstants, block: &[u8], masks: &mut BlockMasks) -> u64 {
        AVX512_GFNI => super::avx512::fill_masks,
        AVX2 => super::avx2::fill_masks,
        NEON => super::neon::fill_masks,
        PORTABLE => super::portable::fill_masks,
    }
}

/// The filter and the hash, keyed.
#[derive(Debug, Clone)]
pub struct Sieve {
    constants: Box<FilterConstants>,
    pub(super) keys: [u64; 4],
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(super) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The product of a bit matrix and a byte. Row `i` of the matrix gives bit `i`.
pub(super) fn apply(rows: u64, byte: u8) -> u8 {
    (0..8).fold(0, |result, bit| {
        let row = (rows >> (8 * bit)) as u8;
        result | (((row & byte).count_ones() & 1) as u8) << bit
    })
}

/// The products of all bytes and a random invertible matrix.
pub(super) fn random_map(state: &mut u64) -> [u8; 256] {
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

/// Maps and keys for `seed`. No run of one byte passes the filter.
pub(super) fn draw(seed: u64) -> (Box<Maps>, [u64; 4]) {
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
    /// A sieve keyed by `seed`, with the fastest loop.
    pub fn new(seed: u64) -> Self {
        Self::with_features(seed, CpuFeatures::all())
    }

    /// A sieve keyed by `seed`, with the fastest loop that needs none but these CPU features.
    pub fn with_features(seed: u64, features: CpuFeatures) -> Self {
        let (maps, keys) = draw(seed);
        Sieve { constants: Box::new(FilterConstants::new(&maps, features)), keys }
    }

    pub(super) fn hash(&self, window: &[u8; WINDOW_BYTES]) -> u64 {
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|lane| {
            let bytes = window.as_chunks::<8>().0.get(lane).copied().unwrap_or_default();
            u64::from_le_bytes(bytes)
        });
        let [a, b, c, d] = self.keys;
        let product = u128::from(first ^ a) * u128::from(second ^ b);
        let other = u128::from(third ^ c) * u128::from(fourth ^ d);
        let mixed = product.wrapping_add(other.rotate_left(64));
        let folded = u128::from((mixed >> 64) as u64 ^ a) * u128::from(mixed as u64 ^ d);
        (folded >> 64) as u64 ^ folded as u64
    }

    /// Calls `visit` with the anchors of `bytes` in order, until it returns false.
    pub fn scan(&self, bytes: &[u8], mut visit: impl FnMut(Anchor) -> bool) {
        let mut masks = [0; BLOCK_MASKS];
        let mut before = 0;
        let mut at = FIRST;
        while at < bytes.len() {
            let end = bytes.len().min(at + MASK_BITS * BLOCK_MASKS);
            let block = bytes.get(at - FRONT_BYTES..end).unwrap_or_default();
            let mut occupied = fill_masks(&self.constants, block, &mut masks);
            while occupied != 0 {
                let number = occupied.trailing_zeros() as usize;
                occupied &= occupied - 1;
                let mut left = guarded(masks[number], number.checked_sub(1).map_or(before, |number| masks[number]));
                while left != 0 {
                    let position = at + MASK_BITS * number + left.trailing_zeros() as usize + 1;
                    left &= left - 1;
                    let front = bytes.get(..position).unwrap_or_default();
                    let Some(window) = front.last_chunk::<WINDOW_BYTES>() else { continue };
                    if !visit(Anchor { position: position as u32, hash: self.hash(window) }) {
                        return;
                    }
                }
            }
            before = masks[BLOCK_MASKS - 1];
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

/// `mask` without the bits within 15 positions after another one; `before` is the previous mask.
pub(super) fn guarded(mask: u64, before: u64) -> u64 {
    let both = u128::from(mask) << 64 | u128::from(before);
    let mut smeared = both << 1;
    smeared |= smeared << 1;
    smeared |= smeared << 2;
    smeared |= smeared << 4;
    smeared |= smeared << 7;
    mask & !((smeared >> 64) as u64)
}

/// Fills each mask with the result of `mask_of` for the bytes that it depends on; zeros follow the last bytes. Bit `n`
/// of the result says whether mask `n` is not zero.
#[inline(always)]
pub(super) fn each_mask(
    block: &[u8],
    masks: &mut BlockMasks,
    mut mask_of: impl FnMut(&[u8; STRIP_BYTES]) -> u64,
) -> u64 {
    let mut occupied = 0;
    for (number, slot) in masks.iter_mut().enumerate() {
        let rest = block.get(MASK_BITS * number..).unwrap_or_default();
        *slot = match rest.first_chunk() {
            Some(strip) => mask_of(strip),
            None if rest.len() < FILTER_BYTES => 0,
            None => {
                let mut strip = [0; STRIP_BYTES];
                strip[..rest.len()].copy_from_slice(rest);
                mask_of(&strip) & !(u64::MAX << (rest.len() - FRONT_BYTES))
            }
        };
        occupied |= u64::from(*slot != 0) << number;
    }
    occupied
}

/// `N` bytes of the strip from `start` on; zeros if it is too short.
#[inline(always)]
pub(super) fn part<const N: usize>(strip: &[u8; STRIP_BYTES], start: usize) -> &[u8; N] {
    strip.get(start..).and_then(|rest| rest.first_chunk()).unwrap_or(&[0; N])
}
