//! Writes the fixtures. What only a remote store or an older repository gets is put by calls of the library.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::metrics::Progress;
use fhrd::repo::features::{Feature, bits};
use fhrd::repo::marks::{BadParts, Mark, MarkKind, Marks, PositionSet};
use fhrd::repo::paths::cache_directory;
use fhrd::repo::{Repository, bundle};
use fhrd::store::{BlobPrefix, MemoryStore, Store};
use fhrd::types::ContainerId;
use serde_json::Value;

use super::held::held;
use super::models::{write_base, write_blend, write_others, write_step};
use super::{Expected, Opened, below};
use crate::compatibility::{copy_directory, settle};
use crate::double::{Double, double_store, named};
use crate::input::{files, write};
use crate::opened::streams::gzip;
use crate::program::{Place, finished};
use crate::trees::Random;

/// Small chunks, so that a small repository has many, and all archives opened.
const CONFIG: &str = "[repository]\nchunk_bytes_min = 4096\nchunk_bytes_avg = 8192\nchunk_bytes_max = 32768\n\
[read]\nopen = \"always\"\n";
/// Where the bytes of a frame are in a container of one.
const IN_A_FRAME: usize = 600;

/// A copy of the repository in memory that is no local store.
struct FarStore(Arc<MemoryStore>);

double_store!(FarStore);

impl Double for FarStore {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn requests_max(&self) -> usize {
        8
    }
}

/// A fixture that is being written.
struct Writer {
    place: Place,
    opened: Opened,
    expected: Expected,
}

impl Writer {
    fn work(&self) -> PathBuf {
        self.place.path("work")
    }

    /// Notes what a snapshot of a directory holds.
    fn expect(&mut self, directory: &str, tag: &str) {
        let looks = below(&self.work()).into_iter().filter(|(name, _)| is_in(directory, name));
        self.expected.insert(tag.into(), looks.collect());
    }

    fn output(&self, words: &[&str]) -> Output {
        self.opened.command(&self.place, &self.work(), words).output().unwrap()
    }

    fn run(&self, words: &[&str]) -> Value {
        finished(self.output(words), &words.join(" "))
    }

    /// Backs up a directory. The id of the snapshot.
    fn back_up(&mut self, directory: &str, tag: &str, more: &[&str]) -> String {
        settle(&self.work().join(directory));
        let config = self.place.path("config.toml");
        let words = ["backup", directory, "--config", config.to_str().unwrap(), "--host", "fixture", "--tag", tag];
        let report = self.run(&[&words, more].concat());
        self.expect(directory, tag);
        report["snapshot"].as_str().unwrap().to_string()
    }

    /// The id of the snapshot with a tag.
    fn id_of(&self, tag: &str) -> String {
        let listed = self.run(&["snapshots"]);
        let has = |named: &&Value| named["tags"][0] == tag;
        listed.as_array().unwrap().iter().find(has).unwrap()["id"].as_str().unwrap().to_string()
    }

    fn containers(&self) -> Vec<String> {
        files(&self.place.repository()).into_iter().filter(|name| name.starts_with("containers/")).collect()
    }

    fn repository(&self) -> Repository {
        self.opened.repository(fhrd::store::open(self.place.repository()).unwrap())
    }
}

fn is_in(directory: &str, name: &str) -> bool {
    name.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn write_tree(tree: &Path, second: bool) {
    let mut random = Random(if second { 41 } else { 40 });
    let mut text = Random(3).text(24_000);
    if second {
        text.splice(9_000..9_010, *b"an insertion amid the text");
        write_others(&tree.join("models"));
    } else {
        write_base(&tree.join("models"));
        (0..70).for_each(|number| write(tree.join(format!("many/{number:03}")), &[b'a' + number % 3]));
    }
    write(tree.join("text"), &text);
    write(tree.join("archive.tar.gz"), &gzip(&text));
    write(tree.join("many/033"), &random.bytes(20));
}

/// A blend of two stored models, two steps of a training, the two shares of a job, and a published directory.
fn write_snapshots(writer: &mut Writer) {
    write_blend(&writer.work().join("blend"));
    writer.back_up("blend", "blend", &[]);
    for step in ["1", "2"] {
        write_step(&writer.work().join("run"), step.parse().unwrap());
        let (tag, metric) = (format!("step-{step}"), format!("loss=0.{step}5"));
        writer.back_up("run", &tag, &["--run", "tune", "--step", step, "--metric", &metric]);
    }
    (0..6).for_each(|number| write(writer.work().join(format!("job/d{number}/file")), &[number; 400]));
    for share in ["1/2", "2/2"] {
        let tag = format!("share-{}", &share[..1]);
        writer.back_up("job", &tag, &["--shard", share, "--group", "job"]);
    }
    for tag in ["share-1", "share-2"] {
        let listed = writer.run(&["ls", &writer.id_of(tag)]);
        let names: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|entry| entry["path"].as_str()).collect();
        writer.expected.get_mut(tag).unwrap().retain(|name, _| names.contains(&name.as_str()));
    }
    let models = writer.id_of("models");
    writer.run(&["publish", &format!("{models}:tree/models/base"), "me/base"]);
    let base = below(&writer.work().join("tree/models/base"));
    writer.expected.insert("published".into(), base);
}

