//! Headers of entropy coders round trip, do not change, and hostile ones are refused.

use proptest::prelude::*;

use super::{frequency_table, prefix_code};
use crate::kernel::counts::count;
use crate::kernel::prefix::{LENGTH_MAX, PrefixCode};
use crate::kernel::rans::{BITS_MAX, BITS_MIN, FrequencyTable};
use crate::wire::WireReader;

/// The first encoding of the prefix code of a text.
const CODE: [u8; 19] = [0, 2, 1, 156, 1, 72, 169, 12, 18, 193, 50, 144, 21, 36, 88, 52, 84, 224, 2];
/// The first encoding of the frequency table of a text.
const TABLE: [u8; 42] = [
    3, 8, 214, 176, 3, 110, 211, 3, 163, 233, 129, 210, 3, 104, 198, 115, 231, 234, 204, 103, 243, 166, 135, 99, 75,
    107, 184, 233, 204, 195, 180, 2, 50, 168, 45, 231, 128, 12, 234, 121, 184, 105,
];

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Symbols below `alphabet`. The greater `skew` is, the more frequent the low ones are.
fn drawn(len: usize, alphabet: u64, skew: u32, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..len).map(|_| (0..=skew).map(|_| random(&mut state) % alphabet).min().unwrap() as u8).collect()
}

/// Counts of very different distributions.
fn counts_of(kind: u32, seed: u64) -> [u32; 256] {
    let mut state = seed;
    let mut draw = || random(&mut state);
    std::array::from_fn(|symbol| match kind {
        0 => draw() as u32,
        1 => 1,
        2 => u32::MAX,
        3 => (1 << 20 >> symbol.min(31)) as u32,
        4 => (draw() % 3) as u32 * (draw() % 1000) as u32,
        5 => u32::from(draw() % 40 == 0) * (draw() >> 33 >> (draw() % 31)) as u32,
        6 => [(draw() % 2) as u32, u32::MAX][usize::from(symbol == 77)],
        7 => u32::from(symbol == 200),
        _ => 0,
    })
}

fn written_code(code: &PrefixCode) -> Vec<u8> {
    let mut bytes = Vec::new();
    prefix_code::write(code, &mut bytes);
    bytes
}

fn written_table(table: &FrequencyTable) -> Vec<u8> {
    let mut bytes = Vec::new();
    frequency_table::write(table, &mut bytes);
    bytes
}

#[test]
fn prefix_codes_round_trip() {
    for (kind, seed) in (0..9).flat_map(|kind| (0..40).map(move |seed| (kind, seed))) {
        let code = PrefixCode::of_counts(&counts_of(kind, seed));
        let used = code.lengths().iter().filter(|length| **length > 0).count();
        let bytes = written_code(&code);
        assert!(bytes.len() <= 1 + 3 * used, "{} bytes for {used} symbols", bytes.len());
        let mut reader = WireReader::new("code", 0, &bytes);
        assert_eq!(prefix_code::read(&mut reader).unwrap(), code);
        assert!(reader.finish().is_ok());
        assert!((0..bytes.len()).all(|len| prefix_code::read(&mut WireReader::new("", 0, &bytes[..len])).is_err()));
    }
}

#[test]
fn frequency_tables_round_trip() {
    for bits in BITS_MIN..=BITS_MAX {
        for (kind, seed) in (0..9).flat_map(|kind| (0..40).map(move |seed| (kind, seed))) {
            let table = FrequencyTable::of_counts(&counts_of(kind, seed), bits);
            let used = table.frequencies().iter().filter(|frequency| **frequency > 0).count();
            let bytes = written_table(&table);
            assert!(bytes.len() <= 3 + 5 * used, "{} bytes for {used} symbols", bytes.len());
            let mut reader = WireReader::new("frequency table", 0, &bytes);
            assert_eq!(frequency_table::read(&mut reader, bits).unwrap(), table);
            assert!(reader.finish().is_ok());
            let read_some = |len: usize| frequency_table::read(&mut WireReader::new("", 0, &bytes[..len]), bits);
            assert!((0..bytes.len()).all(|len| read_some(len).is_err()));
        }
    }
}

#[test]
fn frequency_tables_are_small() {
    // Exponents of weights, and tokens of differences, have counts like these.
    for (symbols, bits) in [(drawn(1 << 17, 40, 6, 1), 12), (drawn(1 << 14, 100, 8, 2), 10), (drawn(300, 40, 3, 3), 10)]
    {
        let table = FrequencyTable::of_counts(&count(&symbols), bits);
        let used = table.frequencies().iter().filter(|frequency| **frequency > 0).count();
        let bytes = written_table(&table);
        assert!(10 * bytes.len() <= 11 * used + 20, "{} bytes for {used} symbols", bytes.len());
    }
}

#[test]
fn frequency_tables_of_impossible_bits_are_refused() {
    for bits in [0, 7, 13, u32::MAX] {
        assert!(frequency_table::read(&mut WireReader::new("frequency table", 0, &[0; 600]), bits).is_err());
    }
}

#[test]
fn what_is_written_does_not_change() {
    let symbols = b"four streams of bits, each of a quarter of the symbols".repeat(3);
    assert_eq!(written_code(&PrefixCode::of_counts(&count(&symbols))), CODE);
    let symbols = b"the 32 lanes, in order: each takes a word of two bytes when it is below".repeat(3);
    assert_eq!(written_table(&FrequencyTable::of_counts(&count(&symbols), 12)), TABLE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn hostile_prefix_codes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(code) = prefix_code::read(&mut WireReader::new("code", 0, &bytes)) {
            let used = code.lengths().iter().filter(|length| **length > 0);
            let space = used.map(|length| 1u32 << (LENGTH_MAX - u32::from(*length))).sum::<u32>();
            prop_assert_eq!(space, 1 << LENGTH_MAX);
        }
    }

    #[test]
    fn hostile_frequency_tables_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), bits in 0u32..=16) {
        if let Ok(table) = frequency_table::read(&mut WireReader::new("frequency table", 0, &bytes), bits) {
            prop_assert_eq!(table.frequencies().iter().map(|f| u32::from(*f)).sum::<u32>(), 1 << bits);
        }
    }
}
