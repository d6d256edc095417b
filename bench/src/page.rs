//! A page of several measurements: `kind = "page"`.
//!
//! Each `[[measurement]]` names a configuration `file`, relative to the page. The keys in `with` replace its keys at
//! the top level, so that a second page can measure less: fewer sets, rounds, blocks or schemes. Unlike a measurement
//! that runs alone, one of a page leaves out sets, classes and families whose data is missing.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};
use serde::Deserialize;

use super::comparison::corpus_directory;
use super::data::{DataFile, DataHashes, paths_read};
use super::experiment::{Experiment, PAGE, parse};

/// The configuration as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageFile {
    kind: String,
    measurement: Vec<PagePart>,
    #[serde(default)]
    paper: Vec<Paper>,
    /// Directory of the manifests that pin the data, relative to the page.
    manifests: Option<PathBuf>,
}

/// A paper, as the page of verdicts introduces it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its name in claims.
    pub source: String,
    /// Its title, and what it claims.
    pub about: String,
    /// The picture below that.
    pub picture: Option<PaperPicture>,
}

/// Values that the page of verdicts draws for a paper.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperPicture {
    /// The measurement, as the page names it.
    pub file: PathBuf,
    /// Field of its lines.
    pub figure: String,
    /// Title.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
}

impl Paper {
    /// The name of the file of its picture.
    pub fn picture_name(&self) -> String {
        format!("claims-{}.svg", self.source.to_lowercase().replace(' ', "-"))
    }
}

/// A measurement of a page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PagePart {
    /// Its configuration, relative to the page.
    file: PathBuf,
    /// Keys at the top level that replace those of the file.
    #[serde(default)]
    with: toml::Table,
}

/// A measurement that is ready to run.
pub struct PlannedExperiment {
    /// Path of its configuration.
    pub path: PathBuf,
    /// Text of its configuration, as it runs.
    pub text: String,
    /// The measurement.
    pub experiment: Experiment,
    /// Data that is missing, and left out.
    pub missing: Vec<String>,
    /// Whether the missing data leaves nothing to measure.
    pub is_empty: bool,
    /// Directory of the manifests of the data, if a page names it.
    pub manifests: Option<PathBuf>,
}

/// Lists of a configuration whose elements name data, and what a reason calls an element.
const LISTS: [(&str, &str); 6] = [
    ("sets", "set"),
    ("class", "class"),
    ("family", "family"),
    ("pair", "pair"),
    ("run", "run"),
    ("program", "program"),
];

