//! Chunk classification by entropy (FHRD 3.3), from samples of a chunk and, in doubt, trial compression.
//!
//! With `identify.method = "entropies"` the limits of step 1 decide alone, as in the paper. With `"everything"` every
//! chunk that is not too short counts as floats. Otherwise:
//!
//! 1. Sample the entropy of the byte groups of elements of 1, 2, 4 and 8 bytes. Groups count from the chunk's first
//!    byte, so elements may start at any phase.
//! 2. Bytes without structure (text, most code) are ordinary, and classification ends here. A chunk may hold floats
//!    only if a group is low, the best layout saves a tenth by prediction, and that layout beats coding all bytes
//!    alike. It may also hold floats if its bytes repeat at the lag of an element.
//! 3. Compress the probes, two samples from within the chunk, with zstd level 1. If a group has no redundancy
//!    (weights), entropy predicts the size of the layout well, and a clear advantage decides. If every group has
//!    redundancy (tables, integers, UTF-16), runs and repeats matter that entropy does not show. Then the probes are
//!    encoded by groups.
//! 4. Near the line, encode the whole chunk both ways. Few chunks need this, and it never decides wrongly.
//! 5. A chunk whose byte values are evenly spread is incompressible if zstd level 1 saves nothing on the probes and a
//!    fast search of the whole chunk finds no repeats.

use crate::codec::{ByteGroupLayout, Scratch};
use crate::config::{IdentifyConfig, IdentifyRule};
use crate::kernel::entropy::{EntropyProfile, repeat_share};
use crate::kernel::planes;

/// Class of a chunk. It decides how the chunk is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkClass {
    /// Neither incompressible nor float.
    Ordinary,
    /// Stored without compression: media, archives, encrypted data.
    Incompressible,
    /// Elements whose byte groups differ. The planes codec beats zstd.
    Float(ByteGroupLayout),
}

/// Shortest chunk that is not simply ordinary, bytes: in shorter ones headers and tables outweigh the gain.
const CHUNK_BYTES_MIN: usize = 1024;
/// Fraction of a chunk that a layout must save, by prediction and by measurement.
const GAIN: f32 = 0.1;
/// Fraction beyond [`GAIN`] that the probes must save to decide alone.
const MARGIN: f32 = 0.01;
/// Shortfall of a prediction from [`GAIN`] that is still measured, bits per byte.
const DOUBT_BITS: f32 = 0.2;
/// Least advantage of a predicted layout over bytes without structure, bits per byte.
const STRUCTURE_BITS: f32 = 0.1;
/// A chunk is periodic if its bytes repeat at the lag of an element by this share more often than at lag 1, ...
const PERIODIC: f32 = 0.1;
/// ... and have at least this entropy, bits per byte.
const PERIODIC_BITS: f32 = 5.5;
/// Least entropy of a chunk that may be incompressible, bits per byte.
const EVEN_BITS: f32 = 7.92;
/// Fraction that zstd must save for a chunk not to be incompressible.
const SAVED: f32 = 0.005;
/// zstd level that only searches repeats and skips quickly through bytes without any.
const MATCHES_LEVEL: i32 = -1;
/// Entropy above which a group is stored, bits per byte: its table costs what it saves.
const STORED_BITS: f32 = 7.65;
/// Widths predicted within this many bits per byte of the best one are probed, too, if every group has redundancy.
const RIVAL_BITS: f32 = 0.1;
/// If structure is weaker than this, bits per byte, ...
const STRUCTURE_BITS_STRONG: f32 = 0.5;
/// ... and zstd beats the prediction by this factor, repeats dominate and no layout is tried.
const REPEATS_DOMINATE: f32 = 1.4;
/// Factor by which a wider element must make the probes smaller.
const WIDER: f32 = 0.99;
/// Planes over zstd on the probes, from which on the chunk is no float.
const HOPELESS: f32 = 1.05;
/// Planes over zstd below which a chunk with a group without redundancy is a float: nothing outside the probes can
/// change that much.
const CLEAR: f32 = 0.96;
/// Planes over zstd below which repeats outside the probes cannot change the decision.
const CLEAR_OF_REPEATS: f32 = 0.8;
/// A chunk has repeats outside the probes if a fast search of all of it compresses to less than this factor of the
/// probes' ratio.
const ALIKE: f32 = 0.85;
/// Planes over zstd below which a chunk is a float if every group has redundancy: runs and repeats vary much within it.
const CLEAR_REDUNDANT: f32 = 0.6;
/// Bytes of an element of a chunk that counts as floats without a look at it: those of FP32, ZipNN's default type.
const BLIND_WIDTH: usize = 4;
/// Overhead of a zstd frame, bytes, which must not count against small probes.
const FRAME_BYTES: usize = 14;

