//! The configuration of a comparison: schemes × parameters × sets of real files.
//!
//! `kind = "schemes"` measures every set as a whole, `kind = "versions"` its files or paths one after another, and
//! `kind = "saves"` the time to save and to load each of them, `kind = "collection"` that of garbage collection,
//! `kind = "scaling"` the CPU time of each stage.
//!
//! 1. Each `[[scheme]]` lists its differences from the defaults: a configuration `file`, relative to this one, and
//!    then the keys in `config`.
//! 2. Every length in `chunk_bytes` makes a case of every scheme. The shortest chunk has half that average, the
//!    longest four times it.
//! 3. Each `[[sweep]]` names a key of the configuration and its values. Every combination is a case.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use fhrd::config::Config;
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::claim::Claim;
use super::data::{Set, SetSource};

/// A comparison of configurations.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Kind of the comparison.
    pub kind: ComparisonKind,
    /// Title of the report.
    pub title: String,
    /// Directory that the sets' paths are relative to.
    pub corpus: PathBuf,
    /// Directory for repositories and restored files, which are removed after use, and for generated sets, which stay.
    pub work: PathBuf,
    /// Whether to restore, too, and to compare with the source byte for byte.
    pub restore: bool,
    /// Whether the repository's files are dropped from the page cache before a restore.
    pub cold: bool,
    /// Whether repositories and restored files are in memory, if the system has a file system there with enough space.
    pub memory: bool,
    /// Number of rounds. Values are medians over them.
    pub repeats: usize,
    /// Number of rounds before them that do not count.
    pub warm_up: usize,
    /// What a version is. Not for `kind = "schemes"`.
    pub versions: Versions,
    /// Numbers of versions after which the newest is loaded, or garbage is collected. Only for `kind = "saves"` and
    /// `"collection"`.
    pub at: Vec<usize>,
    /// Sets to back up.
    pub sets: Vec<Set>,
    /// Every scheme with every combination of parameters, in the order of the file.
    pub cases: Vec<Case>,
    /// Claims of papers about the measured values.
    pub claims: Vec<Claim>,
}

/// The configuration as written.
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
    at: Vec<usize>,
    #[serde(default)]
    chunk_bytes: Vec<ByteSize>,
    sets: Vec<Set>,
    scheme: Vec<Scheme>,
    #[serde(default)]
    sweep: Vec<Sweep>,
    #[serde(default)]
    claim: Vec<Claim>,
}

/// Kind of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComparisonKind {
    /// A backup and a restore of each set.
    Schemes,
    /// A backup of each version of a set into one repository, and restores of the first and the last.
    Versions,
    /// The same, with the time of each backup, and restores of the newest version in between.
    Saves,
    /// The time of mark and sweep after numbers of versions, each in a repository of its own.
    Collection,
    /// The CPU time of each stage of a backup and a restore of each set, and what follows for other machines.
    Scaling,
}

/// What a version of a set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Versions {
    /// Each file of a set.
    #[default]
    Files,
    /// Each path of a set.
    Paths,
}

/// A configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scheme {
    name: String,
    file: Option<PathBuf>,
    #[serde(default)]
    config: toml::Table,
}

/// Values of a configuration key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    key: String,
    values: Vec<toml::Value>,
}

