//! Directives of the corrections: what the decoder does next.

use std::collections::VecDeque;

use super::corrections::CorrectionModel;
use super::framer::CHUNKS_MAX;
use super::range_coder::Coder;

/// What the decoder does next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Directive {
    /// Passes all that is left of the plain content. The last directive.
    #[default]
    Rest,
    /// Passes this many bytes of the plain content.
    Pass(u64),
    /// Rebuilds a member; its settings follow.
    Member,
    /// Frames what comes next into chunks of PNG; their lengths follow.
    Chunks,
}

impl Directive {
    pub(super) fn code<C: Coder>(self, model: &mut CorrectionModel, coder: &mut C) -> Directive {
        let (number, count) = match self {
            Directive::Rest => (0, 0),
            Directive::Pass(count) => (1, count),
            Directive::Member => (2, 0),
            Directive::Chunks => (3, 0),
        };
        match coder.tree(&mut model.directive, 2, number) {
            0 => Directive::Rest,
            1 => Directive::Pass(model.copied.code(coder, count)),
            2 => Directive::Member,
            _ => Directive::Chunks,
        }
    }
}

/// Codes the lengths of chunks. `None`: there are too many.
pub(super) fn code_chunks<C: Coder>(model: &mut CorrectionModel, coder: &mut C, lens: &[u32]) -> Option<VecDeque<u32>> {
    let count = model.chunks.code(coder, lens.len() as u64);
    if count == 0 || count > CHUNKS_MAX as u64 {
        return None;
    }
    let first = lens.first().copied().unwrap_or(0);
    let all_equal = lens.split_last().is_none_or(|(_, rest)| rest.iter().all(|&len| len == first));
    let all_equal = coder.bit(&mut model.chunks_equal, all_equal);
    let mut read = VecDeque::new();
    for index in 0..count as usize {
        let given = u64::from(lens.get(index).copied().unwrap_or(0));
        let len = match read.front() {
            Some(&first) if all_equal && index + 1 < count as usize => first,
            _ => model.chunk_len.code(coder, given) as u32,
        };
        read.push_back(len.max(1));
    }
    Some(read)
}
