//! Promises of every sub-block strategy for any chunks: they come back, chains keep their bound and have no cycle, and
//! a range resolves to the same range of the whole.
//!
//! Each chunk is a file shorter than the smallest chunk of the chunker. Backup and reader are the real ones. The second
//! half of the chunks comes in a second run, which reads its bases from containers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytesize::ByteSize;
use fhrd::config::{Config, RepositoryConfig, StrategyKind};
use fhrd::repo::container::{ContainerNumber, EntryAddress, EntryNumber, ExtentCache, Operation, OperationSource};
use fhrd::repo::index::ContainerListing;
use fhrd::repo::read::ChunkReader;
use fhrd::types::{ContainerId, Fingerprint};
use proptest::prelude::*;

use crate::input::{TestRepository, edit, write};
use crate::trees::Random;

const CHUNK_BYTES_MAX: usize = 100_000;

/// How a chunk comes about.
#[derive(Debug, Clone)]
enum Plan {
    /// Bytes that no codec makes smaller.
    Noise { len: usize, seed: u64 },
    /// Words.
    Text { len: usize, seed: u64 },
    /// Few bytes again and again.
    Periodic { len: usize, period: usize, seed: u64 },
    /// The version after an earlier chunk, counted back from the last.
    Edited { back: usize, count: usize, seed: u64 },
    /// The halves of two earlier chunks.
    Joined { back: usize, other: usize },
    /// An earlier chunk as it was.
    Repeated { back: usize },
}

impl Plan {
    fn bytes(&self, earlier: &[Vec<u8>]) -> Vec<u8> {
        let back = |back: usize| match earlier.len() {
            0 => Random(back as u64).text(20_000),
            count => earlier[count - 1 - back % count].clone(),
        };
        let mut bytes = match *self {
            Plan::Noise { len, seed } => Random(seed).bytes(len),
            Plan::Text { len, seed } => Random(seed).text(len),
            Plan::Periodic { len, period, seed } => Random(seed).bytes(period).into_iter().cycle().take(len).collect(),
            Plan::Edited { back: number, count, seed } => {
                let base = back(number);
                if base.len() > 40 { edit(&mut Random(seed), &base, count) } else { base }
            }
            Plan::Joined { back: number, other } => {
                let (a, b) = (back(number), back(other));
                [&a[..a.len() / 2], &b[b.len() / 2..]].concat()
            }
            Plan::Repeated { back: number } => back(number),
        };
        bytes.truncate(CHUNK_BYTES_MAX);
        bytes
    }
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let len = || prop_oneof![1 => 0usize..3, 2 => 900usize..3000, 6 => 1000usize..CHUNK_BYTES_MAX];
    let seed = 0u64..8;
    let plan = prop_oneof![
        2 => (len(), seed.clone()).prop_map(|(len, seed)| Plan::Noise { len, seed }),
        2 => (len(), seed.clone()).prop_map(|(len, seed)| Plan::Text { len, seed }),
        1 => (len(), 1usize..300, seed).prop_map(|(len, period, seed)| Plan::Periodic { len, period, seed }),
        8 => (0usize..3, 1usize..9, 0u64..1000).prop_map(|(back, count, seed)| Plan::Edited { back, count, seed }),
        2 => (0usize..9, 0usize..9).prop_map(|(back, other)| Plan::Joined { back, other }),
        1 => (0usize..9).prop_map(|back| Plan::Repeated { back }),
    ];
    proptest::collection::vec(plan, 2..24)
}

/// What was met in a repository.
#[derive(Debug, Default)]
struct Seen {
    deepest: u8,
    copies: usize,
    literal_copies: usize,
    /// Copies from another container.
    abroad: usize,
}

/// A repository under examination.
struct Inspection {
    reader: ChunkReader,
    /// Small, so that some runs are remembered and some are not.
    extent_cache: ExtentCache,
    depth_max: u8,
    depths: HashMap<EntryNumber, u8>,
    seen: Seen,
}

fn container_of(entry: EntryNumber) -> ContainerNumber {
    let EntryAddress::Stored { container, .. } = entry.address() else { panic!("{entry:?} is not stored") };
    container
}

impl Inspection {
    /// The depth of an entry's chain, checked on the way down. `path` are the entries that lead to it.
    fn depth(&mut self, number: EntryNumber, path: &mut Vec<EntryNumber>) -> u8 {
        if let Some(depth) = self.depths.get(&number) {
            return *depth;
        }
        assert!(!path.contains(&number), "a cycle of references: {path:?}, {number:?}");
        path.push(number);
        let view = self.reader.resolver.view(number).unwrap();
        let mut below = 0;
        for operation in view.operations.as_slice() {
            let (base, is_literal) = match *operation {
                Operation::Add { .. } => continue,
                Operation::Copy { base, .. } | Operation::Delta { base, .. } => (base, false),
                Operation::LiteralCopy { base, .. } => (base, true),
                Operation::Unknown { .. } => panic!("no version writes this"),
            };
            let base = self.reader.resolver.base(&view, base, operation.base_use()).unwrap();
            let depth = self.depth(base, path);
            below = if is_literal { below } else { depth.max(below) };
            self.seen.copies += usize::from(!is_literal);
            self.seen.literal_copies += usize::from(is_literal);
            self.seen.abroad += usize::from(container_of(base) != container_of(number));
        }
        path.pop();
        assert!(view.depth > below && view.depth <= self.depth_max, "{} over {below}", view.depth);
        self.seen.deepest = self.seen.deepest.max(view.depth);
        self.depths.insert(number, view.depth);
        view.depth
    }