/// Header of a planes payload, bytes.
const HEADER_BYTES: usize = 2;
/// Length of a compressed group in that header, bytes.
const LENGTH_BYTES: usize = 4;

/// Classifies chunks; one per worker.
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

/// A chunk with what is known of it before trials.
#[derive(Clone, Copy)]
struct ChunkMeasurements<'a> {
    chunk: &'a [u8],
    profile: &'a EntropyProfile,
    /// The probes: two samples from within the chunk, one after the other.
    probe: &'a [u8],
    /// Length of the probes, compressed with zstd level 1.
    zstd_bytes: usize,
    /// Predicted size of the best layout, bits per byte.
    predicted_bits: f32,
}

impl ChunkClassifier {
    /// With the limits of `config`, for a planes codec at zstd level `level`.
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

    /// Classifies `chunk`. The class depends only on its bytes and the parameters.
    pub fn classify(&mut self, chunk: &[u8]) -> ChunkClass {
        if chunk.len() < CHUNK_BYTES_MIN {
            return ChunkClass::Ordinary;
        }
        if self.config.method == IdentifyRule::Everything && self.config.enabled {
            return ChunkClass::Float(ByteGroupLayout::all(BLIND_WIDTH));
        }
        let profile = EntropyProfile::of(chunk, self.config.samples);
        if self.config.method == IdentifyRule::Entropies {
            return self.classify_by_limits(&profile);
        }
        let byte_bits = profile.bits(1).first().copied().unwrap_or_default();
        let (predicted, predicted_bits) = ByteGroupLayout::predict(&profile, STORED_BITS);
        let structure = byte_bits - predicted_bits;
        let structured = predicted_bits < 8.0 * (1.0 - GAIN) + DOUBT_BITS && structure > STRUCTURE_BITS;
        let group_bits = profile.bits(predicted.width());
        let low = group_bits.iter().any(|bits| f64::from(*bits) < self.config.low_bits);
        let candidate = self.config.enabled && structured && low;
        let even = byte_bits >= EVEN_BITS;
        let periodic = self.config.enabled && !candidate && byte_bits > PERIODIC_BITS && !even && {
            let share = |lag| repeat_share(chunk, self.config.samples, lag);
            share(2).max(share(4)) > share(1) + PERIODIC
        };
        if !candidate && !periodic && !even {
            return ChunkClass::Ordinary;
        }
        self.sample(chunk);
        let probe = std::mem::take(&mut self.probe);
        let zstd_bytes = zstd_bytes(&mut self.zstd, 1, &probe, &mut self.out);
        let measured = ChunkMeasurements { chunk, profile: &profile, probe: &probe, zstd_bytes, predicted_bits };
        let class = if periodic {
            self.classify_by_probe(measured)
        } else if !candidate {
            self.classify_even(measured)
        } else if group_bits.iter().any(|bits| f64::from(*bits) > self.config.high_bits) {
            self.classify_by_entropy(measured, predicted)
        } else if predicted_bits / 8.0 * probe.len() as f32 > REPEATS_DOMINATE * zstd_bytes as f32
            && structure < STRUCTURE_BITS_STRONG
        {
            ChunkClass::Ordinary
        } else {
            self.classify_by_probe(measured)
        };
        self.probe = probe;
        class
    }

