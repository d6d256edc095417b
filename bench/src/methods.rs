//! Methods that classify floats, to compare with the classifier of the engine: by byte groups, by bits, and by whole
//! files.
//!
//! - *byte*: [`ChunkClassifier`], as the engine runs it.
//! - *entropies*: FHRD's rule, limits of the entropies of four byte groups alone (`identify.method` of the same name).
//! - *bit*: FHRD's alternative (section 3.3). It shifts elements bit by bit until their exponents are whole bytes. For
//!   elements of 1, 2, 4 and 8 bytes and every shift below their bits, it samples elements from that bit on and adds
//!   up the entropies of their bytes. The block is shifted by the best shift and then classified as by *byte*. The
//!   encoded length of a float block is that of its byte groups after the shift.
//! - *file*: one decision for all blocks of a file. A model file is floats by its format. For other files, *byte*
//!   classifies the first block. The codec samples each block to choose its layout.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use fhrd::chunk::classify::{ChunkClass, ChunkClassifier};
use fhrd::codec::{ByteGroupLayout, Codec, Planes, Scratch};
use fhrd::config::{IdentifyConfig, IdentifyRule};
use fhrd::error::{Error, Result};
use fhrd::format::{Recognition, recognise};
use fhrd::kernel::entropy::{Histogram, entropy_bits};
use serde::{Deserialize, Serialize};

use super::blocks::{Blocks, DrawnBlock};

/// A method that classifies floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentifyMethod {
    /// By byte groups, as the engine does.
    #[default]
    Byte,
    /// By the limits of entropies of byte groups alone, as in FHRD.
    Entropies,
    /// By byte groups after every shift of bits.
    Bit,
    /// By whole files.
    File,
}

impl IdentifyMethod {
    /// Name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            IdentifyMethod::Byte => "byte",
            IdentifyMethod::Entropies => "entropies",
            IdentifyMethod::Bit => "bit",
            IdentifyMethod::File => "file",
        }
    }
}

/// Answer of a method for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The class that the engine would choose.
    Class(ChunkClass),
    /// Floats in this layout after this many bits, 1 to 7.
    Shifted(u32, ByteGroupLayout),
    /// Floats in an unknown layout.
    Float,
}

/// Groups with more bits per byte count as stored, as in the classifier.
const STORED_BITS: f32 = 7.65;
/// Bits per byte by which a wider element or a longer shift must be better.
const BETTER_BITS: f32 = 0.03;
/// Bytes of a sample.
const WINDOW_BYTES: usize = 16;
/// Bytes between possible starts of samples.
const GRID_BYTES: usize = 8;

/// Answers of one method.
pub(super) struct Answers {
    method: IdentifyMethod,
    classifier: ChunkClassifier,
    samples: usize,
    files: HashMap<PathBuf, Answer>,
}

impl Answers {
    /// Uses the parameters of the classifier and a planes codec at this zstd level.
    pub(super) fn new(method: IdentifyMethod, config: &IdentifyConfig, level: i32) -> Self {
        let mut config = config.clone();
        if method == IdentifyMethod::Entropies {
            config.method = IdentifyRule::Entropies;
        }
        let classifier = ChunkClassifier::new(&config, level);
        Answers { method, classifier, samples: config.samples, files: HashMap::new() }
    }

    /// Classifies `block`, which was drawn from `blocks`.
    ///
    /// # Errors
    /// [`Error::Io`] if its file cannot be read.
    pub(super) fn answer(&mut self, block: &DrawnBlock, blocks: &Blocks) -> Result<Answer> {
        match self.method {
            IdentifyMethod::Byte | IdentifyMethod::Entropies => {
                Ok(Answer::Class(self.classifier.classify(&block.bytes)))
            }
            IdentifyMethod::Bit => Ok(self.by_bits(&block.bytes)),
            IdentifyMethod::File => self.by_file(&block.file, blocks),
        }
    }

