//! Prices: which copies store less than the literal bytes that they replace.
//!
//! A copy costs bytes of the container index, and work whenever the chunk or a copy of it is read. In data that
//! compresses 20:1 or 100:1 many short copies cost more than they save.
//!
//! 1. *Rate*: samples around the short matches of a chunk are compressed together, and the first of them alone. The
//!    difference is what a literal byte takes when the compressor has seen similar bytes. Chunks with few short matches
//!    need no rate. Ordinary rates differ little, so the next chunks take one without samples of their own.
//! 2. *Length*: in chunks whose bytes all take little, short matches would cut long ones short. Only long matches are
//!    sought there. The same goes for long text: the lines of a log share words with all others, and compress well.
//! 3. *Choice*: of all ways to keep or drop each match, the one with the lowest expected stored bytes. One walk along
//!    the matches finds it with two states: the match before is a copy, or it is not.
//! 4. *Bases*: a base costs its name. If all its matches together save less, they are dropped.
//!
//! The choice depends on the stream of chunks and their matches only. Prices are in 1/256 of a stored byte.

use super::Match;
use crate::chunk::text::is_text;
use crate::codec::Scratch;
use crate::error::Result;
use crate::repo::container::EntryNumber;

/// A stored byte.
const BYTE: u64 = 256;
/// A copy in the container index that continues at the distance of the match before it.
const NEAR_COPY: u64 = 7 * BYTE / 2;
/// Any other copy.
const FAR_COPY: u64 = 6 * BYTE;
/// An add of literal bytes.
const ADD: u64 = 3 * BYTE / 2;
/// The name of a base.
const BASE: u64 = 40 * BYTE;
/// Matches from this length on are worth a copy at any rate.
const LONG_MATCH: u32 = 2048;
/// Shorter matches of a chunk from which on the rate is sampled.
const SHORT_MATCHES_MIN: usize = 8;
/// Bytes of one sample.
const SAMPLE_BYTES: usize = 4 << 10;
/// Samples of a chunk.
const SAMPLES: usize = 4;
/// zstd level for samples.
const LEVEL: i32 = 1;
/// A rate of one stored byte for fewer literal bytes than this is ordinary.
const ORDINARY: u64 = 8;
/// Chunks that take an ordinary rate from the chunk before them.
const BORROWERS: u32 = 7;
/// A chunk is repetitive if a stored byte stands for more literal bytes than this, ...
const REPETITIVE: u64 = 12;
/// ... and then a match must save as many stored bytes as this to be worth searching for, ...
const MATCH_BYTES_SAVED: u64 = 24;
/// ... but need not be longer than this.
const MATCH_BYTES_MIN_MAX: u64 = 1 << 10;

/// Shortest text whose matches must be long. Sources are shorter.
const TEXT_BYTES_MIN: usize = 64 << 10;

/// Expected stored size of a literal byte, in 1/65536 of a stored byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiteralRate(u32);

impl LiteralRate {
    /// The rate of bytes that do not compress. Every copy pays.
    pub const FULL: LiteralRate = LiteralRate(1 << 16);

    /// Price of this many literal bytes. The samples say nothing about the bytes of long matches.
    fn price(self, len: u32) -> u64 {
        let rate = if len < LONG_MATCH { self.0 } else { self.0.max(Self::FULL.0 / 4) };
        (u64::from(len) * u64::from(rate)) >> 8
    }

    /// Whether a stored byte stands for fewer than `count` literal bytes.
    fn is_above(self, count: u64) -> bool {
        u64::from(self.0) * count >= u64::from(Self::FULL.0)
    }

    /// The rate divided by two, `count` times.
    #[must_use]
    pub fn halved(self, count: u32) -> Self {
        LiteralRate(self.0.checked_shr(count).unwrap_or(0))
    }
}

/// Samples the rates of chunks.
#[derive(Default)]
pub struct RateSampler {
    scratch: Scratch,
    sample: Vec<u8>,
    space: Vec<u8>,
    /// An ordinary rate, and the number of chunks that may still take it.
    lent: Option<(LiteralRate, u32)>,
}

impl RateSampler {
    /// The next chunk takes no rate from a chunk before it.
    pub fn forget(&mut self) {
        self.lent = None;
    }

