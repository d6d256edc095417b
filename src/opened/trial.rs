//! Finds the settings of the compressor that made a member.

use super::codes::{BlockKind, Header, predicted_lengths};
use super::huffman::Builder;
use super::inflate::Block;
use super::member::OpenMember;
use super::predictor::{CompressorFamily, Settings};
use super::symbols::Counts;

/// Tokens that every candidate has to predict.
const FIRST_TOKENS: usize = 2_000;
/// Tokens that the best ones have to predict.
const SECOND_TOKENS: usize = 24_000;
/// Candidates that go on to the second round.
const FINALISTS: usize = 4;

/// The best settings and the share of tokens that they do not predict.
pub(super) fn choose_settings(
    member: &mut OpenMember,
    before: &Settings,
    window_bits: u8,
    data: &[u8],
    blocks: &[Block],
) -> (Settings, f64) {
    let total: usize = blocks.iter().map(|block| block.tokens.len()).sum();
    let common = Settings {
        window_bits,
        builder: choose_builder(before.builder, blocks),
        block_tokens: block_tokens(blocks).unwrap_or(before.block_tokens),
        ..*before
    };
    let mut count = |settings: &Settings, tokens: usize, most: usize| {
        member.start(settings);
        member.count_misses(data, blocks, tokens, most)
    };
    let tokens = total.min(SECOND_TOKENS);
    let mut ranked: Vec<(usize, Settings)> = Vec::new();
    for settings in candidates(&common) {
        let most = ranked.get(FINALISTS - 1).map_or(usize::MAX, |&(misses, _)| misses);
        let misses = count(&settings, FIRST_TOKENS, most);
        if misses == 0 && (total <= FIRST_TOKENS || count(&settings, tokens, 0) == 0) {
            return (settings, 0.0);
        }
        if misses <= most {
            let at = ranked.partition_point(|&(other, _)| other <= misses);
            ranked.insert(at, (misses, settings));
            ranked.truncate(FINALISTS);
        }
    }
    let mut best = (common, usize::MAX);
    for (_, settings) in ranked {
        let misses = count(&settings, tokens, best.1);
        if misses < best.1 {
            best = (settings, misses);
        }
    }
    (best.0, best.1 as f64 / tokens.max(1) as f64)
}

/// Candidates, the most common ones first.
fn candidates(common: &Settings) -> impl Iterator<Item = Settings> {
    let plain = Settings { hash_bits: 15, filtered: false, ..*common };
    let of = move |family, levels: &'static [u8]| levels.iter().map(move |&level| Settings { family, level, ..plain });
    let wide = move |settings: Settings| Settings { hash_bits: 16, ..settings };
    let filtered = move |settings: Settings| Settings { filtered: true, ..settings };
    std::iter::once(*common)
        .chain(of(CompressorFamily::Zlib, &[6, 9]))
        .chain(of(CompressorFamily::ZlibNg, &[9, 6]))
        .chain(of(CompressorFamily::Go, &[6]))
        .chain(of(CompressorFamily::Zlib, &[5, 7, 8, 4, 1, 2, 3]))
        .chain(of(CompressorFamily::ZlibNg, &[1, 2, 3, 4, 5, 7, 8]))
        .chain(of(CompressorFamily::Go, &[1, 9, 5, 7, 8, 4, 2, 3]))
        .chain(of(CompressorFamily::Zlib, &[6, 9, 5, 7, 8, 4, 3, 2, 1]).map(wide))
        .chain(of(CompressorFamily::Zlib, &[6, 9, 5, 7, 8, 4]).map(filtered))
        .chain(of(CompressorFamily::Zlib, &[6, 9, 5, 7, 8, 4]).map(wide).map(filtered))
        .chain(of(CompressorFamily::ZlibNg, &[9, 8, 7]).map(filtered))
        .chain(of(CompressorFamily::Miniz, &[6, 9, 1, 2, 3, 4, 5, 7, 8]))
        .chain(of(CompressorFamily::Runs, &[1]))
        .chain(of(CompressorFamily::Literals, &[1]))
}

/// The builder that gives most blocks the codes and headers they have.
fn choose_builder(before: Builder, blocks: &[Block]) -> Builder {
    let hits_of = |builder: Builder, block: &Block| {
        let BlockKind::Dynamic(header) = &block.kind else { return 0 };
        let Some(lengths) = header.lengths() else { return 0 };
        let same_lengths = lengths == predicted_lengths(builder, &Counts::of(&block.tokens));
        let same_header = **header == Header::for_lengths(builder, &lengths.0, &lengths.1);
        usize::from(same_lengths) + usize::from(same_header)
    };
    let hits = |builder: Builder| -> usize { blocks.iter().take(8).map(|block| hits_of(builder, block)).sum() };
    let mut best = (before, hits(before));
    for builder in Builder::ALL {
        let own = hits(builder);
        if own > best.1 {
            best = (builder, own);
        }
    }
    best.0
}

/// Tokens of a full block: the count that two blocks share, or that of the first.
fn block_tokens(blocks: &[Block]) -> Option<u32> {
    let counts: Vec<usize> = blocks
        .iter()
        .filter(|block| !block.is_last && !block.tokens.is_empty())
        .map(|block| block.tokens.len())
        .collect();
    let shared = counts.iter().find(|&&count| counts.iter().filter(|&&other| other == count).count() > 1);
    shared.or(counts.first()).map(|&count| count as u32)
}
