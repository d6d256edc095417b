//! Context: element differences as tokens ([`crate::kernel::delta`]), entropy-coded by the exponent of the base.
//!
//! An update has a similar size throughout a tensor, so its size in representable values depends on the exponent of the
//! base. Each of 16 exponents is a context with a frequency table; neighbours with similar counts share a table.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | the exponent of context 0 and of all greater ones; context `c` is `c` below it, 15 includes all smaller ones |
//! | 2 | bit `c` (`u16`): context `c` starts a new table; bit 0 is set |
//! | | the frequency tables, each of 10 bits |
//! | 4 | length of the encoding (`u32`) |
//! | | the encoding of the tokens |
//! | the rest | extra bits: the low bits of differences that tokens leave out |

use crate::codec::ElementType;
use crate::codec::entropy::frequency_table;
use crate::error::Result;
use crate::kernel::delta::{self, CONTEXTS, Exponent, SLACK_BYTES, SLOTS, TABLES, TokenCounts};
use crate::kernel::rans::{self, FrequencyTable};
use crate::wire::WireReader;

/// Logarithm of the sum of a table's frequencies.
const TABLE_BITS: u32 = 10;
/// Elements sampled for the largest exponent.
const SAMPLE_ELEMENTS: usize = 1024;
/// Most elements of the sample with a larger exponent.
const OUTLIERS: usize = 4;
/// Bytes besides tables, tokens and extra bits: the states of the encoder and the header.
const FIXED_BYTES: usize = 128 + 7;
/// Bytes of the length field.
const LENGTH_BYTES: usize = 4;

/// Buffers of one worker, reused between chunks.
pub(super) struct ContextBuffers {
    tokens: Vec<u8>,
    contexts: Vec<u8>,
    extra: Vec<u8>,
    counts: Box<[TokenCounts; TABLES]>,
}

impl Default for ContextBuffers {
    fn default() -> Self {
        let counts = Box::new([[0; CONTEXTS * SLOTS]; TABLES]);
        ContextBuffers { tokens: Vec::new(), contexts: Vec::new(), extra: Vec::new(), counts }
    }
}

/// Differences of two element sequences: their tables and their size.
pub(super) struct ContextAnalysis {
    /// Approximate number of bytes that [`ContextAnalysis::write`] appends.
    pub(super) bytes: usize,
    /// Number of equal elements.
    pub(super) unchanged: usize,
    extra_len: usize,
    exponent: Exponent,
    starts: u16,
    tables: Vec<FrequencyTable>,
}

fn exponent(element_type: ElementType, top: u8) -> Exponent {
    match element_type {
        ElementType::Bf16 => Exponent { shift: 7, mask: 0xff, top },
        ElementType::Fp16 => Exponent { shift: 10, mask: 0x1f, top },
        _ => Exponent { shift: 23, mask: 0xff, top },
    }
}

/// The largest exponent in a sample of `base`, without outliers.
fn top(element_type: ElementType, base: &[u8]) -> u8 {
    let width = element_type.width();
    let elements = base.len() / width;
    let mut counts = [0usize; 256];
    let bits = exponent(element_type, 0);
    let taken = elements.min(SAMPLE_ELEMENTS);
    for number in 0..taken {
        let at = (elements * number / taken) * width;
        let bytes = base.get(at..at + width).unwrap_or_default();
        let value = bytes.iter().rev().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        if let Some(count) = counts.get_mut((value >> bits.shift & bits.mask) as usize) {
            *count += 1;
        }
    }
    let mut above = 0;
    let found = counts.iter().rposition(|count| {
        above += count;
        above > taken.min(OUTLIERS * taken / SAMPLE_ELEMENTS)
    });
    found.unwrap_or(0) as u8
}

/// Fills `buffers` with the tokens of `raw` against `base` and counts them. Both have the same number of elements.
pub(super) fn analyse(
    element_type: ElementType,
    raw: &[u8],
    base: &[u8],
    buffers: &mut ContextBuffers,
) -> ContextAnalysis {
    let elements = raw.len() / element_type.width();
    let exponent = exponent(element_type, top(element_type, base));
    buffers.tokens.resize(elements, 0);
    buffers.contexts.resize(elements, 0);
    buffers.extra.resize(raw.len() + SLACK_BYTES, 0);
    buffers.counts.as_flattened_mut().fill(0);
    let ContextBuffers { tokens, contexts, extra, counts } = buffers;
    let extra_len = delta::encode(element_type.width(), [raw, base], exponent, tokens, contexts, counts, extra);
    let [counts, others @ ..] = counts.as_mut();
    for other in others {
        for (count, other) in counts.iter_mut().zip(other) {
            *count += *other;
        }
    }
    let unchanged = counts.iter().step_by(SLOTS).sum::<u32>() as usize;
    let (starts, tables, bits) = tables(counts);
    let bytes = FIXED_BYTES + (bits / 8.0) as usize + extra_len;
    ContextAnalysis { bytes, unchanged, extra_len, exponent, starts, tables }
}

