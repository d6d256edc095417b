//! Predictors that weigh a match against the one at the next position, and greedy ones.

use super::chains::{Chains, FoundMatch, PlainView};
use super::finders::Finder;
use super::symbols::Token;

/// State of a predictor between tokens, by index into the view.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Cursor {
    /// Next position that is not in the chains.
    pub(super) inserted: usize,
    /// What was found at the current position while the one before was weighed.
    pub(super) next: Option<(usize, FoundMatch)>,
}

impl Cursor {
    /// Inserts positions up to and with `last`.
    #[inline]
    pub(super) fn insert_to(&mut self, chains: &mut Chains, view: &PlainView<'_>, last: usize) {
        if self.inserted <= last {
            self.inserted = chains.insert(view, self.inserted, last);
        }
    }

    /// Takes a shift of the view's data to the front.
    pub(super) fn shift(&mut self, count: usize) {
        self.inserted = self.inserted.saturating_sub(count);
        self.next = self.next.and_then(|(index, found)| Some((index.checked_sub(count)?, found)));
    }
}

/// Token of a lazy compressor at `index`: the match there, or a literal if the next position has a longer one.
#[inline]
pub(super) fn predict_lazy(
    finder: &Finder,
    chains: &mut Chains,
    cursor: &mut Cursor,
    view: &PlainView<'_>,
    index: usize,
) -> Token {
    let found = match cursor.next {
        Some((at, found)) if at == index => found,
        _ => {
            cursor.insert_to(chains, view, index);
            if cursor.inserted > index {
                finder.search(chains, view, index, FoundMatch::default())
            } else {
                FoundMatch::default()
            }
        }
    };
    cursor.next = None;
    if found.len < finder.len_min {
        return Token::literal(view.data[index]);
    }
    let next = index + 1;
    if found.len < finder.lazy_max && next < view.data.len() {
        cursor.insert_to(chains, view, next);
        if cursor.inserted > next {
            let better = finder.search(chains, view, next, found);
            if better.len > found.len {
                cursor.next = Some((next, better));
                return Token::literal(view.data[index]);
            }
        }
    }
    // Should the token be a literal after all, the next position has no match.
    cursor.next = Some((next, FoundMatch::default()));
    Token::copy(found.len, found.distance)
}

/// Takes the token that a lazy compressor chose: all positions are inserted.
#[inline]
pub(super) fn advance_lazy(chains: &mut Chains, cursor: &mut Cursor, view: &PlainView<'_>, index: usize, token: Token) {
    if token.is_copy() {
        cursor.next = None;
    }
    cursor.insert_to(chains, view, index + token.len() - 1);
}

/// Token of a greedy compressor at `index`: the longest match.
#[inline]
pub(super) fn predict_greedy(
    finder: &Finder,
    chains: &mut Chains,
    cursor: &mut Cursor,
    view: &PlainView<'_>,
    index: usize,
) -> Token {
    cursor.insert_to(chains, view, index);
    if cursor.inserted > index {
        let found = finder.search(chains, view, index, FoundMatch::default());
        if found.len >= finder.len_min {
            return Token::copy(found.len, found.distance);
        }
    }
    Token::literal(view.data[index])
}

/// Takes the token that a greedy compressor chose: only short matches are inserted.
#[inline]
pub(super) fn advance_greedy(
    finder: &Finder,
    chains: &mut Chains,
    cursor: &mut Cursor,
    view: &PlainView<'_>,
    index: usize,
    token: Token,
) {
    let end = index + token.len();
    if !token.is_copy() || token.len() <= finder.lazy_max {
        cursor.insert_to(chains, view, end - 1);
        return;
    }
    cursor.insert_to(chains, view, index);
    cursor.inserted = end;
    if finder.inserts_last {
        chains.insert(view, end - 1, end - 1);
    }
}
