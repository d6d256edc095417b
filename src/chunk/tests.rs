//! One suite for all chunkers, and tests of the published chunkers against their sources.

use bytesize::ByteSize;
use proptest::prelude::*;

use super::*;
use crate::config::ChunkerKind;
use crate::kernel::sieve::Sieve;

const LIMITS: [u64; 3] = [1 << 10, 4 << 10, 16 << 10];

fn config(chunker: ChunkerKind, [min, avg, max]: [u64; 3]) -> RepositoryConfig {
    RepositoryConfig {
        chunker,
        chunk_bytes_min: ByteSize(min),
        chunk_bytes_avg: ByteSize(avg),
        chunk_bytes_max: ByteSize(max),
        pad_containers: false,
    }
}

/// SplitMix64 output in little-endian order.
fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let lanes = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)).to_le_bytes()
    });
    lanes.flatten().take(len).collect()
}

/// Chunk ends of a file that is read at once.
fn ends(chunker: &dyn Chunker, bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = 0;
    while end < bytes.len() {
        let len = chunker.cut(&bytes[end..], &mut Vec::new());
        assert!(len > 0, "a chunk is not empty");
        end += len;
        ends.push(end);
    }
    assert_eq!(end, bytes.len());
    ends
}

/// Chunk ends of a file that arrives in buffers of lengths `lens`, repeated. A chunk is taken as soon as the largest
/// chunk has been read.
fn ends_of_buffers(chunker: &dyn Chunker, max: usize, bytes: &[u8], lens: &[usize]) -> Vec<usize> {
    let (mut ends, mut start, mut read) = (Vec::new(), 0, 0);
    let mut lens = lens.iter().cycle();
    while start < bytes.len() {
        if read < bytes.len() {
            read = bytes.len().min(read + lens.next().expect("repeats"));
        }
        while read - start >= max || (read == bytes.len() && start < read) {
            start += chunker.cut(&bytes[start..read], &mut Vec::new());
            ends.push(start);
        }
    }
    ends
}

fn lengths(ends: &[usize]) -> Vec<usize> {
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| end - start).collect()
}

