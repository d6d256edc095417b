//! Copies and deltas resolve to their frames and decode; invalid operations are errors.

use proptest::prelude::*;

use super::*;
use crate::codec::delta::{Derivation, encode_tagged};
use crate::codec::{ElementType, Scratch};
use crate::repo::container::{
    BaseUse, ContainerNumber, DecodeLimits, EntryAddress, Extent, FrameAddress, NamedChunk, OperationList,
    OperationSlice, SessionOperations, assemble_base,
};
use crate::types::{Fingerprint, RepositoryKey};

/// Entries numbered from 0. The literal bytes of each are in the frame of the same number.
#[derive(Default)]
struct TestChunks {
    entries: Vec<(u32, Vec<Operation>, Vec<u32>)>,
    frames: Vec<Vec<u8>>,
    chunks: Vec<Vec<u8>>,
}

impl TestChunks {
    fn push(&mut self, content: Vec<u8>, literal: Vec<u8>, operations: Vec<Operation>, bases: Vec<u32>) -> u32 {
        self.entries.push((content.len() as u32, operations, bases));
        self.frames.push(literal);
        self.chunks.push(content);
        self.entries.len() as u32 - 1
    }

    fn whole(&mut self, content: Vec<u8>) -> u32 {
        self.push(content.clone(), content, Vec::new(), Vec::new())
    }

    /// An entry of adds (0), copies (1) and literal copies (2) in the given order.
    fn mixed(&mut self, parts: &[(u8, prop::sample::Index, Range<u32>)]) -> u32 {
        let (mut content, mut literal, mut operations, mut bases) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (kind, entry, range) in parts {
            let entry = entry.index(self.entries.len());
            let source = if *kind == 1 { &self.chunks[entry] } else { &self.frames[entry] };
            let start = range.start.min(source.len() as u32);
            let len = range.end.min(source.len() as u32 - start);
            if len == 0 {
                continue;
            }
            let bytes = &source[start as usize..(start + len) as usize];
            content.extend_from_slice(bytes);
            let base = bases.len() as u32;
            operations.push(match kind {
                0 => Operation::Add { len },
                1 => Operation::Copy { base, offset: start, len },
                _ => Operation::LiteralCopy { base, offset: start, len },
            });
            if *kind == 0 { literal.extend_from_slice(bytes) } else { bases.push(entry as u32) }
        }
        if operations.is_empty() {
            return self.whole(vec![0]);
        }
        self.push(content, literal, operations, bases)
    }

    /// A delta to ranges of other entries.
    fn delta(&mut self, content: Vec<u8>, ranges: &[(u32, Range<u32>)]) -> u32 {
        let part = |(entry, range): &(u32, Range<u32>)| {
            self.chunks[*entry as usize][range.start as usize..range.end as usize].to_vec()
        };
        let base: Vec<u8> = ranges.iter().flat_map(part).collect();
        let (derivation, phase) = (Derivation::Context(ElementType::Bf16), content.len() % 3);
        let mut payload = Vec::new();
        encode_tagged(derivation, phase, &content, &base, &mut Scratch::of_writer(true), &mut payload).unwrap();
        if payload.len() >= content.len() {
            payload = content.clone();
        }
        let operations = ranges.iter().enumerate().map(|(base, (_, range))| {
            let len = range.end - range.start;
            Operation::Delta { base: base as u32, offset: range.start, len }
        });
        self.push(content, payload, operations.collect(), ranges.iter().map(|range| range.0).collect())
    }

    fn read(&mut self, entry: u32) -> Result<Vec<u8>> {
        let extent_map = ExtentCache::new(1 << 16).extent_map(self, entry_number(entry))?;
        let frames: Vec<&[u8]> =
            extent_map.frames().iter().map(|frame| self.frames[position_of(*frame)].as_slice()).collect();
        let mut out = Vec::new();
        extent_map.assemble(&frames, &mut Scratch::default(), &mut out)?;
        Ok(out)
    }
}

fn entry_number(position: u32) -> EntryNumber {
    EntryNumber::stored(ContainerNumber(0), position)
}

fn position_of(frame: FrameNumber) -> usize {
    let FrameAddress::Stored { position, .. } = frame.address() else { panic!("{frame:?} is not stored") };
    position as usize
}

fn session(operations: Vec<Operation>, entries: Vec<u32>) -> Arc<SessionOperations> {
    let entries = entries.into_iter().map(entry_number).collect();
    Arc::new(SessionOperations { list: OperationList { operations, bases: Vec::new() }, entries })
}

