//! Tests of sealed blobs.

use proptest::prelude::*;

use super::*;
use crate::crypto::SecretKey;

fn key(suite: CipherSuite, len: u64) -> BlobKey {
    let master = MasterKey { generation: 1, key: SecretKey::new([3; 32]) };
    BlobKey::new(&master, SealedHeader { suite, generation: 1, len, salt: [4; 32] }, "containers").unwrap()
}

fn text(len: usize) -> Vec<u8> {
    let mut text = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut text);
    text
}

#[test]
fn lengths_of_sealed_blobs_invert() {
    for len in (0..70_000).chain([1 << 25, (1 << 40) + 7]) {
        assert_eq!(unsealed_len(sealed_len(len)), len);
    }
    assert_eq!([unsealed_len(0), unsealed_len(70), unsealed_len(80)], [0, 0, 0]);
    let _ = (sealed_len(u64::MAX), unsealed_len(u64::MAX));
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_small_blob_is_found() {
    for suite in [CipherSuite::Aes256Gcm, CipherSuite::ChaCha20Poly1305] {
        let (key, whole) = (key(suite, 300), text(300));
        let stored = key.seal(&[&whole]).unwrap();
        let open = |stored: &[u8]| {
            let header = SealedHeader::parse("x", stored)?;
            let master = MasterKey { generation: 1, key: SecretKey::new([3; 32]) };
            BlobKey::new(&master, header, "containers")?.open("x", stored)
        };
        assert!(open(&stored).unwrap() == whole);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..stored.len() {
            assert!(open(&stored[..len]).is_err(), "{len} bytes");
        }
        assert!(open(&[&stored[..], b"x"].concat()).is_err());
    }
}

#[test]
fn blocks_cannot_change_places() {
    let key = key(CipherSuite::Aes256Gcm, 3 * BLOCK_BYTES as u64);
    let whole = text(3 * BLOCK_BYTES);
    let mut stored = key.seal(&[&whole]).unwrap();
    let (first, second) = (HEADER_BYTES, HEADER_BYTES + STORED_BLOCK_BYTES);
    let block = stored[first..second].to_vec();
    stored.copy_within(second..second + STORED_BLOCK_BYTES, first);
    assert!(matches!(key.open("x", &stored), Err(Error::Corrupt { offset: 64, .. })));
    stored[second..second + STORED_BLOCK_BYTES].copy_from_slice(&block);
    assert!(key.open("x", &stored).is_err());
}

#[test]
fn the_example_of_the_format_is_right() {
    let sealed = key(CipherSuite::Aes256Gcm, 12).seal(&[b"hello, ", b"world"]).unwrap();
    assert_eq!(crate::types::hex(&sealed), EXAMPLE);
}

/// The example in docs/FORMAT.md; `tests/independent/read_encrypted.py` opens it, too.
const EXAMPLE: &str = "464852445345414c01000100010000000c00000000000000\
    04040404040404040404040404040404040404040404040404040404040404\
    04030ce770d39837b4bd2463ae7fbecb1d1cc65df8b8da6f6b6393e2d1f5334e86e36bb976";

proptest! {
    #[test]
    fn any_range_of_any_length_reads_as_sealed(
        len in 0usize..60_000,
        split in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let (key, whole) = (key(CipherSuite::Aes256Gcm, len as u64), text(len));
        let parts = whole.split_at(split.index(len + 1));
        let stored = key.seal(&[parts.0, &[], parts.1]).unwrap();
        prop_assert_eq!(stored.len() as u64, sealed_len(len as u64));
        prop_assert!(key.open("x", &stored).unwrap() == whole);
        let mut streamed = Vec::new();
        SealedReader::new(&key, &mut whole.as_slice()).read_to_end(&mut streamed).unwrap();
        prop_assert!(streamed == stored);
        let (from, to) = (from.index(len + 1), to.index(len + 1));
        let (from, to) = (from.min(to), from.max(to));
        let read = |at: u64, len: usize| Ok(stored[at as usize..at as usize + len].to_vec());
        prop_assert!(key.open_range("x", from as u64, to - from, read).unwrap() == whole[from..to]);
        prop_assert!(key.open_range("x", from as u64, len - from + 1, read).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic(bytes: Vec<u8>) {
        let _ = SealedHeader::parse("x", &bytes);
        for len in [0, 40, bytes.len() as u64, u64::MAX] {
            prop_assert!(key(CipherSuite::Aes256Gcm, len).open("x", &bytes).is_err());
        }
    }
}