    /// The rate of the bytes of `chunk` around its short matches; [`LiteralRate::FULL`] if there are few. It may be the
    /// ordinary rate of a chunk shortly before.
    ///
    /// # Errors
    /// Errors of the compressor: no memory.
    pub fn rate(&mut self, chunk: &[u8], matches: &[Match]) -> Result<LiteralRate> {
        let short: Vec<&Match> = matches.iter().filter(|found| found.len < LONG_MATCH).collect();
        if short.len() < SHORT_MATCHES_MIN {
            return Ok(LiteralRate::FULL);
        }
        if let Some((rate, borrowers)) = self.lent.take()
            && borrowers > 0
        {
            self.lent = Some((rate, borrowers - 1));
            return Ok(rate);
        }
        let middles: [usize; SAMPLES] = std::array::from_fn(|number| {
            let found = short.get((2 * number + 1) * short.len() / (2 * SAMPLES));
            found.map_or(0, |found| found.position as usize)
        });
        let rate = self.sampled(chunk, middles)?;
        self.lent = rate.is_above(ORDINARY).then_some((rate, BORROWERS));
        Ok(rate)
    }

    /// Length in bytes from which on matches are worth searching for in `chunk`, with `rate` around its short matches.
    /// It is `bytes_min`, the shortest copy, unless the whole chunk is repetitive.
    ///
    /// # Errors
    /// Errors of the compressor: no memory.
    pub fn match_bytes_min(&mut self, chunk: &[u8], rate: LiteralRate, bytes_min: usize) -> Result<usize> {
        if rate.is_above(REPETITIVE) {
            return Ok(bytes_min);
        }
        // In archives of text the short matches are in headers, which take less than the text.
        let rate = rate.max(self.sampled_evenly(chunk)?);
        Ok(if rate.is_above(REPETITIVE) { bytes_min } else { worth_searching(rate, bytes_min) })
    }

    /// Length in bytes from which on matches are worth searching for in `chunk`, as far as it is known before any match
    /// is. It is `bytes_min` unless the chunk is long text.
    ///
    /// # Errors
    /// Errors of the compressor: no memory.
    pub fn text_match_bytes_min(&mut self, chunk: &[u8], bytes_min: usize) -> Result<usize> {
        if chunk.len() < TEXT_BYTES_MIN || !is_text(chunk) {
            return Ok(bytes_min);
        }
        Ok(worth_searching(self.sampled_evenly(chunk)?, bytes_min))
    }

    /// The rate of samples from everywhere in `chunk`.
    fn sampled_evenly(&mut self, chunk: &[u8]) -> Result<LiteralRate> {
        self.sampled(chunk, std::array::from_fn(|number| (2 * number + 1) * chunk.len() / (2 * SAMPLES)))
    }

    /// The rate of samples around these ascending positions.
    fn sampled(&mut self, chunk: &[u8], middles: [usize; SAMPLES]) -> Result<LiteralRate> {
        self.sample.clear();
        let mut end = 0;
        for middle in middles {
            let start = middle.saturating_sub(SAMPLE_BYTES / 2).max(end);
            end = (start + SAMPLE_BYTES).min(chunk.len());
            self.sample.extend_from_slice(chunk.get(start..end).unwrap_or_default());
        }
        let first = SAMPLE_BYTES.min(self.sample.len() / 2);
        let alone = self.compressed_len(0..first)?;
        let together = self.compressed_len(0..self.sample.len())?;
        let added = (self.sample.len() - first).max(1) as u64;
        let rate = (together.saturating_sub(alone) << 16) / added;
        Ok(LiteralRate(rate.min(1 << 16) as u32))
    }

    fn compressed_len(&mut self, range: std::ops::Range<usize>) -> Result<u64> {
        self.space.clear();
        self.scratch.compress(self.sample.get(range).unwrap_or_default(), LEVEL, &mut self.space)?;
        Ok(self.space.len() as u64)
    }
}

/// The length of a match that saves [`MATCH_BYTES_SAVED`] at `rate`, but at least `bytes_min`.
fn worth_searching(rate: LiteralRate, bytes_min: usize) -> usize {
    let len = (MATCH_BYTES_SAVED << 16) / u64::from(rate.0).max(1);
    bytes_min.max(len.min(MATCH_BYTES_MIN_MAX) as usize)
}

/// The lowest prices of the matches so far.
#[derive(Debug, Clone, Copy, Default)]
struct Choice {
    /// If the last one is chosen; and whether the one before it is chosen then.
    chosen: (u64, bool),
    /// If the last one is dropped; and whether the one before it is chosen then.
    dropped: (u64, bool),
}

/// Drops those of `matches`, which are in ascending order without overlap, that are expected to cost more than they
/// save at `rate`.
pub fn prune(matches: &mut Vec<Match>, rate: LiteralRate) {
    if rate == LiteralRate::FULL {
        return;
    }
    let mut chosen = choose(matches, rate).into_iter();
    matches.retain(|_| chosen.next().unwrap_or(true));
    drop_poor_bases(matches, rate);
}

