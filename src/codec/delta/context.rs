//! Context: the differences of words as tokens ([`crate::kernel::delta`]), entropy-coded by the exponent of the base.
//!
//! An update has about one size throughout a tensor, so its size in representable values depends on the exponent that
//! it lands on: each of 16 exponents has a model of its own, but neighbours that are alike share one.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | the exponent of context 0 and of all above; context `c` is `c` below it, 15 all further below too |
//! | 2 | bit `c`: context `c` starts a new model; bit 0 is set (`u16`) |
//! | | the models, each of 10 bits |
//! | 4 | length of the encoding (`u32`) |
//! | | the encoding of the tokens |
//! | the rest | the bits that the tokens leave over |

use crate::codec::ElementType;
use crate::codec::entropy::frequency_table;
use crate::error::Result;
use crate::kernel::delta::{self, CONTEXTS, Exponent, SLACK_BYTES, SLOTS, TABLES, TokenCounts};
use crate::kernel::rans::{self, FrequencyTable};
use crate::wire::WireReader;

/// Bits of a model.
const MODEL_BITS: u32 = 10;
/// Words that are looked at for the largest exponent.
const SAMPLE: usize = 1024;
/// Of a sample, so many may have larger exponents.
const OUTLIERS: usize = 4;
/// Bits that a symbol takes in a model, about, and bits of a model besides.
const SYMBOL_BITS: f32 = 6.0;
const TABLE_BITS: f32 = 16.0;
/// Bytes beside models, tokens and bits: the states of the encoding and the header.
const FIXED_BYTES: usize = 128 + 7;
/// Bytes of the encoding's length.
const LENGTH_BYTES: usize = 4;

/// Work space.
pub(super) struct ContextBuffers {
    tokens: Vec<u8>,
    contexts: Vec<u8>,
    kept: Vec<u8>,
    counts: Box<[TokenCounts; TABLES]>,
}

impl Default for ContextBuffers {
    fn default() -> Self {
        let counts = Box::new([[0; CONTEXTS * SLOTS]; TABLES]);
        ContextBuffers { tokens: Vec::new(), contexts: Vec::new(), kept: Vec::new(), counts }
    }
}

/// What the differences of two runs of words are.
pub(super) struct ContextAnalysis {
    /// Bytes that [`ContextAnalysis::write`] will append, about.
    pub(super) bytes: usize,
    /// Words that are the same.
    pub(super) unchanged: usize,
    kept_len: usize,
    exponent: Exponent,
    starts: u16,
    models: Vec<FrequencyTable>,
}

fn exponent(word: ElementType, top: u8) -> Exponent {
    match word {
        ElementType::Bf16 => Exponent { shift: 7, mask: 0xff, top },
        ElementType::Fp16 => Exponent { shift: 10, mask: 0x1f, top },
        _ => Exponent { shift: 23, mask: 0xff, top },
    }
}

/// The largest exponent but for outliers.
fn top(word: ElementType, base: &[u8]) -> u8 {
    let width = word.width();
    let words = base.len() / width;
    let mut counts = [0usize; 256];
    let places = exponent(word, 0);
    let taken = words.min(SAMPLE);
    for number in 0..taken {
        let at = (words * number / taken) * width;
        let bytes = base.get(at..at + width).unwrap_or_default();
        let value = bytes.iter().rev().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        if let Some(count) = counts.get_mut((value >> places.shift & places.mask) as usize) {
            *count += 1;
        }
    }
    let mut above = 0;
    let found = counts.iter().rposition(|count| {
        above += count;
        above > taken.min(OUTLIERS * taken / SAMPLE)
    });
    found.unwrap_or(0) as u8
}

/// Tells `raw` by `base`, equally many whole words, and counts.
pub(super) fn analyse(word: ElementType, raw: &[u8], base: &[u8], buffers: &mut ContextBuffers) -> ContextAnalysis {
    let words = raw.len() / word.width();
    let exponent = exponent(word, top(word, base));
    buffers.tokens.resize(words, 0);
    buffers.contexts.resize(words, 0);
    buffers.kept.resize(raw.len() + SLACK_BYTES, 0);
    buffers.counts.as_flattened_mut().fill(0);
    let ContextBuffers { tokens, contexts, kept, counts } = buffers;
    let kept_len = delta::encode(word.width(), [raw, base], exponent, tokens, contexts, counts, kept);
    let [counts, others @ ..] = counts.as_mut();
    for other in others {
        for (count, other) in counts.iter_mut().zip(other) {
            *count += *other;
        }
    }
    let unchanged = counts.iter().step_by(SLOTS).sum::<u32>() as usize;
    let (starts, models, bits) = models(counts);
    let bytes = FIXED_BYTES + (bits / 8.0) as usize + kept_len;
    ContextAnalysis { bytes, unchanged, kept_len, exponent, starts, models }
}

