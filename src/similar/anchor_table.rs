//! A hash table of a chunk's anchors.

use crate::kernel::sieve::Anchor;

/// See the module.
#[derive(Debug)]
pub struct AnchorTable {
    /// Hash and position plus one of each anchor, by open addressing; (0, 0) for an empty slot.
    slots: Box<[(u32, u32)]>,
    shift: u32,
}

impl AnchorTable {
    /// Builds the table of `anchors`. Of equal hashes the first is kept.
    pub fn new(anchors: &[Anchor]) -> Self {
        let bits = (anchors.len() * 2).max(2).next_power_of_two().trailing_zeros();
        let mut slots = vec![(0, 0); 1 << bits].into_boxed_slice();
        let (shift, mask) = (32 - bits, slots.len() - 1);
        for anchor in anchors {
            let hash = anchor.hash as u32;
            let mut at = (hash >> shift) as usize;
            while let Some(slot) = slots.get_mut(at) {
                if slot.1 == 0 {
                    *slot = (hash, anchor.position + 1);
                    break;
                }
                if slot.0 == hash {
                    break;
                }
                at = (at + 1) & mask;
            }
        }
        AnchorTable { slots, shift }
    }

    /// Position of the anchor with this hash.
    pub fn find(&self, hash: u32) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        while let Some((found, position)) = self.slots.get(at) {
            if *position == 0 {
                return None;
            }
            if *found == hash {
                return Some(position - 1);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Memory of the table, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_hashes_is_found_and_no_other() {
        let hashes = [7, 9, 7, 0, u64::MAX, 9 << 32 | 1, 0x8000_0000, 0x8000_0001];
        let anchors: Vec<Anchor> =
            hashes.iter().zip(0..).map(|(hash, position)| Anchor { position, hash: *hash }).collect();
        let table = AnchorTable::new(&anchors);
        for (hash, position) in [(7, 0), (9, 1), (0, 3), (u32::MAX, 4), (1, 5), (0x8000_0000, 6), (0x8000_0001, 7)] {
            assert_eq!(table.find(hash), Some(position), "{hash:x}");
        }
        assert_eq!((table.find(2), table.find(0x8000_0002)), (None, None));
        assert_eq!(AnchorTable::new(&[]).find(0), None);
    }
}
