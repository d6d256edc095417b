//! Ciphertext that somebody has changed: of every kind of blob, none is accepted.
//!
//! `FHRD_FORGERIES` sets how many changes are tried, an equal share for each directory of blobs. Where a checksum needs no
//! key, the forger makes it right again half of the time.

use std::sync::Arc;

use fhrd::config::{Config, RepositoryConfig};
use fhrd::crypto::{HEADER_BYTES, KeySlot, SecretBytes, Unlock};
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repo::Repository;
use fhrd::repo::bundle;
use fhrd::repo::marks::{BadParts, Mark, MarkKind, Quarantine};
use fhrd::store::{BlobKind, BlobName, BlobPrefix, MemoryStore, Reading, Store, StoreExt};
use fhrd::types::ContainerId;

use crate::copied::back_up;
use crate::double::named;
use crate::trees::Random;

/// Directories whose blobs are sealed.
const SEALED: [&str; 9] =
    ["containers", "index", "snapshots", "bundles", "models", "marks/required", "marks/optional", "intents", "pending"];
/// Changes without the environment variable.
const SAMPLE: u64 = 100_000;
/// Lengths of the blobs: empty, one block, a full block, some blocks.
const LENGTHS: [usize; 6] = [0, 1, 300, 2000, 16384, 40_000];

fn tries() -> u64 {
    std::env::var("FHRD_FORGERIES").ok().and_then(|text| text.parse().ok()).unwrap_or(SAMPLE)
}

fn unlock() -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![7; 32]))
}

