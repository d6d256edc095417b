//! Vectors: one loop, compiled for each set of [instructions](super::instructions), chosen at run time.

/// Defines a function whose body, an `#[inline(always)]` function of the same arguments, is compiled for each set.
macro_rules! vectorised {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? = $body:path) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::kernel::instructions::Instructions;

                #[target_feature(enable = "avx2,bmi2,lzcnt,popcnt")]
                fn with_avx2($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
                #[target_feature(enable = "avx2,bmi2,lzcnt,popcnt")]
                #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi")]
                fn with_avx512($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
                #[expect(unsafe_code, reason = "calls of functions for a processor that has been asked")]
                // SAFETY: the processor has the features of each.
                match Instructions::used() {
                    Instructions::Avx512 => return unsafe { with_avx512($($argument),*) },
                    Instructions::Avx2 => return unsafe { with_avx2($($argument),*) },
                    Instructions::Portable => {}
                }
            }
            $body($($argument),*)
        }
    };
}
pub(super) use vectorised;
