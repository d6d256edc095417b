//! Dispatch: the choice among the loops of a kernel, by [CPU features](super::cpu_features).
//!
//! Each kernel has one table: a row for each loop, the fastest first and the portable one last. The first row whose
//! features are used is called. A row names its features and an `#[inline(always)]` function, which is compiled for
//! them, or a function with `#[target_feature]`. The compiler refuses one that needs other features than its row has.
//!
//! For another instruction set, write the loop in a file of its own with `#![cfg(target_arch = ...)]`, and add a row.
//! Only the macro [`dispatch`] chooses by architecture. All tests of a kernel run in
//! `cpu_features::with_each_subset`, so a row needs none of its own.

/// Defines a function that calls the first row of its table whose features are used.
///
/// ```text
/// dispatch! {
///     /// Counts ones.
///     pub fn count_ones(bytes: &[u8]) -> u64 {
///         AVX512 => avx512::count_ones,
///         AVX2 | PORTABLE => count_ones_loop,
///     }
/// }
/// ```
///
/// `in FEATURES;` before the function limits the features further. The expression may use the arguments.
macro_rules! dispatch {
    // The rows. `$used` is a set, `$arguments` the list of arguments, `$result` the result in brackets, or `[]`.
    (@rows $used:ident $arguments:tt $result:tt PORTABLE => $body:path $(,)?) => {{
        // Nothing else uses it where no row is for this architecture.
        let _ = $used;
        $crate::kernel::dispatch::dispatch!(@portable $arguments $body)
    }};
    (@rows $used:ident $arguments:tt $result:tt $features:ident | $($others:ident)|+ => $body:path, $($rows:tt)*) => {{
        $crate::kernel::dispatch::dispatch!(@row $features $used $arguments $result $body);
        $crate::kernel::dispatch::dispatch!(@rows $used $arguments $result $($others)|+ => $body, $($rows)*)
    }};
    (@rows $used:ident $arguments:tt $result:tt $features:ident => $body:path, $($rows:tt)*) => {{
        $crate::kernel::dispatch::dispatch!(@row $features $used $arguments $result $body);
        $crate::kernel::dispatch::dispatch!(@rows $used $arguments $result $($rows)*)
    }};
    (@portable ($($argument:ident: $type:ty),* $(,)?) $body:path) => { $body($($argument),*) };

    // A row by its features.
    (@row AVX2 $($rest:tt)*) => {
        $crate::kernel::dispatch::dispatch!(@on "x86_64" [AVX2] "avx2,bmi2,lzcnt,popcnt" $($rest)*)
    };
    (@row AVX2_PEXT $($rest:tt)*) => {
        $crate::kernel::dispatch::dispatch!(@on "x86_64" [AVX2 PEXT] "avx2,bmi2,lzcnt,popcnt" $($rest)*)
    };
    (@row AVX512 $($rest:tt)*) => {
        $crate::kernel::dispatch::dispatch!(@on "x86_64" [AVX512]
            "avx2,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi" $($rest)*)
    };
    (@row AVX512_PEXT $($rest:tt)*) => {
        $crate::kernel::dispatch::dispatch!(@on "x86_64" [AVX512 PEXT]
            "avx2,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi" $($rest)*)
    };
    (@row AVX512_GFNI $($rest:tt)*) => {
        $crate::kernel::dispatch::dispatch!(@on "x86_64" [AVX512 GFNI]
            "avx2,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,gfni" $($rest)*)
    };
    (@row NEON $($rest:tt)*) => {
        $crate::kernel::dispatch::dispatch!(@on "aarch64" [NEON] "neon" $($rest)*)
    };
    (@on $architecture:literal [$($feature:ident)+] $enabled:literal
        $used:ident ($($argument:ident: $type:ty),* $(,)?) [$($result:ty)?] $body:path) => {
        #[cfg(target_arch = $architecture)]
        if $used.contains($crate::kernel::cpu_features::CpuFeatures::empty()
            $(.union($crate::kernel::cpu_features::CpuFeatures::$feature))+)
        {
            #[target_feature(enable = $enabled)]
            fn with_features($($argument: $type),*) $(-> $result)? {
                $body($($argument),*)
            }
            #[expect(unsafe_code, reason = "calls a function for detected CPU features")]
            // SAFETY: the processor has these features, as the set is a part of the used ones.
            return unsafe { with_features($($argument),*) };
        }
    };

    // The function.
    (in $limit:expr; $(#[$meta:meta])* $visibility:vis fn $name:ident $arguments:tt $(-> $result:ty)? {
        $($rows:tt)+
    }) => {
        $(#[$meta])*
        $visibility fn $name $arguments $(-> $result)? {
            let used = $crate::kernel::cpu_features::CpuFeatures::used().intersection($limit);
            $crate::kernel::dispatch::dispatch!(@rows used $arguments [$($result)?] $($rows)+)
        }
    };
    ($(#[$meta:meta])* $visibility:vis fn $name:ident $arguments:tt $(-> $result:ty)? { $($rows:tt)+ }) => {
        $crate::kernel::dispatch::dispatch! {
            in $crate::kernel::cpu_features::CpuFeatures::all();
            $(#[$meta])* $visibility fn $name $arguments $(-> $result)? { $($rows)+ }
        }
    };
}
pub(super) use dispatch;
