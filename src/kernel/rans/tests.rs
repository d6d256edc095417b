//! All loops agree with each other, for any input.

use proptest::prelude::*;

use super::coder::*;
use super::tables::{DecodingTable, EncodingTable};
use super::*;
use crate::kernel::counts::count;
use crate::kernel::cpu_features::CpuFeatures;

/// The units of the first encoding of the text below.
const UNITS: [u8; 66] = [
    224, 159, 229, 30, 191, 33, 195, 17, 138, 107, 234, 72, 235, 66, 174, 116, 191, 231, 208, 194, 78, 36, 210, 224,
    65, 143, 214, 156, 55, 178, 255, 203, 115, 158, 242, 62, 255, 11, 103, 110, 25, 109, 117, 48, 167, 56, 227, 215,
    204, 250, 245, 125, 70, 137, 147, 18, 84, 159, 119, 104, 219, 51, 181, 131, 158, 157,
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

/// The frequency tables of the contexts, or one table if there are no contexts.
fn tables_of(symbols: &[u8], contexts: &[u8], bits: u32) -> Vec<FrequencyTable> {
    if contexts.is_empty() {
        return vec![FrequencyTable::of_counts(&count(symbols), bits)];
    }
    let mut counts = vec![[0u32; 256]; 1 + usize::from(*contexts.iter().max().unwrap())];
    for (symbol, context) in symbols.iter().zip(contexts) {
        counts[usize::from(*context).min(TABLES_MAX - 1)][usize::from(*symbol)] += 1;
    }
    counts.iter().map(|counts| FrequencyTable::of_counts(counts, bits)).collect()
}

/// The CPU features of each loop that this processor can run, those of the portable one last.
fn loops() -> impl Iterator<Item = CpuFeatures> {
    let subsets = CpuFeatures::subsets();
    subsets.into_iter().filter(|subset| !subset.intersects(CpuFeatures::PEXT.union(CpuFeatures::GFNI)))
}

/// Encodes with every loop to the same bytes, and decodes with every loop; returns the encoding.
fn round_trip(symbols: &[u8], contexts: &[u8], tables: &[FrequencyTable]) -> Vec<u8> {
    let mut payload = vec![7];
    encode_with(CpuFeatures::empty(), symbols, contexts, tables, &mut payload);
    for features in loops() {
        let mut other = vec![7];
        encode_with(features, symbols, contexts, tables, &mut other);
        assert!(other == payload, "{features} encodes {} symbols differently", symbols.len());
    }
    let payload = payload.split_off(1);
    for features in loops() {
        let mut out = vec![0xaa; symbols.len()];
        assert!(decode_with(features, &payload, contexts, tables, &mut out), "{features}, {} symbols", symbols.len());
        assert!(out == symbols, "{features} decodes {} symbols differently", symbols.len());
    }
    payload
}

/// Decodes with every loop to the same result, and to the same bytes if the result is true.
fn decode_alike(payload: &[u8], contexts: &[u8], tables: &[FrequencyTable], len: usize) -> bool {
    let mut expected = vec![0; len];
    let is_good = decode_with(CpuFeatures::empty(), payload, contexts, tables, &mut expected);
    for features in loops() {
        let mut out = vec![0; len];
        assert_eq!(decode_with(features, payload, contexts, tables, &mut out), is_good, "{features}");
        assert!(!is_good || out == expected, "{features}");
    }
    is_good
}

fn lengths() -> impl Iterator<Item = usize> {
    let near = [8, 16, 32, 64, 96, 128, 256, 1024, 4096, 65536];
    (0..=40).chain(near.into_iter().flat_map(|len| [len - 1, len, len + 1])).chain([100_003])
}

#[test]
fn every_length_round_trips_with_one_table() {
    for len in lengths() {
        for (alphabet, skew) in [(1, 0), (2, 9), (3, 0), (40, 3), (256, 0), (256, 30)] {
            let symbols = drawn(len, alphabet, skew, len as u64);
            for bits in [8, 10, 12] {
                round_trip(&symbols, &[], &tables_of(&symbols, &[], bits));
            }
        }
    }
}

#[test]
fn every_length_round_trips_with_contexts() {
    for len in lengths().skip(1) {
        for (contexts, alphabet) in [(1, 5), (2, 256), (16, 100), (200, 128)] {
            let contexts = drawn(len, contexts, 1, 99);
            let mut symbols = drawn(len, alphabet, 4, len as u64);
            symbols.iter_mut().zip(&contexts).for_each(|(symbol, context)| *symbol = symbol.wrapping_add(*context));
            for bits in [8, 10, 12] {
                round_trip(&symbols, &contexts, &tables_of(&symbols, &contexts, bits));
            }
        }
    }
}

#[test]
fn sizes_are_near_the_entropy() {
    for (alphabet, skew, limit) in [(256, 0, 1.001), (64, 3, 1.002), (30, 12, 1.003), (256, 100, 1.01)] {
        let symbols = drawn(1 << 18, alphabet, skew, 5);
        let counts = count(&symbols);
        let tables = tables_of(&symbols, &[], 12);
        let total = symbols.len() as f64;
        let terms = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count));
        let entropy: f64 = terms.map(|count| count * (total / count).log2()).sum();
        let cost = tables[0].cost_bits(&counts);
        assert!((1.0..limit).contains(&(cost / entropy)), "{cost} bits of the table, {entropy} of entropy");
        let payload = round_trip(&symbols, &[], &tables);
        let bits = 8.0 * (payload.len() - STATES_BYTES) as f64;
        assert!((bits - cost).abs() < 0.001 * cost + 1024.0, "{bits} bits, {cost} expected");
    }
}