impl OperationSource for TestChunks {
    fn view(&mut self, entry: EntryNumber) -> Result<OperationView> {
        let EntryAddress::Stored { container, position } = entry.address() else { panic!("{entry:?} is not stored") };
        let (raw_len, operations, bases) = self.entries[position as usize].clone();
        let literal_len = self.frames[position as usize].len() as u32;
        let frame = FrameNumber::stored(container, position);
        let operations = if operations.is_empty() {
            OperationSlice::Whole
        } else {
            OperationSlice::Session(session(operations, bases))
        };
        Ok(OperationView { entry, raw_len, frame, literal_offset: 0, literal_len, depth: 1, operations })
    }

    fn base(&mut self, view: &OperationView, base: u32, _: BaseUse) -> Result<EntryNumber> {
        let OperationSlice::Session(session) = &view.operations else { panic!("whole entries have no bases") };
        Ok(session.entries[base as usize])
    }
}

fn changed(content: &[u8], step: usize) -> Vec<u8> {
    let change = |(at, byte): (usize, &u8)| if at % 16 == step % 16 { byte ^ 1 } else { *byte };
    content.iter().enumerate().map(change).collect()
}

fn with_one_changed(content: &[u8], step: usize) -> Vec<u8> {
    let mut content = content.to_vec();
    let at = content.len() * step / 9;
    content[at] ^= 1;
    content
}

proptest! {
    #[test]
    fn the_extents_of_any_range_make_its_bytes(
        first in prop::collection::vec(any::<u8>(), 1..300),
        entries in prop::collection::vec(
            prop::collection::vec((0u8..3, any::<prop::sample::Index>(), 0u32..200, 0u32..90), 1..30), 1..12,
        ),
        from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
    ) {
        let mut chunks = TestChunks::default();
        let mut last = chunks.whole(first);
        for parts in entries {
            let parts: Vec<_> = parts.into_iter().map(|(kind, entry, start, len)| (kind, entry, start..len)).collect();
            last = chunks.mixed(&parts);
            prop_assert_eq!(&chunks.read(last).unwrap(), &chunks.chunks[last as usize]);
        }
        // A cache that keeps nothing resolves each base again. The second one keeps all.
        for bytes_max in [0, 1 << 20] {
            let extent_map = ExtentCache::new(bytes_max).extent_map(&mut chunks, entry_number(last)).unwrap();
            let content = &chunks.chunks[last as usize];
            let (from, to) = (from.index(content.len() + 1), to.index(content.len() + 1));
            let range = from.min(to) as u32..from.max(to) as u32;
            let extents: Vec<_> = extent_map.extents_of(range.clone()).unwrap().collect();
            let bytes =
                extents.iter().flat_map(|extent| extent.slice_of(&chunks.frames[position_of(extent.frame)]).unwrap());
            prop_assert!(bytes.eq(&content[range.start as usize..range.end as usize]));
            let continued =
                |pair: &[Extent]| pair[0].owner == pair[1].owner && pair[0].literal + pair[0].len == pair[1].literal;
            prop_assert!(!extents.windows(2).any(continued));
            let mut frames: Vec<FrameNumber> = extent_map.extents().map(|extent| extent.frame).collect();
            frames.sort_unstable();
            frames.dedup();
            prop_assert_eq!(extent_map.frames(), &frames[..]);
            prop_assert!(extent_map.extents_of(0..content.len() as u32 + 1).is_err());
        }
    }

    #[test]
    fn chains_of_deltas_decode(
        first in prop::collection::vec(any::<u8>(), 1..3000), kinds in prop::collection::vec(0u8..7, 1..9),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut chunks = TestChunks::default();
        let mut last = chunks.whole(first.clone());
        for (step, kind) in kinds.into_iter().enumerate() {
            let below = chunks.chunks[last as usize].clone();
            let content = match kind {
                0 => below.clone(),
                1 => with_one_changed(&below, step),
                2 => [changed(&below, step), vec![9; step]].concat(),
                3 => changed(&below, step)[below.len().min(step + 1) - 1..].to_vec(),
                4 => below.iter().map(|byte| byte.wrapping_mul(37) ^ step as u8).collect(),
                _ => changed(&below, step),
            };
            last = chunks.delta(content, &[(last, 0..below.len() as u32)]);
            prop_assert_eq!(&chunks.read(last).unwrap(), &chunks.chunks[last as usize]);
        }
        // A delta to the end of one entry and the start of another.
        let len = chunks.chunks[last as usize].len() as u32;
        let cut = cut.index(first.len().min(len as usize)) as u32;
        let content = changed(&first, 3);
        let delta = chunks.delta(content.clone(), &[(last, cut..len), (0, 0..cut)]);
        prop_assert_eq!(chunks.read(delta).unwrap(), content);
    }
}

