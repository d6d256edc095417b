//! Capping: a segment of the stream refers to a limited number of old containers (Lillibridge, Eshghi and Bhagwat,
//! FAST 2013, section 5).
//!
//! 1. Chunks are held back until they form a segment of `segment_bytes`.
//! 2. The old containers of its duplicates are sorted by their bytes of the segment, and newer ones first if equal.
//! 3. Duplicates in the first `level` containers stay. Duplicates in the others are rewritten.
//!
//! Interpretation: the share of a container is counted in bytes, each chunk once, because a restore reads bytes. The
//! open container and chunks of the same segment do not count, because they are read in any case.

use std::collections::{HashMap, HashSet};

use super::{Decided, Located, RewriteContext, Rewriter};
use crate::trace::containers::SimulatedContainer;
use crate::trace::plan::CappingPlan;

pub(super) struct Capping {
    level: usize,
    segment_bytes: u64,
    segment: Vec<Located>,
    bytes: u64,
}

impl Capping {
    pub(super) fn new(plan: &CappingPlan) -> Self {
        Capping { level: plan.level, segment_bytes: plan.segment_bytes.0, segment: Vec::new(), bytes: 0 }
    }

    /// Containers whose duplicates stay.
    fn staying(&self, context: &RewriteContext<'_>) -> HashSet<SimulatedContainer> {
        let (mut parts, mut seen) = (HashMap::new(), HashSet::new());
        for chunk in &self.segment {
            if let Some(container) = context.old_container(chunk)
                && seen.insert((container, chunk.chunk))
            {
                *parts.entry(container).or_insert(0) += u64::from(chunk.bytes);
            }
        }
        let mut parts: Vec<(u64, SimulatedContainer)> = parts.into_iter().map(|(at, bytes)| (bytes, at)).collect();
        parts.sort_unstable_by(|one, other| other.cmp(one));
        parts.into_iter().take(self.level).map(|(_, container)| container).collect()
    }
}

impl Rewriter for Capping {
    fn push(&mut self, chunk: Located, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        self.segment.push(chunk);
        self.bytes += u64::from(chunk.bytes);
        if self.bytes >= self.segment_bytes {
            self.finish(context, decided);
        }
    }

    fn finish(&mut self, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let staying = self.staying(context);
        self.bytes = 0;
        decided.extend(self.segment.drain(..).map(|chunk| {
            let rewrite = context.old_container(&chunk).is_some_and(|container| !staying.contains(&container));
            Decided { chunk, rewrite }
        }));
    }
}