/// Which contexts start a model, the model of each context, and the bits of tokens and models.
fn models(counts: &TokenCounts) -> (u16, Vec<FrequencyTable>, f32) {
    let (mut starts, mut bits) = (1u16, 0.0);
    let mut groups: Vec<[u32; SLOTS]> = Vec::with_capacity(CONTEXTS);
    let mut lengths = Vec::with_capacity(CONTEXTS);
    for (context, own) in counts.as_chunks::<SLOTS>().0.iter().enumerate() {
        let apart = cost(own);
        if let Some((group, (len, group_bits))) = groups.last_mut().zip(lengths.last_mut()) {
            let sum: [u32; SLOTS] = std::array::from_fn(|slot| group[slot] + own[slot]);
            let together = cost(&sum);
            if together <= *group_bits + apart {
                (*group, *group_bits) = (sum, together);
                *len += 1;
                continue;
            }
            starts |= 1 << context;
        }
        groups.push(*own);
        lengths.push((1usize, apart));
    }
    let mut models = Vec::with_capacity(CONTEXTS);
    for (group, (len, group_bits)) in groups.iter().zip(lengths) {
        let mut counts = [0; 256];
        counts.iter_mut().zip(group).for_each(|(count, own)| *count = *own);
        models.resize(models.len() + len, FrequencyTable::of_counts(&counts, MODEL_BITS));
        bits += group_bits;
    }
    (starts, models, bits)
}

/// Bits that a model and the symbols of these counts take.
fn cost(counts: &[u32; SLOTS]) -> f32 {
    let (mut total, mut kinds, mut sum) = (0u32, 0u32, 0.0);
    for count in counts.iter().filter(|count| **count > 0) {
        total += count;
        kinds += 1;
        sum += *count as f32 * (*count as f32).log2();
    }
    if total == 0 {
        return 0.0;
    }
    total as f32 * (total as f32).log2() - sum + kinds as f32 * SYMBOL_BITS + TABLE_BITS
}

impl ContextAnalysis {
    /// Appends the encoding of what was analysed last in `buffers`.
    pub(super) fn write(&self, buffers: &ContextBuffers, out: &mut Vec<u8>) {
        out.push(self.exponent.top);
        out.extend_from_slice(&self.starts.to_le_bytes());
        for (context, model) in self.models.iter().enumerate() {
            if self.starts >> context & 1 == 1 {
                frequency_table::write(model, out);
            }
        }
        let start = out.len() + LENGTH_BYTES;
        out.resize(start, 0);
        rans::encode(&buffers.tokens, &buffers.contexts, &self.models, out);
        let length = out.len() - start;
        if let Some(slot) = out.get_mut(start - LENGTH_BYTES..start) {
            slot.copy_from_slice(&(length as u32).to_le_bytes());
        }
        out.extend_from_slice(buffers.kept.get(..self.kept_len).unwrap_or_default());
    }
}

/// Fills `out` from `base`, which is as long, and all that `reader` has left.
pub(super) fn decode(
    word: ElementType,
    reader: &mut WireReader<'_>,
    base: &[u8],
    buffers: &mut ContextBuffers,
    out: &mut [u8],
) -> Result<()> {
    let exponent = exponent(word, reader.u8()?);
    let starts = reader.u16()?;
    if starts & 1 == 0 {
        return Err(reader.error("a model for context 0", format!("{starts:#06x}")));
    }
    let mut models: Vec<FrequencyTable> = Vec::with_capacity(CONTEXTS);
    for context in 0..CONTEXTS {
        match models.last() {
            Some(before) if starts >> context & 1 == 0 => models.push(before.clone()),
            _ => models.push(frequency_table::read(reader, MODEL_BITS)?),
        }
    }
    let len = reader.u32()? as usize;
    let encoding = reader.bytes(len)?;
    let kept = reader.bytes(reader.remaining())?;
    let words = out.len() / word.width();
    let ContextBuffers { tokens, contexts, .. } = buffers;
    tokens.resize(words, 0);
    contexts.resize(words, 0);
    delta::contexts(word.width(), base, exponent, contexts);
    let told =
        rans::decode(encoding, contexts, &models, tokens) && delta::decode(word.width(), tokens, kept, base, out);
    told.then_some(()).ok_or_else(|| reader.error(format!("the tokens of {words} words"), "others"))
}