#[test]
fn what_a_writer_makes_every_reader_decodes() {
    // The cache holds two of eight nested deltas, so a reader decodes all of them twice.
    let limits = DecodeLimits { cached: 1000, assembled: 200_000, held: 1 << 20 };
    let (mut made, mut refused) = (0, 0);
    for depth in 1..10 {
        let mut chunks = TestChunks::default();
        let tops: Vec<(u32, Range<u32>)> = (0..8u8)
            .map(|chain| {
                let mut last = chunks.whole(vec![chain; 400]);
                for step in 0..depth {
                    last = chunks.delta(changed(&chunks.chunks[last as usize].clone(), step), &[(last, 0..400)]);
                }
                (last, 100..150)
            })
            .collect();
        let content: Vec<u8> = (0..8u8).flat_map(|chain| [chain; 50]).collect();
        let delta = chunks.delta(content.clone(), &tops);
        let extent_map = ExtentCache::new(1 << 16).extent_map(&mut chunks, entry_number(delta)).unwrap();
        let source = extent_map.delta.as_ref().unwrap();
        let numbers = extent_map.frames();
        let frames: Vec<&[u8]> = numbers.iter().map(|frame| chunks.frames[position_of(*frame)].as_slice()).collect();
        let scratch = &mut Scratch::default();
        let base = assemble_base(limits, &source.base, None, source.raw_len, numbers, &frames, scratch).unwrap();
        let mut out = Vec::new();
        let decoded = extent_map.decode(source, limits, &frames, scratch, &mut out);
        if base.is_some() {
            decoded.unwrap_or_else(|error| panic!("{depth}: {error}"));
            assert_eq!((out, made), (content, depth - 1));
            made += 1;
        } else {
            refused += 1;
        }
    }
    assert!(made > 1 && refused > 1, "{made} {refused}");
}

#[test]
fn a_base_whose_chunks_have_other_names_is_an_error() {
    let mut chunks = TestChunks::default();
    let content = vec![7; 400];
    let whole = chunks.whole(content.clone());
    let nested = chunks.delta(changed(&content, 1), &[(whole, 0..400)]);
    let top = chunks.delta(changed(&content, 2), &[(nested, 10..110), (whole, 0..100)]);
    let extent_map = ExtentCache::new(1 << 16).extent_map(&mut chunks, entry_number(top)).unwrap();
    let source = extent_map.delta.as_ref().unwrap();
    let numbers = extent_map.frames();
    let frames: Vec<&[u8]> = numbers.iter().map(|frame| chunks.frames[position_of(*frame)].as_slice()).collect();
    let key = RepositoryKey([3; 32]);
    let names = [nested, whole].map(|chunk| key.fingerprint(&chunks.chunks[chunk as usize]));
    let assembled = |names: [Fingerprint; 2]| {
        let maps = source.base.iter().map(|(extent_map, _)| extent_map.clone());
        let named: Vec<_> = maps.zip(names).map(|(extent_map, name)| NamedChunk { extent_map, name }).collect();
        let (limits, scratch) = (DecodeLimits::WRITERS, &mut Scratch::default());
        assemble_base(limits, &source.base, Some((&key, &named)), source.raw_len, numbers, &frames, scratch)
    };
    let expected = [&chunks.chunks[nested as usize][10..110], &chunks.chunks[whole as usize][..100]].concat();
    assert_eq!(assembled(names).unwrap().unwrap(), expected);
    for wrong in 0..2 {
        let mut names = names;
        names[wrong].0[0] ^= 1;
        assert!(matches!(assembled(names), Err(Error::Corrupt { .. })), "{wrong}");
    }
}

#[test]
fn a_delta_to_the_start_of_a_delta_has_nothing_behind_it_as_its_base() {
    let mut chunks = TestChunks::default();
    let content: Vec<u8> = (0..4000u32).flat_map(|at| [((at * at) >> 3) as u8, 0x3c]).collect();
    let whole = chunks.whole(content.clone());
    let nested = chunks.delta(changed(&content, 1), &[(whole, 0..8000)]);
    for end in [3000, 7999, 8000] {
        let top = chunks.delta(changed(&content, 2), &[(nested, 0..end)]);
        assert!(chunks.frames[top as usize].len() < content.len(), "{end}: it is stored as it is");
        assert_eq!(chunks.read(top).unwrap(), chunks.chunks[top as usize], "{end}");
    }
}

#[test]
fn a_short_delta_on_a_long_chain_takes_no_more_memory_than_its_bytes() {
    let mut chunks = TestChunks::default();
    let content = vec![7; 8000];
    let whole = chunks.whole(content.clone());
    let nested = chunks.delta(changed(&content, 1), &[(whole, 0..8000)]);
    let top = chunks.delta(chunks.chunks[nested as usize][..100].to_vec(), &[(nested, 0..8000)]);
    assert!(chunks.frames[top as usize].len() < 100, "it is stored as it is");
    let read = chunks.read(top).unwrap();
    assert_eq!(read, chunks.chunks[top as usize]);
    assert_eq!(read.capacity(), 100);
}

