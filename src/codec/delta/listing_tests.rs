//! Listings: round trips, sizes and hostile payloads.

use proptest::prelude::*;

use super::listing::encode_listing;
use super::{decode, decode_tagged};
use crate::codec::Scratch;
use crate::error::Error;
use crate::wire::put_varint;

/// A node in the order of its keys: name, mode, times, size, inode, device, content, and a key that no version has.
#[derive(Debug, Clone, Default)]
struct Sample {
    name: Vec<u8>,
    mode: u16,
    mtime: (i64, u32),
    atime: Option<(i64, u32)>,
    ctime: Option<(i64, u32)>,
    inode: u64,
    device: u64,
    content: Option<[u8; 32]>,
    later: Option<String>,
}

impl Sample {
    fn put(&self, out: &mut Vec<u8>) {
        let optional = [self.atime.is_some(), self.ctime.is_some(), self.inode != 0, self.device != 0];
        let count = 4 + optional.into_iter().filter(|is| *is).count() as u64;
        let count = count + u64::from(self.content.is_some()) + u64::from(self.later.is_some());
        let mut map = minicbor::Encoder::new(Vec::new());
        let time = |map: &mut minicbor::Encoder<Vec<u8>>, key: u8, time: (i64, u32)| {
            map.u8(key).unwrap().array(2).unwrap().i64(time.0).unwrap().u32(time.1).unwrap();
        };
        map.map(count).unwrap().u8(0).unwrap().bytes(&self.name).unwrap();
        map.u8(1).unwrap().u8(0).unwrap().u8(2).unwrap().u16(self.mode).unwrap();
        time(&mut map, 7, self.mtime);
        self.atime.into_iter().for_each(|atime| time(&mut map, 8, atime));
        self.ctime.into_iter().for_each(|ctime| time(&mut map, 9, ctime));
        for (key, number) in [(11u8, self.inode), (12, self.device)] {
            if number != 0 {
                map.u8(key).unwrap().u64(number).unwrap();
            }
        }
        if let Some(content) = self.content {
            map.u8(18).unwrap().array(3).unwrap().u8(0).unwrap().bytes(&content).unwrap().u8(9).unwrap();
        }
        if let Some(later) = &self.later {
            map.u8(99).unwrap().map(1).unwrap().u8(1).unwrap().str(later).unwrap();
        }
        let map = map.into_writer();
        put_varint(out, map.len() as u64);
        out.extend(map);
    }
}

fn listing(nodes: &[Sample]) -> Vec<u8> {
    let mut out = Vec::new();
    nodes.iter().for_each(|node| node.put(&mut out));
    out
}

fn decoded(tagged: &[u8], base: &[u8], raw_len: usize) -> Result<Vec<u8>, Error> {
    let mut out = b"before".to_vec();
    decode_tagged(tagged, base, raw_len, &mut Scratch::default(), &mut out)?;
    Ok(out.split_off(6))
}

/// The payload, which must give the listing again.
fn check(raw: &[u8], base: &[u8]) -> Vec<u8> {
    let tagged = encode_listing(raw, base).expect("a listing");
    assert_eq!(decoded(&tagged, base, raw.len()).unwrap(), raw);
    for wrong in [raw.len() + 1, raw.len().wrapping_sub(1)] {
        assert!(decoded(&tagged, base, wrong).is_err());
    }
    tagged
}

fn times() -> impl Strategy<Value = (i64, u32)> {
    (prop_oneof![any::<i64>(), -3i64..3, 1_700_000_000i64..1_700_000_009], prop_oneof![0u32..5, 0u32..1_000_000_000])
}

fn samples() -> impl Strategy<Value = Sample> {
    let inode = prop_oneof![Just(0u64), 1_000u64..1_100, any::<u64>()];
    (
        prop::collection::vec(1u8..5, 1..4),
        0u16..3,
        times(),
        prop::option::of(times()),
        prop::option::of(times()),
        (inode, prop_oneof![Just(0u64), Just(65_025), any::<u64>()]),
        prop::option::of((0u8..2).prop_map(|byte| [byte; 32])),
        prop::option::weighted(0.1, "[a-z]{0,30}"),
    )
        .prop_map(|(name, mode, mtime, atime, ctime, (inode, device), content, later)| Sample {
            name,
            mode,
            mtime,
            atime,
            ctime,
            inode,
            device,
            content,
            later,
        })
}

fn ordered(mut nodes: Vec<Sample>) -> Vec<Sample> {
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes.dedup_by(|one, other| one.name == other.name);
    nodes
}

