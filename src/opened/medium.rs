//! The middle levels of zlib-ng: a match is weighed against the match that follows it.
//!
//! The match after the current one is looked for at once; where it can begin sooner, it takes bytes from the
//! current one.

use super::chains::{Chains, FoundMatch, PlainView};
use super::finders::Finder;
use super::lazy::Cursor;
use super::symbols::{Token, WINDOW};

/// Lookahead up to which zlib-ng does not weigh the next match.
const LOOKAHEAD_MIN: usize = 262;

/// A match or a literal (`len` 1) at an index.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    index: usize,
    len: usize,
    distance: usize,
}

/// State between tokens: the step that follows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Medium {
    next: Option<Step>,
    /// The step after the predicted token.
    planned: Option<(Token, Step)>,
}

/// The compressor's chains and the bytes they are of.
pub(super) struct Ground<'a> {
    pub(super) finder: &'a Finder,
    pub(super) chains: &'a mut Chains,
    pub(super) cursor: &'a mut Cursor,
    pub(super) view: &'a PlainView<'a>,
}

impl Medium {
    /// Token at `index`.
    pub(super) fn predict(&mut self, mut ground: Ground<'_>, index: usize) -> Token {
        let data = ground.view.data;
        let (weighs, lookahead) = (ground.finder.good >= 8, data.len() - index);
        let start = window_start(ground.view, index);
        let mut next = self.next.take().filter(|step| step.index == index);
        self.planned = None;
        loop {
            let mut current = next.take().unwrap_or_else(|| ground.find(index));
            ground.insert(&current, lookahead);
            let end = index + current.len;
            if weighs && lookahead > LOOKAHEAD_MIN && end < start + 2 * WINDOW - LOOKAHEAD_MIN {
                let mut following = ground.find(end);
                if following.len > 1 {
                    begin_sooner(data, start, ground.finder.distance_max, &mut current, &mut following);
                }
                next = Some(following);
            }
            if current.len == 0 {
                continue;
            }
            let token = match current.len {
                ..4 => Token::literal(data[index]),
                len => Token::copy(len, current.distance),
            };
            self.planned = next.map(|next| (token, next));
            return token;
        }
    }

    /// Takes the token at `index`.
    pub(super) fn advance(&mut self, ground: Ground<'_>, index: usize, token: Token) {
        let end = index + token.len();
        let planned = self.planned.take().filter(|&(predicted, step)| predicted == token && step.index == end);
        self.next = planned.map(|(_, step)| step);
        ground.cursor.insert_to(ground.chains, ground.view, index);
        if planned.is_none() && ground.cursor.inserted < end && token.len() <= 16 * ground.finder.lazy_max {
            ground.cursor.insert_to(ground.chains, ground.view, end - 1);
        }
    }

    pub(super) fn shift(&mut self, count: usize) {
        let moved = |step: Step| Some(Step { index: step.index.checked_sub(count)?, ..step });
        self.next = self.next.and_then(moved);
        self.planned = None;
    }
}

impl Ground<'_> {
    fn find(&mut self, index: usize) -> Step {
        let mut step = Step { index, len: 1, distance: 0 };
        if self.cursor.inserted <= index {
            self.cursor.inserted = index;
            self.cursor.insert_to(self.chains, self.view, index);
        }
        if self.cursor.inserted > index {
            let found = self.finder.search(self.chains, self.view, index, FoundMatch::default());
            if found.len >= self.finder.len_min {
                step.len = found.len;
                step.distance = found.distance;
            }
        }
        step
    }

    /// Inserts the positions of a step; of a very long one only the last.
    fn insert(&mut self, step: &Step, lookahead: usize) {
        if lookahead <= step.len + 4 || step.len < 4 {
            return;
        }
        let end = step.index + step.len;
        if step.len <= 16 * self.finder.lazy_max {
            self.cursor.insert_to(self.chains, self.view, end - 1);
        } else if self.cursor.inserted < end {
            self.chains.insert(self.view, end - 1, end - 1);
            self.cursor.inserted = end;
        }
    }
}

/// Index of the first byte of zlib-ng's window, which moves by half when the position passes its end. It is 0 if
/// the window begins before the view.
fn window_start(view: &PlainView<'_>, index: usize) -> usize {
    let since = (view.origin - view.floor) as usize + index;
    let moves = (since + WINDOW).saturating_sub(2 * WINDOW - LOOKAHEAD_MIN + 1) / WINDOW;
    (moves * WINDOW).saturating_sub((view.origin - view.floor) as usize)
}

/// Lets the next match begin sooner, if that leaves at most one byte of the current one.
fn begin_sooner(data: &[u8], start: usize, distance_max: usize, current: &mut Step, next: &mut Step) {
    let source = next.index - next.distance;
    let back = current.len - 1;
    if current.len <= 1 || back > source - start.min(source) || data[source - back] != data[next.index - back] {
        return;
    }
    let limit = next.index.saturating_sub(distance_max).max(start);
    let (mut shorter, mut longer) = (*current, *next);
    loop {
        let source = longer.index - longer.distance;
        let is_over = shorter.len < 1 || longer.index <= limit || longer.len >= 256 || source <= start + 1;
        if is_over || data[source - 1] != data[longer.index - 1] {
            break;
        }
        longer.index -= 1;
        longer.len += 1;
        shorter.len -= 1;
    }
    if longer.index < next.index && shorter.len <= 1 && longer.len != 2 {
        *current = shorter;
        *next = longer;
    }
}
