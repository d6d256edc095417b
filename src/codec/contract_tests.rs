//! The contract of [`Codec`], tested on every codec in the table.

use super::*;
use crate::wire::READER_FEATURES_KNOWN;
use proptest::prelude::*;

fn decoded(codec: &dyn Codec, payload: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    codec.decode(payload, raw_len, &mut Scratch::default(), &mut out)?;
    assert_eq!(out[..6], *b"before");
    Ok(out.split_off(6))
}

fn encoded(codec: &dyn Codec, raw: &[u8], scratch: &mut Scratch) -> Vec<u8> {
    let mut out = b"before".to_vec();
    codec.encode(raw, 1, scratch, &mut out).unwrap();
    assert_eq!(out[..6], *b"before");
    out.split_off(6)
}

/// Random bytes, bytes with few values, or elements with few exponents.
fn inputs() -> impl Strategy<Value = Vec<u8>> {
    let element = |(low, high): (u16, u8)| [low.to_le_bytes().as_slice(), &[high & 3, 0x3f]].concat();
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..1200),
        prop::collection::vec(0u8..3, 0..3000),
        prop::collection::vec(any::<(u16, u8)>().prop_map(element), 0..700).prop_map(|elements| elements.concat()),
    ]
}

#[test]
fn ids_ascend_names_differ_and_reader_features_are_known() {
    assert!(CODECS.windows(2).all(|pair| pair[0].id() < pair[1].id()));
    for known in CODECS {
        assert_eq!(codec(known.id()).unwrap().name(), known.name());
        assert_eq!(CODECS.iter().filter(|other| other.name() == known.name()).count(), 1);
        assert_eq!(known.info().reader_features & !READER_FEATURES_KNOWN, 0);
    }
    let unknown = CODECS.last().unwrap().id() + 1;
    assert!(matches!(codec(unknown), Err(Error::Unsupported { .. })));
}

proptest! {
    #[test]
    fn any_bytes_round_trip_with_a_used_scratch(first in inputs(), raw in inputs()) {
        for codec in CODECS {
            let mut scratch = Scratch::default();
            encoded(*codec, &first, &mut scratch);
            let payload = encoded(*codec, &raw, &mut scratch);
            prop_assert_eq!(&payload, &encoded(*codec, &raw, &mut Scratch::default()), "{}", codec.name());
            prop_assert_eq!(&decoded(*codec, &payload, raw.len()).unwrap(), &raw, "{}", codec.name());
        }
    }

    /// Frame headers have the length and a checksum, so a payload of few, regular elements may decode to another
    /// length.
    #[test]
    fn a_wrong_length_or_a_missing_end_is_an_error_or_gives_that_length(raw in inputs(), by in 1usize..40) {
        for codec in CODECS {
            let payload = encoded(*codec, &raw, &mut Scratch::default());
            let cut = &payload[..payload.len() - by.min(payload.len())];
            let (longer, shorter) = (raw.len() + by, raw.len().saturating_sub(by));
            for (payload, len) in [(&payload[..], longer), (&payload, shorter), (cut, raw.len())] {
                if let Ok(bytes) = decoded(*codec, payload, len) {
                    prop_assert_eq!(bytes.len(), len, "{}", codec.name());
                }
            }
        }
    }

    #[test]
    fn a_wrong_length_or_a_missing_end_of_noise_is_an_error(seed: u32, by in 1usize..40) {
        let noise = |at: u32| (at ^ seed).wrapping_mul(2_654_435_761).rotate_right(15) as u8 | 0x80;
        let raw: Vec<u8> = (0..4096).map(noise).collect();
        for codec in CODECS {
            let payload = encoded(*codec, &raw, &mut Scratch::default());
            let cut = &payload[..payload.len() - by];
            for (payload, len) in [(&payload[..], raw.len() + by), (&payload, raw.len() - by), (cut, raw.len())] {
                prop_assert!(decoded(*codec, payload, len).is_err(), "{}: {by}", codec.name());
            }
        }
    }

    #[test]
    fn hostile_payloads_are_errors_or_bytes(payload: Vec<u8>, raw_len in 0usize..5000) {
        for codec in CODECS {
            if let Ok(bytes) = decoded(*codec, &payload, raw_len) {
                prop_assert_eq!(bytes.len(), raw_len, "{}", codec.name());
            }
        }
    }

    #[test]
    fn changed_payloads_are_errors_or_bytes(raw in inputs(), at: prop::sample::Index, to: u8) {
        for codec in CODECS {
            let mut payload = encoded(*codec, &raw, &mut Scratch::default());
            if !payload.is_empty() {
                let at = at.index(payload.len());
                payload[at] = to;
            }
            if let Ok(bytes) = decoded(*codec, &payload, raw.len()) {
                prop_assert_eq!(bytes.len(), raw.len(), "{}", codec.name());
            }
        }
    }
}