/// Flips up to eight bits, cuts the end off, or appends something. Small blobs are cut more often.
fn change(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(10) {
        0 if !bytes.is_empty() => bytes.truncate(random.below(bytes.len() as u64) as usize),
        1 => {
            let len = 1 + random.below(40) as usize;
            bytes.extend(random.bytes(len));
        }
        _ => {
            let original = bytes.clone();
            while *bytes == original {
                for _ in 0..=random.below(8) {
                    let bit = random.below(bytes.len() as u64 * 8) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }
}

#[test]
fn no_changed_blob_is_accepted() {
    let inner = Arc::new(MemoryStore::new());
    let repository =
        Repository::init_encrypted(inner.clone(), &RepositoryConfig::default(), None, &unlock(), "test").unwrap();
    let mut random = Random(0x5ea1);
    // Small blobs are changed most, because a change of a large one is no harder to see and takes longer to try.
    let mut blobs = Vec::new();
    for directory in SEALED {
        let mut of_directory = Vec::new();
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let (name, content) = (named(&format!("{directory}/{number}")), random.bytes(len));
            repository.store.put_if_absent(&name, &[&content]).unwrap();
            assert!(repository.store.get(&name, 1 << 20).unwrap() == content);
            let stored = inner.get(&name, 1 << 20).unwrap();
            of_directory.push((name, stored, content));
        }
        blobs.push(of_directory);
    }
    for number in 0..tries() {
        let of_directory = &blobs[(number % SEALED.len() as u64) as usize];
        let large = random.below(200) == 0;
        let (name, stored, content) = &of_directory[random.below(if large { 6 } else { 4 }) as usize];
        let mut forged = stored.clone();
        change(&mut random, &mut forged);
        if forged.len() >= HEADER_BYTES && random.below(2) == 0 {
            let checksum = blake3::hash(&forged[..HEADER_BYTES - 8]);
            forged[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&checksum.as_bytes()[..8]);
        }
        if forged == *stored {
            continue;
        }
        inner.replace(name, &forged);
        assert!(repository.store.get(name, 1 << 20).is_err(), "change {number} of {name}: read whole");
        assert!(repository.store.open_stored(name, forged).is_err(), "change {number} of {name}: opened");
        // A range may lie beside the change. Then it has the right bytes.
        if let Some(last) = content.len().checked_sub(1) {
            let from = random.below(content.len() as u64) as usize;
            let len = (1 + random.below(500) as usize).min(last + 1 - from);
            if let Ok(read) = repository.store.get_range(name, from as u64, len, Reading::Once) {
                assert!(read == content[from..from + len], "change {number} of {name}: {len} bytes from {from}");
            }
        }
        if number % 16 == 0 {
            inner.replace(name, stored);
            assert!(repository.store.get(name, 1 << 20).is_ok(), "the blob as it was");
        }
    }
}

#[test]
fn no_changed_key_slot_is_accepted() {
    let inner = Arc::new(MemoryStore::new());
    Repository::init_encrypted(inner.clone(), &RepositoryConfig::default(), None, &unlock(), "test").unwrap();
    let name = inner.list(BlobKind::Key.into()).unwrap()[0].name.clone();
    let stored = inner.get(&name, 1 << 20).unwrap();
    let open =
        |blob: &[u8]| matches!(KeySlot::parse("x", blob).and_then(|slot| slot.open("x", &unlock())), Ok(Some(_)));
    assert!(open(&stored));
    let mut random = Random(0x510);
    for number in 0..tries() / 10 {
        let mut forged = stored[..stored.len() - 32].to_vec();
        change(&mut random, &mut forged);
        // The length in the envelope fits, too.
        if forged.len() >= 34 {
            let len = forged.len() as u64 - 34;
            forged[26..34].copy_from_slice(&len.to_le_bytes());
        }
        if forged == stored[..stored.len() - 32] {
            continue;
        }
        let checksum = blake3::hash(&forged);
        forged.extend(checksum.as_bytes());
        // Bits of the envelope that only writers heed are the exception: they are not under the key.
        let payload = |blob: &[u8]| blob.get(34..blob.len() - 32).map(<[u8]>::to_vec);
        let is_payload_same = payload(&forged) == payload(&stored);
        assert!(!open(&forged) || is_payload_same, "change {number}: {forged:02x?}");
    }
}

#[test]
fn stored_bytes_look_random_and_no_key_comes_twice() {
    let inner = Arc::new(MemoryStore::new());
    let repository =
        Repository::init_encrypted(inner.clone(), &RepositoryConfig::default(), None, &unlock(), "test").unwrap();
    let mut counts = [0u64; 256];
    let (mut salts, mut bytes) = (std::collections::HashSet::new(), 0);
    for number in 0..400 {
        let name = named(&format!("containers/{number}"));
        // The same text each time: with the same key its ciphertext would be the same.
        repository.store.put_if_absent(&name, &[&b"all the same ".repeat(4000)]).unwrap();
        let stored = inner.get(&name, 1 << 20).unwrap();
        assert!(salts.insert(stored[24..56].to_vec()), "a salt came twice");
        stored[HEADER_BYTES..].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        bytes += (stored.len() - HEADER_BYTES) as u64;
    }
    let expected = bytes as f64 / 256.0;
    let chi_square: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    // 255 degrees of freedom: beyond 330.5 with a probability of 0.001, beyond 377 with one of 0.000001.
    eprintln!("chi-square of {bytes} bytes: {chi_square:.1}");
    assert!(chi_square < 377.0, "{chi_square}");
}

/// Where the header of a sealed blob has its version, its cipher, and a byte that is zero.
const OF_NEWER_VERSIONS: [usize; 3] = [8, 10, 11];

#[test]
fn a_blob_that_is_not_what_its_name_says_is_damaged_and_of_no_newer_version() {
    let (inner, source) = (Arc::new(MemoryStore::new()), tempfile::tempdir().unwrap());
    let config = Config::default();
    let repository = Repository::init_encrypted(inner.clone(), &config.repository, None, &unlock(), "test").unwrap();
    std::fs::write(source.path().join("file"), Random(3).bytes(300_000)).unwrap();
    back_up(&repository, source.path()).unwrap();
    bundle::maintain(repository.store.as_ref(), 1).unwrap();
    let mut quarantine = Quarantine::default();
    quarantine.insert(ContainerId([3; 32]), &BadParts::Whole);
    Mark::new(MarkKind::Quarantine(quarantine), "test").save(repository.store.as_ref()).unwrap();
    // Another process knows no key of a blob.
    let open = || Repository::open_with(inner.clone(), &|| Ok(unlock())).unwrap();
    let checked = |read_data: bool| check(&open(), &config, read_data, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!((checked(true).defect_count, checked(true).newer_count), (0, 0));
    let is_named_by_hash = |name: &str| name.rsplit('/').next().unwrap().len() == 64 && !name.starts_with("key");
    let names: Vec<BlobName> = inner.list(BlobPrefix::All).unwrap().into_iter().map(|blob| blob.name).collect();
    let names: Vec<BlobName> = names.into_iter().filter(|name| is_named_by_hash(name)).collect();
    for prefix in ["containers", "index", "snapshots", "bundles", "marks"] {
        assert!(names.iter().any(|name| name.starts_with(prefix)), "{prefix}: {names:?}");
    }
    for name in names {
        let stored = inner.get(&name, 1 << 30).unwrap();
        for at in OF_NEWER_VERSIONS {
            let mut forged = stored.clone();
            forged[at] ^= 0x40;
            let checksum = blake3::hash(&forged[..HEADER_BYTES - 8]);
            forged[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&checksum.as_bytes()[..8]);
            inner.replace(&name, &forged);
            let report = checked(true);
            let what = format!("byte {at} of {name}: {report:?}");
            assert_eq!(report.newer_count, 0, "{what}");
            assert!(report.defects.iter().chain(&report.notes).any(|text| text.contains(name.as_str())), "{what}");
            assert!(!name.starts_with("containers") || report.bad_containers > 0, "{what}");
        }
        if name.starts_with("index") {
            let report = repair_index(&open(), &Arc::default()).unwrap();
            assert!(inner.head(&name).unwrap().is_none(), "the containers have another segment: {report:?}");
        } else {
            inner.replace(&name, &stored);
        }
    }
}
