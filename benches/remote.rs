//! Backup to and restore from a bucket on loopback, against a local disk: `cargo bench --bench remote [-- PATH]`.
//!
//! The server is the one of the tests, in this process, so it takes CPU time of its own. Without a path, 192 MiB of
//! noise and 64 MiB of text are stored. Each line has the seconds of one round in the order of the head; the last one has
//! the medians.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a bench fails by panicking")]
#![expect(dead_code, reason = "the server can do more than this bench asks")]

mod data;
#[path = "../tests/it/wire/server.rs"]
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use data::generated;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::metrics::Progress;
use fhrd::repo::{Repository, snapshot};
use fhrd::restore::restore;
use fhrd::store::{AccessKey, StoreOptions, create, open_with};
use server::{ACCESS_KEY, S3Server};

const ROUNDS: usize = 5;

fn seconds(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

/// Seconds of a backup and of a restore.
fn round_trip(repository: &Repository, source: &Path, target: PathBuf) -> [f64; 2] {
    let config = Config::default();
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "bench"));
    let mut id = String::new();
    let stored = seconds(|| {
        let report = backup(repository, &config, &request, &Progress::default(), &Arc::default());
        id = report.expect("backs up").snapshot;
    });
    let named = snapshot::find(repository.store.as_ref(), &id).expect("finds the snapshot");
    let restored = seconds(|| {
        let report = restore(repository, &config, &named, &target, &Progress::default(), &Arc::default());
        assert_eq!(report.expect("restores").problems, 0);
    });
    fs::remove_dir_all(target).expect("removes what was restored");
    [stored, restored]
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let work = tempfile::tempdir().expect("creates a directory");
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let source = given.map_or_else(|| work.path().join("source"), PathBuf::from);
    if source.starts_with(work.path()) {
        fs::create_dir(&source).expect("creates the source");
        fs::write(source.join("noise"), generated("noise", 192 << 20)).expect("writes");
        fs::write(source.join("text"), generated("text", 64 << 20)).expect("writes");
    }
    println!("backup local, backup bucket, restore local, restore bucket");
    let mut rounds: Vec<[f64; 4]> = Vec::new();
    for round in 0..ROUNDS {
        let local = create(work.path().join(format!("repository-{round}"))).expect("creates a store");
        let local = Repository::init(local, &Config::default().repository).expect("creates a repository");
        let server = S3Server::start();
        let options = StoreOptions {
            endpoint: Some(server.endpoint()),
            access_key: Some(AccessKey { id: ACCESS_KEY.into(), secret: "secret".into() }),
            ..StoreOptions::default()
        };
        let bucket = open_with("s3://bucket/bench", &options).expect("opens the bucket");
        let bucket = Repository::init(bucket, &Config::default().repository).expect("creates a repository");
        let [backup_local, restore_local] = round_trip(&local, &source, work.path().join("back"));
        let [backup_bucket, restore_bucket] = round_trip(&bucket, &source, work.path().join("back"));
        let figures = [backup_local, backup_bucket, restore_local, restore_bucket];
        println!("{figures:.2?}");
        rounds.push(figures);
        fs::remove_dir_all(work.path().join(format!("repository-{round}"))).expect("removes the repository");
    }
    let medians: [f64; 4] = std::array::from_fn(|column| median(rounds.iter().map(|figures| figures[column])));
    let [backup_local, backup_bucket, restore_local, restore_bucket] = medians;
    println!("{medians:.2?}");
    println!(
        "throughput of the bucket: backup {:.2}, restore {:.2} of the local disk",
        backup_local / backup_bucket,
        restore_local / restore_bucket
    );
}