/// Bit mask of the contexts that start a table, the table of each context, and the bits of tokens and tables.
fn tables(counts: &TokenCounts) -> (u16, Vec<FrequencyTable>, f32) {
    let (mut starts, mut bits) = (1u16, 0.0);
    let mut groups: Vec<[u32; SLOTS]> = Vec::with_capacity(CONTEXTS);
    let mut lengths = Vec::with_capacity(CONTEXTS);
    for (context, own) in counts.as_chunks::<SLOTS>().0.iter().enumerate() {
        let own_bits = frequency_table::approximate_bits(own);
        if let Some((group, (len, group_bits))) = groups.last_mut().zip(lengths.last_mut()) {
            let sum: [u32; SLOTS] = std::array::from_fn(|slot| group[slot] + own[slot]);
            let shared_bits = frequency_table::approximate_bits(&sum);
            if shared_bits <= *group_bits + own_bits {
                (*group, *group_bits) = (sum, shared_bits);
                *len += 1;
                continue;
            }
            starts |= 1 << context;
        }
        groups.push(*own);
        lengths.push((1usize, own_bits));
    }
    let mut tables = Vec::with_capacity(CONTEXTS);
    for (group, (len, group_bits)) in groups.iter().zip(lengths) {
        let mut counts = [0; 256];
        counts.iter_mut().zip(group).for_each(|(count, own)| *count = *own);
        tables.resize(tables.len() + len, FrequencyTable::of_counts(&counts, TABLE_BITS));
        bits += group_bits;
    }
    (starts, tables, bits)
}

impl ContextAnalysis {
    /// Appends the encoding of the elements analysed last with `buffers`.
    pub(super) fn write(&self, buffers: &ContextBuffers, out: &mut Vec<u8>) {
        out.push(self.exponent.top);
        out.extend_from_slice(&self.starts.to_le_bytes());
        for (context, table) in self.tables.iter().enumerate() {
            if self.starts >> context & 1 == 1 {
                frequency_table::write(table, out);
            }
        }
        let start = out.len() + LENGTH_BYTES;
        out.resize(start, 0);
        rans::encode(&buffers.tokens, &buffers.contexts, &self.tables, out);
        let length = out.len() - start;
        if let Some(slot) = out.get_mut(start - LENGTH_BYTES..start) {
            slot.copy_from_slice(&(length as u32).to_le_bytes());
        }
        out.extend_from_slice(buffers.extra.get(..self.extra_len).unwrap_or_default());
    }
}

/// Decodes in place: `elements` are those of the base before, and those of the chunk afterwards. Reads all of `reader`.
pub(super) fn decode(
    element_type: ElementType,
    reader: &mut WireReader<'_>,
    elements: &mut [u8],
    buffers: &mut ContextBuffers,
) -> Result<()> {
    let exponent = exponent(element_type, reader.u8()?);
    let starts = reader.u16()?;
    if starts & 1 == 0 {
        return Err(reader.error("a table for context 0", format!("{starts:#06x}")));
    }
    let mut tables: Vec<FrequencyTable> = Vec::with_capacity(CONTEXTS);
    for context in 0..CONTEXTS {
        match tables.last() {
            Some(before) if starts >> context & 1 == 0 => tables.push(before.clone()),
            _ => tables.push(frequency_table::read(reader, TABLE_BITS)?),
        }
    }
    let len = reader.u32()? as usize;
    let encoding = reader.bytes(len)?;
    let extra = reader.bytes(reader.remaining())?;
    let count = elements.len() / element_type.width();
    let ContextBuffers { tokens, contexts, .. } = buffers;
    tokens.resize(count, 0);
    contexts.resize(count, 0);
    delta::contexts(element_type.width(), elements, exponent, contexts);
    let decoded = rans::decode(encoding, contexts, &tables, tokens)
        && delta::decode(element_type.width(), tokens, extra, elements);
    decoded.then_some(()).ok_or_else(|| reader.error(format!("tokens of {count} elements"), "other tokens"))
}
