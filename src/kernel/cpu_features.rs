//! CPU features: the instruction set extensions that the kernels use.
//!
//! The kernels use the largest set that the processor has. The environment variable `FHRD_CPU_FEATURES` can limit
//! them to a smaller one, to compare the sets and to test what other processors will run.

use std::ffi::OsString;
use std::sync::OnceLock;

/// The environment variable that limits the CPU features.
pub const VARIABLE: &str = "FHRD_CPU_FEATURES";

/// Value of [`VARIABLE`] that names no [`CpuFeatures`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCpuFeatures(pub OsString);

/// Sets of CPU features. Each includes the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuFeatures {
    /// The features of the compiler's target.
    Portable,
    /// AVX2, BMI2, LZCNT and POPCNT.
    Avx2,
    /// AVX-512 F, BW, CD, DQ, VL and VBMI. Processors without VBMI lower their clock when they use the others.
    Avx512,
}

impl CpuFeatures {
    /// All sets, the smallest first.
    pub const ALL: [CpuFeatures; 3] = [CpuFeatures::Portable, CpuFeatures::Avx2, CpuFeatures::Avx512];

    /// The name in [`VARIABLE`].
    pub const fn name(self) -> &'static str {
        match self {
            CpuFeatures::Portable => "portable",
            CpuFeatures::Avx2 => "avx2",
            CpuFeatures::Avx512 => "avx512",
        }
    }

    /// The features that the kernels use. Detected once.
    pub fn used() -> CpuFeatures {
        static USED: OnceLock<CpuFeatures> = OnceLock::new();
        *USED.get_or_init(|| Self::of_processor().min(Self::limit().unwrap_or(CpuFeatures::Avx512)))
    }

    /// The largest set that the environment allows; the largest of all if [`VARIABLE`] is not set.
    ///
    /// # Errors
    /// The value of [`VARIABLE`] if it names no set.
    pub fn limit() -> Result<CpuFeatures, UnknownCpuFeatures> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(CpuFeatures::Avx512) };
        let found = Self::ALL.into_iter().find(|cpu_features| value == cpu_features.name());
        found.ok_or(UnknownCpuFeatures(value))
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
    fn the_processor_and_the_environment_limit_what_is_used() {
        assert!(CpuFeatures::used() <= CpuFeatures::of_processor());
        assert!(CpuFeatures::used() <= CpuFeatures::limit().unwrap());
        assert!(CpuFeatures::ALL.is_sorted());
    }
}
