//! Streams of many kinds come back bit for bit.

use std::io::Read;

use proptest::prelude::*;

use super::framer::Framer;
use super::made_streams_tests::{Habits, Random, deflate, gzip, text};
use super::predictor::{CompressorFamily, Settings};
use super::{OpenLimits, OpenedSummary, Rebuilder, open_stream};

/// Opens and rebuilds `stream`; gives the summary and the plain content.
fn round_trip(stream: &[u8]) -> (OpenedSummary, Vec<u8>) {
    let (mut plain, mut corrections) = (Vec::new(), Vec::new());
    let summary = open_stream(stream, &OpenLimits::default(), &mut plain, &mut corrections).expect("no faults");
    assert_eq!(summary.plain_len, plain.len() as u64);
    assert_eq!(summary.corrections_len, corrections.len() as u64);
    let mut back = Vec::new();
    Rebuilder::new(&plain[..], &corrections[..]).read_to_end(&mut back).expect("the stream comes back");
    assert!(back == stream, "the rebuilt stream differs");
    (summary, plain)
}

fn all_settings() -> Vec<Settings> {
    let mut all = Vec::new();
    for family in CompressorFamily::ALL {
        for level in 1..=9 {
            all.push(Settings { family, level, ..Settings::default() });
        }
    }
    all
}

#[test]
fn streams_of_known_compressors_open_whole() {
    let plain = text(5, 200_000);
    for settings in all_settings() {
        let stream = gzip(&plain, &Habits::of(settings));
        let (summary, opened) = round_trip(&stream);
        assert_eq!(summary.members, 1, "{settings}");
        assert_eq!(summary.opened_bytes, stream.len() as u64 - 23, "{settings}");
        assert!(summary.corrections_len < 60, "{settings}: {} bytes of corrections", summary.corrections_len);
        assert_eq!(opened[15..opened.len() - 8], plain, "{settings}");
    }
}

#[test]
fn odd_tokens_and_blocks_are_corrected() {
    let plain = text(6, 300_000);
    for settings in all_settings() {
        let settings = Settings { block_tokens: 5000, ..settings };
        let habits = Habits { odd_tokens: 300, odd_blocks: 4, seed: 9, ..Habits::of(settings) };
        let (summary, _) = round_trip(&gzip(&plain, &habits));
        assert_eq!(summary.members, 1, "{settings}");
    }
}

#[test]
fn matches_of_the_last_bytes_of_a_stored_block_come_back() {
    let mut plain = text(5, 120_000);
    let original = plain.clone();
    for settings in all_settings() {
        for len in [65_535u16, 65_534, 65_533, 65_532, 40_000, 1000] {
            plain.copy_from_slice(&original);
            let end = usize::from(len);
            for (byte, value) in plain[end - 12..end + 12].iter_mut().zip(200..) {
                *byte = value;
            }
            // What matches from each of the last bytes of the block on.
            for at in 1..6 {
                plain.copy_within(end - at..end - at + 12, end + 2000 + 30 * at);
            }
            let stream = gzip(&plain, &Habits { stored_start: len, ..Habits::of(settings) });
            assert_eq!(round_trip(&stream).0.members, 1, "{settings}, {len}");
        }
    }
}

#[test]
fn what_nothing_predicts_stays_closed() {
    let habits = Habits { odd_tokens: 3, ..Habits::of(Settings::default()) };
    let stream = gzip(&text(7, 100_000), &habits);
    let (summary, plain) = round_trip(&stream);
    assert_eq!((summary.members, summary.closed_members), (0, 1));
    assert_eq!(plain, stream);
    assert!(summary.corrections_len < 8);
}

