//! Repositories of every format version, frozen: today's program reads them to the last byte.
//!
//! The first program of format 1 wrote `tests/fixtures/v1/repository`. `expected.json` beside it lists what its
//! snapshots hold, `counts.json` what it consists of. `tests/fixtures/v1-models` is the same for models. The fixtures of
//! a format that is not released yet are written again by `FHRD_WRITE_FIXTURES=1` (or `models`) `cargo test --test it
//! compatibility`, with a new key. Format 1 is released: its fixtures are frozen, and the variable is refused.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fhrd::config::Config;
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::container::Operation;
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::repo::read::{ChunkReader, RecipeWalk};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot::{self, Snapshot};
use fhrd::repo::tree::TreeCursor;
use fhrd::wire::FORMAT_VERSION;
use rustix::fs::{
    AtFlags, CWD, FileType, IFlags, Mode, Timespec, Timestamps, ioctl_getflags, ioctl_setflags, mknodat, utimensat,
};

use crate::program::{Place, finished, number};
use crate::trees::{Looks, Random, assert_same, describe};
use crate::weights::{Tensor, bfloat16, float32, gguf, npy, safetensors, tuned, weights, zip};

/// What each snapshot holds, by its tag.
type Expected = BTreeMap<String, BTreeMap<String, Looks>>;

/// Small chunks, so that a small repository has many, and floats in planes.
const CHUNKS: &str = "[repository]\nchunk_bytes_min = 4096\nchunk_bytes_avg = 8192\nchunk_bytes_max = 32768\n\
[model]\ncodec = \"all-planes\"\n";
/// The second backup: chains of one link, so that literal bytes are copied, and a frame for each chunk, so that
/// incompressible ones are stored raw.
const FLAT: &str = "[subdedup]\ndepth_max = 1\n[compress]\nframe_bytes = 0\n";

/// Released format versions, whose fixtures are frozen.
const RELEASED_FORMATS: &[u16] = &[1];

/// Whether the environment asks for new fixtures of this name.
///
/// # Panics
/// If the format is released.
pub fn is_rewrite_wanted(name: &str) -> bool {
    let is_wanted = std::env::var_os("FHRD_WRITE_FIXTURES").is_some_and(|value| value == name);
    assert!(!(is_wanted && RELEASED_FORMATS.contains(&FORMAT_VERSION)), "fixtures of a released format are frozen");
    is_wanted
}

/// The directory of the fixture.
fn fixture() -> &'static Path {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
        if is_rewrite_wanted("1") {
            write_fixture(&directory);
        }
        directory
    })
}

fn expected() -> Expected {
    serde_json::from_slice(&fs::read(fixture().join("expected.json")).unwrap()).unwrap()
}

fn set_time(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Gives everything below `directory` fixed times, and modes that the umask has no say in.
pub fn settle(directory: &Path) {
    let mut names: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for (number, path) in names.iter().enumerate() {
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        let name = path.file_name().unwrap().as_bytes();
        if kind.is_dir() {
            settle(path);
        } else if kind.is_file() {
            let mode = if name == b"script" { 0o4751 } else { 0o640 };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        set_time(path, if name == b"old" { -2 } else { 1_600_000_000 + number as i64 });
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o750)).unwrap();
    set_time(directory, 1_500_000_000);
}

fn write_first_tree(tree: &Path, random: &mut Random) {
    for directory in ["below/deeper", "empty-directory", "many"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let text = random.text(60_000);
    fs::write(tree.join("edited"), &text).unwrap();
    let mut alike = text.clone();
    alike.splice(9_000..9_010, *b"changed here, too");
    fs::write(tree.join("below/alike"), alike).unwrap();
    fs::write(tree.join("floats"), random.floats(12_000)).unwrap();
    fs::write(tree.join("below/deeper/incompressible"), random.bytes(60_000)).unwrap();
    // More references than one recipe holds, of few chunks.
    fs::write(tree.join("repeated"), random.text(20_000).repeat(1000)).unwrap();
    fs::write(tree.join("old"), b"before 1970").unwrap();
    fs::write(tree.join("script"), b"#!/bin/sh\n").unwrap();
    fs::write(tree.join("empty"), b"").unwrap();
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"caf\xe9 \x01")), b"a name that is not UTF-8").unwrap();
    for number in 0..300 {
        fs::write(tree.join(format!("many/{number:03}")), number.to_string()).unwrap();
    }
    let mut sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &random.text(5000), 1 << 20).unwrap();
    sparse.flush().unwrap();
    std::os::unix::fs::symlink("../nowhere", tree.join("below/link")).unwrap();
    fs::hard_link(tree.join("edited"), tree.join("below/other-name")).unwrap();
    #[cfg(not(target_vendor = "apple"))]
    mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

