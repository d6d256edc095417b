//! Entropy identification (FHRD 3.3): what a chunk is, from a sample of its bytes and, where that leaves doubt, trials.
//!
//! 1. Sample the entropy of the byte groups of words of 1, 2, 4 and 8 bytes; groups count from the chunk's first byte,
//!    so words may start at any phase.
//! 2. A chunk can hold floats only if some group is low, the best layout is predicted to save a tenth, and it is
//!    predicted smaller than coding all bytes alike, or if its bytes repeat at a word's lag: bytes without structure
//!    (text, most code) end here.
//! 3. The probes, two samples from within the chunk, are encoded with zstd-1. Where some group has no redundancy
//!    (weights), entropy predicts the layout's size well and a clear advantage decides. Where every group has some
//!    (tables, integers, UTF-16), runs and repeats count that entropy does not see: the probes are encoded by groups.
//! 4. Near the line the whole chunk is encoded both ways: few chunks need it, and none is decided wrongly by it.
//! 5. A chunk whose bytes are spread evenly is incompressible if neither zstd-1 on the probes nor a fast search for
//!    repeats in all of it saves anything.

use crate::codec::{ByteGroupLayout, Scratch};
use crate::config::IdentifyConfig;
use crate::kernel::entropy::{EntropyProfile, repeat_share};
use crate::kernel::planes;

/// What a chunk is, for its way through the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkClass {
    /// Neither of the others.
    Ordinary,
    /// Stored as it is: media, archives, encrypted data.
    Incompressible,
    /// Words whose byte groups differ; the planes codec beats zstd.
    Float(ByteGroupLayout),
}

/// Shorter chunks are ordinary: a header and tables would eat the gain, bytes.
const CHUNK_BYTES_MIN: usize = 1024;
/// A layout must be predicted and measured to save this fraction of a chunk.
const GAIN: f32 = 0.1;
/// What a probe must save beyond that to decide alone, as a fraction.
const MARGIN: f32 = 0.01;
/// What a prediction may fall short of it and still be measured, bits per byte.
const DOUBT_BITS: f32 = 0.2;
/// A layout must be predicted smaller than bytes without structure by this many bits per byte.
const STRUCTURE_BITS: f32 = 0.1;
/// Or its bytes must repeat at a word's lag by this much more often than at the next byte, ...
const PERIODIC: f32 = 0.1;
/// ... where they are spread at least this evenly, bits per byte.
const PERIODIC_BITS: f32 = 5.5;
/// Bytes spread at least this evenly may be incompressible, bits per byte.
const EVEN_BITS: f32 = 7.92;
/// What zstd must save for a chunk not to be incompressible, as a fraction.
const SAVED: f32 = 0.005;
/// zstd level that looks for repeats only and skips through bytes that have none.
const MATCHES_LEVEL: i32 = -1;
/// Groups above this many bits per byte are stored: a table costs what it saves.
const STORED_BITS: f32 = 7.65;
/// Widths predicted within this many bits per byte of the best are probed, too, where every group is low.
const RIVAL_BITS: f32 = 0.1;
/// Where structure is weaker than this, bits per byte, ...
const STRUCTURE_BITS_STRONG: f32 = 0.5;
/// ... and zstd does better than the prediction by this factor, matches rule and no layout is tried.
const MATCHES_RULE: f32 = 1.4;
/// A wider word must make the probes smaller by this factor.
const WIDER: f32 = 0.99;
/// Planes over zstd on the probes: at or above this the chunk is no float.
const HOPELESS: f32 = 1.05;
/// Below this it is one, where some groups have no redundancy: nothing outside the probes can change that much.
const CLEAR: f32 = 0.96;
/// Below this, repeats outside the probes could not tip the scales.
const CLEAR_OF_REPEATS: f32 = 0.8;
/// A chunk has repeats outside the probes if a fast search of it finds this much more than in them, as a factor.
const ALIKE: f32 = 0.85;
/// Below this it is one, where every group has redundancy: runs and repeats differ much within a chunk.
const CLEAR_REDUNDANT: f32 = 0.6;
/// Bytes of a zstd frame's own headers, which small probes must not be charged for.
const FRAME_BYTES: usize = 14;

/// Bytes of a payload's header, and of a compressed group's length in it.
const HEADER_BYTES: usize = 2;
const LENGTH_BYTES: usize = 4;

/// Decides what chunks are; one per worker.
pub struct ChunkClassifier {
    config: IdentifyConfig,
    level: i32,
    planes: Scratch,
    zstd: Scratch,
    matches: Scratch,
    probe: Vec<u8>,
    split: Vec<u8>,
    out: Vec<u8>,
}

