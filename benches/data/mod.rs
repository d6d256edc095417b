//! Generated data for benches, similar to data of backups and the same in every run.

/// Words of the text.
const VOCABULARY: usize = 2048;
const SYLLABLES: [&str; 16] =
    ["con", "der", "ex", "fi", "get", "in", "ject", "ker", "map", "ob", "put", "re", "set", "to", "val", "wri"];

/// The next number of a linear congruential generator. Only its high bits are random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *state
}

/// `len` bytes of a kind: `"text"` (lines of words, some frequent and most rare), `"floats"` (FP32 values around zero),
/// or noise for any other name.
pub fn generated(kind: &str, len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes = Vec::with_capacity(len + 64);
    while bytes.len() < len {
        match kind {
            "text" => append_word(&mut state, &mut bytes),
            "floats" => {
                let sum: f32 = (0..4).map(|_| (next(&mut state) >> 40) as f32 / 16_777_216.0 - 0.5).sum();
                bytes.extend_from_slice(&(sum * 0.05).to_le_bytes());
            }
            _ => bytes.extend_from_slice(&(next(&mut state) >> 32).to_le_bytes()[..4]),
        }
    }
    bytes.truncate(len);
    bytes
}

/// The n-th word is about n times rarer than the first.
fn append_word(state: &mut u64, bytes: &mut Vec<u8>) {
    let limit = 1 + (next(state) >> 33) as usize % VOCABULARY;
    let mut word = (next(state) >> 33) as usize % limit;
    while word > 0 {
        bytes.extend_from_slice(SYLLABLES[word % SYLLABLES.len()].as_bytes());
        word /= SYLLABLES.len();
    }
    let end = if next(state) >> 61 == 0 { "\n    " } else { " " };
    bytes.extend_from_slice(end.as_bytes());
}
