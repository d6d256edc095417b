//! What slices cost at their limits: nested deltas whose bases interleave, and an index that forgets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bytesize::ByteSize;
use fhrd::repo::container::{Base, DEPTH_LIMIT, Operation};
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::types::ContainerId;

use crate::hostile::checked;
use crate::input::{TestRepository, write};
use crate::weights::*;

/// Values of a block of 4 MiB.
const BLOCK: usize = 2 << 20;
/// Values of a stripe: generations interleave stripes of the two before.
const STRIPE: usize = 1 << 15;
/// Bytes that a reader has for the content of nested deltas.
const CACHE: u64 = 32 << 20;

/// An entry as far as a read of it is concerned.
#[derive(Default)]
struct Read {
    len: u64,
    depth: u8,
    is_delta: bool,
    frames: BTreeSet<(ContainerId, u32)>,
    bases: Vec<Base>,
}

/// All entries by fingerprint, with the frames of all entries below.
fn reads(repository: &TestRepository) -> BTreeMap<[u8; 32], Read> {
    let opened = repository.open();
    let mut reads: BTreeMap<[u8; 32], Read> = BTreeMap::new();
    for id in &ContainerListing::take(&opened.store).unwrap().containers {
        let index = read_container_index(opened.store.as_ref(), id).unwrap();
        for entry in &index.entries {
            let is_delta = matches!(index.operations(entry).first(), Some(Operation::Delta { .. }));
            let bases = if is_delta { index.bases_of(entry) } else { Vec::new() };
            let frames = BTreeSet::from([(*id, entry.frame)]);
            let read = Read { len: entry.raw_len.into(), depth: entry.depth, is_delta, frames, bases };
            reads.insert(entry.fingerprint.0, read);
        }
    }
    for _ in 0..16 {
        let below: Vec<_> = reads
            .iter()
            .map(|(name, read)| {
                let frames = read.bases.iter().flat_map(|base| &reads[&base.fingerprint.0].frames);
                (*name, frames.copied().collect::<Vec<_>>())
            })
            .collect();
        below.into_iter().for_each(|(name, frames)| reads.get_mut(&name).unwrap().frames.extend(frames));
    }
    reads
}

fn container_bytes(repository: &TestRepository) -> u64 {
    let names = repository.names().into_iter().filter(|name| name.starts_with("containers"));
    names.map(|name| fs::metadata(repository.path().join(name)).unwrap().len()).sum()
}

/// Backs up a file of one tensor of its own directory. Bytes that it takes.
fn taken(repository: &TestRepository, name: &str, tensor: Tensor, config: &fhrd::config::Config) -> u64 {
    let source = tempfile::tempdir().unwrap();
    write(source.path().join(name).join("model.safetensors"), &safetensors(&[tensor]));
    let before = container_bytes(repository);
    repository.backup(source.path(), config);
    container_bytes(repository) - before
}

#[test]
fn nested_deltas_of_interleaved_bases_are_cheap_to_read() {
    let repository = TestRepository::with_known_key();
    let mut config = TestRepository::config();
    config.model.block_bytes = ByteSize::mib(4);
    let mut generations = vec![weights(1, BLOCK), weights(2, BLOCK)];
    let mut sizes = Vec::new();
    for number in 0..12 {
        if number > 1 {
            let stripe =
                |(at, stripes): (usize, (&[f32], &[f32]))| if at % 2 == 0 { stripes.0 } else { stripes.1 }.to_vec();
            let [.., one, other] = generations.as_slice() else { unreachable!() };
            let mixed = one.chunks(STRIPE).zip(other.chunks(STRIPE)).enumerate().flat_map(stripe);
            let next = tuned(&mixed.collect::<Vec<f32>>(), number, 0.0001);
            generations.push(next);
        }
        // Each of another shape, so that no name and no shape makes two of them counterparts.
        let shape = [1 << number, BLOCK as u64 >> number];
        let values = &generations[number as usize];
        let tensor = Tensor::new(&format!("generation {number}"), "BF16", &shape, bfloat16(values));
        sizes.push(taken(&repository, &number.to_string(), tensor, &config));
    }
    assert_eq!(checked(&repository).defect_count, 0);
    let reads = reads(&repository);
    let deltas: Vec<&Read> = reads.values().filter(|read| read.is_delta).collect();
    assert!(deltas.len() >= 8 && deltas.iter().any(|delta| delta.bases.len() > 1), "{} {sizes:?}", deltas.len());
    assert!(deltas.iter().any(|delta| delta.depth > 2), "{sizes:?}");
    for delta in deltas {
        let longest = delta.bases.iter().map(|base| reads[&base.fingerprint.0].len).max().unwrap();
        // The entry's own frame is not decoded as a base.
        assert!((delta.frames.len() as u64 - 1) * longest <= CACHE, "{} frames", delta.frames.len());
        assert!(delta.depth <= 13, "{}", delta.depth);
    }
    let whole = sizes[0] + sizes[1];
    assert!(sizes[2..].iter().sum::<u64>() < 4 * whole, "{sizes:?}");
}

#[test]
fn an_index_that_forgets_costs_ratio_and_no_data() {
    let mut config = TestRepository::config();
    config.model.block_bytes = ByteSize::kib(64);
    config.index.similarity_bytes = ByteSize::kib(64);
    config.index.similarity_file_bytes = ByteSize::kib(64);
    let (first, last) = (weights(1, 1 << 19), weights(2, 1 << 19));
    let tensor = |name: &str, values: &[f32]| Tensor::new(name, "BF16", &[values.len() as u64], bfloat16(values));
    let repository = TestRepository::with_known_key();
    let cut = |values: &[f32], name| taken(&repository, name, tensor(name, &values[777..]), &config);
    taken(&repository, "first", tensor("first", &first), &config);
    let known = cut(&first, "part of the first");
    // 16 features of each of 800 blocks: more than the 8192 slots of this index.
    taken(&repository, "others", tensor("others", &weights(3, 800 << 15)), &config);
    taken(&repository, "last", tensor("last", &last), &config);
    let (forgotten, last) = (cut(&first[1000..], "another part of the first"), cut(&last, "part of the last"));
    assert_eq!(checked(&repository).defect_count, 0);
    assert!(known * 50 <= 1 << 20 && last * 50 <= 1 << 20 && forgotten > 5 * known, "{known} {forgotten} {last}");
}

#[test]
fn a_block_whose_base_is_as_deep_as_allowed_is_no_delta_to_it() {
    let (repository, mut config) = (TestRepository::with_known_key(), TestRepository::config());
    config.model.block_bytes = ByteSize::kib(64);
    config.subdedup.depth_max = DEPTH_LIMIT;
    let all = weights(1, 20 << 15);
    for number in 0..u64::from(DEPTH_LIMIT) + 4 {
        // Three quarters of each block are the end of the one before.
        let block = &all[(number as usize) << 13..][..1 << 15];
        let tensor = |values: &[f32]| Tensor::new(&number.to_string(), "BF16", &[1 << 15], bfloat16(values));
        taken(&repository, "copies", tensor(block), &config);
        if number + 4 >= DEPTH_LIMIT.into() {
            taken(&repository, "tuned", tensor(&tuned(block, number, 0.0001)), &config);
        }
    }
    assert_eq!(checked(&repository).defect_count, 0);
    assert_eq!(reads(&repository).values().map(|read| read.depth).max(), Some(DEPTH_LIMIT));
}