impl ChunkClassifier {
    /// With these parameters, for a planes codec at this zstd level.
    pub fn new(config: &IdentifyConfig, level: i32) -> Self {
        ChunkClassifier {
            config: config.clone(),
            level,
            planes: Scratch::default(),
            zstd: Scratch::default(),
            matches: Scratch::default(),
            probe: Vec::new(),
            split: Vec::new(),
            out: Vec::new(),
        }
    }

    /// The class of `chunk`: a function of its bytes and the parameters alone.
    pub fn classify(&mut self, chunk: &[u8]) -> ChunkClass {
        if chunk.len() < CHUNK_BYTES_MIN {
            return ChunkClass::Ordinary;
        }
        let profile = EntropyProfile::of(chunk, self.config.samples);
        let flat = profile.bits(1).first().copied().unwrap_or_default();
        let (predicted, bits) = ByteGroupLayout::predict(&profile, STORED_BITS);
        let structured = bits < 8.0 * (1.0 - GAIN) + DOUBT_BITS && flat - bits > STRUCTURE_BITS;
        let low = profile.bits(predicted.width()).iter().any(|bits| f64::from(*bits) < self.config.low_bits);
        let candidate = self.config.enabled && structured && low;
        let periodic = self.config.enabled && !candidate && flat > PERIODIC_BITS && flat < EVEN_BITS && {
            let share = |lag| repeat_share(chunk, self.config.samples, lag);
            share(2).max(share(4)) > share(1) + PERIODIC
        };
        if !candidate && !periodic && flat < EVEN_BITS {
            return ChunkClass::Ordinary;
        }
        self.sample(chunk);
        let probe = std::mem::take(&mut self.probe);
        let zstd = zstd_bytes(&mut self.zstd, 1, &probe, &mut self.out);
        let class = if periodic {
            self.judge_redundant(chunk, &probe, zstd, &profile, bits)
        } else if !candidate {
            self.incompressible(chunk, &probe, zstd)
        } else if profile.bits(predicted.width()).iter().any(|bits| f64::from(*bits) > self.config.high_bits) {
            self.judge_words(chunk, &probe, zstd, &profile, predicted)
        } else if bits / 8.0 * probe.len() as f32 > MATCHES_RULE * zstd as f32 && flat - bits < STRUCTURE_BITS_STRONG {
            ChunkClass::Ordinary
        } else {
            self.judge_redundant(chunk, &probe, zstd, &profile, bits)
        };
        self.probe = probe;
        class
    }

    /// Some groups have no redundancy, so there is little outside the probes that could change the sizes: entropy
    /// predicts the low groups, and the others must not compress.
    fn judge_words(
        &mut self,
        chunk: &[u8],
        probe: &[u8],
        zstd: usize,
        profile: &EntropyProfile,
        layout: ByteGroupLayout,
    ) -> ChunkClass {
        let width = layout.width();
        let words = self.split(probe, width);
        let (mut mask, mut total, mut plain) = (layout.mask(), 0.0, true);
        for (group, bits) in profile.bits(width).iter().enumerate() {
            if layout.compresses(group) {
                total += words as f32 * bits / 8.0;
                continue;
            }
            let bytes = self.plane_bytes(group, words);
            mask |= u8::from(bytes + words / 32 < words) << group;
            plain &= bytes + words / 24 > words;
            total += words as f32;
        }
        if !plain {
            return self.judge_exactly(chunk, &ByteGroupLayout::WIDTHS[1..]);
        }
        let ratio = total / zstd.max(1) as f32;
        let saves = total < probe.len() as f32 * (1.0 - GAIN - MARGIN);
        if saves && ratio < CLEAR && (ratio < CLEAR_OF_REPEATS || !self.repeats_elsewhere(chunk, probe)) {
            return ChunkClass::Float(ByteGroupLayout::new(width as u8, mask).unwrap_or(layout));
        }
        self.judge_exactly(chunk, &[width as u8])
    }

    /// Whether a fast search of the whole chunk finds notably more repeats than one of the probes.
    fn repeats_elsewhere(&mut self, chunk: &[u8], probe: &[u8]) -> bool {
        let whole = zstd_bytes(&mut self.matches, MATCHES_LEVEL, chunk, &mut self.out);
        if whole >= chunk.len() {
            return false;
        }
        let probed = zstd_bytes(&mut self.matches, MATCHES_LEVEL, probe, &mut self.out);
        whole as f32 * probe.len() as f32 <= ALIKE * probed as f32 * chunk.len() as f32
    }

