//! The coder: constants, the choice of the loops, and the checks around its loops.

use std::cell::Cell;
use std::sync::OnceLock;

use super::{FrequencyTable, tables};
use crate::kernel::counts::count;
use crate::kernel::cpu_features::CpuFeatures;
use crate::kernel::dispatch::dispatch;

/// Number of states. Symbol `i` belongs to state `i % LANES`.
pub const LANES: usize = 32;
/// Fewest bits of a frequency table: every symbol can have a slot.
pub const BITS_MIN: u32 = 8;
/// Most bits of a frequency table: an entry of the decoding table has 32 bits.
pub const BITS_MAX: u32 = 12;
/// Most frequency tables. Further ones are not used.
pub const TABLES_MAX: usize = 16;
/// The least state, which the encoder starts with.
pub(super) const STATE_MIN: u32 = 1 << 15;
/// All states are below this.
pub(super) const STATE_END: u32 = 1 << 31;
/// Bytes of the states, before the units.
pub(super) const STATES_BYTES: usize = LANES * size_of::<u32>();
/// Bytes of a unit.
pub(super) const UNIT_BYTES: usize = size_of::<u16>();
/// Bytes in front of the units that kernels may overwrite.
pub(super) const FRONT_BYTES: usize = 64;

/// Largest buffer that a thread keeps for its next encoding.
pub(super) const BUFFER_BYTES_MAX: usize = 2 << 20;

thread_local! {
    /// Buffer of the units before they are appended: the last unit is written first.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The used CPU features with which the loops encode correctly. A loop that a compiler or a processor breaks is not
/// used.
pub fn proven_features() -> CpuFeatures {
    static PROVEN: OnceLock<CpuFeatures> = OnceLock::new();
    *PROVEN.get_or_init(|| CpuFeatures::subsets().into_iter().find(|subset| agrees(*subset)).unwrap_or_default())
}

/// Whether the encoding with these features equals that of the portable loop and decodes correctly.
pub(super) fn agrees(features: CpuFeatures) -> bool {
    let mut state = 1u64;
    let symbols: [u8; 1003] = std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Each symbol is half as frequent as the previous one.
        (state >> 33).trailing_zeros() as u8 ^ (state >> 60) as u8 & 4
    });
    let contexts = symbols.map(|symbol| symbol.wrapping_mul(83) >> 6);
    // Every table has all symbols, with different frequencies.
    let tables: [FrequencyTable; 5] = std::array::from_fn(|number| {
        let mut counts = count(&symbols);
        counts.iter_mut().skip(number).step_by(3).for_each(|count| *count *= 1 + number as u32);
        FrequencyTable::of_counts(&counts, if number == 0 { 12 } else { 10 })
    });
    [(&[][..], &tables[..1]), (&contexts, &tables[1..])].into_iter().all(|(contexts, tables)| {
        let (mut expected, mut own, mut out) = (Vec::new(), Vec::new(), [0; 1003]);
        encode_with(CpuFeatures::empty(), &symbols, contexts, tables, &mut expected);
        encode_with(features, &symbols, contexts, tables, &mut own);
        own == expected && decode_with(features, &own, contexts, tables, &mut out) && out == symbols
    })
}

/// State of the encoder. It goes backwards through the symbols and the units.
pub(super) struct RansEncoder<'a> {
    /// The features that its loop may use.
    pub(super) features: CpuFeatures,
    pub(super) states: [u32; LANES],
    pub(super) tables: &'a tables::EncodingTable,
    /// The units end at its end.
    pub(super) buffer: &'a mut [u8],
    /// Start of the units in `buffer`. In front of it are two bytes for each symbol that is left, and
    /// [`FRONT_BYTES`] more.
    pub(super) position: usize,
}

/// State of the decoder. It goes forwards.
pub(super) struct RansDecoder<'a> {
    /// The features that its loop may use.
    pub(super) features: CpuFeatures,
    pub(super) states: [u32; LANES],
    pub(super) tables: &'a tables::DecodingTable,
    /// The units that are left.
    pub(super) units: &'a [u8],
}

