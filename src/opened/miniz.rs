//! The search of miniz and its descendants.

use super::chains::{Chains, FoundMatch, PlainView, match_len};
use super::symbols::{MATCH_MAX, WINDOW};

/// Candidates that are looked at before a probe is counted, unless one fits.
const PER_PROBE: u32 = 3;

/// Longest match at `index`, which is inserted, if it is longer than `before`. `probes`: for a match before of less
/// than 32 bytes, and of more.
pub(super) fn search_miniz(
    chains: &Chains,
    view: &PlainView<'_>,
    index: usize,
    before: usize,
    probes: [u32; 2],
) -> FoundMatch {
    let data = view.data;
    let most = (data.len() - index).min(MATCH_MAX);
    if most <= before {
        return FoundMatch::default();
    }
    let position = view.origin + index as u32;
    let since = position - view.floor;
    let distance_max = since.min((WINDOW - most) as u32);
    let mut candidate = position;
    let mut found = FoundMatch { len: before, distance: 0 };
    let mut left = probes[usize::from(before >= 32)];
    'probes: loop {
        left = left.saturating_sub(1);
        if left == 0 {
            break;
        }
        for _ in 0..PER_PROBE {
            candidate = chains.before(candidate);
            // A position whose lower 16 bits are 0 ends the chain.
            if candidate <= view.floor || position - candidate > distance_max || (candidate - view.floor) & 0xFFFF == 0
            {
                break 'probes;
            }
            let source = (candidate - view.origin) as usize;
            let last = source + found.len - 1;
            if data[last..last + 2] != data[index + found.len - 1..index + found.len + 1] {
                continue;
            }
            let len = match_len(data, source, index);
            if len > found.len {
                found = FoundMatch { len, distance: index - source };
                if len == most {
                    break 'probes;
                }
            }
            continue 'probes;
        }
    }
    let is_start = since as usize % WINDOW == found.distance;
    if found.distance == 0 || is_start { FoundMatch::default() } else { found }
}