/// Text fragments from a short list, runs of zeros and random bytes.
fn mixed(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 4096);
    let mut choices = random(seed, len / 8 + 64).into_iter().cycle();
    while bytes.len() < len {
        let choice = choices.next().unwrap_or_default();
        match choice % 16 {
            0 => bytes.extend(vec![0; usize::from(choice) * 16]),
            1 => bytes.extend(random(bytes.len() as u64, usize::from(choice))),
            _ => bytes
                .extend_from_slice([&b"return "[..], b"    let x = ", b"0x7f\n", b"chunk"][usize::from(choice >> 6)]),
        }
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn every_chunker_kind_divides_in_its_own_way() {
    let bytes = mixed(9, 400_000);
    let of = |kind: &ChunkerKind| ends(&*chunker(&config(*kind, LIMITS), 1), &bytes);
    let all: Vec<Vec<usize>> = ChunkerKind::ALL.iter().map(of).collect();
    for (number, (one, kind)) in all.iter().zip(ChunkerKind::ALL).enumerate() {
        assert!(!all[..number].contains(one), "{kind} divides like another");
    }
}

#[test]
fn an_insertion_changes_few_chunks() {
    let bytes = random(1, 1 << 20);
    let mut longer = bytes.clone();
    longer.splice(500_000..500_000, random(2, 100));
    for kind in ChunkerKind::ALL.iter().filter(|kind| **kind != ChunkerKind::Fixed) {
        let chunker = chunker(&config(*kind, LIMITS), 7);
        let before = ends(&*chunker, &bytes);
        let after = ends(&*chunker, &longer);
        let moved = |end: &usize| if *end <= 500_000 { *end } else { end + 100 };
        let lost = before.iter().filter(|end| !after.contains(&moved(end))).count();
        assert!(lost <= 8, "{kind}: {lost} of {} boundaries lost", before.len());
    }
}

#[test]
fn the_average_length_is_near_the_configured_one() {
    let bytes = random(3, 8 << 20);
    for (kind, low, high) in [
        (ChunkerKind::Sieve, 0.87, 1.02),
        (ChunkerKind::FastCdc, 0.7, 1.1),
        (ChunkerKind::GearXet, 1.4, 1.6),
        (ChunkerKind::UltraCdc, 0.8, 1.2),
        (ChunkerKind::Fixed, 0.99, 1.01),
    ] {
        let count = ends(&*chunker(&config(kind, [2 << 10, 4 << 10, 16 << 10]), 5), &bytes).len();
        let ratio = bytes.len() as f64 / count as f64 / 4096.0;
        assert!((low..high).contains(&ratio), "{kind}: {ratio} of the average");
    }
}

#[test]
fn sieve_makes_long_chunks_of_constant_and_periodic_bytes() {
    let chunker = chunker(&config(ChunkerKind::Sieve, LIMITS), 11);
    assert!(ends(&*chunker, &[]).is_empty());
    for byte in [0, 1, 0x20, 0xaa, 0xff] {
        let lengths = lengths(&ends(&*chunker, &vec![byte; 100_000]));
        assert!(lengths.iter().rev().skip(1).all(|len| *len == LIMITS[2] as usize), "byte {byte}");
    }
    for period in 1..=40 {
        let bytes: Vec<u8> = random(period, period as usize).into_iter().cycle().take(100_000).collect();
        let lengths = lengths(&ends(&*chunker, &bytes));
        assert!(lengths.len() <= 100_000 / LIMITS[0] as usize + 1, "period {period}");
    }
}

#[test]
fn gear_xet_gives_the_published_boundaries() {
    let chunker = chunker(&config(ChunkerKind::GearXet, [8 << 10, 64 << 10, 128 << 10]), 0);
    let noise = random(0, 1_000_000);
    assert_eq!([noise[0], noise[127], noise[111_111]], [175, 132, 118], "the test vectors' data");
    let expected = [
        84493, 134421, 144853, 243318, 271793, 336457, 467529, 494581, 582000, 596735, 616815, 653164, 678202, 724510,
        815591, 827760, 958832, 991092, 1000000,
    ];
    assert_eq!(ends(&*chunker, &noise), expected);
    let expected = [131072, 262144, 393216, 524288, 655360, 786432, 917504, 1000000];
    assert_eq!(ends(&*chunker, &[59; 1_000_000]), expected);
}

/// The specification's rule: every byte is hashed from the chunk's start.
fn xet_reference(bytes: &[u8], [min, avg, max]: [u64; 3]) -> usize {
    let mut hash = 0u64;
    for (len, byte) in (1..=max).zip(bytes) {
        hash = (hash << 1).wrapping_add(gearhash::DEFAULT_TABLE[usize::from(*byte)]);
        if len == max || (len >= min && hash.leading_zeros() >= avg.trailing_zeros()) {
            return len as usize;
        }
    }
    bytes.len()
}

/// UltraCDC's rule with the distance recomputed at every position.
fn ultracdc_reference(bytes: &[u8], [min, avg, max]: [u64; 3], shift: i32) -> usize {
    let limit = bytes.len().min(max as usize);
    let distance = |end: usize| bytes[end - 8..end].iter().map(|byte| (byte ^ 0xaa).count_ones() as i32).sum::<i32>();
    let (mut at, mut previous, mut equal) = (min as usize + 8, min as usize, 0);
    while at + 8 <= limit {
        if bytes[at..at + 8] == bytes[previous..previous + 8] {
            equal += 1;
            if equal == 64 {
                return at + 8;
            }
        } else {
            let mask = if (at as u64) < avg { 0x2f } else { 0x2c };
            if let Some(end) = (at..at + 8).find(|end| (distance(*end) + shift) & mask == 0) {
                return end;
            }
            (equal, previous) = (0, at);
        }
        at += 8;
    }
    limit
}

#[test]
fn ultracdc_uses_the_papers_masks_at_the_papers_limits() {
    let limits = [2 << 10, 10 << 10, 64 << 10];
    let chunker = chunker(&config(ChunkerKind::UltraCdc, limits), 0);
    for seed in 0..60 {
        let bytes = mixed(seed, 80_000);
        assert_eq!(chunker.cut(&bytes, &mut Vec::new()), ultracdc_reference(&bytes, limits, 0));
    }
    assert_eq!(chunker.cut(&[0; 80_000], &mut Vec::new()), 2048 + 8 + 64 * 8, "64 equal windows end a chunk");
}

#[test]
fn ultracdc_can_have_the_papers_masks_at_other_limits() {
    let limits = [8 << 10, 64 << 10, 128 << 10];
    let config = config(ChunkerKind::UltraCdc, limits);
    let (papers, scaled) = (ultracdc_with_papers_masks(&config), chunker(&config, 0));
    let mut different = 0;
    for seed in 0..60 {
        let bytes = random(seed, 160_000);
        let cut = papers.cut(&bytes, &mut Vec::new());
        assert_eq!(cut, ultracdc_reference(&bytes, limits, 0));
        different += usize::from(cut != scaled.cut(&bytes, &mut Vec::new()));
    }
    assert!(different > 20, "{different} of 60 first chunks differ");
}

proptest! {
    #[test]
    fn lengths_keep_the_limits(kind in proptest::sample::select(ChunkerKind::ALL), seed: u64, len in 0..200_000usize) {
        let chunker = chunker(&config(kind, LIMITS), seed);
        let lengths = lengths(&ends(&*chunker, &mixed(seed, len)));
        let [min, _, max] = LIMITS.map(|limit| limit as usize);
        prop_assert!(lengths.iter().all(|len| *len <= max));
        prop_assert!(lengths.iter().rev().skip(1).all(|len| *len >= min));
    }

    #[test]
    fn boundaries_do_not_depend_on_the_buffers(
        kind in proptest::sample::select(ChunkerKind::ALL),
        seed: u64,
        len in 0..200_000usize,
        lens in proptest::collection::vec(1..40_000usize, 1..6),
    ) {
        let chunker = chunker(&config(kind, LIMITS), seed);
        let bytes = mixed(seed, len);
        prop_assert_eq!(ends_of_buffers(&*chunker, LIMITS[2] as usize, &bytes, &lens), ends(&*chunker, &bytes));
    }

    #[test]
    fn gear_xet_follows_the_specification(seed: u64, power in 9..13u32, min in 64..2000u64, len in 1..40_000usize) {
        let limits = [min, 1 << power, 3 << power];
        let bytes = mixed(seed, len);
        let len_of_chunk = chunker(&config(ChunkerKind::GearXet, limits), 0).cut(&bytes, &mut Vec::new());
        prop_assert_eq!(len_of_chunk, xet_reference(&bytes, limits));
    }

    #[test]
    fn sieve_appends_the_anchors_of_the_chunk(seed: u64, len in 1..60_000usize) {
        let bytes = mixed(seed, len);
        let mut anchors = Vec::new();
        let end = chunker(&config(ChunkerKind::Sieve, LIMITS), seed).cut(&bytes, &mut anchors);
        prop_assert_eq!(anchors, crate::kernel::sieve::Sieve::new(seed).anchors(&bytes[..end]));
    }
}

/// The expected values come from an independent program written from docs/FORMAT.md. Boundaries must not change, or an
/// old repository no longer deduplicates.
#[test]
fn sieve_boundaries_match_the_format_document() {
    let bytes = random(1, 65_536);
    let anchors = Sieve::new(7).anchors(&bytes[..16_384]);
    let first: Vec<(u32, u64)> = anchors.iter().take(3).map(|anchor| (anchor.position, anchor.hash)).collect();
    assert_eq!(first, [(101, 0x3de5_c1f8_632f_a6b9), (614, 0x3c0c_2b4c_44c4_085d), (760, 0x894b_bbea_daa6_7fc3)]);
    assert_eq!(anchors.len(), 50);
    let chunker = chunker(&config(ChunkerKind::Sieve, [2048, 4096, 16_384]), 7);
    let ends = ends(chunker.as_ref(), &bytes);
    let starts = [0].into_iter().chain(ends.iter().copied());
    let lengths: Vec<usize> = ends.iter().zip(starts).map(|(end, start)| end - start).collect();
    let expected = [
        2954, 5258, 2415, 2305, 4943, 6468, 2544, 2191, 3149, 3596, 2346, 4217, 2208, 4318, 5878, 3756, 2465, 3702, 823,
    ];
    assert_eq!(lengths, expected);
}

/// A reader may therefore end a chunk before it has read the largest length.
#[test]
fn a_boundary_before_the_end_does_not_depend_on_later_bytes() {
    for kind in ChunkerKind::ALL {
        let chunker = chunker(&config(*kind, LIMITS), 3);
        for seed in 0..8 {
            let bytes = random(seed, LIMITS[2] as usize);
            let whole = chunker.cut(&bytes, &mut Vec::new());
            for len in (1..bytes.len()).step_by(61) {
                let end = chunker.cut(&bytes[..len], &mut Vec::new());
                assert!(end == whole || (end == len && len < whole), "{kind}: {end} of {len}, {whole} of all");
            }
        }
    }
}
