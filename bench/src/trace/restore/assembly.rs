//! Forward assembly area (Lillibridge, Eshghi and Bhagwat, FAST 2013, section 6): memory for the next part of the
//! stream instead of whole containers.
//!
//! 1. The area takes as many of the next chunks as fit, at least one.
//! 2. Each of their containers is read once, into a buffer, and provides all its chunks of the area.
//! 3. The area is written to the output, and the next one starts.
//!
//! Interpretation: caches are compared at equal memory. So the buffer counts as one container, and the area has the
//! bytes of the others. The content of the buffer at the end of an area is not used for the next one.

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
