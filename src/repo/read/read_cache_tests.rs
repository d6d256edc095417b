//! The cache of readers: its limits, what ends its entries, and who waits for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;

use super::read_cache::{Decoded, DecodedKey, ReadCache, ReadCacheLimits, ReadCacheShare};
use crate::repo::container::ContainerKind;
use crate::repo::recipe::ContentReference;
use crate::types::Fingerprint;

const KIB: usize = 1 << 10;

fn key(number: u32) -> DecodedKey {
    let mut fingerprint = Fingerprint([0; 32]);
    fingerprint.0[..4].copy_from_slice(&number.to_le_bytes());
    DecodedKey::Chunk(fingerprint)
}

/// Decodes what is missing.
fn decode(share: &Arc<ReadCacheShare>, number: u32, kind: ContainerKind, decode: impl FnOnce() -> Bytes) -> Bytes {
    match share.find(key(number)) {
        Decoded::Found(bytes) => bytes,
        Decoded::Missing(task) => {
            let bytes = decode();
            task.unwrap().finish(kind, bytes.clone());
            bytes
        }
    }
}

fn bytes(len: usize) -> Bytes {
    Bytes::from(vec![7; len])
}

fn is_cached(share: &Arc<ReadCacheShare>, number: u32) -> bool {
    matches!(share.find(key(number)), Decoded::Found(_))
}

fn limits(metadata: usize, recipes: usize, content: usize) -> Arc<ReadCache> {
    ReadCache::new(ReadCacheLimits { metadata: Some(metadata), recipes, content })
}

#[test]
fn the_limits_hold_for_all_readers_together() {
    let cache = limits(100 * KIB, 20 * KIB, 200 * KIB);
    let shares: Vec<_> = (0..50).map(|_| cache.share()).collect();
    let recipe = Arc::new(vec![(0, ContentReference::Hole { len: 1 }); 100]);
    for number in 0..20 {
        for share in &shares {
            decode(share, number, ContainerKind::Data, || bytes(5 * KIB));
            decode(share, 1000 + number, ContainerKind::Metadata, || bytes(3 * KIB));
            share.keep_recipe((Fingerprint([number as u8; 32]), 1, 100), recipe.clone());
        }
    }
    let [metadata, recipes, content] = cache.bytes();
    assert!((90 * KIB..=100 * KIB).contains(&metadata), "{metadata}");
    assert!((10 * KIB..=20 * KIB).contains(&recipes), "{recipes}");
    assert!((190 * KIB..=200 * KIB).contains(&content), "{content}");
}

#[test]
fn content_does_not_drive_out_metadata_and_a_frame_above_the_limit_is_cached() {
    let cache = limits(10 * KIB, 0, 10 * KIB);
    let share = cache.share();
    decode(&share, 0, ContainerKind::Metadata, || bytes(5 * KIB));
    (1..100).for_each(|number| _ = decode(&share, number, ContainerKind::Data, || bytes(5 * KIB)));
    assert!(is_cached(&share, 0) && is_cached(&share, 99) && !is_cached(&share, 1));
    let share = limits(0, 0, 10 * KIB).share();
    decode(&share, 0, ContainerKind::Data, || bytes(20 * KIB));
    assert!(is_cached(&share, 0));
}

#[test]
fn entries_go_when_the_last_reader_of_their_share_goes() {
    let cache = limits(100 * KIB, 100 * KIB, 100 * KIB);
    let (share, other) = (cache.share(), cache.share());
    let recipe = Arc::new(vec![(0, ContentReference::Hole { len: 1 })]);
    for share in [&share, &other] {
        decode(share, 0, ContainerKind::Metadata, || bytes(KIB));
        decode(share, 1, ContainerKind::Data, || bytes(KIB));
        share.keep_recipe((Fingerprint([0; 32]), 1, 1), recipe.clone());
    }
    let (all, clone) = (cache.bytes(), share.clone());
    drop(share);
    assert_eq!(cache.bytes(), all);
    drop(clone);
    assert_eq!(cache.bytes(), all.map(|bytes| bytes / 2));
    assert!(is_cached(&other, 0) && is_cached(&other, 1));
    drop(other);
    assert_eq!(cache.bytes(), [0; 3]);
}

#[test]
fn what_one_thread_decodes_the_others_wait_for_and_a_failure_frees_them() {
    let share = limits(0, 0, 100 * KIB).share();
    let decoded = AtomicUsize::new(0);
    let Decoded::Missing(failing) = share.find(key(1)) else { panic!("it was never decoded") };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let found = decode(&share, 1, ContainerKind::Data, || {
                    decoded.fetch_add(1, Ordering::Relaxed);
                    bytes(KIB)
                });
                assert_eq!(found, bytes(KIB));
            });
        }
        assert_eq!(decoded.load(Ordering::Relaxed), 0);
        drop(failing);
    });
    assert_eq!(decoded.load(Ordering::Relaxed), 1);
}
