//! The parts in which large objects are put.

/// Bytes of a part, at least. It decides the ETags of large objects.
pub const PART_BYTES: u64 = 16 << 20;
/// Parts of an object, at most.
const PARTS_MAX: u64 = 10_000;

/// The ranges of the parts of an object of `size` bytes.
pub fn parts_of(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let part = PART_BYTES.max(size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20));
    (0..size.div_ceil(part)).map(move |number| (number * part, ((number + 1) * part).min(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_enough_and_cover_an_object_once() {
        for size in [PART_BYTES + 1, 3 * PART_BYTES, 10_000 * PART_BYTES + 1, 5 << 40] {
            let parts: Vec<_> = parts_of(size).collect();
            assert!(parts.len() as u64 <= PARTS_MAX, "{size}");
            assert_eq!((parts[0].0, parts[parts.len() - 1].1), (0, size));
            assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert!(parts[..parts.len() - 1].iter().all(|(from, to)| to - from >= PART_BYTES && to - from <= 5 << 30));
        }
    }
}
