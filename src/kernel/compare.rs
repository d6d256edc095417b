//! Comparison of bytes, eight at a time: the lowest bit of the XOR of two `u64` is in the first byte that differs.

/// Number of leading bytes that `a` and `b` share.
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let (lanes_a, lanes_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let mut len = 0;
    for (x, y) in lanes_a.iter().zip(lanes_b) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return len + (difference.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(x, y)| x == y).count()
}

/// Number of trailing bytes that `a` and `b` share.
pub fn common_suffix_len(a: &[u8], b: &[u8]) -> usize {
    let (lanes_a, lanes_b) = (a.as_rchunks::<8>().1, b.as_rchunks::<8>().1);
    let mut len = 0;
    for (x, y) in lanes_a.iter().rev().zip(lanes_b.iter().rev()) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return len + (difference.leading_zeros() / 8) as usize;
        }
        len += 8;
    }
    let (rest_a, rest_b) = (&a[..a.len() - len], &b[..b.len() - len]);
    len + rest_a.iter().rev().zip(rest_b.iter().rev()).take_while(|(x, y)| x == y).count()
}

/// Whether every byte is zero; true for an empty slice.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (blocks, tail) = bytes.as_chunks::<64>();
    blocks.iter().all(|block| block.iter().fold(0, |all, byte| all | byte) == 0) && tail.iter().all(|byte| *byte == 0)
}

/// Whether all bytes are the same; true for an empty slice.
pub fn is_constant(bytes: &[u8]) -> bool {
    bytes.get(1..).is_none_or(|rest| common_prefix_len(rest, bytes) == rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix_scalar(a: &[u8], b: &[u8]) -> usize {
        a.iter().zip(b).take_while(|(x, y)| x == y).count()
    }

    fn suffix_scalar(a: &[u8], b: &[u8]) -> usize {
        a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count()
    }

    #[test]
    fn every_length_and_position_agrees_with_the_scalar_reference() {
        for len in 0..40usize {
            let a: Vec<u8> = (0..len).map(|i| i as u8).collect();
            for other in len.saturating_sub(9)..len + 9 {
                let b: Vec<u8> = (0..other).map(|i| i as u8).collect();
                let c: Vec<u8> = (0..other).map(|i| (i + len).wrapping_sub(other) as u8).collect();
                assert_eq!(common_prefix_len(&a, &b), prefix_scalar(&a, &b));
                assert_eq!(common_suffix_len(&a, &b), suffix_scalar(&a, &b));
                assert_eq!(common_suffix_len(&a, &c), suffix_scalar(&a, &c));
            }
            for at in 0..len {
                let mut b = a.clone();
                b[at] ^= 0x80;
                assert_eq!((common_prefix_len(&a, &b), common_suffix_len(&a, &b)), (at, len - 1 - at));
            }
        }
    }

    #[test]
    fn one_bit_anywhere_is_not_zero() {
        for len in [0, 1, 7, 63, 64, 65, 127, 128, 129, 200] {
            let mut bytes = vec![0u8; len];
            assert!(is_zero(&bytes) && is_constant(&bytes));
            for at in 0..len {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{at} of {len}");
                assert_eq!(is_constant(&bytes), len == 1, "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