    /// Every group has redundancy, runs and repeats that entropy does not see: encode the probes, and the whole chunk
    /// unless they leave no doubt.
    fn judge_redundant(
        &mut self,
        chunk: &[u8],
        probe: &[u8],
        zstd: usize,
        profile: &EntropyProfile,
        bits: f32,
    ) -> ChunkClass {
        let hopeless = HOPELESS * zstd.max(1) as f32;
        let (layout, planes) = self.probe_layout(probe, profile, bits + RIVAL_BITS, hopeless);
        let ratio = planes as f32 / zstd.max(1) as f32;
        if ratio >= HOPELESS {
            ChunkClass::Ordinary
        } else if ratio < CLEAR_REDUNDANT {
            ChunkClass::Float(layout)
        } else {
            self.judge_exactly(chunk, &[layout.width() as u8])
        }
    }

    /// Float if the best layout among `widths` is smaller than zstd's encoding of the whole chunk.
    fn judge_exactly(&mut self, chunk: &[u8], widths: &[u8]) -> ChunkClass {
        let zstd = zstd_bytes(&mut self.zstd, 1, chunk, &mut self.out) as f32;
        let limit = (zstd * (1.0 - self.config.probe_gain as f32)).min(chunk.len() as f32 * (1.0 - GAIN));
        self.exact_layout(chunk, widths, limit).map_or(ChunkClass::Ordinary, ChunkClass::Float)
    }

    /// Incompressible if the probes' bytes save nothing and a fast search of the whole chunk finds no repeats.
    fn incompressible(&mut self, chunk: &[u8], probe: &[u8], zstd: usize) -> ChunkClass {
        let nothing = |encoded: usize, len: usize| encoded as f32 >= len as f32 * (1.0 - SAVED);
        let mut repeats = || !nothing(zstd_bytes(&mut self.matches, MATCHES_LEVEL, chunk, &mut self.out), chunk.len());
        if !nothing(zstd, probe.len()) || repeats() { ChunkClass::Ordinary } else { ChunkClass::Incompressible }
    }

    /// Two pieces from within `chunk`, from offsets that keep every word's phase.
    fn sample(&mut self, chunk: &[u8]) {
        let len = (self.config.probe_bytes.0 as usize).min(chunk.len() / 2);
        self.probe.clear();
        for quarter in [1, 3] {
            let at = ((chunk.len() - len) * quarter / 4) & !7;
            self.probe.extend_from_slice(chunk.get(at..at + (len & !7)).unwrap_or_default());
        }
    }

    /// The smallest layout of the probe among the widths predicted under `bits_max`, and its bytes; one that is
    /// `hopeless` bytes or more is not worked out.
    fn probe_layout(
        &mut self,
        probe: &[u8],
        profile: &EntropyProfile,
        bits_max: f32,
        hopeless: f32,
    ) -> (ByteGroupLayout, usize) {
        let mut best = (ByteGroupLayout::RAW, probe.len());
        for width in [2u8, 4, 8] {
            let bits = profile.bits(usize::from(width));
            let costs = bits.iter().map(|bits| if *bits < STORED_BITS { *bits } else { 8.0 });
            if costs.sum::<f32>() / f32::from(width) > bits_max {
                continue;
            }
            let words = self.split(probe, usize::from(width));
            let limit = hopeless.min(best.1 as f32 * WIDER);
            let (mut mask, mut total) = (0, 0);
            for (group, bits) in bits.iter().enumerate() {
                // What is left only adds to it.
                if total as f32 >= limit {
                    break;
                }
                let bytes = self.plane_bytes(group, words).saturating_sub(FRAME_BYTES).min(words);
                let low = *bits < STORED_BITS || bytes < words - words / 20;
                mask |= u8::from(low) << group;
                total += if low { bytes } else { words };
            }
            if (total as f32) < limit {
                best = (ByteGroupLayout::new(width, mask).unwrap_or(ByteGroupLayout::RAW), total);
            }
        }
        best
    }

    /// The smallest layout of words of `widths` for `chunk`, if it takes less than `limit` bytes.
    fn exact_layout(&mut self, chunk: &[u8], widths: &[u8], limit: f32) -> Option<ByteGroupLayout> {
        let mut best = (None, limit);
        for &width in widths {
            let words = self.split(chunk, usize::from(width));
            let (mut mask, mut total) = (0, HEADER_BYTES + chunk.len() % usize::from(width));
            for group in 0..usize::from(width) {
                // What is left only adds to it.
                if total as f32 >= best.1 {
                    break;
                }
                let bytes = self.plane_bytes(group, words);
                let low = bytes + LENGTH_BYTES < words;
                mask |= u8::from(low) << group;
                total += if low { bytes + LENGTH_BYTES } else { words };
            }
            if (total as f32) < best.1 {
                best = (ByteGroupLayout::new(width, mask), total as f32);
            }
        }
        best.0
    }

    /// What a group of the words split last compresses to.
    fn plane_bytes(&mut self, group: usize, words: usize) -> usize {
        let plane = self.split.get(group * words..(group + 1) * words).unwrap_or_default();
        zstd_bytes(&mut self.planes, self.level, plane, &mut self.out)
    }

