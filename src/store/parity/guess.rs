//! A short blob with one wrong byte: its name is the hash of the right bytes, so trying every other byte finds it.
//!
//! This is for required marks of earlier programs, which have no parity: while one cannot be read, nobody writes.

use std::collections::BTreeSet;

use super::layout::ParityLayout;
use super::rebuilt::RebuiltContainer;
use super::share::ParityShare;
use crate::error::Result;
use crate::store::{BlobName, Store};

/// Longest blob that is tried, bytes: a quarter of a million hashes.
const BYTES_MAX: u64 = 1 << 10;

/// `bytes` with another value of one byte, whose hash is `id`. `None` if there is none.
fn with_one_byte(mut bytes: Vec<u8>, id: &[u8; 32]) -> Option<Vec<u8>> {
    for at in 0..bytes.len() {
        for difference in 1..=u8::MAX {
            *bytes.get_mut(at)? ^= difference;
            if blake3::hash(&bytes).as_bytes() == id {
                return Some(bytes);
            }
            *bytes.get_mut(at)? ^= difference;
        }
    }
    None
}

/// The right bytes of the blob `name`, if the store has them but for one. `None` if it has not, or if it is longer than
/// a mark.
///
/// # Errors
/// Errors of the store.
pub(super) fn guessed(store: &dyn Store, name: &BlobName) -> Result<Option<RebuiltContainer>> {
    let Some(id) = name.hash() else { return Ok(None) };
    let right = with_one_byte(store.get(name, BYTES_MAX)?, &id);
    let found = right.and_then(|right| {
        let layout = ParityLayout::new(right.len() as u64, ParityShare::WHOLE)?;
        let all: BTreeSet<usize> = (0..layout.data_shards).collect();
        Some(RebuiltContainer::new(&layout, &all, &right))
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_is_wrong_alone_is_found_and_two_are_not() {
        let right: Vec<u8> = (0..40u8).map(|at| at.wrapping_mul(7)).collect();
        let id = *blake3::hash(&right).as_bytes();
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] = !wrong[at];
            assert_eq!(with_one_byte(wrong.clone(), &id).as_ref(), Some(&right), "{at}");
            wrong[(at + 1) % right.len()] ^= 1;
            assert_eq!(with_one_byte(wrong, &id), None, "{at}");
        }
        assert_eq!(with_one_byte(Vec::new(), &id), None);
    }
}
