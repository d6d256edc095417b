//! A set: the data that a measurement reads. It is a path, or a table with a name and one of
//!
//! - `paths`: files and directories, with `*` for any part of a name;
//! - `tar`: an archive, and `members`: patterns of the files to read (default: all);
//! - `generate`: data generated from a seed;
//! - `mix`: model files and others at several shares. Each share is a set with the parameter `share`.
//!
//! The last three are written to a directory named by a digest of their description. It is renamed into place when it
//! is complete, and later runs use it again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::files::{expand, lack};
use super::generate::Generate;
use super::mix::{HeldFiles, Mix};

/// Files and directories that are backed up together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Set {
    /// Name in tables.
    pub name: String,
    origin: SetOrigin,
}

/// Origin of a set.
#[derive(Debug, Clone, PartialEq)]
enum SetOrigin {
    Paths(Vec<String>),
    Tar(PathBuf, Vec<String>),
    Generate(Generate),
    Mix(Mix),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetTable {
    name: String,
    paths: Option<Vec<String>>,
    tar: Option<PathBuf>,
    members: Option<Vec<String>>,
    generate: Option<Generate>,
    mix: Option<Mix>,
}

impl TryFrom<toml::Value> for Set {
    type Error = String;

    fn try_from(value: toml::Value) -> std::result::Result<Self, String> {
        if let toml::Value::String(path) = value {
            return Ok(Set { name: path.clone(), origin: SetOrigin::Paths(vec![path]) });
        }
        let table: SetTable = value.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        let name = table.name;
        if table.members.is_some() && table.tar.is_none() {
            return Err(format!("set `{name}`: `members` needs `tar`"));
        }
        let origin = match (table.paths, table.tar, table.generate, table.mix) {
            (Some(paths), None, None, None) if !paths.is_empty() => SetOrigin::Paths(paths),
            (None, Some(tar), None, None) => SetOrigin::Tar(tar, table.members.unwrap_or_else(|| vec!["**".into()])),
            (None, None, Some(generate), None) => SetOrigin::Generate(generate),
            (None, None, None, Some(mix)) => SetOrigin::Mix(mix),
            _ => return Err(format!("set `{name}` needs one of `paths`, `tar`, `generate` and `mix`")),
        };
        let fault = match &origin {
            SetOrigin::Generate(generate) => generate.fault(),
            SetOrigin::Mix(mix) => mix.fault(),
            _ => None,
        };
        fault.map_or_else(|| Ok(Set { name: name.clone(), origin }), |fault| Err(format!("set `{name}`: {fault}")))
    }
}

/// Parses a table that describes a set and has other `keys` as well: those keys, and the set.
///
/// # Errors
/// The message of the first error.
pub fn set_with<T: for<'a> Deserialize<'a>>(
    value: toml::Value,
    keys: &[&str],
) -> std::result::Result<(T, Set), String> {
    let mut rest: toml::Table = value.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
    let own = keys.iter().filter_map(|key| Some((key.to_string(), rest.remove(*key)?))).collect::<toml::Table>();
    let own = toml::Value::Table(own).try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
    Ok((own, Set::try_from(toml::Value::Table(rest))?))
}

/// A set on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSource {
    /// Name in tables.
    pub name: String,
    /// Files and directories, absolute, without links.
    pub paths: Vec<PathBuf>,
    /// Parameters that distinguish it from other sets of the same origin.
    pub parameters: BTreeMap<String, u64>,
    /// What it holds, if it is a mixture.
    pub held: Option<HeldFiles>,
}

impl Set {
    /// The files of the set. Data that is missing is written below `made`.
    ///
    /// # Errors
    /// [`Error::Io`] for the first missing path; errors of writing the data.
    pub fn sources(&self, corpus: &Path, made: &Path) -> Result<Vec<SetSource>> {
        let source = |paths: Vec<PathBuf>| {
            let real = |path: &PathBuf| std::fs::canonicalize(path).map_err(|error| Error::io("find", path, error));
            let paths = paths.iter().map(real).collect::<Result<_>>()?;
            Ok(SetSource { name: self.name.clone(), paths, parameters: BTreeMap::new(), held: None })
        };
        match &self.origin {
            SetOrigin::Paths(patterns) => {
                let paths = patterns.iter().map(|pattern| expand(corpus, pattern)).collect::<Result<Vec<_>>>()?;
                Ok(vec![source(paths.concat())?])
            }
            SetOrigin::Tar(archive, members) => {
                let archive = corpus.join(archive);
                let metadata = archive.metadata().map_err(|error| Error::io("find", &archive, error))?;
                let identity = format!("{} {} {:?}", archive.display(), metadata.len(), metadata.modified().ok());
                let directory = make(made, &(identity, members), |directory| unpack(&archive, members, directory))?;
                Ok(vec![source(vec![directory])?])
            }
            SetOrigin::Generate(generate) => {
                let directory = make(made, generate, |directory| generate.write(directory))?;
                Ok(vec![source(vec![directory])?])
            }
            SetOrigin::Mix(mix) => mix.shares.iter().map(|share| self.mixture(mix, *share, corpus, made)).collect(),
        }
    }

