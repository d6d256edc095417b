//! A quick look whether a chunk of unknown format may hold floats, before it is classified.
//!
//! In floats of two, four or eight bytes, the byte with the exponent has few values and a byte of the mantissa many.
//! In text every byte has few values, in programs and compressed data none. Groups of four bytes hold whole floats of
//! two and four bytes, those of eight bytes need groups of eight.

/// Positions that are looked at.
const SAMPLES: usize = 64;
/// The byte with the exponent has at most this many values among these positions, ...
const FEW: u32 = 34;
/// ... and one of the mantissa at least this many.
const MANY: u32 = 44;

/// Whether `chunk` may hold floats. Depends on its bytes alone.
pub fn may_be_floats(chunk: &[u8]) -> bool {
    are_like_floats(chunk.as_chunks::<4>().0) || are_like_floats(chunk.as_chunks::<8>().0)
}

fn are_like_floats<const WIDTH: usize>(groups: &[[u8; WIDTH]]) -> bool {
    if groups.len() < SAMPLES {
        return false;
    }
    let mut seen = [[0u64; 4]; WIDTH];
    for number in 0..SAMPLES {
        let Some(group) = groups.get(groups.len() * number / SAMPLES) else { continue };
        for (seen, byte) in seen.iter_mut().zip(group) {
            seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
    }
    let counts = seen.map(|seen| seen.iter().map(|part| part.count_ones()).sum::<u32>());
    counts.iter().any(|count| *count <= FEW) && counts.iter().any(|count| *count >= MANY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise() -> impl Iterator<Item = u64> {
        let mut state = 7u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 32
        })
    }

    #[test]
    fn floats_at_any_phase_may_be_floats_and_text_and_noise_are_not() {
        let mut noise = noise();
        let weights: Vec<f32> =
            (0..20_000).map(|_| (0..4).map(|_| (noise.next().unwrap() as f32 / 4e9 - 0.5) * 0.04).sum()).collect();
        let wide: Vec<u8> = weights.iter().flat_map(|value| value.to_le_bytes()).collect();
        let narrow: Vec<u8> = wide.as_chunks::<4>().0.iter().flat_map(|value| [value[2], value[3]]).collect();
        let low = |value: &f32| f64::from(*value).to_bits() | u64::from(value.to_bits().wrapping_mul(0x9e37_79b9) >> 3);
        let double: Vec<u8> = weights.iter().flat_map(|value| low(value).to_le_bytes()).collect();
        for phase in 0..8 {
            assert!(may_be_floats(&wide[phase..]) && may_be_floats(&narrow[phase..]), "{phase}");
            assert!(may_be_floats(&double[phase..]), "{phase}");
        }
        let bytes: Vec<u8> = (0..20_000).map(|_| noise.next().unwrap() as u8).collect();
        let text: Vec<u8> = bytes.iter().map(|byte| b"etaoin shrdlu.\n,ETA"[*byte as usize % 19]).collect();
        assert!(!may_be_floats(&bytes) && !may_be_floats(&text) && !may_be_floats(&[]) && !may_be_floats(&[0; 9000]));
    }
}
