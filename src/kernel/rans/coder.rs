//! The coder: constants, the choice of the kernel, and the checks around its loops.

use std::cell::Cell;
use std::sync::OnceLock;

use super::{FrequencyTable, portable, tables};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::kernel::counts::count;

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

/// Implementation of the loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RansKernel {
    /// AVX-512 (F, BW, VL).
    Avx512,
    /// AVX2.
    Avx2,
    /// Any processor.
    Portable,
}

impl RansKernel {
    /// All kernels, the fastest first.
    pub const ALL: [RansKernel; 3] = [RansKernel::Avx512, RansKernel::Avx2, RansKernel::Portable];

    /// Whether the processor has its CPU features, and they may be used.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx512 => avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx2 => avx2::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            RansKernel::Avx512 | RansKernel::Avx2 => false,
            RansKernel::Portable => true,
        }
    }

    /// The fastest kernel that is available and encodes correctly.
    pub fn fastest() -> RansKernel {
        static FASTEST: OnceLock<RansKernel> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let good = RansKernel::ALL.into_iter().find(|kernel| kernel.is_available() && kernel.agrees());
            good.unwrap_or(RansKernel::Portable)
        })
    }

    /// Whether its encoding equals that of the portable kernel and decodes correctly. A kernel that a compiler or a
    /// processor breaks is not used.
    pub(super) fn agrees(self) -> bool {
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
            encode_with(RansKernel::Portable, &symbols, contexts, tables, &mut expected);
            encode_with(self, &symbols, contexts, tables, &mut own);
            own == expected && decode_with(self, &own, contexts, tables, &mut out) && out == symbols
        })
    }
}

/// State of the encoder. It goes backwards through the symbols and the units.
pub(super) struct RansEncoder<'a> {
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
    encode_with(RansKernel::fastest(), symbols, contexts, tables, out);
}

/// [`encode`] with this kernel, or with the portable one if it is not available.
pub fn encode_with(kernel: RansKernel, symbols: &[u8], contexts: &[u8], tables: &[FrequencyTable], out: &mut Vec<u8>) {
    debug_assert!(contexts.is_empty() || contexts.len() == symbols.len(), "a context for each symbol");
    debug_assert!(tables.windows(2).all(|pair| pair[0].bits() == pair[1].bits()), "tables of the same number of bits");
    let packed = tables::EncodingTable::new(tables);
    let mut buffer = BUFFER.take();
    buffer.resize(buffer.len().max(FRONT_BYTES + symbols.len() * UNIT_BYTES), 0);
    let position = buffer.len();
    let mut encoder = RansEncoder { states: [STATE_MIN; LANES], tables: &packed, buffer: &mut buffer, position };
    encoder.run(kernel, symbols, if contexts.len() == symbols.len() { contexts } else { &[] });
    let (states, position) = (encoder.states, encoder.position);
    out.reserve(STATES_BYTES + buffer.len() - position);
    states.iter().for_each(|state| out.extend_from_slice(&state.to_le_bytes()));
    out.extend_from_slice(&buffer[position..]);
    if buffer.len() <= BUFFER_BYTES_MAX {
        BUFFER.set(buffer);
    }
}

impl RansEncoder<'_> {
    pub(super) fn run(&mut self, kernel: RansKernel, symbols: &[u8], contexts: &[u8]) {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx512 if kernel.is_available() => avx512::encode(self, symbols, contexts),
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx2 if kernel.is_available() => avx2::encode(self, symbols, contexts),
            _ => portable::encode(self, symbols, contexts),
        }
    }
}

/// Fills `out` from the encoding of its symbols with the same contexts and tables.
///
/// False if `payload` is no such encoding: it ends early or late, or a state starts out of range or ends elsewhere than
/// the encoder started. Then the bytes of `out` are unspecified. A context without a table uses the last table. Tables
/// after the first [`TABLES_MAX`] are ignored.
pub fn decode(payload: &[u8], contexts: &[u8], tables: &[FrequencyTable], out: &mut [u8]) -> bool {
    decode_with(RansKernel::fastest(), payload, contexts, tables, out)
}

/// [`decode`] with this kernel, or with the portable one if it is not available.
pub fn decode_with(
    kernel: RansKernel,
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
    let mut decoder = RansDecoder { states: start, tables: &packed, units };
    decoder.run(kernel, contexts, out) && decoder.units.is_empty() && decoder.states == [STATE_MIN; LANES]
}

impl RansDecoder<'_> {
    pub(super) fn run(&mut self, kernel: RansKernel, contexts: &[u8], out: &mut [u8]) -> bool {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx512 if kernel.is_available() => avx512::decode(self, contexts, out),
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx2 if kernel.is_available() => avx2::decode(self, contexts, out),
            _ => portable::decode(self, contexts, out),
        }
    }
}
