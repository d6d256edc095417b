//! Instructions: which of the processor's sets the kernels use.
//!
//! The best that the processor has, or what the environment variable `FHRD_CPU_FEATURES` says where that is less: to
//! compare them, and to test what other processors will run.

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// The variable that names the most that may be used.
pub const VARIABLE: &str = "FHRD_CPU_FEATURES";

/// Sets of instructions, each with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuFeatures {
    /// What the compiler's target has.
    Portable,
    /// AVX2, BMI2, LZCNT and POPCNT.
    Avx2,
    /// AVX-512 F, BW, CD, DQ, VL and VBMI. Processors that lack the last slow down where they use the others.
    Avx512,
}

impl CpuFeatures {
    /// All of them, the least first.
    pub const ALL: [CpuFeatures; 3] = [CpuFeatures::Portable, CpuFeatures::Avx2, CpuFeatures::Avx512];

    /// Its name in [`VARIABLE`].
    pub const fn name(self) -> &'static str {
        match self {
            CpuFeatures::Portable => "portable",
            CpuFeatures::Avx2 => "avx2",
            CpuFeatures::Avx512 => "avx512",
        }
    }

    /// What kernels use: found out once.
    pub fn used() -> CpuFeatures {
        static USED: OnceLock<CpuFeatures> = OnceLock::new();
        *USED.get_or_init(|| Self::of_processor().min(Self::most().unwrap_or(CpuFeatures::Avx512)))
    }

    /// The most that may be used.
    ///
    /// # Errors
    /// [`Error::Config`] where [`VARIABLE`] holds something else than a name.
    pub fn most() -> Result<CpuFeatures> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(CpuFeatures::Avx512) };
        let found = Self::ALL.into_iter().find(|cpu_features| value == cpu_features.name());
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Config {
                origin: VARIABLE.into(),
                message: format!("expected one of {names}, found `{}`", value.display()),
            }
        })
    }

    #[cfg(target_arch = "x86_64")]
    fn of_processor() -> CpuFeatures {
        let has_avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi");
        match (has_avx2, has_avx512) {
            (true, true) => CpuFeatures::Avx512,
            (true, false) => CpuFeatures::Avx2,
            (false, _) => CpuFeatures::Portable,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of_processor() -> CpuFeatures {
        CpuFeatures::Portable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_used_than_the_processor_has_and_the_environment_allows() {
        assert!(CpuFeatures::used() <= CpuFeatures::of_processor());
        assert!(CpuFeatures::used() <= CpuFeatures::most().unwrap());
        assert!(CpuFeatures::ALL.is_sorted());
    }
}
