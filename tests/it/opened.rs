//! Opened files: compressed streams that are stored as what they unpack to, and come back bit for bit.

mod damaged;
pub mod streams;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use fhrd::backup::{BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::{Config, OpenStreams};
use fhrd::metrics::Progress;
use fhrd::mount::{ROOT, ReadOnlyFiles, SnapshotFiles};
use fhrd::read_at::ReadAt;
use fhrd::repo::Repository;
use fhrd::repo::features::upgrade;
use fhrd::repo::read::Reader;
use fhrd::repo::salts::Salts;
use fhrd::repo::snapshot;
use fhrd::repo::tree::{Node, find_entry};
use fhrd::store::{FaultyStore, InjectedFault};

use crate::compatibility::copy_directory;
use crate::copied::assert_restores;
use crate::input::{TestRepository, edit, files, write};
use crate::program::{Place, finished, number};
use crate::trees::Random;
use streams::gzip;

/// A repository with a known key, whose configuration is older than opened files.
fn place() -> Place {
    let place = Place::with_repository();
    place.run(&["upgrade"]);
    place
}

/// A configuration that opens what can be opened.
fn config(open: OpenStreams) -> Config {
    let mut config = TestRepository::config();
    (config.read.open, config.read.recheck_seconds) = (open, 0);
    config
}

/// A version of an archive, as its bytes before compression.
fn archive(version: u64) -> Vec<u8> {
    edit(&mut Random(50 + version), &Random(1).text(1_500_000), 20 * version as usize)
}

/// A large and a small file that can be opened, one of two members, one with bytes behind it, and two that cannot.
fn write_input(directory: &Path, version: u64) -> BTreeMap<String, Vec<u8>> {
    let (text, small) = (archive(version), Random(9).text(40_000));
    let mut cut = gzip(&small);
    cut.truncate(cut.len() / 2);
    let files = [
        ("archive.tar.gz", gzip(&text)),
        ("below/small.gz", gzip(&small)),
        ("below/members.gz", [gzip(&small), gzip(&text[..300_000])].concat()),
        ("below/behind.gz", [gzip(&small), Random(3).bytes(5000)].concat()),
        ("cut.gz", cut),
        ("false.gz", [&[0x1f, 0x8b, 8, 0][..], &Random(4).bytes(700_000)].concat()),
        ("plain.txt", small),
    ];
    files.iter().for_each(|(name, bytes)| write(directory.join(name), bytes));
    files.map(|(name, bytes)| (name.to_string(), bytes)).into()
}

fn back_up(repository: &Repository, source: &Path, config: &Config) -> fhrd::Result<()> {
    let source = TreeSource { bare: true, ..TreeSource::new(vec![source.into()], "test") };
    let request = BackupRequest::new(source);
    backup(repository, config, &request, &Progress::default(), &Arc::default()).map(drop)
}

/// The entry of the latest snapshot whose path ends so.
fn entry(repository: &Repository, source: &Path, name: &str) -> Node {
    let (snapshots, _) = snapshot::list(repository.store.as_ref()).unwrap();
    let latest = snapshots.iter().max_by_key(|named| named.snapshot.time_ns).unwrap();
    let path = Path::new(source.file_name().unwrap()).join(name);
    let reader = Reader::open(repository).unwrap();
    reader.lend(|reader| Ok(find_entry(reader, latest, &path)?.1)).unwrap().unwrap()
}

fn is_opened(repository: &Repository, source: &Path, name: &str) -> bool {
    entry(repository, source, name).content.unwrap().rebuilt().is_some()
}

/// All bytes of a file.
fn whole(repository: &Repository, node: &Node) -> Vec<u8> {
    let (file, mut bytes) = (Reader::open(repository).unwrap().file(node.content, node.size).unwrap(), Vec::new());
    let copied = file.copy((0, u64::MAX), &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    copied.unwrap();
    bytes
}

/// Bytes of all containers of the repository in this directory.
fn stored_bytes(repository: &Path) -> u64 {
    let directory = repository.join("containers");
    files(&directory).iter().map(|name| fs::metadata(directory.join(name)).unwrap().len()).sum()
}

#[test]
fn files_are_opened_and_come_back_bit_for_bit() {
    let (repository, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let source = source.path().join("source");
    let input = write_input(&source, 0);
    let repository = repository.open();
    back_up(&repository, &source, &config(OpenStreams::Always)).unwrap();
    for name in input.keys() {
        let can_be_opened = !["cut.gz", "false.gz", "plain.txt"].contains(&name.as_str());
        let node = entry(&repository, &source, name);
        assert!(!can_be_opened || node.content.unwrap().rebuilt().is_some(), "{name}");
        assert_eq!(node.size, input[name].len() as u64, "{name}");
        assert!(whole(&repository, &node) == input[name], "{name}");
    }
    assert!(!is_opened(&repository, &source, "plain.txt") && !is_opened(&repository, &source, "false.gz"));
}

#[test]
fn ranges_at_any_offsets_are_what_the_file_has_also_through_a_mount() {
    let (repository, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let source = source.path().join("source");
    let input = write_input(&source, 0);
    let repository = repository.open();
    back_up(&repository, &source, &config(OpenStreams::Always)).unwrap();
    let expected = &input["archive.tar.gz"];
    let node = entry(&repository, &source, "archive.tar.gz");
    assert!(node.content.unwrap().rebuilt().is_some());
    let file = Reader::open(&repository).unwrap().file(node.content, node.size).unwrap();
    let (snapshots, _) = snapshot::list(repository.store.as_ref()).unwrap();
    let mounted = SnapshotFiles::new(&repository, snapshots).unwrap();
    let mut inode = ROOT;
    let path = mounted_path(&mounted, "source/archive.tar.gz");
    for name in path.split('/') {
        inode = mounted.look_up(inode, OsStr::new(name)).unwrap().unwrap_or_else(|| panic!("{name}")).inode;
    }
    let mut random = Random(7);
    for round in 0..60 {
        let from = random.below(expected.len() as u64 + 10) as usize;
        let len = random.below([100, 5000, 600_000][round % 3]) as usize;
        let want = &expected[from.min(expected.len())..(from + len).min(expected.len())];
        let mut got = vec![0; len];
        let read = file.read_at(from as u64, &mut got).unwrap();
        assert!(got[..read] == *want, "{from}, {len}");
        let mut copied = Vec::new();
        file.copy((from as u64, (from + len) as u64), &mut |part| {
            copied.extend_from_slice(part);
            Ok(())
        })
        .unwrap();
        assert!(copied == want, "{from}, {len}");
        assert!(mounted.read(inode, from as u64, len).unwrap().unwrap() == want, "{from}, {len}");
    }
}

/// Where the latest snapshot is in a mount.
fn mounted_path(mounted: &SnapshotFiles, path: &str) -> String {
    let latest = mounted.look_up(ROOT, OsStr::new("latest")).unwrap().unwrap().node;
    format!("{}/{path}", String::from_utf8(latest.link_target.unwrap()).unwrap())
}

#[test]
fn a_second_version_shares_the_plain_content_also_with_plain_files() {
    let source = tempfile::tempdir().unwrap();
    let source = source.path().join("source");
    let mut stored = BTreeMap::new();
    for open in [OpenStreams::Always, OpenStreams::Never] {
        let repository = TestRepository::with_known_key();
        let opened = repository.open();
        upgrade(&opened, false).unwrap();
        for version in 0..2 {
            write(source.join("archive.tar.gz"), &gzip(&archive(version)));
            back_up(&opened, &source, &config(open)).unwrap();
            let bytes = stored_bytes(&repository.path());
            stored.entry(open.name()).or_insert_with(Vec::new).push(bytes);
        }
        assert_eq!(is_opened(&opened, &source, "archive.tar.gz"), open == OpenStreams::Always);
        // The same content, as it is.
        write(source.join("archive.tar"), &archive(1));
        back_up(&opened, &source, &config(open)).unwrap();
        stored.entry(open.name()).or_default().push(stored_bytes(&repository.path()));
        for (name, bytes) in [("archive.tar.gz", gzip(&archive(1))), ("archive.tar", archive(1))] {
            assert!(whole(&opened, &entry(&opened, &source, name)) == bytes, "{open}: {name}");
        }
    }
    let more = |of: &str, at: usize| stored[of][at] - stored[of][at - 1];
    assert!(more("always", 1) * 4 < stored["always"][0], "{stored:?}");
    assert!(more("always", 2) * 10 < stored["always"][0], "{stored:?}");
}

#[test]
fn all_verbs_give_the_original_bytes() {
    let place = place();
    let input = write_input(&place.path("source"), 0);
    place.run(&["backup", "source", "--open", "always"]);
    let ls = place.command(&place.path("."), &["ls", "latest", "--long"]).output().unwrap();
    assert!(ls.status.success());
    for words in [
        &["check", "--read-data"][..],
        &["verify", "--sample", "100%"],
        &["stats", "latest"],
        &["stats", "--by-snapshot"],
    ] {
        let report = place.run(words);
        let none = [&report["defect_count"], &report["damaged"], &report["unreadable"]];
        assert!(none.iter().all(|count| count.as_u64().unwrap_or(0) == 0), "{words:?}: {report}");
    }
    let restored = place.run(&["restore", "latest", "--target", "back", "--verify"]);
    assert_eq!((number(&restored, "damaged"), number(&restored, "problems")), (0, 0), "{restored}");
    let base = place.path("back/source");
    for (name, bytes) in &input {
        assert!(fs::read(base.join(name)).unwrap() == *bytes, "{name}");
        let words = ["dump", &format!("latest:source/{name}")];
        let dumped = place.command(&place.path("."), &words).output().unwrap();
        assert!(dumped.stdout == *bytes, "{name}: {}", String::from_utf8_lossy(&dumped.stderr));
    }
    // All is there already, then a part of a file is not.
    let again = place.run(&["restore", "latest", "--target", "back", "--overwrite", "if-changed"]);
    assert_eq!(number(&again, "files"), 0, "{again}");
    fs::write(base.join("archive.tar.gz"), b"another").unwrap();
    let again = place.run(&["restore", "latest", "--target", "back", "--overwrite", "if-changed"]);
    assert_eq!(number(&again, "files"), 1, "{again}");
    assert!(fs::read(base.join("archive.tar.gz")).unwrap() == input["archive.tar.gz"]);
    let tar = place.command(&place.path("."), &["dump", "latest"]).stderr(Stdio::piped()).output().unwrap();
    assert!(
        tar.status.success()
            && tar.stdout.windows(512).step_by(512).any(|part| input["archive.tar.gz"].starts_with(part))
    );
}

#[test]
fn a_prune_keeps_what_opened_files_need_and_frees_it_with_them() {
    let place = place();
    let input = write_input(&place.path("source"), 0);
    place.run(&["backup", "source", "--open", "always"]);
    fs::write(place.path("other"), Random(8).bytes(900_000)).unwrap();
    let other = place.run(&["backup", "other"]);
    place.run(&["forget", other["snapshot"].as_str().unwrap(), "--prune", "--grace", "0s"]);
    place.run(&["check", "--read-data"]);
    place.run(&["restore", "latest", "--target", "back", "--verify"]);
    let base = place.path("back/source");
    assert!(fs::read(base.join("archive.tar.gz")).unwrap() == input["archive.tar.gz"]);
    fs::remove_file(place.path("source/archive.tar.gz")).unwrap();
    place.run(&["backup", "source", "--open", "always"]);
    place.run(&["forget", "--keep-last", "1", "--prune", "--grace", "0s"]);
    let left = stored_bytes(&place.repository());
    assert!(left < 900_000, "{left}");
    place.run(&["check", "--read-data"]);
}

#[test]
fn a_copy_has_opened_files_only_where_the_target_may_have_them() {
    let source = place();
    let input = write_input(&source.path("source"), 0);
    source.run(&["backup", "source", "--open", "always"]);
    let from = source.repository();
    let words = ["copy", "--from-repo", from.to_str().unwrap()];
    for kind in ["alike", "other key", "old"] {
        let (target, is_old) = (Place::new(), kind == "old");
        match kind {
            "alike" => drop(target.run(&["init", "--copy-chunker-params", "--from-repo", from.to_str().unwrap()])),
            "old" => {
                let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository");
                copy_directory(&frozen, &target.repository());
            }
            _ => drop(target.run(&["init"])),
        }
        target.run(&words);
        target.run(&["check", "--read-data"]);
        target.run(&["restore", "latest", "--host", &host(&source), "--target", "back", "--verify"]);
        for (name, bytes) in &input {
            assert!(fs::read(target.path("back/source").join(name)).unwrap() == *bytes, "{name}");
        }
        let repository = Repository::open_at(target.repository()).unwrap();
        let opened = opened_files(&repository);
        assert_eq!(opened > 0, !is_old, "{kind}: {opened}");
    }
}

fn host(place: &Place) -> String {
    let listed = place.run(&["snapshots"]);
    listed[0]["host"].as_str().unwrap().to_string()
}

/// Number of opened files in all snapshots.
fn opened_files(repository: &Repository) -> usize {
    let reader = Reader::open(repository).unwrap();
    let (snapshots, _) = snapshot::list(repository.store.as_ref()).unwrap();
    let mut opened = 0;
    for named in &snapshots {
        let mut chunks = reader.chunks();
        let mut levels = vec![fhrd::repo::tree::TreeCursor::open(named.snapshot.root)];
        while let Some(level) = levels.last_mut() {
            match level.next(&mut chunks).unwrap() {
                None => drop(levels.pop()),
                Some(node) if node.kind == fhrd::repo::tree::NodeKind::Directory => {
                    levels.push(fhrd::repo::tree::TreeCursor::open(node.content));
                }
                Some(node) => opened += usize::from(node.content.is_some_and(|content| content.rebuilt().is_some())),
            }
        }
    }
    opened
}

#[test]
fn a_repository_of_an_earlier_version_stores_files_as_they_are_until_it_is_upgraded() {
    let place = Place::new();
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository");
    copy_directory(&frozen, &place.repository());
    write_input(&place.path("source"), 0);
    place.run(&["backup", "source", "--open", "always"]);
    let opened = || opened_files(&Repository::open_at(place.repository()).unwrap());
    assert_eq!(opened(), 0);
    place.run(&["upgrade"]);
    place.run(&["backup", "source", "--open", "always", "--force"]);
    assert!(opened() >= 4, "{}", opened());
    place.run(&["check", "--read-data"]);
}

#[test]
fn a_diff_says_that_an_opened_and_a_closed_file_are_the_same() {
    let place = place();
    write_input(&place.path("source"), 0);
    let ids: Vec<String> = ["never", "always", "always"]
        .iter()
        .enumerate()
        .map(|(at, open)| {
            if at == 2 {
                fs::write(place.path("source/archive.tar.gz"), gzip(&archive(1))).unwrap();
            }
            let report = place.run(&["backup", "source", "--force", "--open", open]);
            report["snapshot"].as_str().unwrap().to_string()
        })
        .collect();
    for pair in [[0, 1], [1, 0]] {
        let report = place.run(&["diff", &ids[pair[0]], &ids[pair[1]]]);
        assert_eq!(
            (number(&report["summary"]["files"], "changed"), number(&report["summary"]["files"], "metadata")),
            (0, 0),
            "{report}"
        );
    }
    for pair in [[0, 2], [1, 2]] {
        let report = place.run(&["diff", &ids[pair[0]], &ids[pair[1]]]);
        assert_eq!(number(&report["summary"]["files"], "changed"), 1, "{report}");
    }
}

#[test]
fn containers_do_not_depend_on_the_number_of_workers() {
    let source = tempfile::tempdir().unwrap();
    let source = source.path().join("source");
    let first = TestRepository::new();
    let copies: Vec<(usize, TestRepository)> = [1, 2, 8].map(|workers| (workers, first.copy())).into();
    let mut expected: Vec<String> = Vec::new();
    for open in [OpenStreams::Always, OpenStreams::Auto] {
        for version in 0..2 {
            write_input(&source, version);
            write(source.join("archive-1.2.gz"), &gzip(&archive(version + 2)));
            let mut names = Vec::new();
            for (workers, repository) in &copies {
                let mut config = config(open);
                config.pipeline.workers = *workers;
                let repository = Repository { salts: Salts::fixed(version), ..repository.open() };
                let paths = vec![source.clone()];
                let tree = TreeSource { bare: true, parents: ParentChoice::ByPaths, ..TreeSource::new(paths, "test") };
                backup(&repository, &config, &BackupRequest::new(tree), &Progress::default(), &Arc::default()).unwrap();
                assert!(is_opened(&repository, &source, "archive-1.2.gz"), "{workers}");
            }
            for (_, repository) in &copies {
                let found = repository.names().into_iter().filter(|name| name.starts_with("containers"));
                names.push(found.collect::<Vec<_>>());
            }
            assert!(names.iter().all(|other| *other == names[0]), "{open}, {version}: {names:#?}");
            assert!(names[0].len() > expected.len());
            expected = names.swap_remove(0);
        }
    }
}

#[test]
fn every_operation_of_a_backup_may_fail() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    write(source.join("a.gz"), &gzip(&Random(1).text(900_000)));
    write(source.join("b.gz"), &gzip(&Random(2).text(20_000)));
    let (mut config, mut interrupted) = (config(OpenStreams::Always), 0);
    config.pipeline.workers = 1;
    for operation in 0.. {
        let place = directory.path().join(format!("repository-{operation}"));
        let mut repository = Repository::init_at(&place, &config.repository).unwrap();
        let sound = repository.clone();
        let cut = InjectedFault::PowerCut { operation, took_effect: operation % 2 == 0 };
        let store = Arc::new(FaultyStore::new(repository.store.clone(), cut));
        repository.store = store.clone();
        let request = BackupRequest::new(TreeSource::new(vec![source.clone()], "test"));
        let back_up = |repository| backup(repository, &config, &request, &Progress::default(), &Arc::default());
        interrupted += usize::from(back_up(&repository).is_err());
        let what = format!("operation {operation}");
        assert_restores(&sound, &source, &what);
        back_up(&sound).unwrap();
        assert!(assert_restores(&sound, &source, &what) >= 1, "{what}");
        if store.operations() <= operation {
            break;
        }
    }
    assert!(interrupted > 3, "{interrupted}");
}

#[test]
fn versions_of_archives_are_opened_with_auto_and_nothing_without() {
    let place = place();
    let source = place.path("source");
    write(source.join("data.gz"), &gzip(&archive(0)));
    write(source.join("notes.txt"), &Random(1).text(20_000));
    place.run(&["backup", "source", "--open", "auto"]);
    let opened = || opened_files(&Repository::open_at(place.repository()).unwrap());
    assert_eq!(opened(), 0, "nothing says that there are versions of it");
    write(source.join("data.gz"), &gzip(&archive(1)));
    write(source.join("tool-1.2.tar.gz"), &gzip(&archive(2)));
    place.run(&["backup", "source", "--open", "auto"]);
    assert_eq!(opened(), 2);
    place.run(&["backup", "source", "--force"]);
    assert_eq!(opened(), 2, "in the snapshot before");
    let refused = place.command(&place.path("."), &["backup", "source", "--open", "some"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    finished(place.command(&place.path("."), &["check", "--read-data"]).output().unwrap(), "check");
}
