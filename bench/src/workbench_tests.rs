//! Tests of the workbench: restored files are compared, rounds alternate, failures are reported.

use fhrd::store::{BlobPrefix, StoreExt};

use super::*;

/// A workbench and a source of one directory.
fn bench() -> (tempfile::TempDir, Workbench, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let source = root.join("source");
    std::fs::create_dir(&source).unwrap();
    let line = |number: u32| format!("line {}\n", number.wrapping_mul(2_654_435_761));
    std::fs::write(source.join("file"), (0..40_000).map(line).collect::<String>()).unwrap();
    let bench = Workbench::new(&root.join("work"), &Arc::new(AtomicBool::new(false))).unwrap();
    (directory, bench, source)
}

#[test]
fn a_backup_is_restored_and_compared_warm_and_cold() {
    let (_directory, bench, source) = bench();
    let (config, paths) = (Config::default(), [source]);
    let repository = bench.repository(&config).unwrap();
    let (report, _) = bench.backup(&repository, &config, &paths).unwrap();
    let caches: &[PageCache] =
        if cfg!(target_os = "linux") { &[PageCache::Warm, PageCache::Cold] } else { &[PageCache::Warm] };
    for page_cache in caches {
        let restored = bench.restore(&repository, &config, &report, &paths, *page_cache).unwrap();
        assert!(restored.bytes == report.bytes && restored.amplification() > 0.0 && restored.mb_per_second() > 0.0);
    }
    let id = repository.id.clone();
    bench.discard(&repository).unwrap();
    assert!(!repository.store.local_path().unwrap().exists());
    assert_eq!(bench.repository(&config).unwrap().id, id, "all repositories have the same chunk boundaries");
    bench.clear().unwrap();
}

#[test]
fn two_workbenches_do_not_share_a_directory() {
    let (directory, bench, _) = bench();
    let again = || Workbench::new(&directory.path().join("work"), &Arc::default());
    let refused = again().map(drop);
    assert!(refused.is_err_and(|error| error.to_string().contains("another process measures")));
    drop(bench);
    assert!(again().is_ok());
}

#[test]
fn a_restore_that_differs_from_the_source_fails_its_case_alone() {
    let (_directory, bench, source) = bench();
    let (config, paths) = (Config::default(), [source.clone()]);
    let outcomes = rounds(&[false, true, false], (0, 2), |spoil| {
        let repository = bench.repository(&config)?;
        let (report, _) = bench.backup(&repository, &config, &paths)?;
        let before = std::fs::read(source.join("file")).unwrap();
        let mut content = before.clone();
        content[70_000] ^= u8::from(*spoil);
        std::fs::write(source.join("file"), content).unwrap();
        let restored = bench.restore(&repository, &config, &report, &paths, PageCache::Warm);
        std::fs::write(source.join("file"), before).unwrap();
        restored
    })
    .unwrap();
    let summaries: Vec<Result<usize, &str>> =
        outcomes.iter().map(|outcome| outcome.as_ref().map(Vec::len).map_err(String::as_str)).collect();
    assert_eq!((summaries[0], summaries[2]), (Ok(2), Ok(2)));
    let failure = summaries[1].unwrap_err();
    assert!(failure.contains("file was restored with other content at byte 70000"), "{failure}");
    bench.clear().unwrap();
}

#[test]
fn rounds_alternate_their_direction_and_an_interruption_ends_them() {
    let mut order = Vec::new();
    let outcomes = rounds(&['a', 'b', 'c'], (0, 3), |case| {
        order.push(*case);
        if *case == 'b' && order.len() > 3 { Err(Error::Usage("no".into())) } else { Ok(order.len()) }
    });
    assert_eq!(order.iter().collect::<String>(), "abccbaac");
    assert_eq!(outcomes.unwrap(), [Ok(vec![1, 6, 7]), Err("no".into()), Ok(vec![3, 4, 8])]);
    assert!(rounds(&[1], (0, 1), |_| Err::<(), _>(Error::Interrupted)).is_err());
}

#[test]
fn rounds_that_warm_up_do_not_count() {
    let mut count = 0;
    let outcomes = rounds(&[()], (2, 3), |()| {
        count += 1;
        Ok(count)
    });
    assert_eq!(outcomes.unwrap(), [Ok(vec![3, 4, 5])]);
}

#[test]
fn sizes_are_the_same_in_every_run() {
    let (_directory, bench, source) = bench();
    let (config, paths) = (Config::default(), [source.clone()]);
    let stored = || {
        let repository = bench.repository(&config).unwrap();
        bench.backup(&repository, &config, &paths).unwrap();
        repository.store.list(BlobPrefix::All).unwrap().iter().map(|blob| blob.len).sum::<u64>()
    };
    let first = stored();
    // The directory above the source has a new modification time.
    std::fs::write(source.parent().unwrap().join("other"), "").unwrap();
    assert_eq!(stored(), first);
}

#[test]
fn stages_of_several_runs_add_up() {
    let run = |items_in| vec![StageMetrics { workers: 4, items_in, ..StageMetrics::new("hash") }];
    let all = merge_stages([run(3).as_slice(), run(4).as_slice()]);
    assert_eq!((all.len(), all[0].workers, all[0].items_in), (1, 4, 7));
}

#[test]
fn the_median_of_an_even_number_of_values_is_the_mean_of_two() {
    assert_eq!((median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 3.0]), median([])), (2.0, 2.5, 0.0));
    assert_eq!((median_u64([7]), median_u64([1, 4])), (7, 3));
}
