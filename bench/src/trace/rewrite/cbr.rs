//! Context-based rewriting: a duplicate is rewritten if reading its container provides little else (Kaczmarek,
//! Barczynski, Kilian and Dubnicki, SYSTOR 2012).
//!
//! 1. Chunks are held back until `stream_context_bytes` of the stream follow them: their *stream context*. The data
//!    read together with a chunk is its *disk context*.
//! 2. The *rewrite utility* of a duplicate is the fraction of its disk context that is not in its stream context.
//! 3. A duplicate is rewritten if its utility is at least `minimal_utility` and among the highest `limit` of those
//!    evaluated so far, and if all rewritten bytes stay within `limit` of the stream so far.
//! 4. If it stays, the other chunks of its disk context in the stream context stay, too, because their container is
//!    read for it.
//!
//! Interpretation: the disk context is the container, which is what a restore reads. A histogram with steps of 0.01
//! over the stream so far gives the highest `limit`; the step at the boundary is included. Duplicates that stay by
//! rule 4 are not evaluated and not counted. The open container is never a disk context.

use std::collections::{HashMap, VecDeque};

use super::{Decided, Located, RewriteContext, Rewriter};
use crate::trace::containers::{ChunkNumber, SimulatedContainer};
use crate::trace::plan::CbrPlan;

/// Steps of the histogram of utilities.
const STEPS: usize = 100;

pub(super) struct Cbr {
    limit: f64,
    minimal_utility: f64,
    context_bytes: u64,
    window: VecDeque<(Located, Option<SimulatedContainer>)>,
    window_bytes: u64,
    /// Number in the stream of the first chunk of the window.
    first: u64,
    /// Occurrences of each chunk of a container in the window.
    times: HashMap<(SimulatedContainer, ChunkNumber), u32>,
    /// Bytes of the chunks of each container in the window, each chunk once.
    shared: HashMap<SimulatedContainer, u64>,
    /// Chunks of a container stay before this number in the stream.
    stays_before: HashMap<SimulatedContainer, u64>,
    histogram: [u64; STEPS + 1],
    evaluated: u64,
    seen_bytes: u64,
    rewritten_bytes: u64,
}

impl Cbr {
    pub(super) fn new(plan: &CbrPlan) -> Self {
        Cbr {
            limit: plan.limit,
            minimal_utility: plan.minimal_utility,
            context_bytes: plan.stream_context_bytes.0,
            window: VecDeque::new(),
            window_bytes: 0,
            first: 0,
            times: HashMap::new(),
            shared: HashMap::new(),
            stays_before: HashMap::new(),
            histogram: [0; STEPS + 1],
            evaluated: 0,
            seen_bytes: 0,
            rewritten_bytes: 0,
        }
    }

    /// Decides on the first chunk of the window.
    fn decide(&mut self, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let Some((chunk, home)) = self.window.front().copied() else { return };
        let rewrite = home.is_some_and(|container| self.is_worth_it(&chunk, container, context));
        self.seen_bytes += u64::from(chunk.bytes);
        self.rewritten_bytes += if rewrite { u64::from(chunk.bytes) } else { 0 };
        self.window.pop_front();
        self.window_bytes -= u64::from(chunk.bytes);
        self.first += 1;
        if let Some(container) = home {
            self.forget(&chunk, container);
        }
        decided.push(Decided { chunk, rewrite });
    }

    fn is_worth_it(&mut self, chunk: &Located, container: SimulatedContainer, context: &RewriteContext<'_>) -> bool {
        if self.stays_before.get(&container).is_some_and(|end| self.first < *end) {
            return false;
        }
        let shared = self.shared.get(&container).copied().unwrap_or(0) as f64;
        let utility = (1.0 - shared / (context.containers.bytes(container) as f64).max(1.0)).max(0.0);
        if let Some(count) = self.histogram.get_mut((utility * STEPS as f64) as usize) {
            *count += 1;
        }
        self.evaluated += 1;
        let bytes = u64::from(chunk.bytes);
        let budget = self.limit * (self.seen_bytes + bytes) as f64;
        let rewrite =
            utility >= self.minimal_utility.max(self.threshold()) && (self.rewritten_bytes + bytes) as f64 <= budget;
        if !rewrite {
            self.stays_before.insert(container, self.first + self.window.len() as u64);
        }
        rewrite
    }

    /// The smallest of the highest utilities evaluated so far.
    fn threshold(&self) -> f64 {
        let wanted = self.limit * self.evaluated as f64;
        let mut above = 0;
        for (step, count) in self.histogram.iter().enumerate().rev() {
            above += count;
            if above > 0 && above as f64 >= wanted {
                return step as f64 / STEPS as f64;
            }
        }
        0.0
    }

    fn forget(&mut self, chunk: &Located, container: SimulatedContainer) {
        let key = (container, chunk.chunk);
        let Some(times) = self.times.get_mut(&key) else { return };
        *times -= 1;
        if *times > 0 {
            return;
        }
        self.times.remove(&key);
        if let Some(shared) = self.shared.get_mut(&container) {
            *shared = shared.saturating_sub(u64::from(chunk.bytes));
            if *shared == 0 {
                self.shared.remove(&container);
                self.stays_before.remove(&container);
            }
        }
    }
}

impl Rewriter for Cbr {
    fn push(&mut self, chunk: Located, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let home = context.old_container(&chunk);
        if let Some(container) = home {
            let times = self.times.entry((container, chunk.chunk)).or_insert(0);
            *times += 1;
            if *times == 1 {
                *self.shared.entry(container).or_insert(0) += u64::from(chunk.bytes);
            }
        }
        self.window.push_back((chunk, home));
        self.window_bytes += u64::from(chunk.bytes);
        // The context follows the first chunk.
        while let Some((first, _)) = self.window.front()
            && self.window_bytes - u64::from(first.bytes) >= self.context_bytes
        {
            self.decide(context, decided);
        }
    }

    fn finish(&mut self, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        while !self.window.is_empty() {
            self.decide(context, decided);
        }
    }
}
