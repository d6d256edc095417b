//! All lanes at once with PEXT and PDEP.
#![cfg(target_arch = "x86_64")]

use super::Lanes;

/// All lanes at once. Only for rows of a [`dispatch`](crate::kernel::dispatch) table with PEXT.
pub(in crate::kernel) struct PextLanes;

#[expect(unsafe_code, reason = "instructions of detected CPU features")]
impl Lanes for PextLanes {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::CpuFeatures;
    use crate::kernel::lanes::ShiftedLanes;

    #[test]
    fn pext_agrees_with_shifts() {
        let mut state = 1u64;
        for lengths in 0..if CpuFeatures::used().contains(CpuFeatures::PEXT) { 1u32 << 16 } else { 0 } {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Four bits for the length of each lane's mask.
            let mask = (0..4).fold(0, |mask, lane| mask | ((1u64 << (lengths >> (4 * lane) & 15)) - 1) << (16 * lane));
            assert_eq!(ShiftedLanes::gather(state, mask), PextLanes::gather(state, mask));
            assert_eq!(ShiftedLanes::spread(state, mask), PextLanes::spread(state, mask));
        }
    }
}