proptest! {
    #[test]
    fn any_listing_round_trips_against_any_other(
        raw in prop::collection::vec(samples(), 0..40), base in prop::collection::vec(samples(), 0..40),
    ) {
        let (raw, base) = (listing(&ordered(raw)), listing(&ordered(base)));
        check(&raw, &base);
        prop_assert!(check(&raw, &raw).len() < 16);
    }

    #[test]
    fn renewed_listings_round_trip(
        nodes in prop::collection::vec(samples(), 1..60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), samples()), 0..60),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let base = ordered(nodes);
        let mut raw = base.clone();
        for (at, change) in changes {
            let node = &mut raw[at.index(base.len())];
            *node = Sample { name: node.name.clone(), ..change };
        }
        for at in gone {
            if raw.len() > 1 {
                raw.remove(at.index(raw.len()));
            }
        }
        check(&listing(&raw), &listing(&base));
    }

    #[test]
    fn what_is_no_listing_is_not_encoded_or_round_trips(
        raw in prop::collection::vec(any::<u8>(), 0..200), base in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Some(tagged) = encode_listing(&raw, &base) {
            prop_assert_eq!(decoded(&tagged, &base, raw.len()).unwrap(), raw);
        }
    }

    #[test]
    fn hostile_payloads_are_errors_or_bytes(
        payload in prop::collection::vec(any::<u8>(), 0..60), nodes in prop::collection::vec(samples(), 0..9),
        raw_len in 0usize..2000, at: prop::sample::Index, to: u8,
    ) {
        let base = listing(&ordered(nodes));
        let mut hostile = vec![5, 10];
        hostile.extend(&payload);
        let mut changed = encode_listing(&base, &base).unwrap();
        let at = at.index(changed.len());
        changed[at] = to;
        for tagged in [hostile, changed] {
            if let Ok(bytes) = decoded(&tagged, &base, raw_len) {
                prop_assert_eq!(bytes.len(), raw_len);
            }
        }
    }

    #[test]
    fn a_changed_payload_or_base_is_an_error_or_other_bytes(
        nodes in prop::collection::vec(samples(), 1..20), news in prop::collection::vec(samples(), 1..20),
        at: prop::sample::Index, to: u8, in_base: bool,
    ) {
        let mut base = listing(&ordered(nodes));
        let raw = listing(&ordered(news));
        let mut tagged = encode_listing(&raw, &base).unwrap();
        let bytes = if in_base { &mut base } else { &mut tagged };
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(bytes) = decoded(&tagged, &base, raw.len()) {
            prop_assert_eq!(bytes.len(), raw.len());
        }
        tagged.truncate(at.min(tagged.len() - 1));
        prop_assert!(decoded(&tagged, &base, raw.len()).is_err());
    }
}

fn file(number: u64, unpacked: u64) -> Sample {
    Sample {
        name: format!("file-{number:03}").into_bytes(),
        mode: 0o644,
        mtime: (1_700_000_000 + unpacked as i64, 0),
        ctime: Some((1_800_000_000 + unpacked as i64, 500_000 + 40_000 * number as u32)),
        inode: 5_000_000 * unpacked + 3 * number,
        device: 65_025,
        content: Some([number as u8; 32]),
        ..Sample::default()
    }
}

#[test]
fn a_directory_that_was_unpacked_again_takes_a_few_bytes() {
    let unpacked = |time| (0..200).map(|number| file(number, time)).collect::<Vec<_>>();
    let (base, raw) = (listing(&unpacked(1)), listing(&unpacked(2)));
    let tagged = check(&raw, &base);
    assert!(raw.len() > 15_000 && tagged.len() < 40, "{} of {}", tagged.len(), raw.len());
}

#[test]
fn a_changed_file_takes_its_new_fields() {
    let base: Vec<Sample> = (0..200).map(|number| file(number, 1)).collect();
    let mut raw = base.clone();
    raw[77] = Sample { mtime: (1_900_000_000, 77), ctime: Some((1_900_000_000, 77)), ..raw[77].clone() };
    raw[77].content = Some([9; 32]);
    let tagged = check(&listing(&raw), &listing(&base));
    assert!(tagged.len() < 80, "{}", tagged.len());
    // So does a file that is gone, and the one in its place.
    raw.remove(20);
    raw.insert(20, Sample { name: b"file-020x".to_vec(), ..file(20, 3) });
    let more = check(&listing(&raw), &listing(&base));
    assert!(more.len() < tagged.len() + 100, "{}", more.len());
}

#[test]
fn what_only_a_newer_version_knows_is_unsupported() {
    let base = listing(&[file(1, 1)]);
    let unknown = |payload: &[u8]| {
        let error = decode(5u8, payload, &base, base.len(), &mut Scratch::default(), &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    };
    unknown(&[10, 1, 5, 0, 0, 0, 0, 0]);
    unknown(&[10, 1, 3, 1, 4, 0, 0, 0, 0]);
}

#[test]
fn steps_of_no_nodes_end_and_many_nodes_are_refused() {
    let base = listing(&[file(1, 1)]);
    let decode = |payload: &[u8], raw_len| {
        decode(5u8, payload, &base, raw_len, &mut Scratch::default(), &mut Vec::new())
            .map_err(|error| error.to_string())
    };
    assert!(decode(&[10, 0, 0, 0, 0, 0, 0], 0).is_ok());
    assert!(decode(&[10, 1, 1, 0, 0, 0, 0, 0], base.len()).is_ok());
    // Two nodes of a base that has one, and as many as there are numbers.
    assert!(decode(&[10, 1, 9, 0, 0, 0, 0, 0], base.len()).unwrap_err().contains("a node of the base"));
    let endless = [10, 10, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0];
    assert!(decode(&endless, base.len()).is_err());
    // New nodes without bytes end with the literals.
    let mut literals = vec![10, 2, 0xfa, 0x7f, 0, 0, 0, 0, 0];
    literals.resize(5000, 0);
    assert!(decode(&literals, 16).unwrap_err().contains("a listing of 16 bytes"));
}
