//! The mode of floating-point arithmetic that the format relies on.
//!
//! A thread may have switched off subnormal numbers, as some libraries do for speed, and new threads inherit that. Then
//! sums and products of small numbers differ from those of all other readers.

#[cfg(test)]
use register::FLUSHING;
use register::{IEEE, MASK, read, write};

/// Runs `work` with IEEE arithmetic: rounding to the nearest even number, with subnormal numbers. The mode of the
/// thread comes back afterwards, also after a panic.
pub fn with_ieee<T>(work: impl FnOnce() -> T) -> T {
    let _mode = Mode::enter();
    apart(work)
}

/// A function of its own, so that the compiler moves no arithmetic across the change of the mode.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The mode of this thread before, if it was another one.
struct Mode(Option<u64>);

impl Mode {
    fn enter() -> Self {
        let before = read();
        if before & MASK == IEEE {
            return Mode(None);
        }
        write(before & !MASK | IEEE);
        Mode(Some(before))
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            write(before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    /// Bits of MXCSR that change results, and those that make an exception end the process.
    pub(super) const MASK: u64 = 0xffc0;
    /// These bits in the mode that programs start with: exceptions are only noted.
    pub(super) const IEEE: u64 = 0x1f80;
    /// What switches off subnormal operands and results.
    #[cfg(test)]
    pub(super) const FLUSHING: u64 = 0x8040;

    #[expect(unsafe_code, reason = "there is no safe way to read the register")]
    pub(super) fn read() -> u64 {
        let mut register = 0u32;
        // SAFETY: the instruction writes 32 bits to a variable.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack, preserves_flags)) };
        u64::from(register)
    }

    #[expect(unsafe_code, reason = "there is no safe way to set the register")]
    pub(super) fn write(register: u64) {
        let register = register as u32;
        // SAFETY: it is what the thread had, or the mode that all threads of a program start with.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const register, options(nostack)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    /// Bits of FPCR that change results, and those that make an exception end the process.
    pub(super) const MASK: u64 = 0x07ff_9f07;
    /// These bits in the mode that programs start with.
    pub(super) const IEEE: u64 = 0;
    /// What switches off subnormal operands and results.
    #[cfg(test)]
    pub(super) const FLUSHING: u64 = 1 << 24;

    #[expect(unsafe_code, reason = "there is no safe way to read the register")]
    pub(super) fn read() -> u64 {
        let register: u64;
        // SAFETY: the instruction only reads.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) register, options(nostack, preserves_flags)) };
        register
    }

    #[expect(unsafe_code, reason = "there is no safe way to set the register")]
    pub(super) fn write(register: u64) {
        // SAFETY: it is what the thread had, or the mode that all threads of a program start with.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) register, options(nostack)) };
    }
}

/// Other processors are not supported: their mode stays as it is.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) const MASK: u64 = 0;
    pub(super) const IEEE: u64 = 0;
    #[cfg(test)]
    pub(super) const FLUSHING: u64 = 0;

    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn write(_: u64) {}
}

/// Runs `work` as in a thread that has switched off subnormal numbers.
#[cfg(test)]
pub fn without_subnormals<T>(work: impl FnOnce() -> T) -> T {
    let before = read();
    write(before | FLUSHING);
    let _mode = Mode(Some(before));
    apart(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn small_numbers_stay_and_the_mode_comes_back() {
        let half = || black_box(1e-39f32) * black_box(0.5);
        let expected = half();
        assert!(expected > 0.0);
        without_subnormals(|| {
            assert_eq!(apart(half), 0.0);
            assert_eq!(with_ieee(half), expected);
            assert_eq!(with_ieee(|| with_ieee(half)), expected);
            assert!(std::panic::catch_unwind(|| with_ieee(|| panic!("as a test"))).is_err());
            assert_eq!(apart(half), 0.0);
        });
        assert_eq!(half(), expected);
    }
}
