//! Tests of Read: files that change, grow or fail while they are read.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::config::RepositoryConfig;
use crate::filesystem::{Capturer, EntryChoice, Event, WalkPlan, Walker};
use crate::repo::tree::Node;
use crate::types::RepositoryKey;

const BATCH: usize = 4096;

struct Run {
    directory: tempfile::TempDir,
    progress: Progress,
    counts: Arc<ReadCounts>,
}

impl Run {
    fn new() -> Self {
        Run { directory: tempfile::tempdir().unwrap(), progress: Progress::default(), counts: Arc::default() }
    }

    fn worker(&self) -> ReadWorker<'_> {
        ReadWorker {
            pool: Arc::new(BufferPool::new(BATCH, 4)),
            hole_bytes_min: 1 << 16,
            model: ModelConfig::default(),
            progress: &self.progress,
            counts: self.counts.clone(),
            stop: Arc::default(),
            opener: FileOpener {
                key: RepositoryKey([7; 32]),
                directory: self.directory.path().into(),
                stop: Arc::default(),
            },
            scanner: AnchorScanner::new(&RepositoryConfig::default(), 1),
        }
    }

    fn file(&self, bytes: usize) -> (PathBuf, Node) {
        let path = self.directory.path().join("file");
        fs::write(&path, (0..bytes).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
        let node = captured(&path);
        (path, node)
    }

    fn problems(&self) -> u64 {
        self.counts.problems.load(Ordering::Relaxed)
    }
}

fn captured(path: &Path) -> Node {
    Capturer::new().capture_path(path, false, &mut Vec::new()).unwrap()
}

/// The location that a walk of the file's directory gives.
fn location(path: &Path) -> crate::filesystem::FileLocation {
    let plan = WalkPlan::bare(&[path.parent().unwrap().to_path_buf()]).unwrap();
    let mut walker = Walker::new(plan, Default::default(), EntryChoice::default());
    while let Some(event) = walker.next() {
        if let Event::Entry { node, .. } = event {
            return walker.location(&node);
        }
    }
    panic!("no file");
}

/// Bytes, breaks and the outcome of a batch.
fn content(batch: &ReadBatch) -> (Vec<u8>, usize, Option<Outcome>) {
    let (mut bytes, mut breaks, mut ended) = (Vec::new(), 0, None);
    for item in &batch.items {
        match item {
            ReadItem::Data(data) | ReadItem::Scanned(data, _) => bytes.extend_from_slice(data),
            ReadItem::Broken => breaks += 1,
            ReadItem::Tree(TreeItem::End { outcome, .. }) => ended = Some(*outcome),
            _ => {}
        }
    }
    (bytes, breaks, ended)
}

fn ranges(file: &Arc<OpenedFile>, bytes: u64) -> Vec<WalkItem> {
    (0..bytes / BATCH as u64).map(|at| WalkItem::range(file, at * BATCH as u64..(at + 1) * BATCH as u64)).collect()
}

fn batch(items: Vec<WalkItem>) -> WalkBatch {
    let mut batch = WalkBatch::default();
    items.into_iter().for_each(|item| batch.push(item));
    batch
}

#[test]
fn workers_share_an_open_file_and_the_end_waits_for_all_ranges() {
    let run = Run::new();
    let (path, node) = run.file(8 * BATCH);
    let sent = SentFile::default();
    let file = Arc::new(OpenedFile::new(SourceFile::open(&path, &node).unwrap(), Some(sent.clone())));
    let (mut first, mut second) = (ranges(&file, 8 * BATCH as u64), Vec::new());
    second.extend(first.drain(4..));
    second.push(WalkItem::End { file, small_holes: HoleMap::default() });
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| content(&run.worker().map(batch(second)).unwrap()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ended.is_finished(), "the end came before the first ranges");
        assert_eq!(sent.is_shareable(Duration::ZERO), None);
        let (mut bytes, breaks, none) = content(&run.worker().map(batch(first)).unwrap());
        let (rest, _, outcome) = ended.join().unwrap();
        bytes.extend(rest);
        assert_eq!((bytes, breaks, none, outcome), (fs::read(&path).unwrap(), 0, None, Some(Outcome::Complete)));
    });
    assert_eq!(sent.is_shareable(Duration::ZERO), Some(true));
    assert_eq!(run.problems(), 0);
}