fn write_second_tree(tree: &Path, random: &mut Random) {
    let mut text = fs::read(tree.join("edited")).unwrap();
    for at in [20_000, 35_000, 50_000] {
        text.splice(at..at + 3, *b"an insertion amid the text");
    }
    text.truncate(59_000);
    fs::write(tree.join("edited"), text).unwrap();
    fs::write(tree.join("new"), random.text(3_000)).unwrap();
    fs::write(tree.join("more-incompressible"), random.bytes(20_000)).unwrap();
    fs::remove_file(tree.join("old")).unwrap();
    fs::remove_file(tree.join("many/150")).unwrap();
}

fn write_fixture(directory: &Path) {
    let place = Place::new();
    let work = std::env::temp_dir().join("fhrd-fixture");
    let tree = work.join("tree");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&tree).unwrap();
    let mut random = Random(2024);
    let mut expected = Expected::new();
    for (number, (tag, text)) in
        [("first", CHUNKS.to_string()), ("second", format!("{CHUNKS}{FLAT}"))].iter().enumerate()
    {
        let config = place.path("config.toml");
        fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        let run = |words: &[&str]| finished(place.command(&work, words).output().unwrap(), tag);
        if number == 0 {
            run(&["init", "--config", config]);
            write_first_tree(&tree, &mut random);
        } else {
            write_second_tree(&tree, &mut random);
        }
        settle(&tree);
        run(&["backup", "tree", "--config", config, "--host", "fixture", "--tag", tag]);
        expected.insert(tag.to_string(), describe(&tree));
    }
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).unwrap();
    copy_directory(&place.repository(), &directory.join("repository"));
    fs::write(directory.join("expected.json"), serde_json::to_vec(&expected).unwrap()).unwrap();
    fs::write(directory.join("counts.json"), serde_json::to_vec(&cover(&directory.join("repository"))).unwrap())
        .unwrap();
    fs::remove_dir_all(work).unwrap();
}