#[test]
fn a_single_symbol_takes_no_units() {
    for symbol in [0, 1, 255] {
        let symbols = vec![symbol; 100_000];
        let payload = round_trip(&symbols, &[], &tables_of(&symbols, &[], 12));
        assert_eq!(payload.len(), STATES_BYTES);
        assert!(!decode_alike(&[&payload[..], &[0, 0]].concat(), &[], &tables_of(&symbols, &[], 12), symbols.len()));
    }
}

#[test]
fn invalid_encodings_are_refused() {
    let symbols = drawn(5000, 60, 2, 3);
    let tables = tables_of(&symbols, &[], 12);
    let payload = round_trip(&symbols, &[], &tables);
    for len in 0..payload.len() {
        assert!(!decode_alike(&payload[..len], &[], &tables, symbols.len()), "{len} of {} bytes", payload.len());
    }
    for more in 1..100 {
        let longer = [&payload[..], &vec![0; more]].concat();
        assert!(!decode_alike(&longer, &[], &tables, symbols.len()), "{more} bytes more");
    }
    for len in [0, 1, 31, 32, 4999, 5001, 5032] {
        assert!(!decode_alike(&payload, &[], &tables, len), "{len} symbols");
    }
    let mut high = payload.clone();
    high[3] |= 0x80;
    assert!(!decode_alike(&high, &[], &tables, symbols.len()));
    let low = [&[0; 4], &payload[4..]].concat();
    assert!(!decode_alike(&low, &[], &tables, symbols.len()));
    assert!(!decode_alike(&payload, &[], &[], symbols.len()));
    assert!(!decode_alike(&payload, &[0; 4999], &tables, symbols.len()));
    let mixed = [tables[0].clone(), FrequencyTable::of_counts(&count(&symbols), 10)];
    assert!(!decode_alike(&payload, &[0; 5000], &mixed, symbols.len()));
}

#[test]
fn no_symbols_are_encoded_as_states_alone() {
    let tables = tables_of(&[], &[], 12);
    assert_eq!(round_trip(&[], &[], &tables), [0, 0x80, 0, 0].repeat(LANES));
    assert!(!decode_alike(&[], &[], &tables, 0));
}

#[test]
fn symbols_without_a_frequency_do_no_harm() {
    let tables = tables_of(&[3; 10], &[], 12);
    for features in loops() {
        let mut out = Vec::new();
        encode_with(features, &drawn(1000, 256, 0, 1), &[], &tables, &mut out);
        encode_with(features, &drawn(1000, 256, 0, 1), &[255; 1000], &tables, &mut out);
        encode_with(features, &drawn(1000, 256, 0, 1), &[], &[], &mut out);
    }
}

#[test]
fn tables_cover_all_slots() {
    let table = FrequencyTable::of_counts(&[1; 256], 8);
    let other = FrequencyTable::of_counts(&std::array::from_fn(|symbol| symbol as u32), 8);
    for (tables, rows) in [(vec![], 1), (vec![&table], 1), (vec![&table, &other], 2), (vec![&table, &other, &table], 3)]
    {
        let tables: Vec<FrequencyTable> = tables.into_iter().cloned().collect();
        assert_eq!(DecodingTable::new(&tables).slots.len(), if tables.is_empty() { 4096 } else { 256 * rows });
        assert_eq!(EncodingTable::new(&tables).entries.len(), 256 * rows);
    }
}

