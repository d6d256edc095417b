//! Vectors: one loop, compiled once for every processor and once more for those with AVX2, chosen at run time.

/// Defines a function whose body, an `#[inline(always)]` function of the same arguments, is compiled twice.
macro_rules! vectorised {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? = $body:path) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
            {
                #[target_feature(enable = "avx2,bmi2,lzcnt")]
                fn with_avx2($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
                #[expect(unsafe_code, reason = "the call of a function for a processor that has been asked")]
                // SAFETY: the processor has these features.
                return unsafe { with_avx2($($argument),*) };
            }
            $body($($argument),*)
        }
    };
}
pub(super) use vectorised;
