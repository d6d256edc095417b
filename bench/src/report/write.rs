//! Writes the files of a report: `result.json`, `tables.md`, `report.html`, and `.hgrm` histograms of every stage of
//! every run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fhrd::error::{Error, Result};
use fhrd::metrics::{Distribution, StageMetrics};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::html::page;
use super::markdown::markdown;
use super::percentiles::hgrm;
use super::{Machine, Profile, Report};
use crate::claim::{Verdict, prose, tables};
use crate::data::DataFile;
use crate::page::Paper;

/// The content of `result.json`: the origin of a report and its results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReportDocument {
    /// Program and version.
    pub program: String,
    /// BLAKE3 of the program's file, 64 hex digits, which distinguishes builds.
    #[serde(default)]
    pub build: String,
    /// Commit of the checkout that has the configuration, 40 hex digits.
    pub commit: Option<String>,
    /// Whether tracked files differ from that commit.
    pub modified: bool,
    /// Start of the measurement (UTC).
    pub started: String,
    /// Duration of the measurement.
    pub seconds: f64,
    /// The machine.
    pub machine: Machine,
    /// The configuration.
    pub config: ConfigText,
    /// The files of the corpus that it read.
    #[serde(default)]
    pub data: Vec<DataFile>,
    /// Every line of the tables.
    pub lines: Vec<Value>,
    /// Claims of papers about the measured values.
    #[serde(skip_deserializing)]
    pub claims: Vec<Verdict>,
    /// Metrics of the stages of each run.
    pub profiles: Vec<Value>,
}

/// The configuration of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigText {
    /// Path as given.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

impl ReportDocument {
    /// Describes a report. `started` and `seconds` are its time, `text` is the content of the configuration at `path`.
    pub fn new(
        report: &Report,
        claims: Vec<Verdict>,
        (path, text): (&Path, &str),
        (started, seconds): (String, f64),
    ) -> Self {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ReportDocument {
            program: concat!("fhrd ", env!("CARGO_PKG_VERSION")).into(),
            build: build(),
            commit: git(directory, &["rev-parse", "HEAD"]).filter(|commit| !commit.is_empty()),
            modified: git(directory, &["status", "--porcelain", "--untracked-files=no"])
                .is_some_and(|text| !text.is_empty()),
            started,
            seconds,
            machine: Machine::here(),
            config: ConfigText { path: path.display().to_string(), text: text.into() },
            data: Vec::new(),
            lines: report.lines.clone(),
            claims,
            profiles: report.profiles.iter().map(profile).collect(),
        }
    }
}

impl ReportDocument {
    /// The document of a previous run, at `path`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read; [`Error::Usage`] if it is not the document of a run.
    pub fn load(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Error::io("read", path, error))?,
        };
        let wrong = |error| Error::Usage(format!("{} is not a result of this verb: {error}", path.display()));
        serde_json::from_str(&text).map(Some).map_err(wrong)
    }

    /// Command, commit, machine and date in one line.
    pub fn origin(&self, command: &str) -> String {
        let commit = self.commit.as_deref().and_then(|commit| commit.get(..10)).unwrap_or("unknown");
        let state = if self.modified { " and changes" } else { "" };
        let Machine { processor, processors, cpu_features, system, .. } = &self.machine;
        let machine = format!("{processor}, {processors} threads, {}, {system}", cpu_features.join(" "));
        format!("`{command}` · commit {commit}{state} · {machine} · {}", self.started)
    }

    /// How a run with `config` would differ from this one, if it would: another build, configuration or machine.
    pub fn age(&self, config: &str) -> Option<String> {
        let commit = self.commit.as_deref().and_then(|commit| commit.get(..10)).unwrap_or("unknown");
        let differs = [
            (self.build != build(), format!("another build, commit {commit}")),
            (without_claims(&self.config.text) != without_claims(config), "another configuration".to_string()),
            (self.machine != Machine::here(), "another machine".to_string()),
        ];
        let parts: Vec<String> = differs.into_iter().filter(|(differs, _)| *differs).map(|(_, text)| text).collect();
        (!parts.is_empty()).then(|| format!("measured {} by {}", self.started, parts.join(", ")))
    }
}

/// A configuration without its claims, which are judged again; `None` if it is no TOML.
fn without_claims(text: &str) -> Option<toml::Table> {
    let mut table: toml::Table = toml::from_str(text).ok()?;
    table.remove("claim");
    Some(table)
}

