//! Lanes: the low bits of the four 16-bit lanes of a `u64` are gathered into adjacent bits, and spread again.
//!
//! The mask of a lane selects any number of its lowest bits. A wider lane is several adjacent lanes. The BMI2
//! instructions PEXT and PDEP do this in one step, but are slow on some processors.

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

/// All lanes at once with BMI2. Only for functions that run if [`has_fast_bmi2`] is true.
#[cfg(target_arch = "x86_64")]
pub(super) struct Bmi2Lanes;

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "instructions of detected CPU features")]
impl Lanes for Bmi2Lanes {
    #[inline(always)]
    fn gather(value: u64, mask: u64) -> u64 {
        // SAFETY: the processor has BMI2.
        unsafe { std::arch::x86_64::_pext_u64(value, mask) }
    }
    #[inline(always)]
    fn spread(bits: u64, mask: u64) -> u64 {
        // SAFETY: the processor has BMI2.
        unsafe { std::arch::x86_64::_pdep_u64(bits, mask) }
    }
}

/// Whether AVX2 and BMI2 are used, and PEXT and PDEP are fast.
///
/// They are slow on AMD processors older than those with VAES. Only AMD processors have SSE4a.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_fast_bmi2() -> bool {
    super::cpu_features::CpuFeatures::used() >= super::cpu_features::CpuFeatures::Avx2
        && (!is_x86_feature_detected!("sse4a") || is_x86_feature_detected!("vaes"))
}

/// Like [`super::vector::vectorised`], but chooses the [`Lanes`] of the body too.
///
/// The body is an `#[inline(always)]` function whose last type parameter is [`Lanes`]. It uses [`Bmi2Lanes`] if
/// [`has_fast_bmi2`] is true, and [`ShiftedLanes`] otherwise.
macro_rules! by_lanes {
    (fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $body:ident::<$element:ty>) => {
        fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            if $crate::kernel::lanes::has_fast_bmi2() {
                $crate::kernel::vector::vectorised! {
                    fn with_bmi2($($argument: $type),*) $(-> $result)? =
                        $body::<$element, $crate::kernel::lanes::Bmi2Lanes>
                }
                return with_bmi2($($argument),*);
            }
            $crate::kernel::vector::vectorised! {
                fn with_shifts($($argument: $type),*) $(-> $result)? =
                    $body::<$element, $crate::kernel::lanes::ShiftedLanes>
            }
            with_shifts($($argument),*)
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
        assert_eq!(ShiftedLanes::gather(0xffff_fffd_1234_0001, mask), 1 | 0x1234 << 1 | 5 << 16);
        assert_eq!(ShiftedLanes::spread(1 | 0x1234 << 1 | 5 << 16, mask), 0x0000_0005_1234_0001);
        assert_eq!(ShiftedLanes::spread(u64::MAX, mask), mask);
        assert_eq!((ShiftedLanes::gather(u64::MAX, u64::MAX), ShiftedLanes::spread(9, 0)), (u64::MAX, 0));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn bmi2_agrees_with_shifts() {
        let mut state = 1u64;
        for lengths in 0..if has_fast_bmi2() { 1u32 << 16 } else { 0 } {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Four bits for the length of each lane's mask.
            let mask = (0..4).fold(0, |mask, lane| mask | ((1u64 << (lengths >> (4 * lane) & 15)) - 1) << (16 * lane));
            assert_eq!(ShiftedLanes::gather(state, mask), Bmi2Lanes::gather(state, mask));
            assert_eq!(ShiftedLanes::spread(state, mask), Bmi2Lanes::spread(state, mask));
        }
    }
}
