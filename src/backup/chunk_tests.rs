//! Tests of Chunk: anchors that others have found change nothing.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::backup::scan::AnchorScanner;
use crate::config::ChunkerKind;
use crate::pipeline::{Pipeline, Sink, Source};

/// Emits batches.
struct Batches(Vec<ReadBatch>);

impl Source for Batches {
    type Out = ReadBatch;
    fn name(&self) -> &'static str {
        "batches"
    }
    fn run(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        std::mem::take(&mut self.0).into_iter().try_for_each(|batch| emit.emit(batch))
    }
}

/// Collects chunks, their anchors and holes.
#[derive(Default)]
struct Chunks(Vec<(Vec<u8>, Option<Vec<Anchor>>)>);

impl Sink for Chunks {
    type In = ChunkBatch;
    type Output = Vec<(Vec<u8>, Option<Vec<Anchor>>)>;
    fn name(&self) -> &'static str {
        "chunks"
    }
    fn process(&mut self, input: ChunkBatch) -> Result<()> {
        for item in input.items {
            match item {
                ChunkItem::Chunk(chunk) => self.0.push((chunk.bytes.to_vec(), chunk.anchors)),
                ChunkItem::Hole(len) => self.0.push((len.to_le_bytes().to_vec(), None)),
                _ => {}
            }
        }
        Ok(())
    }
    fn finish(self) -> Result<Self::Output> {
        Ok(self.0)
    }
}

fn config(kind: ChunkerKind) -> RepositoryConfig {
    let mut config = RepositoryConfig { chunker: kind, ..RepositoryConfig::default() };
    config.chunk_bytes_min.0 = 128;
    config.chunk_bytes_avg.0 = 512;
    config.chunk_bytes_max.0 = 2048;
    config
}

/// Parts of files: bytes, whether they are scanned, and what follows them.
#[derive(Debug, Clone, Copy)]
enum After {
    Nothing,
    Hole,
    End,
}

/// The chunks of `parts`, of which some are scanned if `is_scanned`.
fn chunks(
    config: &RepositoryConfig,
    parts: &[(Vec<u8>, bool, After)],
    is_scanned: bool,
) -> Vec<(Vec<u8>, Option<Vec<Anchor>>)> {
    let scanner = AnchorScanner::new(config, 7);
    let mut batches = Vec::new();
    for (bytes, scans, after) in parts {
        let mut items = vec![ReadItem::Data(bytes.clone().into())];
        if is_scanned && *scans {
            scanner.scan(&mut items);
            assert!(config.chunker == ChunkerKind::Sieve || !matches!(items[0], ReadItem::Scanned(..)));
        }
        match after {
            After::Nothing => {}
            After::Hole => items.push(ReadItem::Hole(5)),
            After::End => {
                let (outcome, small_holes) = (Outcome::Complete, Default::default());
                items.push(ReadItem::Tree(TreeItem::End { outcome, small_holes, sent: None }));
            }
        }
        batches.push(ReadBatch { items, bytes: bytes.len() as u64 });
    }
    let mut pipeline = Pipeline::new(4, Arc::default());
    let link = pipeline.source(Batches(batches));
    let link = pipeline.stage(link, ChunkStage::new(config, 7, 1 << 20));
    pipeline.run(link, Chunks::default()).unwrap().0
}

fn parts() -> impl Strategy<Value = Vec<(Vec<u8>, bool, After)>> {
    let after = prop_oneof![6 => Just(After::Nothing), 1 => Just(After::Hole), 1 => Just(After::End)];
    let len = prop_oneof![3 => 0..64usize, 3 => 64..3000usize, 1 => 3000..20_000usize];
    let letters = prop_oneof![3 => Just(256u64), 1 => Just(4), 1 => Just(1)];
    let part = (len, letters, any::<u64>(), prop::bool::weighted(0.8), after);
    prop::collection::vec(part, 1..24).prop_map(|parts| {
        let part = |(len, letters, seed, scans, after): (usize, u64, u64, bool, After)| {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % letters
            };
            ((0..len).map(|_| next() as u8).collect(), scans, after)
        };
        let mut parts: Vec<_> = parts.into_iter().map(part).collect();
        parts.push((Vec::new(), false, After::End));
        parts
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn anchors_that_read_has_found_give_the_same_chunks(parts in parts()) {
        let config = config(ChunkerKind::Sieve);
        let expected = chunks(&config, &parts, false);
        prop_assert_eq!(chunks(&config, &parts, true), expected);
    }
}

#[test]
fn chunkers_without_anchors_are_not_scanned() {
    let bytes: Vec<u8> = (0..50_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let parts = [(bytes, true, After::End)];
    for kind in [ChunkerKind::FastCdc, ChunkerKind::GearXet, ChunkerKind::UltraCdc, ChunkerKind::Fixed] {
        let config = config(kind);
        assert_eq!(chunks(&config, &parts, true), chunks(&config, &parts, false), "{kind}");
    }
}
