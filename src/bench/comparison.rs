//! The file of a comparison: configurations × chunk sizes × sets of real files.
//!
//! `kind = "schemes"` measures every set as a whole, `kind = "versions"` its files one after another. Each
//! `[[scheme]]` names what differs from the defaults; every length in `chunk_bytes` makes a case of every scheme, with
//! chunks of at least half and at most four times that average.

use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use serde::Deserialize;

use crate::config::Config;
use crate::error::{Error, Result};

/// What is compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// What is measured of every case.
    pub kind: Kind,
    /// Folder that the sets' paths are relative to; the environment's `FHRD_CORPUS` comes first.
    pub corpus: PathBuf,
    /// Folder for repositories and restored files; what it makes there is removed after use.
    pub work: PathBuf,
    /// Restore, too, and compare with the source byte for byte.
    #[serde(default)]
    pub restore: bool,
    /// Restore with the repository's files out of the page cache.
    #[serde(default)]
    pub cold: bool,
    /// Rounds; the figures are medians.
    #[serde(default = "one")]
    pub repeats: usize,
    /// Average chunk lengths, bytes; empty: as the schemes say.
    #[serde(default)]
    pub chunk_bytes: Vec<ByteSize>,
    /// What is backed up.
    pub sets: Vec<Set>,
    /// Configurations to compare.
    pub scheme: Vec<Scheme>,
}

/// What is measured of every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One backup of each set and its restore.
    Schemes,
    /// A backup of each file of a set into one repository; restores of the first and of the last.
    Versions,
}

/// Files and folders that are backed up together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "expected a path or a table of `name` and `paths`")]
pub enum Set {
    /// A file or folder, named by its path.
    Path(PathBuf),
    /// Some files and folders.
    Named {
        /// Its name in the table.
        name: String,
        /// What belongs to it.
        paths: Vec<PathBuf>,
    },
}

/// One configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheme {
    /// Its name in the table.
    pub name: String,
    /// What differs from the defaults.
    #[serde(default)]
    pub config: Config,
}

/// A scheme at a chunk size: one line for each set.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the scheme.
    pub scheme: String,
    /// Its whole configuration.
    pub config: Config,
}

fn one() -> usize {
    1
}

impl Comparison {
    /// Parses a comparison's file; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values, naming the key.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let comparison: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if comparison.repeats == 0 {
            return Err(wrong("`repeats` must be at least 1".into()));
        }
        if comparison.sets.is_empty() || comparison.scheme.is_empty() {
            return Err(wrong("it takes one of `sets` and one `[[scheme]]` at least".into()));
        }
        if comparison.cold && !comparison.restore {
            return Err(wrong("`cold` is about restores: it takes `restore = true`".into()));
        }
        for case in comparison.cases() {
            case.config.validate().map_err(|message| wrong(format!("scheme `{}`: {message}", case.scheme)))?;
        }
        Ok(comparison)
    }

    /// Every scheme at every chunk size, in the file's order.
    pub fn cases(&self) -> Vec<Case> {
        let of_scheme = |scheme: &Scheme| {
            let case = |config| Case { scheme: scheme.name.clone(), config };
            let sized = |avg: &ByteSize| {
                let mut config = scheme.config.clone();
                config.repository.chunk_bytes_min = ByteSize(avg.0 / 2);
                config.repository.chunk_bytes_avg = *avg;
                config.repository.chunk_bytes_max = ByteSize(avg.0.saturating_mul(4));
                case(config)
            };
            match self.chunk_bytes.as_slice() {
                [] => vec![case(scheme.config.clone())],
                sizes => sizes.iter().map(sized).collect(),
            }
        };
        self.scheme.iter().flat_map(of_scheme).collect()
    }

    /// The sets' names and paths, absolute and without links.
    ///
    /// # Errors
    /// [`Error::Io`] for the first path that is not there.
    pub fn sources(&self) -> Result<Vec<(String, Vec<PathBuf>)>> {
        let corpus = std::env::var_os("FHRD_CORPUS").map_or_else(|| self.corpus.clone(), PathBuf::from);
        self.sets.iter().map(|set| set.source(&corpus)).collect()
    }
}

