//! Lanes: the low bits of the parts of a word, one part's behind the other's, and back.
//!
//! A mask says which bits of each lane of 16 are meant: its lowest ones, as many as may be. Wider lanes are several of
//! these. Processors that have an instruction for it do it at once, unless it is known to be slow there.

/// How bits are gathered from lanes and spread over them.
pub(super) trait Lanes {
    /// The bits of `word` that `mask` has, next to each other, the lowest first.
    fn gather(word: u64, mask: u64) -> u64;
    /// The lowest bits of `bits`, each to the next place that `mask` has.
    fn spread(bits: u64, mask: u64) -> u64;
}

/// Lane after lane.
pub(super) struct Shifted;

impl Lanes for Shifted {
    #[inline(always)]
    fn gather(word: u64, mask: u64) -> u64 {
        let (mut bits, mut filled) = (0, 0);
        for at in [0, 16, 32, 48] {
            let lane = (mask >> at) as u16;
            bits |= (word >> at & u64::from(lane)) << filled;
            filled += u16::BITS - lane.leading_zeros();
        }
        bits
    }
    #[inline(always)]
    fn spread(mut bits: u64, mask: u64) -> u64 {
        let mut word = 0;
        for at in [0, 16, 32, 48] {
            let lane = (mask >> at) as u16;
            word |= (bits & u64::from(lane)) << at;
            bits >>= u16::BITS - lane.leading_zeros();
        }
        word
    }
}

/// At once. Only for functions that are compiled for processors of which [`is_fast`] is true.
#[cfg(target_arch = "x86_64")]
pub(super) struct AtOnce;

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "instructions of processors that have been asked")]
impl Lanes for AtOnce {
    #[inline(always)]
    fn gather(word: u64, mask: u64) -> u64 {
        // SAFETY: the processor has BMI2.
        unsafe { std::arch::x86_64::_pext_u64(word, mask) }
    }
    #[inline(always)]
    fn spread(bits: u64, mask: u64) -> u64 {
        // SAFETY: the processor has BMI2.
        unsafe { std::arch::x86_64::_pdep_u64(bits, mask) }
    }
}

/// Whether AVX2 and BMI2 are used, and the instructions of the last are fast: those of AMD (which alone had SSE4a) were
/// not before those that have VAES.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_fast() -> bool {
    super::cpu_features::CpuFeatures::used() >= super::cpu_features::CpuFeatures::Avx2
        && (!is_x86_feature_detected!("sse4a") || is_x86_feature_detected!("vaes"))
}

/// Defines a function whose body, an `#[inline(always)]` function that has [`Lanes`] as its last type, is compiled as
/// by [`super::vector::vectorised`], and for processors that are [`is_fast`] with their instructions.
macro_rules! by_lanes {
    (fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $body:ident::<$word:ty>) => {
        fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            if $crate::kernel::lanes::is_fast() {
                $crate::kernel::vector::vectorised! {
                    fn at_once($($argument: $type),*) $(-> $result)? = $body::<$word, $crate::kernel::lanes::AtOnce>
                }
                return at_once($($argument),*);
            }
            $crate::kernel::vector::vectorised! {
                fn shifted($($argument: $type),*) $(-> $result)? = $body::<$word, $crate::kernel::lanes::Shifted>
            }
            shifted($($argument),*)
        }
    };
}
pub(super) use by_lanes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_gathered_and_spread_in_order() {
        let mask = 0x0000_0007_7fff_0001;
        assert_eq!(Shifted::gather(0xffff_fffd_1234_0001, mask), 1 | 0x1234 << 1 | 5 << 16);
        assert_eq!(Shifted::spread(1 | 0x1234 << 1 | 5 << 16, mask), 0x0000_0005_1234_0001);
        assert_eq!(Shifted::spread(u64::MAX, mask), mask);
        assert_eq!((Shifted::gather(u64::MAX, u64::MAX), Shifted::spread(9, 0)), (u64::MAX, 0));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn at_once_it_is_the_same() {
        let mut state = 1u64;
        for lengths in 0..if is_fast() { 1u32 << 16 } else { 0 } {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Each four bits the length of a lane's mask.
            let mask = (0..4).fold(0, |mask, lane| mask | ((1u64 << (lengths >> (4 * lane) & 15)) - 1) << (16 * lane));
            assert_eq!(Shifted::gather(state, mask), AtOnce::gather(state, mask));
            assert_eq!(Shifted::spread(state, mask), AtOnce::spread(state, mask));
        }
    }
}
