//! What one damaged byte costs a restore from a bucket with parity: a read of the container and of its parity.

use std::fs;
use std::sync::Arc;

use bytesize::ByteSize;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::metrics::Progress;
use fhrd::repo::{Repository, parity, snapshot};
use fhrd::restore::restore;
use fhrd::store::ParityShare;

use super::server::{Behaviour, S3Server};
use super::{forget_cache, open};
use crate::trees::{Random, assert_same, describe};

fn unlock() -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![9; 32]))
}

/// Kinds of blobs, by their directories, of which the largest one is damaged.
const DAMAGED: [&str; 3] = ["containers", "index", "snapshots"];

/// Requests of a restore from a bucket without damage, and then with a damaged byte in a blob of each kind.
fn requests(is_encrypted: bool) -> Vec<usize> {
    let server = S3Server::start();
    let created = match is_encrypted {
        true => Repository::init_encrypted(open(&server), &RepositoryConfig::default(), None, &unlock(), "test"),
        false => Repository::init(open(&server), &RepositoryConfig::default()),
    };
    let repository = created.unwrap();
    parity::set(&repository, ParityShare::new(300)).unwrap();
    let (source, mut random, mut config) = (tempfile::tempdir().unwrap(), Random(5), Config::default());
    for number in 0..60 {
        fs::write(source.path().join(format!("noise-{number}")), random.bytes(60_000)).unwrap();
    }
    config.container.bytes_target = ByteSize::mib(32);
    let request = BackupRequest::new(TreeSource::new(vec![source.path().into()], "test"));
    let id = backup(&repository, &config, &request, &Progress::default(), &Arc::default()).unwrap().snapshot;
    let whole = server.objects().clone();
    let restored = |damaged: Option<&str>| {
        let mut objects = whole.clone();
        if let Some(kind) = damaged {
            let is_one = |key: &&String| key.contains(&format!("/{kind}/"));
            let largest = objects.keys().filter(is_one).max_by_key(|key| objects[*key].0.len()).unwrap().clone();
            let mut bytes = objects[&largest].0.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            objects.get_mut(&largest).unwrap().0 = bytes.into();
        }
        *server.objects() = objects;
        let repository = Repository::open_with(open(&server), &|| Ok(unlock())).unwrap();
        forget_cache(&repository);
        server.behave(Behaviour::default());
        let target = tempfile::tempdir().unwrap();
        let named = snapshot::find(repository.store.as_ref(), &id).unwrap();
        let report =
            restore(&repository, &config, &named, target.path(), &Progress::default(), &Arc::default()).unwrap();
        assert_eq!((report.damaged, report.problems), (0, 0), "{damaged:?}");
        let restored = target.path().join(source.path().strip_prefix("/").unwrap());
        assert_same(&describe(source.path()), &describe(&restored), "restored");
        server.seen().len()
    };
    std::iter::once(None).chain(DAMAGED.map(Some)).map(restored).collect()
}

#[test]
fn a_damaged_byte_costs_an_encrypted_bucket_no_more_requests_than_a_plain_one() {
    let [plain, encrypted] = [false, true].map(requests);
    eprintln!("sound, and damaged {DAMAGED:?}: plain {plain:?}, encrypted {encrypted:?}");
    for (requests, what) in [(&plain, "plain"), (&encrypted, "encrypted")] {
        let (sound, damaged) = requests.split_first().unwrap();
        // Head and bytes of blob and parity, a look for each second, and ranges cut in two.
        assert!(damaged.iter().all(|count| *count <= sound + 20), "{what}: {requests:?}");
    }
}