    fn by_bits(&mut self, block: &[u8]) -> Answer {
        let bits = best_shift(block, self.samples) % u8::BITS;
        if bits == 0 {
            return Answer::Class(self.classifier.classify(block));
        }
        match self.classifier.classify(&shifted(block, bits)) {
            ChunkClass::Float(layout) => Answer::Shifted(bits, layout),
            other => Answer::Class(other),
        }
    }

    fn by_file(&mut self, path: &Path, blocks: &Blocks) -> Result<Answer> {
        if let Some(known) = self.files.get(path) {
            return Ok(*known);
        }
        let answer = if is_model(path)? {
            Answer::Float
        } else {
            match self.classifier.classify(&blocks.first(path)?) {
                ChunkClass::Float(_) => Answer::Float,
                class => Answer::Class(class),
            }
        };
        self.files.insert(path.to_path_buf(), answer);
        Ok(answer)
    }
}

impl Answer {
    /// Encoded length if the answer is floats; `None` for other answers.
    pub(super) fn float_bytes(self, block: &[u8], level: i32, scratch: &mut Scratch) -> Result<Option<u64>> {
        let mut out = Vec::new();
        match self {
            Answer::Class(ChunkClass::Float(layout)) => {
                Planes.encode_layout(layout, block, level, scratch, &mut out)?
            }
            Answer::Class(ChunkClass::Ordinary | ChunkClass::Incompressible) => return Ok(None),
            Answer::Shifted(bits, layout) => {
                // The bits before the shift are stored in a byte.
                out.push(0);
                Planes.encode_layout(layout, &shifted(block, bits), level, scratch, &mut out)?;
            }
            Answer::Float => Planes.encode(block, level, scratch, &mut out)?,
        }
        Ok(Some(out.len() as u64))
    }
}