    /// FHRD's rule. Of the four byte groups at a stride of four bytes, one is low and the others are high: FP32. Or two
    /// groups two bytes apart are low and the others are high: BF16 or FP16. Everything else is ordinary.
    ///
    /// The paper gives no limits; these are `low_bits` and `high_bits`.
    fn classify_by_limits(&self, profile: &EntropyProfile) -> ChunkClass {
        if !self.config.enabled {
            return ChunkClass::Ordinary;
        }
        let (mut low, mut high) = (0u8, 0u8);
        for (group, bits) in profile.bits(4).iter().enumerate() {
            low |= u8::from(f64::from(*bits) < self.config.low_bits) << group;
            high |= u8::from(f64::from(*bits) > self.config.high_bits) << group;
        }
        let layout = match low {
            _ if low | high != 0b1111 => None,
            0b0001 | 0b0010 | 0b0100 | 0b1000 => ByteGroupLayout::new(4, low),
            0b0101 | 0b1010 => ByteGroupLayout::new(2, low & 0b11),
            _ => None,
        };
        layout.map_or(ChunkClass::Ordinary, ChunkClass::Float)
    }

    /// Classifies a chunk with groups without redundancy. Little outside the probes can change the sizes, so entropy
    /// predicts the low groups. The other groups must not compress.
    fn classify_by_entropy(&mut self, measured: ChunkMeasurements<'_>, layout: ByteGroupLayout) -> ChunkClass {
        let ChunkMeasurements { chunk, probe, .. } = measured;
        let width = layout.width();
        let elements = self.split(probe, width);
        let (mut mask, mut total, mut plain) = (layout.mask(), 0.0, true);
        for (group, bits) in measured.profile.bits(width).iter().enumerate() {
            if layout.compresses(group) {
                total += elements as f32 * bits / 8.0;
                continue;
            }
            let bytes = self.group_bytes(group, elements);
            mask |= u8::from(bytes + elements / 32 < elements) << group;
            plain &= bytes + elements / 24 > elements;
            total += elements as f32;
        }
        if !plain {
            return self.classify_by_trial(chunk, &ByteGroupLayout::WIDTHS[1..]);
        }
        let ratio = total / measured.zstd_bytes.max(1) as f32;
        let saves = total < probe.len() as f32 * (1.0 - GAIN - MARGIN);
        if saves && ratio < CLEAR && (ratio < CLEAR_OF_REPEATS || !self.repeats_elsewhere(chunk, probe)) {
            return ChunkClass::Float(ByteGroupLayout::new(width as u8, mask).unwrap_or(layout));
        }
        self.classify_by_trial(chunk, &[width as u8])
    }

    /// Whether a fast search of the whole chunk finds notably more repeats than a search of the probes.
    fn repeats_elsewhere(&mut self, chunk: &[u8], probe: &[u8]) -> bool {
        let whole = zstd_bytes(&mut self.matches, MATCHES_LEVEL, chunk, &mut self.out);
        if whole >= chunk.len() {
            return false;
        }
        let probed = zstd_bytes(&mut self.matches, MATCHES_LEVEL, probe, &mut self.out);
        whole as f32 * probe.len() as f32 <= ALIKE * probed as f32 * chunk.len() as f32
    }

    /// Classifies a chunk whose groups all have redundancy. Entropy does not show runs and repeats, so the probes is
    /// encoded, and in doubt the whole chunk.
    fn classify_by_probe(&mut self, measured: ChunkMeasurements<'_>) -> ChunkClass {
        let (layout, planes) = self.probe_layout(measured);
        let ratio = planes as f32 / measured.zstd_bytes.max(1) as f32;
        if ratio >= HOPELESS {
            ChunkClass::Ordinary
        } else if ratio < CLEAR_REDUNDANT {
            ChunkClass::Float(layout)
        } else {
            self.classify_by_trial(measured.chunk, &[layout.width() as u8])
        }
    }