#[test]
fn a_file_that_shrinks_is_broken_where_it_ends() {
    let run = Run::new();
    let (path, node) = run.file(8 * BATCH);
    let file = Arc::new(OpenedFile::new(SourceFile::open(&path, &node).unwrap(), None));
    let mut items = ranges(&file, 8 * BATCH as u64);
    items.push(WalkItem::End { file, small_holes: HoleMap::default() });
    fs::File::options().write(true).open(&path).unwrap().set_len(3 * BATCH as u64 + 10).unwrap();
    let read = run.worker().map(batch(items)).unwrap();
    let (_, breaks, outcome) = content(&read);
    assert_eq!(outcome, Some(Outcome::Changed));
    assert!(breaks > 0, "nothing says where the content ends");
    let until = read.items.iter().position(|item| matches!(item, ReadItem::Broken)).unwrap();
    let len = |item: &ReadItem| match item {
        ReadItem::Data(data) | ReadItem::Scanned(data, _) => data.len(),
        _ => 0,
    };
    let before: usize = read.items[..until].iter().map(len).sum();
    assert_eq!((before, run.problems()), (3 * BATCH + 10, 1));
}

#[test]
fn a_small_file_that_grows_is_read_to_its_end_and_a_huge_one_is_cut_and_marked() {
    for (grown, stored, expected) in
        [(3 * BATCH, 3 * BATCH, Outcome::Complete), (9 * BATCH, GROWN_BATCHES_MAX as usize * BATCH, Outcome::Changed)]
    {
        let run = Run::new();
        let (path, node) = run.file(10);
        let whole: Vec<u8> = (0..grown).map(|at| at as u8).collect();
        fs::File::options().write(true).open(&path).unwrap().write_all_at(&whole, 0).unwrap();
        let sent = SentFile::default();
        let task = FileToRead::new(location(&path), node, None, Some(sent.clone()));
        let (bytes, _, outcome) = content(&run.worker().map(batch(vec![WalkItem::File(Box::new(task))])).unwrap());
        assert!(bytes == whole[..stored], "{} bytes of {grown}", bytes.len());
        // Walk saw another state, so no other name refers to it.
        assert_eq!((outcome, sent.is_shareable(Duration::ZERO)), (Some(expected), Some(false)));
    }
}

#[test]
fn a_file_that_is_gone_is_left_out() {
    let run = Run::new();
    let (path, node) = run.file(10);
    let sent = SentFile::default();
    let task = FileToRead::new(location(&path), node, None, Some(sent.clone()));
    fs::remove_file(&path).unwrap();
    let read = run.worker().map(batch(vec![WalkItem::File(Box::new(task))])).unwrap();
    assert!(matches!(read.items[..], [ReadItem::Tree(TreeItem::Omitted)]), "{:?}", read.items);
    assert_eq!((sent.is_shareable(Duration::ZERO), run.problems()), (Some(false), 1));
}

#[test]
fn files_that_cannot_be_read_count_as_no_change() {
    let run = Run::new();
    let (path, node) = run.file(10);
    let changes = &run.counts.changes;
    changes.entry(EntryChange::New, &path, &node);
    changes.entry(EntryChange::Changed, &path, &node);
    let mut file = OpenedFile::new(SourceFile::open(&path, &node).unwrap(), None);
    file.change = Some(EntryChange::Changed);
    file.worsen(Outcome::Failed);
    let end = WalkItem::End { file: Arc::new(file), small_holes: HoleMap::default() };
    let mut task = FileToRead::new(location(&path), node, None, None);
    task.change = Some(EntryChange::New);
    fs::remove_file(&path).unwrap();
    run.worker().map(batch(vec![WalkItem::File(Box::new(task)), end])).unwrap();
    let counted = [&changes.new, &changes.changed].map(|counter| counter.load(Ordering::Relaxed));
    assert_eq!(counted, [0, 0]);
}

#[test]
fn a_task_that_is_dropped_wakes_those_who_wait_for_it() {
    let run = Run::new();
    let (path, node) = run.file(2 * BATCH);
    let sent = SentFile::default();
    drop(FileToRead::new(location(&path), node.clone(), None, Some(sent.clone())));
    assert_eq!(sent.is_shareable(Duration::ZERO), Some(false));
    let file = Arc::new(OpenedFile::new(SourceFile::open(&path, &node).unwrap(), None));
    let lost = ranges(&file, 2 * BATCH as u64);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| file.wait_for_ranges());
        drop(lost);
        waits.join().unwrap();
    });
}