/// A container that was damaged when a check read it, so that its chunks are stored again, and is sound now.
fn write_quarantine(writer: &mut Writer) {
    write(writer.work().join("lost/file"), &Random(12).bytes(3000));
    let before = writer.containers();
    writer.back_up("lost", "lost", &[]);
    let path = |name: &String| writer.place.repository().join(name);
    let new = writer.containers().into_iter().filter(|name| !before.contains(name));
    let path = path(&new.max_by_key(|name| fs::metadata(path(name)).unwrap().len()).unwrap());
    let sound = fs::read(&path).unwrap();
    let mut damaged = sound.clone();
    damaged[IN_A_FRAME] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, damaged).unwrap();
    assert!(!writer.output(&["check", "--read-data"]).status.success());
    writer.back_up("lost", "again", &["--force"]);
    fs::write(&path, sound).unwrap();
    let lost = writer.id_of("lost");
    writer.run(&["tag", &lost, "--add", "kept"]);
    let repository = writer.repository();
    let mut quarantine = (*Marks::read(repository.store.as_ref()).unwrap().quarantine).clone();
    assert!(!quarantine.is_empty());
    quarantine.insert(ContainerId([3; 32]), &BadParts::Whole);
    let (mut frames, mut entries) = (PositionSet::default(), PositionSet::default());
    frames.insert(1, 2);
    entries.insert(4, 9);
    quarantine.insert(ContainerId([4; 32]), &BadParts::Parts { frames, entries });
    Mark::new(MarkKind::Quarantine(quarantine), "test").save(repository.store.as_ref()).unwrap();
}

/// Backs up a directory into a copy of the repository in memory, and puts what came.
fn write_clues(writer: &mut Writer) {
    let source = writer.work().join("far");
    write(source.join("text"), &Random(13).text(12_000));
    settle(&source);
    let (memory, directory) = (Arc::new(MemoryStore::new()), writer.place.repository());
    for name in files(&directory) {
        memory.replace(&named(&name), &fs::read(directory.join(&name)).unwrap());
    }
    let repository = writer.opened.repository(Arc::new(FarStore(memory.clone())));
    let mut config = Config::default();
    config.read.recheck_seconds = 0;
    let mut tree = TreeSource { bare: true, ..TreeSource::new(vec![source], "fixture") };
    tree.labels.tags = vec!["far".into()];
    backup(&repository, &config, &BackupRequest::new(tree), &Progress::default(), &Arc::default()).unwrap();
    let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
    for blob in memory.list(BlobPrefix::All).unwrap() {
        let path = directory.join(blob.name.as_str());
        if !path.exists() {
            write(path, &memory.get(&blob.name, blob.len).unwrap());
        }
    }
    writer.expect("far", "far");
}

/// Writes a fixture into `directory`.
pub fn write_fixture(directory: &Path, is_encrypted: bool) {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).unwrap();
    let opened = Opened::new(directory, is_encrypted);
    let mut writer = Writer { place: Place::new(), opened, expected: BTreeMap::new() };
    fs::create_dir(writer.work()).unwrap();
    let config = writer.place.path("config.toml");
    fs::write(&config, CONFIG).unwrap();
    let config = config.to_str().unwrap();
    if is_encrypted {
        fs::write(directory.join("key-file"), Random(77).bytes(32)).unwrap();
        writer.run(&["init", "--config", config, "--encrypt", "--label", "first"]);
        writer.run(&["key", "rotate"]);
    } else {
        writer.run(&["init", "--config", config]);
    }
    for (tag, second) in [("base", false), ("models", true)] {
        write_tree(&writer.work().join("tree"), second);
        writer.back_up("tree", tag, &[]);
    }
    write_snapshots(&mut writer);
    write_quarantine(&mut writer);
    writer.run(&["cold", "set", "on"]);
    writer.run(&["parity", "set", "5%"]);
    write(writer.work().join("last/text"), b"with parity and hot indexes");
    writer.back_up("last", "last", &[]);
    writer.run(&["cold", "add"]);
    write_clues(&mut writer);
    let repository = writer.repository();
    let features = MarkKind::WriterFeatures(bits(&[Feature::Derivations, Feature::Listings]));
    Mark::new(features, "test").save(repository.store.as_ref()).unwrap();
    bundle::maintain(repository.store.as_ref(), 1).unwrap();
    let json = |name: &str, bytes: Vec<u8>| fs::write(directory.join(name), bytes).unwrap();
    json("expected.json", serde_json::to_vec(&writer.expected).unwrap());
    json("counts.json", serde_json::to_vec_pretty(&held(&repository)).unwrap());
    copy_directory(&writer.place.repository(), &directory.join("repository"));
}
