//! History-aware rewriting: successive backups are alike, so the containers of which the last one used little are
//! known before the next (Fu et al., USENIX ATC 2014).
//!
//! 1. During a backup the distinct bytes it takes from each container are added up. A container of which it uses less
//!    than `utilisation` is *sparse*.
//! 2. The next backup inherits them: their chunks are written again, whatever stands around them, and together lie in
//!    new containers. Nothing is held back.
//! 3. What would be written again, which is what this backup uses of sparse containers, is limited to `limit` of its
//!    bytes: the least used containers are inherited first, as many as stay within.
//!
//! Read here: a container's use is measured by what a full container holds, so the last one of a backup, which may
//! have stayed small, becomes sparse, too. The history is kept for all methods, as their figures name sparse
//! containers; this one alone acts on it. In memory: 8 bytes and a table entry for each pair of a chunk and a
//! container in a stream.

use std::collections::{HashMap, HashSet};

use super::{Decided, Found, Located, RewriteContext, Rewriter};
use crate::bench::trace::containers::{ChunkNumber, SimulatedContainer};
use crate::bench::trace::plan::HarPlan;

pub(super) struct Har;

impl Rewriter for Har {
    fn push(&mut self, chunk: Located, context: &RewriteContext<'_>, decided: &mut Vec<Decided>) {
        let is_sparse = |container| context.inherited.contains(&container);
        let rewrite = matches!(chunk.found, Found::In(container) if is_sparse(container));
        decided.push(Decided { chunk, rewrite });
    }
}

/// How successive streams use containers.
#[derive(Debug)]
pub struct History {
    utilisation: f64,
    limit: f64,
    inherited: HashSet<SimulatedContainer>,
    seen: HashSet<(SimulatedContainer, ChunkNumber)>,
    used: HashMap<SimulatedContainer, u64>,
    bytes: u64,
}

/// Containers of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those it refers to.
    pub containers: u64,
    /// Of those, how many are sparse.
    pub sparse: u64,
    /// Containers that it inherited as sparse from the stream before.
    pub inherited: u64,
}

impl History {
    /// Before the first stream.
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

    /// Containers that the current stream inherits as sparse.
    pub fn inherited(&self) -> &HashSet<SimulatedContainer> {
        &self.inherited
    }

    /// The current stream takes a chunk from a container.
    pub fn refer(&mut self, container: SimulatedContainer, chunk: ChunkNumber, bytes: u32) {
        self.bytes += u64::from(bytes);
        if self.seen.insert((container, chunk)) {
            *self.used.entry(container).or_insert(0) += u64::from(bytes);
        }
    }

    /// Ends the stream; the next one inherits its sparse containers. A full one holds `container_bytes`.
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
