//! The file of a comparison: configurations × parameters × sets of real files.
//!
//! `kind = "schemes"` measures every set as a whole, `kind = "versions"` its files or paths one after another.
//!
//! 1. Each `[[scheme]]` names what differs from the defaults: a configuration `file`, relative to this one, and on top
//!    of it what stands in `config`.
//! 2. Every length in `chunk_bytes` makes a case of every scheme, with chunks of at least half and at most four times
//!    that average.
//! 3. Each `[[sweep]]` names a key of the configuration and its values: every combination is a case.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::claim::Claim;
use super::data::{Set, SetSource};
use crate::config::Config;
use crate::error::{Error, Result};

/// What is compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// What is measured of every case.
    pub kind: ComparisonKind,
    /// What the report is called.
    pub title: String,
    /// Folder that the sets' paths are relative to.
    pub corpus: PathBuf,
    /// Folder for repositories and restored files, which are removed after use, and for sets that had to be made,
    /// which are kept.
    pub work: PathBuf,
    /// Restore, too, and compare with the source byte for byte.
    pub restore: bool,
    /// Restore with the repository's files out of the page cache.
    pub cold: bool,
    /// Repositories and restored files lie in memory, where the system has a file system there with room for them.
    pub memory: bool,
    /// Rounds; the figures are medians.
    pub repeats: usize,
    /// Rounds before them that do not count.
    pub warm_up: usize,
    /// What a version is, of `kind = "versions"`.
    pub versions: Versions,
    /// What is backed up.
    pub sets: Vec<Set>,
    /// Every scheme at every combination of parameters, in the file's order.
    pub cases: Vec<Case>,
    /// What others say of the same figures.
    pub claims: Vec<Claim>,
}

/// The file as it stands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComparisonFile {
    kind: ComparisonKind,
    title: Option<String>,
    corpus: Option<PathBuf>,
    work: PathBuf,
    #[serde(default)]
    restore: bool,
    #[serde(default)]
    cold: bool,
    #[serde(default)]
    memory: bool,
    #[serde(default = "one")]
    repeats: usize,
    #[serde(default)]
    warm_up: usize,
    #[serde(default)]
    versions: Versions,
    #[serde(default)]
    chunk_bytes: Vec<ByteSize>,
    sets: Vec<Set>,
    scheme: Vec<Scheme>,
    #[serde(default)]
    sweep: Vec<Sweep>,
    #[serde(default)]
    claim: Vec<Claim>,
}

/// What is measured of every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComparisonKind {
    /// One backup of each set and its restore.
    Schemes,
    /// A backup of each version of a set into one repository; restores of the first and of the last.
    Versions,
}

/// What a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Versions {
    /// Each file of a set.
    #[default]
    Files,
    /// Each path of a set.
    Paths,
}

/// One configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scheme {
    name: String,
    file: Option<PathBuf>,
    #[serde(default)]
    config: toml::Table,
}

/// Values of a key of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    key: String,
    values: Vec<toml::Value>,
}

/// A scheme with its parameters: one line for each set.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the scheme.
    pub scheme: String,
    /// What tells it from other cases of the scheme, by the last part of the key.
    pub parameters: BTreeMap<String, Parameter>,
    /// Its whole configuration.
    pub config: Config,
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Parameter {
    /// A number; sizes in bytes.
    Number(f64),
    /// A name.
    Name(String),
}

impl Parameter {
    fn of(value: &toml::Value) -> Self {
        match value {
            toml::Value::Integer(number) => Parameter::Number(*number as f64),
            toml::Value::Float(number) => Parameter::Number(*number),
            toml::Value::String(text) => match text.parse::<ByteSize>() {
                Ok(size) => Parameter::Number(size.0 as f64),
                Err(_) => Parameter::Name(text.clone()),
            },
            other => Parameter::Name(other.to_string()),
        }
    }
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Parameter::Number(number) => write!(out, "{number}"),
            Parameter::Name(name) => out.write_str(name),
        }
    }
}

fn one() -> usize {
    1
}

/// Where data is looked for: the measurement's own directory, or else the environment's `FHRD_CORPUS`, or else
/// `corpus`.
pub fn corpus_directory(configured: Option<&Path>) -> PathBuf {
    let of_environment = || std::env::var_os("FHRD_CORPUS").map_or_else(|| PathBuf::from("corpus"), PathBuf::from);
    configured.map_or_else(of_environment, Path::to_path_buf)
}

