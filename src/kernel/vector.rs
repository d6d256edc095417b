//! Vectors: one loop is compiled for each set of [CPU features](super::cpu_features) and chosen at run time.

/// Defines a function that is compiled for each set of CPU features.
///
/// Its body is an `#[inline(always)]` function with the same arguments.
macro_rules! vectorised {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? = $body:path) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            if $crate::kernel::cpu_features::CpuFeatures::used()
                == $crate::kernel::cpu_features::CpuFeatures::Avx512
            {
                #[target_feature(enable = "avx2,bmi2,lzcnt,popcnt")]
                #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi")]
                fn with_avx512($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
                #[expect(unsafe_code, reason = "calls a function for detected CPU features")]
                // SAFETY: the processor has these features.
                return unsafe { with_avx512($($argument),*) };
            }
            $crate::kernel::vector::up_to_avx2! {
                fn up_to_avx2($($argument: $type),*) $(-> $result)? = $body
            }
            up_to_avx2($($argument),*)
        }
    };
}
pub(super) use vectorised;

/// Like [`vectorised`], but never for AVX-512. Compilers make loops over single bits slower with it.
macro_rules! up_to_avx2 {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? = $body:path) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            if $crate::kernel::cpu_features::CpuFeatures::used()
                >= $crate::kernel::cpu_features::CpuFeatures::Avx2
            {
                #[target_feature(enable = "avx2,bmi2,lzcnt,popcnt")]
                fn with_avx2($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
                #[expect(unsafe_code, reason = "calls a function for detected CPU features")]
                // SAFETY: the processor has these features.
                return unsafe { with_avx2($($argument),*) };
            }
            $body($($argument),*)
        }
    };
}
pub(super) use up_to_avx2;
