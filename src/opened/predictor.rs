//! Predicts the tokens of a deflate stream as its compressor chose them.

use std::fmt;

use super::chains::{Chains, Hash, PlainView};
use super::finders::{Finder, SearchKind};
use super::go_fast::GoFast;
use super::huffman::Builder;
use super::lazy::{Cursor, advance_greedy, advance_lazy, predict_greedy, predict_lazy};
use super::medium::{Ground, Medium};
use super::symbols::{MATCH_MAX, Token, WINDOW};

/// Bytes that a predictor may look at beyond the current position.
pub(super) const LOOKAHEAD: usize = 1024;

/// Families of compressors, by their numbers in the corrections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CompressorFamily {
    /// zlib, GNU gzip, Info-ZIP; levels 1 to 9.
    #[default]
    Zlib,
    /// zlib-ng and zlib-rs; levels 1 to 9.
    ZlibNg,
    /// Go compress/flate; levels 1 to 9.
    Go,
    /// miniz and miniz_oxide; levels 1 to 9.
    Miniz,
    /// No matches.
    Literals,
    /// Matches of distance 1 only.
    Runs,
}

impl CompressorFamily {
    pub(super) const ALL: [CompressorFamily; 6] = [
        CompressorFamily::Zlib,
        CompressorFamily::ZlibNg,
        CompressorFamily::Go,
        CompressorFamily::Miniz,
        CompressorFamily::Literals,
        CompressorFamily::Runs,
    ];
}

/// What is known of the compressor of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) family: CompressorFamily,
    /// 1 to 9.
    pub(super) level: u8,
    /// Bits of zlib's hash: 8 to 16, its memory level plus 7.
    pub(super) hash_bits: u8,
    /// Short matches are not taken.
    pub(super) filtered: bool,
    /// Bits of the window: 9 to 15.
    pub(super) window_bits: u8,
    /// Builder of the codes.
    pub(super) builder: Builder,
    /// Tokens of a full block.
    pub(super) block_tokens: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            family: CompressorFamily::Zlib,
            level: 6,
            hash_bits: 15,
            filtered: false,
            window_bits: 15,
            builder: Builder::Zlib,
            block_tokens: (16 << 10) - 1,
        }
    }
}

impl Settings {
    /// Whether all values are within their limits.
    pub(super) fn is_known(&self) -> bool {
        (1..=9).contains(&self.level)
            && (8..=16).contains(&self.hash_bits)
            && (9..=15).contains(&self.window_bits)
            && self.block_tokens > 0
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            CompressorFamily::Zlib => "zlib",
            CompressorFamily::ZlibNg => "zlib-ng",
            CompressorFamily::Go => "go",
            CompressorFamily::Miniz => "miniz",
            CompressorFamily::Literals => return f.write_str("literals only"),
            CompressorFamily::Runs => return f.write_str("runs only"),
        };
        write!(f, "{family} {}", self.level)
    }
}

/// good, lazy, nice, chain of zlib's levels 1 to 9, and of Go's levels 2 to 9. Levels 1 to 3 are greedy: there, lazy is
/// the longest match that is inserted.
const ZLIB_LEVELS: [(usize, usize, usize, u32); 9] = [
    (4, 4, 8, 4),
    (4, 5, 16, 8),
    (4, 6, 32, 32),
    (4, 4, 16, 16),
    (8, 16, 32, 32),
    (8, 16, 128, 128),
    (8, 32, 128, 256),
    (32, 128, 258, 1024),
    (32, 258, 258, 4096),
];

/// good, lazy, nice, chain of zlib-ng's levels 1 to 9.
const ZLIB_NG_LEVELS: [(usize, usize, usize, u32); 9] = [
    (0, 0, 258, 1),
    (4, 4, 8, 4),
    (4, 6, 16, 6),
    (4, 12, 32, 24),
    (8, 16, 32, 32),
    (8, 16, 128, 128),
    (8, 32, 128, 256),
    (32, 128, 258, 1024),
    (32, 258, 258, 4096),
];