impl Comparison {
    /// Parses a comparison's file; `origin` is its path.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values, naming the key; [`Error::Io`] for a scheme's
    /// file that cannot be read.
    pub fn parse(text: &str, origin: &Path) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.display().to_string(), message };
        let text: ComparisonFile = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if text.repeats == 0 {
            return Err(wrong("`repeats` must be at least 1".into()));
        }
        if text.sets.is_empty() || text.scheme.is_empty() {
            return Err(wrong("it takes one of `sets` and one `[[scheme]]` at least".into()));
        }
        if text.cold && !text.restore {
            return Err(wrong("`cold` is about restores: it takes `restore = true`".into()));
        }
        if text.memory && (text.cold || text.kind == ComparisonKind::Versions) {
            return Err(wrong("`memory` is for `kind = \"schemes\"` without `cold`".into()));
        }
        let mut cases = Vec::new();
        for scheme in &text.scheme {
            let table = scheme.table(origin)?;
            for (parameters, table) in combinations(table, &text.sweep) {
                let config = Config::deserialize(table)
                    .map_err(|error| wrong(format!("scheme `{}`: {}", scheme.name, error.message())))?;
                cases.push(Case { scheme: scheme.name.clone(), parameters, config });
            }
        }
        let cases = sized(cases, &text.chunk_bytes);
        for case in &cases {
            case.config.validate().map_err(|message| wrong(format!("scheme `{}`: {message}", case.scheme)))?;
        }
        let name = || origin.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Comparison {
            kind: text.kind,
            title: text.title.unwrap_or_else(name),
            corpus: corpus_directory(text.corpus.as_deref()),
            work: text.work,
            restore: text.restore,
            cold: text.cold,
            memory: text.memory,
            repeats: text.repeats,
            warm_up: text.warm_up,
            versions: text.versions,
            sets: text.sets,
            cases,
            claims: text.claim,
        })
    }

    /// The sets as they lie on the disk; what has to be made is made.
    ///
    /// # Errors
    /// Those of [`Set::sources`].
    pub fn sources(&self) -> Result<Vec<SetSource>> {
        let made = self.work.join("sets");
        let sources = self.sets.iter().map(|set| set.sources(&self.corpus, &made)).collect::<Result<Vec<_>>>()?;
        Ok(sources.concat())
    }
}

impl Scheme {
    /// Its file with what stands in the comparison laid over it.
    fn table(&self, origin: &Path) -> Result<toml::Table> {
        let Some(file) = &self.file else { return Ok(self.config.clone()) };
        let path = origin.parent().unwrap_or(Path::new("")).join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| Error::io("read configuration", &path, error))?;
        // Faults are told with the file's own name.
        Config::parse(&text, &path.display().to_string())?;
        let mut table = toml::from_str(&text)
            .map_err(|error| Error::Config { origin: path.display().to_string(), message: error.to_string() })?;
        lay_over(&mut table, &self.config);
        Ok(table)
    }
}

/// Puts the values of `upper` into `lower`, table by table.
fn lay_over(lower: &mut toml::Table, upper: &toml::Table) {
    for (key, value) in upper {
        match (lower.get_mut(key), value) {
            (Some(toml::Value::Table(lower)), toml::Value::Table(upper)) => lay_over(lower, upper),
            _ => {
                lower.insert(key.clone(), value.clone());
            }
        }
    }
}

/// `table` with every combination of the swept values.
fn combinations(table: toml::Table, sweeps: &[Sweep]) -> Vec<(BTreeMap<String, Parameter>, toml::Table)> {
    let mut all = vec![(BTreeMap::new(), table)];
    for sweep in sweeps {
        let with = |(parameters, table): &(BTreeMap<String, Parameter>, toml::Table), value: &toml::Value| {
            let mut upper = value.clone();
            for part in sweep.key.rsplit('.') {
                upper = toml::Value::Table(toml::Table::from_iter([(part.to_string(), upper)]));
            }
            let (mut parameters, mut table) = (parameters.clone(), table.clone());
            if let toml::Value::Table(upper) = upper {
                lay_over(&mut table, &upper);
            }
            let name = sweep.key.rsplit('.').next().unwrap_or_default();
            parameters.insert(name.to_string(), Parameter::of(value));
            (parameters, table)
        };
        all = all.iter().flat_map(|case| sweep.values.iter().map(move |value| with(case, value))).collect();
    }
    all
}

