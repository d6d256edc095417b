//! Plain blocks: blocks of a tensor that zstd makes smaller than the float codec does, such as text, tokens, pixels or
//! weights with few values. They are stored as the same bytes in an ordinary file are.
//!
//! 1. Weights do not repeat. A sample of elements and a sample of windows at any distance show that, and the trial ends
//!    here. This takes about a hundredth of the time in which weights are encoded.
//! 2. A short sample of any other block is encoded both ways. If zstd is far from the float codec, the block is not
//!    plain.
//! 3. The whole block is encoded both ways.

use super::text::is_text;
use crate::codec::{ElementRows, ElementType, Scratch, floats};
use crate::config::FloatCodec;
use crate::kernel::repeats::{RepeatTable, share_far, share_near};

/// Blocks up to this many bytes are always encoded both ways.
const SHORT_BYTES: usize = 8 << 10;
/// Windows whose elements are looked up, and their bytes.
const NEAR_WINDOWS: usize = 2;
const NEAR_BYTES: usize = 2 << 10;
/// A block may be plain if this share of its elements repeats.
const NEAR_SHARE: f64 = 0.06;
/// Windows of the sample that is encoded, and their bytes.
const TRIAL_WINDOWS: usize = 4;
const TRIAL_BYTES: usize = 4 << 10;
/// zstd may take this factor of the float codec on the sample: long inputs repeat more.
const TRIAL_TOLERANCE: f64 = 1.3;
/// Bytes of a first look for repeats in a chunk of unknown format, and the share of a longer window that may repeat.
const LOOK_BYTES: usize = 512;
const FEW_SHARE: f64 = 0.002;
/// Windows start at multiples of this, which keeps the phase of every element.
const GRID_BYTES: usize = 8;

/// Finds plain blocks; one per worker.
pub struct PlainTrial {
    is_enabled: bool,
    level: i32,
    floats: Scratch,
    zstd: Scratch,
    sample: Vec<u8>,
    out: Vec<u8>,
    table: RepeatTable,
}

impl PlainTrial {
    /// Compares `codec` with zstd at `level`. Only fhrd's own codec is compared: the others are published schemes. With
    /// `has_derivations`, it may leave out zeros and encode floats as codes.
    pub fn new(codec: FloatCodec, level: i32, has_derivations: bool) -> Self {
        PlainTrial {
            is_enabled: codec == FloatCodec::Floats,
            level,
            floats: Scratch::of_writer(has_derivations),
            zstd: Scratch::default(),
            sample: Vec::new(),
            out: Vec::new(),
            table: RepeatTable::default(),
        }
    }

    /// Whether zstd makes `block`, with these rows, smaller than the codec of its elements does. Depends on these
    /// arguments only.
    pub fn is_plain(&mut self, element_type: ElementType, rows: ElementRows, block: &[u8]) -> bool {
        let may_be = self.is_enabled
            && (block.len() <= SHORT_BYTES
                || self.repeats_near(element_type, block) && self.sample_pays(element_type, block)
                || share_far(block, element_type.width(), &mut self.table) > 0.0);
        may_be && self.sizes(element_type, rows, block).is_some_and(|[planes, zstd]| zstd < planes)
    }

    /// Whether an ordinary chunk of unknown format may have quantised weights: it does not repeat, and is no text.
    /// Depends on its bytes only.
    pub fn may_be_quantised(&mut self, chunk: &[u8]) -> bool {
        self.is_enabled
            && chunk.len() >= SHORT_BYTES
            && share_near(window(chunk, 0, 1, LOOK_BYTES), 1, &mut self.table) == 0.0
            && (0..NEAR_WINDOWS).all(|number| {
                share_near(window(chunk, number, NEAR_WINDOWS, NEAR_BYTES), 1, &mut self.table) < FEW_SHARE
            })
            && !is_text(chunk)
    }

    fn repeats_near(&mut self, element_type: ElementType, block: &[u8]) -> bool {
        let step = element_type.width().min(4);
        (0..NEAR_WINDOWS).any(|number| {
            let window = window(block, number, NEAR_WINDOWS, NEAR_BYTES);
            share_near(window, step, &mut self.table) >= NEAR_SHARE
        })
    }

    fn sample_pays(&mut self, element_type: ElementType, block: &[u8]) -> bool {
        let mut sample = std::mem::take(&mut self.sample);
        sample.clear();
        for number in 0..TRIAL_WINDOWS {
            sample.extend_from_slice(window(block, number, TRIAL_WINDOWS, TRIAL_BYTES));
        }
        let sizes = self.sizes(element_type, ElementRows::default(), &sample);
        self.sample = sample;
        sizes.is_some_and(|[planes, zstd]| (zstd as f64) < planes as f64 * TRIAL_TOLERANCE)
    }