    fn mixture(&self, mix: &Mix, share: u64, corpus: &Path, made: &Path) -> Result<SetSource> {
        let files = mix.choose(corpus, share)?;
        let origin = ("whole files", corpus.display().to_string(), files.identity());
        let directory = make(made, &origin, |directory| files.write(corpus, directory))?;
        let path = std::fs::canonicalize(&directory).map_err(|error| Error::io("find", &directory, error))?;
        let parameters = BTreeMap::from([("share".to_string(), share)]);
        Ok(SetSource { name: self.name.clone(), paths: vec![path], parameters, held: Some(files.held()) })
    }

    /// Whether its data is generated.
    pub fn is_generated(&self) -> bool {
        matches!(self.origin, SetOrigin::Generate(_))
    }

    /// The reason why the set cannot be read or written from `corpus`, if there is one. Writes nothing.
    pub fn missing(&self, corpus: &Path) -> Option<String> {
        let all = |patterns: &[String]| {
            patterns.iter().find_map(|pattern| lack(corpus, pattern)).map(|error| error.to_string())
        };
        match &self.origin {
            SetOrigin::Paths(patterns) => all(patterns),
            SetOrigin::Tar(archive, _) => all(&[archive.display().to_string()]),
            SetOrigin::Generate(_) => None,
            SetOrigin::Mix(mix) => all(&mix.models).or_else(|| all(&mix.others)),
        }
    }
}

/// The directory for `origin` below `made`. `write` fills it if it does not exist.
fn make<O: Serialize>(made: &Path, origin: &O, write: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let description =
        serde_json::to_vec(origin).map_err(|error| Error::internal(format!("cannot name a set: {error}")))?;
    let digest = blake3::hash(&description).to_hex();
    let (directory, partial) = (made.join(&digest[..16]), made.join(format!("{}.partial", &digest[..16])));
    if directory.is_dir() {
        return Ok(directory);
    }
    match std::fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("remove", &partial, error)),
        _ => {}
    }
    std::fs::create_dir_all(&partial).map_err(|error| Error::io("create", &partial, error))?;
    write(&partial)?;
    std::fs::rename(&partial, &directory).map_err(|error| Error::io("rename", &partial, error))?;
    Ok(directory)
}