    /// Float if the best layout among `widths` makes the whole chunk smaller than zstd does.
    fn classify_by_trial(&mut self, chunk: &[u8], widths: &[u8]) -> ChunkClass {
        let zstd = zstd_bytes(&mut self.zstd, 1, chunk, &mut self.out) as f32;
        let limit = (zstd * (1.0 - self.config.probe_gain as f32)).min(chunk.len() as f32 * (1.0 - GAIN));
        self.exact_layout(chunk, widths, limit).map_or(ChunkClass::Ordinary, ChunkClass::Float)
    }

    /// Incompressible if zstd saves nothing on the probes and a fast search of the whole chunk finds no repeats.
    fn classify_even(&mut self, measured: ChunkMeasurements<'_>) -> ChunkClass {
        let ChunkMeasurements { chunk, probe, zstd_bytes: probed, .. } = measured;
        let saves_nothing = |encoded: usize, len: usize| encoded as f32 >= len as f32 * (1.0 - SAVED);
        if !saves_nothing(probed, probe.len()) {
            return ChunkClass::Ordinary;
        }
        let whole = zstd_bytes(&mut self.matches, MATCHES_LEVEL, chunk, &mut self.out);
        if saves_nothing(whole, chunk.len()) { ChunkClass::Incompressible } else { ChunkClass::Ordinary }
    }

    /// Fills `self.probe` with two samples from within `chunk`. Their offsets keep the phase of every element.
    fn sample(&mut self, chunk: &[u8]) {
        let len = (self.config.probe_bytes.0 as usize).min(chunk.len() / 2);
        self.probe.clear();
        for quarter in [1, 3] {
            let at = ((chunk.len() - len) * quarter / 4) & !7;
            self.probe.extend_from_slice(chunk.get(at..at + (len & !7)).unwrap_or_default());
        }
    }

    /// The layout that makes the probes smallest, and that size in bytes. It tries the widths that are predicted near
    /// the best one, and abandons those of [`HOPELESS`] size.
    fn probe_layout(&mut self, measured: ChunkMeasurements<'_>) -> (ByteGroupLayout, usize) {
        let ChunkMeasurements { probe, profile, .. } = measured;
        let bits_max = measured.predicted_bits + RIVAL_BITS;
        let hopeless = HOPELESS * measured.zstd_bytes.max(1) as f32;
        let mut best = (ByteGroupLayout::RAW, probe.len());
        for width in [2u8, 4, 8] {
            let bits = profile.bits(usize::from(width));
            let costs = bits.iter().map(|bits| if *bits < STORED_BITS { *bits } else { 8.0 });
            if costs.sum::<f32>() / f32::from(width) > bits_max {
                continue;
            }
            let elements = self.split(probe, usize::from(width));
            let limit = hopeless.min(best.1 as f32 * WIDER);
            let (mut mask, mut total) = (0, 0);
            for (group, bits) in bits.iter().enumerate() {
                // The remaining groups only add to the size.
                if total as f32 >= limit {
                    break;
                }
                let bytes = self.group_bytes(group, elements).saturating_sub(FRAME_BYTES).min(elements);
                let low = *bits < STORED_BITS || bytes < elements - elements / 20;
                mask |= u8::from(low) << group;
                total += if low { bytes } else { elements };
            }
            if (total as f32) < limit {
                best = (ByteGroupLayout::new(width, mask).unwrap_or(ByteGroupLayout::RAW), total);
            }
        }
        best
    }