/// A scheme with its parameters: a line for each set.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the scheme.
    pub scheme: String,
    /// Parameters that distinguish it from other cases of the scheme, by the last part of the key.
    pub parameters: BTreeMap<String, Parameter>,
    /// The whole configuration.
    pub config: Config,
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Parameter {
    /// A number. Sizes are in bytes.
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

/// Directory of the data: the configured one, else the environment's `FHRD_CORPUS`, else `corpus`.
pub fn corpus_directory(configured: Option<&Path>) -> PathBuf {
    let of_environment = || std::env::var_os("FHRD_CORPUS").map_or_else(|| PathBuf::from("corpus"), PathBuf::from);
    configured.map_or_else(of_environment, Path::to_path_buf)
}

impl Comparison {
    /// Parses TOML text. `origin` is the path of the file.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and invalid values, with the key; [`Error::Io`] if the file of a
    /// scheme cannot be read.
    pub fn parse(text: &str, origin: &Path) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.display().to_string(), message };
        let text: ComparisonFile = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if text.repeats == 0 {
            return Err(wrong("`repeats` must be at least 1".into()));
        }
        if text.sets.is_empty() || text.scheme.is_empty() {
            return Err(wrong("`sets` and `[[scheme]]` must have at least one element each".into()));
        }
        if text.cold && !text.restore {
            return Err(wrong("`cold` needs `restore = true`".into()));
        }
        if text.memory && (text.cold || text.kind != ComparisonKind::Schemes) {
            return Err(wrong("`memory` needs `kind = \"schemes\"` and no `cold`".into()));
        }
        let has_numbers = matches!(text.kind, ComparisonKind::Saves | ComparisonKind::Collection);
        if has_numbers == text.at.is_empty() || text.at.contains(&0) {
            return Err(wrong(
                "`at` needs `kind = \"saves\"` or `\"collection\"`, which need it: numbers of versions, at least 1"
                    .into(),
            ));
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
            at: text.at,
            sets: text.sets,
            cases,
            claims: text.claim,
        })
    }

    /// The sets on disk. Generates those that are missing.
    ///
    /// # Errors
    /// Errors of [`Set::sources`].
    pub fn sources(&self) -> Result<Vec<SetSource>> {
        let made = self.work.join("sets");
        let sources = self.sets.iter().map(|set| set.sources(&self.corpus, &made)).collect::<Result<Vec<_>>>()?;
        Ok(sources.concat())
    }
}

impl Scheme {
    /// The scheme's file, overlaid with its `config`.
    fn table(&self, origin: &Path) -> Result<toml::Table> {
        let Some(file) = &self.file else { return Ok(self.config.clone()) };
        let path = origin.parent().unwrap_or(Path::new("")).join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| Error::io("read configuration", &path, error))?;
        // Errors name the scheme's file.
        Config::parse(&text, &path.display().to_string())?;
        let mut table = toml::from_str(&text)
            .map_err(|error| Error::Config { origin: path.display().to_string(), message: error.to_string() })?;
        overlay(&mut table, &self.config);
        Ok(table)
    }
}

/// Overlays `lower` with the values of `upper`, table by table.
fn overlay(lower: &mut toml::Table, upper: &toml::Table) {
    for (key, value) in upper {
        match (lower.get_mut(key), value) {
            (Some(toml::Value::Table(lower)), toml::Value::Table(upper)) => overlay(lower, upper),
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
                overlay(&mut table, &upper);
            }
            let name = sweep.key.rsplit('.').next().unwrap_or_default();
            parameters.insert(name.to_string(), Parameter::of(value));
            (parameters, table)
        };
        all = all.iter().flat_map(|case| sweep.values.iter().map(move |value| with(case, value))).collect();
    }
    all
}

/// Every case at every average chunk length. Without lengths, the cases as they are.
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
    fn every_scheme_has_a_case_for_every_chunk_size() {
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
    fn sweeps_multiply_and_a_scheme_overlays_its_file() {
        let directory = tempfile::tempdir().expect("a directory");
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
    fn invalid_values_are_refused_by_name() {
        let sets = "sets = [\"a\"]\n[[scheme]]\nname = \"one\"\n";
        for (text, part) in [
            (format!("repeats = 0\n{sets}"), "repeats"),
            (format!("cold = true\n{sets}"), "restore"),
            (format!("at = [1]\n{sets}"), "`at`"),
            (format!("chunk_byte = [1]\n{sets}"), "chunk_byte"),
            (format!("chunk_bytes = [\"1 GiB\"]\n{sets}"), "chunk_bytes"),
            (format!("{sets}[scheme.config.subdedup]\nstrategy = \"magic\"\n"), "scheme `one`: `subdedup.strategy`"),
            ("sets = []\nscheme = []\n".into(), "sets"),
            ("sets = [{ name = \"x\" }]\n[[scheme]]\nname = \"one\"\n".into(), "set `x` needs one of `paths`"),
            (format!("{sets}[[sweep]]\nkey = \"compress.levels\"\nvalues = [1]\n"), "levels"),
            (format!("{sets}[[sweep]]\nkey = \"compress.level\"\nvalues = [99]\n"), "compress.level"),
        ] {
            let message = message(&text);
            assert!(message.contains(part) && message.contains("x.toml"), "{message}");
        }
    }
}
