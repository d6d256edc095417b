//! Searches of the chains as the compressors have them.

use super::chains::{Chains, FoundMatch, LONG, LongChain, PlainView, match_len};
use super::miniz::search_miniz;
use super::symbols::{MATCH_MAX, WINDOW};

/// Which search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchKind {
    /// zlib: what is not longer than the match before is not looked for.
    Zlib,
    /// zlib-ng at its highest levels: changes to the chain of a later byte of the match.
    Deep,
    /// Go: no match before is known.
    Go,
    /// miniz: `chain` counts probes of up to three candidates.
    Miniz,
}

/// Settings of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finder {
    pub(super) search: SearchKind,
    /// A match before of this length cuts the chain to a quarter.
    pub(super) good: usize,
    /// From this length on no better match is looked for; greedy: longer matches are not inserted.
    pub(super) lazy_max: usize,
    /// A match of this length ends the search.
    pub(super) nice: usize,
    /// Positions that are tried.
    pub(super) chain: u32,
    /// Shortest match that is taken.
    pub(super) len_min: usize,
    /// A match of the shortest length that lies further back is not taken.
    pub(super) too_far: usize,
    /// Matches of at most five bytes are not taken.
    pub(super) filtered: bool,
    pub(super) distance_max: usize,
    /// Greedy: of a match that is not inserted the last position is.
    pub(super) inserts_last: bool,
    /// A candidate whose first and last eight bytes fit a match of eight bytes or more, and which is not longer, ends
    /// the search.
    pub(super) gives_up: bool,
}

impl Finder {
    /// Longest match at `index`, which is inserted, if it is longer than `before` at the index before.
    #[inline]
    pub(super) fn search(&self, chains: &Chains, view: &PlainView<'_>, index: usize, before: FoundMatch) -> FoundMatch {
        let found = match self.search {
            SearchKind::Zlib => self.search_zlib(chains, view, index, before.len.max(2)),
            SearchKind::Deep => self.search_deep(chains, view, index, before.len.max(2)),
            SearchKind::Go => self.search_go(chains, view, index, before.len),
            SearchKind::Miniz => {
                let probes = [1 + self.chain.div_ceil(3), 1 + (self.chain >> 2).div_ceil(3)];
                search_miniz(chains, view, index, before.len.max(2), probes)
            }
        };
        let far = found.len == self.len_min && found.distance > self.too_far;
        if far || self.filtered && found.len <= 5 { FoundMatch::default() } else { found }
    }

    #[inline]
    fn search_zlib(&self, chains: &Chains, view: &PlainView<'_>, index: usize, before: usize) -> FoundMatch {
        let data = view.data;
        let position = view.origin + index as u32;
        let limit = view.floor.max(position.saturating_sub(self.distance_max as u32));
        let mut candidate = chains.before(position);
        let lookahead = data.len() - index;
        if candidate <= view.floor || candidate < limit || lookahead <= before || before >= MATCH_MAX {
            return FoundMatch::default();
        }
        let nice = self.nice.min(lookahead).min(MATCH_MAX);
        let all = if before >= self.good { self.chain >> 2 } else { self.chain };
        let mut chain = all;
        let mut found = FoundMatch { len: before, distance: 0 };
        let mut tail = pair(data, index + before - 1);
        let long = chains.long(position);
        // The first candidate may lie at the limit, the others lie above it.
        let first = candidate;
        loop {
            if let Some(long) = long.filter(|_| found.len + 1 >= LONG) {
                let rest = LongSearch { index, first, limit, candidate, chain: all, nice };
                let _ = chain;
                return rest.search(long, view, found);
            }
            let source = candidate.wrapping_sub(view.origin) as usize;
            if pair(data, source + found.len - 1) == tail {
                let len = match_len(data, source, index);
                if len > found.len {
                    found = FoundMatch { len, distance: index - source };
                    if len >= nice {
                        break;
                    }
                    tail = pair(data, index + len - 1);
                } else if self.gives_up && found.len >= 8 && len >= 8 && ends_equal(data, source, index, found.len) {
                    break;
                }
            }
            candidate = chains.before(candidate);
            chain = chain.saturating_sub(1);
            if candidate <= limit || chain == 0 {
                break;
            }
        }
        if found.distance == 0 { FoundMatch::default() } else { found }
    }

    fn search_go(&self, chains: &Chains, view: &PlainView<'_>, index: usize, before: usize) -> FoundMatch {
        let data = view.data;
        let lookahead = data.len() - index;
        let position = view.origin + index as u32;
        // Go moves its window by half when the position passes its end.
        let since = (position - view.floor) as usize;
        let moves = if since < 2 * WINDOW - 261 { 0 } else { (since - (2 * WINDOW - 261)) / WINDOW + 1 };
        let start = view.floor + (moves * WINDOW) as u32;
        let limit = start.max(position.saturating_sub(WINDOW as u32));
        let mut candidate = chains.before(position);
        let mut found = FoundMatch { len: 3, distance: 0 };
        if candidate < limit || lookahead <= before.max(3) {
            return FoundMatch::default();
        }
        let nice = self.nice.min(lookahead);
        for _ in 0..self.chain {
            let source = (candidate - view.origin) as usize;
            if data[source + found.len] == data[index + found.len] {
                let len = match_len(data, source, index);
                if len > found.len && (len > 4 || index - source <= self.too_far) {
                    found = FoundMatch { len, distance: index - source };
                    if len >= nice || len >= MATCH_MAX {
                        break;
                    }
                }
            }
            if position - candidate == WINDOW as u32 {
                break;
            }
            candidate = chains.before(candidate);
            if candidate < limit {
                break;
            }
        }
        if found.distance == 0 { FoundMatch::default() } else { found }
    }