/// Which of `matches` to keep for the lowest price, without regard to the names of bases.
fn choose(matches: &[Match], rate: LiteralRate) -> Vec<bool> {
    let mut choices = Vec::with_capacity(matches.len());
    let (mut last, mut before) = (Choice { chosen: (0, true), dropped: (u64::MAX / 2, false) }, None::<&Match>);
    for found in matches.iter() {
        let gap = before.map_or(found.position, |before| found.position - (before.position + before.len));
        let copy = if before.is_some_and(|before| is_near(before, found)) { NEAR_COPY } else { FAR_COPY };
        // The literal bytes before a copy need an add; those of a dropped match join them.
        let after_chosen = last.chosen.0 + copy + if gap > 0 { ADD } else { 0 };
        let after_dropped = last.dropped.0 + copy + ADD;
        let literal = rate.price(found.len);
        last = Choice {
            chosen: (after_chosen.min(after_dropped), after_chosen <= after_dropped),
            dropped: (last.chosen.0.min(last.dropped.0) + literal, last.chosen.0 <= last.dropped.0),
        };
        choices.push(last);
        before = Some(found);
    }
    let mut is_chosen = last.chosen.0 <= last.dropped.0;
    let mut chosen = vec![false; matches.len()];
    for (chosen, choice) in chosen.iter_mut().zip(&choices).rev() {
        *chosen = is_chosen;
        is_chosen = if is_chosen { choice.chosen.1 } else { choice.dropped.1 };
    }
    chosen
}

/// Drops the matches of bases that save less than their names cost.
fn drop_poor_bases(matches: &mut Vec<Match>, rate: LiteralRate) {
    let mut bases: Vec<(EntryNumber, u64, u64)> = Vec::new();
    for found in matches.iter() {
        let (saved, cost) = (rate.price(found.len), NEAR_COPY);
        match bases.iter_mut().find(|known| known.0 == found.base) {
            Some(known) => (known.1, known.2) = (known.1 + saved, known.2 + cost),
            None => bases.push((found.base, saved, BASE + FAR_COPY)),
        }
    }
    bases.retain(|base| base.1 < base.2);
    if !bases.is_empty() {
        matches.retain(|found| bases.iter().all(|poor| poor.0 != found.base));
    }
}