/// Probes of miniz's levels 1 to 9. Levels 1 to 3 are greedy.
const MINIZ_LEVELS: [u32; 9] = [1, 6, 32, 16, 32, 128, 256, 512, 768];

/// How tokens follow from matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PredictionRule {
    Lazy,
    Greedy,
    Medium,
    GoFast,
    Literals,
    Runs,
}

/// A predictor over the chains of one compressor.
#[derive(Debug)]
pub(super) struct Predictor {
    rule: PredictionRule,
    finder: Finder,
    chains: Chains,
    cursor: Cursor,
    medium: Medium,
    go_fast: GoFast,
}

impl Predictor {
    pub(super) fn new() -> Self {
        let settings = Settings::default();
        let (rule, hash, finder) = rules(&settings);
        Predictor {
            rule,
            finder,
            chains: Chains::new(hash),
            cursor: Cursor::default(),
            medium: Medium::default(),
            go_fast: GoFast::new(),
        }
    }

    /// Starts a stream at index 0 of the view. Its first position has this number.
    pub(super) fn start(&mut self, settings: &Settings, floor: u32) {
        let (rule, hash, finder) = rules(settings);
        self.rule = rule;
        self.finder = finder;
        let has_long = rule == PredictionRule::Lazy && settings.family == CompressorFamily::Zlib;
        self.chains.start(hash, floor, has_long);
        self.cursor = Cursor::default();
        self.medium = Medium::default();
        self.go_fast.start();
    }

    /// Forgets the chains. Needed when the numbers of positions start again.
    pub(super) fn clear(&mut self) {
        self.chains.clear();
        self.go_fast.clear();
    }

    /// Token at `index`, which lies before the end of the view.
    #[inline]
    pub(super) fn predict(&mut self, view: &PlainView<'_>, index: usize) -> Token {
        match self.rule {
            PredictionRule::Lazy => predict_lazy(&self.finder, &mut self.chains, &mut self.cursor, view, index),
            PredictionRule::Greedy => predict_greedy(&self.finder, &mut self.chains, &mut self.cursor, view, index),
            PredictionRule::Medium => {
                let Predictor { finder, chains, cursor, medium, .. } = self;
                medium.predict(Ground { finder, chains, cursor, view }, index)
            }
            PredictionRule::GoFast => self.go_fast.predict(view, index, LOOKAHEAD),
            PredictionRule::Literals => Token::literal(view.data[index]),
            PredictionRule::Runs => predict_run(view, index),
        }
    }

    /// Takes the token that the compressor had at `index`.
    #[inline]
    pub(super) fn advance(&mut self, view: &PlainView<'_>, index: usize, token: Token) {
        match self.rule {
            PredictionRule::Lazy => advance_lazy(&mut self.chains, &mut self.cursor, view, index, token),
            PredictionRule::Greedy => {
                advance_greedy(&self.finder, &mut self.chains, &mut self.cursor, view, index, token);
            }
            PredictionRule::Medium => {
                let Predictor { finder, chains, cursor, medium, .. } = self;
                medium.advance(Ground { finder, chains, cursor, view }, index, token);
            }
            PredictionRule::GoFast => self.go_fast.advance(view, index, token, LOOKAHEAD),
            PredictionRule::Literals | PredictionRule::Runs => {}
        }
    }

    /// Takes bytes of a stored block, whose tokens are not known.
    pub(super) fn advance_stored(&mut self, view: &PlainView<'_>, index: usize, len: usize) {
        self.cursor.next = None;
        self.medium = Medium::default();
        self.go_fast.skip_to(index + len);
        if len > 0 && matches!(self.rule, PredictionRule::Lazy | PredictionRule::Greedy | PredictionRule::Medium) {
            self.cursor.insert_to(&mut self.chains, view, index + len - 1);
        }
    }