fn is_model(path: &Path) -> Result<bool> {
    let failed = |error| Error::io("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    Ok(matches!(recognise(&file, len).map_err(failed)?, Recognition::Model(_)))
}

/// `block` without its first `bits` bits, fewer than 8. The last byte is filled with zero bits.
fn shifted(block: &[u8], bits: u32) -> Vec<u8> {
    let next = block.iter().skip(1).chain(&[0]);
    block.iter().zip(next).map(|(byte, next)| (u16::from_le_bytes([*byte, *next]) >> bits) as u8).collect()
}

/// The shift, in bits, with the smallest predicted length at any element width.
fn best_shift(block: &[u8], samples: usize) -> u32 {
    let windows = windows(block, samples);
    let mut best = (0, 8.0);
    for width in ByteGroupLayout::WIDTHS {
        for shift in 0..u32::from(width) * u8::BITS {
            let bits = shifted_bits(&windows, usize::from(width), shift);
            if bits < best.1 - BETTER_BITS {
                best = (shift, bits);
            }
        }
    }
    best.0
}

/// Bits per byte of elements of `width` bytes that start `shift` bits into each window.
fn shifted_bits(windows: &[u128], width: usize, shift: u32) -> f32 {
    let mut groups: [Histogram; 8] = [[0; 256]; 8];
    let groups = groups.get_mut(..width).unwrap_or_default();
    for window in windows {
        let elements = ((window >> shift) as u64).to_le_bytes();
        for element in elements.chunks_exact(width) {
            for (byte, histogram) in element.iter().zip(groups.iter_mut()) {
                if let Some(count) = histogram.get_mut(usize::from(*byte)) {
                    *count += 1;
                }
            }
        }
    }
    let cost = |histogram: &Histogram| match entropy_bits(histogram) {
        bits if bits < STORED_BITS => bits,
        _ => 8.0,
    };
    groups.iter().map(cost).sum::<f32>() / width as f32
}

/// At most `samples` windows, one from a scattered position in each of equal ranges of the block.
fn windows(block: &[u8], samples: usize) -> Vec<u128> {
    let positions = (block.len() / GRID_BYTES).saturating_sub(WINDOW_BYTES / GRID_BYTES - 1);
    let taken = positions.min(samples);
    let mut scatter = 0u32;
    let window = |ordinal: usize| {
        scatter = scatter.wrapping_add(0x9e37_79b9);
        let (start, end) = (positions * ordinal / taken, positions * (ordinal + 1) / taken);
        let within = (((end - start) as u64 * u64::from(scatter)) >> 32) as usize;
        let bytes = block.get((start + within) * GRID_BYTES..).unwrap_or_default();
        u128::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default())
    };
    (0..taken).map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BF16 elements of both signs. Their exponents differ in high and low bits, so only one shift aligns them.
    fn floats(count: u32) -> Vec<u8> {
        let mixed = |i: u32| (i ^ i << 13 ^ 0x5bd1_e995).wrapping_mul(2_654_435_761) >> 9;
        let element = |n: u32| (n & 0x807f | (0x7d + (n >> 8 & 0x7f).trailing_zeros().min(6)) << 7) as u16;
        (0..count).flat_map(|i| element(mixed(mixed(i))).to_le_bytes()).collect()
    }

    fn block_of(bytes: Vec<u8>) -> DrawnBlock {
        DrawnBlock { file: PathBuf::new(), bytes }
    }

    #[test]
    fn a_shift_moves_every_bit_and_drops_the_first() {
        assert_eq!(shifted(&[0b1010_0001, 0b11, 0], 1), [0b1101_0000, 0b1, 0]);
        assert_eq!(shifted(&[0xff, 0x01], 7), [0b11, 0]);
        assert!(shifted(&[], 3).is_empty());
    }

    #[test]
    fn the_best_shift_aligns_exponents_with_bytes() {
        // Seven bits of mantissa are below the exponent, in the first byte of an element.
        let floats = floats(40_000);
        assert_eq!(best_shift(&floats, 512), 7);
        assert_eq!(best_shift(&floats[1..], 512), 7, "one byte later, the other group has the exponent");
        assert_eq!(best_shift(&[], 512), 0);
    }

    #[test]
    fn a_shift_makes_exponents_smaller() {
        let bytes = floats(32_768);
        let config = IdentifyConfig::default();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("w"), &bytes).unwrap();
        let blocks = Blocks::find(directory.path(), &["w".into()], None, None, 4096, 1).unwrap();
        let block = block_of(bytes);
        let sized = |method| {
            let answer = Answers::new(method, &config, 1).answer(&block, &blocks).unwrap();
            (answer, answer.float_bytes(&block.bytes, 1, &mut Scratch::default()).unwrap())
        };
        let (byte, bit) = (sized(IdentifyMethod::Byte), sized(IdentifyMethod::Bit));
        assert!(matches!(bit.0, Answer::Shifted(7, layout) if layout.width() == 2), "{bit:?}");
        // The lowest bit of the exponent leaves the group of the mantissa, which saves nearly half a bit per element.
        assert!(bit.1.unwrap() + 1000 < byte.1.unwrap_or(65_536), "{bit:?} against {byte:?}");
    }

    #[test]
    fn a_file_is_classified_by_its_format_or_its_first_block() {
        let directory = tempfile::tempdir().unwrap();
        let (floats, text) = (floats(40_000), "all work and no play ".repeat(4000).into_bytes());
        let write = |name: &str, parts: &[&[u8]]| {
            let path = directory.path().join(name);
            std::fs::write(&path, parts.concat()).unwrap();
            path
        };
        let header = br#"{"w":{"dtype":"U8","shape":[84000],"data_offsets":[0,84000]}}      "#;
        let model = write("model", &[&(header.len() as u64).to_le_bytes(), header, &text]);
        let (mixed, other) = (write("mixed", &[&floats, &text]), write("other", &[&text, &floats]));
        let blocks = Blocks::find(directory.path(), &["*".into()], None, None, 65_536, 1).unwrap();
        let mut answers = Answers::new(IdentifyMethod::File, &IdentifyConfig::default(), 1);
        let mut answer = |file: PathBuf| answers.answer(&DrawnBlock { file, bytes: Vec::new() }, &blocks).unwrap();
        let ordinary = Answer::Class(ChunkClass::Ordinary);
        assert_eq!([answer(model), answer(mixed), answer(other)], [Answer::Float, Answer::Float, ordinary]);
    }
}