/// Every case at every average chunk length; as it is where there are none.
fn sized(cases: Vec<Case>, chunk_bytes: &[ByteSize]) -> Vec<Case> {
    if chunk_bytes.is_empty() {
        return cases;
    }
    let with = |case: &Case, avg: ByteSize| {
        let mut case = case.clone();
        let repository = &mut case.config.repository;
        repository.chunk_bytes_min = ByteSize(avg.0 / 2);
        repository.chunk_bytes_avg = avg;
        repository.chunk_bytes_max = ByteSize(avg.0.saturating_mul(4));
        case
    };
    cases.iter().flat_map(|case| chunk_bytes.iter().map(move |avg| with(case, *avg))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "kind = \"schemes\"\ncorpus = \"c\"\nwork = \"w\"\n";

    fn parse(text: &str) -> Result<Comparison> {
        Comparison::parse(&format!("{HEAD}{text}"), Path::new("x.toml"))
    }

    fn message(text: &str) -> String {
        parse(text).expect_err("must fail").to_string()
    }

    #[test]
    fn chunk_sizes_multiply_the_schemes_and_bring_their_bounds() {
        let text = "chunk_bytes = [\"16 KiB\", 131072]\nsets = [\"a\"]\n[[scheme]]\nname = \"one\"\n[[scheme]]\n\
            name = \"two\"\n[scheme.config.subdedup]\nstrategy = \"none\"\n";
        let cases = parse(text).expect("parses").cases;
        let summary = |case: &Case| {
            let RepositoryBounds(min, avg, max) = bounds(&case.config);
            (case.scheme.clone(), case.config.subdedup.strategy.to_string(), min >> 10, avg >> 10, max >> 10)
        };
        let line = |name: &str, strategy: &str, avg: u64| (name.into(), strategy.into(), avg / 2, avg, avg * 4);
        let expected = [
            line("one", "anchors", 16),
            line("one", "anchors", 128),
            line("two", "none", 16),
            line("two", "none", 128),
        ];
        assert_eq!(cases.iter().map(summary).collect::<Vec<_>>(), expected);
        let plain = parse("sets = [\"a\"]\n[[scheme]]\nname = \"one\"\n").expect("parses");
        assert_eq!((plain.repeats, plain.cold, plain.cases[0].config.clone()), (1, false, Config::default()));
    }

    struct RepositoryBounds(u64, u64, u64);

    fn bounds(config: &Config) -> RepositoryBounds {
        let repository = &config.repository;
        RepositoryBounds(repository.chunk_bytes_min.0, repository.chunk_bytes_avg.0, repository.chunk_bytes_max.0)
    }

    #[test]
    fn sweeps_multiply_and_a_file_is_laid_under_the_scheme() {
        let directory = tempfile::tempdir().expect("a folder");
        std::fs::write(directory.path().join("base.toml"), "[subdedup]\nstrategy = \"none\"\ndepth_max = 3\n")
            .expect("writes");
        let text = format!(
            "{HEAD}sets = [\"a\"]\n[[scheme]]\nname = \"one\"\nfile = \"base.toml\"\n[scheme.config.subdedup]\n\
            depth_max = 5\n[[sweep]]\nkey = \"compress.level\"\nvalues = [1, 9]\n[[sweep]]\n\
            key = \"container.bytes_target\"\nvalues = [\"4 MiB\"]\n"
        );
        let cases = Comparison::parse(&text, &directory.path().join("x.toml")).expect("parses").cases;
        let summary = |case: &Case| {
            let config = &case.config;
            let parameters: Vec<String> =
                case.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
            (
                config.subdedup.strategy.to_string(),
                config.subdedup.depth_max,
                config.compress.level,
                parameters.join(", "),
            )
        };
        let line = |level| ("none".to_string(), 5, level, format!("bytes_target 4194304, level {level}"));
        assert_eq!(cases.iter().map(summary).collect::<Vec<_>>(), [line(1), line(9)]);
        std::fs::write(directory.path().join("base.toml"), "[subdedup]\nstrategy = 1\n").expect("writes");
        let error = Comparison::parse(&text, &directory.path().join("x.toml")).expect_err("wrong").to_string();
        assert!(error.contains("base.toml") && error.contains("strategy"), "{error}");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_by_name() {
        let sets = "sets = [\"a\"]\n[[scheme]]\nname = \"one\"\n";
        for (text, part) in [
            (format!("repeats = 0\n{sets}"), "repeats"),
            (format!("cold = true\n{sets}"), "restore"),
            (format!("chunk_byte = [1]\n{sets}"), "chunk_byte"),
            (format!("chunk_bytes = [\"1 GiB\"]\n{sets}"), "chunk_bytes"),
            (format!("{sets}[scheme.config.subdedup]\nstrategy = \"magic\"\n"), "scheme `one`: `subdedup.strategy`"),
            ("sets = []\nscheme = []\n".into(), "sets"),
            ("sets = [{ name = \"x\" }]\n[[scheme]]\nname = \"one\"\n".into(), "set `x` takes one of `paths`"),
            (format!("{sets}[[sweep]]\nkey = \"compress.levels\"\nvalues = [1]\n"), "levels"),
            (format!("{sets}[[sweep]]\nkey = \"compress.level\"\nvalues = [99]\n"), "compress.level"),
        ] {
            let message = message(&text);
            assert!(message.contains(part) && message.contains("x.toml"), "{message}");
        }
    }
}