#[test]
fn contexts_with_equal_tables_share_a_row() {
    let table = FrequencyTable::of_counts(&[1; 256], 8);
    let other = FrequencyTable::of_counts(&std::array::from_fn(|symbol| symbol as u32), 8);
    let tables = [&table, &table, &other, &other, &other, &table].map(Clone::clone);
    let decoding = DecodingTable::new(&tables);
    assert_eq!(decoding.rows, [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!((decoding.slots.len(), EncodingTable::new(&tables).rows), (3 * 256, decoding.rows));
    // Tables after the first `TABLES_MAX` are ignored.
    let many: Vec<FrequencyTable> =
        (0..40).map(|number| if number % 2 == 0 { table.clone() } else { other.clone() }).collect();
    assert_eq!(DecodingTable::new(&many).slots.len(), TABLES_MAX * 256);
}

#[test]
fn every_loop_passes_the_test_before_its_use() {
    assert!(loops().all(agrees));
    assert_eq!((proven_features(), loops().last()), (CpuFeatures::used(), Some(CpuFeatures::empty())));
}

#[test]
fn encodings_do_not_change() {
    let symbols = b"the 32 lanes, in order: each takes a word of two bytes when it is below".repeat(3);
    let tables = tables_of(&symbols, &[], 12);
    let payload = round_trip(&symbols, &[], &tables);
    assert_eq!(payload[STATES_BYTES..], UNITS);
    let states = payload[..STATES_BYTES].as_chunks().0.iter().map(|state| u32::from_le_bytes(*state));
    assert_eq!(states.fold(0, |hash: u32, state| hash.wrapping_mul(31) ^ state), 2_307_881_711);
}

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
        6 => {
            if symbol == 77 {
                u32::MAX
            } else {
                (draw() % 2) as u32
            }
        }
        _ => 0,
    })
}

#[test]
fn frequencies_sum_to_a_power_of_two() {
    for bits in BITS_MIN..=BITS_MAX {
        for (kind, seed) in (0..8).flat_map(|kind| (0..40).map(move |seed| (kind, seed))) {
            let counts = counts_of(kind, seed);
            let table = FrequencyTable::of_counts(&counts, bits);
            assert_eq!(table.bits(), bits);
            assert_eq!(table.frequencies().iter().map(|f| u32::from(*f)).sum::<u32>(), 1 << bits);
            assert!(counts.iter().zip(table.frequencies()).all(|(count, frequency)| *count == 0 || *frequency > 0));
            assert_eq!(FrequencyTable::of_frequencies(*table.frequencies(), bits), Some(table));
        }
    }
}

#[test]
fn frequencies_of_no_table_are_refused() {
    let of = |frequency: u16, bits: u32| {
        FrequencyTable::of_frequencies(std::array::from_fn(|symbol| u16::from(symbol % 2 == 0) * frequency), bits)
    };
    assert!(of(2, 8).is_some() && of(32, 12).is_some());
    for (frequency, bits) in [(0, 8), (1, 8), (1, 7), (3, 8), (64, 13), (0, 32), (0, u32::MAX)] {
        assert!(of(frequency, bits).is_none(), "{frequency} of {bits} bits");
    }
}

#[test]
fn bits_are_clamped() {
    assert_eq!(FrequencyTable::of_counts(&[1; 256], 0).bits(), BITS_MIN);
    assert_eq!(FrequencyTable::of_counts(&[1; 256], 99).bits(), BITS_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_round_trip(symbols in prop::collection::vec(any::<u8>(), 0..700), bits in 8u32..=12) {
        round_trip(&symbols, &[], &tables_of(&symbols, &[], bits));
        let contexts: Vec<u8> = symbols.iter().map(|symbol| symbol.wrapping_mul(151) >> 4).collect();
        if !symbols.is_empty() {
            round_trip(&symbols, &contexts, &tables_of(&symbols, &contexts, bits));
        }
    }

    #[test]
    fn hostile_payloads_never_panic(
        mut payload in prop::collection::vec(any::<u8>(), 0..600),
        contexts in prop::collection::vec(any::<u8>(), 0..900),
        seed: u64, bits in 8u32..=12, count in 1u64..20, len in 0usize..900
    ) {
        // Valid states, so that the loops run.
        payload.iter_mut().skip(3).step_by(4).take(LANES).for_each(|byte| *byte &= 0x7f);
        payload.iter_mut().skip(1).step_by(4).take(LANES).for_each(|byte| *byte |= 0x80);
        let tables: Vec<FrequencyTable> = (0..count).map(|number| {
            FrequencyTable::of_counts(&counts_of((seed.wrapping_add(number) % 8) as u32, seed ^ number), bits)
        }).collect();
        decode_alike(&payload, &[], &tables, len);
        decode_alike(&payload, &contexts, &tables, contexts.len());
    }

    #[test]
    fn a_changed_encoding_is_decoded_alike(seed: u64, at: prop::sample::Index, bit in 0u8..8, len in 1usize..3000) {
        let symbols = drawn(len, 1 + seed % 256, (seed >> 60) as u32, seed);
        let tables = tables_of(&symbols, &[], 12);
        let mut payload = round_trip(&symbols, &[], &tables);
        payload[at.index(symbols.len().min(STATES_BYTES))] ^= 1 << bit;
        decode_alike(&payload, &[], &tables, len);
    }
}