impl Set {
    fn source(&self, corpus: &Path) -> Result<(String, Vec<PathBuf>)> {
        let (name, paths) = match self {
            Set::Path(path) => (path.display().to_string(), std::slice::from_ref(path)),
            Set::Named { name, paths } => (name.clone(), paths.as_slice()),
        };
        let real = |path: &PathBuf| {
            let path = corpus.join(path);
            std::fs::canonicalize(&path).map_err(|error| Error::io("find", path, error))
        };
        Ok((name, paths.iter().map(real).collect::<Result<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "kind = \"schemes\"\ncorpus = \"c\"\nwork = \"w\"\n";

    fn parse(text: &str) -> Result<Comparison> {
        Comparison::parse(&format!("{HEAD}{text}"), "x.toml")
    }

    fn message(text: &str) -> String {
        parse(text).expect_err("must fail").to_string()
    }

    #[test]
    fn chunk_sizes_multiply_the_schemes_and_bring_their_bounds() {
        let text = "chunk_bytes = [\"16 KiB\", 131072]\nsets = [\"a\"]\n[[scheme]]\nname = \"one\"\n[[scheme]]\n\
            name = \"two\"\n[scheme.config.subdedup]\nstrategy = \"none\"\n";
        let cases = parse(text).expect("parses").cases();
        let told = |case: &Case| {
            let RepositoryBounds(min, avg, max) = bounds(&case.config);
            (case.scheme.clone(), case.config.subdedup.strategy.clone(), min >> 10, avg >> 10, max >> 10)
        };
        let line = |name: &str, strategy: &str, avg: u64| (name.into(), strategy.into(), avg / 2, avg, avg * 4);
        let expected = [
            line("one", "anchors", 16),
            line("one", "anchors", 128),
            line("two", "none", 16),
            line("two", "none", 128),
        ];
        assert_eq!(cases.iter().map(told).collect::<Vec<_>>(), expected);
        let plain = parse("sets = [\"a\"]\n[[scheme]]\nname = \"one\"\n").expect("parses");
        assert_eq!((plain.repeats, plain.cold, plain.cases()[0].config.clone()), (1, false, Config::default()));
    }

    struct RepositoryBounds(u64, u64, u64);

    fn bounds(config: &Config) -> RepositoryBounds {
        let repository = &config.repository;
        RepositoryBounds(repository.chunk_bytes_min.0, repository.chunk_bytes_avg.0, repository.chunk_bytes_max.0)
    }

    #[test]
    fn the_documented_comparisons_parse() {
        let cases = |text, origin| Comparison::parse(text, origin).expect("parses").cases().len();
        assert_eq!(cases(include_str!("../../configs/bench-code.toml"), "bench-code.toml"), 8);
        assert_eq!(cases(include_str!("../../configs/bench-ablation.toml"), "bench-ablation.toml"), 8);
        assert_eq!(cases(include_str!("../../configs/bench-bases.toml"), "bench-bases.toml"), 9);
        assert_eq!(cases(include_str!("../../configs/bench-versions.toml"), "bench-versions.toml"), 12);
        assert_eq!(cases(include_str!("../../configs/bench-strategies.toml"), "bench-strategies.toml"), 18);
    }

    #[test]
    fn a_set_is_a_path_or_a_named_list() {
        let text = "sets = [\"a/b\", { name = \"disk\", paths = [\"x\", \"y\"] }]\n[[scheme]]\nname = \"one\"\n";
        let named = Set::Named { name: "disk".into(), paths: vec!["x".into(), "y".into()] };
        assert_eq!(parse(text).expect("parses").sets, [Set::Path("a/b".into()), named]);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("x"), "1").expect("writes");
        let set = |paths: Vec<PathBuf>| Set::Named { name: "disk".into(), paths };
        let found = set(vec!["x".into()]).source(folder.path()).expect("is there");
        assert_eq!(found, ("disk".into(), vec![folder.path().canonicalize().expect("is there").join("x")]));
        let text = set(vec!["x".into(), "y".into()]).source(folder.path()).expect_err("no y").to_string();
        assert!(text.contains("/y"), "{text}");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_by_name() {
        let sets = "sets = [\"a\"]\n[[scheme]]\nname = \"one\"\n";
        for (text, word) in [
            (format!("repeats = 0\n{sets}"), "repeats"),
            (format!("cold = true\n{sets}"), "restore"),
            (format!("chunk_byte = [1]\n{sets}"), "chunk_byte"),
            (format!("chunk_bytes = [\"1 GiB\"]\n{sets}"), "chunk_bytes"),
            (format!("{sets}[scheme.config.subdedup]\nstrategy = \"magic\"\n"), "scheme `one`: `subdedup.strategy`"),
            ("sets = []\nscheme = []\n".into(), "sets"),
            ("sets = [{ name = \"x\" }]\n[[scheme]]\nname = \"one\"\n".into(), "`name` and `paths`"),
            ("sets = [{ name = \"x\", paths = [], z = 1 }]\n[[scheme]]\nname = \"one\"\n".into(), "`name` and `paths`"),
        ] {
            let message = message(&text);
            assert!(message.contains(word) && message.contains("x.toml"), "{message}");
        }
    }
}
