//! CPU features: the instruction set extensions that the kernels use.
//!
//! The kernels use all that the processor has. The environment variable `FHRD_CPU_FEATURES` can limit them, to compare
//! the loops and to test what other processors will run. `dispatch` chooses a loop by this set.

use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;

/// The environment variable that limits the CPU features.
pub const VARIABLE: &str = "FHRD_CPU_FEATURES";

/// The name in [`VARIABLE`] of the set without features.
const PORTABLE: &str = "portable";

/// Value of [`VARIABLE`] with a name that is no CPU feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCpuFeatures(pub OsString);

bitflags::bitflags! {
    /// A set of CPU features. With a feature, it has all that this one needs.
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
    pub struct CpuFeatures: u8 {
        /// AVX2, BMI2, LZCNT and POPCNT.
        const AVX2 = 1;
        /// PEXT and PDEP of BMI2, where they are fast. AMD processors before Zen 3 execute them bit by bit.
        const PEXT = 1 << 1;
        /// AVX-512 F, BW, CD, DQ, VL and VBMI. Processors without VBMI lower their clock when they use the others.
        const AVX512 = 1 << 2;
        /// GFNI, for vectors of AVX-512.
        const GFNI = 1 << 3;
        /// The vectors of 64-bit ARM.
        const NEON = 1 << 4;
    }
}

/// A feature, its name in [`VARIABLE`], its name in reports, what it needs, and what its name also allows.
struct KnownFeature {
    feature: CpuFeatures,
    name: &'static str,
    label: &'static str,
    needs: CpuFeatures,
    allows: CpuFeatures,
}

/// All features. Each comes after those that it needs.
const KNOWN: [KnownFeature; 5] = {
    const fn known(
        feature: CpuFeatures,
        [name, label]: [&'static str; 2],
        needs: CpuFeatures,
        allows: CpuFeatures,
    ) -> KnownFeature {
        KnownFeature { feature, name, label, needs, allows }
    }
    const NONE: CpuFeatures = CpuFeatures::empty();
    const AVX2: CpuFeatures = CpuFeatures::AVX2;
    const AVX512: CpuFeatures = CpuFeatures::AVX512;
    [
        known(AVX2, ["avx2", "AVX2"], NONE, CpuFeatures::PEXT),
        known(CpuFeatures::PEXT, ["pext", "PEXT"], AVX2, NONE),
        known(AVX512, ["avx512", "AVX-512"], AVX2, CpuFeatures::PEXT.union(CpuFeatures::GFNI)),
        known(CpuFeatures::GFNI, ["gfni", "GFNI"], AVX2.union(AVX512), NONE),
        known(CpuFeatures::NEON, ["neon", "NEON"], NONE, NONE),
    ]
};

impl CpuFeatures {
    /// The names in [`VARIABLE`], `portable` first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(PORTABLE).chain(KNOWN.iter().map(|known| known.name))
    }

    /// The names of these features in reports.
    pub fn labels(self) -> impl Iterator<Item = &'static str> {
        KNOWN.iter().filter(move |known| self.contains(known.feature)).map(|known| known.label)
    }

    /// The features that the kernels use. Detected once.
    #[inline]
    pub fn used() -> CpuFeatures {
        static USED: OnceLock<CpuFeatures> = OnceLock::new();
        #[cfg(test)]
        if let Some(features) = USED_BY_TEST.get() {
            return features;
        }
        *USED.get_or_init(|| Self::of_processor().intersection(Self::limit().unwrap_or(Self::all())))
    }

    /// Subsets of the used features between which the kernels distinguish, the largest first and the empty one last.
    pub fn subsets() -> Vec<CpuFeatures> {
        let used = Self::used();
        let mut subsets = vec![used];
        for removed in [Self::PEXT, Self::GFNI, Self::AVX512, Self::AVX512.union(Self::PEXT), Self::all()] {
            let subset = used.without(removed);
            if !subsets.contains(&subset) {
                subsets.push(subset);
            }
        }
        subsets
    }

    /// The features that the environment allows; all if [`VARIABLE`] is not set or empty.
    ///
    /// # Errors
    /// The value of [`VARIABLE`] if a name in it is unknown.
    pub fn limit() -> Result<CpuFeatures, UnknownCpuFeatures> {
        let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(Self::all()) };
        value.to_str().and_then(Self::parse).ok_or(UnknownCpuFeatures(value))
    }

    /// The set of a list such as `avx512,-gfni`. A name adds a feature with what it needs and the features that come
    /// with it; with a minus it removes the feature and what needs it. A list that begins with a minus removes from
    /// all features.
    fn parse(list: &str) -> Option<CpuFeatures> {
        let start = if list.starts_with('-') { Self::all() } else { Self::empty() };
        list.split(',').map(str::trim).try_fold(start, |set, item| {
            if item == PORTABLE {
                return Some(set);
            }
            let name = item.strip_prefix('-').unwrap_or(item);
            let known = KNOWN.iter().find(|known| known.name == name)?;
            let added = known.feature.union(known.needs).union(known.allows);
            Some(if name == item { set.union(added) } else { set.without(known.feature) })
        })
    }

    /// The set without these features and without those that need them.
    fn without(self, removed: CpuFeatures) -> CpuFeatures {
        let left = self.difference(removed);
        KNOWN
            .iter()
            .filter(|known| !left.contains(known.needs))
            .fold(left, |left, known| left.difference(known.feature))
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
        // Only AMD processors have SSE4a, and those since Zen 3 have VAES.
        let has_fast_pext = !is_x86_feature_detected!("sse4a") || is_x86_feature_detected!("vaes");
        let found = [
            (Self::AVX2, has_avx2),
            (Self::PEXT, has_fast_pext),
            (Self::AVX512, has_avx512),
            (Self::GFNI, is_x86_feature_detected!("gfni")),
        ];
        let found = found.into_iter().filter(|(_, is_there)| *is_there);
        found.fold(Self::empty(), |set, (feature, _)| set.union(feature)).without(Self::empty())
    }

    #[cfg(target_arch = "aarch64")]
    fn of_processor() -> CpuFeatures {
        if std::arch::is_aarch64_feature_detected!("neon") { Self::NEON } else { Self::empty() }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn of_processor() -> CpuFeatures {
        Self::empty()
    }
}

