//! Lanes: the low bits of the four 16-bit lanes of a `u64` are gathered into adjacent bits, and spread again.
//!
//! The mask of a lane selects any number of its lowest bits. A wider lane is several adjacent lanes. The BMI2
//! instructions PEXT and PDEP do this in one step ([`pext`]), but are slow on some processors.

pub(super) mod pext;

/// Gathers bits from lanes and spreads them over lanes.
pub(super) trait Lanes {
    /// The bits of `value` that `mask` selects, in adjacent bits, the lowest first.
    fn gather(value: u64, mask: u64) -> u64;
    /// Inverse of [`Lanes::gather`]: moves the lowest bits of `bits` to the positions that `mask` selects.
    fn spread(bits: u64, mask: u64) -> u64;
}

/// One lane after the other, on any processor.
pub(super) struct ShiftedLanes;

impl Lanes for ShiftedLanes {
    #[inline(always)]
    fn gather(value: u64, mask: u64) -> u64 {
        let (mut bits, mut filled) = (0, 0);
        for at in [0, 16, 32, 48] {
            let lane = (mask >> at) as u16;
            bits |= (value >> at & u64::from(lane)) << filled;
            filled += u16::BITS - lane.leading_zeros();
        }
        bits
    }
    #[inline(always)]
    fn spread(mut bits: u64, mask: u64) -> u64 {
        let mut value = 0;
        for at in [0, 16, 32, 48] {
            let lane = (mask >> at) as u16;
            value |= (bits & u64::from(lane)) << at;
            bits >>= u16::BITS - lane.leading_zeros();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_gathered_and_spread_in_order() {
        let mask = 0x0000_0007_7fff_0001;
        assert_eq!(ShiftedLanes::gather(0xffff_fffd_1234_0001, mask), 1 | 0x1234 << 1 | 5 << 16);
        assert_eq!(ShiftedLanes::spread(1 | 0x1234 << 1 | 5 << 16, mask), 0x0000_0005_1234_0001);
        assert_eq!(ShiftedLanes::spread(u64::MAX, mask), mask);
        assert_eq!((ShiftedLanes::gather(u64::MAX, u64::MAX), ShiftedLanes::spread(9, 0)), (u64::MAX, 0));
    }
}
