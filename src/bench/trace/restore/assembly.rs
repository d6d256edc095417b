//! Forward assembly area (Lillibridge, Eshghi and Bhagwat, FAST 2013, section 6): memory for the next area of the
//! stream instead of whole containers.
//!
//! 1. As many of the next chunks are taken as fit into the area, one at least.
//! 2. Each container they lie in is read once, into a buffer of its own, and gives all its chunks of the area.
//! 3. The area is written out, and the next one begins.
//!
//! Read here: so that caches of one memory are compared, the buffer counts, and the area has the other containers'
//! bytes. What is in the buffer at the end of a area is not used for the next one.

use std::collections::HashSet;

use super::{CacheSize, RecipeChunk};

pub(super) fn containers_read(recipe: &[RecipeChunk], size: CacheSize) -> u64 {
    let area_bytes = (size.containers.saturating_sub(1) as u64).saturating_mul(size.container_bytes);
    let (mut read, mut filled_bytes) = (0, 0);
    let mut area = HashSet::new();
    for chunk in recipe {
        let bytes = u64::from(chunk.bytes);
        if filled_bytes + bytes > area_bytes {
            area.clear();
            filled_bytes = 0;
        }
        filled_bytes += bytes;
        read += u64::from(area.insert(chunk.container));
    }
    read
}
