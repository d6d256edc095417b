//! rANS: an entropy coder for bytes, 32 independent states side by side.
//!
//! 1. A [`FrequencyTable`] gives each symbol a frequency; those of a model sum to a power of two, `1 << bits`. There is one
//!    model for all symbols, or a few among which the context of each symbol chooses.
//! 2. A *state* is an integer in `2^15..2^31`. Coding a symbol of frequency `f` that starts at `s` among the
//!    cumulated frequencies makes `x / f << bits | s + x % f` of state `x`: a choice among `1 << bits` slots, of which
//!    the symbol owns `f`. Where that would leave the range, the low 16 bits are written out first.
//! 3. Decoding is the inverse, last symbol first; so the encoder walks backwards and the decoder forwards. The slot,
//!    `x % (1 << bits)`, names the symbol; the state becomes `f * (x >> bits) + slot - s`, and takes the next 16 bits
//!    where it has fallen below the range.
//! 4. Symbol `i` belongs to state `i % 32`: no state waits for another, and vectors hold 8 or 16 of them.
//!
//! The encoding: the 32 states that the decoder starts from (`u32` each), then the words (`u16` each), all
//! little-endian. The decoder goes through groups of 32 symbols; after each, the states below the range take one word
//! each, in the order of the lanes. The encoder starts all states at `2^15`, so a decoder that ends elsewhere, or not
//! at the end of the words, was not given an encoding.
//!
//! There are kernels for AVX-512, AVX2 and any processor, whose encodings are the same; the fastest that the processor
//! has, and that passes a test of known answers, is chosen once.
//!
//! Sources: J. Duda, *Asymmetric numeral systems* (2013); F. Giesen, *Interleaved entropy coders* (2014); the
//! reciprocals are those of R. Alverson, *Integer division using reciprocals* (1991).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod frequency_table;
#[cfg(target_arch = "x86_64")]
mod groups;
mod portable;
mod table;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::OnceLock;

pub use crate::kernel::counts::count;
pub use frequency_table::FrequencyTable;

/// States side by side; symbol `i` belongs to number `i % LANES`.
pub const LANES: usize = 32;
/// Bits of a model's frequencies, at least: there is room for every symbol.
pub const BITS_MIN: u32 = 8;
/// Bits of a model's frequencies, at most: a slot of the decoder's table is packed into 32 bits.
pub const BITS_MAX: u32 = 12;
/// Models, at most: more are not used.
pub const MODELS_MAX: usize = 16;
/// The least state, and the one that the encoder starts from.
const STATE_MIN: u32 = 1 << 15;
/// A state is less.
const STATE_END: u32 = 1 << 31;
/// Bytes of the states in front of the words.
const STATES_BYTES: usize = LANES * size_of::<u32>();
/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u16>();
/// Bytes in front of the words that kernels may write to.
const FRONT_BYTES: usize = 64;

/// Bytes that a thread keeps for its next words, at most.
const BUFFER_BYTES_MAX: usize = 2 << 20;

thread_local! {
    /// Where words are written before they are appended: they come last one first.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How the loops are computed.
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
    /// All of them, the fastest first.
    pub const ALL: [RansKernel; 3] = [RansKernel::Avx512, RansKernel::Avx2, RansKernel::Portable];

    /// Whether the processor has what it needs, and that may be used.
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

    /// The fastest that is available.
    pub fn fastest() -> RansKernel {
        static FASTEST: OnceLock<RansKernel> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let good = RansKernel::ALL.into_iter().find(|kernel| kernel.is_available() && kernel.agrees());
            good.unwrap_or(RansKernel::Portable)
        })
    }

    /// Whether it encodes as the portable kernel does, and decodes that again, so that a kernel that a compiler or a
    /// processor has wrong is not used.
    fn agrees(self) -> bool {
        let mut state = 1u64;
        let symbols: [u8; 1003] = std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // About half of them, a quarter, and so on.
            (state >> 33).trailing_zeros() as u8 ^ (state >> 60) as u8 & 4
        });
        let contexts = symbols.map(|symbol| symbol.wrapping_mul(83) >> 6);
        // All symbols are counted for every model, and each model has favourites of its own.
        let models: [FrequencyTable; 5] = std::array::from_fn(|number| {
            let mut counts = count(&symbols);
            counts.iter_mut().skip(number).step_by(3).for_each(|count| *count *= 1 + number as u32);
            FrequencyTable::of_counts(&counts, if number == 0 { 12 } else { 10 })
        });
        [(&[][..], &models[..1]), (&contexts, &models[1..])].into_iter().all(|(contexts, models)| {
            let (mut expected, mut own, mut out) = (Vec::new(), Vec::new(), [0; 1003]);
            encode_with(RansKernel::Portable, &symbols, contexts, models, &mut expected);
            encode_with(self, &symbols, contexts, models, &mut own);
            own == expected && decode_with(self, &own, contexts, models, &mut out) && out == symbols
        })
    }
}