    /// The layout among `widths` that makes `chunk` smallest; `None` if none is smaller than `limit` bytes.
    fn exact_layout(&mut self, chunk: &[u8], widths: &[u8], limit: f32) -> Option<ByteGroupLayout> {
        let mut best = (None, limit);
        for &width in widths {
            let elements = self.split(chunk, usize::from(width));
            let (mut mask, mut total) = (0, HEADER_BYTES + chunk.len() % usize::from(width));
            for group in 0..usize::from(width) {
                // The remaining groups only add to the size.
                if total as f32 >= best.1 {
                    break;
                }
                let bytes = self.group_bytes(group, elements);
                let low = bytes + LENGTH_BYTES < elements;
                mask |= u8::from(low) << group;
                total += if low { bytes + LENGTH_BYTES } else { elements };
            }
            if (total as f32) < best.1 {
                best = (ByteGroupLayout::new(width, mask), total as f32);
            }
        }
        best.0
    }

    /// Compressed length of a byte group of the elements in `self.split`.
    fn group_bytes(&mut self, group: usize, elements: usize) -> usize {
        let bytes = self.split.get(group * elements..(group + 1) * elements).unwrap_or_default();
        zstd_bytes(&mut self.planes, self.level, bytes, &mut self.out)
    }

    /// Splits the elements of `bytes` into byte groups in `self.split`. Returns the number of elements.
    fn split(&mut self, bytes: &[u8], width: usize) -> usize {
        let elements = bytes.len() / width;
        self.split.resize(elements * width, 0);
        planes::deinterleave(bytes, width, &mut self.split);
        elements
    }
}