/// The names of the features, such as `avx2+pext`.
impl fmt::Display for CpuFeatures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            KNOWN.iter().filter(|known| self.contains(known.feature)).map(|known| known.name).collect();
        formatter.pad(&if names.is_empty() { PORTABLE.into() } else { names.join("+") })
    }
}

#[cfg(test)]
thread_local! {
    /// The features that this thread uses instead, in [`with_each_subset`].
    static USED_BY_TEST: std::cell::Cell<Option<CpuFeatures>> = const { std::cell::Cell::new(None) };
}

/// Runs a test with each of the [`CpuFeatures::subsets`], so with every loop that this processor can run.
#[cfg(test)]
pub(crate) fn with_each_subset(mut test: impl FnMut(CpuFeatures)) {
    struct UsedBefore(Option<CpuFeatures>);
    impl Drop for UsedBefore {
        fn drop(&mut self) {
            USED_BY_TEST.set(self.0);
        }
    }
    for features in CpuFeatures::subsets() {
        let _used_before = UsedBefore(USED_BY_TEST.replace(Some(features)));
        test(features);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_and_the_environment_limit_what_is_used() {
        assert!(CpuFeatures::of_processor().contains(CpuFeatures::used()));
        assert!(CpuFeatures::limit().unwrap().contains(CpuFeatures::used()));
    }

    #[test]
    fn every_subset_has_what_its_features_need() {
        let subsets = CpuFeatures::subsets();
        assert_eq!((subsets[0], subsets.last()), (CpuFeatures::used(), Some(&CpuFeatures::empty())));
        for subset in subsets.into_iter().chain(CpuFeatures::names().map(|name| CpuFeatures::parse(name).unwrap())) {
            assert_eq!(subset.without(CpuFeatures::empty()), subset, "{subset}");
        }
        let mut seen = Vec::new();
        with_each_subset(|features| seen.push((features, CpuFeatures::used())));
        assert!(seen.iter().all(|(features, used)| features == used) && seen.len() == CpuFeatures::subsets().len());
    }

    #[test]
    fn a_list_names_what_may_be_used() {
        let shown = |list| CpuFeatures::parse(list).map(|set| set.to_string());
        for (list, set) in [
            ("portable", "portable"),
            ("avx2", "avx2+pext"),
            ("avx512", "avx2+pext+avx512+gfni"),
            ("gfni", "avx2+avx512+gfni"),
            ("neon", "neon"),
            ("avx512,-gfni", "avx2+pext+avx512"),
            ("avx2, -pext", "avx2"),
            ("-avx512", "avx2+pext+neon"),
            ("-avx2", "neon"),
            ("avx512,-avx2,neon", "neon"),
        ] {
            assert_eq!(shown(list).as_deref(), Some(set), "{list}");
        }
        for list in ["", "avx", "avx2,", "--avx2", "AVX2", "avx2+pext", "-portable"] {
            assert_eq!(shown(list), None, "{list}");
        }
    }
}