    /// The data of the view loses `count` bytes in front.
    pub(super) fn shift(&mut self, count: usize) {
        self.cursor.shift(count);
        self.medium.shift(count);
        self.go_fast.shift(count);
    }
}

/// A match of distance 1 if three bytes repeat the one before.
fn predict_run(view: &PlainView<'_>, index: usize) -> Token {
    let data = view.data;
    if index > 0 && view.origin + index as u32 > view.floor {
        let byte = data[index - 1];
        let len = data[index..].iter().take(MATCH_MAX).take_while(|&&other| other == byte).count();
        if len >= 3 {
            return Token::copy(len, 1);
        }
    }
    Token::literal(data[index])
}

/// Rules of a compressor whose settings are known.
fn rules(settings: &Settings) -> (PredictionRule, Hash, Finder) {
    let level = usize::from(settings.level);
    let distance_max = (1 << settings.window_bits) - 262;
    match settings.family {
        CompressorFamily::Zlib => {
            let rule = if level <= 3 { PredictionRule::Greedy } else { PredictionRule::Lazy };
            let too_far = if level <= 3 { WINDOW } else { 4096 };
            let bits = u32::from(settings.hash_bits);
            let hash = Hash::Shifted { bits, shift: bits.div_ceil(3) };
            let filtered = settings.filtered && level > 3;
            let finder = Finder { too_far, filtered, distance_max, ..plain_finder(ZLIB_LEVELS[level - 1]) };
            (rule, hash, finder)
        }
        CompressorFamily::ZlibNg => {
            let rule = match level {
                1 | 2 => PredictionRule::Greedy,
                3..=6 => PredictionRule::Medium,
                _ => PredictionRule::Lazy,
            };
            let hash = if level == 9 { Hash::Shifted { bits: 15, shift: 5 } } else { Hash::Multiplied };
            let finder = Finder {
                search: if level == 9 { SearchKind::Deep } else { SearchKind::Zlib },
                gives_up: level < 5,
                len_min: if level < 7 { 4 } else { 3 },
                filtered: settings.filtered && level > 6,
                distance_max,
                inserts_last: level == 2,
                ..plain_finder(ZLIB_NG_LEVELS[level - 1])
            };
            (rule, hash, finder)
        }
        CompressorFamily::Go if level == 1 => (PredictionRule::GoFast, Hash::Go, plain_finder(ZLIB_LEVELS[0])),
        CompressorFamily::Go => {
            let rule = if level <= 3 { PredictionRule::Greedy } else { PredictionRule::Lazy };
            let finder =
                Finder { search: SearchKind::Go, len_min: 4, too_far: 4096, ..plain_finder(ZLIB_LEVELS[level - 1]) };
            (rule, Hash::Go, finder)
        }
        CompressorFamily::Miniz => {
            let rule = if level <= 3 { PredictionRule::Greedy } else { PredictionRule::Lazy };
            let finder = Finder {
                search: SearchKind::Miniz,
                lazy_max: if level <= 3 { MATCH_MAX } else { 128 },
                chain: MINIZ_LEVELS[level - 1],
                too_far: 8191,
                filtered: settings.filtered,
                ..plain_finder(ZLIB_LEVELS[0])
            };
            (rule, Hash::Shifted { bits: 15, shift: 5 }, finder)
        }
        CompressorFamily::Literals => (PredictionRule::Literals, Hash::Multiplied, plain_finder(ZLIB_LEVELS[0])),
        CompressorFamily::Runs => (PredictionRule::Runs, Hash::Multiplied, plain_finder(ZLIB_LEVELS[0])),
    }
}

fn plain_finder((good, lazy_max, nice, chain): (usize, usize, usize, u32)) -> Finder {
    Finder {
        search: SearchKind::Zlib,
        good,
        lazy_max,
        nice,
        chain,
        len_min: 3,
        too_far: WINDOW,
        filtered: false,
        distance_max: WINDOW - 262,
        inserts_last: false,
        gives_up: false,
    }
}