/// Length of `bytes` compressed at `level`; their own length if zstd fails.
fn zstd_bytes(scratch: &mut Scratch, level: i32, bytes: &[u8], out: &mut Vec<u8>) -> usize {
    out.clear();
    scratch.compress(bytes, level, out).map_or(bytes.len(), |()| out.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of uniform numbers, which are nearly normally distributed.
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
        let tokens =
            ["entropy", "of", "the", "chunk", "is", "low;", "words", "have", "no", "planes.\n", "let", "x = 7;"];
        let mut bytes = Vec::new();
        for value in weights(40_000) {
            bytes.extend_from_slice(tokens[value.to_bits() as usize % tokens.len()].as_bytes());
            bytes.push(b' ');
        }
        bytes.truncate(65_536);
        bytes
    }

    fn classify(chunk: &[u8]) -> ChunkClass {
        ChunkClassifier::new(&IdentifyConfig::default(), 1).classify(chunk)
    }

    #[test]
    fn a_blind_method_takes_everything_for_floats_unless_nothing_is_identified() {
        let config = IdentifyConfig { method: IdentifyRule::Everything, ..IdentifyConfig::default() };
        let mut classifier = ChunkClassifier::new(&config, 1);
        let blind = ChunkClass::Float(ByteGroupLayout::new(4, 0b1111).unwrap());
        assert_eq!([classifier.classify(&text()), classifier.classify(&[7; 4096])], [blind, blind]);
        assert_eq!(classifier.classify(&[7; CHUNK_BYTES_MIN - 1]), ChunkClass::Ordinary);
        let mut none = ChunkClassifier::new(&IdentifyConfig { enabled: false, ..config }, 1);
        assert_eq!(none.classify(&text()), ChunkClass::Ordinary);
    }

    #[test]
    fn limits_alone_recognise_floats_by_their_low_groups() {
        let config = IdentifyConfig { method: IdentifyRule::Entropies, ..IdentifyConfig::default() };
        let classify = |chunk: &[u8]| ChunkClassifier::new(&config, 1).classify(chunk);
        let single: Vec<u8> = weights(20_000).flat_map(f32::to_le_bytes).collect();
        let brain: Vec<u8> = weights(40_000).flat_map(|w| ((w.to_bits() >> 16) as u16).to_le_bytes()).collect();
        let upcast: Vec<u8> = weights(20_000).flat_map(|w| (w.to_bits() & 0xffff_0000).to_le_bytes()).collect();
        let float = |width, mask| ByteGroupLayout::new(width, mask).map(ChunkClass::Float).unwrap();
        assert_eq!([classify(&single), classify(&brain)], [float(4, 0b1000), float(2, 0b10)]);
        assert_eq!([classify(&single[1..]), classify(&brain[1..])], [float(4, 0b100), float(2, 0b1)]);
        // Three groups of an upcast are low, which is neither pattern of the paper.
        assert_eq!([classify(&upcast), classify(&text())], [ChunkClass::Ordinary; 2]);
        let off = IdentifyConfig { enabled: false, ..config.clone() };
        assert_eq!(ChunkClassifier::new(&off, 1).classify(&single), ChunkClass::Ordinary);
    }

    #[test]
    fn floats_are_classified_with_their_layout_at_every_phase() {
        let single: Vec<u8> = weights(20_000).flat_map(f32::to_le_bytes).collect();
        let brain: Vec<u8> = weights(40_000).flat_map(|w| ((w.to_bits() >> 16) as u16).to_le_bytes()).collect();
        let upcast: Vec<u8> = weights(20_000).flat_map(|w| (w.to_bits() & 0xffff_0000).to_le_bytes()).collect();
        let double: Vec<u8> = weights(10_000).flat_map(|w| (f64::from(w) / 3.0).to_le_bytes()).collect();
        for phase in 0..8usize {
            for (bytes, width, low) in [(&single, 4, 0b1000u8), (&brain, 2, 0b10), (&upcast, 4, 0b1011)] {
                let rotated = (0..width).filter(|g| low >> ((g + phase) % width) & 1 == 1).fold(0, |m, g| m | 1 << g);
                let expected = ByteGroupLayout::new(width as u8, rotated).unwrap();
                assert_eq!(
                    classify(&bytes[phase..phase + 65_536]),
                    ChunkClass::Float(expected),
                    "width {width}, {phase}"
                );
            }
            let ChunkClass::Float(layout) = classify(&double[phase..phase + 65_536]) else { panic!("phase {phase}") };
            assert_eq!((layout.width(), layout.compresses((15 - phase) % 8)), (8, true));
        }
    }

    #[test]
    fn text_is_ordinary_and_noise_is_incompressible() {
        assert_eq!(classify(&text()), ChunkClass::Ordinary);
        assert_eq!(classify(&[0; 65_536]), ChunkClass::Ordinary);
        let noise: Vec<u8> = weights(80_000).map(|weight| (weight.to_bits() >> 3) as u8).collect();
        assert_eq!(classify(&noise[..65_536]), ChunkClass::Incompressible);
        let mut repeated = noise[..40_000].to_vec();
        repeated.extend_from_slice(&noise[1000..26_536]);
        assert_eq!(classify(&repeated), ChunkClass::Ordinary, "zstd finds the repeat");
    }

    #[test]
    fn short_chunks_and_a_disabled_classifier_give_no_floats() {
        let single: Vec<u8> = weights(20_000).flat_map(f32::to_le_bytes).collect();
        for len in [0, 1, 7, 8, 9, CHUNK_BYTES_MIN - 1] {
            assert_eq!(classify(&single[..len]), ChunkClass::Ordinary);
        }
        assert!(matches!(classify(&single[..4 * CHUNK_BYTES_MIN]), ChunkClass::Float(_)));
        let config = IdentifyConfig { enabled: false, ..IdentifyConfig::default() };
        assert_eq!(ChunkClassifier::new(&config, 1).classify(&single), ChunkClass::Ordinary);
    }

    #[test]
    fn a_class_does_not_depend_on_previous_chunks() {
        let single: Vec<u8> = weights(20_000).flat_map(f32::to_le_bytes).collect();
        let (floats, text) = (&single[3..65_000], text());
        let mut classifier = ChunkClassifier::new(&IdentifyConfig::default(), 1);
        let first = classifier.classify(floats);
        classifier.classify(&text);
        assert_eq!(classifier.classify(floats), first);
        assert_eq!(classify(floats), first);
    }
}