    /// The search of zlib-ng for levels with chains above 1,024.
    fn search_deep(&self, chains: &Chains, view: &PlainView<'_>, index: usize, before: usize) -> FoundMatch {
        let mut deep = Deep::new(self, chains, view, index);
        let mut found = FoundMatch { len: before, distance: 0 };
        let lookahead = view.data.len() - index;
        let first = chains.before(deep.position);
        if first <= view.floor || deep.position - first > self.distance_max as u32 || lookahead <= before {
            return FoundMatch::default();
        }
        deep.candidate = first;
        if before >= 3 && !deep.start_far(before) {
            return FoundMatch::default();
        }
        let mut chain = if before >= self.good { self.chain >> 2 } else { self.chain };
        while deep.candidate < deep.position {
            let source = (deep.candidate - deep.offset - view.origin) as usize;
            let len = match_len(view.data, source, index);
            if len > found.len {
                found = FoundMatch { len, distance: index - source };
                if len >= lookahead || len >= self.nice || len >= MATCH_MAX {
                    break;
                }
                if len > 3 && source + len < index {
                    if !deep.change_chain(len) {
                        break;
                    }
                    continue;
                }
            }
            chain = chain.saturating_sub(1);
            deep.candidate = chains.before(deep.candidate);
            if chain == 0 || deep.candidate <= deep.limit {
                break;
            }
        }
        if found.distance == 0 { FoundMatch::default() } else { found }
    }
}

/// The rest of a search, along a long chain.
struct LongSearch {
    index: usize,
    /// First position of the search, which may lie at the limit.
    first: u32,
    limit: u32,
    /// What lies above is searched.
    candidate: u32,
    chain: u32,
    nice: usize,
}

impl LongSearch {
    #[inline]
    fn search(&self, long: LongChain<'_>, view: &PlainView<'_>, mut found: FoundMatch) -> FoundMatch {
        let (data, index) = (view.data, self.index);
        let mut tail = pair(data, index + found.len - 1);
        let mut tried = 0u32;
        let mut candidate = long.before(view.origin + index as u32);
        while candidate > self.candidate {
            candidate = long.before(candidate);
        }
        while candidate > self.limit || candidate == self.first {
            let source = (candidate - view.origin) as usize;
            if pair(data, source + found.len - 1) == tail {
                let len = match_len(data, source, index);
                if len > found.len {
                    if long.steps(candidate) > self.chain {
                        break;
                    }
                    found = FoundMatch { len, distance: index - source };
                    if len >= self.nice {
                        break;
                    }
                    tail = pair(data, index + len - 1);
                }
            }
            tried += 1;
            // Now and then it is asked whether the compressor came so far.
            if tried.is_multiple_of(16)
                && long.steps(candidate) >= self.chain
                && data[source..source + 3] == data[index..index + 3]
            {
                break;
            }
            candidate = long.before(candidate);
        }
        if found.distance == 0 { FoundMatch::default() } else { found }
    }
}

/// State of the deep search: it follows the chain of the byte `offset` of the match.
struct Deep<'a> {
    chains: &'a Chains,
    view: &'a PlainView<'a>,
    index: usize,
    position: u32,
    candidate: u32,
    offset: u32,
    limit_base: u32,
    limit: u32,
}

impl<'a> Deep<'a> {
    fn new(finder: &Finder, chains: &'a Chains, view: &'a PlainView<'a>, index: usize) -> Self {
        let position = view.origin + index as u32;
        let limit = view.floor.max(position.saturating_sub(finder.distance_max as u32));
        Deep { chains, view, index, position, candidate: 0, offset: 0, limit_base: limit, limit }
    }

    /// Starts with the most distant chain of a byte of the match before. False: none is near enough.
    fn start_far(&mut self, before: usize) -> bool {
        for offset in 1..before - 1 {
            let latest = self.chains.latest(self.view, self.index + offset);
            if latest < self.candidate {
                self.offset = offset as u32;
                self.candidate = latest;
            }
        }
        self.limit = self.limit_base + self.offset;
        self.candidate > self.limit
    }

    /// After a match of `len`: changes to the byte of the match whose chain goes furthest back.
    fn change_chain(&mut self, len: usize) -> bool {
        let matched = self.candidate - self.offset;
        self.offset = 0;
        let mut next = matched;
        for offset in 0..=(len - 3) as u32 {
            let before = self.chains.before(matched + offset);
            if before < next {
                if before <= self.limit_base + offset {
                    return false;
                }
                next = before;
                self.offset = offset;
            }
        }
        self.candidate = next;
        let offset = len - 4;
        let latest = self.chains.latest(self.view, self.index + offset);
        if latest < self.candidate {
            self.offset = offset as u32;
            if latest <= self.limit_base + self.offset {
                return false;
            }
            self.candidate = latest;
        }
        self.limit = self.limit_base + self.offset;
        true
    }
}

/// Two bytes at an index.
#[inline(always)]
fn pair(data: &[u8], index: usize) -> [u8; 2] {
    match data.get(index..index + 2) {
        Some(&[one, other]) => [one, other],
        _ => [0, 0],
    }
}

/// Whether the eight bytes up to offset `len` are equal.
fn ends_equal(data: &[u8], source: usize, index: usize, len: usize) -> bool {
    data[source + len - 7..=source + len] == data[index + len - 7..=index + len]
}
