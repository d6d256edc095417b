//! History-aware rewriting: successive backups are similar, so the containers that the previous backup used little are
//! known in advance (Fu et al., USENIX ATC 2014).
//!
//! 1. During a backup, the distinct bytes used of each container are added up. A container is *sparse* if its used
//!    fraction is below `utilisation`.
//! 2. The next backup inherits the sparse containers. Their chunks are rewritten in any context and are then together
//!    in new containers. No chunk is held back.
//! 3. The rewritten bytes are what this backup uses of sparse containers. They are limited to `limit` of its bytes:
//!    the least used containers are inherited first.
//!
//! Interpretation: the use of a container is relative to a full container, so a short last container of a backup
//! becomes sparse. The history is recorded for all methods, because their statistics include sparse containers. Only
//! this method acts on it. Memory: 8 bytes and a table entry for each pair of chunk and container in a stream.

use std::collections::{HashMap, HashSet};

use super::{Decided, Found, Located, RewriteContext, Rewriter};
use crate::trace::containers::{ChunkNumber, SimulatedContainer};
use crate::trace::plan::HarPlan;

pub(super) struct Har;

impl Rewriter for Har {
    fn push(&mut self, chunk: Located, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let is_sparse = |container| context.inherited.contains(&container);
        let rewrite = matches!(chunk.found, Found::In(container) if is_sparse(container));
        decided.push(Decided { chunk, rewrite });
    }
}

/// Use of containers by successive streams.
#[derive(Debug)]
pub struct History {
    utilisation: f64,
    limit: f64,
    inherited: HashSet<SimulatedContainer>,
    seen: HashSet<(SimulatedContainer, ChunkNumber)>,
    used: HashMap<SimulatedContainer, u64>,
    bytes: u64,
}

/// Containers that a stream uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Containers that it refers to.
    pub containers: u64,
    /// Of those, sparse containers.
    pub sparse: u64,
    /// Sparse containers that it inherited from the previous stream.
    pub inherited: u64,
}

impl History {
    /// The history before the first stream.
    pub fn new(plan: &HarPlan) -> Self {
        History {
            utilisation: plan.utilisation,
            limit: plan.limit,
            inherited: HashSet::new(),
            seen: HashSet::new(),
            used: HashMap::new(),
            bytes: 0,
        }
    }

    /// Sparse containers that the current stream inherited.
    pub fn inherited(&self) -> &HashSet<SimulatedContainer> {
        &self.inherited
    }

    /// Records that the current stream uses a chunk of a container.
    pub fn refer(&mut self, container: SimulatedContainer, chunk: ChunkNumber, bytes: u32) {
        self.bytes += u64::from(bytes);
        if self.seen.insert((container, chunk)) {
            *self.used.entry(container).or_insert(0) += u64::from(bytes);
        }
    }

    /// Ends the stream. The next stream inherits its sparse containers. A full container has `container_bytes`.
    pub fn end_stream(&mut self, container_bytes: u64) -> Usage {
        let bound = self.utilisation * container_bytes as f64;
        let (containers, inherited) = (self.used.len() as u64, self.inherited.len() as u64);
        let used = std::mem::take(&mut self.used).into_iter();
        let mut sparse: Vec<(u64, SimulatedContainer)> =
            used.filter(|(_, bytes)| (*bytes as f64) < bound).map(|(container, bytes)| (bytes, container)).collect();
        sparse.sort_unstable();
        let budget = self.limit * self.bytes as f64;
        let mut again = 0;
        let within = sparse.iter().take_while(|(bytes, _)| {
            again += bytes;
            again as f64 <= budget
        });
        self.inherited = within.map(|(_, container)| *container).collect();
        self.seen.clear();
        self.bytes = 0;
        Usage { containers, sparse: sparse.len() as u64, inherited }
    }
}