/// Whether `next` continues at the distance of `found` in the same base.
fn is_near(found: &Match, next: &Match) -> bool {
    found.base == next.base && next.offset.wrapping_sub(found.offset) == next.position.wrapping_sub(found.position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::ContainerNumber;
    use proptest::prelude::*;

    fn entry(position: u32) -> EntryNumber {
        EntryNumber::stored(ContainerNumber(0), position)
    }

    #[test]
    fn only_in_long_text_are_matches_long_from_the_start() {
        let line = |number: u64| {
            let noise = number.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
            format!("2026-01-01 GET /page/{} HTTP/1.1 200 {noise} \"Mozilla/5.0 (X11; Linux)\"\n", noise % 97)
        };
        let text: Vec<u8> = (0..2000).flat_map(|number| line(number).into_bytes()).collect();
        let text = text.get(..TEXT_BYTES_MIN).expect("is long");
        let mut sampler = RateSampler::default();
        let len = sampler.text_match_bytes_min(text, 32).expect("samples");
        assert!((64..400).contains(&len), "{len}");
        assert_eq!(sampler.text_match_bytes_min(text, 500).expect("samples"), 500);
        assert_eq!(sampler.text_match_bytes_min(&text[1..], 32).expect("samples"), 32);
        let mut archive = text.to_vec();
        archive[..600].fill(0);
        assert_eq!(sampler.text_match_bytes_min(&archive, 32).expect("samples"), 32);
    }

    /// Matches with these gaps before them, lengths and shifts, of one base.
    fn matches(parts: &[(u32, u32, u32)]) -> Vec<Match> {
        let mut position = 0;
        let next = |(gap, len, shift): &(u32, u32, u32)| {
            position += gap;
            let found = Match { position, base: entry(0), offset: position + shift, len: *len };
            position += len;
            found
        };
        parts.iter().map(next).collect()
    }

    /// The price of a choice, counted from its operations.
    fn price(matches: &[Match], chosen: &[bool], rate: LiteralRate) -> u64 {
        let (mut total, mut after_copy, mut end) = (0, true, 0);
        for (number, found) in matches.iter().enumerate() {
            if !chosen[number] {
                (total, after_copy) = (total + rate.price(found.len), false);
            } else {
                total += if after_copy && found.position == end { 0 } else { ADD };
                let near = number > 0 && is_near(&matches[number - 1], found);
                (total, after_copy) = (total + if near { NEAR_COPY } else { FAR_COPY }, true);
            }
            end = found.position + found.len;
        }
        total
    }

    proptest! {
        #[test]
        fn no_other_choice_has_a_lower_price(
            parts in prop::collection::vec((0u32..9, 1u32..300, 0u32..2), 0..9),
            rate in 0u32..65536,
        ) {
            let (matches, rate) = (matches(&parts), LiteralRate(rate));
            let least = price(&matches, &choose(&matches, rate), rate);
            for choice in 0u32..(1 << matches.len()) {
                let chosen: Vec<bool> = (0..matches.len()).map(|number| (choice >> number) & 1 == 1).collect();
                prop_assert!(least <= price(&matches, &chosen, rate), "{chosen:?}");
            }
        }
    }

    #[test]
    fn copies_pay_from_a_length_that_the_rate_sets() {
        // A stored byte for every 4, 20 and 100 bytes.
        for (ratio, too_short, long_enough) in [(4, 10, 32), (20, 60, 160), (100, 300, 800)] {
            for (len, count) in [(too_short, 0), (long_enough, 50)] {
                let mut found = matches(&[(5, len, 0); 50]);
                prune(&mut found, LiteralRate((1 << 16) / ratio));
                assert_eq!(found.len(), count, "{ratio}:1, {len} bytes");
            }
        }
    }

    #[test]
    fn a_base_must_pay_for_its_name() {
        let near = |position, base, len| Match { position, base: entry(base), offset: position, len };
        let mut found = vec![near(0, 1, 9000), near(10_000, 2, 150), near(20_000, 1, 100)];
        prune(&mut found, LiteralRate((1 << 16) / 4));
        assert_eq!(found, [near(0, 1, 9000), near(20_000, 1, 100)]);
    }

    /// Rows of 128 bytes, most of them blanks.
    fn rows() -> Vec<u8> {
        let row = |number: u32| format!("{:<16}{:<112}", number.wrapping_mul(2_654_435_761), "");
        (0..500).flat_map(|number| row(number).into_bytes()).collect()
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut noise = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        noise
    }

    /// 50 short matches from `at` on.
    fn short_matches(at: u32) -> Vec<Match> {
        let found = |number: u32| Match { position: at + 600 * number, base: entry(0), offset: 0, len: 40 };
        (0..50).map(found).collect()
    }

    #[test]
    fn the_rate_is_that_of_the_bytes_around_short_matches() {
        let of = |chunk: &[u8], at: u32| RateSampler::default().rate(chunk, &short_matches(at)).unwrap();
        let both = [rows(), noise(rows().len())].concat();
        let (rows, noise) = (of(&both, 10_000), of(&both, 80_000));
        assert!((2048..8192).contains(&rows.0), "{rows:?}");
        assert!(noise.0 > 60_000, "{noise:?}");
        let long = [Match { position: 0, base: entry(0), offset: 0, len: 30_000 }; 50];
        assert_eq!(RateSampler::default().rate(&both, &long).unwrap(), LiteralRate::FULL);
    }

    #[test]
    fn only_an_ordinary_rate_is_lent() {
        let (rows, noise) = (rows(), noise(rows().len()));
        let mut sampler = RateSampler::default();
        let of_rows = sampler.rate(&rows, &short_matches(10_000)).unwrap();
        let of_noise = sampler.rate(&noise, &short_matches(10_000)).unwrap();
        assert!(of_rows < of_noise, "a low rate is not lent");
        for _ in 0..BORROWERS {
            assert_eq!(sampler.rate(&rows, &short_matches(10_000)).unwrap(), of_noise);
        }
        assert_eq!(sampler.rate(&rows, &short_matches(10_000)).unwrap(), of_rows);
        assert_eq!(sampler.rate(&rows, &[]).unwrap(), LiteralRate::FULL);
    }

    #[test]
    fn only_long_matches_are_sought_in_chunks_that_are_repetitive_throughout() {
        let min = |chunk: &[u8]| {
            let mut sampler = RateSampler::default();
            let rate = sampler.rate(chunk, &short_matches(10_000)).unwrap();
            assert!(!rate.is_above(REPETITIVE), "{rate:?}");
            sampler.match_bytes_min(chunk, rate, 32).unwrap()
        };
        assert!((24 * 12..=1024).contains(&min(&rows())), "{}", min(&rows()));
        assert_eq!(min(&[rows(), noise(rows().len())].concat()), 32, "the other half is not repetitive");
        assert_eq!(min(&vec![0; 100_000]), 1024);
        let mut sampler = RateSampler::default();
        assert_eq!(sampler.match_bytes_min(&rows(), LiteralRate::FULL, 32).unwrap(), 32);
        assert_eq!(sampler.match_bytes_min(&rows(), LiteralRate(0), 4096).unwrap(), 4096, "copies may be longer");
        assert_eq!(sampler.match_bytes_min(&[], LiteralRate(0), 32).unwrap(), 1024);
    }
}