/// The measurements of the file at `path`: itself, or those of a page.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read; [`Error::Config`] for invalid ones.
pub fn planned(path: &Path) -> Result<Vec<PlannedExperiment>> {
    let text = read(path)?;
    let Some(page) = PageFile::parse(&text, path)? else {
        return Ok(vec![PlannedExperiment::new(path.into(), text)?]);
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let manifests = page.manifests.as_ref().map(|manifests| directory.join(manifests));
    let planned = |part: &PagePart| Ok(PlannedExperiment { manifests: manifests.clone(), ..part.planned(directory)? });
    page.measurement.iter().map(planned).collect()
}

/// The papers that the page at `path` introduces; none if the file is a measurement.
///
/// # Errors
/// Fails as [`planned`] does.
pub fn papers(path: &Path) -> Result<Vec<Paper>> {
    Ok(PageFile::parse(&read(path)?, path)?.map_or_else(Vec::new, |page| page.paper))
}

impl PageFile {
    /// Parses the text of the file at `path`; `None` if it is a measurement.
    fn parse(text: &str, path: &Path) -> Result<Option<Self>> {
        let wrong = |message: String| Error::Config { origin: path.display().to_string(), message };
        let table: toml::Table = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if table.get("kind").and_then(toml::Value::as_str) != Some(PAGE) {
            return Ok(None);
        }
        let page: PageFile = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        debug_assert_eq!(page.kind, PAGE);
        Ok(Some(page))
    }
}

impl PagePart {
    fn planned(&self, directory: &Path) -> Result<PlannedExperiment> {
        let path = directory.join(&self.file);
        let text = read(&path)?;
        if self.with.is_empty() {
            return PlannedExperiment::new(path, text)?.without_missing();
        }
        let wrong = |message: String| Error::Config { origin: path.display().to_string(), message };
        let mut table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for (key, value) in &self.with {
            table.insert(key.clone(), value.clone());
        }
        let text = toml::to_string(&table).map_err(|error| wrong(error.to_string()))?;
        PlannedExperiment::new(path, text)?.without_missing()
    }
}

impl PlannedExperiment {
    fn new(path: PathBuf, text: String) -> Result<Self> {
        let experiment = parse(&text, &path)?;
        Ok(PlannedExperiment { path, text, experiment, missing: Vec::new(), is_empty: false, manifests: None })
    }

    /// The files of the corpus that it reads.
    ///
    /// # Errors
    /// [`Error::Io`] if one cannot be read; [`Error::Config`] for an invalid text; [`Error::Interrupted`].
    pub fn data(&self, hashes: &mut DataHashes, stop: &AtomicBool) -> Result<Vec<DataFile>> {
        let wrong = |message: String| Error::Config { origin: self.path.display().to_string(), message };
        let table: toml::Table = toml::from_str(&self.text).map_err(|error| wrong(error.to_string()))?;
        let own = table.get("corpus").and_then(toml::Value::as_str);
        // Manifests name what is in a corpus of its own by the path of that, too.
        let prefix = own.map_or_else(String::new, |own| format!("{own}/"));
        hashes.of(&paths_read(&table), &corpus_directory(own.map(Path::new)), &prefix, stop)
    }

    /// The measurement without the data that is missing.
    fn without_missing(self) -> Result<Self> {
        let missing = self.experiment.outline().missing;
        if missing.is_empty() {
            return Ok(self);
        }
        let wrong = |message: String| Error::Config { origin: self.path.display().to_string(), message };
        let mut table: toml::Table = toml::from_str(&self.text).map_err(|error| wrong(error.to_string()))?;
        let mut left_out = 0;
        for (list, label) in LISTS {
            let Some(toml::Value::Array(elements)) = table.get_mut(list) else { continue };
            let before = elements.len();
            let is_missing = |element: &toml::Value| {
                let name = element.as_str().or_else(|| element.get("name")?.as_str()).unwrap_or_default();
                missing.iter().any(|reason| reason.starts_with(&format!("{label} `{name}`:")))
            };
            elements.retain(|element| !is_missing(element));
            left_out += before - elements.len();
        }
        let is_empty =
            LISTS.iter().any(|(list, _)| table.get(*list).is_some_and(|list| list.as_array() == Some(&Vec::new())));
        if is_empty || left_out < missing.len() {
            return Ok(PlannedExperiment { missing, is_empty: true, ..self });
        }
        let text = toml::to_string(&table).map_err(|error| wrong(error.to_string()))?;
        Ok(PlannedExperiment { missing, ..PlannedExperiment::new(self.path, text)? })
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_replaces_keys_of_its_measurements() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("corpus")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        put("a.toml", "kind = \"schemes\"\nwork = \"w\"\nsets = [\"x\", \"y\"]\n[[scheme]]\nname = \"one\"\n");
        put(
            "page.toml",
            "kind = \"page\"\n[[measurement]]\nfile = \"a.toml\"\n[[measurement]]\nfile = \"a.toml\"\n\
            with = { chunk_bytes = [\"8 KiB\", \"16 KiB\"] }\n",
        );
        let runs = |name: &str| -> Vec<usize> {
            let planned = planned(&directory.path().join(name)).unwrap();
            planned.iter().map(|part| part.experiment.outline().runs.len()).collect()
        };
        assert_eq!((runs("a.toml"), runs("page.toml")), (vec![1], vec![1, 2]));
        let planned_page = planned(&directory.path().join("page.toml")).unwrap();
        assert!(planned_page.iter().all(|part| part.is_empty && part.missing.len() == 2), "no data is there");
        put("corpus/y", "data");
        put(
            "b.toml",
            &format!(
                "kind = \"page\"\n[[measurement]]\nfile = \"a.toml\"\nwith = {{ corpus = {:?} }}\n",
                directory.path().join("corpus")
            ),
        );
        let part = planned(&directory.path().join("b.toml")).unwrap().remove(0);
        assert!(!part.is_empty && part.missing.len() == 1 && !part.text.contains("\"x\""), "{}", part.text);
        let message = |text: &str| {
            put("page.toml", text);
            planned(&directory.path().join("page.toml")).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let unknown = message("kind = \"page\"\n[[measurement]]\nfile = \"a.toml\"\nwith = { colour = 1 }\n");
        assert!(unknown.contains("a.toml") && unknown.contains("colour"), "{unknown}");
        assert!(message("kind = \"page\"\n[[measurement]]\nfile = \"c.toml\"\n").contains("c.toml"));
        assert!(message("kind = \"page\"\nfiles = []\nmeasurement = []\n").contains("files"));
    }
}