    fn range(&mut self, number: EntryNumber, range: std::ops::Range<u32>) -> Vec<u8> {
        let extent_map = self.extent_cache.extent_map(&mut self.reader.resolver, number).unwrap();
        let mut bytes = Vec::new();
        for run in extent_map.extents_of(range).unwrap() {
            bytes.extend_from_slice(run.slice_of(&self.reader.frame(run.frame).unwrap()).unwrap());
        }
        bytes
    }
}

/// Asserts all of the module's claims on every entry of the repository.
fn inspect(place: &TestRepository, contents: &[Vec<u8>], depth_max: u8) -> Seen {
    let repository = place.open();
    let listing = Arc::new(ContainerListing::take(&repository.store).unwrap());
    let reader = ChunkReader::new(&repository, listing.clone());
    let extent_cache = ExtentCache::new(4 << 10);
    let mut inspection = Inspection { reader, extent_cache, depth_max, depths: HashMap::new(), seen: Seen::default() };
    let expected: HashMap<Fingerprint, &Vec<u8>> =
        contents.iter().map(|content| (repository.key.fingerprint(content), content)).collect();
    let mut containers: Vec<ContainerId> = listing.containers.iter().copied().collect();
    containers.sort();
    let mut random = Random(contents.len() as u64);
    let mut found = HashSet::new();
    for container in containers {
        let container_index = inspection.reader.resolver.locator.container_indexes().load(&container).unwrap();
        for (entry, position) in container_index.entries.iter().zip(0..) {
            let number = inspection.reader.resolver.entry_number(container, position);
            inspection.depth(number, &mut Vec::new());
            let whole = inspection.reader.read_entry(number, &entry.fingerprint).unwrap();
            let Some(content) = expected.get(&entry.fingerprint) else { continue };
            assert!(whole == **content, "{} is other bytes", entry.fingerprint);
            found.insert(entry.fingerprint);
            for _ in 0..8 {
                let (a, b) = (random.below(whole.len() as u64 + 1) as u32, random.below(whole.len() as u64 + 1) as u32);
                let range = a.min(b)..a.max(b);
                let part = inspection.range(number, range.clone());
                assert!(part == whole[range.start as usize..range.end as usize], "{range:?} of {number:?}");
            }
        }
    }
    for content in contents.iter().filter(|content| !content.is_empty()) {
        assert!(found.contains(&repository.key.fingerprint(content)), "a chunk is missing");
    }
    inspection.seen
}

/// Stores the chunks in two runs and looks at what is there after each.
fn store(contents: &[Vec<u8>], config: &Config) -> Seen {
    let fixed = RepositoryConfig {
        chunk_bytes_min: ByteSize::b(CHUNK_BYTES_MAX as u64),
        chunk_bytes_avg: ByteSize::kib(128),
        ..RepositoryConfig::default()
    };
    let place = TestRepository::with(&fixed);
    let source = tempfile::tempdir().unwrap();
    let half = contents.len() / 2;
    let mut seen = Seen::default();
    for run in [0..half, half..contents.len()] {
        let end = run.end;
        for number in run {
            write(source.path().join(format!("{number:04}")), &contents[number]);
        }
        place.backup(source.path(), config);
        seen = inspect(&place, &contents[..end], config.subdedup.depth_max);
    }
    seen
}

fn config(strategy: StrategyKind, diff: bool, depth_max: u8, frame_bytes: u64) -> Config {
    let mut config = TestRepository::config();
    config.pipeline.workers = 1;
    config.subdedup.strategy = strategy;
    config.subdedup.extend_matches = diff;
    config.subdedup.depth_max = depth_max;
    config.compress.frame_bytes = ByteSize::b(frame_bytes);
    config
}

fn contents(plans: &[Plan]) -> Vec<Vec<u8>> {
    plans.iter().fold(Vec::new(), |mut contents, plan| {
        contents.push(plan.bytes(&contents));
        contents
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn chunks_come_back_and_chains_keep_their_bounds(
        plans in plans(),
        diff: bool,
        depth_max in prop::sample::select(vec![1u8, 2, 8]),
        frame_bytes in prop::sample::select(vec![0u64, 64 << 10, 1 << 20]),
    ) {
        let contents = contents(&plans);
        for strategy in StrategyKind::ALL {
            store(&contents, &config(*strategy, diff, depth_max, frame_bytes));
        }
    }
}

#[test]
fn versions_make_chains_as_deep_as_allowed_and_flat_ones_where_they_would_be_deeper() {
    let edited = |seed| Plan::Edited { back: 0, count: 3, seed };
    let mut plans = vec![Plan::Noise { len: 60_000, seed: 1 }];
    plans.extend((0..23).map(edited));
    let contents = contents(&plans);
    for strategy in StrategyKind::ALL {
        for depth_max in [1, 2, 4] {
            let seen = store(&contents, &config(*strategy, true, depth_max, 1 << 20));
            let case = format!("{strategy}, depth {depth_max}: {seen:?}");
            if *strategy == StrategyKind::None {
                assert_eq!((seen.deepest, seen.copies), (1, 0), "{case}");
                continue;
            }
            if *strategy == StrategyKind::Uniform {
                // Edits change the length of a chunk, so few of its parts are equal to parts of another.
                assert!(seen.deepest <= depth_max, "{case}");
                continue;
            }
            assert_eq!(seen.deepest, depth_max, "{case}");
            assert!(seen.literal_copies > 0 && seen.abroad > 0, "{case}");
            assert_eq!(seen.copies > 0, depth_max > 1, "{case}");
        }
    }
}