    /// Bytes by the codec of the elements and by zstd; `None` if zstd fails.
    fn sizes(&mut self, element_type: ElementType, rows: ElementRows, bytes: &[u8]) -> Option<[usize; 2]> {
        self.out.clear();
        floats::encode_rows(element_type, 0, rows, bytes, &mut self.floats, &mut self.out).ok()?;
        let planes = self.out.len();
        self.out.clear();
        self.zstd.compress(bytes, self.level, &mut self.out).ok()?;
        Some([planes, self.out.len()])
    }
}

/// Window `number` of `count`, each in the middle of one of equal parts of the block.
fn window(block: &[u8], number: usize, count: usize, bytes: usize) -> &[u8] {
    let part = block.len() / count;
    let from = (part * number + part.saturating_sub(bytes) / 2) / GRID_BYTES * GRID_BYTES;
    block.get(from..block.len().min(from + bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize) -> impl Iterator<Item = u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        })
        .take(count)
    }

    /// Sums of uniform numbers, which are nearly normally distributed.
    fn weights(count: usize) -> Vec<f32> {
        let uniform = noise(count * 6).map(|state| (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5);
        uniform.collect::<Vec<_>>().chunks(6).map(|six| six.iter().sum::<f32>() * 0.03).collect()
    }

    fn bf16(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect()
    }

    fn fp32(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn is_plain(element_type: ElementType, block: &[u8]) -> bool {
        let mut trial = PlainTrial::new(FloatCodec::Floats, 3, true);
        let rows = ElementRows::default();
        let found = trial.is_plain(element_type, rows, block);
        assert_eq!(trial.is_plain(element_type, rows, block), found, "a used trial");
        found
    }

    #[test]
    fn text_and_few_values_are_plain() {
        let tokens =
            ["entropy", "of", "the", "chunk", "is", "low;", "most", "have", "no", "planes.\n", "let", "x = 7;"];
        let text: Vec<u8> = noise(20_000).flat_map(|noise| tokens[noise as usize % 12].bytes()).collect();
        assert!(is_plain(ElementType::Unknown, &text));
        let pixels: Vec<f32> = noise(100_000).map(|noise| (noise >> 58) as f32 / 255.0).collect();
        let mut older = PlainTrial::new(FloatCodec::Floats, 3, false);
        assert!(older.is_plain(ElementType::Fp32, ElementRows::default(), &fp32(&pixels)));
        assert!(!is_plain(ElementType::Fp32, &fp32(&pixels)), "a palette takes less");
        let values = weights(200_000);
        let codes = values.chunks(100).flat_map(|group| {
            let scale = group.iter().fold(0f32, |most, value| most.max(value.abs())) / 7.0;
            group.iter().map(|value| (value / scale).round() * scale).collect::<Vec<_>>()
        });
        assert!(is_plain(ElementType::Bf16, &bf16(&codes.collect::<Vec<_>>())));
        let other =
            PlainTrial::new(FloatCodec::ZipNn, 3, true).is_plain(ElementType::Unknown, ElementRows::default(), &text);
        assert!(!other, "a published scheme is as it was published");
    }

    #[test]
    fn repeats_far_apart_make_weights_plain() {
        let row = bf16(&weights(50_000));
        let block: Vec<u8> = row.iter().copied().cycle().take(512 << 10).collect();
        assert!(is_plain(ElementType::Bf16, &block));
    }

    #[test]
    fn bytes_that_do_not_repeat_may_be_quantised() {
        let mut trial = PlainTrial::new(FloatCodec::Floats, 3, true);
        let codes: Vec<u8> = weights(100_000).iter().map(|weight| (weight * 800.0).round() as i8 as u8).collect();
        assert!(trial.may_be_quantised(&codes) && trial.may_be_quantised(&codes[1..9000]));
        assert!(!trial.may_be_quantised(&codes[..8000]), "a short chunk");
        let text: Vec<u8> = noise(100_000).map(|noise| b' ' + (noise >> 58) as u8).collect();
        assert!(!trial.may_be_quantised(&text));
        let again = codes[..40_000].chunks(10).flat_map(|part| [part, &[7; 10]].concat());
        assert!(!trial.may_be_quantised(&again.collect::<Vec<u8>>()));
        assert!(!PlainTrial::new(FloatCodec::ZipNn, 3, true).may_be_quantised(&codes));
    }

    #[test]
    fn weights_are_not_plain_whatever_their_type_and_length() {
        let values = weights(131_072);
        for len in [2, 100, 1000, 4096, 65_536, 131_072] {
            let values = &values[..len];
            assert!(!is_plain(ElementType::Bf16, &bf16(values)), "{len}");
            assert!(!is_plain(ElementType::Fp32, &fp32(values)), "{len}");
            let upcast: Vec<u8> = values.iter().flat_map(|v| (v.to_bits() & 0xffff_0000).to_le_bytes()).collect();
            assert!(len < 100 || !is_plain(ElementType::Fp32, &upcast), "{len}");
        }
        assert!(!is_plain(ElementType::Bf16, &[]));
    }
}