    /// Splits the words of `bytes` into `self.split`; returns how many there are.
    fn split(&mut self, bytes: &[u8], width: usize) -> usize {
        let words = bytes.len() / width;
        self.split.resize(words * width, 0);
        planes::deinterleave(bytes, width, &mut self.split);
        words
    }
}

/// Bytes of `bytes` compressed at `level`; their number where zstd refuses.
fn zstd_bytes(scratch: &mut Scratch, level: i32, bytes: &[u8], out: &mut Vec<u8>) -> usize {
    out.clear();
    scratch.compress(bytes, level, out).map_or(bytes.len(), |()| out.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of uniform numbers is near enough to a normal one.
    fn weights(count: usize) -> impl Iterator<Item = f32> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut uniform = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(move |_| (0..6).map(|_| uniform()).sum::<f32>() * 0.03)
    }

    fn text() -> Vec<u8> {
        let words =
            ["entropy", "of", "the", "chunk", "is", "low;", "words", "have", "no", "planes.\n", "let", "x = 7;"];
        let mut bytes = Vec::new();
        for value in weights(40_000) {
            bytes.extend_from_slice(words[value.to_bits() as usize % words.len()].as_bytes());
            bytes.push(b' ');
        }
        bytes.truncate(65_536);
        bytes
    }

    fn identify(chunk: &[u8]) -> ChunkClass {
        ChunkClassifier::new(&IdentifyConfig::default(), 1).classify(chunk)
    }

    #[test]
    fn floats_are_found_at_every_phase_with_their_layout() {
        let single: Vec<u8> = weights(20_000).flat_map(f32::to_le_bytes).collect();
        let brain: Vec<u8> = weights(40_000).flat_map(|w| ((w.to_bits() >> 16) as u16).to_le_bytes()).collect();
        let upcast: Vec<u8> = weights(20_000).flat_map(|w| (w.to_bits() & 0xffff_0000).to_le_bytes()).collect();
        let double: Vec<u8> = weights(10_000).flat_map(|w| (f64::from(w) / 3.0).to_le_bytes()).collect();
        for phase in 0..8usize {
            for (bytes, width, low) in [(&single, 4, 0b1000u8), (&brain, 2, 0b10), (&upcast, 4, 0b1011)] {
                let rotated = (0..width).filter(|g| low >> ((g + phase) % width) & 1 == 1).fold(0, |m, g| m | 1 << g);
                let expected = ByteGroupLayout::new(width as u8, rotated).unwrap();
                assert_eq!(
                    identify(&bytes[phase..phase + 65_536]),
                    ChunkClass::Float(expected),
                    "width {width}, {phase}"
                );
            }
            let ChunkClass::Float(layout) = identify(&double[phase..phase + 65_536]) else { panic!("phase {phase}") };
            assert_eq!((layout.width(), layout.compresses((15 - phase) % 8)), (8, true));
        }
    }

    #[test]
    fn text_is_ordinary_and_noise_is_incompressible() {
        assert_eq!(identify(&text()), ChunkClass::Ordinary);
        assert_eq!(identify(&[0; 65_536]), ChunkClass::Ordinary);
        let noise: Vec<u8> = weights(80_000).map(|weight| (weight.to_bits() >> 3) as u8).collect();
        assert_eq!(identify(&noise[..65_536]), ChunkClass::Incompressible);
        let mut repeated = noise[..40_000].to_vec();
        repeated.extend_from_slice(&noise[1000..26_536]);
        assert_eq!(identify(&repeated), ChunkClass::Ordinary, "zstd finds the repeat");
    }

    #[test]
    fn short_chunks_and_a_disabled_identifier_find_no_floats() {
        let single: Vec<u8> = weights(20_000).flat_map(f32::to_le_bytes).collect();
        for len in [0, 1, 7, 8, 9, CHUNK_BYTES_MIN - 1] {
            assert_eq!(identify(&single[..len]), ChunkClass::Ordinary);
        }
        assert!(matches!(identify(&single[..4 * CHUNK_BYTES_MIN]), ChunkClass::Float(_)));
        let config = IdentifyConfig { enabled: false, ..IdentifyConfig::default() };
        assert_eq!(ChunkClassifier::new(&config, 1).classify(&single), ChunkClass::Ordinary);
    }

    #[test]
    fn what_came_before_does_not_matter() {
        let single: Vec<u8> = weights(20_000).flat_map(f32::to_le_bytes).collect();
        let (words, text) = (&single[3..65_000], text());
        let mut classifier = ChunkClassifier::new(&IdentifyConfig::default(), 1);
        let first = classifier.classify(words);
        classifier.classify(&text);
        assert_eq!(classifier.classify(words), first);
        assert_eq!(identify(words), first);
    }
}