pub fn copy_directory(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::create_dir_all(to).unwrap();
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The fixture's repository in a place of its own.
fn place() -> Place {
    let place = Place::new();
    copy_directory(&fixture().join("repository"), &place.repository());
    place
}

fn snapshots(repository: &Repository) -> BTreeMap<String, (String, Snapshot)> {
    let (named, damaged) = snapshot::list(repository.store.as_ref()).unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    named.into_iter().map(|named| (named.snapshot.tags[0].clone(), (named.id.to_string(), named.snapshot))).collect()
}

#[test]
fn version_1_restores_to_the_last_byte() {
    let place = place();
    let snapshots = snapshots(&Repository::open_at(place.repository()).unwrap());
    let expected = expected();
    assert_eq!(snapshots.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (tag, (id, snapshot)) in &snapshots {
        let target = place.path(tag);
        let report = place.run(&["restore", id, "--target", target.to_str().unwrap()]);
        let want = &expected[tag];
        assert_same(want, &describe(&target.join("tree")), tag);
        let count = |kind: &str| want.values().filter(|looks| looks.kind == kind).count() as u64;
        assert_eq!(number(&report, "files"), count("file"));
        assert_eq!(number(&report, "directories"), count("directory"));
        assert_eq!(number(&report, "others"), count("symlink") + count("fifo"));
        assert_eq!((number(&report, "damaged"), number(&report, "problems")), (0, 0));
        assert_eq!(snapshot.host, "fixture");
    }
    assert_eq!(snapshots["second"].1.parent.unwrap().to_string(), snapshots["first"].0);
}

#[test]
fn flags_that_version_1_has_not_stored_stay_as_they_are() {
    let place = place();
    let (id, _) = &snapshots(&Repository::open_at(place.repository()).unwrap())["first"];
    let target = place.path("target");
    let restore = ["restore", id, "--target", target.to_str().unwrap(), "--overwrite", "always", "--verify"];
    place.run(&restore);
    let names = fs::read_dir(target.join("tree")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        names.filter(|path| path.symlink_metadata().unwrap().is_file() && path.metadata().unwrap().len() > 0).collect();
    files.sort();
    // One changes, so that it is replaced. The directory is locked, too.
    fs::write(&files[0], b"other content").unwrap();
    let locked = [files[0].clone(), files[1].clone(), target.join("tree")];
    let flags = |path: &Path| ioctl_getflags(File::open(path).unwrap()).map(|flags| flags.bits() & 0x70);
    let set = |path: &PathBuf, bits: u32| {
        let now = ioctl_getflags(File::open(path).unwrap())?.bits() & !0x70;
        ioctl_setflags(File::open(path).unwrap(), IFlags::from_bits_retain(now | bits))
    };
    if let Err(error) = locked.iter().try_for_each(|path| set(path, 0x10 | 0x40)) {
        locked.iter().for_each(|path| _ = set(path, 0));
        return eprintln!("NOT TESTED: file flags of {}: {error}", target.display());
    }
    let report = place.run(&restore);
    let found = locked.each_ref().map(|path| flags(path));
    locked.iter().rev().for_each(|path| set(path, 0).unwrap());
    assert_eq!((number(&report, "replaced"), number(&report, "problems")), (1, 0));
    assert_eq!(found, [Ok(0x50); 3]);
}

/// What the fixture is there to cover.
#[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Covered {
    containers: usize,
    frames_by_codec: [usize; 3],
    entries: usize,
    whole: usize,
    copies: usize,
    literal_copies: usize,
    features: usize,
    chunks: usize,
    holes: usize,
    recipes: usize,
    /// Recipes of the largest file, all levels.
    recipes_max: usize,
}

fn cover_containers(repository: &Repository, listing: &ContainerListing, covered: &mut Covered) {
    for id in &listing.containers {
        let container_index = read_container_index(repository.store.as_ref(), id).unwrap();
        covered.containers += 1;
        covered.entries += container_index.entries.len();
        container_index.frames.iter().for_each(|frame| covered.frames_by_codec[usize::from(frame.codec)] += 1);
        for entry in &container_index.entries {
            let operations = container_index.operations(entry);
            covered.whole += usize::from(operations.is_empty());
            covered.features += container_index.features(entry).len();
            covered.copies += operations.iter().filter(|operation| matches!(operation, Operation::Copy { .. })).count();
            covered.literal_copies +=
                operations.iter().filter(|operation| matches!(operation, Operation::LiteralCopy { .. })).count();
        }
    }
}

fn cover_tree(reader: &mut ChunkReader, content: Option<ContentReference>, covered: &mut Covered) {
    let mut cursor = TreeCursor::open(content);
    while let Some(node) = cursor.next(reader).unwrap() {
        if node.kind == fhrd::repo::tree::NodeKind::Directory {
            cover_tree(reader, node.content, covered);
            continue;
        }
        let Some(content) = node.content else { continue };
        let mut walk = RecipeWalk::new(content);
        while let Some(reference) = walk.next(reader).unwrap() {
            match reference {
                ContentReference::Hole { .. } => covered.holes += 1,
                _ => covered.chunks += 1,
            }
        }
        covered.recipes += walk.recipes_read;
        covered.recipes_max = covered.recipes_max.max(walk.recipes_read);
    }
}

fn cover(path: &Path) -> Covered {
    let repository = Repository::open_at(path).unwrap();
    let listing = Arc::new(ContainerListing::take(&repository.store).unwrap());
    assert!(listing.damaged.is_empty() && listing.orphans().is_empty() && listing.segments().len() == 2);
    let mut covered = Covered::default();
    cover_containers(&repository, &listing, &mut covered);
    let mut reader = ChunkReader::new(&repository, listing);
    for (_, snapshot) in snapshots(&repository).into_values() {
        cover_tree(&mut reader, snapshot.root, &mut covered);
    }
    covered
}

#[test]
fn version_1_has_what_it_is_there_to_cover() {
    let place = place();
    let covered = cover(&place.repository());
    let text = fs::read(fixture().join("counts.json")).unwrap();
    assert_eq!(covered, serde_json::from_slice(&text).unwrap());
    let Covered { frames_by_codec, copies, literal_copies, features, holes, recipes_max, .. } = covered;
    assert!(frames_by_codec.iter().all(|frames| *frames > 0), "{frames_by_codec:?}");
    assert!(copies > 0 && literal_copies > 0 && features > 0 && holes > 0 && recipes_max > 1);
}

#[test]
fn version_1_is_sound() {
    let place = place();
    let repository = Repository::open_at(place.repository()).unwrap();
    let report = check(&repository, &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, Vec::<String>::new());
    assert_eq!((report.snapshots, report.segments, report.unreferenced_containers), (2, 2, 0));
}

#[test]
fn version_1_can_be_written_to() {
    let place = place();
    let last = place.path("last");
    place.run(&["restore", "latest", "--target", last.to_str().unwrap()]);
    let report = finished(place.command(&last, &["backup", "tree", "--force"]).output().unwrap(), "backup");
    assert_eq!(number(&report, "chunks_new"), 0, "cut, named and found as then: {report}");
    let again = place.path("again");
    place.run(&["restore", "latest", "--target", again.to_str().unwrap()]);
    assert_same(&expected()["second"], &describe(&again.join("tree")), "after one more backup");
}

fn models_fixture() -> &'static Path {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1-models");
        if is_rewrite_wanted("models") {
            write_models_fixture(&directory);
        }
        directory
    })
}