/// BLAKE3 of the running program's file; empty if it cannot be read.
fn build() -> String {
    let program = std::env::current_exe().and_then(std::fs::read);
    program.map_or_else(|_| String::new(), |bytes| blake3::hash(&bytes).to_hex().to_string())
}

/// Output of git in `directory`; `None` if git is missing or fails.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn profile(profile: &Profile) -> Value {
    let counts = |distribution: &Distribution| -> Vec<[u64; 2]> {
        distribution.counts().map(|(value, count)| [value, count]).collect()
    };
    let stage = |stage: &StageMetrics| {
        let occupancy: Vec<[f64; 2]> = stage.occupancy.means().map(|(at, mean)| [at, mean]).collect();
        json!({
            "summary": stage.summary(),
            "service_us": counts(&stage.service_us),
            "receive_wait_us": counts(&stage.receive_wait_us),
            "send_wait_us": counts(&stage.send_wait_us),
            "queue_depth": counts(&stage.queue_depth),
            "occupancy_by_seconds": occupancy,
        })
    };
    json!({"run": profile.name, "stages": profile.stages.iter().map(stage).collect::<Vec<_>>()})
}

/// The verdicts on the claims of several reports in words, with their origin. `command` wrote them.
pub fn claims_page(papers: &[Paper], documents: &[ReportDocument], command: &str) -> String {
    let title = "# Claims of papers and measured values\n\n";
    let more =
        "`claims-table.md` of the same report has every claim with its rule, its data and what explains its value.\n";
    format!("{title}{}{more}\n{}", origin(documents, command), prose(papers, &verdicts(documents)))
}

/// Every claim of several reports in tables, with their origin.
pub fn claims_table(documents: &[ReportDocument], command: &str) -> String {
    let files: Vec<&str> = documents.iter().map(|document| document.config.path.as_str()).collect();
    format!(
        "# Every claim\n\n{}Measured by {}. Each names its data, and datasets/README.md names the sources.\n\
        A row that another build, configuration or machine measured says so in its verdict.\n\n{}",
        origin(documents, command),
        files.join(", "),
        tables(&verdicts(documents)),
    )
}

fn verdicts(documents: &[ReportDocument]) -> Vec<Verdict> {
    documents.iter().flat_map(|document| document.claims.clone()).collect()
}

/// The line that says where the values of a page come from: command, commit, machine and date.
fn origin(documents: &[ReportDocument], command: &str) -> String {
    // The newest run is that of the build that writes the page.
    let Some(document) = documents.iter().max_by(|a, b| a.started.cmp(&b.started)) else { return String::new() };
    let minutes = documents.iter().map(|document| document.seconds).sum::<f64>() / 60.0;
    let files: BTreeMap<&str, u64> =
        documents.iter().flat_map(|document| &document.data).map(|file| (file.path.as_str(), file.bytes)).collect();
    let data = match files.len() {
        0 => String::new(),
        count => format!(
            "Read: {count} files of {:.1} GB. `result.json` of each measurement has their SHA-256.\n\n",
            files.values().sum::<u64>() as f64 / 1e9
        ),
    };
    format!("{}, {minutes:.0} minutes\n\n{data}", document.origin(command))
}

/// Writes the files below `directory` and replaces those of a previous run.
///
/// # Errors
/// [`Error::Io`]; a plot that cannot be drawn.
pub fn write(directory: &Path, report: &Report, document: &ReportDocument) -> Result<()> {
    let put = |name: &Path, bytes: &[u8]| {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(parent).map_err(|error| Error::io("create", parent, error))?;
        std::fs::write(&path, bytes).map_err(|error| Error::io("write", &path, error))
    };
    let result = serde_json::to_vec_pretty(document)
        .map_err(|error| Error::io("write", directory.join("result.json"), std::io::Error::from(error)))?;
    put(Path::new("result.json"), &result)?;
    put(Path::new("tables.md"), markdown(report, document).as_bytes())?;
    put(Path::new("report.html"), page(report, document)?.as_bytes())?;
    for (number, profile) in report.profiles.iter().enumerate() {
        for stage in &profile.stages {
            for (what, distribution) in [("work", &stage.service_us), ("input-wait", &stage.receive_wait_us)] {
                let name = format!("histograms/{number:02}-{}-{}-{what}.hgrm", plain(&profile.name), plain(stage.name));
                put(Path::new(&name), hgrm(distribution).as_bytes())?;
            }
        }
    }
    Ok(())
}