#[test]
fn a_chain_takes_no_more_memory_than_its_bytes_for_any_length() {
    for len in [8000, 8001, 4099, 127, 33] {
        let mut chunks = TestChunks::default();
        let mut content: Vec<u8> = (0..len as u32).flat_map(|at| [((at * at) >> 3) as u8, 0x3c]).take(len).collect();
        let mut top = chunks.whole(content.clone());
        for step in 0..4 {
            // Contexts of all elements, and payloads of few, in turn.
            content = if step % 2 == 0 { changed(&content, step) } else { with_one_changed(&content, step) };
            top = chunks.delta(content.clone(), &[(top, 0..len as u32)]);
            let read = chunks.read(top).unwrap();
            assert_eq!(read, content, "{len}, {step}");
            assert_eq!(read.capacity(), len, "{len}, {step}");
        }
    }
}

#[test]
fn a_copy_from_a_delta_is_an_error() {
    let mut chunks = TestChunks::default();
    let whole = chunks.whole(vec![7; 100]);
    let delta = chunks.delta(changed(&[7; 100], 1), &[(whole, 0..100)]);
    let copy = Operation::Copy { base: 0, offset: 0, len: 50 };
    let copied = chunks.push(vec![7; 50], Vec::new(), vec![copy], vec![delta]);
    assert!(matches!(chunks.read(copied), Err(Error::Corrupt { .. })));
}

#[test]
fn a_range_beyond_the_base_and_a_delta_among_adds_are_errors() {
    let mut chunks = TestChunks::default();
    let whole = chunks.whole(vec![7; 100]);
    let beyond = Operation::Delta { base: 0, offset: 60, len: 50 };
    let beyond = chunks.push(vec![1; 50], vec![9; 3], vec![beyond], vec![whole]);
    assert!(matches!(chunks.read(beyond), Err(Error::Corrupt { .. })));
    let operations = vec![Operation::Add { len: 1 }, Operation::Delta { base: 0, offset: 0, len: 50 }];
    let mixed = chunks.push(vec![1; 51], vec![9; 3], operations, vec![whole]);
    assert!(matches!(chunks.read(mixed), Err(Error::Corrupt { .. })));
}

#[test]
fn a_cycle_is_an_error() {
    let mut chunks = TestChunks::default();
    let operation = Operation::Delta { base: 0, offset: 0, len: 4 };
    chunks.push(vec![1; 4], vec![0; 2], vec![operation], vec![1]);
    chunks.push(vec![1; 4], vec![0; 2], vec![operation], vec![0]);
    assert!(matches!(chunks.read(0), Err(Error::Corrupt { .. })));
}

#[test]
fn a_payload_that_is_no_delta_is_an_error() {
    let mut chunks = TestChunks::default();
    let whole = chunks.whole(vec![7; 100]);
    let operation = Operation::Delta { base: 0, offset: 0, len: 100 };
    for payload in [vec![], vec![0x71], vec![1, 0, 2, 3]] {
        let entry = chunks.push(vec![1; 100], payload, vec![operation], vec![whole]);
        assert!(matches!(chunks.read(entry), Err(Error::Corrupt { .. })));
    }
    let entry = chunks.push(vec![1; 100], vec![0, 1, 2, 3], vec![operation], vec![whole]);
    let error = chunks.read(entry).unwrap_err();
    assert_eq!(error.to_string(), "delta payload needs a newer fhrd: unknown derivation 0");
}

#[test]
fn fill_writes_the_content_and_refuses_other_lengths() {
    let mut chunks = TestChunks::default();
    let base = chunks.whole((0..=255).collect());
    let content: Vec<u8> = b"new".iter().copied().chain(10..200).collect();
    let operations = vec![Operation::Add { len: 3 }, Operation::Copy { base: 0, offset: 10, len: 190 }];
    let entry = chunks.push(content.clone(), b"new".to_vec(), operations, vec![base]);
    let extent_map = ExtentCache::new(1 << 16).extent_map(&mut chunks, entry_number(entry)).unwrap();
    let mut space = vec![0; content.len()];
    extent_map.fill(&chunks.frames, &mut space).unwrap();
    assert_eq!(space, content);
    assert!(extent_map.fill(&chunks.frames, &mut space[1..]).is_err());
    space.push(0);
    assert!(extent_map.fill(&chunks.frames, &mut space).is_err());
    space.pop();
    assert!(extent_map.fill(&chunks.frames[..1], &mut space).is_err());
}