#[test]
fn a_member_that_turns_bad_is_closed_from_there() {
    let settings = Settings { block_tokens: 4000, ..Settings::default() };
    let mut random = Random(3);
    let noise: Vec<u8> = (0..600_000).map(|_| b'a' + random.below(7) as u8).collect();
    let good = Habits::of(settings);
    let bad = Habits { odd_tokens: 2, ..good };
    // Two streams both: the first one's last block is not marked as such.
    let mut stream = gzip(&text(8, 1_500_000), &good);
    let whole = round_trip(&stream).0;
    stream.extend(gzip(&noise, &bad));
    let both = round_trip(&stream).0;
    assert_eq!(both.opened_bytes, whole.opened_bytes);
    assert_eq!(both.closed_members, 1);
}

#[test]
fn members_follow_one_another_between_other_bytes() {
    let mut stream = b"before".to_vec();
    for seed in 0..5 {
        stream.extend(gzip(&text(seed, 3000 + 1000 * seed as usize), &Habits::of(Settings::default())));
        stream.extend_from_slice(b"PK\x03\x04 is no header, nor is \x1F\x8B\x08, or IDAT");
    }
    let (summary, _) = round_trip(&stream);
    assert_eq!(summary.members, 5);
}

#[test]
fn members_of_zip_and_objects_of_zlib_open() {
    let plain = text(4, 20_000);
    let content = deflate(&plain, &Habits::of(Settings::default()));
    let mut zip = b"PK\x03\x04\x14\0\x08\0\x08\0".to_vec();
    zip.extend_from_slice(&[0; 16]);
    zip.extend_from_slice(&[3, 0, 0, 0]);
    zip.extend_from_slice(b"a.b");
    zip.extend_from_slice(&content);
    zip.extend_from_slice(b"PK\x07\x08 and so on");
    assert_eq!(round_trip(&zip).0.members, 1);
    let mut object = vec![0x78, 0x9C];
    object.extend_from_slice(&content);
    object.extend_from_slice(&[0; 4]);
    assert_eq!(round_trip(&object).0.members, 1);
    object.insert(0, b' ');
    assert_eq!(round_trip(&object).0.members, 0);
}

#[test]
fn images_in_chunks_open() {
    let mut content = vec![0x78, 0x9C];
    content.extend(deflate(&text(4, 90_000), &Habits::of(Settings::default())));
    content.extend_from_slice(&[0; 4]);
    for chunk in [3, 8192, 1 << 20] {
        let mut stream = b"\x89PNG\r\n\x1A\n\0\0\0\x01XXXX\0\0\0\0\0".to_vec();
        let lens = content.chunks(chunk).map(|part| part.len() as u32).collect();
        let mut framer = Framer::default();
        framer.start(lens).expect("it is empty");
        framer.push(&content, &mut stream);
        stream.extend_from_slice(b"\0\0\0\0IEND....");
        let (summary, plain) = round_trip(&stream);
        assert_eq!((summary.members, plain.len()), (1, 90_000 + 6 + 21 + 12));
        // A wrong checksum keeps its chunk closed.
        let at = stream.len() - 13;
        stream[at] ^= 1;
        let members = round_trip(&stream).0.members;
        assert!(chunk < content.len() || members == 0);
    }
}

#[test]
fn small_and_empty_streams_come_back() {
    for len in [0, 1, 2, 3, 4, 10, 100] {
        round_trip(&text(2, len));
        round_trip(&gzip(&text(2, len), &Habits::of(Settings::default())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_habits_come_back(
        seed in 1u64..1 << 40, len in 0usize..40_000, which in 0usize..45, odd_tokens in 0u64..200,
        odd_blocks in 0u64..4, block_tokens in 1u32..5000, cut in 0usize..1 << 20, flip in any::<bool>(),
        stored in 0u16..40_000,
    ) {
        let settings = Settings { block_tokens, ..all_settings()[which] };
        let stored_start = stored.min(len as u16);
        let habits = Habits { settings, odd_tokens, odd_blocks, stored_start, seed };
        let mut stream = gzip(&text(seed, len), &habits);
        round_trip(&stream);
        let at = cut % stream.len();
        if flip {
            stream[at] ^= 1 << (cut % 7);
        } else {
            stream.truncate(at);
        }
        round_trip(&stream);
    }
}