/// Appends the encoding of `symbols` to `out`.
///
/// `contexts` is empty if there is one table, and as long as `symbols` otherwise. There are 1 to [`TABLES_MAX`] tables,
/// all of the same number of bits. Every symbol must have a frequency in its table: otherwise the encoding decodes to
/// other symbols.
pub fn encode(symbols: &[u8], contexts: &[u8], tables: &[FrequencyTable], out: &mut Vec<u8>) {
    encode_with(proven_features(), symbols, contexts, tables, out);
}

/// [`encode`] with the fastest loop that needs none but these CPU features.
pub fn encode_with(
    features: CpuFeatures,
    symbols: &[u8],
    contexts: &[u8],
    tables: &[FrequencyTable],
    out: &mut Vec<u8>,
) {
    debug_assert!(contexts.is_empty() || contexts.len() == symbols.len(), "a context for each symbol");
    debug_assert!(tables.windows(2).all(|pair| pair[0].bits() == pair[1].bits()), "tables of the same number of bits");
    let packed = tables::EncodingTable::new(tables);
    let mut buffer = BUFFER.take();
    buffer.resize(buffer.len().max(FRONT_BYTES + symbols.len() * UNIT_BYTES), 0);
    let position = buffer.len();
    let states = [STATE_MIN; LANES];
    let mut encoder = RansEncoder { features, states, tables: &packed, buffer: &mut buffer, position };
    encode_symbols(&mut encoder, symbols, if contexts.len() == symbols.len() { contexts } else { &[] });
    let (states, position) = (encoder.states, encoder.position);
    out.reserve(STATES_BYTES + buffer.len() - position);
    states.iter().for_each(|state| out.extend_from_slice(&state.to_le_bytes()));
    out.extend_from_slice(&buffer[position..]);
    if buffer.len() <= BUFFER_BYTES_MAX {
        BUFFER.set(buffer);
    }
}

dispatch! {
    in encoder.features;
    fn encode_symbols(encoder: &mut RansEncoder<'_>, symbols: &[u8], contexts: &[u8]) {
        AVX512 => super::avx512::encode,
        AVX2 => super::avx2::encode,
        NEON => super::neon::encode,
        PORTABLE => super::portable::encode,
    }
}

/// Fills `out` from the encoding of its symbols with the same contexts and tables.
///
/// False if `payload` is no such encoding: it ends early or late, or a state starts out of range or ends elsewhere than
/// the encoder started. Then the bytes of `out` are unspecified. A context without a table uses the last table. Tables
/// after the first [`TABLES_MAX`] are ignored.
pub fn decode(payload: &[u8], contexts: &[u8], tables: &[FrequencyTable], out: &mut [u8]) -> bool {
    decode_with(proven_features(), payload, contexts, tables, out)
}

/// [`decode`] with the fastest loop that needs none but these CPU features.
pub fn decode_with(
    features: CpuFeatures,
    payload: &[u8],
    contexts: &[u8],
    tables: &[FrequencyTable],
    out: &mut [u8],
) -> bool {
    let has_equal_bits = tables.windows(2).all(|pair| pair[0].bits() == pair[1].bits());
    let has_contexts = contexts.is_empty() || contexts.len() == out.len();
    let Some((states, units)) = payload.split_at_checked(STATES_BYTES) else { return false };
    if tables.is_empty() || !has_equal_bits || !has_contexts || units.len() % UNIT_BYTES != 0 {
        return false;
    }
    let mut start = [STATE_MIN; LANES];
    for (state, bytes) in start.iter_mut().zip(states.as_chunks().0) {
        *state = u32::from_le_bytes(*bytes);
        if !(STATE_MIN..STATE_END).contains(state) {
            return false;
        }
    }
    let packed = tables::DecodingTable::new(tables);
    let mut decoder = RansDecoder { features, states: start, tables: &packed, units };
    decode_symbols(&mut decoder, contexts, out) && decoder.units.is_empty() && decoder.states == [STATE_MIN; LANES]
}

dispatch! {
    in decoder.features;
    fn decode_symbols(decoder: &mut RansDecoder<'_>, contexts: &[u8], out: &mut [u8]) -> bool {
        AVX512 => super::avx512::decode,
        AVX2 => super::avx2::decode,
        NEON => super::neon::decode,
        PORTABLE => super::portable::decode,
    }
}
