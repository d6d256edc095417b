//! The payloads of the codecs kept for comparison, frozen like those in `golden`: what an LZ4 encoder makes of longer
//! input is its own business, so blocks with matches are only decoded.

use fhrd::codec::{BitPlanes, ByteGroups, Codec, Lz4, Scratch, delta};
use fhrd::types::hex;

use crate::golden::{assert_bytes, unhex};

fn encoded(codec: &dyn Codec, raw: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    codec.encode(raw, 1, &mut Scratch::default(), &mut payload).unwrap();
    payload
}

fn assert_decodes(codec: &dyn Codec, payload: &str, raw: &[u8]) {
    let mut back = Vec::new();
    codec.decode(&unhex(payload), raw.len(), &mut Scratch::default(), &mut back).unwrap();
    assert_eq!(back, raw, "{}", codec.name());
}

/// Words (k, 3f), and a byte behind them.
fn words(count: u8) -> Vec<u8> {
    (0..count).flat_map(|low| [low, 0x3f]).chain([0x99]).collect()
}

#[test]
fn an_lz4_payload() {
    let raw: Vec<u8> = (0..11).collect();
    assert_bytes(&encoded(&Lz4, &raw), "b0 000102030405060708090a", "lz4, literals only");
    assert_decodes(&Lz4, "b0 000102030405060708090a", &raw);
    assert_decodes(&Lz4, "1f 3f 0100 0f 50 3f3f3f3f3f", &[0x3f; 40]);
    assert_bytes(&encoded(&Lz4, &[]), "00", "lz4, nothing");
    assert_decodes(&Lz4, "00", &[]);
}

#[test]
fn a_bg4_lz4_payload() {
    let raw: Vec<u8> = (0..9).collect();
    assert_bytes(&encoded(&ByteGroups, &raw), "90 0004 0105 0206 0307 08", "two words and a byte");
    assert_decodes(&ByteGroups, "90 0004 0105 0206 0307 08", &raw);
    // Ten words (7, 7, 7, 3f): thirty times 7, ten times 3f.
    assert_decodes(&ByteGroups, "1f 07 0100 0a 10 3f 0100 50 3f3f3f3f3f", &[7, 7, 7, 0x3f].repeat(10));
}

#[test]
fn a_bit_planes_payload() {
    let raw: Vec<u8> = (0..9).collect();
    let mut payload = Vec::new();
    BitPlanes.encode_width(1, &raw, &mut Scratch::default(), &mut payload).unwrap();
    assert_bytes(&payload, "01 90 aaccf00000000000 08", "eight words of one byte and a byte");
    assert_decodes(&BitPlanes, "01 90 aaccf00000000000 08", &raw);
    assert_decodes(&BitPlanes, "02 f002 aaccf00000000000 ffffffffffff0000 99", &words(8));
    // Less than eight words are left as they are.
    payload.clear();
    BitPlanes.encode_width(2, &words(5), &mut Scratch::default(), &mut payload).unwrap();
    assert_bytes(&payload, "02 b0 003f 013f 023f 033f 043f 99", "five words of two bytes");
}

/// The listings of docs/FORMAT.md: two files that were unpacked again, and a new one.
fn listings() -> [Vec<u8>; 2] {
    let file = |name: u8, time: u8, inode: u8| {
        let names = [0x10, 0xa5, 0, 0x41, name, 1, 0, 2, 0x19, 1, 0xa4];
        [&names[..], &[7, 0x82, time, 6, 0x0b, inode]].concat()
    };
    let base = [file(b'a', 5, 7), file(b'b', 5, 8)].concat();
    let new = [0x0e, 0xa4, 0, 0x41, b'c', 1, 0, 2, 0x19, 1, 0xa4, 7, 0x82, 0, 0];
    [[file(b'a', 9, 20), file(b'b', 9, 21), new.to_vec()].concat(), base]
}

#[test]
fn a_listing_payload() {
    let [raw, base] = listings();
    let payload = delta::encode_listing(&raw, &base).unwrap();
    assert_eq!(hex(&payload), LISTING);
    let mut decoded = Vec::new();
    delta::decode_tagged(&payload, &base, raw.len(), &mut Scratch::default(), &mut decoded).unwrap();
    assert_eq!(decoded, raw);
    // A node that lost field 11, one that is the same, and one that is left out.
    let changed = [&[0x0e, 0xa4], &base[2..15], &base[17..]].concat();
    let payload = [5, 10, 2, 4, 1, 0, 0, 0, 0, 0, 1, 11, 0];
    decoded.clear();
    delta::decode_tagged(&payload, &base, changed.len(), &mut Scratch::default(), &mut decoded).unwrap();
    assert_eq!(decoded, changed);
    let payload = [5, 10, 2, 0, 1, 0, 0, 0, 0, 0];
    decoded.clear();
    delta::decode_tagged(&payload, &base, 17, &mut Scratch::default(), &mut decoded).unwrap();
    assert_eq!(decoded, base[17..]);
}

const LISTING: &str = "050a020b020801028ce88887430000000400021a1a000ea40041630100021901a407820000";
