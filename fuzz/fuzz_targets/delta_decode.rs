//! Decodes any bytes, and payloads with a wrong byte, as a delta to any base. What was decoded before changes nothing,
//! and neither does decoding in place.

#![no_main]

use fhrd::codec::{Scratch, delta, delta::Derivation};
use libfuzzer_sys::fuzz_target;

/// What is decoded as a delta.
struct Payload {
    id: u64,
    raw_len: usize,
    bytes: Vec<u8>,
}

impl Payload {
    /// The payload of a chunk that is the base but for random changes: of one in two to 256 groups of four bytes, by
    /// numbers of up to 32 bits.
    fn of_changes((derivation, mut state, share, size): (u8, u32, u8, u8), base: &[u8]) -> Self {
        let (derivation, mut raw) = (Derivation::ALL[usize::from(derivation) % Derivation::ALL.len()], base.to_vec());
        for group in raw.as_chunks_mut().0 {
            if next(&mut state).leading_zeros() > u32::from(share % 8) {
                let change = next(&mut state) >> (size % 32);
                *group = u32::from_le_bytes(*group).wrapping_add(change).to_le_bytes();
            }
        }
        let (mut writer, mut bytes) = (Scratch::of_writer(true), Vec::new());
        delta::encode(derivation, &raw, base, &mut writer, &mut bytes).expect("encodes any bytes");
        let payload = Payload { id: derivation.id().into(), raw_len: raw.len(), bytes };
        if payload.decode(base, &mut writer).is_none_or(|decoded| decoded != raw) {
            assert!(matches!(derivation, Derivation::Cast(_)), "{derivation:?} decodes its own payload");
        }
        payload
    }

    fn decode(&self, base: &[u8], scratch: &mut Scratch) -> Option<Vec<u8>> {
        let mut raw = Vec::new();
        delta::decode(self.id, &self.bytes, base, self.raw_len, scratch, &mut raw).ok().map(|()| raw)
    }

    /// Decodes with new buffers, with used ones, and in place.
    fn check(&self, base: &[u8], used: &mut Scratch) {
        let raw = self.decode(base, &mut Scratch::default());
        assert!(raw.as_ref().is_none_or(|raw| raw.len() == self.raw_len));
        assert_eq!(self.decode(base, used), raw);
        if base.len() == self.raw_len {
            let mut content = base.to_vec();
            match delta::apply(self.id, &self.bytes, &mut content, used) {
                Ok(true) => assert_eq!(raw, Some(content)),
                Ok(false) => assert_eq!(content, base),
                Err(_) => assert!(raw.is_none()),
            }
        }
    }
}

/// These bytes, then noise.
fn base_of(bytes: &[u8], noise: u16, mut state: u32) -> Vec<u8> {
    let noise = (0..noise % 0x4000).map(|_| next(&mut state).to_le_bytes()[3]);
    bytes.iter().copied().chain(noise).collect()
}

/// The next number of a linear congruential generator: the high bits are noise.
fn next(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
    *state
}

fuzz_target!(|input: (u16, u8, &[u8], (&[u8], u16, u32), [(u8, u32, u8, u8); 2], (u16, u8))| {
    let (raw_len, id, bytes, (base, noise, seed), changes, (wrong_at, wrong_by)) = input;
    let base = &base_of(base, noise, seed);
    let [earlier, mut made] = changes.map(|changes| Payload::of_changes(changes, base));
    let any = Payload { id: id.into(), raw_len: raw_len.into(), bytes: bytes.to_vec() };
    let mut used = Scratch::default();
    let _ = earlier.decode(base, &mut used);
    any.check(base, &mut used);
    let len = made.bytes.len();
    if let Some(byte) = made.bytes.get_mut(usize::from(wrong_at) % len.max(1)) {
        *byte ^= wrong_by;
    }
    made.check(base, &mut used);
});