/// Unpacks the regular files of an archive whose names match one of `members`.
fn unpack(archive: &Path, members: &[String], directory: &Path) -> Result<()> {
    let fail = |error| Error::io("unpack", archive, error);
    let pattern =
        |member: &String| glob::Pattern::new(member).map_err(|error| Error::Usage(format!("{member}: {error}")));
    let patterns = members.iter().map(pattern).collect::<Result<Vec<_>>>()?;
    let file = std::fs::File::open(archive).map_err(fail)?;
    let mut unpacked = 0;
    let mut entries = tar::Archive::new(file);
    for entry in entries.entries().map_err(fail)? {
        let mut entry = entry.map_err(fail)?;
        let name = entry.path().map_err(fail)?.into_owned();
        let is_wanted = patterns.iter().any(|pattern| pattern.matches_path(&name));
        if entry.header().entry_type().is_file() && is_wanted {
            unpacked += u64::from(entry.unpack_in(directory).map_err(fail)?);
        }
    }
    match unpacked {
        0 => Err(Error::Usage(format!("{} has no file that matches {}", archive.display(), members.join(" ")))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::files_below;
    use super::*;

    #[derive(Deserialize)]
    struct Sets {
        sets: Vec<Set>,
    }

    fn parse(set: &str) -> Result<Set, String> {
        let parsed: Result<Sets, _> = toml::from_str(&format!("sets = [{set}]"));
        parsed.map(|mut sets| sets.sets.remove(0)).map_err(|error| error.to_string())
    }

    fn below(directory: &Path) -> Vec<(String, u64)> {
        let named = |path: &PathBuf| {
            (path.strip_prefix(directory).unwrap().display().to_string(), path.metadata().unwrap().len())
        };
        files_below(directory).unwrap().iter().map(named).collect()
    }

    #[test]
    fn a_path_and_a_list_of_patterns_are_sets() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.img", "b.img", "c"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let root = directory.path().canonicalize().unwrap();
        let sources = |set: &str| parse(set).unwrap().sources(&root, &root);
        let expected =
            SetSource { name: "c".into(), paths: vec![root.join("c")], parameters: BTreeMap::new(), held: None };
        assert_eq!(sources("\"c\"").unwrap(), [expected]);
        let found = sources("{ name = \"x\", paths = [\"*.img\", \"c\"] }").unwrap();
        assert_eq!(found[0].paths, [root.join("a.img"), root.join("b.img"), root.join("c")]);
        let error = sources("\"d\"").unwrap_err().to_string();
        assert!(error.contains("/d"), "{error}");
        assert!(parse("\"d\"").unwrap().missing(&root).is_some() && parse("\"c\"").unwrap().missing(&root).is_none());
    }

    #[test]
    fn members_of_an_archive_are_unpacked_once_into_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in [("p/a.py", "one"), ("p/q/b.py", "three"), ("p/c.txt", "x")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        std::fs::write(directory.path().join("s.tar"), archive.into_inner().unwrap()).unwrap();
        let set = parse("{ name = \"py\", tar = \"s.tar\", members = [\"**/*.py\"] }").unwrap();
        let made = directory.path().join("made");
        let sources = set.sources(directory.path(), &made).unwrap();
        assert_eq!(below(&sources[0].paths[0]), [("p/a.py".into(), 3), ("p/q/b.py".into(), 5)]);
        std::fs::write(sources[0].paths[0].join("marker"), "").unwrap();
        assert_eq!(set.sources(directory.path(), &made).unwrap(), sources);
        assert!(sources[0].paths[0].join("marker").exists(), "the directory is not written again");
        let none = parse("{ name = \"py\", tar = \"s.tar\", members = [\"*.rs\"] }").unwrap();
        assert!(none.sources(directory.path(), &made).unwrap_err().to_string().contains("*.rs"));
    }

    #[test]
    fn a_mixture_has_whole_files_near_its_share() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for (name, bytes) in [("m/a", 400), ("m/b", 400), ("m/c", 400), ("o/a", 500), ("o/b", 450), ("o/c", 500)] {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), vec![7; bytes]).unwrap();
        }
        let text = "{ name = \"mix\", mix = { models = [\"m/b\", \"m\"], others = [\"o/*\"], bytes = 1400, \
            shares = [0, 30, 60, 100] } }";
        let made = root.join("made");
        let sources = parse(text).unwrap().sources(root, &made).unwrap();
        let shares: Vec<_> = sources.iter().map(|source| (source.name.as_str(), source.parameters["share"])).collect();
        assert_eq!(shares, [("mix", 0), ("mix", 30), ("mix", 60), ("mix", 100)]);
        let held: Vec<_> = sources.iter().map(|source| source.held.unwrap()).collect();
        let of = |versions, relatives, percent| HeldFiles { versions, relatives, percent };
        // Of 1400 bytes, three others are nearest; 30 % are two models at least; 60 % are two of them, too.
        assert_eq!(held, [of(3, 0, 0), of(2, 2, 46), of(2, 2, 46), of(0, 3, 100)]);
        let files: Vec<_> = sources.iter().map(|source| below(&source.paths[0])).collect();
        assert_eq!(files[1], ["models/m/a", "models/m/b", "others/o/a", "others/o/b"].map(named(root)));
        assert_eq!(sources[1].paths, sources[2].paths, "equal files are written once");
        std::fs::write(root.join("m/b"), vec![8; 401]).unwrap();
        let again = parse(text).unwrap().sources(root, &made).unwrap();
        assert_ne!(again[1].paths, sources[1].paths, "other data is another mixture");
        let more = parse(&text.replace("1400", "5000")).unwrap();
        let error = more.sources(root, &made).unwrap_err().to_string();
        assert!(error.contains("too few"), "{error}");
    }

    /// The name in a mixture with the length of the file that it is a copy of.
    fn named(root: &Path) -> impl Fn(&str) -> (String, u64) {
        |name| {
            let of = name.split_once('/').unwrap().1;
            (name.to_string(), root.join(of).metadata().unwrap().len())
        }
    }

    #[test]
    fn a_set_can_have_keys_of_its_owner() {
        #[derive(Deserialize)]
        struct Owner {
            layers: Option<u32>,
        }
        let table = |text: &str| toml::Value::Table(toml::from_str(text).unwrap());
        let read = |text: &str| set_with::<Owner>(table(text), &["layers"]);
        let (owner, set) = read("name = \"x\"\nlayers = 3\npaths = [\"a\"]").unwrap();
        assert_eq!((owner.layers, set.name.as_str(), set.is_generated()), (Some(3), "x", false));
        assert!(read("name = \"x\"\nlayer = 3\npaths = [\"a\"]").err().unwrap().contains("`layer`"));
        assert!(read("name = \"x\"\nlayers = -3\npaths = [\"a\"]").is_err());
    }

    #[test]
    fn invalid_sets_are_refused_by_name() {
        for (text, part) in [
            ("{ name = \"x\" }", "one of `paths`"),
            ("{ name = \"x\", paths = [\"a\"], z = 1 }", "unknown field `z`"),
            ("{ paths = [\"a\"] }", "missing field `name`"),
            ("{ name = \"x\", paths = [] }", "one of `paths`"),
            ("{ name = \"x\", paths = [\"a\"], members = [\"b\"] }", "`tar`"),
            ("{ name = \"x\", generate = { seed = 1 } }", "`models`, `text`, `images`, `sweep`"),
            ("{ name = \"x\", mix = { models = [], others = [], bytes = 1, shares = [101] } }", "percents"),
            ("1", "invalid type"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