/// A name that is valid on every file system.
fn plain(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::claim::Untested;

    pub(in crate::report) fn document() -> ReportDocument {
        let untested = Untested {
            source: "A paper".into(),
            section: "5".into(),
            text: "it is small".into(),
            expected: "2 %".into(),
            reason: "other data".into(),
        };
        let verdict = Verdict { measured: Some(3.0), range: Some([3.0; 2]), unit: "%".into(), ..untested.verdict() };
        let origin = (Path::new("x/y.toml"), "[[scheme]]\n");
        ReportDocument::new(&Report::default(), vec![verdict], origin, ("2026-01-01T00:00:00Z".into(), 1.5))
    }

    #[test]
    fn the_files_have_every_count_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut stage = StageMetrics::new("read ahead");
        [1, 1, 2000].iter().for_each(|value| stage.service_us.record(*value));
        stage.occupancy.record(std::time::Duration::ZERO, 3);
        let profile = Profile { name: "code, 128 KiB: backup".into(), stages: vec![stage] };
        let report = Report { lines: vec![json!({"ratio": 2.5})], profiles: vec![profile], ..Report::default() };
        let described = ReportDocument::new(&report, Vec::new(), (directory.path(), ""), (String::new(), 0.0));
        write(directory.path(), &report, &described).unwrap();
        let text = std::fs::read_to_string(directory.path().join("result.json")).unwrap();
        let result: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&result["lines"][0]["ratio"], &result["commit"]), (&json!(2.5), &Value::Null));
        let stage = &result["profiles"][0]["stages"][0];
        assert_eq!(stage["service_us"][0], json!([1, 2]));
        assert_eq!(stage["service_us"][1][1], json!(1));
        assert_eq!(
            (&stage["summary"]["name"], &stage["occupancy_by_seconds"]),
            (&json!("read ahead"), &json!([[0.002, 3.0]]))
        );
        assert!(result["machine"]["processors"].as_u64() >= Some(1));
        let histogram = directory.path().join("histograms/00-code-128-KiB-backup-read-ahead-work.hgrm");
        assert!(std::fs::read_to_string(histogram).unwrap().contains("Total count    =            3]"));
        assert!(std::fs::read_to_string(directory.path().join("report.html")).unwrap().ends_with("</html>"));
    }

    #[test]
    fn the_claims_of_all_reports_are_one_table_with_its_origin() {
        let documents = [document(), document()];
        let page = claims_table(&documents, "fhrd bench x");
        assert!(page.starts_with("# Every claim") && page.contains("x/y.toml, x/y.toml"), "{page}");
        assert_eq!(
            page.matches("| 5 | it is small | 2 % | 3 % |  | not tested |  | other data |").count(),
            2,
            "{page}"
        );
        let prose = claims_page(&[], &documents, "fhrd bench x");
        assert!(prose.contains("| A paper | 2 | 0 | 0 | 0 | 0 | 0 | 2 |"), "{prose}");
        for page in [&page, &prose] {
            assert!(page.contains("`fhrd bench x` · commit ") && page.contains("2026-01-01T00:00:00Z"), "{page}");
        }
    }

    #[test]
    fn a_previous_run_is_read_and_another_build_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        assert!(ReportDocument::load(&path).unwrap().is_none());
        let written = document();
        std::fs::write(&path, serde_json::to_vec(&written).unwrap()).unwrap();
        let read = ReportDocument::load(&path).unwrap().unwrap();
        assert!(read.claims.is_empty() && read.config == written.config, "claims are judged again");
        assert_eq!(read.age("[[scheme]]\n"), None);
        assert_eq!(read.age("[[scheme]]\n[[claim]]\ntext = \"new\"\n"), None, "claims are no part of a measurement");
        let other = ReportDocument { build: "older".into(), ..read };
        let age = other.age("[[sweep]]\n").unwrap();
        assert!(age.contains("another build") && age.contains("another configuration"), "{age}");
        std::fs::write(&path, "{}").unwrap();
        assert!(ReportDocument::load(&path).unwrap_err().to_string().contains("result.json"));
    }

    #[test]
    fn the_commit_is_that_of_the_checkout_if_there_is_one() {
        let document =
            ReportDocument::new(&Report::default(), Vec::new(), (Path::new("Cargo.toml"), ""), (String::new(), 0.0));
        let is_checkout = Path::new("../.git").exists();
        assert_eq!(document.commit.is_some_and(|commit| commit.len() == 40), is_checkout);
    }
}