/// A base, its cast, a fine-tune of each kind of change, the base again in other files, quantised tensors.
fn write_models(tree: &Path, second: bool) {
    let base = weights(1, 1 << 15);
    let one = |dtype, bytes: Vec<u8>| safetensors(&[Tensor::new("w", dtype, &[128, 256], bytes)]);
    let mut quantised = Random(5).bytes(34 * 2048);
    let mut files = vec![("base", one("F32", float32(&base))), ("cast", one("BF16", bfloat16(&base)))];
    if second {
        quantised.iter_mut().step_by(40).for_each(|byte| *byte = byte.wrapping_add(1));
        let mut sparse = base.clone();
        sparse[7000..7100].iter_mut().for_each(|weight| *weight *= 1.01);
        files = vec![
            ("dense", one("BF16", bfloat16(&tuned(&base, 2, 0.0003)))),
            ("single", one("F32", float32(&tuned(&base, 3, 0.0003)))),
            ("sparse", one("F32", float32(&sparse))),
            ("same.npz", zip(&[("w.npy", &npy("<f4", "128, 256", &float32(&base)))])),
        ];
    }
    let name = if second { "q8-second.gguf" } else { "q8.gguf" };
    files.push((name, gguf(&[("blk.0.w", 8, &[64, 1024], &quantised)])));
    for (name, bytes) in files {
        fs::write(tree.join(name), bytes).unwrap();
    }
}

fn write_models_fixture(directory: &Path) {
    let place = Place::new();
    let work = std::env::temp_dir().join("fhrd-models-fixture");
    let tree = work.join("tree");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&tree).unwrap();
    let run = |words: &[&str]| finished(place.command(&work, words).output().unwrap(), "fixture");
    run(&["init"]);
    for (tag, second) in [("first", false), ("second", true)] {
        write_models(&tree, second);
        settle(&tree);
        run(&["backup", "tree", "--host", "fixture", "--tag", tag]);
    }
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).unwrap();
    copy_directory(&place.repository(), &directory.join("repository"));
    fs::write(directory.join("expected.json"), serde_json::to_vec(&describe(&tree)).unwrap()).unwrap();
    fs::remove_dir_all(work).unwrap();
}

#[test]
fn models_of_version_1_restore_to_the_last_byte_and_are_known_again() {
    let place = Place::new();
    copy_directory(&models_fixture().join("repository"), &place.repository());
    let last = place.path("last");
    place.run(&["restore", "latest", "--target", last.to_str().unwrap()]);
    let expected = serde_json::from_slice(&fs::read(models_fixture().join("expected.json")).unwrap()).unwrap();
    assert_same(&expected, &describe(&last.join("tree")), "restored");
    let repository = Repository::open_at(place.repository()).unwrap();
    let report = check(&repository, &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, Vec::<String>::new());
    let listing = ContainerListing::take(&repository.store).unwrap();
    let mut deltas = 0;
    for id in &listing.containers {
        let container_index = read_container_index(repository.store.as_ref(), id).unwrap();
        let is_delta = |entry| matches!(container_index.operations(entry).first(), Some(Operation::Delta { .. }));
        deltas += container_index.entries.iter().filter(|entry| is_delta(entry)).count();
    }
    assert!(deltas >= 5, "{deltas} deltas");
    let models = place.run(&["models"]);
    assert_eq!(models.as_array().unwrap().len(), 8, "{models}");
    let report = finished(place.command(&last, &["backup", "tree", "--force"]).output().unwrap(), "backup");
    assert_eq!(number(&report, "chunks_new"), 0, "cut, named and found as then: {report}");
}
