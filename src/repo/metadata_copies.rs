//! Metadata copies: a chunk of metadata as ranges of a similar one and literal bytes between them.
//!
//! Each position is compared with the base where the last range would go on, then with the first offset that has the
//! same eight bytes. Ranges are as long as they are equal.

use std::collections::HashMap;

use crate::kernel::compare::common_prefix_len;
use crate::repo::container::Operation;

/// Shortest range.
const RANGE_BYTES_MIN: usize = 8;
/// Longest base.
const BASE_BYTES_MAX: usize = 512 << 10;
/// What a range takes in the container index, bytes, with the add before it.
const RANGE_COST: usize = 4;
/// The share of a chunk that copies must save: one in this many bytes.
const SAVED_SHARE: usize = 2;

/// The operations that make `bytes` of base 0, and their literal bytes; `None` if they do not save half of `bytes`.
pub(super) fn copies(bytes: &[u8], base: &[u8]) -> Option<(Vec<Operation>, Vec<u8>)> {
    if base.len() > BASE_BYTES_MAX {
        return None;
    }
    let mut offsets: HashMap<&[u8], usize> = HashMap::with_capacity(base.len());
    for (at, window) in base.windows(RANGE_BYTES_MIN).enumerate() {
        offsets.entry(window).or_insert(at);
    }
    let (mut operations, mut literals) = (Vec::new(), Vec::new());
    // What follows the last range, in the chunk and in the base.
    let (mut start, mut behind, mut at) = (0, 0, 0);
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let equal_at = |offset: usize| common_prefix_len(rest, base.get(offset..).unwrap_or_default());
        let next = behind + at - start;
        let known = rest.get(..RANGE_BYTES_MIN).and_then(|window| offsets.get(window).copied());
        let found = [Some(next), known].into_iter().flatten().map(|offset| (offset, equal_at(offset)));
        let Some((offset, len)) = found.into_iter().find(|(_, len)| *len >= RANGE_BYTES_MIN) else {
            at += 1;
            continue;
        };
        push_literals(bytes.get(start..at).unwrap_or_default(), &mut operations, &mut literals);
        operations.push(Operation::Copy { base: 0, offset: offset as u32, len: len as u32 });
        (start, behind, at) = (at + len, offset + len, at + len);
    }
    push_literals(bytes.get(start..).unwrap_or_default(), &mut operations, &mut literals);
    let taken = literals.len() + operations.len() * RANGE_COST / 2;
    (taken * SAVED_SHARE <= bytes.len()).then_some((operations, literals))
}

fn push_literals(bytes: &[u8], operations: &mut Vec<Operation>, literals: &mut Vec<u8>) {
    if !bytes.is_empty() {
        operations.push(Operation::Add { len: bytes.len() as u32 });
        literals.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(operations: &[Operation], literals: &[u8], base: &[u8]) -> Vec<u8> {
        let (mut out, mut literals) = (Vec::new(), literals);
        for operation in operations {
            match *operation {
                Operation::Add { len } => out.extend_from_slice(literals.split_off(..len as usize).unwrap()),
                Operation::Copy { base: 0, offset, len } => {
                    out.extend_from_slice(&base[offset as usize..(offset + len) as usize]);
                }
                ref other => panic!("{other:?}"),
            }
        }
        assert!(literals.is_empty());
        out
    }

    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        bytes.take(len).collect()
    }

    #[test]
    fn a_record_of_the_next_step_copies_most_of_the_last_one() {
        let base = noise(6000, 1);
        let mut next = base.clone();
        next.iter_mut().step_by(200).for_each(|byte| *byte ^= 1);
        // Names of another length move what follows, and fingerprints are new.
        next.splice(40..42, *b"step-10");
        next.splice(1000..1032, noise(32, 2));
        let (operations, literals) = copies(&next, &base).unwrap();
        assert_eq!(made(&operations, &literals, &base), next);
        assert!(literals.len() < 150 && operations.len() < 75, "{} in {}", literals.len(), operations.len());
    }

    #[test]
    fn what_has_little_in_common_or_a_long_base_is_stored_whole() {
        let base = noise(6000, 1);
        assert!(copies(&noise(6000, 3), &base).is_none());
        assert!(copies(&[noise(3100, 4), base[..3000].to_vec()].concat(), &base).is_none());
        assert!(copies(&[noise(2900, 4), base[..3000].to_vec()].concat(), &base).is_some());
        assert!(copies(&base, &noise(BASE_BYTES_MAX + 1, 1)).is_none());
        assert!(copies(b"short", &[]).is_none() && copies(&base, b"short").is_none());
        let (operations, literals) = copies(&base, &[&base[..], &base].concat()).unwrap();
        assert!(operations.len() == 1 && literals.is_empty());
    }
}
