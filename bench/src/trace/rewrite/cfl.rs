//! Selective deduplication by the chunk fragmentation level (Nam, Park and Du, MASCOTS 2012).
//!
//! 1. The *optimal* fragmentation of a stream is its length in full containers. The *current* one is the number of
//!    containers that a restore of the stream so far reads through a cache of `cache_containers`. The *level* is
//!    optimal divided by current: 1 for a stream in its own order, less if it is fragmented.
//! 2. While the level is at least `threshold`, duplicates stay.
//! 3. While it is less, a run of duplicates of one container stays only if it has at least the fraction `usage` of a
//!    container. Other duplicates are rewritten.
//!
//! Interpretation: the cache is LRU, as in a restore. The optimum is a whole number of containers, so a stream starts
//! with level 1. A run of duplicates of one container is held back until it is long enough or ends. Runs in the open
//! container stay.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::{Decided, Located, RewriteContext, Rewriter};
use crate::trace::containers::SimulatedContainer;
use crate::trace::plan::CflPlan;

pub(super) struct Cfl {
    threshold: f64,
    /// Minimum bytes of a run that stays.
    run_bytes_min: f64,
    container_bytes: u64,
    cache: LruCache<SimulatedContainer, ()>,
    bytes: u64,
    containers_read: u64,
    run: Vec<Located>,
    run_bytes: u64,
    home: Option<SimulatedContainer>,
}

impl Cfl {
    pub(super) fn new(plan: &CflPlan, container_bytes: u64) -> Self {
        Cfl {
            threshold: plan.threshold,
            run_bytes_min: plan.usage * container_bytes as f64,
            container_bytes,
            cache: LruCache::new(NonZeroUsize::new(plan.cache_containers).unwrap_or(NonZeroUsize::MIN)),
            bytes: 0,
            containers_read: 0,
            run: Vec::new(),
            run_bytes: 0,
            home: None,
        }
    }

    fn level(&self) -> f64 {
        let optimal = self.bytes.div_ceil(self.container_bytes.max(1)).max(1);
        optimal as f64 / self.containers_read.max(1) as f64
    }

    fn end_run(&mut self, decided: &mut Vec<Decided>) {
        let is_long = self.run_bytes as f64 >= self.run_bytes_min;
        let rewrite = !is_long && self.level() < self.threshold;
        decided.extend(self.run.drain(..).map(|chunk| Decided { chunk, rewrite }));
    }
}

impl Rewriter for Cfl {
    fn push(&mut self, chunk: Located, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let home = context.old_container(&chunk);
        if home != self.home || home.is_none() {
            self.end_run(decided);
            (self.home, self.run_bytes) = (home, 0);
        }
        if home.is_none() {
            decided.push(Decided { chunk, rewrite: false });
            return;
        }
        self.run.push(chunk);
        self.run_bytes += u64::from(chunk.bytes);
        if self.run_bytes as f64 >= self.run_bytes_min {
            self.end_run(decided);
        }
    }

    fn finish(&mut self, _: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        self.end_run(decided);
    }

    fn placed(&mut self, container: SimulatedContainer, bytes: u32) {
        self.bytes += u64::from(bytes);
        if self.cache.put(container, ()).is_none() {
            self.containers_read += 1;
        }
    }
}