/// What a kernel encodes with: it walks backwards through symbols, and through the words.
struct Encoder<'a> {
    states: [u32; LANES],
    tables: &'a table::Encoding,
    /// The words end where it ends.
    buffer: &'a mut [u8],
    /// Where in `buffer` the words start that are written already. There are two bytes for every symbol in front of
    /// it, and [`FRONT_BYTES`] more.
    position: usize,
}

/// What a kernel decodes with: it walks forwards.
struct Decoder<'a> {
    states: [u32; LANES],
    tables: &'a table::Decoding,
    /// The words not taken yet.
    words: &'a [u8],
}

/// Appends the states and words that encode `symbols`. `contexts` is empty where there is one model, else as long as
/// `symbols`; the models, one at least and at most [`MODELS_MAX`], have equally many bits. Each symbol must have been
/// counted for its model: the encoding is not decoded to the same symbols otherwise.
pub fn encode(symbols: &[u8], contexts: &[u8], models: &[FrequencyTable], out: &mut Vec<u8>) {
    encode_with(RansKernel::fastest(), symbols, contexts, models, out);
}

/// [`encode`] with this kernel, or with the portable one where the processor lacks it.
pub fn encode_with(kernel: RansKernel, symbols: &[u8], contexts: &[u8], models: &[FrequencyTable], out: &mut Vec<u8>) {
    debug_assert!(contexts.is_empty() || contexts.len() == symbols.len(), "a context for each symbol");
    debug_assert!(models.windows(2).all(|pair| pair[0].bits() == pair[1].bits()), "models of equally many bits");
    let tables = table::Encoding::new(models);
    let mut buffer = BUFFER.take();
    buffer.resize(buffer.len().max(FRONT_BYTES + symbols.len() * WORD_BYTES), 0);
    let position = buffer.len();
    let mut encoder = Encoder { states: [STATE_MIN; LANES], tables: &tables, buffer: &mut buffer, position };
    encoder.run(kernel, symbols, if contexts.len() == symbols.len() { contexts } else { &[] });
    let (states, position) = (encoder.states, encoder.position);
    out.reserve(STATES_BYTES + buffer.len() - position);
    states.iter().for_each(|state| out.extend_from_slice(&state.to_le_bytes()));
    out.extend_from_slice(&buffer[position..]);
    if buffer.len() <= BUFFER_BYTES_MAX {
        BUFFER.set(buffer);
    }
}

impl Encoder<'_> {
    fn run(&mut self, kernel: RansKernel, symbols: &[u8], contexts: &[u8]) {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx512 if kernel.is_available() => avx512::encode(self, symbols, contexts),
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx2 if kernel.is_available() => avx2::encode(self, symbols, contexts),
            _ => portable::encode(self, symbols, contexts),
        }
    }
}

/// Fills `out` from an encoding of as many symbols, made with the same contexts and models. False where `payload` is
/// none: it ends early or late, a state is out of its range or does not end where the encoder started; what is in `out`
/// is then of no meaning. Contexts beyond the models are taken for the last one, models beyond [`MODELS_MAX`] for none.
pub fn decode(payload: &[u8], contexts: &[u8], models: &[FrequencyTable], out: &mut [u8]) -> bool {
    decode_with(RansKernel::fastest(), payload, contexts, models, out)
}

/// [`decode`] with this kernel, or with the portable one where the processor lacks it.
pub fn decode_with(
    kernel: RansKernel,
    payload: &[u8],
    contexts: &[u8],
    models: &[FrequencyTable],
    out: &mut [u8],
) -> bool {
    let is_alike = models.windows(2).all(|pair| pair[0].bits() == pair[1].bits());
    let has_contexts = contexts.is_empty() || contexts.len() == out.len();
    let Some((states, words)) = payload.split_at_checked(STATES_BYTES) else { return false };
    if models.is_empty() || !is_alike || !has_contexts || words.len() % WORD_BYTES != 0 {
        return false;
    }
    let mut start = [STATE_MIN; LANES];
    for (state, bytes) in start.iter_mut().zip(states.as_chunks().0) {
        *state = u32::from_le_bytes(*bytes);
        if !(STATE_MIN..STATE_END).contains(state) {
            return false;
        }
    }
    let tables = table::Decoding::new(models);
    let mut decoder = Decoder { states: start, tables: &tables, words };
    decoder.run(kernel, contexts, out) && decoder.words.is_empty() && decoder.states == [STATE_MIN; LANES]
}

impl Decoder<'_> {
    fn run(&mut self, kernel: RansKernel, contexts: &[u8], out: &mut [u8]) -> bool {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx512 if kernel.is_available() => avx512::decode(self, contexts, out),
            #[cfg(target_arch = "x86_64")]
            RansKernel::Avx2 if kernel.is_available() => avx2::decode(self, contexts, out),
            _ => portable::decode(self, contexts, out),
        }
    }
}
